"""Window assigners, which assign records to windows: the base classes, and windows of fixed size. PyFlink's names."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar

from typing_extensions import override

from firesteel.common.serializer import TypeSerializer
from firesteel.common.time import Span
from firesteel.common.typeinfo import Types
from firesteel.core.errors import ProgramError
from firesteel.functions.functions import RuntimeContext
from firesteel.functions.state import ValueStateDescriptor
from firesteel.windowing.builtin_triggers import (
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from firesteel.windowing.checks import check_span, check_whole
from firesteel.windowing.triggers import Trigger
from firesteel.windowing.windows import (
    MIN_TIMESTAMP,
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
    WindowMergeCallback,
)

__all__ = [
    "CountSlidingWindowAssigner",
    "CountTumblingWindowAssigner",
    "FixedTimeWindows",
    "GlobalWindows",
    "MergingWindowAssigner",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "WindowAssigner",
]

T = TypeVar("T")
W = TypeVar("W")


class WindowAssigner(ABC, Generic[T, W]):
    """Assigns each record to windows: none, one, or several.

    Examples:
        ```python
        from firesteel.common import Time
        from firesteel.datastream import WindowAssigner
        from firesteel.datastream.window import TumblingEventTimeWindows

        assigner = TumblingEventTimeWindows.of(Time.seconds(10))
        print(isinstance(assigner, WindowAssigner), assigner.assign_windows("tea", 12_000, None))
        ```

        ```text
        True [TimeWindow(start=10000, end=20000)]
        ```
    """

    class WindowAssignerContext(ABC):
        """Access of an assigner to the clock and the subtask."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """Returns the processing time, in ms since 1970-01-01 UTC."""

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """Returns the context of the subtask; its keyed state belongs to the current key."""

    @abstractmethod
    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[W]:
        """Returns the windows of a record.

        Args:
            element: the record.
            timestamp: timestamp of the record in ms since 1970-01-01 UTC; -2**63 if it has none.
            context: access to the clock and to state.
        """

    @abstractmethod
    def get_default_trigger(self, env: Any) -> Trigger[T, W]:
        """Returns the trigger of windows for which the program sets none; ``env`` is its environment."""

    @abstractmethod
    def get_window_serializer(self) -> TypeSerializer[W]:
        """Returns the serializer of the windows."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Returns whether windows follow the records' timestamps, not the clock or a count."""


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows may merge, such as sessions.

    Examples:
        ```python
        from firesteel.datastream import MergingWindowAssigner
        from firesteel.datastream.window import EventTimeTrigger, TimeWindow, TimeWindowSerializer


        class Visits(MergingWindowAssigner):
            def assign_windows(self, element, timestamp, context):
                pause = 600_000 if element == "checkout" else 60_000
                return [TimeWindow(timestamp, timestamp + pause)]

            def merge_windows(self, windows, callback):
                TimeWindow.merge_windows(windows, callback)  # those that overlap

            def get_default_trigger(self, env):
                return EventTimeTrigger()

            def get_window_serializer(self):
                return TimeWindowSerializer()

            def is_event_time(self):
                return True


        print(Visits().assign_windows("checkout", 5_000, None))
        ```

        ```text
        [TimeWindow(start=5000, end=605000)]
        ```
    """

    MergeCallback: TypeAlias = WindowMergeCallback

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: WindowMergeCallback[W]) -> None:
        """Calls ``callback.merge(windows, result)`` for each group of windows that has to be merged."""


def no_timestamp(assigner: object) -> ProgramError:
    """Return the error about a record without a timestamp."""
    return ProgramError(
        f"a record without a timestamp came to {assigner!r}: event-time windows need one. Declare it with "
        "assign_timestamps_and_watermarks(WatermarkStrategy....with_timestamp_assigner(...)) before key_by(), or use "
        "processing-time windows"
    )


class FixedTimeWindows(WindowAssigner[Any, TimeWindow]):
    """Windows of one size, which start at each multiple of the slide: the same windows for all keys."""

    event_time: ClassVar[bool]

    def __init__(self, size: int, slide: int, offset: int) -> None:
        self.size, self.slide, self.offset = size, slide, offset

    def windows_at(self, timestamp: int) -> list[TimeWindow]:
        """Return the windows that contain a timestamp, the latest first."""
        size, slide = self.size, self.slide
        last = timestamp - (timestamp - self.offset) % slide
        return [TimeWindow(start, start + size) for start in range(last, timestamp - size, -slide)]

    @property
    def pane(self) -> int:
        """Length of a pane in ms: timestamps between two multiples of it (from ``offset``) are in the same windows."""
        return math.gcd(self.size, self.slide)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        """Returns the windows of the record's timestamp, or of the processing time.

        Raises:
            ProgramError: the windows are of event time, and the record has no timestamp.
        """
        if not self.event_time:
            return self.windows_at(context.get_current_processing_time())
        if timestamp == MIN_TIMESTAMP:
            raise no_timestamp(self)
        return self.windows_at(timestamp)

    def get_default_trigger(self, env: Any) -> Trigger[Any, TimeWindow]:
        """Returns the trigger that fires at the end of the window."""
        return EventTimeTrigger() if self.event_time else ProcessingTimeTrigger()

    @override
    def get_window_serializer(self) -> TimeWindowSerializer:
        return TimeWindowSerializer()

    @override
    def is_event_time(self) -> bool:
        return self.event_time


class _TumblingWindows(FixedTimeWindows):
    def __init__(self, size: int, offset: int = 0) -> None:
        name = type(self).__name__
        check_whole(f"{name}: the size in ms", size, 1)
        if abs(check_whole(f"{name}: the offset in ms", offset)) >= size:
            raise ValueError(f"{name}: the offset must be smaller than the size, abs({offset}) < {size} (ms)")
        super().__init__(size, size, offset)

    @classmethod
    def of(cls, size: Span, offset: Span | None = None) -> Self:
        """Makes windows of ``size``, one after the other; one of them starts at ``offset`` after 1970-01-01 UTC.

        Raises:
            TypeError: an argument is not a ``Time``.
            ValueError: the size is not positive, or the offset is not smaller.
        """
        return cls(
            check_span(f"{cls.__name__}: the size", size),
            0 if offset is None else check_span(f"{cls.__name__}: the offset", offset, -(2**62)),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size}, {self.offset})"


class _SlidingWindows(FixedTimeWindows):
    def __init__(self, size: int, slide: int, offset: int = 0) -> None:
        name = type(self).__name__
        check_whole(f"{name}: the size in ms", size, 1)
        check_whole(f"{name}: the slide in ms", slide, 1)
        if abs(check_whole(f"{name}: the offset in ms", offset)) >= slide:
            raise ValueError(f"{name}: the offset must be smaller than the slide, abs({offset}) < {slide} (ms)")
        super().__init__(size, slide, offset)

    @classmethod
    def of(cls, size: Span, slide: Span, offset: Span | None = None) -> Self:
        """Makes windows of ``size`` that start each ``slide``; one of them starts at ``offset`` after 1970-01-01 UTC.

        Raises:
            TypeError: an argument is not a ``Time``.
            ValueError: size or slide is not positive, or the offset is not smaller than the slide.
        """
        return cls(
            check_span(f"{cls.__name__}: the size", size),
            check_span(f"{cls.__name__}: the slide", slide),
            0 if offset is None else check_span(f"{cls.__name__}: the offset", offset, -(2**62)),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size}, {self.slide}, {self.offset})"


class TumblingEventTimeWindows(_TumblingWindows):
    """Windows of one size, one after the other, by the records' timestamps.

    Examples:
        ```python
        from firesteel.common import Time, TimestampAssigner, WatermarkStrategy
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.window import TumblingEventTimeWindows


        class BySecond(TimestampAssigner):
            def extract_timestamp(self, value, record_timestamp):
                return value[0] * 1000


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(BySecond())
        sales = env.from_collection([(1, 5), (8, 2), (12, 3)]).assign_timestamps_and_watermarks(strategy)
        windows = sales.window_all(TumblingEventTimeWindows.of(Time.seconds(10)))
        print(list(windows.reduce(lambda one, other: (one[0], one[1] + other[1])).execute_and_collect()))
        ```

        ```text
        [(1, 7), (12, 3)]
        ```
    """

    event_time = True


class TumblingProcessingTimeWindows(_TumblingWindows):
    """Windows of one size, one after the other, by the clock.

    Examples:
        ```python
        from firesteel.common import Time
        from firesteel.datastream.window import TumblingProcessingTimeWindows

        assigner = TumblingProcessingTimeWindows.of(Time.minutes(1))  # stream.window(assigner)
        print(assigner.is_event_time())
        ```

        ```text
        False
        ```
    """

    event_time = False


class SlidingEventTimeWindows(_SlidingWindows):
    """Windows of one size that start each ``slide``, by the records' timestamps.

    Examples:
        ```python
        from firesteel.common import Time
        from firesteel.datastream.window import SlidingEventTimeWindows

        assigner = SlidingEventTimeWindows.of(Time.minutes(10), Time.minutes(1))  # stream.window(assigner)
        print(assigner.is_event_time())
        ```

        ```text
        True
        ```
    """

    event_time = True


class SlidingProcessingTimeWindows(_SlidingWindows):
    """Windows of one size that start each ``slide``, by the clock.

    Examples:
        ```python
        from firesteel.common import Time
        from firesteel.datastream.window import SlidingProcessingTimeWindows

        assigner = SlidingProcessingTimeWindows.of(Time.minutes(10), Time.minutes(1))  # stream.window(assigner)
        print(assigner.is_event_time())
        ```

        ```text
        False
        ```
    """

    event_time = False


class GlobalWindows(WindowAssigner[Any, GlobalWindow]):
    """One window for all records; it needs a trigger of the program, since the default never fires.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.window import CountTrigger, GlobalWindows, PurgingTrigger

        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        numbers = env.from_collection([1, 2, 3, 4]).key_by(lambda number: "all")
        windows = numbers.window(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(2)))
        print(list(windows.reduce(lambda one, other: one + other).execute_and_collect()))
        ```

        ```text
        [3, 7]
        ```
    """

    @staticmethod
    def create() -> GlobalWindows:
        """Makes the assigner of the global window."""
        return GlobalWindows()

    @override
    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[GlobalWindow]:
        return [GlobalWindow.get()]

    @override
    def get_default_trigger(self, env: Any) -> Trigger[Any, GlobalWindow]:
        return NeverTrigger()

    @override
    def get_window_serializer(self) -> GlobalWindowSerializer:
        return GlobalWindowSerializer()

    @override
    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "GlobalWindows()"


class CountWindows(WindowAssigner[Any, CountWindow]):
    """Windows of a number of records of a key; state has a counter for each key.

    Attributes:
        window_size: number of records in a window.
        period: no window is open after each multiple of this number of records; 0 = a window is always open.
    """

    period: int

    def __init__(self, window_size: int, state_name: str) -> None:
        self.window_size = check_whole(f"{type(self).__name__}: the size", window_size, 1)
        self._counter = ValueStateDescriptor(state_name, Types.LONG())

    def next_number(self, context: WindowAssigner.WindowAssignerContext) -> int:
        """Return how many records the key had before this one, and count it."""
        state = context.get_runtime_context().get_state(self._counter)
        number: int = state.value() or 0
        state.update(number + 1)
        return number

    def forget(self, context: WindowAssigner.WindowAssignerContext) -> None:
        """Clear the key's counter if it has no open window: its next record is in window 0 again."""
        state = context.get_runtime_context().get_state(self._counter)
        number: int = state.value() or 0
        if number and number % self.period == 0:
            state.clear()

    def is_default(self, trigger: Trigger[Any, Any]) -> bool:
        """Whether a trigger removes each window's records when it is full, as the default trigger does."""
        nested = trigger.nested_trigger if type(trigger) is PurgingTrigger else None
        return type(nested) is CountTrigger and nested.window_size == self.window_size

    def get_default_trigger(self, env: Any) -> Trigger[Any, CountWindow]:
        """Returns the trigger that fires when the window is full, and then removes its records: no more can come."""
        return PurgingTrigger(CountTrigger(self.window_size))

    @override
    def get_window_serializer(self) -> CountWindowSerializer:
        return CountWindowSerializer()

    def is_event_time(self) -> bool:
        """Returns False: the windows follow no time."""
        return False


class CountTumblingWindowAssigner(CountWindows):
    """Windows of ``window_size`` records of a key, one after the other.

    Examples:
        ```python
        from firesteel.datastream.window import CountTumblingWindowAssigner

        assigner = CountTumblingWindowAssigner.of(100)  # stream.window(assigner), or stream.count_window(100)
        ```
    """

    def __init__(self, window_size: int) -> None:
        super().__init__(window_size, "tumble-count-assigner")
        self.period = self.window_size

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """Makes windows of ``window_size`` records, one after the other."""
        return CountTumblingWindowAssigner(window_size)

    @override
    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[CountWindow]:
        return [CountWindow(self.next_number(context) // self.window_size)]

    def __repr__(self) -> str:
        return f"CountTumblingWindowAssigner({self.window_size})"


class CountSlidingWindowAssigner(CountWindows):
    """Windows of ``window_size`` records of a key; one starts each ``window_slide`` records.

    Examples:
        ```python
        from firesteel.datastream.window import CountSlidingWindowAssigner

        assigner = CountSlidingWindowAssigner.of(100, 10)  # the last 100 records, after each 10
        ```
    """

    def __init__(self, window_size: int, window_slide: int) -> None:
        super().__init__(window_size, "slide-count-assigner")
        self.window_slide = check_whole("CountSlidingWindowAssigner: the slide", window_slide, 1)
        self.period = self.window_slide if self.window_slide >= self.window_size else 0

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """Makes windows of ``window_size`` records that start each ``window_slide`` records."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[CountWindow]:
        """Returns the windows that contain the record, the latest first; none if it is between two windows."""
        number, slide = self.next_number(context), self.window_slide
        first = max(0, -((self.window_size - 1 - number) // slide))
        return [CountWindow(index) for index in range(number // slide, first - 1, -1)]

    def __repr__(self) -> str:
        return f"CountSlidingWindowAssigner({self.window_size}, {self.window_slide})"
