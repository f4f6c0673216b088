"""The streams of aggregates and window table functions."""

from __future__ import annotations

from typing import Final

from firesteel.datastream import DataStream
from firesteel.datastream.changelogs import expanded_rows
from firesteel.functions.changelog import ChangelogComputation
from firesteel_sql.execution.computed_streams import Builders, BuildInput, computed, keyed
from firesteel_sql.execution.stream_columns import row_type_of
from firesteel_sql.execution.table_modes import table_mode
from firesteel_sql.operators.plans import AggregatePlan, SessionPlan, WindowPlan
from firesteel_sql.plan.changes import changelog_mode
from firesteel_sql.plan.stateful_relations import GroupBy, WindowKind, WindowTable


def _aggregate(relation: GroupBy, build: BuildInput) -> DataStream:
    window_end = None if relation.window is None else relation.groups.index(relation.window.end)
    plan = AggregatePlan(
        relation.calls,
        insert_only=changelog_mode(relation.input, table_mode).is_append,
        is_global=not relation.groups,
        window_end=window_end,
        starts_with_row=relation.starts_with_row,
        window_zone="UTC" if relation.window is None else relation.window.zone,
        ttl=relation.state_ttl or 0,
    )
    rows = keyed(build(relation.input), relation.input, relation.groups)
    return computed(relation, [rows], "aggregates:GroupAggregate", plan, len(relation.groups))


def _windows(relation: WindowTable, build: BuildInput) -> DataStream:
    rows = build(relation.input)
    if relation.kind is WindowKind.SESSION:
        sessions = keyed(rows, relation.input, relation.partition)
        return computed(
            relation, [sessions], "sessions:SessionRows", SessionPlan(relation.time, relation.size, relation.zone)
        )
    plan = WindowPlan(relation.kind, relation.time, relation.size, relation.step, relation.offset, relation.zone)
    computation = ChangelogComputation("firesteel_sql.operators.windows:Windows", plan)
    return expanded_rows("WindowTableFunction", rows, computation, row_type_of(relation.columns))


BUILDERS: Final[Builders] = {GroupBy: _aggregate, WindowTable: _windows}
