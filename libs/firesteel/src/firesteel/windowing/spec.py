"""What a program says about a window operation; plain data with the user's functions, checked by the API."""

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
    """What a window keeps of its records."""

    ALL = "all"
    """The records themselves."""
    REDUCE = "reduce"
    """One record, into which a reduce function has combined them."""
    AGGREGATE = "aggregate"
    """The accumulator of an aggregate function."""


@dataclass
class WindowSpec:
    """A window operation.

    Attributes:
        assigner: which windows a record belongs to.
        trigger: when they are evaluated.
        evictor: what is taken out then.
        allowed_lateness: how long behind its end a window is kept for late records, ms.
        late_tag: side output of records that come later than that; None = they are dropped and counted.
        gathering: what is kept.
        gather_function: ``ReduceFunction`` or callable, or ``AggregateFunction``; None for ``ALL``.
        window_function: what makes results; None = what was gathered is the result.
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
        """Windows may become one."""
        return isinstance(self.assigner, MergingWindowAssigner)

    @property
    def fixed(self) -> bool:
        """The windows are of one size, and the same for all keys."""
        return type(self.assigner) in _FIXED

    @property
    def one_window(self) -> bool:
        """A record is in one window at a time, as far as it is known."""
        return type(self.assigner) in (*_TUMBLING, *_SESSIONS, GlobalWindows)

    @property
    def aligned(self) -> bool:
        """The windows are the same for all keys and fire when the watermark passes their end, and only then."""
        return (
            type(self.assigner) in (TumblingEventTimeWindows, SlidingEventTimeWindows)
            and type(self.trigger) is EventTimeTrigger
            and self.evictor is None
        )

    @property
    def plain_sessions(self) -> bool:
        """Sessions that are evaluated at their end, and only then."""
        trigger = EventTimeTrigger if self.assigner.is_event_time() else ProcessingTimeTrigger
        return type(self.assigner) in _SESSIONS and type(self.trigger) is trigger and self.evictor is None
