"""The built-in triggers: those of PyFlink, and ``DeltaTrigger`` of Flink's Java API."""

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
    """A trigger without timers and state, to which each trigger below adds its part."""

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
    """Fires when the watermark passes the end of the window, and then for each late record that it still takes.

    Examples:
        ```python
        from firesteel.datastream.window import EventTimeTrigger

        trigger = EventTimeTrigger.create()  # the trigger of windows by event time, unless they name another one
        ```
    """

    @staticmethod
    def create() -> EventTimeTrigger[Any, Any]:
        """Makes a trigger that fires when the watermark passes the end of the window."""
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
        """Sets the timer for the end of the new window."""
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    @override
    def clear(self, window: W, ctx: Context) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(_QuietTrigger[T, W]):
    """Fires when the clock passes the end of the window.

    Examples:
        ```python
        from firesteel.datastream.window import ProcessingTimeTrigger

        trigger = ProcessingTimeTrigger.create()  # the trigger of windows by the clock, unless they name another one
        ```
    """

    @staticmethod
    def create() -> ProcessingTimeTrigger[Any, Any]:
        """Makes a trigger that fires when the clock passes the end of the window."""
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
        """Sets the timer for the end of the new window."""
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    @override
    def clear(self, window: W, ctx: Context) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


class _ContinuousTrigger(_QuietTrigger[T, W]):
    """Fires at each multiple of an interval; state keeps the next time of each window."""

    def __init__(self, interval: int) -> None:
        self.interval = check_whole(f"the interval of {type(self).__name__}", interval, 1)
        self.state_desc = ReducingStateDescriptor("fire-time", min, Types.LONG())

    @override
    def can_merge(self) -> bool:
        return True

    def next_time(self, time: int, window: W, ctx: Context) -> int:
        """Puts the next time into the state: ``time`` plus the interval, at the latest the end of the window."""
        next_time = min(time + self.interval, window.max_timestamp())
        ctx.get_partitioned_state(self.state_desc).add(next_time)  # type: ignore[attr-defined]
        return next_time

    def fires_at(self, ctx: Context) -> int | None:
        """Returns when the trigger fires next for the current key and window, in epoch ms; None = no time is set."""
        time: int | None = ctx.get_partitioned_state(self.state_desc).get()  # type: ignore[attr-defined]
        return time

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.interval})"


class ContinuousEventTimeTrigger(_ContinuousTrigger[T, W]):
    """Fires each time the watermark passes a multiple of the interval, and at the end of the window.

    Examples:
        ```python
        from firesteel.common import Time
        from firesteel.datastream.window import ContinuousEventTimeTrigger, TumblingEventTimeWindows

        assigner = TumblingEventTimeWindows.of(Time.hours(1))
        trigger = ContinuousEventTimeTrigger.of(Time.minutes(5))  # stream.window(assigner).trigger(trigger)
        ```
    """

    @staticmethod
    def of(interval: Span) -> ContinuousEventTimeTrigger[Any, Any]:
        """Makes a trigger that fires at each multiple of ``interval`` of event time."""
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
        """Fires at the end of the window, and at the time in the state, which it then replaces by the next one."""
        if time == window.max_timestamp():
            return FIRE
        if self.fires_at(ctx) != time:
            return CONTINUE
        ctx.get_partitioned_state(self.state_desc).clear()
        ctx.register_event_time_timer(self.next_time(time, window, ctx))
        return FIRE

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Sets timers for the earliest time of the merged windows, and for the end of the new one."""
        ctx.merge_partitioned_state(self.state_desc)
        time = self.fires_at(ctx)
        if time is not None:
            ctx.register_event_time_timer(time)
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: W, ctx: Context) -> None:
        """Deletes the timers and the time in the state."""
        time = self.fires_at(ctx)
        if time is not None:
            ctx.delete_event_time_timer(time)
            ctx.get_partitioned_state(self.state_desc).clear()
        ctx.delete_event_time_timer(window.max_timestamp())


class ContinuousProcessingTimeTrigger(_ContinuousTrigger[T, W]):
    """Fires each time the clock passes a multiple of the interval, and at the end of the window.

    Examples:
        ```python
        from firesteel.common import Time
        from firesteel.datastream.window import ContinuousProcessingTimeTrigger

        trigger = ContinuousProcessingTimeTrigger.of(Time.seconds(10))  # stream.window(...).trigger(trigger)
        ```
    """

    @staticmethod
    def of(interval: Span) -> ContinuousProcessingTimeTrigger[Any, Any]:
        """Makes a trigger that fires at each multiple of ``interval`` of the clock."""
        return ContinuousProcessingTimeTrigger(check_span("the interval of ContinuousProcessingTimeTrigger", interval))

    @override
    def on_element(self, element: T, timestamp: int, window: W, ctx: Context) -> TriggerResult:
        if self.fires_at(ctx) is None:
            now = ctx.get_current_processing_time()
            ctx.register_processing_time_timer(self.next_time(now - now % self.interval, window, ctx))
        return CONTINUE

    def on_processing_time(self, time: int, window: W, ctx: Context) -> TriggerResult:
        """Fires at the time in the state, which it then replaces by the next one."""
        if self.fires_at(ctx) != time:
            return CONTINUE
        ctx.get_partitioned_state(self.state_desc).clear()
        if time < window.max_timestamp():
            ctx.register_processing_time_timer(self.next_time(time, window, ctx))
        return FIRE

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Sets a timer for the earliest time of the merged windows."""
        ctx.merge_partitioned_state(self.state_desc)
        time = self.fires_at(ctx)
        if time is not None:
            ctx.register_processing_time_timer(time)

    def clear(self, window: W, ctx: Context) -> None:
        """Deletes the timer and the time in the state."""
        time = self.fires_at(ctx)
        if time is not None:
            ctx.delete_processing_time_timer(time)
            ctx.get_partitioned_state(self.state_desc).clear()


