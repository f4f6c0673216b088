"""``firesteel-historyserver``: a history server as a process of its own."""

from __future__ import annotations

import sys

from firesteel.config import options
from firesteel.service.process import ServiceContext, ServicePlan, run_service
from firesteel_historyserver.app import create_service


def build(context: ServiceContext) -> ServicePlan:
    """The service and its port.

    Raises:
        ConfigurationError: an option has a bad value.
    """
    settings = context.settings
    service = create_service(
        settings=settings, secret=context.secret, clock=context.clock, config_directory=context.config_directory
    )
    host = settings.get(options.HISTORY_ADDRESS)
    return ServicePlan(service, host, settings.get(options.HISTORY_PORT), settings.get(options.REST_ADDRESS))


def main() -> int:
    """Run the service; returns the exit code."""
    return run_service("historyserver", build)


if __name__ == "__main__":
    sys.exit(main())
