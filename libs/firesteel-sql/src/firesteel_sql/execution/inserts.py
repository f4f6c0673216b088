"""INSERT INTO: the rows of a query as rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from firesteel.core.errors import ProgramError
from firesteel.expressions.binding import bind
from firesteel.table.types import DataType
from firesteel_sql.bind.expressions import ExpressionBinder
from firesteel_sql.bind.queries import QueryBinder
from firesteel_sql.bind.scope import Scope
from firesteel_sql.catalog.catalog import CatalogError, near
from firesteel_sql.catalog.catalogs import Catalogs
from firesteel_sql.catalog.tables import CatalogTable, Identifier, TableColumn
from firesteel_sql.connectors.connector import connector_of
from firesteel_sql.functions.signature import OperandsRefused, Session, cast, coerced, operation
from firesteel_sql.parse import statement_nodes as s
from firesteel_sql.parse.errors import SqlError, error_at
from firesteel_sql.plan.relations import Column, Filter, Projection, Relation
from firesteel_sql.plan.row_expressions import Constant, InputColumn, RowExpression, to_expression
from firesteel_sql.types import rules


def insert_relation(
    catalogs: Catalogs, session: Session, sql: str, insert: s.Insert, rows: Relation | None = None, *,
    drops_nulls: bool = False,
) -> tuple[Relation, Identifier, CatalogTable]:  # fmt: skip
    """The rows that an INSERT writes, with the columns of its table, and the table.

    Args:
        catalogs: tables and views.
        session: what functions need to know.
        sql: the statement, for errors.
        insert: the statement.
        rows: those to write in place of the statement's query.
        drops_nulls: rows with NULL for a column that is NOT NULL are left out; else they fail the job.

    Raises:
        SqlError: there is no such table or column, or the query's columns do not fit.
    """
    expressions = ExpressionBinder(Scope([]), session, sql)
    identifier, table = _written_table(catalogs, expressions, insert.table, insert.at)
    if insert.on_conflict is not None and not table.primary_key:
        raise expressions.error(insert.at, f"ON CONFLICT: {'.'.join(identifier)} has no PRIMARY KEY")
    for hint in insert.hints:
        if hint.name == "OPTIONS":
            table = replace(table, options={**table.options, **dict(hint.options)})
    query = QueryBinder(catalogs, session, sql).bind(insert.query) if rows is None else rows
    written = [column for column in table.columns if column.is_written]
    static = _static_values(expressions, table, insert)
    given = list(insert.columns) or [column.name for column in written if column.name not in static]
    _check_names(expressions, table, insert, given, static)
    if len(given) != len(query.columns):
        raise expressions.error(
            insert.query.at, f"the query has {_columns(query.columns)}, and {len(given)} are written: "
            f"({', '.join(given)}) from ({', '.join(column.name for column in query.columns)})",
        )  # fmt: skip
    types = _types_in_connector(identifier, table, written)
    columns: list[Column] = []
    values: list[RowExpression] = []
    dropped: Relation = query
    for declared in written:
        assert declared.type is not None
        if declared.name in static:
            value: RowExpression = static[declared.name]
        elif declared.name in given:
            place = given.index(declared.name)
            source = query.columns[place]
            value = InputColumn(source.type, place, source.name)
        else:
            value = Constant(declared.type.nullable_(), None)
            if not declared.type.nullable:
                raise expressions.error(insert.at, f"the column {declared.name} is NOT NULL, and gets no value")
        try:
            fitting = coerced(value, declared.type, session)
        except OperandsRefused as refused:
            raise expressions.error(insert.query.at, f"the column {declared.name}: {refused}") from None
        if fitting.type.nullable and not declared.type.nullable:
            if drops_nulls:
                is_there = operation("IS NOT NULL", "constants:is_there", (fitting,), rules.BOOLEAN, nullable=False)
                dropped = Filter(query.columns, dropped, is_there)
            fitting = operation(
                "NOT_NULL", "constants:not_null", (fitting,), declared.type, nullable=False, column=declared.name
            )
        in_connector = types[declared.name]
        if in_connector.nullable_() != declared.type.nullable_():
            try:
                fitting = cast(fitting, in_connector, session)
            except OperandsRefused as refused:
                raise expressions.error(insert.at, f"the metadata column {declared.name}: {refused}") from None
        values.append(fitting)
        columns.append(Column(declared.name, in_connector))
    return Projection(tuple(columns), dropped, tuple(values)), identifier, table


def _types_in_connector(identifier: Identifier, table: CatalogTable, written: list[TableColumn]) -> dict[str, DataType]:
    """The types of the columns that the connector gets; those of metadata are its own."""
    columns = list(table.columns)
    if any(column.metadata_key is not None for column in written):
        _, context = connector_of(identifier, table, writes=True)
        columns = list(context.table.columns)
    return {column.name: column.type for column in columns if column.type is not None}


def _written_table(
    catalogs: Catalogs, expressions: ExpressionBinder, path: tuple[str, ...], at: int
) -> tuple[Identifier, CatalogTable]:
    try:
        identifier, table = catalogs.find(path)
    except CatalogError as error:
        raise error_at(expressions.sql, at, str(error), path[-1]) from None
    if not isinstance(table, CatalogTable):
        raise error_at(expressions.sql, at, f"{'.'.join(path)} is a view: rows are written into tables", path[-1])
    return identifier, table


def _static_values(expressions: ExpressionBinder, table: CatalogTable, insert: s.Insert) -> dict[str, RowExpression]:
    """The values of PARTITION (a = 'x'), as those of the columns."""
    types = {column.name: column.type for column in table.columns if column.is_written}
    static: dict[str, RowExpression] = {}
    for name, node in insert.partition:
        if name not in table.partitioned_by:
            hint = near(name, table.partitioned_by) if table.partitioned_by else "; it has no PARTITIONED BY"
            raise error_at(
                expressions.sql, insert.at, f"{'.'.join(insert.table)} is not partitioned by {name}{hint}", name
            )
        if name in static:
            raise error_at(expressions.sql, insert.at, f"PARTITION names {name} twice", name)
        value, declared = expressions.bind(node), types.get(name)
        if not isinstance(value, Constant):
            expressions.refuse(node, f"the value of the partition {name} has to be a constant")
        if declared is not None:
            try:
                value_as_column = cast(value, declared, expressions.session)
            except OperandsRefused as refused:
                expressions.refuse(node, str(refused))
            static[name] = value_as_column
    return static


def static_partition(catalogs: Catalogs, session: Session, sql: str, insert: s.Insert) -> dict[str, Any]:
    """The values of PARTITION (a = 'x'), of the types of the columns."""
    expressions = ExpressionBinder(Scope([]), session, sql)
    _, table = _written_table(catalogs, expressions, insert.table, insert.at)
    return {
        name: bind(to_expression(value, []), {}).evaluate({}, 1)[0].as_py()
        for name, value in _static_values(expressions, table, insert).items()
    }


def _check_names(
    expressions: ExpressionBinder, table: CatalogTable, insert: s.Insert, given: list[str],
    static: dict[str, RowExpression],
) -> None:  # fmt: skip
    name_of_table = ".".join(insert.table)
    by_name: dict[str, TableColumn] = {column.name: column for column in table.columns}
    for name in given:
        column = by_name.get(name)
        if column is None:
            written = [other.name for other in table.columns if other.is_written]
            raise error_at(
                expressions.sql, insert.at, f"{name_of_table} has no column {name}{near(name, written)}", name
            )
        if not column.is_written:
            kind = "computed" if column.computed is not None else "VIRTUAL"
            raise error_at(
                expressions.sql, insert.at, f"the column {name} of {name_of_table} is {kind}, and is not written", name
            )
        if given.count(name) > 1:
            raise error_at(expressions.sql, insert.at, f"the column {name} is named twice", name)
        if name in static:
            raise error_at(
                expressions.sql, insert.at, f"the column {name} has its value from PARTITION, and is named again", name
            )


def _columns(columns: Sequence[Column]) -> str:
    return f"{len(columns)} column{'' if len(columns) == 1 else 's'}"


def removal_of(catalogs: Catalogs, sql: str, statement: s.Truncate) -> Callable[[], None]:
    """What removes the rows of a table: TRUNCATE TABLE.

    Raises:
        SqlError: there is no such table, or its rows can't be removed.
    """
    expressions = ExpressionBinder(Scope([]), Session(), sql)
    identifier, table = _written_table(catalogs, expressions, statement.table, statement.at)
    try:
        connector, context = connector_of(identifier, table, writes=True)
        return connector.removal(context)
    except SqlError:
        raise
    except ProgramError as error:
        raise error_at(sql, statement.at, str(error), statement.table[-1]) from error
