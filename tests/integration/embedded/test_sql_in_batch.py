"""SQL in batch mode on both of its routes: by Spark SQL as a whole, and by our operators on Spark's stages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel.core.errors import JobError
from firesteel_sql import StreamTableEnvironment
from tests.integration.embedded.programs import new_environment
from tests.tpch_tables import generated, write_files
from tests.unit.sql.test_tpch_plans import read_queries

pytestmark = pytest.mark.usefixtures("cluster")

TPCH: Final = read_queries()
DECLARATIONS: Final = TPCH.pop("tables")
FEW: Final = {"spark": ["q16", "q17"], "stages": ["q16"]}
"""Queries that are computed in each run of the tests; all of them in the long one."""
Tpch = tuple[StreamTableEnvironment, Mapping[str, Counter[Any]]]


def batch_tables() -> StreamTableEnvironment:
    tables = StreamTableEnvironment.create(new_environment(2))
    tables.execute_sql("SET 'execution.runtime-mode' = 'batch'")
    tables.execute_sql("SET 'table.dml-sync' = 'true'")
    return tables


def rounded(rows: Iterable[Sequence[Any]]) -> Counter[Any]:
    """Rows with so many digits as DuckDB's DOUBLE and our DECIMAL have in common."""
    return Counter(
        tuple(round(float(value), 4) if isinstance(value, (float, Decimal)) else value for value in row) for row in rows
    )


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> Tpch:
    folder, rows = tmp_path_factory.mktemp("tpch"), generated(0.01)
    write_files(rows, folder)
    tables = batch_tables()
    for statement in DECLARATIONS.split(";"):
        name = statement.split()[2]
        options = f"'connector' = 'filesystem', 'format' = 'parquet', 'path' = '{folder / name}'"
        tables.execute_sql(statement.replace("'connector' = 'x'", options))
    with duckdb.connect() as database:
        for name, table in rows.items():
            database.register(name, table)
        return tables, {name: rounded(database.execute(sql).fetchall()) for name, sql in TPCH.items()}


@pytest.mark.parametrize("route", ["spark", "stages"])
def test_queries_of_tpch_have_the_rows_of_duckdb(tpch: Tpch, route: str) -> None:
    check(tpch, route, FEW[route])


@pytest.mark.long
@pytest.mark.parametrize("route", ["spark", "stages"])
def test_all_queries_of_tpch_have_the_rows_of_duckdb(tpch: Tpch, route: str) -> None:
    check(tpch, route, list(TPCH))


def check(tpch: Tpch, route: str, names: Sequence[str]) -> None:
    tables, expected = tpch
    tables.execute_sql(f"SET 'table.exec.batch.route' = '{route}'")
    for name in names:
        rows = [tuple(row) for row in tables.execute_sql(TPCH[name]).collect()]
        assert rounded(rows) == expected[name], name
        assert expected[name], f"{name} shows something"


