"""Which batch queries are computed by Spark SQL as a whole, and why others are not."""

from __future__ import annotations

import re

import pytest

from firesteel.core.errors import UnsupportedFeatureError
from firesteel_sql.bind.queries import QueryBinder
from firesteel_sql.functions.signature import Session
from firesteel_sql.parse.errors import SqlError
from firesteel_sql.parse.statements import parse_query
from firesteel_sql.plan.optimizer import optimised
from firesteel_sql.plan.recursion import Recursion
from firesteel_sql.plan.relations import Relation
from firesteel_sql.plan.route import Route
from firesteel_sql.spark.queries import query_of
from firesteel_sql.spark.routes import route_of
from tests.unit.sql.planning import bound, declared
from tests.unit.sql.test_tpch_plans import read_queries

TPCH = read_queries()
PARQUET = "WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = '/data/{}')"
CATALOGS = declared(TPCH.pop("tables").replace("WITH ('connector' = 'x')", PARQUET.format("tpch")))
TABLES = declared(f"""
CREATE TABLE t (k INT, b BIGINT, d DECIMAL(10, 2), wide DECIMAL(38, 10), s STRING, x DOUBLE, day DATE, items ARRAY<INT>)
  {PARQUET.format("t")};
CREATE TABLE lines (k INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '/data/lines');
CREATE TABLE parts (k INT, p STRING) PARTITIONED BY (p) {PARQUET.format("parts")}
""")


def computed(sql: str) -> Relation:
    (relation,) = optimised([bound(sql, TABLES)])
    return relation


def route(sql: str, choice: str = "auto") -> Route:
    return route_of([computed(sql)], is_batch=True, choice=choice)


@pytest.mark.parametrize("name", TPCH)
def test_the_queries_of_tpch_are_computed_by_spark_as_a_whole(name: str) -> None:
    assert route_of(optimised([bound(TPCH[name], CATALOGS)]), is_batch=True) == Route("spark")


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT * FROM lines", "the table default_catalog.default_database.lines, which is not Parquet"),
        ("SELECT k FROM parts", "the table default_catalog.default_database.parts, which is not Parquet"),
        ("SELECT SPLIT_INDEX(s, ',', 0) FROM t", "the function SPLIT_INDEX"),
        ("SELECT k FROM t WHERE RAND() < 0.5", "the function RAND"),
        ("SELECT items FROM t", "the type ARRAY<INT>"),
        ("SELECT x / x FROM t", "a division by DOUBLE, which may be zero"),
        ("SELECT wide * wide FROM t", "DECIMAL(38, 10) * DECIMAL(38, 10), which has more than 38 digits"),
        ("SELECT x, COUNT(*) FROM t GROUP BY x", "groups, partitions or joins by DOUBLE"),
        ("SELECT MAX(x) FROM t", "MAX of DOUBLE"),
        ("SELECT LISTAGG(s) FROM t", "the aggregate LISTAGG"),
        ("SELECT CAST(s AS INT) FROM t", "CAST(VARCHAR(2147483647) AS INT)"),
        ("SELECT s LIKE 'a\\_' FROM t", "LIKE with ESCAPE"),
    ],
)
def test_what_spark_lacks_or_computes_otherwise_is_computed_on_stages(sql: str, reason: str) -> None:
    found = route(sql)
    assert found.name == "stages"
    assert reason in found.reasons[0]


def test_the_route_may_be_chosen() -> None:
    assert route("SELECT k FROM lines WHERE k > 1", "stages") == Route("stages", ("table.exec.batch.route is stages",))
    with pytest.raises(UnsupportedFeatureError, match=r"route' = 'spark': Spark SQL has no equal of the table .*lines"):
        route("SELECT k FROM lines", "spark")
    assert route("SELECT 1") == Route("stages", ("it reads no table",))
    assert route("SELECT 1", "spark") == Route("spark")
    assert route_of([computed("SELECT 1")], is_batch=False) == Route("streaming")


