"""Specification of windows over columns: plain data, checked by the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from firesteel.common.typeinfo import RowTypeInfo, TypeInformation, Types
from firesteel.core.errors import GraphError
from firesteel.expressions.aggregates import Aggregate, BoundAggregate
from firesteel.functions.output_tag import OutputTag
from firesteel.windowing.assigners import (
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from firesteel.windowing.builtin_triggers import EventTimeTrigger, ProcessingTimeTrigger
from firesteel.windowing.session_assigners import EventTimeSessionWindows, ProcessingTimeSessionWindows
from firesteel.windowing.triggers import Trigger

__all__ = ["WINDOW_END", "WINDOW_START", "ColumnWindowSpec", "check_windows", "result_type"]

WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"

_ASSIGNERS = (
    TumblingEventTimeWindows,
    SlidingEventTimeWindows,
    EventTimeSessionWindows,
    TumblingProcessingTimeWindows,
    SlidingProcessingTimeWindows,
    ProcessingTimeSessionWindows,
)


@dataclass
class ColumnWindowSpec:
    """Windows whose results are aggregates of columns.

    Attributes:
        assigner: assigner of tumbling, sliding, or session windows (with one gap for all).
        aggregates: the aggregates to compute.
        allowed_lateness: how long after its end a window is kept for late rows, ms.
        late_tag: side output of rows that come even later; None = they are dropped and counted.
    """

    assigner: WindowAssigner[Any, Any]
    aggregates: tuple[Aggregate, ...]
    allowed_lateness: int = 0
    late_tag: OutputTag[Any] | None = None


def check_windows(assigner: WindowAssigner[Any, Any], trigger: Trigger[Any, Any] | None, evictor: Any) -> None:
    """Check that windows can have aggregates of columns: they must be evaluated at their end.

    Raises:
        GraphError: the windows are of another kind; the message says what to do.
    """
    instead = "; derive from AggregateFunction instead, which works record by record"
    if type(assigner) not in _ASSIGNERS:
        raise GraphError(
            f"aggregates of columns go with tumbling, sliding and session windows of fixed sizes, not with {assigner!r}"
            + instead
        )
    usual = EventTimeTrigger if assigner.is_event_time() else ProcessingTimeTrigger
    if trigger is not None and type(trigger) is not usual:
        raise GraphError(f"aggregates of columns are given at the end of the window, not by {trigger!r}{instead}")
    if evictor is not None:
        raise GraphError(f"aggregates of columns keep no records that {evictor!r} could take out{instead}")


def result_type(keys: Mapping[str, TypeInformation], aggregates: Sequence[BoundAggregate]) -> RowTypeInfo:
    """Return the type of the results: columns of the key, the window and the aggregates."""
    names = [*keys, WINDOW_START, WINDOW_END, *(aggregate.name for aggregate in aggregates)]
    types = [*keys.values(), Types.LONG(), Types.LONG(), *(aggregate.type_info for aggregate in aggregates)]
    return RowTypeInfo(types, names)
