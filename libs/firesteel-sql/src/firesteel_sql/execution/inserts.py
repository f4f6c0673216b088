"""INSERT INTO: the rows of a query as rows of a table."""

from __future__ import annotations

from dataclasses import replace

from firesteel_sql.bind.expressions import ExpressionBinder
from firesteel_sql.bind.queries import QueryBinder
from firesteel_sql.bind.scope import Scope
from firesteel_sql.catalog.catalogs import CatalogError, Catalogs, near
from firesteel_sql.catalog.tables import CatalogTable, Identifier
from firesteel_sql.functions.signature import OperandsRefused, Session, coerced
from firesteel_sql.parse import statement_nodes as s
from firesteel_sql.plan.relations import Column, Projection, Relation
from firesteel_sql.plan.row_expressions import Constant, InputColumn, RowExpression


def insert_relation(
    catalogs: Catalogs, session: Session, sql: str, insert: s.Insert, rows: Relation | None = None
) -> tuple[Relation, Identifier, CatalogTable]:
    """The rows that an INSERT writes, with the columns of its table, and the table.

    Args:
        catalogs: tables and views.
        session: what functions need to know.
        sql: the statement, for errors.
        insert: the statement.
        rows: those to write in place of the statement's query.

    Raises:
        SqlError: there is no such table or column, or the query's columns do not fit.
    """
    expressions = ExpressionBinder(Scope([]), session, sql)
    try:
        identifier, table = catalogs.find(insert.table)
    except CatalogError as error:
        raise expressions.error(insert.at, str(error)) from None
    if not isinstance(table, CatalogTable):
        raise expressions.error(insert.at, f"{'.'.join(insert.table)} is a view: rows are written into tables")
    if insert.is_overwrite:
        raise expressions.error(insert.at, "INSERT OVERWRITE is not supported yet")
    for hint in insert.hints:
        if hint.name == "OPTIONS":
            table = replace(table, options={**table.options, **dict(hint.options)})
    query = QueryBinder(catalogs, session, sql).bind(insert.query) if rows is None else rows
    written = [column for column in table.columns if column.is_physical]
    names = [column.name for column in written]
    static = {name: expressions.bind(value) for name, value in insert.partition}
    given = list(insert.columns) or [name for name in names if name not in static]
    for name in (*given, *static):
        if name not in names:
            raise expressions.error(insert.at, f"{'.'.join(insert.table)} has no column {name}{near(name, names)}")
    if len(given) != len(query.columns):
        raise expressions.error(
            insert.at, f"the query has {len(query.columns)} columns, and {len(given)} are written: "
            f"({', '.join(given)}) from ({', '.join(column.name for column in query.columns)})",
        )  # fmt: skip
    columns: list[Column] = []
    values: list[RowExpression] = []
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
            values.append(coerced(value, declared.type, session))
        except OperandsRefused as refused:
            raise expressions.error(insert.at, f"the column {declared.name}: {refused}") from None
        columns.append(Column(declared.name, declared.type))
    return Projection(tuple(columns), query, tuple(values)), identifier, table
