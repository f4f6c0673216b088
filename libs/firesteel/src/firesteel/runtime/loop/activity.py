"""What a task spends its time on, and how fast its totals grow.

Busy, idle and back-pressured time add up to the time since its start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from firesteel.core.clock import Clock
from firesteel.protocol.deployment import METRIC_RATES

SPAN: Final = 60.0
"""Seconds over which Flink's meters go."""
_STEPS: Final = 12
"""Points of a time span at which a total is kept."""


class Activity(IntEnum):
    """What a task is doing. A task that could run counts as busy, also while another task of its slot has the loop."""

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
        """From now on this."""
        if activity is not self._now:
            now = self._clock.monotonic()
            self._totals[self._now] += now - self._since
            self._now, self._since = activity, now

    @property
    def now(self) -> Activity:
        """What it does at this moment."""
        return self._now

    def totals_ms(self) -> tuple[int, int, int]:
        """Busy, idle and back-pressured time so far, in ms."""
        totals = list(self._totals)
        totals[self._now] += self._clock.monotonic() - self._since
        busy, idle, back_pressured = (int(total * 1000) for total in totals)
        return busy, idle, back_pressured


class Rate:
    """How fast a running total grows, per second of the last ``span`` seconds; since its start where that is later."""

    def __init__(self, clock: Clock, span: float = SPAN) -> None:
        self._clock, self._span = clock, span
        self._points: deque[tuple[float, float]] = deque([(clock.monotonic(), 0)])

    def of(self, total: float) -> float:
        """The rate, now that the total is this."""
        now, points = self._clock.monotonic(), self._points
        while len(points) > 1 and points[1][0] <= now - self._span:
            points.popleft()
        then, before = points[0]
        if now - points[-1][0] >= self._span / _STEPS:
            points.append((now, total))
        return (total - before) / (now - then) if now > then else 0.0


class Rates:
    """The rates of a task's totals (``firesteel.protocol.deployment.METRIC_RATES``)."""

    def __init__(self, clock: Clock) -> None:
        self._rates = {total: (name, Rate(clock)) for total, name in METRIC_RATES.items()}

    def of(self, totals: Mapping[str, float]) -> dict[str, float]:
        return {name: rate.of(totals[total]) for total, (name, rate) in self._rates.items()}
