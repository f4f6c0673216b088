"""Queries as relations: tables that are declared and never read."""

from __future__ import annotations

from collections.abc import Iterator

from firesteel_sql.bind.queries import QueryBinder
from firesteel_sql.catalog.catalogs import Catalogs
from firesteel_sql.catalog.tables import CatalogView
from firesteel_sql.execution.declarations import Declarations
from firesteel_sql.functions.signature import Session
from firesteel_sql.parse import statement_nodes as s
from firesteel_sql.parse.statements import parse_query, parse_statement
from firesteel_sql.plan.optimizer import optimised
from firesteel_sql.plan.relations import Relation, Scan, WatermarkAssigner

TABLES = """
CREATE TABLE t (k INT, v INT, d DECIMAL(10, 2), s STRING, x DOUBLE NOT NULL, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('connector' = 'datagen');
CREATE TABLE u (k BIGINT, w INT, name STRING, at TIMESTAMP(3), pt AS PROCTIME(),
  PRIMARY KEY (k) NOT ENFORCED, WATERMARK FOR at AS at) WITH ('connector' = 'datagen');
CREATE TABLE plain (k INT NOT NULL, v INT NOT NULL, s STRING, items ARRAY<ROW<name STRING, n INT>>, words ARRAY<STRING>,
  counts MAP<STRING, INT>) WITH ('connector' = 'datagen');
CREATE TABLE dim (id INT, label STRING, size INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'jdbc')
"""


def declared(script: str) -> Catalogs:
    """Catalogs with the tables and views of a script."""
    catalogs = Catalogs()
    for text in script.split(";"):
        statement = parse_statement(text.strip())
        if isinstance(statement, s.CreateTable):
            table = Declarations(catalogs, Session(), text.strip()).table(statement, None)
            catalogs.create(statement.table, table, is_temporary=False, if_not_exists=False)
        else:
            assert isinstance(statement, s.CreateView)
            view = CatalogView(
                text.strip()[statement.query.at :], statement.columns, None, catalogs.current_catalog,
                catalogs.current_database,
            )  # fmt: skip
            catalogs.create(statement.view, view, is_temporary=False, if_not_exists=False)
    return catalogs


CATALOGS = declared(TABLES)


def bound(sql: str, catalogs: Catalogs = CATALOGS) -> Relation:
    """The relation of a query."""
    return QueryBinder(catalogs, Session(), sql).bind(parse_query(sql).query)


def columns(sql: str) -> list[tuple[str, str]]:
    """Names and types of a query's columns."""
    return [
        (column.name, str(column).removeprefix(f"{column.name} ").replace("VARCHAR(2147483647)", "STRING"))
        for column in bound(sql).columns
    ]


def plan(sql: str) -> list[str]:
    """The relations of a query, each with its depth; tables by their names alone."""
    (relation,) = optimised([bound(sql)])
    return list(_lines(relation, 0))


def _lines(relation: Relation, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if isinstance(relation, WatermarkAssigner):
        yield from _lines(relation.input, depth)
        return
    if isinstance(relation, Scan):
        yield f"{indent}{relation.identifier[-1]}"
        return
    yield indent + relation.text()
    for part in relation.inputs:
        yield from _lines(part, depth + 1)
