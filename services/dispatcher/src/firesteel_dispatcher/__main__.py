"""``firesteel-dispatcher``: the Dispatcher as a process of its own."""

from __future__ import annotations

import logging
import sys

from firesteel.config.addresses import advertised_host
from firesteel.config.options import DISPATCHER_ADDRESS, JOBMANAGER_BIND_HOST, JOBMANAGER_RPC_PORT
from firesteel.core.errors import RunDirectoryError
from firesteel.core.running_clusters import RunningCluster, shown_as_running
from firesteel.service.process import ServiceContext, ServicePlan, run_service
from firesteel_dispatcher.app import create_service
from firesteel_dispatcher.shell import DispatcherService

logger = logging.getLogger(__name__)


def build(context: ServiceContext) -> ServicePlan:
    """The service and its internal port; the REST API has a listener of its own.

    Raises:
        ConfigurationError: an option has a bad value.
    """
    settings = context.settings
    service = create_service(
        settings=settings,
        secret=context.secret,
        clock=context.clock,
        ha=context.high_availability,
        lasting=True,
        config_directory=context.config_directory,
    )
    return ServicePlan(
        service,
        settings.get(JOBMANAGER_BIND_HOST),
        settings.get(JOBMANAGER_RPC_PORT),
        advertised_host(settings, DISPATCHER_ADDRESS),
        lambda: _show(context, service),
    )


def _show(context: ServiceContext, service: DispatcherService) -> None:
    """Let `firesteel` commands on this host find the configuration of the cluster."""
    if context.config_directory is None:
        return
    cluster = RunningCluster(context.config_directory.absolute(), service.rest.address)
    try:
        context.at_end.enter_context(shown_as_running(cluster))
    except (OSError, RunDirectoryError) as error:
        logger.warning("`firesteel` will not find this cluster without --config-dir: %s", error)


def main() -> int:
    """Run the service; returns the exit code."""
    return run_service("dispatcher", build)


if __name__ == "__main__":
    sys.exit(main())
