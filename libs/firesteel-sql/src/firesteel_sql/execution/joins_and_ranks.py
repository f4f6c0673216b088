"""The streams of joins, ranks and other relations that remember many rows for each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from firesteel.common.typeinfo import TypeInformation
from firesteel.core.errors import UnsupportedFeatureError
from firesteel.datastream import DataStream
from firesteel.datastream.changelogs import expanded_rows
from firesteel.datastream.data_stream import KeyedStream
from firesteel.expressions import Expression
from firesteel.functions.changelog import ChangelogComputation
from firesteel.table.types import ElementsType, RowType
from firesteel_sql.connectors.connector import connector_of
from firesteel_sql.execution.computed_streams import Builders, BuildInput, computed, keyed
from firesteel_sql.execution.stream_columns import names_of, row_type_of
from firesteel_sql.execution.table_modes import table_mode
from firesteel_sql.operators.plans import (
    JoinPlan,
    LookupPlan,
    NormalizePlan,
    OverPlan,
    RankPlan,
    SortPlan,
    TemporalJoinPlan,
    UnnestPlan,
    number_of,
)
from firesteel_sql.plan.changes import changelog_mode
from firesteel_sql.plan.row_expressions import to_expression
from firesteel_sql.plan.stateful_relations import (
    ConflictRule,
    Join,
    JoinKey,
    LookupJoin,
    Normalize,
    Over,
    OverCall,
    Rank,
    RankFunction,
    Replicate,
    SinkMaterializer,
    SortedRows,
    TemporalJoin,
    Unnest,
)
from firesteel_sql.types.columns import type_info_of

_LOOKUP_HINTS: Final = ("table", "async", "output-mode", "capacity", "timeout")
"""Options of the hint LOOKUP; all but the first have no effect, as the keys of a batch are looked up together."""


def _join(relation: Join, build: BuildInput) -> DataStream:
    keys, last = list(relation.keys), None
    if relation.null_aware:
        # NOT IN looks for a value among the rows of its correlation, where one NULL is enough to find nothing.
        *keys, last = relation.keys
    condition, types = _condition_of(relation)
    plan = JoinPlan(
        relation.kind,
        (len(relation.left.columns), len(relation.right.columns)),
        tuple(key.nulls_equal for key in keys),
        condition,
        types,
        None if last is None else (last.left, last.right),
        relation.bounds,
        None if relation.window is None else (relation.window[0].end, relation.window[1].end),
        "UTC" if relation.window is None else relation.window[0].zone,
        (relation.state_ttl[0] or 0, relation.state_ttl[1] or 0),
    )
    return computed(relation, _keyed_inputs(relation, keys, build), "joins:JoinChanges", plan)


def _temporal_join(relation: TemporalJoin, build: BuildInput) -> DataStream:
    condition, types = _condition_of(relation)
    plan = TemporalJoinPlan(
        (len(relation.left.columns), len(relation.right.columns)),
        tuple(key.nulls_equal for key in relation.keys),
        relation.is_outer,
        relation.left_time,
        relation.right_time,
        condition,
        types,
    )
    return computed(relation, _keyed_inputs(relation, relation.keys, build), "temporal_joins:VersionJoin", plan)


def _condition_of(
    relation: Join | TemporalJoin | LookupJoin,
) -> tuple[Expression | None, dict[str, TypeInformation] | None]:
    """The condition of a join, and names and types of the columns of a pair."""
    if relation.condition is None:
        return None, None
    right = relation.table if isinstance(relation, LookupJoin) else relation.right
    pair = [*relation.left.columns, *right.columns]
    types = [type_info_of(column.type) for column in pair]
    return to_expression(relation.condition, names_of(pair)), dict(zip(names_of(pair), types, strict=True))


def _keyed_inputs(relation: Join | TemporalJoin, keys: Sequence[JoinKey], build: BuildInput) -> list[KeyedStream]:
    return [
        keyed(build(relation.left), relation.left, [key.left for key in keys]),
        keyed(build(relation.right), relation.right, [key.right for key in keys]),
    ]


def _rank(relation: Rank, build: BuildInput) -> DataStream:
    # Flink keeps the last row of those of one time: a row that comes later replaces it.
    keeps_last = (
        relation.function is RankFunction.ROW_NUMBER
        and relation.first == relation.last == len(relation.order) == 1
        and not relation.order[0].ascending
        and relation.input.columns[relation.order[0].place].time_attribute is not None
    )
    plan = RankPlan(
        relation.function,
        relation.order,
        relation.first,
        relation.last,
        relation.with_rank,
        len(relation.input.columns),
        is_insert_only=changelog_mode(relation.input, table_mode).is_append,
        last_of_peers=keeps_last,
        window_end=None if relation.window is None else relation.window.end,
        window_zone="UTC" if relation.window is None else relation.window.zone,
        ttl=relation.state_ttl or 0,
    )
    inputs = [keyed(build(relation.input), relation.input, relation.partition)]
    return computed(relation, inputs, "ranks:RankChanges", plan)


def _materialized(relation: SinkMaterializer, build: BuildInput) -> DataStream:
    plan = RankPlan(
        RankFunction.ROW_NUMBER,
        (),
        1,
        1,
        False,
        len(relation.input.columns),
        last_of_peers=relation.conflict is not ConflictRule.NOTHING,
        refuses_peers=relation.conflict is ConflictRule.ERROR,
        ttl=relation.state_ttl or 0,
    )
    inputs = [keyed(build(relation.input), relation.input, relation.key)]
    return computed(relation, inputs, "ranks:RankChanges", plan)


def _normalize(relation: Normalize, build: BuildInput) -> DataStream:
    inputs = [keyed(build(relation.input), relation.input, relation.key)]
    return computed(relation, inputs, "normalize:Normalization", NormalizePlan(relation.state_ttl or 0))


def _unnest(relation: Unnest, build: BuildInput) -> DataStream:
    collection = relation.input.columns[relation.collection].type
    has_fields = isinstance(collection, ElementsType) and isinstance(collection.element_type, RowType)
    plan = UnnestPlan(
        relation.collection,
        relation.is_outer,
        relation.with_ordinality,
        is_multiset=isinstance(collection, ElementsType) and collection.name == "MULTISET",
        has_fields=has_fields,
    )
    computation = ChangelogComputation("firesteel_sql.operators.expansions:ElementRows", plan)
    return expanded_rows("Correlate", build(relation.input), computation, row_type_of(relation.columns))


def _replicate(relation: Replicate, build: BuildInput) -> DataStream:
    computation = ChangelogComputation("firesteel_sql.operators.expansions:RepeatedRows", relation.count)
    return expanded_rows("Correlate", build(relation.input), computation, row_type_of(relation.columns))


def _looked_up(relation: LookupJoin, build: BuildInput) -> DataStream:
    for name, value in relation.options:
        if name not in _LOOKUP_HINTS:
            raise UnsupportedFeatureError(
                f"hint LOOKUP: '{name}' = '{value}' is not supported yet; there are {', '.join(_LOOKUP_HINTS)}"
            )
    connector, context = connector_of(relation.table.identifier, relation.table.table)
    table = relation.table.columns
    lookup, cache = connector.lookup(context, [table[key.right].name for key in relation.keys])
    condition, types = _condition_of(relation)
    plan = LookupPlan(
        lookup,
        cache,
        tuple(key.left for key in relation.keys),
        len(relation.left.columns),
        tuple((column.name, type_info_of(column.type)) for column in table),
        relation.is_outer,
        condition,
        types,
    )
    computation = ChangelogComputation("firesteel_sql.operators.lookup_joins:LookupRows", plan)
    return expanded_rows("LookupJoin", build(relation.left), computation, row_type_of(relation.columns))


def _sorted_rows(relation: SortedRows, build: BuildInput) -> DataStream:
    plan = SortPlan(relation.order, len(relation.input.columns))
    rows = keyed(build(relation.input), relation.input, ())
    return computed(relation, [rows], "final_rows:FinalRows" if relation.at_end else "time_sort:SortedByTime", plan)


def _over(relation: Over, build: BuildInput) -> DataStream:
    order, calls = relation.order, relation.calls
    plan = OverPlan(order, calls, len(relation.input.columns), ttl=relation.state_ttl or 0)
    if changelog_mode(relation, table_mode).is_append:
        is_by_clock = relation.input.columns[order[0].place].time_attribute == "PROCTIME"
        running = tuple(number for number, over in enumerate(calls) if _runs_on(over))
        rows, millis = _retention([over for number, over in enumerate(calls) if number not in running])
        plan = replace(
            plan, is_by_time=not is_by_clock, is_by_clock=is_by_clock, running=running, keeps_rows=rows,
            keeps_millis=millis,
        )  # fmt: skip
    inputs = [keyed(build(relation.input), relation.input, relation.partition)]
    return computed(relation, inputs, "over:OverRows", plan)


def _runs_on(over: OverCall) -> bool:
    """Whether the results of later rows follow from the last one: no row has to be kept."""
    if over.call.function in ("ROW_NUMBER", "RANK", "DENSE_RANK"):
        return True
    is_simple = over.call.function in ("COUNT", "SUM", "SUM0", "AVG", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE")
    return is_simple and over.frame.preceding is None and not over.call.distinct and not over.call.order


def _retention(calls: Sequence[OverCall]) -> tuple[int | None, int | None]:
    """How many rows of a partition, and those of how many milliseconds, are in frames of later rows; None = all."""
    rows, millis = 0, None
    for over in calls:
        if over.call.function == "LAG" and len(over.call.constants) > 2:
            return None, None  # the value before may be any number of NULLs away
        if over.call.function == "LAG":
            rows = max(rows, number_of(over.call))
        elif over.frame.preceding is None:
            return None, None
        elif over.frame.by_rows:
            rows = max(rows, over.frame.preceding)
        else:
            millis = max(millis or 0, over.frame.preceding)
    return rows, millis


BUILDERS: Final[Builders] = {
    LookupJoin: _looked_up,
    Over: _over,
    Join: _join,
    TemporalJoin: _temporal_join,
    Rank: _rank,
    Normalize: _normalize,
    Unnest: _unnest,
    Replicate: _replicate,
    SortedRows: _sorted_rows,
    SinkMaterializer: _materialized,
}
