"""``firesteel-taskmanager``: a TaskManager as a process of its own, which starts Spark's executors."""

from __future__ import annotations

import os
import secrets
import sys

from firesteel.config import Settings
from firesteel.config.options import (
    LOG_LEVEL,
    TASKMANAGER_BIND_HOST,
    TASKMANAGER_HOST,
    TASKMANAGER_RESOURCE_ID,
    TASKMANAGER_RPC_PORT,
    TASKMANAGER_SLOTS,
)
from firesteel.core.log_levels import ROOT
from firesteel.core.python_packages import environment_id
from firesteel.service.process import ServiceContext, ServicePlan, run_service
from firesteel_taskmanager.app import create_service


def build(context: ServiceContext) -> ServicePlan:
    """The service, and where it listens.

    Raises:
        ConfigurationError: an option has a bad value.
    """
    settings = context.settings
    bind_host, host = settings.get(TASKMANAGER_BIND_HOST), settings.get(TASKMANAGER_HOST)
    service = create_service(
        settings=settings,
        secret=context.secret,
        clock=context.clock,
        run_directory=context.run_directory,
        taskmanager_id=settings.get(TASKMANAGER_RESOURCE_ID) or _new_id(settings),
        slots=settings.get(TASKMANAGER_SLOTS),
        leaders=context.leaders,
        bind_host=bind_host,
        advertised_host=host,
        log_directory=context.log_directory,
    )
    service.environment = environment_id()
    if settings.is_set(LOG_LEVEL):
        service.core.log_levels[ROOT] = settings.get(LOG_LEVEL)
    return ServicePlan(service, bind_host, settings.get(TASKMANAGER_RPC_PORT), host)


def _new_id(settings: Settings) -> str:
    """The host, the port (the pid where any port will do), and a random end."""
    number = settings.get(TASKMANAGER_RPC_PORT) or os.getpid()
    return f"{settings.get(TASKMANAGER_HOST)}:{number}-{secrets.token_hex(3)}"


def main() -> int:
    """Run it; returns the exit code."""
    return run_service("taskmanager", build)


if __name__ == "__main__":
    sys.exit(main())
