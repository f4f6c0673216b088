"""Streams that a computation over changing tables makes of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from firesteel.datastream import DataStream
from firesteel.datastream.changelogs import computed_changes
from firesteel.datastream.data_stream import KeyedStream
from firesteel.expressions import Expression, col
from firesteel.functions.changelog import ChangelogComputation
from firesteel.table.types import DataType, DataTypes
from firesteel_sql.execution.stream_columns import names_of, row_type_of
from firesteel_sql.plan.relations import Relation
from firesteel_sql.plan.row_expressions import Constant, to_expression
from firesteel_sql.types.columns import type_info_of
from firesteel_sql.types.rules import is_nested, with_null

BuildInput = Callable[[Relation], DataStream]
"""Builds the stream of an input."""
Builders = dict[type[Relation], Callable[[Any, BuildInput], DataStream]]
"""What builds the stream of a relation, from the relation and a function that builds those of its inputs."""
_KEYS: Final = "firesteel_sql.kernels.keys:"
_KEY: Final = "$key"
"""Beginning of the names of columns with what stands for keys of other types."""
_ALL: Final = "$all"
"""Name of a constant column by which a stream without keys is keyed."""


def keyed(stream: DataStream, relation: Relation, places: Sequence[int]) -> KeyedStream:
    """A stream that is keyed by some of its columns.

    Further columns hold what stands for keys of other types (``key_type``), or, without any key, the one key of all
    rows.
    """
    names = names_of(relation.columns)
    further: dict[int, Expression] = {}
    for place in places:
        stand_in = key_type(relation.columns[place].type)
        if stand_in is not None:
            key = Expression(f"{_KEYS}as_key", (col(names[place]),), type=type_info_of(stand_in))
            further[place] = key.alias(f"{_KEY}{place}")
    if not places:
        further[-1] = to_expression(Constant(DataTypes.INT(), 0), names).alias(_ALL)
    if further:
        stream = stream.select(*map(col, names), *further.values())
    keys = [f"{_KEY}{place}" if place in further else names[place] for place in places]
    return stream.key_by(keys or [_ALL])


def key_type(data_type: DataType) -> DataType | None:
    """The type of what stands for keys of a type that streams are not keyed by; None = the keys themselves.

    Collections and rows are keys as bytes, and points in time as what clocks in UTC show.
    """
    if is_nested(data_type):
        return with_null(DataTypes.BYTES(), data_type.nullable)
    return replace(data_type, name="TIMESTAMP") if data_type.name == "TIMESTAMP_LTZ" else None


def computed(
    relation: Relation, inputs: Sequence[KeyedStream], implementation: str, parameters: Any, keys: int = 0
) -> DataStream:
    """The stream of a relation whose rows a class of the room ``operators`` computes, named as ``module:Class``.

    Args:
        relation: what is computed.
        inputs: of the computation.
        implementation: the class.
        parameters: of the class.
        keys: how many columns, the first ones, the computation takes from the key.
    """
    name = relation.text().partition("(")[0]
    computation = ChangelogComputation(f"firesteel_sql.operators.{implementation}", parameters)
    stand_ins = {place: key_type(column.type) for place, column in enumerate(relation.columns[:keys])}
    columns = [
        replace(column, type=stand_ins.get(place) or column.type) for place, column in enumerate(relation.columns)
    ]
    stream = computed_changes(name, inputs, computation, row_type_of(columns))
    if not any(stand_ins.values()):
        return stream
    values: list[Expression] = []
    for place, (name, column) in enumerate(zip(names_of(relation.columns), relation.columns, strict=True)):
        value: Expression = col(name)
        if stand_ins.get(place) is not None:
            value = Expression(f"{_KEYS}from_key", (value,), type=type_info_of(column.type)).alias(name)
        values.append(value)
    return stream.select(*values)
