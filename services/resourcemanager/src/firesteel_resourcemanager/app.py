"""Makes the service."""

from __future__ import annotations

from pathlib import Path

from firesteel.config import Settings
from firesteel.config.options import RESOURCEMANAGER_DRIVER
from firesteel.core import plugins
from firesteel.core.clock import Clock
from firesteel.ha.memory import MemoryServices
from firesteel.ha.services import HighAvailabilityServices
from firesteel.protocol.fleet import Fleet
from firesteel.protocol.worker_driver import WorkerDriver, WorkerDriverContext
from firesteel_resourcemanager.drivers.standalone import StandaloneDriver
from firesteel_resourcemanager.routes import routes
from firesteel_resourcemanager.settings import ResourceManagerSettings
from firesteel_resourcemanager.shell import ResourceManagerService

DRIVERS = "firesteel.worker_drivers"


def create_service(
    *,
    settings: Settings,
    secret: str,
    clock: Clock,
    fleet: Fleet,
    cluster_directory: Path | None = None,
    ha: HighAvailabilityServices | None = None,
) -> ResourceManagerService:
    """A ResourceManager, not started yet.

    Args:
        settings: of the cluster.
        secret: the cluster's secret.
        clock: for all timeouts.
        fleet: what runs slots; the service starts and stops it.
        cluster_directory: where the driver of workers keeps what a later ResourceManager has to find. None: embedded;
            all TaskManagers there will be are started beside the service, at once.
        ha: of the cluster, where this service says that it leads; it stays the caller's. None: nobody looks there.

    Raises:
        ConfigurationError: an option has a bad value.
    """
    embedded = cluster_directory is None
    own = ResourceManagerSettings.from_settings(settings, embedded=embedded)
    context = None if cluster_directory is None else WorkerDriverContext(settings, secret, clock, cluster_directory)
    workers: WorkerDriver = StandaloneDriver(context)
    if context is not None:
        workers = plugins.load(DRIVERS, settings.get(RESOURCEMANAGER_DRIVER))(context)
    service = ResourceManagerService(
        settings=own, secret=secret, clock=clock, fleet=fleet, workers=workers, ha=ha or MemoryServices()
    )
    service.app.add_routes(routes(service, secret, clock))
    return service
