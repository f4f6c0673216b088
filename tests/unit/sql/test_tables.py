"""Declarations of tables, and what the session tells of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from firesteel.config.option import BOOL, DURATION, FLOAT, INT, STRING, Option
from firesteel.core.errors import ProgramError
from firesteel_sql import TableEnvironment
from firesteel_sql.connectors.options import TableOptions


@pytest.fixture
def tables() -> TableEnvironment:
    return TableEnvironment.create()


def rows(tables: TableEnvironment, sql: str) -> list[Sequence[Any]]:
    return [tuple(row) for row in tables.execute_sql(sql).collect()]


ORDERS = """
CREATE TABLE orders (
  id BIGINT,
  price DECIMAL(10, 2) COMMENT 'in euros',
  items ARRAY<ROW<name STRING, count INT>>,
  at TIMESTAMP(3),
  gross AS price * 1.19,
  seen AS PROCTIME(),
  PRIMARY KEY (id) NOT ENFORCED,
  WATERMARK FOR at AS at - INTERVAL '5' SECOND
) COMMENT 'of customers' WITH ('connector' = 'datagen', 'properties.sasl.jaas.config' = 'hidden')
"""


def test_a_table_is_described(tables: TableEnvironment) -> None:
    assert rows(tables, ORDERS) == [("OK",)]
    described = {row[0]: row[1:] for row in rows(tables, "DESCRIBE orders")}
    assert described["id"][:3] == ("BIGINT", False, "PRI(id)")
    assert described["price"][:2] == ("DECIMAL(10, 2)", True)
    assert described["items"][0] == "ARRAY<ROW<`name` STRING, `count` INT>>"
    assert described["at"][0] == "TIMESTAMP(3) *ROWTIME*"
    assert described["gross"][0] == "DECIMAL(13, 4)"
    assert described["seen"][0] == "TIMESTAMP_LTZ(3) *PROCTIME*"
    (text,) = rows(tables, "SHOW CREATE TABLE orders")[0]
    assert "hidden" not in text
    assert "'connector' = 'datagen'" in text


def test_names_are_listed_and_looked_up_in_catalog_and_database(tables: TableEnvironment) -> None:
    tables.execute_sql(ORDERS)
    tables.execute_sql("CREATE VIEW cheap (id, price) AS SELECT id, price FROM orders WHERE price < 10")
    tables.execute_sql("CREATE DATABASE other COMMENT 'x'")
    tables.execute_sql("USE other")
    assert rows(tables, "SHOW TABLES") == []
    assert rows(tables, "SHOW CURRENT DATABASE") == [("other",)]
    assert rows(tables, "SHOW TABLES IN default_database LIKE 'ch%'") == [("cheap",)]
    assert rows(tables, "SHOW VIEWS IN default_database") == [("cheap",)]
    tables.sql_query("SELECT * FROM default_database.cheap")
    tables.execute_sql("CREATE VIEW v AS SELECT id FROM default_catalog.default_database.cheap")
    with pytest.raises(ProgramError, match="there is no table cheap"):
        tables.sql_query("SELECT * FROM cheap")
    tables.execute_sql("USE default_database")
    with pytest.raises(ProgramError, match="DROP DATABASE other CASCADE"):
        tables.execute_sql("DROP DATABASE other")
    tables.execute_sql("DROP DATABASE other CASCADE")
    assert rows(tables, "SHOW DATABASES") == [("default_database",)]


def test_a_table_like_another_and_one_that_is_altered(tables: TableEnvironment) -> None:
    tables.execute_sql(ORDERS)
    tables.execute_sql(
        "CREATE TABLE copy (more INT) WITH ('connector' = 'print') LIKE orders (EXCLUDING WATERMARKS EXCLUDING OPTIONS)"
    )
    assert [row[0] for row in rows(tables, "DESCRIBE copy")] == ["id", "price", "items", "at", "gross", "seen", "more"]
    tables.execute_sql("ALTER TABLE copy ADD (first INT FIRST, second STRING AFTER first)")
    tables.execute_sql("ALTER TABLE copy DROP (gross)")
    tables.execute_sql("ALTER TABLE copy RENAME more TO less")
    tables.execute_sql("ALTER TABLE copy MODIFY less BIGINT")
    tables.execute_sql("ALTER TABLE copy RENAME TO changed")
    described = [row[:2] for row in rows(tables, "DESCRIBE changed")]
    assert described[:2] == [("first", "INT"), ("second", "STRING")]
    assert described[-1] == ("less", "BIGINT")
    assert "gross" not in [row[0] for row in described]
    with pytest.raises(ProgramError, match="part of the primary key"):
        tables.execute_sql("ALTER TABLE changed DROP id")


def test_options_are_set_and_listed(tables: TableEnvironment) -> None:
    tables.execute_sql("SET 'table.local-time-zone' = 'Europe/Berlin'")
    assert rows(tables, "SET") == [("table.local-time-zone", "Europe/Berlin")]
    tables.execute_sql("RESET")
    assert rows(tables, "SET") == []


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("CREATE TABLE t (a INT, a STRING)", "two columns of the name a"),
        ("CREATE TABLE t (a INT, b AS c + 1)", "there is no column c"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (b) NOT ENFORCED)", "the primary key's column b is not there"),
        ("CREATE TABLE t (a INT, WATERMARK FOR a AS a)", "has to be TIMESTAMP(3)"),
        ("CREATE TABLE t (a TIMESTAMP(6), WATERMARK FOR a AS a)", "has to be TIMESTAMP(3)"),
        ("CREATE TABLE t (a TIMESTAMP(3), WATERMARK FOR b AS b)", "the watermark's column b is not there"),
        ("CREATE TABLE t (a ROW<x INT, x INT>)", "two fields of the name x"),
        ("CREATE TABLE t LIKE nothing", "there is no table nothing"),
        ("CREATE TABLE nowhere.t (a INT)", "there is no database"),
        ("CREATE TABLE orders (a INT)", "there is a table orders already"),
        ("CREATE VIEW v (a, b) AS SELECT 1", "the view names 2 columns"),
        ("DROP TABLE order", "`order`"),
        ("DROP TABLE ordres", "did you mean orders?"),
        ("DROP VIEW orders", "DROP TABLE orders"),
        ("DESCRIBE nothing", "there is no table nothing"),
        ("INSERT INTO orders SELECT 1", "the query has 1 column, and 4 are written"),
        ("INSERT INTO orders (id, prise) SELECT 1, 2", "did you mean price?"),
        ("INSERT INTO orders (price) SELECT 1", "the column id is NOT NULL"),
        ("INSERT INTO orders (id, price) SELECT 1, 'a'", "the column price: CHAR(1) is given"),
        ("SELECT items[1].nme FROM orders", "has no field nme; did you mean name?"),
        ("SELECT price.x FROM orders", "which has no fields"),
    ],
)
def test_a_declaration_that_is_wrong_is_refused(tables: TableEnvironment, sql: str, problem: str) -> None:
    tables.execute_sql(ORDERS)
    with pytest.raises(ProgramError) as caught:
        tables.execute_sql(sql)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {},
            "WITH ('connector' = '...') is missing; there are blackhole, datagen, filesystem, jdbc, "
            "kafka, print, upsert-kafka",
        ),
        ({"connector": "datagn"}, "did you mean datagen?"),
        ({"connector": "datagen", "row-per-second": "1"}, "did you mean rows-per-second?"),
        (
            {"connector": "datagen", "number-of-rows": "many"},
            "is 'many', and has to be a whole number",
        ),
        ({"connector": "datagen", "fields.id.kind": "sequence"}, "needs .start and .end"),
        ({"connector": "filesystem", "format": "json"}, "the option 'path' is missing"),
        ({"connector": "filesystem", "path": "/x", "format": "xml"}, "there are avro, csv, json, parquet"),
        ({"connector": "print"}, "names one that only writes"),
    ],
)
def test_options_of_a_table_are_checked_when_it_is_read(
    tables: TableEnvironment, options: dict[str, str], problem: str
) -> None:
    written = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    tables.execute_sql(f"CREATE TABLE t (id INT) WITH ({written})")
    with pytest.raises(ProgramError) as caught:
        tables.execute_sql("SELECT * FROM t")
    assert problem in str(caught.value)


def test_options_are_read_with_their_types() -> None:
    options = TableOptions("t", {"a": "5", "b": "TRUE", "c": "2 min", "d.x": "1", "fields.n.e": "1.5", "v.a": "7"})
    number = Option("a", INT, 1, "")
    assert (options.get(number), options.get(Option("b", BOOL, False, ""))) == (5, True)
    assert options.get(Option("fields.#.e", FLOAT, 0.0, ""), "n") == 1.5
    assert options.get(Option("c", DURATION, timedelta(), "")).total_seconds() == 120
    assert options.below("v.").get(number) == 7
    assert options.with_prefix("d.") == {"x": "1"}
    assert options.get(Option("missing", STRING, "x", "")) == "x"
    options.refuse_unknown(["a", "b", "c", "d.*", "fields.#.e", "v.a"])
    with pytest.raises(ProgramError, match=r"no option 'fields\.n\.e'; supported are a, b, c, connector, d\.\*"):
        options.refuse_unknown(["a", "b", "c", "d.*"])


def test_a_secret_is_not_shown() -> None:
    options = TableOptions("t", {"password": "hunter2"})
    with pytest.raises(ProgramError) as caught:
        options.get(Option("password", INT, 0, ""))
    assert "hunter2" not in str(caught.value)
