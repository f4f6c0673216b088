"""The streams of joins, ranks and other relations that remember many rows for each key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from firesteel.datastream import DataStream
from firesteel.datastream.changelogs import computed_changes
from firesteel.datastream.data_stream import KeyedStream
from firesteel.expressions import col
from firesteel.functions.changelog import ChangelogComputation
from firesteel.table.types import DataTypes
from firesteel_sql.execution.stream_columns import names_of, row_type_of
from firesteel_sql.operators.joins import JoinParameters
from firesteel_sql.plan.relations import Relation
from firesteel_sql.plan.row_expressions import Constant, to_expression
from firesteel_sql.plan.stateful_relations import Join
from firesteel_sql.types.columns import type_info_of

BuildInput = Callable[[Relation], DataStream]
_ALL: Final = "$all"
"""Name of a constant column by which a stream without keys is keyed."""


def keyed(stream: DataStream, relation: Relation, places: Sequence[int]) -> KeyedStream:
    """A stream that is keyed by some of its columns; without any all rows have one key, in a further column."""
    names = names_of(relation.columns)
    if places:
        return stream.key_by([names[place] for place in places])
    constant = to_expression(Constant(DataTypes.INT(), 0), names).alias(_ALL)
    return stream.select(*map(col, names), constant).key_by([_ALL])


def _computed(relation: Relation, inputs: Sequence[KeyedStream], implementation: str, parameters: Any) -> DataStream:
    name = relation.text().partition("(")[0]
    computation = ChangelogComputation(f"firesteel_sql.operators.{implementation}", parameters)
    return computed_changes(name, inputs, computation, row_type_of(relation.columns))


def _join(relation: Join, build: BuildInput) -> DataStream:
    keys, last = relation.keys, None
    if relation.null_aware:
        # NOT IN looks for a value among the rows of its correlation, where one NULL is enough to find nothing.
        *keys, last = relation.keys
    pair = [*relation.left.columns, *relation.right.columns]
    has_condition = relation.condition is not None
    types = [type_info_of(column.type) for column in pair]
    parameters = JoinParameters(
        relation.kind,
        (len(relation.left.columns), len(relation.right.columns)),
        tuple(key.nulls_equal for key in keys),
        to_expression(relation.condition, names_of(pair)) if relation.condition is not None else None,
        dict(zip(names_of(pair), types, strict=True)) if has_condition else None,
        None if last is None else (last.left, last.right),
        relation.bounds,
        None if relation.window is None else (relation.window[0].end, relation.window[1].end),
    )
    inputs = [
        keyed(build(relation.left), relation.left, [key.left for key in keys]),
        keyed(build(relation.right), relation.right, [key.right for key in keys]),
    ]
    return _computed(relation, inputs, "joins:JoinFunction", parameters)


BUILDERS: Final[dict[type[Relation], Callable[[Any, BuildInput], DataStream]]] = {Join: _join}
"""What builds the stream of a relation, from the relation and a function that builds those of its inputs."""
