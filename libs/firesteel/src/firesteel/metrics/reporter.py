"""The contract of metric reporters, at the place of Flink's ``MetricReporter``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Measured", "MetricReporter"]


@dataclass(frozen=True, slots=True)
class Measured:
    """One value of a metric.

    Attributes:
        scope: scope of the metric, such as ``("taskmanager", "job", "task")``.
        name: Flink's name of the metric.
        value: the value; of a distribution, the number of its values.
        labels: variables that identify the object of the scope, such as the id of the job.
        total: distributions: sum of the values.
        quantiles: distributions: quantile -> value; None = it is not a distribution.
        grows: whether it is a count that never becomes smaller.
    """

    scope: tuple[str, ...]
    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    total: float = 0.0
    quantiles: Mapping[float, float] | None = None
    grows: bool = False

    @property
    def kind(self) -> str:
        """Type of the metric in Flink's filters: ``counter``, ``gauge``, ``meter`` or ``histogram``.

        Metrics of user functions that are not distributions are gauges.
        """
        if self.quantiles is not None:
            return "histogram"
        if self.grows:
            return "counter"
        return "meter" if self.name.endswith("PerSecond") else "gauge"


class MetricReporter(ABC):
    """Sends the metrics of a process of the cluster to an external system.

    Each process of the cluster makes its own reporters: it calls the factory that
    ``metrics.reporter.<name>.factory.class`` names with the other parameters of ``metrics.reporter.<name>.*`` (a
    mapping of texts). Only the configuration of the cluster can name reporters, not that of a job. The factory,
    ``report`` and ``close`` are called one after the other on a thread of the reporter's own, so they may wait. Their
    exceptions are logged and have no other effect.
    """

    @abstractmethod
    def report(self, measured: Sequence[Measured]) -> None:
        """Send values; called once in each interval. Intervals that end during a call are left out."""

    def close(self) -> None:  # noqa: B027 # most have nothing to close
        """Release everything; the process ends, and waits for this for two seconds at most."""
