"""Busy, idle and back-pressured time of a task; the three add up to the time since its start."""

from __future__ import annotations

from enum import IntEnum

from firesteel.core.clock import Clock


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

    def totals_ms(self) -> tuple[int, int, int]:
        """Busy, idle and back-pressured time so far, in ms."""
        totals = list(self._totals)
        totals[self._now] += self._clock.monotonic() - self._since
        busy, idle, back_pressured = (int(total * 1000) for total in totals)
        return busy, idle, back_pressured
