"""Hosts as Spark takes them: in the URIs of its endpoints."""

from __future__ import annotations

import ipaddress
import re
import socket

from firesteel.core.errors import ConfigurationError

_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_NAME = re.compile(rf"(?:{_LABEL}|(?:{_LABEL}\.)+[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?)\.?")
"""RFC 2396, ``hostname``: what ``java.net.URI`` takes. The last of several labels begins with a letter."""


def spark_host(host: str, key: str) -> str:
    """The host for Spark: an IPv6 address in brackets, and the address of a name that no URI can have.

    Container runtimes allow names with an underscore, of which Spark says only "Invalid Spark URL".

    Args:
        host: name or address under which others reach this host.
        key: of the option that names it, for messages.

    Raises:
        ConfigurationError: such a name can't be looked up.
    """
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        pass
    else:
        return f"[{address}]" if address.version == 6 else str(address)
    if not host or _NAME.fullmatch(host):
        return host
    try:
        addresses = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ConfigurationError(
            f"{key} = {host!r} is no host name that Spark can use: it may have letters, digits, hyphens and dots, and "
            f"this one has no address here either. Set {key} to another name of this host, or to its address."
        ) from None
    return spark_host(str(addresses[0][4][0]).partition("%")[0], key)
