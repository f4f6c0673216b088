"""``firesteel-jobmaster``: the JobMaster host as a process of its own, which forks one for each job."""

from __future__ import annotations

import sys

from firesteel.config.addresses import advertised_host
from firesteel.config.options import JOBMANAGER_BIND_HOST, JOBMASTER_ADDRESS, JOBMASTER_PORT
from firesteel.service.process import ServiceContext, ServicePlan, run_service
from firesteel_jobmaster.app import create_host


def build(context: ServiceContext) -> ServicePlan:
    """The service, and where it listens.

    Raises:
        ConfigurationError: an option has a bad value.
    """
    settings = context.settings
    bind_host, host = settings.get(JOBMANAGER_BIND_HOST), advertised_host(settings, JOBMASTER_ADDRESS)
    service = create_host(
        settings=settings,
        secret=context.secret,
        clock=context.clock,
        run_directory=context.run_directory,
        cluster_directory=context.cluster_directory,
        bind_host=bind_host,
        advertised_host=host,
        log_directory=context.log_directory,
        ha=context.high_availability,
    )
    return ServicePlan(service, bind_host, settings.get(JOBMASTER_PORT), host)


def main() -> int:
    """Run it; returns the exit code."""
    return run_service("jobmaster", build)


if __name__ == "__main__":
    sys.exit(main())
