"""Metrics of user functions, bounded in number and size, and rates of operators.

Operators of a task register metrics; the task reads them for its reports.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from firesteel.core.clock import Clock
from firesteel.core.errors import TaskInterrupt
from firesteel.functions.metrics import Counter, Distribution, Meter, MetricGroup
from firesteel.runtime.loop.activity import Rate

__all__ = ["UNFIT", "MetricRegistry", "OperatorRates", "Value"]

logger = logging.getLogger(__name__)
Value = int | float | str
DEFAULT_LIMIT: Final = 200
_LONGEST_NAME: Final = 255
_LONGEST_TEXT: Final = 256
_REMEMBERED: Final = 1000
"""Number of the last values of a distribution from which percentiles are computed."""
_QUANTILES: Final = {"median": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}
UNFIT: Final = str.maketrans(dict.fromkeys(" .:,", "_"))
"""Characters that are replaced in names, as in Flink, because dots separate the parts of a metric's id."""


class _Metric(ABC):
    @abstractmethod
    def values(self) -> dict[str, Value]:
        """Suffix (empty for the metric itself) -> value."""


M = TypeVar("M", bound=_Metric)


class _Counter(_Metric, Counter):
    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        self._count += n

    def dec(self, n: int = 1) -> None:
        self._count -= n

    def get_count(self) -> int:
        return self._count

    def values(self) -> dict[str, Value]:
        return {"": self._count}


class _Meter(_Metric, Meter):
    def __init__(self, clock: Clock, seconds: int) -> None:
        self._rate, self._count = Rate(clock, seconds), 0

    def mark_event(self, value: int = 1) -> None:
        self._count += value

    def get_count(self) -> int:
        return self._count

    def values(self) -> dict[str, Value]:
        """Events per second over the time span, or since the start if that is later."""
        return {"": self._rate.update(self._count)}


class _Distribution(_Metric, Distribution):
    def __init__(self) -> None:
        self._count, self._sum = 0, 0.0
        self._min, self._max = math.inf, -math.inf
        self._last: deque[float] = deque(maxlen=_REMEMBERED)

    def update(self, value: float) -> None:
        self._count += 1
        self._sum += value
        self._min, self._max = min(self._min, value), max(self._max, value)
        self._last.append(value)

    def values(self) -> dict[str, Value]:
        """Count, sum, min, max and mean of all values; deviation and percentiles of the last ones."""
        if not self._count:
            return {"_count": 0, "_sum": 0.0}
        statistics: dict[str, Value] = {
            "_count": self._count,
            "_sum": self._sum,
            "_min": self._min,
            "_max": self._max,
            "_mean": self._sum / self._count,
        }
        last = sorted(self._last.copy())
        mean = sum(last) / len(last)
        statistics["_stddev"] = math.sqrt(sum((value - mean) ** 2 for value in last) / len(last))
        for name, share in _QUANTILES.items():
            statistics[f"_{name}"] = last[min(len(last) - 1, int(share * len(last)))]
        return statistics


class _Gauge(_Metric):
    def __init__(self, name: str, read: Callable[[], Any]) -> None:
        self._name, self._read, self._warned = name, read, False

    def values(self) -> dict[str, Value]:
        """What the user's function returns; nothing if it raises."""
        try:
            value = self._read()
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                value = str(value)
        except TaskInterrupt:
            raise
        except BaseException as error:  # user code
            if not self._warned:
                self._warned = True
                logger.warning("gauge %s raised %s: %s; it is not shown", self._name, type(error).__name__, error)
            return {}
        return {"": value[:_LONGEST_TEXT] if isinstance(value, str) else value}


