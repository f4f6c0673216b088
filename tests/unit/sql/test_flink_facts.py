"""What Flink 2.3 was seen to do, a row for each fact; what is different here is said in the row."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.core.errors import ProgramError
from firesteel_sql import TableEnvironment
from firesteel_sql.connectors.options import TableOptionError
from firesteel_sql.parse.errors import SqlError
from tests.unit.sql.query_rig import QueryRig, tables_of, use_changes_connector
from tests.unit.sql.test_values import computed

VALUES = [
    ("whole numbers are divided towards zero", "7/2", "3"),
    ("whole numbers are divided towards zero", "-7/2", "-3"),
    ("a remainder has the sign of the dividend", "MOD(-7, 3)", "-1"),
    ("a remainder has the sign of the dividend", "7 % -3", "1"),
    ("integers wrap around", "2147483647 + 1", "-2147483648"),
    ("integers wrap around in casts", "CAST(300 AS TINYINT)", "44"),
    ("casts to whole numbers cut", "CAST(-1.9 AS INT)", "-1"),
    ("ROUND goes away from zero at a half", "ROUND(2.5)", "3"),
    ("ROUND goes away from zero at a half", "ROUND(-2.5)", "-3"),
    ("TRY_CAST gives NULL", "TRY_CAST('abc' AS INT)", "NULL"),
    ("TRY_CAST gives NULL for a part that can't be read", "TRY_CAST(ARRAY['1', 'x'] AS ARRAY<INT>)", "NULL"),
    ("CAST to CHAR pads", "CAST('ab' AS CHAR(4)) || '|'", "ab  |"),
    ("nothing is padded in comparisons", "CAST('a' AS CHAR(3)) = 'a'", "FALSE"),
    ("Flink cuts this to STRASS, as it is typed CHAR(6); the value is whole here", "UPPER('straße')", "STRASSE"),
    ("a text begins at 0 as at 1", "SUBSTRING('hello', 0, 2)", "he"),
    ("a negative start counts from the end", "SUBSTRING('hello', -3)", "llo"),
    ("SPLIT_INDEX counts from 0", "SPLIT_INDEX('a,b', ',', 0)", "a"),
    ("|| with NULL is NULL", "'a' || CAST(NULL AS STRING)", "NULL"),
    ("CONCAT_WS skips NULL", "CONCAT_WS(',', 'a', CAST(NULL AS STRING), 'b')", "a,b"),
    ("weeks begin on Sunday", "DAYOFWEEK(DATE '2026-11-29')", "1"),
    ("TIMESTAMPDIFF cuts",
     "TIMESTAMPDIFF(DAY, TIMESTAMP '2026-01-01 12:00:00', TIMESTAMP '2026-01-03 11:00:00')", "1"),
    ("what is no timestamp is NULL", "TO_TIMESTAMP('nonsense')", "NULL"),
    ("a product of 38 digits leaves a scale of 6", "TYPEOF(CAST(1 AS DECIMAL(38,10)) * CAST(1 AS DECIMAL(38,10)))",
     "DECIMAL(38, 6) NOT NULL"),
    ("a quotient has a scale of s1 + p2 + 1", "CAST(1 AS DECIMAL(10,2)) / CAST(3 AS DECIMAL(10,2))",
     "0.3333333333333"),
    ("too many digits are NULL", "CAST(123456 AS DECIMAL(5,0))", "NULL"),
    ("a literal with a point is decimal", "TYPEOF(0.908)", "DECIMAL(3, 3) NOT NULL"),
    ("Flink gives -1, since its elements are NOT NULL", "ARRAY[1,2,3][9]", "NULL"),
    ("Flink gives -1, since its values are NOT NULL", "MAP['a',1]['b']", "NULL"),
    ("Flink fails for these constants, and gives Infinity for columns", "1e0/0", "Infinity"),
]  # fmt: skip
FAILS = [
    ("whole numbers are not divided by zero", "1/0", "divide by zero"),
    ("a cast that can't be fails the job", "CAST('abc' AS INT)", "'abc' is no 32-bit integer"),
    ("texts are not compared with numbers", "'10' > 9", "do not go together: write a CAST"),
]


@pytest.mark.parametrize(("fact", "expression", "value"), VALUES)
def test_a_value_is_as_flink_gives_it(fact: str, expression: str, value: str) -> None:
    assert computed(expression)[0] == value, fact


@pytest.mark.parametrize(("fact", "expression", "problem"), FAILS)
def test_what_fails_in_flink_fails_here(fact: str, expression: str, problem: str) -> None:
    with pytest.raises((SqlError, ProgramError), match=problem):
        computed(expression)


ROWS = [(1, 10), (1, 20), (2, 5), (3, None)]
QUERIES: list[tuple[str, str, dict[tuple[Any, ...], int]]] = [
    ("AVG of integers is cut", "SELECT AVG(v) FROM t", {(11,): 1}),
    ("NULL is the smallest value", "SELECT v FROM t ORDER BY v LIMIT 2", {(None,): 1, (5,): 1}),
    ("QUALIFY is a condition on ranks", "SELECT k, v FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) = 1",
     {(1, 10): 1, (2, 5): 1, (3, None): 1}),
    ("Flink refuses RANK in streams", "SELECT k, v FROM t QUALIFY RANK() OVER (ORDER BY v DESC) = 1", {(1, 20): 1}),
    ("Flink takes one window for all calls",
     "SELECT v, COUNT(*) OVER (PARTITION BY k ORDER BY v), SUM(k) OVER (ORDER BY v) FROM t WHERE k < 3",
     {(5, 1, 2): 1, (10, 1, 3): 1, (20, 2, 4): 1}),
    ("LAG over a plain column follows changes", "SELECT v, LAG(v) OVER (ORDER BY v) FROM t WHERE k < 3",
     {(5, None): 1, (10, 5): 1, (20, 10): 1}),
    ("EXCEPT ALL counts rows", "SELECT k FROM t EXCEPT ALL SELECT k FROM t WHERE v = 10", {(1,): 1, (2,): 1, (3,): 1}),
    ("a join without an equality looks at every pair", "SELECT COUNT(*) FROM t a JOIN t b ON a.v < b.v", {(3,): 1}),
    ("COUNT of a column leaves NULL out", "SELECT COUNT(v), COUNT(*), SUM(v) FROM t WHERE k = 3", {(0, 1, None): 1}),
]  # fmt: skip


@pytest.mark.parametrize(("fact", "query", "result"), QUERIES)
def test_a_query_gives_what_flink_gives(
    fact: str, query: str, result: dict[tuple[Any, ...], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_changes_connector(monkeypatch)
    tables = TableEnvironment.create()
    tables_of(tables, {"t": "k INT, v INT"})
    assert QueryRig(tables, query).change("t", [(1, row) for row in ROWS]) == result, fact


TABLE = (
    "CREATE TABLE t (k INT, v INT, d DECIMAL(10, 2), s STRING, ts TIMESTAMP(3), pt AS PROCTIME(), "
    "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('connector' = 'datagen')"
)
COLUMNS = [
    ("sums have the type of the summands, decimal ones 38 digits", "SELECT SUM(v) AS a, SUM(d) AS b FROM t",
     ["INT", "DECIMAL(38, 2)"]),
    ("PROCTIME() is a point in time that is not NULL", "SELECT pt FROM t", ["TIMESTAMP_LTZ(3) NOT NULL PROCTIME"]),
    ("bounds of windows are plain, window_time is a time attribute",
     "SELECT window_start, window_end, window_time FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)",
     ["TIMESTAMP(3) NOT NULL", "TIMESTAMP(3) NOT NULL", "TIMESTAMP(3) NOT NULL ROWTIME"]),
    ("a time that is computed with is no time attribute", "SELECT ts + INTERVAL '1' SECOND FROM t", ["TIMESTAMP(3)"]),
    ("a regular join ends time attributes", "SELECT a.ts FROM t a JOIN t b ON a.k = b.k", ["TIMESTAMP(3)"]),
    ("names of functions have no case", "SELECT upper(s) FROM t", ["VARCHAR(2147483647)"]),
]  # fmt: skip
REFUSED = [
    ("names have a case", "SELECT K FROM t", "there is no column K; did you mean k?"),
    ("the size of HOP is a multiple of its slide",
     "SELECT * FROM HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '7' SECOND, INTERVAL '60' SECOND)", "a whole multiple"),
    ("streams are sorted by time", "SELECT * FROM t ORDER BY k", "Sort on a non-time-attribute field is not supported"),
    ("a primary key is a promise", "CREATE TABLE p (k INT, PRIMARY KEY (k)) WITH ('connector' = 'x')", "NOT ENFORCED"),
    ("event time has three digits",
     "CREATE TABLE w (ts TIMESTAMP(6), WATERMARK FOR ts AS ts) WITH ('connector' = 'x')", "has to be TIMESTAMP\\(3\\)"),
    ("numbers are no timestamps", "SELECT CAST(1 AS TIMESTAMP)", "INT can't be cast to TIMESTAMP"),
]  # fmt: skip


@pytest.mark.parametrize(("fact", "query", "types"), COLUMNS)
def test_columns_have_the_types_and_natures_of_flink(fact: str, query: str, types: list[str]) -> None:
    tables = TableEnvironment.create()
    tables.execute_sql(TABLE)
    columns = tables.sql_query(query)._relation.columns
    assert [f"{column.type} {column.time_attribute or ''}".rstrip() for column in columns] == types, fact


@pytest.mark.parametrize(("fact", "statement", "problem"), REFUSED)
def test_what_flink_refuses_is_refused(fact: str, statement: str, problem: str) -> None:
    tables = TableEnvironment.create()
    tables.execute_sql(TABLE)
    with pytest.raises(SqlError, match=problem):
        tables.execute_sql(statement)


def test_options_are_checked_when_a_table_is_used() -> None:
    tables = TableEnvironment.create()
    tables.execute_sql("CREATE TABLE o (k INT) WITH ('connector' = 'datagen', 'rows' = '1')")
    with pytest.raises(TableOptionError, match=r"rows.*number-of-rows"):
        tables.execute_sql("EXPLAIN SELECT * FROM o")
