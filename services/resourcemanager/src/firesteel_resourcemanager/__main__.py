"""``firesteel-resourcemanager``: the ResourceManager as a process of its own, with Spark as its fleet."""

from __future__ import annotations

import sys

from firesteel.config.addresses import advertised_host
from firesteel.config.options import (
    DRIVER_ORPHAN_TIMEOUT,
    HEARTBEAT_TIMEOUT,
    JAVA_HOME,
    JOBMANAGER_BIND_HOST,
    JVM_ARCHIVE,
    JVM_ARCHIVE_IN_BACKGROUND,
    RESOURCEMANAGER_ADDRESS,
    RESOURCEMANAGER_PORT,
    SPARK_SPARE_CORES,
)
from firesteel.runtime.slot_main import slot_main
from firesteel.service.process import ProcessContext, ServicePlan, run_service
from firesteel.spark.hosted import HostedFleet
from firesteel_resourcemanager.app import create_service


def build(context: ProcessContext) -> ServicePlan:
    """The service, and where it listens.

    Raises:
        ConfigurationError: an option has a bad value.
    """
    settings = context.settings
    bind_host, host = settings.get(JOBMANAGER_BIND_HOST), advertised_host(settings, RESOURCEMANAGER_ADDRESS)
    fleet = HostedFleet(
        slot_main=slot_main,
        cluster_directory=context.cluster_directory,
        secret=context.secret,
        bind_host=bind_host,
        advertised_host=host,
        spare_cores=settings.get(SPARK_SPARE_CORES),
        java_home=settings.get(JAVA_HOME),
        archive=settings.get(JVM_ARCHIVE),
        make_archive=settings.get(JVM_ARCHIVE_IN_BACKGROUND),
        orphan_timeout=settings.get(DRIVER_ORPHAN_TIMEOUT).total_seconds(),
        heartbeat_timeout=settings.get(HEARTBEAT_TIMEOUT).total_seconds(),
    )
    service = create_service(
        settings=settings,
        secret=context.secret,
        clock=context.clock,
        fleet=fleet,
        cluster_directory=context.cluster_directory,
        ha=context.high_availability,
    )
    return ServicePlan(service, bind_host, settings.get(RESOURCEMANAGER_PORT), host)


def main() -> int:
    """Run it; returns the exit code."""
    return run_service("resourcemanager", build)


if __name__ == "__main__":
    sys.exit(main())