EDGES: Final = pa.table(
    {
        "k": pa.array([2**31 - 1, -(2**31), 0, 7, -7, None], pa.int32()),
        "b": pa.array([2**63 - 1, -(2**63), 1, -5, 5, None], pa.int64()),
        "n": pa.array([32767, -32768, 3, 2, -2, None], pa.int16()),
        "d": pa.array([Decimal("99999999.99"), Decimal("-99999999.99"), Decimal("0.05"), Decimal("1.25"),
                       Decimal("-1.25"), None], pa.decimal128(10, 2)),
        "w": pa.array([Decimal("9" * 28 + ".0000000001"), Decimal("-" + "9" * 28), Decimal("0.3333333333"), Decimal(3),
                       Decimal("0.0000005"), None], pa.decimal128(38, 10)),
        "x": pa.array([math.nan, math.inf, -0.0, 1.5, -2.5, None], pa.float64()),
        "f": pa.array([math.nan, 1e38, 0.1, 2.5, -1.0, None], pa.float32()),
        "s": pa.array(["", "ÄÖß x_y%", "it's \\n", "abc", "ABC ", None]),
        "t": pa.array([True, False, True, False, None, None]),
        "day": pa.array([date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31), date(2024, 2, 29), date(2000, 1, 1),
                         None]),
        "ts": pa.array([datetime(2024, 3, 31, 2, 30), datetime(1, 1, 1), datetime(2020, 1, 1, 0, 0, 0, 123000),
                        datetime(1969, 12, 31, 23, 59, 59, 999000), datetime(2000, 1, 1), None], pa.timestamp("us")),
        "y": pa.array([b"", b"\x00\xff", b"abc", b"a", b"b", None]),
    }
)  # fmt: skip
"""Values at the limits of their types."""
EXPRESSIONS: Final = (
    "k + 1", "k - 1", "k * 2", "-k", "b + 1", "b * k", "n + n", "k / 3", "b / -1", "k / 2.5", "CAST(k AS SMALLINT)",
    "CAST(b AS INT)", "CAST(k AS DECIMAL(5, 0))", "CAST(k AS STRING)", "CAST(d AS INT)", "CAST(d AS DECIMAL(9, 1))",
    "CAST(w AS DECIMAL(38, 6))", "CAST(b AS DOUBLE)", "CAST(k AS FLOAT)", "CAST(day AS STRING)",
    "d + 1", "d - w", "d * d", "d * 0.5", "w + w", "d / 3", "w / 7.0", "d + k", "-d",
    "x + 1", "x * k", "x / 2", "f + f", "x = x", "x <> x", "x > 1", "x <= k", "f < 0.5", "f = x", "x < d",
    "k = b", "k < d", "d >= w", "n <> k", "s = 'abc'", "s < 'abc'", "s LIKE '%_c'", "s LIKE 'a%'", "s NOT LIKE '%%'",
    "k IN (7, NULL)", "s IN ('abc', '')", "t AND k > 0", "t OR k > 0", "NOT t", "t IS NOT TRUE", "k IS NULL",
    "CASE WHEN k > 0 THEN d ELSE w END", "CASE WHEN t THEN 1 WHEN NOT t THEN 2 END", "COALESCE(d, k, 0)",
    "NULLIF(k, 7)", "UPPER(s)", "LOWER(s)", "CHAR_LENGTH(s)", "s || 'x'", "SUBSTRING(s, 2)", "SUBSTRING(s, 1, 2)",
    "EXTRACT(YEAR FROM day)", "EXTRACT(MONTH FROM day)", "day > DATE '2000-01-01' - INTERVAL '1' YEAR", "day", "y", "s",
    "ts", "ts > TIMESTAMP '2020-01-01 00:00:00'", "'it''s \\n'", "'${env:HOME} ${spark.app.name}'",
    "TIMESTAMP '2024-01-01 00:00:00.5'", "x'00ff'",
)  # fmt: skip
AGGREGATES: Final = (
    "COUNT(*)", "COUNT(k)", "COUNT(DISTINCT t)", "SUM(k)", "SUM(b)", "SUM(n)", "SUM(d)", "SUM(w)", "AVG(k)", "AVG(n)",
    "AVG(d)", "MIN(k)", "MAX(b)", "MIN(d)", "MAX(s)", "MIN(day)", "MAX(ts)", "SUM(d) FILTER (WHERE k > 0)",
    "COUNT(*) FILTER (WHERE t)", "SUM(DISTINCT n)",
)  # fmt: skip


@pytest.fixture
def edges(tmp_path: Path) -> StreamTableEnvironment:
    pq.write_table(EDGES, tmp_path / "edges.parquet")
    tables = batch_tables()
    tables.execute_sql(
        "CREATE TABLE edges (k INT, b BIGINT, n SMALLINT, d DECIMAL(10, 2), w DECIMAL(38, 10), x DOUBLE, f FLOAT, "
        "s STRING, t BOOLEAN, `day` DATE, ts TIMESTAMP(3), y BYTES) WITH ('connector' = 'filesystem', "
        f"'format' = 'parquet', 'path' = '{tmp_path}')"
    )
    return tables


def on_both_routes(tables: StreamTableEnvironment, sql: str) -> list[list[tuple[Any, ...]]]:
    rows_of_routes = []
    for route in ("spark", "stages"):
        tables.execute_sql(f"SET 'table.exec.batch.route' = '{route}'")
        rows_of_routes.append([tuple(row) for row in tables.execute_sql(sql).collect()])
    return rows_of_routes


