"""What keyed operators with timers have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from firesteel.functions.timerservice import TimeDomain
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.base import is_iterable, not_iterable
from firesteel.runtime.operator_base.context import OnTimer, OperatorContext, Stamp
from firesteel.runtime.operator_base.keyed_base import KeyedTransform
from firesteel.runtime.operator_base.timers import InternalTimerService, KeyedTimerService
from firesteel.state.backend import Timer

TIMER_DONE: Final = object()
"""Yielded after each timer that fired, so that the chain can end a slice between two that give nothing."""


class TimedTransform(KeyedTransform):
    """A keyed operator with timers.

    The chain calls ``advance_watermark`` and ``advance_processing_time`` between batches and pulls what they give in
    slices, as it does with ``apply``.

    Attributes:
        timers: there after ``super().open(context)``.
        stamp: of its stage. Reading gives the timestamp of the record at hand; setting it before a yield gives the
            result that timestamp.
        sets_stamps: it sets ``stamp`` before it yields; else results carry the timestamps of their records.
        tagged: its results may hold ``SideRecord`` objects.
    """

    expands = True
    has_timers = True
    takes_changes = False
    sets_stamps: ClassVar[bool] = True

    timers: InternalTimerService
    stamp: Stamp

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self.tagged = True

    def open(self, context: OperatorContext) -> None:
        """Make the timers, then open the function."""
        self.stamp = context.stamp
        self.heap_timers = self.timers = KeyedTimerService(self.keyed, context.clock, context.on_processing_timer)
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
            yield TIMER_DONE

    def advance_processing_time(self, now: int) -> Iterator[Any]:
        """The clock has come so far: what the timers that are due give."""
        keyed, stamp = self.keyed, self.stamp
        for value in self.heap_timers.processing.due(now):
            keyed.key = value.key
            stamp.value = None
            yield from self.on_processing_time(value)
            yield TIMER_DONE


class TimedFunction(TimedTransform):
    """A keyed function with ``on_timer``; its results carry the timestamps of their records, or of the timer.

    Attributes:
        timer_context: what ``on_timer`` gets; made by ``make_timer_context`` when the timers are there.
    """

    may_tag = True
    takes_changes = True
    sets_stamps = False

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self.tagged = False

    @abstractmethod
    def make_timer_context(self) -> Any:
        """What ``on_timer`` gets: an ``OnTimer`` with the operator's stamp, keys and timers."""

    def open(self, context: OperatorContext) -> None:
        """Open the function, then make the context."""
        super().open(context)
        self.timer_context: OnTimer = self.make_timer_context()

    def on_event_time(self, timer: Timer) -> Iterator[Any]:
        """What ``on_timer`` gives."""
        return self._on_timer(timer, TimeDomain.EVENT_TIME)

    def on_processing_time(self, timer: Timer) -> Iterator[Any]:
        """What ``on_timer`` gives; the results have no timestamp."""
        return self._on_timer(timer, TimeDomain.PROCESSING_TIME)

    def _on_timer(self, value: Timer, domain: TimeDomain) -> Iterator[Any]:
        context, coerce = self.timer_context, self.coerce
        context.at, context.domain = value.timestamp, domain
        results = self.function.on_timer(value.timestamp, context)
        if results is None:
            return
        try:
            if coerce is None:
                yield from results
            else:
                for result in results:
                    yield coerce(result) if result is not None else self.pass_null()
        except TypeError:
            if not is_iterable(results):
                raise not_iterable("on_timer", results) from None
            raise
