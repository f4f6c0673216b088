"""When a task has to look at the clock: processing-time timers, and operators that make watermarks."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.runtime.chain.chain import ChainExecutor
from firesteel.runtime.loop.loop import Handle, TaskLoop


class TaskTime:
    """Wakes the task when something is due. All on the task's loop.

    Args:
        executor: of the task.
        loop: of the task; its clock is the one that timers follow.
        watermark_interval: seconds; 0 = no periodic watermarks.
        wake: makes the task step.
    """

    def __init__(
        self, executor: ChainExecutor, loop: TaskLoop, watermark_interval: float, wake: Callable[[], None]
    ) -> None:
        self._executor, self._loop, self._interval, self._wake = executor, loop, watermark_interval, wake
        self._makers = [stage.operator for stage in executor.plan.watermark_stages]
        self._timer: Handle | None = None
        self._timer_at = 0  # epoch ms
        self._interval_timer: Handle | None = None
        self._timers_due = self._watermarks_due = self._fired = False
        self._stopped = False

    @property
    def due(self) -> bool:
        """Whether ``run`` has something to do."""
        return self._timers_due or self._watermarks_due or self._fired

    def start(self) -> None:
        self._arm_interval()

    def stop(self) -> None:
        """The input has ended, or the task: timers of processing time that wait are forgotten, as in Flink."""
        self._stopped = True
        self._timers_due = self._watermarks_due = self._fired = False
        for handle in (self._timer, self._interval_timer):
            if handle is not None:
                handle.cancel()

    def on_processing_timer(self, timestamp: int) -> None:
        """A timer was registered for this time (epoch ms)."""
        if self._stopped or (self._timer is not None and self._timer.pending and self._timer_at <= timestamp):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = timestamp
        wait = max(0, timestamp - self._loop.clock.epoch_ms()) / 1000
        self._timer = self._loop.call_later(wait, self._timer_passed)

    def run(self) -> None:
        """Put what is due into the chain; only when nothing is pending there."""
        if self._watermarks_due:
            self._watermarks_due = False
            self._executor.emit_watermarks()
        elif self._fired:  # what was put in has left: wait for the next timer
            self._fired = False
            earliest = self._executor.earliest_timer()
            if earliest is not None:
                self.on_processing_timer(earliest)
        elif self._timers_due:
            self._timers_due, self._fired = False, True
            self._executor.fire(self._loop.clock.epoch_ms())

    def back_pressured(self, seconds: float) -> None:
        """So long nothing went on: that is no idleness."""
        for maker in self._makers:
            maker.clock.exclude(seconds)

    def _timer_passed(self) -> None:
        self._timer = None
        if not self._stopped:
            self._timers_due = True
            self._wake()

    def _arm_interval(self) -> None:
        if self._makers and self._interval > 0 and not self._stopped:
            self._interval_timer = self._loop.call_later(self._interval, self._interval_passed)

    def _interval_passed(self) -> None:
        self._watermarks_due = not self._stopped
        self._arm_interval()
        if not self._stopped:
            self._wake()
