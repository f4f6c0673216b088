"""Where the services of a cluster are, as the settings say it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from firesteel.config.option import Option
from firesteel.config.options import (
    DISPATCHER_ADDRESS,
    HA_STORAGE_DIRECTORY,
    HA_TYPE,
    JOBMANAGER_BIND_HOST,
    JOBMANAGER_RPC_ADDRESS,
    JOBMANAGER_RPC_PORT,
    JOBMASTER_ADDRESS,
    JOBMASTER_PORT,
    RESOURCEMANAGER_ADDRESS,
    RESOURCEMANAGER_PORT,
    REST_ADDRESS,
    REST_PORT,
)
from firesteel.config.settings import Settings
from firesteel.core.errors import ConfigurationError


def dispatcher_address(settings: Settings) -> str:
    """Base URL of the Dispatcher's internal port.

    Raises:
        ConfigurationError: an option has a bad value.
    """
    return _peer(settings, DISPATCHER_ADDRESS, JOBMANAGER_RPC_PORT)


def resourcemanager_address(settings: Settings) -> str:
    """Base URL of the ResourceManager.

    Raises:
        ConfigurationError: an option has a bad value.
    """
    return _peer(settings, RESOURCEMANAGER_ADDRESS, RESOURCEMANAGER_PORT)


def jobmaster_address(settings: Settings) -> str:
    """Base URL of the JobMaster host.

    Raises:
        ConfigurationError: an option has a bad value.
    """
    return _peer(settings, JOBMASTER_ADDRESS, JOBMASTER_PORT)


def rest_address(settings: Settings) -> str:
    """Base URL where clients find the REST API.

    Raises:
        ConfigurationError: an option has a bad value.
    """
    return base_url(settings.get(REST_ADDRESS), settings.get(REST_PORT))


def leaders_are_announced(settings: Settings) -> bool:
    """Whether the services of a cluster find one another by what their leaders announce; else by the settings."""
    kind = (settings.get(HA_TYPE) or "directory").lower()
    return kind != "none" and (kind != "directory" or settings.get(HA_STORAGE_DIRECTORY) is not None)


def advertised_host(
    settings: Settings, address_option: Option[str | None], is_here: Callable[[str], bool] | None = None
) -> str:
    """The host under which others find a service of the JobManager: that of its own address option, or the common one.

    Where leaders announce themselves, a stand-by on another host may have the same settings, which name the first one:
    it announces the address that it binds.

    Args:
        settings: of the cluster.
        address_option: of the service.
        is_here: whether a name is one of this host; by default it is looked up.

    Raises:
        ConfigurationError: an option has a bad value, or all that is known is the name of another host.
    """
    if address := settings.get(address_option):
        return split_address(address_option, address)[0]
    host, bind_host = settings.get(JOBMANAGER_RPC_ADDRESS), settings.get(JOBMANAGER_BIND_HOST)
    if not leaders_are_announced(settings) or (is_here or names_this_host)(host):
        return host
    if is_wildcard(bind_host) or is_loopback(bind_host):
        raise ConfigurationError(
            f"{JOBMANAGER_RPC_ADDRESS.key} = {host} is not this host ({socket.gethostname()}), and leaders announce "
            f"where they are: set it to a name of this host here, in the environment by "
            f"FIRESTEEL_OPTION_JOBMANAGER_RPC_ADDRESS, or set {address_option.key}."
        )
    return bind_host


def names_this_host(host: str) -> bool:
    """Whether a name or an address is one of this host, as far as it can be looked up here. May take seconds."""
    try:
        addresses = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return True  # others may know it
    for family, kind, protocol, _, address in addresses:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
        except OSError:
            continue
        return True
    return False


def base_url(host: str, port: int) -> str:
    """``http://host:port``, with brackets around an IPv6 address."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def is_wildcard(host: str) -> bool:
    """Whether binding to this host means all interfaces."""
    try:
        return host == "" or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine reach a service that is bound to this host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def split_address(option: Option[str | None], text: str) -> tuple[str, int]:
    """Host and port of a ``host:port``.

    Raises:
        ConfigurationError: it is something else; the message names the option.
    """
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
        if host and port and parts.netloc == text and "@" not in text:
            return host, port
    except ValueError:
        pass
    raise ConfigurationError(f"{option.key} = {text!r} is not valid: expected host:port, such as jobmanager:6123.")


def _peer(settings: Settings, address_option: Option[str | None], port: Option[int]) -> str:
    address = settings.get(address_option)
    if address is not None:
        return base_url(*split_address(address_option, address))
    if settings.get(port) == 0:
        raise ConfigurationError(
            f"{port.key} is 0 (any port), so that nobody can find the service: set a port, or "
            f"{address_option.key} = host:port."
        )
    return base_url(settings.get(JOBMANAGER_RPC_ADDRESS), settings.get(port))
