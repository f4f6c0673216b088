"""Versions of rows, for joins with the version that was valid at a time."""

from __future__ import annotations

from dataclasses import replace

from firesteel_sql.plan.changes import SourceMode, changelog_mode
from firesteel_sql.plan.relations import Projection, Relation
from firesteel_sql.plan.row_expressions import InputColumn, places_of
from firesteel_sql.plan.stateful_relations import Rank, RankFunction, TemporalJoin
from firesteel_sql.plan.traversal import with_inputs


def with_all_versions(relation: Relation, source_mode: SourceMode) -> Relation:
    """A relation whose temporal joins read all versions of a view of last rows, not what it was at some moments.

    ``QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) = 1`` drops a row that comes behind a later one of its
    key: it never was the last. But it is a version, of the time between the two, and left rows of that time want it.
    """
    inputs = tuple(with_all_versions(part, source_mode) for part in relation.inputs)
    relation = with_inputs(relation, inputs)
    if isinstance(relation, TemporalJoin):
        read = frozenset(range(len(relation.right.columns)))
        right = _versions(relation.right, relation.right_time, read, source_mode)
        if right is not None:
            return replace(relation, right=right)
    return relation


def _versions(relation: Relation, time: int, read: frozenset[int], source_mode: SourceMode) -> Relation | None:
    """The rows of which a relation gives the last ones; None = it does something else.

    Args:
        relation: a view of last rows.
        time: place of their time.
        read: places of the columns that are read.
        source_mode: the changes of tables.
    """
    if isinstance(relation, Projection):
        column = relation.expressions[time]
        if not isinstance(column, InputColumn):
            return None
        read_inside = frozenset[int]().union(*map(places_of, relation.expressions))
        inside = _versions(relation.input, column.index, read_inside, source_mode)
        return None if inside is None else replace(relation, input=inside)
    if (
        isinstance(relation, Rank)
        and relation.function is RankFunction.ROW_NUMBER
        and relation.first == relation.last == len(relation.order) == 1
        and relation.window is None
        and relation.order[0].place == time
        and not relation.order[0].ascending
        and max(read) < len(relation.input.columns)  # the rank, which is 1, stands behind them
        and changelog_mode(relation.input, source_mode).is_append
    ):
        return relation.input
    return None
