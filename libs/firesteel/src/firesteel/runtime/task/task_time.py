"""Decides when a task has to look at the clock: for processing-time timers, watermarks, and latency markers."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.runtime.chain.chain import ChainExecutor
from firesteel.runtime.loop.loop import Handle, TaskLoop
from firesteel.runtime.task.latencies import LatencyTracker


class TaskTime:
    """Wakes the task when timers or periodic watermarks are due. Everything runs on the task's loop.

    Args:
        executor: executor of the task's chain.
        loop: loop of the task, by whose clock timers fire.
        watermark_interval: seconds between periodic watermarks; 0 = none.
        wake: makes the task step.
        markers: sends latency markers; None = the task sends none.
    """

    def __init__(
        self,
        executor: ChainExecutor,
        loop: TaskLoop,
        watermark_interval: float,
        wake: Callable[[], None],
        markers: LatencyTracker | None = None,
    ) -> None:
        self._markers = markers
        self._marker_timer: Handle | None = None
        self._marked_ms: int | None = None
        """Since when a latency marker waits to be sent (epoch ms); while the outputs are full it is not."""
        self._executor, self._loop, self._interval, self._wake = executor, loop, watermark_interval, wake
        self._generators = [stage.operator for stage in executor.plan.watermark_stages]
        self._timer: Handle | None = None
        self._timer_at = 0  # epoch ms
        self._interval_timer: Handle | None = None
        self._timers_due = self._watermarks_due = self._fired = False
        self._stopped = False

    @property
    def due(self) -> bool:
        """Whether ``run`` has something to do."""
        return self._timers_due or self._watermarks_due or self._fired or self._marked_ms is not None

    def start(self) -> None:
        self._arm_interval()
        self._arm_marker()

    def stop(self) -> None:
        """Drop timers of processing time that were not due, as in Flink; called at the end of input or task."""
        self._stopped = True
        self._timers_due = self._watermarks_due = self._fired = False
        self._marked_ms = None
        for handle in (self._timer, self._interval_timer, self._marker_timer):
            if handle is not None:
                handle.cancel()

    def on_processing_timer(self, timestamp: int) -> None:
        """Wake the task at the time (epoch ms) for which a timer was registered, unless it wakes up earlier anyway."""
        if self._stopped or (self._timer is not None and self._timer.pending and self._timer_at <= timestamp):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = timestamp
        wait = max(0, timestamp - self._loop.clock.epoch_ms()) / 1000
        self._timer = self._loop.call_later(wait, self._timer_passed)

    def run(self) -> None:
        """Let watermarks be emitted or timers fire in the chain; called only when nothing is pending there."""
        if self._watermarks_due:
            self._watermarks_due = False
            self._executor.emit_watermarks()
        elif self._fired:
            # All timers that were due have fired, and may have registered others: wait for the earliest.
            self._fired = False
            earliest = self._executor.earliest_timer()
            if earliest is not None:
                self.on_processing_timer(earliest)
        elif self._timers_due:
            self._timers_due, self._fired = False, True
            self._executor.fire(self._loop.clock.epoch_ms())
        elif self._markers is not None and self._marked_ms is not None:
            marked_ms, self._marked_ms = self._marked_ms, None
            self._markers.mark(marked_ms)

    def back_pressured(self, seconds: float) -> None:
        """Exclude a time of back pressure, in which no records could come, from idleness."""
        for generator in self._generators:
            generator.clock.exclude(seconds)

    def _timer_passed(self) -> None:
        self._timer = None
        if not self._stopped:
            self._timers_due = True
            self._wake()

    def _arm_interval(self) -> None:
        if self._generators and self._interval > 0 and not self._stopped:
            self._interval_timer = self._loop.call_later(self._interval, self._interval_passed)

    def _interval_passed(self) -> None:
        self._watermarks_due = not self._stopped
        self._arm_interval()
        if not self._stopped:
            self._wake()

    def _arm_marker(self) -> None:
        if self._markers is not None and not self._stopped:
            self._marker_timer = self._loop.call_later(self._markers.interval, self._marker_passed)

    def _marker_passed(self) -> None:
        if not self._stopped:
            if self._marked_ms is None:  # else the one before waits still, and says more
                self._marked_ms = self._loop.clock.epoch_ms()
            self._arm_marker()
            self._wake()
