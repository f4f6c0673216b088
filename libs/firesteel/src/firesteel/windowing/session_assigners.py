"""Assigners of sessions: windows that grow while records come, and end with a gap. PyFlink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from typing_extensions import override

from firesteel.common.time import Span
from firesteel.core.errors import ProgramError
from firesteel.windowing.assigners import MergingWindowAssigner, WindowAssigner, no_timestamp
from firesteel.windowing.builtin_triggers import EventTimeTrigger, ProcessingTimeTrigger
from firesteel.windowing.checks import check_span, check_whole
from firesteel.windowing.triggers import Trigger
from firesteel.windowing.windows import MIN_TIMESTAMP, TimeWindow, TimeWindowSerializer

__all__ = [
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "ProcessingTimeSessionWindows",
    "SessionWindowTimeGapExtractor",
]


class SessionWindowTimeGapExtractor(ABC):
    """Extracts from a record how long its session lasts without a further record.

    Examples:
        ```python
        from firesteel.datastream.window import SessionWindowTimeGapExtractor


        class ByKind(SessionWindowTimeGapExtractor):
            def extract(self, element):
                return 60_000 if element["kind"] == "slow" else 5_000


        print(ByKind().extract({"kind": "slow"}))
        ```

        ```text
        60000
        ```
    """

    @abstractmethod
    def extract(self, element: Any) -> int:
        """Returns the gap in milliseconds, more than 0."""


class TimeSessions(MergingWindowAssigner[Any, TimeWindow]):
    """Sessions that are merged when they overlap or touch."""

    event_time: ClassVar[bool]

    @abstractmethod
    def gap_of(self, element: Any) -> int:
        """Return the gap after a record, in ms."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        """Returns a session for the record alone, which is then merged with those that it overlaps or touches.

        Raises:
            ProgramError: the sessions are of event time, and the record has no timestamp; or its gap is not positive.
        """
        if not self.event_time:
            timestamp = context.get_current_processing_time()
        elif timestamp == MIN_TIMESTAMP:
            raise no_timestamp(self)
        return [TimeWindow(timestamp, timestamp + self.gap_of(element))]

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]
    ) -> None:
        """Merges sessions that overlap or touch."""
        TimeWindow.merge_windows(windows, callback)

    def get_default_trigger(self, env: Any) -> Trigger[Any, TimeWindow]:
        """Returns the trigger that fires at the end of the session."""
        return EventTimeTrigger() if self.event_time else ProcessingTimeTrigger()

    @override
    def get_window_serializer(self) -> TimeWindowSerializer:
        return TimeWindowSerializer()

    @override
    def is_event_time(self) -> bool:
        return self.event_time


class _FixedGap(TimeSessions):
    def __init__(self, session_gap: int) -> None:
        self.session_gap = check_whole(f"{type(self).__name__}: the gap in ms", session_gap, 1)

    def gap_of(self, element: Any) -> int:
        return self.session_gap

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.session_gap})"


class _DynamicGap(TimeSessions):
    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor | Callable[[Any], int]) -> None:
        extractor: Any = session_window_time_gap_extractor
        if isinstance(extractor, type) or not (callable(extractor) or callable(getattr(extractor, "extract", None))):
            raise TypeError(
                f"{type(self).__name__} takes a SessionWindowTimeGapExtractor or a callable, not {extractor!r}"
            )
        self.extractor = extractor

    def gap_of(self, element: Any) -> int:
        extract = getattr(self.extractor, "extract", self.extractor)
        gap = extract(element)
        if not isinstance(gap, int) or gap <= 0:
            raise ProgramError(
                f"{self!r}: the gap of a session is a positive int of milliseconds, but the extractor gave {gap!r}"
            )
        return gap

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extractor!r})"


class DynamicEventTimeSessionWindows(_DynamicGap):
    """Sessions by the records' timestamps; each record has a gap of its own.

    Examples:
        ```python
        from firesteel.datastream.window import EventTimeSessionWindows, SessionWindowTimeGapExtractor


        class ByKind(SessionWindowTimeGapExtractor):
            def extract(self, element):
                return 60_000 if element["kind"] == "slow" else 5_000


        assigner = EventTimeSessionWindows.with_dynamic_gap(ByKind())  # stream.window(assigner)
        ```
    """

    event_time = True

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicEventTimeSessionWindows:
        """Makes sessions whose gaps the extractor, or a plain callable, reads from the records."""
        return DynamicEventTimeSessionWindows(extractor)


class DynamicProcessingTimeSessionWindows(_DynamicGap):
    """Sessions by the clock; each record has a gap of its own.

    Examples:
        ```python
        from firesteel.datastream.window import ProcessingTimeSessionWindows, SessionWindowTimeGapExtractor


        class ByKind(SessionWindowTimeGapExtractor):
            def extract(self, element):
                return 60_000 if element["kind"] == "slow" else 5_000


        assigner = ProcessingTimeSessionWindows.with_dynamic_gap(ByKind())  # stream.window(assigner)
        ```
    """

    event_time = False

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicProcessingTimeSessionWindows:
        """Makes sessions whose gaps the extractor, or a plain callable, reads from the records."""
        return DynamicProcessingTimeSessionWindows(extractor)


class EventTimeSessionWindows(_FixedGap):
    """Sessions by the records' timestamps, with one gap for all.

    Examples:
        ```python
        from firesteel.common import Time, TimestampAssigner, WatermarkStrategy
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.window import EventTimeSessionWindows


        class BySecond(TimestampAssigner):
            def extract_timestamp(self, value, record_timestamp):
                return value[1] * 1000


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(BySecond())
        clicks = env.from_collection([("anna", 1), ("anna", 20), ("anna", 90)])
        timed = clicks.assign_timestamps_and_watermarks(strategy)
        sessions = timed.key_by(lambda click: click[0]).window(EventTimeSessionWindows.with_gap(Time.seconds(30)))
        print(list(sessions.reduce(lambda first, last: (first[0], last[1])).execute_and_collect()))
        ```

        ```text
        [('anna', 20), ('anna', 90)]
        ```
    """

    event_time = True

    @staticmethod
    def with_gap(size: Span) -> EventTimeSessionWindows:
        """Makes sessions that end when no record has come for ``size``."""
        return EventTimeSessionWindows(check_span("EventTimeSessionWindows: the gap", size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicEventTimeSessionWindows:
        """Makes sessions whose gaps the extractor, or a plain callable, reads from the records."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_FixedGap):
    """Sessions by the clock, with one gap for all.

    Examples:
        ```python
        from firesteel.common import Time
        from firesteel.datastream.window import ProcessingTimeSessionWindows

        assigner = ProcessingTimeSessionWindows.with_gap(Time.minutes(5))  # stream.window(assigner)
        print(assigner.is_event_time())
        ```

        ```text
        False
        ```
    """

    event_time = False

    @staticmethod
    def with_gap(size: Span) -> ProcessingTimeSessionWindows:
        """Makes sessions that end when no record has come for ``size``."""
        return ProcessingTimeSessionWindows(check_span("ProcessingTimeSessionWindows: the gap", size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicProcessingTimeSessionWindows:
        """Makes sessions whose gaps the extractor, or a plain callable, reads from the records."""
        return DynamicProcessingTimeSessionWindows(extractor)