class PurgingTrigger(Trigger[T, W]):
    """Wraps another trigger so that the window's records are removed after each evaluation.

    Examples:
        ```python
        from firesteel.datastream.window import CountTrigger, PurgingTrigger

        trigger = PurgingTrigger.of(CountTrigger.of(2))  # stream.window(...).trigger(trigger)
        ```
    """

    def __init__(self, nested_trigger: Trigger[T, W]) -> None:
        if not isinstance(nested_trigger, Trigger):
            raise TypeError(f"PurgingTrigger takes a Trigger, not {type(nested_trigger).__name__}")
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[Any, Any]) -> PurgingTrigger[Any, Any]:
        """Makes a trigger that fires when ``nested_trigger`` does, and then removes the window's records."""
        return PurgingTrigger(nested_trigger)

    def on_element(self, element: T, timestamp: int, window: W, ctx: Context) -> TriggerResult:
        """Returns the nested trigger's decision; a FIRE also purges."""
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_event_time(self, time: int, window: W, ctx: Context) -> TriggerResult:
        """Returns the nested trigger's decision; a FIRE also purges."""
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def on_processing_time(self, time: int, window: W, ctx: Context) -> TriggerResult:
        """Returns the nested trigger's decision; a FIRE also purges."""
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
    """Fires after every ``window_size`` records of a window.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.window import CountTrigger, GlobalWindows

        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        numbers = env.from_collection([1, 2, 3, 4]).key_by(lambda number: "all")
        windows = numbers.window(GlobalWindows.create()).trigger(CountTrigger.of(2))
        print(list(windows.reduce(lambda one, other: one + other).execute_and_collect()))
        ```

        ```text
        [3, 10]
        ```
    """

    def __init__(self, window_size: int) -> None:
        self.window_size = check_whole("the count of CountTrigger", window_size, 1)
        self._count = ReducingStateDescriptor("count", _add, Types.LONG())

    @staticmethod
    def of(window_size: int) -> CountTrigger[Any, Any]:
        """Makes a trigger that fires after every ``window_size`` records of a window."""
        return CountTrigger(window_size)

    def on_element(self, element: T, timestamp: int, window: W, ctx: Context) -> TriggerResult:
        """Counts the record, and fires when the count is reached."""
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

    ``delta(old, new)`` returns the difference. As in Flink the trigger can't be used with sessions: its state can't be
    merged.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream.window import DeltaTrigger

        trigger = DeltaTrigger.of(5.0, lambda old, new: new - old, Types.DOUBLE())  # fires when it grew by more than 5
        ```
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
        """Makes a trigger that fires when ``delta`` of two records is above ``threshold``.

        Args:
            threshold: largest difference at which the trigger does not fire.
            delta: returns the difference between the record that fired last and the current one.
            state_type: type of the records; None = any Python object.
        """
        return DeltaTrigger(threshold, delta, state_type)

    def on_element(self, element: T, timestamp: int, window: W, ctx: Context) -> TriggerResult:
        """Compares the record with the one that fired last."""
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
        """Clears the record that fired last."""
        ctx.get_partitioned_state(self._last).clear()

    def __repr__(self) -> str:
        return f"DeltaTrigger({self.threshold})"


class NeverTrigger(_QuietTrigger[T, W]):
    """Never fires: the default of ``GlobalWindows``, for which the program has to choose a trigger.

    Examples:
        ```python
        from firesteel.datastream.window import GlobalWindows, NeverTrigger

        print(isinstance(GlobalWindows.create().get_default_trigger(None), NeverTrigger))
        ```

        ```text
        True
        ```
    """

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
    """Whether a trigger deletes timers in ``clear`` only, so that a window's cleanup timer is set only once."""
    if type(trigger) is PurgingTrigger:
        return keeps_cleanup_timers(trigger.nested_trigger)
    return type(trigger) in _KEEPING


def is_quiet(trigger: Trigger[Any, Any], *, event_time: bool) -> bool:
    """Whether a trigger ignores each record that comes into an open window before its end."""
    if type(trigger) is PurgingTrigger:
        return is_quiet(trigger.nested_trigger, event_time=event_time)
    return type(trigger) in (EventTimeTrigger if event_time else ProcessingTimeTrigger, NeverTrigger)
