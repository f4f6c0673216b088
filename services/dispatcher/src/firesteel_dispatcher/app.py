"""Makes the service."""

from __future__ import annotations

from firesteel.config import Settings
from firesteel.core.clock import Clock
from firesteel.core.run_directory import RunDirectory
from firesteel_dispatcher.routes import routes
from firesteel_dispatcher.settings import DispatcherSettings
from firesteel_dispatcher.shell import DispatcherService


def create_service(
    *,
    settings: Settings,
    secret: str,
    clock: Clock,
    run_directory: RunDirectory,
    jobmaster_address: str,
    resourcemanager_address: str,
) -> DispatcherService:
    """A Dispatcher, not started yet.

    Args:
        settings: of the cluster.
        secret: the cluster's secret.
        clock: for all timeouts.
        run_directory: for blobs; it stays the caller's.
        jobmaster_address: base URL of the JobMaster host.
        resourcemanager_address: base URL.

    Raises:
        ConfigurationError: an option has a bad value.
    """
    service = DispatcherService(
        settings=DispatcherSettings.from_settings(settings),
        secret=secret,
        clock=clock,
        run_directory=run_directory,
        jobmaster_address=jobmaster_address,
        resourcemanager_address=resourcemanager_address,
    )
    service.app.add_routes(routes(service))
    return service
