"""What the methods on columns add to the graph, checked. Imports Arrow: loaded when a program uses columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firesteel.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from firesteel.core.errors import GraphError
from firesteel.expressions import Expression, col
from firesteel.expressions.binding import bind, bind_condition
from firesteel.expressions.expression import unaliased
from firesteel.expressions.keys import ColumnKey
from firesteel.expressions.schema import schema_of, uncolumnar

Named = tuple[str, Expression]
Projection = tuple[tuple[Expression, ...], RowTypeInfo]
"""Expressions, one for each column of the result, and its type."""


def columns_of(method: str, type_info: TypeInformation) -> dict[str, TypeInformation]:
    """Columns of a stream of this type.

    Raises:
        GraphError: it has none.
    """
    reason = uncolumnar(type_info)
    if reason is not None:
        raise GraphError(
            f"{method}() with columns needs a stream whose records have typed fields, but {reason}: declare one with "
            "map(..., output_type=Types.ROW_NAMED([...], [...]))"
        )
    found = schema_of(type_info)
    assert found is not None
    return found


def check_result(method: str, type_info: TypeInformation) -> None:
    """The declared type of a result has to have columns.

    Raises:
        GraphError: it has none.
    """
    reason = uncolumnar(type_info)
    if reason is not None:
        raise GraphError(f"{method}(): the result can't be batches: {reason}")


def condition(expression: Expression, type_info: TypeInformation, *, wrap: bool) -> Expression:
    """A condition that fits the stream."""
    bind_condition(expression, columns_of("filter", type_info), wrap=wrap)
    return unaliased(expression)


def select(columns: Sequence[Any], type_info: TypeInformation, *, wrap: bool) -> Projection:
    """These columns."""
    given = columns_of("select", type_info)
    return _project("select", [_named("select", column) for column in columns], given, wrap)


def with_columns(columns: Sequence[Any], type_info: TypeInformation, *, wrap: bool) -> Projection:
    """All columns, some of them replaced, and further ones."""
    given = columns_of("with_columns", type_info)
    made: dict[str, Expression] = {name: col(name) for name in given}
    made.update(_once("with_columns", [_named("with_columns", column) for column in columns]))
    return _project("with_columns", list(made.items()), given, wrap)


def drop(names: Sequence[Any], type_info: TypeInformation, *, wrap: bool) -> Projection:
    """All columns but these."""
    given = columns_of("drop", type_info)
    for name in names:
        bind(col(name), given)
    return _project("drop", [(name, col(name)) for name in given if name not in names], given, wrap)


def column_key(columns: Sequence[Any], type_info: TypeInformation) -> tuple[ColumnKey, TypeInformation]:
    """What reads a key of these columns, and the key's type.

    Raises:
        GraphError: the stream has no columns, or an expression is no plain column.
        ProgramError: there is no such column.
    """
    given = columns_of("key_by", type_info)
    names: list[str] = []
    for column in columns:
        bare = col(column) if isinstance(column, str) else unaliased(column)
        if bare.function != "column":
            raise GraphError(f"key_by(): {bare} is no plain column; add it with with_columns() and key by its name")
        bind(bare, given)
        names.append(bare.options["name"])
    if not names:
        raise GraphError("key_by() takes at least one column")
    order = list(given)
    key_type = given[names[0]] if len(names) == 1 else TupleTypeInfo([given[name] for name in names])
    return ColumnKey(names, [order.index(name) for name in names]), key_type


def _project(method: str, columns: Sequence[Named], given: dict[str, TypeInformation], wrap: bool) -> Projection:
    named = _once(method, columns)
    if not named:
        raise GraphError(f"{method}(): no column is left; name at least one")
    types = []
    for expression in named.values():
        bound = bind(expression, given, wrap=wrap)
        is_column = expression.function == "column"  # its declared type: several types have the same columns
        types.append(given[expression.options["name"]] if is_column else bound.type_info)
    return tuple(named.values()), RowTypeInfo(types, list(named))


def _named(method: str, column: Any) -> Named:
    if isinstance(column, str):
        column = col(column)
    if not isinstance(column, Expression):
        raise TypeError(f"{method}() takes names of columns and expressions, not {type(column).__name__}")
    name = column.output_name()
    if name is None:
        raise GraphError(f"{method}(): {column} has no name; give it one with .alias('…')")
    return name, unaliased(column)


def _once(method: str, columns: Sequence[Named]) -> dict[str, Expression]:
    names = [name for name, _ in columns]
    for name in names:
        if names.count(name) > 1:
            raise GraphError(f"{method}(): the name {name!r} stands more than once; give the others an alias")
    return dict(columns)
