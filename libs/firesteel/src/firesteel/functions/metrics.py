"""What functions measure: counters, gauges, meters and distributions, in groups. PyFlink's names and signatures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

__all__ = ["Counter", "Distribution", "Meter", "MetricGroup"]

USER_METRICS = "user"
"""Where a task's report has the metrics of user functions: ``<operator>.<group>.<name>`` -> number or text."""
USER_COUNTERS = "user_counters"
"""Where it says which of these are counters: they are the accumulators of the REST API."""
OPERATORS = "operators"
"""Where it has the operators of a chain: name, as in ids -> ``OPERATOR_METRICS``."""
OPERATOR_METRICS = ("numRecordsIn", "numRecordsOut", "numRecordsInPerSecond", "numRecordsOutPerSecond")


class Counter(ABC):
    """A number that goes up and down."""

    @abstractmethod
    def inc(self, n: int = 1) -> None:
        """Add ``n`` to the count."""

    @abstractmethod
    def dec(self, n: int = 1) -> None:
        """Subtract ``n`` from the count."""

    @abstractmethod
    def get_count(self) -> int:
        """Return the count."""


class Meter(ABC):
    """How often something happens: shown as events per second over its time span."""

    @abstractmethod
    def mark_event(self, value: int = 1) -> None:
        """It happened, so many times."""

    @abstractmethod
    def get_count(self) -> int:
        """Returns how often it happened since the start."""


class Distribution(ABC):
    """Values of which minimum, maximum, mean and percentiles are shown."""

    @abstractmethod
    def update(self, value: float) -> None:
        """Add a value to the distribution."""


class MetricGroup(ABC):
    """A place for metrics, in the scope of an operator; from ``RuntimeContext.get_metrics_group()``.

    A name that is asked for again gives the same metric. A job keeps a bounded number of metrics for each task
    (``firesteel.metrics.max-per-task``); those beyond it count, but are not shown.
    """

    @abstractmethod
    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Returns a group inside of this one; with ``extra`` one of a name and a value."""

    @abstractmethod
    def counter(self, name: str) -> Counter:
        """Returns the counter of a name."""

    @abstractmethod
    def gauge(self, name: str, obj: Callable[[], float]) -> None:
        """Has ``obj()`` called for each report, about once a second: a number or a short text.

        It is called on another thread than the function's methods, and must not block.
        """

    @abstractmethod
    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Returns the meter of a name."""

    @abstractmethod
    def distribution(self, name: str) -> Distribution:
        """Returns the distribution of a name."""
