"""``firesteel-dispatcher``: the Dispatcher as a process of its own."""

from __future__ import annotations

import sys

from firesteel.config.options import DISPATCHER_ADDRESS, JOBMANAGER_BIND_HOST, JOBMANAGER_RPC_PORT
from firesteel.service.addresses import advertised_host, jobmaster_address, resourcemanager_address
from firesteel.service.process import ProcessContext, ServicePlan, run_service
from firesteel_dispatcher.app import create_service


def build(context: ProcessContext) -> ServicePlan:
    """The service, and where it listens for the other services; the REST API has a listener of its own.

    Raises:
        ConfigurationError: an option has a bad value.
    """
    settings = context.settings
    service = create_service(
        settings=settings,
        secret=context.secret,
        clock=context.clock,
        run_directory=context.run_directory,
        jobmaster_address=jobmaster_address(settings),
        resourcemanager_address=resourcemanager_address(settings),
        cluster_directory=context.cluster_directory,
        config_directory=context.config_directory,
    )
    return ServicePlan(
        service,
        settings.get(JOBMANAGER_BIND_HOST),
        settings.get(JOBMANAGER_RPC_PORT),
        advertised_host(settings, DISPATCHER_ADDRESS),
    )


def main() -> int:
    """Run it; returns the exit code."""
    return run_service("dispatcher", build)


if __name__ == "__main__":
    sys.exit(main())
