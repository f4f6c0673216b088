"""Makes the ResourceManager's service with the provider that the settings name."""

from __future__ import annotations

from typing import Final

from firesteel.config import Settings
from firesteel.config.options import RESOURCEMANAGER_DRIVER
from firesteel.core import plugins
from firesteel.core.clock import Clock
from firesteel.core.errors import ConfigurationError
from firesteel.ha.memory import MemoryServices
from firesteel.ha.services import HighAvailabilityServices
from firesteel.protocol.provider import Provider, ProviderContext
from firesteel.rpc.process_calls import process_routes
from firesteel_resourcemanager.routes import routes
from firesteel_resourcemanager.settings import ResourceManagerSettings
from firesteel_resourcemanager.shell import ResourceManagerService

PROVIDERS: Final = "firesteel.providers"


def load_provider(context: ProviderContext) -> Provider:
    """The provider that the settings name.

    Raises:
        ConfigurationError: there is no provider of this name, or an option has a bad value.
    """
    name = context.settings.get(RESOURCEMANAGER_DRIVER)
    provider = plugins.load(PROVIDERS, name)(context)
    if not isinstance(provider, Provider):
        raise ConfigurationError(
            f"{RESOURCEMANAGER_DRIVER.key}: {name!r} is {type(provider).__name__}, which is not derived from "
            "firesteel.protocol.provider.Provider"
        )
    return provider


def create_service(
    *,
    settings: Settings,
    secret: str,
    clock: Clock,
    provider: Provider,
    ha: HighAvailabilityServices | None = None,
) -> ResourceManagerService:
    """A ResourceManager, not started yet.

    Args:
        settings: of the cluster.
        secret: the cluster's secret.
        clock: for all timeouts.
        provider: what runs slots, and may start TaskManagers; the service begins and ends with it.
        ha: of the cluster, where this service says that it leads; it stays the caller's. None: nobody looks there.

    Raises:
        ConfigurationError: an option has a bad value.
    """
    rm_settings = ResourceManagerSettings.from_settings(settings, embedded=provider.is_embedded)
    service = ResourceManagerService(
        settings=rm_settings, secret=secret, clock=clock, provider=provider, ha=ha or MemoryServices()
    )
    service.app.add_routes([*routes(service, secret, clock), *process_routes(secret, clock)])
    return service