def test_values_at_the_limits_of_types_are_the_same_on_both_routes(edges: StreamTableEnvironment) -> None:
    items = [f"{item} AS e{place}" for place, item in enumerate(EXPRESSIONS)]
    by_spark, by_stages = on_both_routes(edges, f"SELECT k AS id, {', '.join(items)} FROM edges ORDER BY k")
    assert len(by_spark) == len(by_stages) == 6
    different = [
        (EXPRESSIONS[place - 1], row[0], row[place], other[place])
        for row, other in zip(by_spark, by_stages, strict=True)
        for place in range(1, len(row))
        if repr(row[place]) != repr(other[place])
    ]
    assert different == []


def test_aggregates_and_ranks_are_the_same_on_both_routes(edges: StreamTableEnvironment) -> None:
    results = ", ".join(f"{item} AS a{place}" for place, item in enumerate(AGGREGATES))
    groups = f"SELECT t, {results} FROM edges GROUP BY t"
    ranks = (
        "SELECT t, s, ROW_NUMBER() OVER (PARTITION BY t ORDER BY k DESC) AS place, "
        "SUM(d) OVER (PARTITION BY t ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS total FROM edges"
    )
    for sql in (groups, ranks):
        by_spark, by_stages = (sorted(map(repr, rows)) for rows in on_both_routes(edges, sql))
        assert by_spark == by_stages


def test_a_row_that_has_no_result_fails_a_query_of_spark_and_nothing_is_written(
    edges: StreamTableEnvironment, tmp_path: Path
) -> None:
    edges.execute_sql("SET 'table.exec.batch.route' = 'spark'")
    edges.execute_sql(
        "CREATE TABLE results (v INT NOT NULL) WITH ('connector' = 'filesystem', 'format' = 'json', "
        f"'path' = '{tmp_path / 'results'}')"
    )
    with pytest.raises(JobError, match="Division by zero"):
        edges.execute_sql("INSERT INTO results SELECT 7 / k FROM edges WHERE k IS NOT NULL")
    with pytest.raises(JobError, match="the column v is NOT NULL, and a row has NULL for it"):
        edges.execute_sql("INSERT INTO results SELECT k FROM edges")
    edges.execute_sql("INSERT INTO results SELECT k FROM edges WHERE k > 0")
    (tmp_path / "empty").mkdir()
    edges.execute_sql(
        "CREATE TABLE nothing (k INT) WITH ('connector' = 'filesystem', 'format' = 'parquet', "
        f"'path' = '{tmp_path / 'empty'}')"
    )
    assert list(edges.execute_sql("SELECT k FROM nothing").collect()) == []
    edges.execute_sql("SET 'table.exec.batch.route' = 'auto'")
    assert sorted(tuple(row) for row in edges.execute_sql("SELECT v FROM results").collect()) == [(7,), (2**31 - 1,)]


def test_a_recursion_goes_on_until_there_are_no_new_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1, 2, 3, 3, 9], pa.int32()), "b": [2, 3, 1, 4, 9]}), tmp_path / "p.parquet")
    tables = batch_tables()
    tables.execute_sql(
        f"CREATE TABLE ways (a INT, b BIGINT) WITH ('connector' = 'filesystem', 'format' = 'parquet', "
        f"'path' = '{tmp_path}')"
    )

    def rows(sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in tables.execute_sql(f"WITH RECURSIVE {sql}").collect()]

    reached = "r(n) AS (SELECT CAST(1 AS BIGINT) UNION {}SELECT b FROM r JOIN ways ON a = n) SELECT n FROM r ORDER BY n"
    assert rows(reached.format("")) == [(1,), (2,), (3,), (4,)]
    counted = "c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 20) SELECT COUNT(*), SUM(i) FROM c"
    assert rows(counted) == [(20, 210)]
    tables.execute_sql("SET 'table.exec.recursion.max-iterations' = '5'")
    with pytest.raises(JobError, match=r"has not ended after 5 steps \('table\.exec\.recursion\.max-iterations'\)"):
        rows(reached.format("ALL "))
