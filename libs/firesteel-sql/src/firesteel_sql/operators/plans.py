"""What operators are made with: what the planner knows, in a form that travels to the slots."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel_sql.plan.stateful_relations import AggregateCall, WindowKind


@dataclass(frozen=True)
class AggregatePlan:
    """What a ``GroupAggregate`` computes.

    Attributes:
        calls: the aggregates.
        insert_only: no row of the input ever goes.
        is_global: there are no groups: the key is a constant that is no part of the results.
        window_end: which column of the key is the end of a window; None = results leave with each change.
    """

    calls: tuple[AggregateCall, ...]
    insert_only: bool
    is_global: bool = False
    window_end: int | None = None


@dataclass(frozen=True)
class WindowPlan:
    """Windows of a fixed length.

    Attributes:
        kind: TUMBLE, HOP or CUMULATE.
        time: place of the column with the time.
        size: length of a window, ms; of CUMULATE the longest.
        step: time from one window to the next, ms.
        offset: by which windows are moved, ms.
    """

    kind: WindowKind
    time: int
    size: int
    step: int
    offset: int


@dataclass(frozen=True)
class SessionPlan:
    """Sessions of rows of one key.

    Attributes:
        time: place of the column with the time.
        gap: time without rows after which a session ends, ms.
    """

    time: int
    gap: int
