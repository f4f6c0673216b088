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
from firesteel.table.types import DataTypes
from firesteel_sql.execution.stream_columns import names_of, row_type_of
from firesteel_sql.plan.relations import Column, Relation
from firesteel_sql.plan.row_expressions import Constant, to_expression
from firesteel_sql.types.columns import type_info_of
from firesteel_sql.types.rules import is_nested

BuildInput = Callable[[Relation], DataStream]
"""Builds the stream of an input."""
Builders = dict[type[Relation], Callable[[Any, BuildInput], DataStream]]
"""What builds the stream of a relation, from the relation and a function that builds those of its inputs."""
_KEYS: Final = "firesteel_sql.kernels.keys:"
_BYTES: Final = "$key"
"""Beginning of the names of columns with the bytes of collections and rows by which a stream is keyed."""
_ALL: Final = "$all"
"""Name of a constant column by which a stream without keys is keyed."""


def keyed(stream: DataStream, relation: Relation, places: Sequence[int]) -> KeyedStream:
    """A stream that is keyed by some of its columns.

    Further columns hold the bytes of collections and rows that are keys, or, without any key, the one key of all rows.
    """
    names = names_of(relation.columns)
    further = {
        place: as_bytes(col(names[place])).alias(f"{_BYTES}{place}")
        for place in places
        if is_nested(relation.columns[place].type)
    }
    if not places:
        further[-1] = to_expression(Constant(DataTypes.INT(), 0), names).alias(_ALL)
    if further:
        stream = stream.select(*map(col, names), *further.values())
    keys = [f"{_BYTES}{place}" if place in further else names[place] for place in places]
    return stream.key_by(keys or [_ALL])


def as_bytes(value: Expression) -> Expression:
    """The bytes of a collection or row, which are equal where the values are."""
    return Expression(f"{_KEYS}key_bytes", (value,), type=type_info_of(DataTypes.BYTES()))


def from_bytes(stream: DataStream, columns: Sequence[Column], keys: int) -> DataStream:
    """A stream in which the collections and rows among the keys, the first columns, are bytes, with their values."""
    names = names_of(columns)
    if not any(is_nested(column.type) for column in columns[:keys]):
        return stream
    values = [
        Expression(f"{_KEYS}key_values", (col(name),), type=type_info_of(column.type)).alias(name)
        if place < keys and is_nested(column.type)
        else col(name)
        for place, (name, column) in enumerate(zip(names, columns, strict=True))
    ]
    return stream.select(*values)


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
    columns = [
        replace(column, type=DataTypes.BYTES()) if place < keys and is_nested(column.type) else column
        for place, column in enumerate(relation.columns)
    ]
    stream = computed_changes(name, inputs, computation, row_type_of(columns))
    return from_bytes(stream, relation.columns, keys)