def test_names_and_texts_can_be_any() -> None:
    catalogs = declared(f"CREATE TABLE odd (`a``b c` INT, `C0` STRING) {PARQUET.format('odd')}")
    sql = r"SELECT `a``b c` AS x, `C0` || 'it''s \n' AS x FROM odd"
    query = query_of(bound(sql, catalogs), "Europe/Berlin")
    assert query.tables[0].columns == "`a``b c` INT, `C0` STRING"
    assert r"'it\'s \\n'" in query.text
    assert query.settings["spark.sql.session.timeZone"] == "Europe/Berlin"


def test_a_row_fails_its_job_where_flink_fails_it() -> None:
    text = query_of(computed_of("SELECT k / v, d / v FROM n"), "UTC").text
    assert text.count("raise_error('Division by zero')") == 2
    assert "raise_error" not in query_of(computed_of("SELECT k / 2, d / 2.5 FROM n"), "UTC").text


def computed_of(sql: str) -> Relation:
    return bound(sql, declared(f"CREATE TABLE n (k INT, v INT, d DECIMAL(10, 2)) {PARQUET.format('n')}"))


# -- WITH RECURSIVE

BATCH = Session(is_batch=True)
UP = "WITH RECURSIVE up(k, way) AS (SELECT k, s FROM t WHERE b IS NULL UNION {}SELECT t.k, way || '/' || t.s FROM up "
UP += "JOIN t ON t.b = up.k) SELECT way, COUNT(*) FROM up GROUP BY way"


def in_batch(sql: str) -> Relation:
    return QueryBinder(TABLES, BATCH, sql).bind(parse_query(sql).query)


@pytest.mark.parametrize(("word", "keeps_duplicates"), [("ALL ", True), ("", False)])
def test_a_recursion_is_computed_step_by_step(word: str, keeps_duplicates: bool) -> None:
    (relation,) = optimised([in_batch(UP.format(word))])
    assert route_of([relation], is_batch=True) == Route("spark")
    query = query_of(relation, "UTC")
    (recursion,) = query.recursions
    assert recursion.keeps_duplicates is keeps_duplicates
    assert recursion.name in query.text
    assert recursion.working in recursion.step
    assert recursion.working not in recursion.first
    assert "CAST(t.c1 AS STRING)" in recursion.first, "texts may become longer"


def test_what_is_not_recursive_is_a_plain_union() -> None:
    query = in_batch("WITH RECURSIVE a AS (SELECT 1 AS x UNION ALL SELECT 2), b AS (SELECT x FROM a) SELECT * FROM b")
    assert not any(isinstance(part, Recursion) for part in query.walk())


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + b FROM n, t) SELECT * FROM n",
         "the column i is INT before UNION and BIGINT behind it: CAST one of them"),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i, i FROM n) SELECT * FROM n",
         "this query has 2 columns, the one before UNION 1"),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n LIMIT 3) SELECT * FROM n",
         "a recursive table has no WITH, ORDER BY or LIMIT of its own"),
        ("WITH RECURSIVE n(i) AS (SELECT i FROM n UNION ALL SELECT 1) SELECT * FROM n", "there is no table n"),
    ],
)  # fmt: skip
def test_recursions_that_mean_nothing_are_refused(sql: str, problem: str) -> None:
    with pytest.raises(SqlError, match=re.escape(problem)):
        in_batch(sql)


def test_a_recursion_needs_batch_mode_and_spark() -> None:
    with pytest.raises(SqlError, match="WITH RECURSIVE needs all rows of its tables, so it is there in batch mode"):
        bound(UP.format(""), TABLES)
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT i FROM n"
    assert route_of([in_batch(numbers.format("3"))], is_batch=True) == Route("spark")
    with pytest.raises(UnsupportedFeatureError, match=r"is computed by Spark SQL alone, and .* the function RAND"):
        route_of([in_batch(numbers.format("9 * RAND()"))], is_batch=True)
    with pytest.raises(UnsupportedFeatureError, match=r"RESET 'table\.exec\.batch\.route'"):
        route_of([in_batch(numbers.format("3"))], is_batch=True, choice="stages")
