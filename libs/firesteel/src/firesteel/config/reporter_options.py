"""Options of metrics and traces: who they are reported to, and what is remembered of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from firesteel.config.option import DURATION, INT, LIST, Option

METRICS_REPORTERS: Option[tuple[str, ...] | None] = Option(
    "metrics.reporters",
    LIST,
    None,
    "Names of the metric reporters that are used; each is described by metrics.reporter.<name>.*, above all by "
    "metrics.reporter.<name>.factory.class. Not set: all that are described.",
)
TRACES_REPORTERS: Option[tuple[str, ...] | None] = Option(
    "traces.reporters",
    LIST,
    None,
    "Names of the trace reporters that are used; each is described by traces.reporter.<name>.*, above all by "
    "traces.reporter.<name>.factory.class. Not set: all that are described.",
)
METRICS_HISTORY_INTERVAL = Option(
    "firesteel.metrics.history.interval",
    DURATION,
    timedelta(seconds=5),
    "How often the Dispatcher notes what jobs do, for the dashboard's charts; 0: never.",
)
METRICS_HISTORY_SIZE = Option(
    "firesteel.metrics.history.size",
    INT,
    720,
    "Moments of each job that the Dispatcher remembers; 720 of 5 s are an hour.",
    at_least=1,
    at_most=100_000,
)
LOGS_REPORTERS: Option[tuple[str, ...] | None] = Option(
    "firesteel.logs.reporters",
    LIST,
    None,
    "Names of the reporters to which services send their logs; each is described by firesteel.logs.reporter.<name>.*, "
    "above all by firesteel.logs.reporter.<name>.factory.class. Not set: all that are described.",
)
REPORTER_PREFIXES: Final = ("metrics.reporter.", "traces.reporter.", "firesteel.logs.reporter.")
"""Keys that begin so name a reporter and one of its parameters."""
