"""Options of the operator on Kubernetes."""

from __future__ import annotations

from datetime import timedelta

from firesteel.config.option import DURATION, INT, LIST, STRING, Option

_MILLISECOND = timedelta(milliseconds=1)

OPERATOR_NAMESPACES: Option[tuple[str, ...] | None] = Option(
    "firesteel.operator.namespaces",
    LIST,
    None,
    "Namespaces in which the operator looks after FiresteelDeployments and FiresteelSessionJobs. Not set: its own.",
)
OPERATOR_INTERVAL = Option(
    "firesteel.operator.interval",
    DURATION,
    timedelta(seconds=10),
    "How often the operator looks at an object of which nothing is under way.",
    at_least=_MILLISECOND,
)
OPERATOR_ADDRESS = Option(
    "firesteel.operator.address", STRING, "127.0.0.1", "Address that the operator's health port binds to."
)
OPERATOR_PORT = Option(
    "firesteel.operator.port",
    INT,
    8085,
    "Port of the operator for /health and /ready; 0: any free one.",
    at_least=0,
    at_most=65535,
)
