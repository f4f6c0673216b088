"""Streams that a computation over changing tables makes of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from firesteel.core.errors import UnsupportedFeatureError
from firesteel.datastream import DataStream
from firesteel.datastream.changelogs import computed_changes
from firesteel.datastream.data_stream import KeyedStream
from firesteel.expressions import col
from firesteel.functions.changelog import ChangelogComputation
from firesteel.table.types import DataTypes, ElementsType, MapType, RowType
from firesteel_sql.execution.stream_columns import names_of, row_type_of
from firesteel_sql.plan.relations import Column, Relation
from firesteel_sql.plan.row_expressions import Constant, to_expression

BuildInput = Callable[[Relation], DataStream]
"""Builds the stream of an input."""
Builders = dict[type[Relation], Callable[[Any, BuildInput], DataStream]]
"""What builds the stream of a relation, from the relation and a function that builds those of its inputs."""
_ALL: Final = "$all"
"""Name of a constant column by which a stream without keys is keyed."""


def check_comparable(columns: Sequence[Column], purpose: str) -> None:
    """Check that operators can compare the values of columns.

    Raises:
        UnsupportedFeatureError: one is a collection or a row.
    """
    for column in columns:
        if isinstance(column.type, (ElementsType, MapType, RowType)):
            raise UnsupportedFeatureError(
                f"rows can't be {purpose} by {column.name}, which is {column.type}, yet: take parts of it, such as "
                f"{column.name}[1], or a text, such as JSON_STRING({column.name})"
            )


def keyed(stream: DataStream, relation: Relation, places: Sequence[int]) -> KeyedStream:
    """A stream that is keyed by some of its columns; without any all rows have one key, in a further column."""
    names = names_of(relation.columns)
    check_comparable([relation.columns[place] for place in places], "grouped, compared or joined")
    if places:
        return stream.key_by([names[place] for place in places])
    constant = to_expression(Constant(DataTypes.INT(), 0), names).alias(_ALL)
    return stream.select(*map(col, names), constant).key_by([_ALL])


def computed(relation: Relation, inputs: Sequence[KeyedStream], implementation: str, parameters: Any) -> DataStream:
    """The stream of a relation whose rows a class of the room ``operators`` computes, named as ``module:Class``."""
    name = relation.text().partition("(")[0]
    computation = ChangelogComputation(f"firesteel_sql.operators.{implementation}", parameters)
    return computed_changes(name, inputs, computation, row_type_of(relation.columns))
