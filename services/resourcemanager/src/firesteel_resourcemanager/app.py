"""Makes the service."""

from __future__ import annotations

from firesteel.config import Settings
from firesteel.core.clock import Clock
from firesteel.protocol.fleet import Fleet
from firesteel_resourcemanager.routes import routes
from firesteel_resourcemanager.settings import ResourceManagerSettings
from firesteel_resourcemanager.shell import ResourceManagerService


def create_service(*, settings: Settings, secret: str, clock: Clock, fleet: Fleet) -> ResourceManagerService:
    """A ResourceManager, not started yet.

    Args:
        settings: of the cluster.
        secret: the cluster's secret.
        clock: for all timeouts.
        fleet: what runs slots; the service starts and stops it.

    Raises:
        ConfigurationError: an option has a bad value.
    """
    own = ResourceManagerSettings.from_settings(settings)
    service = ResourceManagerService(settings=own, secret=secret, clock=clock, fleet=fleet)
    service.app.add_routes(routes(service, secret))
    return service
