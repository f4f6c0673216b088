"""Sessions: windows that grow as long as records come, and end with a gap. PyFlink's names."""

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
    """Reads from a record how long its session lasts without another one."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """Returns the gap in milliseconds; more than 0."""


class TimeSessions(MergingWindowAssigner[Any, TimeWindow]):
    """Sessions that are merged when they overlap or touch."""

    event_time: ClassVar[bool]

    @abstractmethod
    def gap_of(self, element: Any) -> int:
        """The gap behind a record, in ms."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[TimeWindow]:
        """A session of the record alone; it is merged with those that it overlaps or touches.

        Raises:
            ProgramError: event-time sessions, and the record has no timestamp; or the gap is not positive.
        """
        if not self.event_time:
            timestamp = context.get_current_processing_time()
        elif timestamp == MIN_TIMESTAMP:
            raise no_timestamp(self)
        return [TimeWindow(timestamp, timestamp + self.gap_of(element))]

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]
    ) -> None:
        """Sessions that overlap or touch become one."""
        TimeWindow.merge_windows(windows, callback)

    def get_default_trigger(self, env: Any) -> Trigger[Any, TimeWindow]:
        """Fires at the end of the session."""
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
        given: Any = session_window_time_gap_extractor
        if isinstance(given, type) or not (callable(given) or callable(getattr(given, "extract", None))):
            raise TypeError(f"{type(self).__name__} takes a SessionWindowTimeGapExtractor or a callable, not {given!r}")
        self.extractor = given

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
    """Sessions by the records' timestamps; each record says how long it lasts."""

    event_time = True

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicEventTimeSessionWindows:
        """Makes one."""
        return DynamicEventTimeSessionWindows(extractor)


class DynamicProcessingTimeSessionWindows(_DynamicGap):
    """Sessions by the clock; each record says how long it lasts."""

    event_time = False

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicProcessingTimeSessionWindows:
        """Makes one."""
        return DynamicProcessingTimeSessionWindows(extractor)


class EventTimeSessionWindows(_FixedGap):
    """Sessions by the records' timestamps, with one gap for all."""

    event_time = True

    @staticmethod
    def with_gap(size: Span) -> EventTimeSessionWindows:
        """Sessions that end when so long no record came."""
        return EventTimeSessionWindows(check_span("EventTimeSessionWindows: the gap", size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicEventTimeSessionWindows:
        """Sessions whose gap each record says; a plain callable does as well."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_FixedGap):
    """Sessions by the clock, with one gap for all."""

    event_time = False

    @staticmethod
    def with_gap(size: Span) -> ProcessingTimeSessionWindows:
        """Sessions that end when so long no record came."""
        return ProcessingTimeSessionWindows(check_span("ProcessingTimeSessionWindows: the gap", size))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicProcessingTimeSessionWindows:
        """Sessions whose gap each record says; a plain callable does as well."""
        return DynamicProcessingTimeSessionWindows(extractor)
