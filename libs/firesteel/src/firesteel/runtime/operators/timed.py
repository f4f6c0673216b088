"""What keyed operators with timers have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.context import OperatorContext, Stamp
from firesteel.runtime.operators.keyed_base import KeyedTransform
from firesteel.runtime.timers import HeapTimerService, Timer, TimerService


class TimedTransform(KeyedTransform):
    """A keyed operator with timers.

    The chain calls ``advance_watermark`` and ``advance_processing_time`` between batches and pulls what they give in
    slices, as it does with ``apply``.

    Attributes:
        timers: there after ``super().open(context)``.
        stamp: of its segment. Reading gives the timestamp of the record at hand; setting it before a yield gives the
            result that timestamp.
        sets_stamps: it sets ``stamp`` before it yields; else results carry the timestamps of their records.
        tagged: its results may hold ``SideRecord`` objects.
    """

    expands = True
    sets_stamps: ClassVar[bool] = True

    timers: TimerService
    stamp: Stamp

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self.tagged = True

    def open(self, context: OperatorContext) -> None:
        """Make the timers, then open the function."""
        self.stamp = context.stamp
        self.heap_timers = self.timers = HeapTimerService(self.keyed, context.clock, context.on_processing_timer)
        super().open(context)

    @abstractmethod
    def on_event_time(self, timer: Timer) -> Iterator[Any]:
        """Results of an event-time timer; ``keyed.key`` is set and ``stamp.value`` is the timer's timestamp."""

    @abstractmethod
    def on_processing_time(self, timer: Timer) -> Iterator[Any]:
        """Results of a processing-time timer; ``keyed.key`` is set and ``stamp.value`` is None."""

    def advance_watermark(self, watermark: int) -> Iterator[Any]:
        """Event time has come so far: what the timers that are due give."""
        timers, keyed, stamp = self.heap_timers, self.keyed, self.stamp
        timers.watermark = watermark
        for value in timers.event.due(watermark):
            keyed.key = value.key
            stamp.value = value.timestamp
            yield from self.on_event_time(value)

    def advance_processing_time(self, now: int) -> Iterator[Any]:
        """The clock has come so far: what the timers that are due give."""
        keyed, stamp = self.keyed, self.stamp
        for value in self.heap_timers.processing.due(now):
            keyed.key = value.key
            stamp.value = None
            yield from self.on_processing_time(value)

    def close(self) -> None:
        """Close the function, then forget timers and state."""
        try:
            super().close()
        finally:
            if hasattr(self, "heap_timers"):
                self.heap_timers.close()
