"""Who metrics are reported to: the contract of reporters, at the place of Flink's ``MetricReporter``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Measured", "MetricReporter"]


@dataclass(frozen=True, slots=True)
class Measured:
    """One value.

    Attributes:
        scope: that it belongs to, such as ``("taskmanager", "job", "task")``.
        name: Flink's name of it.
        value: a number; of a distribution how many values it has seen.
        labels: which of the scope it is.
        total: of a distribution: the sum of its values.
        quantiles: of a distribution: quantile -> value; None = it is none.
        grows: it counts something, and never becomes smaller.
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
        """``counter``, ``gauge``, ``meter`` or ``histogram``, as Flink's filters say it.

        Metrics of user functions that are no distributions are gauges.
        """
        if self.quantiles is not None:
            return "histogram"
        if self.grows:
            return "counter"
        return "meter" if self.name.endswith("PerSecond") else "gauge"


class MetricReporter(ABC):
    """Sends what a process of the cluster measures to somewhere.

    It is made in each process of the cluster by its factory: whatever ``metrics.reporter.<name>.factory.class`` names
    is called with the other parameters of ``metrics.reporter.<name>.*`` (a mapping of texts). Only the configuration of
    the cluster names reporters; jobs can't. The factory, ``report`` and ``close`` are called on a thread of its own,
    one after the other, never on that of the service: they may wait. What they raise is logged and harms nobody.
    """

    @abstractmethod
    def report(self, measured: Sequence[Measured]) -> None:
        """Send values; called once in each interval. While a call lasts, the next ones are left out."""

    def close(self) -> None:  # noqa: B027 # most have nothing to close
        """The process ends; it waits two seconds for this at most. Not called if the factory has raised."""
