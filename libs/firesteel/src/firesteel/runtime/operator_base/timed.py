"""Base classes of keyed operators with timers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from typing_extensions import override

from firesteel.functions.timerservice import TimeDomain
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.base import is_iterable, not_iterable
from firesteel.runtime.operator_base.context import OnTimer, OperatorContext, Stamp
from firesteel.runtime.operator_base.keyed_base import KeyedTransform
from firesteel.runtime.operator_base.timers import InternalTimerService, KeyedTimerService
from firesteel.state.backend import Timer

TIMER_DONE: Final = object()
"""Yielded after each timer that fired, so that the chain can end a slice between two timers without results."""


class TimedTransform(KeyedTransform):
    """A keyed operator with timers.

    The chain calls ``advance_watermark`` and ``advance_processing_time`` between batches, and pulls their results in
    slices, as it does with ``apply``.

    Attributes:
        timers: timer service of the operator; it exists after ``super().open(context)``.
        stamp: stamp of the stage. Its value is the timestamp of the record in flight; if it is set before a yield, the
            result has that timestamp.
        sets_stamps: whether the operator sets ``stamp`` before it yields; if not, results have the timestamps of their
            records.
        tagged: whether its results may contain ``SideRecord`` objects.
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
        """Create the timer service, then open the function."""
        self.stamp = context.stamp
        self.heap_timers = self.timers = KeyedTimerService(self.keyed, context.clock, context.on_processing_timer)
        super().open(context)

    @abstractmethod
    def on_event_time(self, timer: Timer) -> Iterator[Any]:
        """Yield the results of an event-time timer; ``keyed.key`` is set, ``stamp.value`` is the timer's timestamp."""

    @abstractmethod
    def on_processing_time(self, timer: Timer) -> Iterator[Any]:
        """Yield the results of a processing-time timer; ``keyed.key`` is set, ``stamp.value`` is None."""

    def advance_watermark(self, watermark: int) -> Iterator[Any]:
        """Take a new watermark (epoch ms); yields the results of the event-time timers that are due."""
        timers, keyed, stamp = self.heap_timers, self.keyed, self.stamp
        timers.watermark = watermark
        for value in timers.event.due(watermark):
            keyed.key = value.key
            stamp.value = value.timestamp
            yield from self.on_event_time(value)
            yield TIMER_DONE

    def advance_processing_time(self, now: int) -> Iterator[Any]:
        """Take a new time of the clock (epoch ms); yields the results of the processing-time timers that are due."""
        keyed, stamp = self.keyed, self.stamp
        for value in self.heap_timers.processing.due(now):
            keyed.key = value.key
            stamp.value = None
            yield from self.on_processing_time(value)
            yield TIMER_DONE


class TimedFunction(TimedTransform):
    """Runs a keyed function with ``on_timer``; its results have the timestamps of their records, or of the timer.

    Attributes:
        timer_context: context of ``on_timer``; ``make_timer_context`` creates it after the timer service.
    """

    may_tag = True
    takes_changes = True
    sets_stamps = False

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self.tagged = False

    @abstractmethod
    def make_timer_context(self) -> Any:
        """Create the context of ``on_timer``: an ``OnTimer`` with the operator's stamp, keys and timers."""

    def open(self, context: OperatorContext) -> None:
        """Open the function, then create the context of ``on_timer``."""
        super().open(context)
        self.timer_context: OnTimer = self.make_timer_context()

    @override
    def on_event_time(self, timer: Timer) -> Iterator[Any]:
        return self._on_timer(timer, TimeDomain.EVENT_TIME)

    @override
    def on_processing_time(self, timer: Timer) -> Iterator[Any]:
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
