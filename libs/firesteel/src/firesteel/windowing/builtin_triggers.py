"""The triggers that Firesteel brings; those of PyFlink, and Flink's ``DeltaTrigger``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from typing_extensions import override

from firesteel.common.time import Span
from firesteel.common.typeinfo import TypeInformation, Types
from firesteel.functions.state import ReducingStateDescriptor, ValueStateDescriptor
from firesteel.windowing.checks import check_span, check_whole
from firesteel.windowing.triggers import Trigger, TriggerResult
from firesteel.windowing.windows import Window

__all__ = [
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountTrigger",
    "DeltaTrigger",
    "EventTimeTrigger",
    "NeverTrigger",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
]

T = TypeVar("T")
W = TypeVar("W", bound=Window)
Context = Trigger.TriggerContext
CONTINUE, FIRE = TriggerResult.CONTINUE, TriggerResult.FIRE


def _add(first: int, second: int) -> int:
    return first + second


class _QuietTrigger(Trigger[T, W]):
    """Does nothing when a timer fires and keeps nothing; each trigger below adds its part."""

    @override
    def on_processing_time(self, time: int, window: W, ctx: Context) -> TriggerResult:
        return CONTINUE

    @override
    def on_event_time(self, time: int, window: W, ctx: Context) -> TriggerResult:
        return CONTINUE

    @override
    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None: ...

    @override
    def clear(self, window: W, ctx: Context) -> None: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class EventTimeTrigger(_QuietTrigger[T, W]):
    """Fires when the watermark passes the end of the window, and then for each late record that is still allowed."""

    @staticmethod
    def create() -> EventTimeTrigger[Any, Any]:
        """Makes one."""
        return EventTimeTrigger()

    def on_element(self, element: T, timestamp: int, window: W, ctx: Context) -> TriggerResult:
        """Fires if the window has ended, else sets the timer."""
        if window.max_timestamp() <= ctx.get_current_watermark():
            return FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return CONTINUE

    def on_event_time(self, time: int, window: W, ctx: Context) -> TriggerResult:
        """Fires at the end of the window."""
        return FIRE if time == window.max_timestamp() else CONTINUE

    @override
    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Sets the timer of the new window."""
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    @override
    def clear(self, window: W, ctx: Context) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(_QuietTrigger[T, W]):
    """Fires when the clock passes the end of the window."""

    @staticmethod
    def create() -> ProcessingTimeTrigger[Any, Any]:
        """Makes one."""
        return ProcessingTimeTrigger()

    @override
    def on_element(self, element: T, timestamp: int, window: W, ctx: Context) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return CONTINUE

    @override
    def on_processing_time(self, time: int, window: W, ctx: Context) -> TriggerResult:
        return FIRE

    @override
    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Sets the timer of the new window."""
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    @override
    def clear(self, window: W, ctx: Context) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


class _ContinuousTrigger(_QuietTrigger[T, W]):
    """Fires at each multiple of an interval; the next time of each window is kept in state."""

    def __init__(self, interval: int) -> None:
        self.interval = check_whole(f"the interval of {type(self).__name__}", interval, 1)
        self.state_desc = ReducingStateDescriptor("fire-time", min, Types.LONG())

    @override
    def can_merge(self) -> bool:
        return True

    def next_time(self, time: int, window: W, ctx: Context) -> int:
        """Notes when it fires next after ``time``: an interval later, at the latest at the end of the window."""
        next_time = min(time + self.interval, window.max_timestamp())
        ctx.get_partitioned_state(self.state_desc).add(next_time)  # type: ignore[attr-defined]
        return next_time

    def fires_at(self, ctx: Context) -> int | None:
        """The time at which it fires next for the current key and window, epoch ms; None if no time is set."""
        time: int | None = ctx.get_partitioned_state(self.state_desc).get()  # type: ignore[attr-defined]
        return time

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.interval})"


class ContinuousEventTimeTrigger(_ContinuousTrigger[T, W]):
    """Fires each time the watermark passes a multiple of the interval, and at the end of the window."""

    @staticmethod
    def of(interval: Span) -> ContinuousEventTimeTrigger[Any, Any]:
        """Makes one."""
        return ContinuousEventTimeTrigger(check_span("the interval of ContinuousEventTimeTrigger", interval))

    def on_element(self, element: T, timestamp: int, window: W, ctx: Context) -> TriggerResult:
        """Fires if the window has ended, else sets the timers."""
        if window.max_timestamp() <= ctx.get_current_watermark():
            return FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        if self.fires_at(ctx) is None:
            ctx.register_event_time_timer(self.next_time(timestamp - timestamp % self.interval, window, ctx))
        return CONTINUE

    def on_event_time(self, time: int, window: W, ctx: Context) -> TriggerResult:
        """Fires at the end and at the time noted, then notes the next one."""
        if time == window.max_timestamp():
            return FIRE
        if self.fires_at(ctx) != time:
            return CONTINUE
        ctx.get_partitioned_state(self.state_desc).clear()
        ctx.register_event_time_timer(self.next_time(time, window, ctx))
        return FIRE

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """The earliest time noted is that of the new window; its end gets a timer, too."""
        ctx.merge_partitioned_state(self.state_desc)
        time = self.fires_at(ctx)
        if time is not None:
            ctx.register_event_time_timer(time)
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: W, ctx: Context) -> None:
        """Deletes the timers and what is noted."""
        time = self.fires_at(ctx)
        if time is not None:
            ctx.delete_event_time_timer(time)
            ctx.get_partitioned_state(self.state_desc).clear()
        ctx.delete_event_time_timer(window.max_timestamp())


class ContinuousProcessingTimeTrigger(_ContinuousTrigger[T, W]):
    """Fires each time the clock passes a multiple of the interval, and at the end of the window."""

    @staticmethod
    def of(interval: Span) -> ContinuousProcessingTimeTrigger[Any, Any]:
        """Makes one."""
        return ContinuousProcessingTimeTrigger(check_span("the interval of ContinuousProcessingTimeTrigger", interval))

    @override
    def on_element(self, element: T, timestamp: int, window: W, ctx: Context) -> TriggerResult:
        if self.fires_at(ctx) is None:
            now = ctx.get_current_processing_time()
            ctx.register_processing_time_timer(self.next_time(now - now % self.interval, window, ctx))
        return CONTINUE

    def on_processing_time(self, time: int, window: W, ctx: Context) -> TriggerResult:
        """Fires at the time noted, then notes the next one."""
        if self.fires_at(ctx) != time:
            return CONTINUE
        ctx.get_partitioned_state(self.state_desc).clear()
        if time < window.max_timestamp():
            ctx.register_processing_time_timer(self.next_time(time, window, ctx))
        return FIRE

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """The earliest time noted is that of the new window."""
        ctx.merge_partitioned_state(self.state_desc)
        time = self.fires_at(ctx)
        if time is not None:
            ctx.register_processing_time_timer(time)

    def clear(self, window: W, ctx: Context) -> None:
        """Deletes the timer and what is noted."""
        time = self.fires_at(ctx)
        if time is not None:
            ctx.delete_processing_time_timer(time)
            ctx.get_partitioned_state(self.state_desc).clear()


class PurgingTrigger(Trigger[T, W]):
    """Turns another trigger into one that throws the records away after each evaluation."""

    def __init__(self, nested_trigger: Trigger[T, W]) -> None:
        if not isinstance(nested_trigger, Trigger):
            raise TypeError(f"PurgingTrigger takes a Trigger, not {type(nested_trigger).__name__}")
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[Any, Any]) -> PurgingTrigger[Any, Any]:
        """Makes one."""
        return PurgingTrigger(nested_trigger)

    def on_element(self, element: T, timestamp: int, window: W, ctx: Context) -> TriggerResult:
        """What the nested trigger says, with a purge."""
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_event_time(self, time: int, window: W, ctx: Context) -> TriggerResult:
        """What the nested trigger says, with a purge."""
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def on_processing_time(self, time: int, window: W, ctx: Context) -> TriggerResult:
        """What the nested trigger says, with a purge."""
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    @override
    def can_merge(self) -> bool:
        return self.nested_trigger.can_merge()

    @override
    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        self.nested_trigger.on_merge(window, ctx)

    @override
    def clear(self, window: W, ctx: Context) -> None:
        self.nested_trigger.clear(window, ctx)

    def __repr__(self) -> str:
        return f"PurgingTrigger({self.nested_trigger!r})"


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result


class CountTrigger(_QuietTrigger[T, W]):
    """Fires each time so many more records have come into the window."""

    def __init__(self, window_size: int) -> None:
        self.window_size = check_whole("the count of CountTrigger", window_size, 1)
        self._count = ReducingStateDescriptor("count", _add, Types.LONG())

    @staticmethod
    def of(window_size: int) -> CountTrigger[Any, Any]:
        """Makes one."""
        return CountTrigger(window_size)

    def on_element(self, element: T, timestamp: int, window: W, ctx: Context) -> TriggerResult:
        """Counts, and fires when there are enough."""
        count: Any = ctx.get_partitioned_state(self._count)
        count.add(1)
        if count.get() < self.window_size:
            return CONTINUE
        count.clear()
        return FIRE

    @override
    def can_merge(self) -> bool:
        return True

    @override
    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._count)

    @override
    def clear(self, window: W, ctx: Context) -> None:
        ctx.get_partitioned_state(self._count).clear()

    def __repr__(self) -> str:
        return f"CountTrigger({self.window_size})"


class DeltaTrigger(_QuietTrigger[T, W]):
    """Fires when a record differs from the one that fired last by more than a threshold.

    ``delta(old, new)`` says by how much. As in Flink it is not for sessions: its state can't be merged.
    """

    def __init__(
        self, threshold: float, delta: Callable[[T, T], float], state_type: TypeInformation | None = None
    ) -> None:
        if not callable(delta):
            raise TypeError(f"the delta function of DeltaTrigger is a callable, not {type(delta).__name__}")
        self.threshold, self.delta = threshold, delta
        self._last = ValueStateDescriptor("last-element", state_type or Types.PICKLED_BYTE_ARRAY())

    @staticmethod
    def of(
        threshold: float, delta: Callable[[Any, Any], float], state_type: TypeInformation | None = None
    ) -> DeltaTrigger[Any, Any]:
        """Makes one."""
        return DeltaTrigger(threshold, delta, state_type)

    def on_element(self, element: T, timestamp: int, window: W, ctx: Context) -> TriggerResult:
        """Compares the record with the last one that fired."""
        state: Any = ctx.get_partitioned_state(self._last)
        last = state.value()
        if last is None:
            state.update(element)
            return CONTINUE
        if self.delta(last, element) <= self.threshold:
            return CONTINUE
        state.update(element)
        return FIRE

    def clear(self, window: W, ctx: Context) -> None:
        """Forgets the last record."""
        ctx.get_partitioned_state(self._last).clear()

    def __repr__(self) -> str:
        return f"DeltaTrigger({self.threshold})"


class NeverTrigger(_QuietTrigger[T, W]):
    """Never fires: the default of ``GlobalWindows``, which need a trigger of the program's choice."""

    @override
    def on_element(self, element: T, timestamp: int, window: W, ctx: Context) -> TriggerResult:
        return CONTINUE


_KEEPING = (
    EventTimeTrigger,
    ProcessingTimeTrigger,
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    NeverTrigger,
)


def keeps_cleanup_timers(trigger: Trigger[Any, Any]) -> bool:
    """Whether a trigger deletes timers in ``clear`` only, so that those of a window are set once."""
    if type(trigger) is PurgingTrigger:
        return keeps_cleanup_timers(trigger.nested_trigger)
    return type(trigger) in _KEEPING


def is_quiet(trigger: Trigger[Any, Any], *, event_time: bool) -> bool:
    """Whether a record that comes into an open window before its end means nothing to a trigger."""
    if type(trigger) is PurgingTrigger:
        return is_quiet(trigger.nested_trigger, event_time=event_time)
    return type(trigger) in (EventTimeTrigger if event_time else ProcessingTimeTrigger, NeverTrigger)