class MetricRegistry:
    """All metrics of a task.

    Registration comes from the task's thread (or the loop of an asynchronous function), reading from the thread that
    reports.

    Args:
        clock: clock of meters.
        limit: most metrics of the task that are shown; further ones work, but are not shown.
    """

    def __init__(self, clock: Clock, limit: int = DEFAULT_LIMIT) -> None:
        self._clock, self._limit = clock, limit
        self._metrics: dict[str, _Metric] = {}
        self._full = False

    def group(self, operator: str) -> MetricGroup:
        """The group of metrics of an operator."""
        return _Group(self, (operator,))

    def values(self) -> dict[str, Value]:
        """Values of all metrics by id; ids are as in Flink: ``<operator>.<group>.<name>``."""
        values: dict[str, Value] = {}
        for name, metric in list(self._metrics.items()):
            for suffix, value in metric.values().items():
                finite = not isinstance(value, float) or math.isfinite(value)
                values[name + suffix] = value if finite else str(value)  # JSON has no NaN and no infinity
        return values

    def counters(self) -> list[str]:
        """Ids of the metrics that are counters."""
        return [name for name, metric in list(self._metrics.items()) if isinstance(metric, _Counter)]

    def register(self, path: tuple[str, ...], make: Callable[[], M], kind: type[M], *, again: bool = False) -> M:
        """Return the metric of a path; creates it unless there is one of this kind.

        Args:
            path: names of the groups, and the name of the metric.
            make: creates the metric.
            kind: class of the metric.
            again: whether a new metric replaces the former one.
        """
        name = ".".join(part.translate(UNFIT) for part in path)[:_LONGEST_NAME]
        registered = self._metrics.get(name)
        if isinstance(registered, kind) and not again:
            return registered
        metric = make()
        if registered is not None and not isinstance(registered, kind):
            logger.warning("metric %s: the name is taken by one of another kind; this one is not shown", name)
        elif registered is None and len(self._metrics) >= self._limit:
            if not self._full:
                self._full = True
                logger.warning(
                    "metric %s and those that follow are not shown: the task has %d (firesteel.metrics.max-per-task)",
                    name,
                    self._limit,
                )
        else:
            self._metrics[name] = metric
        return metric

    @property
    def clock(self) -> Clock:
        return self._clock


class _Group(MetricGroup):
    def __init__(self, registry: MetricRegistry, path: tuple[str, ...]) -> None:
        self._registry, self._path = registry, path

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        parts = (_name(name),) if extra is None else (_name(name), _name(extra))
        return _Group(self._registry, (*self._path, *parts))

    def counter(self, name: str) -> Counter:
        return self._registry.register((*self._path, _name(name)), _Counter, _Counter)

    def gauge(self, name: str, obj: Callable[[], float]) -> None:
        """Register a gauge; it replaces one of the same name."""
        if not callable(obj):
            raise TypeError(f"gauge({name!r}) takes a function without arguments, not {type(obj).__name__}")
        self._registry.register((*self._path, _name(name)), lambda: _Gauge(name, obj), _Gauge, again=True)

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        if not isinstance(time_span_in_seconds, int) or time_span_in_seconds < 1:
            raise ValueError(f"the time span of a meter is at least 1 second, not {time_span_in_seconds!r}")
        clock = self._registry.clock
        path = (*self._path, _name(name))
        return self._registry.register(path, lambda: _Meter(clock, time_span_in_seconds), _Meter)

    def distribution(self, name: str) -> Distribution:
        return self._registry.register((*self._path, _name(name)), _Distribution, _Distribution)


def _name(name: str) -> str:
    if not isinstance(name, str) or not name:
        raise ValueError(f"the name of a metric or group is a text that is not empty, not {name!r}")
    return name


class OperatorRates:
    """Computes ``OPERATOR_METRICS`` of the operators of a chain. Of several with one name only the first is shown."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rates: dict[str, tuple[Rate, Rate, Rate]] = {}

    def update(self, flows: Iterable[tuple[str, int, int]], own_times: Iterable[float]) -> dict[str, list[float]]:
        """Take the current totals of each operator; returns ``OPERATOR_METRICS`` by the operator's name.

        Args:
            flows: name, records taken and results made of each operator.
            own_times: seconds that each has worked.
        """
        metrics: dict[str, list[float]] = {}
        for (operator, records_in, records_out), seconds in zip(flows, own_times, strict=True):
            name = operator.translate(UNFIT)
            if name in metrics:
                continue
            if name not in self._rates:
                self._rates[name] = (Rate(self._clock), Rate(self._clock), Rate(self._clock))
            rate_in, rate_out, rate_own = self._rates[name]
            rates = round(rate_in.update(records_in), 3), round(rate_out.update(records_out), 3)
            own_ms = round(seconds * 1000, 3)
            metrics[name] = [records_in, records_out, *rates, own_ms, round(rate_own.update(own_ms), 3)]
        return metrics
