"""Metrics of user functions: registered by operators of a task, read for its reports. Bounded in number and size.

And what is counted of operators themselves.
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
"""Values of a distribution that percentiles are made of: the last ones."""
_QUANTILES: Final = {"median": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}
UNFIT: Final = str.maketrans(dict.fromkeys(" .:,", "_"))
"""As Flink does: a dot separates the parts of an id."""


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
        """Events per second since the time span began, or since the start if that is later."""
        return {"": self._rate.of(self._count)}


class _Distribution(_Metric, Distribution):
    def __init__(self) -> None:
        self._count, self._sum = 0, 0.0
        self._least, self._most = math.inf, -math.inf
        self._last: deque[float] = deque(maxlen=_REMEMBERED)

    def update(self, value: float) -> None:
        self._count += 1
        self._sum += value
        self._least, self._most = min(self._least, value), max(self._most, value)
        self._last.append(value)

    def values(self) -> dict[str, Value]:
        """Of all values count, sum, min, max, mean; of the last ones deviation and percentiles."""
        if not self._count:
            return {"_count": 0, "_sum": 0.0}
        found: dict[str, Value] = {
            "_count": self._count,
            "_sum": self._sum,
            "_min": self._least,
            "_max": self._most,
            "_mean": self._sum / self._count,
        }
        last = sorted(self._last.copy())
        mean = sum(last) / len(last)
        found["_stddev"] = math.sqrt(sum((value - mean) ** 2 for value in last) / len(last))
        for name, share in _QUANTILES.items():
            found[f"_{name}"] = last[min(len(last) - 1, int(share * len(last)))]
        return found


class _Gauge(_Metric):
    def __init__(self, name: str, read: Callable[[], Any]) -> None:
        self._name, self._read, self._said = name, read, False

    def values(self) -> dict[str, Value]:
        """What the function says; nothing if it raises or says what can't be shown."""
        try:
            value = self._read()
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                value = str(value)
        except TaskInterrupt:
            raise
        except BaseException as error:  # user code
            if not self._said:
                self._said = True
                logger.warning("gauge %s raised %s: %s; it is not shown", self._name, type(error).__name__, error)
            return {}
        return {"": value[:_LONGEST_TEXT] if isinstance(value, str) else value}


class MetricRegistry:
    """All metrics of a task.

    Registration comes from the task's thread (or the loop of an asynchronous function), reading from the thread that
    reports.

    Args:
        clock: for meters.
        limit: metrics of the task; those beyond it work, but are not shown.
    """

    def __init__(self, clock: Clock, limit: int = DEFAULT_LIMIT) -> None:
        self._clock, self._limit = clock, limit
        self._metrics: dict[str, _Metric] = {}
        self._full = False

    def group(self, operator: str) -> MetricGroup:
        """The group of an operator."""
        return _Group(self, (operator,))

    def values(self) -> dict[str, Value]:
        """Id -> value of all metrics; ids as in Flink: ``<operator>.<group>.<name>``."""
        found: dict[str, Value] = {}
        for name, metric in list(self._metrics.items()):
            for suffix, value in metric.values().items():
                finite = not isinstance(value, float) or math.isfinite(value)
                found[name + suffix] = value if finite else str(value)  # JSON has no numbers for them
        return found

    def counters(self) -> list[str]:
        """Ids of those that are counters."""
        return [name for name, metric in list(self._metrics.items()) if isinstance(metric, _Counter)]

    def register(self, path: tuple[str, ...], make: Callable[[], M], kind: type[M], *, again: bool = False) -> M:
        """The metric of a path: the one that is there if it is of this kind.

        Args:
            path: of the groups, and the name.
            make: makes one.
            kind: its class.
            again: a new one takes the place of the old one.
        """
        name = ".".join(part.translate(UNFIT) for part in path)[:_LONGEST_NAME]
        known = self._metrics.get(name)
        if isinstance(known, kind) and not again:
            return known
        made = make()
        if known is not None and not isinstance(known, kind):
            logger.warning("metric %s: the name is taken by one of another kind; this one is not shown", name)
        elif known is None and len(self._metrics) >= self._limit:
            if not self._full:
                self._full = True
                logger.warning(
                    "metric %s and those that follow are not shown: the task has %d (firesteel.metrics.max-per-task)",
                    name,
                    self._limit,
                )
        else:
            self._metrics[name] = made
        return made

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
        """A gauge; one of the same name gives way."""
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
    """What the operators of a chain report: ``OPERATOR_METRICS``. Of several with one name the first is shown."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rates: dict[str, tuple[Rate, Rate]] = {}

    def of(self, flows: Iterable[tuple[str, int, int]]) -> dict[str, list[float]]:
        """By name, as in ids: totals and rates of what went in and came out, now that the totals are these."""
        found: dict[str, list[float]] = {}
        for operator, taken, given in flows:
            name = operator.translate(UNFIT)
            if name in found:
                continue
            if name not in self._rates:
                self._rates[name] = (Rate(self._clock), Rate(self._clock))
            read, written = self._rates[name]
            found[name] = [taken, given, round(read.of(taken), 3), round(written.of(given), 3)]
        return found
