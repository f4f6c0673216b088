"""Makes a Dispatcher from the settings of a cluster."""

from __future__ import annotations

import os
from collections.abc import Collection

from firesteel.config import Settings, options
from firesteel.core.clock import Clock
from firesteel.ha.services import HighAvailabilityServices
from firesteel.rest.access import check_binding
from firesteel.service.bearer import tokens_of
from firesteel_dispatcher.internal import internal_routes
from firesteel_dispatcher.rest_server import RestListener
from firesteel_dispatcher.routes import rest_routes
from firesteel_dispatcher.settings import DispatcherSettings
from firesteel_dispatcher.shell import DispatcherService


def create_service(
    *,
    settings: Settings,
    secret: str,
    clock: Clock,
    ha: HighAvailabilityServices,
    lasting: bool = False,
    config_directory: str | os.PathLike[str] | None = None,
    host_names: Collection[str] = (),
) -> DispatcherService:
    """A Dispatcher, not started yet. ``start`` opens its internal port, and then the REST API on ``rest.port``.

    Args:
        settings: of the cluster.
        secret: the cluster's secret.
        clock: for all timeouts.
        ha: of the cluster: keeps jobs, and says where the other services are. It stays the caller's.
        lasting: whether jobs outlive this process. If not, the cluster lives in one process: jobs end with it, and the
            REST API binds to loopback whatever ``rest.bind-address`` says.
        config_directory: base of a relative ``firesteel.rest.token-file``.
        host_names: names that requests may carry in ``Host``, beside the usual ones.

    Raises:
        ConfigurationError: an option has a bad value, or the REST API would be open to other hosts.
    """
    address = settings.get(options.REST_ADDRESS)
    host = settings.get(options.REST_BIND_ADDRESS) if lasting else "127.0.0.1"
    check_binding(settings, host)
    service = DispatcherService(
        settings=DispatcherSettings.from_settings(settings),
        cluster_settings=settings,
        secret=secret,
        clock=clock,
        ha=ha,
        listener=rest_listener(settings, host, address, lasting),
        tokens=tokens_of(settings, secret, config_directory),
        all_paths=settings.is_set(options.REST_TOKEN_FILE),
        cancel_is_free=not lasting,
        lasting=lasting,
        host_names=(*host_names, *(settings.get(options.REST_HOST_NAMES) or ())),
    )
    service.app.add_routes(internal_routes(service))
    service.rest.app.add_routes(rest_routes(service))
    return service


def rest_listener(settings: Settings, host: str, address: str, lasting: bool) -> RestListener:
    """Where the REST API listens. Ports that a user has chosen are taken, or nothing starts; without a choice, an
    embedded cluster takes any port behind the default, since it has to run beside other clusters."""
    ports = settings.get(options.REST_BIND_PORT) or (settings.get(options.REST_PORT),)
    chosen = settings.is_set(options.REST_PORT) or settings.is_set(options.REST_BIND_PORT)
    return RestListener(host, ports, address if lasting else "", next_free=not lasting and not chosen)
