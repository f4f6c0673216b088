"""``firesteel-operator``: the operator as a process of its own."""

from __future__ import annotations

import os
import secrets
import socket
import sys

from firesteel.config import options
from firesteel.core.environment import SECRET_VARIABLE
from firesteel.service.process import ServiceContext, ServicePlan, run_service
from firesteel_operator.app import create_service


def build(context: ServiceContext) -> ServicePlan:
    """The service, and where it listens.

    Raises:
        ConfigurationError: an option has a bad value.
    """
    settings = context.settings
    service = create_service(settings=settings, clock=context.clock)
    address, port = settings.get(options.OPERATOR_ADDRESS), settings.get(options.OPERATOR_PORT)
    return ServicePlan(service, address, port, socket.gethostname())  # nobody looks for it but by the pod's address


def main() -> int:
    """Run it; returns the exit code."""
    os.environ.setdefault(SECRET_VARIABLE, secrets.token_hex(32))  # it is no service of a cluster: nobody shares it
    return run_service("operator", build)


if __name__ == "__main__":
    sys.exit(main())
