"""``firesteel-resourcemanager``: the ResourceManager as a process of its own."""

from __future__ import annotations

import sys

from firesteel.config.addresses import advertised_host
from firesteel.config.options import JOBMANAGER_BIND_HOST, RESOURCEMANAGER_ADDRESS, RESOURCEMANAGER_PORT
from firesteel.protocol.provider import ProviderContext
from firesteel.service.process import ServiceContext, ServicePlan, run_service
from firesteel.spark.mains import SLOT_MAIN, STAGE_MAIN
from firesteel_resourcemanager.app import create_service, load_provider


def build(context: ServiceContext) -> ServicePlan:
    """The service, and where it listens.

    Raises:
        ConfigurationError: an option has a bad value.
    """
    settings = context.settings
    bind_host, host = settings.get(JOBMANAGER_BIND_HOST), advertised_host(settings, RESOURCEMANAGER_ADDRESS)
    provider = load_provider(
        ProviderContext(
            settings, context.secret, context.clock, context.cluster_directory, SLOT_MAIN, bind_host, host, STAGE_MAIN
        )
    )
    service = create_service(
        settings=settings,
        secret=context.secret,
        clock=context.clock,
        provider=provider,
        ha=context.high_availability,
    )
    return ServicePlan(service, bind_host, settings.get(RESOURCEMANAGER_PORT), host)


def main() -> int:
    """Run it; returns the exit code."""
    return run_service("resourcemanager", build)


if __name__ == "__main__":
    sys.exit(main())
