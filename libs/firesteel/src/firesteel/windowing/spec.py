"""Specification of a window operation: plain data with the user's functions, checked by the API."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from firesteel.functions.output_tag import OutputTag
from firesteel.windowing.assigners import (
    GlobalWindows,
    MergingWindowAssigner,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from firesteel.windowing.builtin_triggers import EventTimeTrigger, ProcessingTimeTrigger
from firesteel.windowing.evictors import Evictor
from firesteel.windowing.session_assigners import (
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
)
from firesteel.windowing.triggers import Trigger

__all__ = ["WindowGathering", "WindowSpec"]


_FIXED = (
    TumblingEventTimeWindows,
    SlidingEventTimeWindows,
    TumblingProcessingTimeWindows,
    SlidingProcessingTimeWindows,
)


_TUMBLING = (TumblingEventTimeWindows, TumblingProcessingTimeWindows)
_SESSIONS = (
    EventTimeSessionWindows,
    DynamicEventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
)


class WindowGathering(Enum):
    """How a window stores its records."""

    ALL = "all"
    """The window stores the records themselves."""
    REDUCE = "reduce"
    """The window stores one record, into which a reduce function combines them."""
    AGGREGATE = "aggregate"
    """The window stores the accumulator of an aggregate function."""


@dataclass
class WindowSpec:
    """A window operation.

    Attributes:
        assigner: assigns records to windows.
        trigger: decides when a window is evaluated.
        evictor: removes records when a window is evaluated; None = none is removed.
        allowed_lateness: how long after its end a window is kept for late records, ms.
        late_tag: side output of records that come even later; None = they are dropped and counted.
        gathering: how windows store their records.
        gather_function: ``ReduceFunction`` or callable, or ``AggregateFunction``; None for ``ALL``.
        window_function: computes the results; None = the stored records or the aggregate are the results.
    """

    assigner: WindowAssigner[Any, Any]
    trigger: Trigger[Any, Any]
    evictor: Evictor[Any, Any] | None = None
    allowed_lateness: int = 0
    late_tag: OutputTag[Any] | None = None
    gathering: WindowGathering = WindowGathering.ALL
    gather_function: Any = None
    window_function: Any = None

    @property
    def merging(self) -> bool:
        """Whether windows may merge."""
        return isinstance(self.assigner, MergingWindowAssigner)

    @property
    def fixed(self) -> bool:
        """Whether the windows are of one size, and the same for all keys."""
        return type(self.assigner) in _FIXED

    @property
    def one_window(self) -> bool:
        """Whether each record is known to be in one window only."""
        return type(self.assigner) in (*_TUMBLING, *_SESSIONS, GlobalWindows)

    @property
    def aligned(self) -> bool:
        """Whether the windows are the same for all keys, and fire only when the watermark passes their end."""
        return (
            type(self.assigner) in (TumblingEventTimeWindows, SlidingEventTimeWindows)
            and type(self.trigger) is EventTimeTrigger
            and self.evictor is None
        )

    @property
    def plain_sessions(self) -> bool:
        """Whether the windows are sessions that fire only at their end."""
        trigger = EventTimeTrigger if self.assigner.is_event_time() else ProcessingTimeTrigger
        return type(self.assigner) in _SESSIONS and type(self.trigger) is trigger and self.evictor is None
