"""Measures what a task spends its time on, and how fast its totals grow.

Busy, idle and back-pressured time add up to the time since the start of the task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from firesteel.core.clock import Clock
from firesteel.protocol.deployment import METRIC_RATES

SPAN: Final = 60.0
"""Seconds over which rates are measured, as in Flink's meters."""
_STEPS: Final = 12
"""Number of points within the span at which a total is remembered."""


class Activity(IntEnum):
    """What a task is doing. A runnable task counts as busy, even while another task of its slot has the loop."""

    BUSY = 0
    IDLE = 1
    BACK_PRESSURED = 2


class ActivityTimes:
    """Adds up the time spent in each activity; begins idle."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._totals = [0.0, 0.0, 0.0]
        self._now = Activity.IDLE
        self._since = clock.monotonic()

    def switch(self, activity: Activity) -> None:
        """Account for the time so far, and begin another activity."""
        if activity is not self._now:
            now = self._clock.monotonic()
            self._totals[self._now] += now - self._since
            self._now, self._since = activity, now

    @property
    def now(self) -> Activity:
        """What the task does at this moment."""
        return self._now

    def totals_ms(self) -> tuple[int, int, int]:
        """Busy, idle and back-pressured time so far, in ms."""
        totals = list(self._totals)
        totals[self._now] += self._clock.monotonic() - self._since
        busy, idle, back_pressured = (int(total * 1000) for total in totals)
        return busy, idle, back_pressured


class Rate:
    """The growth of a running total per second, over the last ``span`` seconds, or since the start if that is later."""

    def __init__(self, clock: Clock, span: float = SPAN) -> None:
        self._clock, self._span = clock, span
        self._points: deque[tuple[float, float]] = deque([(clock.monotonic(), 0)])

    def update(self, total: float) -> float:
        """Take the current total; returns the rate."""
        now, points = self._clock.monotonic(), self._points
        while len(points) > 1 and points[1][0] <= now - self._span:
            points.popleft()
        start, start_total = points[0]
        if now - points[-1][0] >= self._span / _STEPS:
            points.append((now, total))
        return (total - start_total) / (now - start) if now > start else 0.0


class Rates:
    """The rates of a task's totals (``firesteel.protocol.deployment.METRIC_RATES``)."""

    def __init__(self, clock: Clock) -> None:
        self._rates = {total: (name, Rate(clock)) for total, name in METRIC_RATES.items()}

    def update(self, totals: Mapping[str, float]) -> dict[str, float]:
        """Take the current totals; returns the rates by their names."""
        return {name: rate.update(totals[total]) for total, (name, rate) in self._rates.items()}
