"""Plans of the methods on columns (``select``, ``key_by``, ``aggregate``), checked against the stream's schema.

Arrow, and the kernels of expressions (``expressions.binding``), are imported when a program first uses columns: loading
them takes 0.2 seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firesteel.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from firesteel.core.errors import GraphError
from firesteel.expressions import Expression, col
from firesteel.expressions.aggregates import Aggregate, bind_aggregates
from firesteel.expressions.expression import unaliased
from firesteel.expressions.keys import ColumnKey, ComputedKey
from firesteel.expressions.texts import name_of
from firesteel.windowing.columnar import WINDOW_END, WINDOW_START, result_type

Named = tuple[str, Expression]
Schema = dict[str, TypeInformation]
"""Names of columns and their types."""
Projection = tuple[tuple[Expression, ...], RowTypeInfo]
"""Expressions, one for each column of the result, and its type."""


def columns_of(method: str, type_info: TypeInformation) -> Schema:
    """Columns of a stream of this type.

    Raises:
        GraphError: it has none.
    """
    from firesteel.expressions.schema import schema_of, uncolumnar

    reason = uncolumnar(type_info)
    if reason is not None:
        raise GraphError(
            f"{method}() with columns needs a stream whose records have typed fields, but {reason}: declare one with "
            "map(..., output_type=Types.ROW_NAMED([...], [...]))"
        )
    schema = schema_of(type_info)
    assert schema is not None
    return schema


def check_result(method: str, type_info: TypeInformation) -> None:
    """Check that the declared type of a result has columns.

    Raises:
        GraphError: it has none.
    """
    from firesteel.expressions.schema import uncolumnar

    reason = uncolumnar(type_info)
    if reason is not None:
        raise GraphError(f"{method}(): the result can't be batches: {reason}")


def condition(expression: Expression, type_info: TypeInformation, *, wrap: bool) -> Expression:
    """The condition of a filter, checked against the stream and without an alias.

    Raises:
        GraphError: the stream has no columns.
        ProgramError: the expression does not fit them, or is not Boolean.
    """
    from firesteel.expressions.binding import bind_condition

    bind_condition(expression, columns_of("filter", type_info), wrap=wrap)
    return unaliased(expression)


def select(columns: Sequence[Any], type_info: TypeInformation, *, wrap: bool) -> Projection:
    """The projection of ``select``: these columns, in this order."""
    schema = columns_of("select", type_info)
    return _project("select", [_named("select", column) for column in columns], schema, wrap)


def with_columns(columns: Sequence[Any], type_info: TypeInformation, *, wrap: bool) -> Projection:
    """The projection of ``with_columns``: all columns, where those named again are replaced and others are added."""
    schema = columns_of("with_columns", type_info)
    columns_by_name: dict[str, Expression] = {name: col(name) for name in schema}
    columns_by_name.update(_once("with_columns", [_named("with_columns", column) for column in columns]))
    return _project("with_columns", list(columns_by_name.items()), schema, wrap)


def drop(names: Sequence[Any], type_info: TypeInformation, *, wrap: bool) -> Projection:
    """The projection of ``drop``: all columns but these."""
    schema = columns_of("drop", type_info)
    for name in names:
        _type_of(col(name), schema)
    return _project("drop", [(name, col(name)) for name in schema if name not in names], schema, wrap)


def column_key(columns: Sequence[Any], type_info: TypeInformation, *, wrap: bool) -> tuple[ColumnKey, TypeInformation]:
    """What reads a key of these columns and expressions, and the key's type.

    Raises:
        GraphError: the stream has no columns, there is nothing to key by, or keys are decimals.
        ProgramError: an expression does not fit the columns.
    """
    from firesteel.expressions.values import form_of

    schema = columns_of("key_by", type_info)
    if not columns:
        raise GraphError("key_by() takes at least one column")
    order = list(schema)
    names, parts = [], []
    for column in columns:
        expression = col(column) if isinstance(column, str) else column
        _type_of(expression, schema, wrap=wrap)
        bare = unaliased(expression)
        names.append(expression.output_name() or name_of(bare))
        parts.append(bare)
    # A key of plain columns is read from the batch as it is; only one with expressions needs kernels.
    key: ColumnKey
    if all(part.function == "column" for part in parts):
        reads = [part.options["name"] for part in parts]
        key = ColumnKey(names, [order.index(name) for name in reads], reads)
    else:
        read_names = frozenset[str]().union(*[part.columns() for part in parts])
        read_columns = {name: schema[name] for name in order if name in read_names}
        key = ComputedKey(names, parts, read_columns, [order.index(name) for name in read_columns], wrap=wrap)
    types = key.types(schema)
    for name, part_type in zip(names, types, strict=True):
        if "decimal" in str(form_of(part_type)):
            raise GraphError(
                f"key_by(): {name!r} is {part_type}, whose columns are texts, and equal numbers have several (1.5, "
                "1.50): cast it to DOUBLE or BIG_INT, or key by a function"
            )
    return key, types[0] if len(types) == 1 else TupleTypeInfo(types)


def key_of(method: str, selector: Any, schema: Schema) -> tuple[ColumnKey, Schema]:
    """The key of a stream that is keyed by columns, and the columns that it makes.

    Raises:
        GraphError: it is keyed by a function, or by values that are no numbers, text, bytes, dates or times, or two
            parts of it have one name.
    """
    from firesteel.expressions.schema import arrow_type, is_nested
    from firesteel.expressions.values import form_of

    if not isinstance(selector, ColumnKey):
        raise GraphError(f"{method}() needs a stream that is keyed by columns: key_by('name') or key_by(['a', 'b'])")
    key_columns: Schema = {}
    for name, type_info in zip(selector.names, selector.types(schema), strict=True):
        data_type = arrow_type(type_info)
        if form_of(type_info) is not None or (data_type is not None and is_nested(data_type)):
            raise GraphError(
                f"{method}(): the key's column {name!r} is {type_info}; keys of columns are numbers, text, bytes, "
                "dates and times. Cast it, or use reduce() or process()"
            )
        if name in key_columns:
            raise GraphError(
                f"{method}(): two columns of the key are called {name!r}; give one of them an alias in key_by()"
            )
        key_columns[name] = type_info
    return selector, key_columns


def aggregate(
    aggregates: Sequence[Any], selector: Any, type_info: TypeInformation, *, wrap: bool
) -> tuple[tuple[Aggregate, ...], RowTypeInfo]:
    """Aggregates that fit the stream, and the type of rows of the key and the results.

    Raises:
        TypeError: one is no aggregate.
        GraphError: the stream has no columns, it is keyed by a function, or names of results clash.
        ProgramError: an aggregate does not fit the columns.
    """
    schema = columns_of("aggregate", type_info)
    _, keys = key_of("aggregate", selector, schema)
    bound = bind_aggregates("aggregate", aggregates, schema, list(keys), wrap=wrap)
    types = [*keys.values(), *(bound_aggregate.type_info for bound_aggregate in bound)]
    return tuple(bound_aggregate.aggregate for bound_aggregate in bound), RowTypeInfo(
        types, [*keys, *(bound_aggregate.name for bound_aggregate in bound)]
    )


def windows(selector: ColumnKey, aggregates: Sequence[Any], type_info: TypeInformation, *, wrap: bool) -> RowTypeInfo:
    """The type of the results of windows over columns.

    Raises:
        GraphError: the stream has no columns, or a name stands twice.
        ProgramError: an aggregate does not fit the columns.
    """
    schema = columns_of("aggregate", type_info)
    _, keys = key_of("aggregate", selector, schema)
    for name in (WINDOW_START, WINDOW_END):
        if name in keys:
            raise GraphError(
                f"aggregate(): the stream is keyed by {name!r}, and the results of windows have a column of that name; "
                f"give the key another one: key_by(col({name!r}).alias('...'))"
            )
    names_in_use = [*keys, WINDOW_START, WINDOW_END]
    bound = bind_aggregates("aggregate", aggregates, schema, names_in_use, wrap=wrap)
    return result_type(keys, bound)


def _project(method: str, columns: Sequence[Named], schema: Schema, wrap: bool) -> Projection:
    named = _once(method, columns)
    if not named:
        raise GraphError(f"{method}(): no column is left; name at least one")
    types = []
    for expression in named.values():
        computed_type = _type_of(expression, schema, wrap=wrap)
        is_column = expression.function == "column"  # its declared type: several types have the same columns
        types.append(schema[expression.options["name"]] if is_column else computed_type)
    return tuple(named.values()), RowTypeInfo(types, list(named))


def _type_of(expression: Expression, columns: Schema, *, wrap: bool = False) -> TypeInformation:
    """The type of an expression over these columns.

    Raises:
        ProgramError: the expression does not fit them.
    """
    from firesteel.expressions.binding import bind

    return bind(expression, columns, wrap=wrap).type_info


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
