"""Which columns of a relation are bounds of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firesteel_sql.plan.relations import Filter, Projection, Relation, Union
from firesteel_sql.plan.row_expressions import InputColumn
from firesteel_sql.plan.stateful_relations import (
    GroupBy,
    Join,
    JoinKind,
    LookupJoin,
    Rank,
    TemporalJoin,
    Unnest,
    WindowColumns,
    WindowKind,
    WindowTable,
)


@dataclass(frozen=True)
class WindowShape:
    """What makes two windows comparable.

    Attributes:
        kind: of the windows.
        size: ms.
        step: ms.
        offset: ms.
        zone: of start and end.
    """

    kind: WindowKind
    size: int
    step: int
    offset: int
    zone: str


@dataclass(frozen=True)
class WindowBounds:
    """The columns of a relation that are bounds of windows, and leave in their order as the watermark advances.

    Attributes:
        shape: of the windows.
        starts: places of columns that are ``window_start``.
        ends: places of columns that are ``window_end``.
        times: places of columns that are ``window_time``.
    """

    shape: WindowShape
    starts: frozenset[int]
    ends: frozenset[int]
    times: frozenset[int]

    def columns_among(self, places: Sequence[int]) -> WindowColumns | None:
        """The columns of the window among some places; None if its start or its end is not among them."""
        start = next((place for place in places if place in self.starts), None)
        end = next((place for place in places if place in self.ends), None)
        if start is None or end is None:
            return None
        time = next((place for place in places if place in self.times), None)
        return WindowColumns(start, end, time, self.shape.zone)

    def _at(self, sources: Sequence[int | None]) -> WindowBounds | None:
        """The bounds in a relation whose columns come from these places."""

        def among(known: frozenset[int]) -> frozenset[int]:
            return frozenset(place for place, source in enumerate(sources) if source in known)

        starts, ends, times = among(self.starts), among(self.ends), among(self.times)
        return WindowBounds(self.shape, starts, ends, times) if starts or ends or times else None


def window_bounds(relation: Relation) -> WindowBounds | None:
    """The columns of a relation that are bounds of windows; None if there are none.

    Bounds get lost where rows may come after the watermark has passed their window's end: in joins and aggregates that
    are not by the window.
    """
    match relation:
        case WindowTable():
            shape = WindowShape(relation.kind, relation.size, relation.step, relation.offset, relation.zone)
            width = len(relation.input.columns)
            return WindowBounds(shape, frozenset([width]), frozenset([width + 1]), frozenset([width + 2]))
        case Filter() | Unnest():
            return window_bounds(relation.input)
        case Projection():
            inside = window_bounds(relation.input)
            if inside is None:
                return None
            return inside._at([
                item.index if isinstance(item, InputColumn) else None for item in relation.expressions
            ])  # fmt: skip
        case GroupBy():
            inside = None if relation.window is None else window_bounds(relation.input)
            return None if inside is None else inside._at(relation.groups)
        case Rank():
            return None if relation.window is None else window_bounds(relation.input)
        case TemporalJoin() | LookupJoin():
            return window_bounds(relation.left)
        case Join():
            return _of_join(relation)
        case Union():
            first, *others = [window_bounds(part) for part in relation.parts]
            return first if all(other == first for other in others) else None
    return None


def _of_join(join: Join) -> WindowBounds | None:
    left, right = window_bounds(join.left), window_bounds(join.right)
    if join.window is None or left is None or right is None:
        return None
    if join.kind in (JoinKind.SEMI, JoinKind.ANTI, JoinKind.LEFT):  # bounds of a missing partner are NULL
        return left
    width = len(join.left.columns)
    moved = WindowBounds(
        right.shape,
        *[frozenset(place + width for place in places) for places in (right.starts, right.ends, right.times)],
    )
    if join.kind is JoinKind.RIGHT:
        return moved
    if join.kind is JoinKind.FULL:
        return None
    return WindowBounds(left.shape, left.starts | moved.starts, left.ends | moved.ends, left.times | moved.times)
