"""SQL in real slots: tables are written and read again, and results are those that plain Python computes."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest

from firesteel.common.types import Row, RowKind
from firesteel.core.errors import JobError, ProgramError
from firesteel_sql import SqlError, StreamTableEnvironment
from firesteel_sql.session_options import OptionRefused
from tests.integration.embedded.programs import new_environment

pytestmark = pytest.mark.usefixtures("cluster")


def new_tables(parallelism: int = 2) -> StreamTableEnvironment:
    return StreamTableEnvironment.create(new_environment(parallelism))


@pytest.mark.smoke
def test_a_query_over_generated_rows(capfd: pytest.CaptureFixture[str]) -> None:
    tables = new_tables()
    tables.execute_sql(
        "CREATE TABLE numbers (id BIGINT, name STRING, twice AS id * 2) WITH ('connector' = 'datagen', "
        "'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '1000', 'fields.name.length' = '3', "
        "'rows-per-second' = '1000000')"
    )
    tables.execute_sql("CREATE VIEW odd AS SELECT id, twice, name FROM numbers WHERE id % 2 = 1")
    query = (
        "SELECT id, twice + 1 AS more, CASE WHEN id < 500 THEN 'low' ELSE 'high' END AS size, CHAR_LENGTH(name) AS n "
        "FROM odd UNION ALL SELECT -1, 0, 'none', 0"
    )
    rows = sorted(tuple(row) for row in tables.sql_query(query).execute().collect())
    expected = [(i, 2 * i + 1, "low" if i < 500 else "high", 3) for i in range(1, 1001, 2)]
    assert rows == [(-1, 0, "none", 0), *expected]
    tables.execute_sql("SELECT * FROM (VALUES (1, 'a', 1.50), (2, NULL, 0.5)) AS t(a, b, c)").print()
    shown = capfd.readouterr().out
    assert "2 rows in set" in shown
    assert "| +I |           2 |                           NULL |                           0.50 |" in shown


def test_rows_are_written_into_files_and_read_again(tmp_path: Path) -> None:
    tables = new_tables()
    columns = "a INT, b STRING, c DECIMAL(10, 2), d TIMESTAMP(3), e ARRAY<INT>, f ROW<x INT, y STRING>"
    expected = [
        (1, "x", Decimal("1.56"), datetime(2020, 1, 1, 0, 0, 0, 500_000), [1, 2], (7, "z")),
        (2, None, Decimal("-0.50"), None, [3], (8, "ü")),
    ]
    for kind in ("json", "parquet"):
        tables.execute_sql(
            f"CREATE TABLE {kind}_files ({columns}) WITH ('connector' = 'filesystem', 'path' = '{tmp_path / kind}', "
            f"'format' = '{kind}')"
        )
        insert = tables.execute_sql(
            f"INSERT INTO {kind}_files VALUES (1, 'x', 1.555, TIMESTAMP '2020-01-01 00:00:00.5', ARRAY[1, 2], "
            "ROW(7, 'z')), (2, NULL, -0.5, NULL, ARRAY[3], ROW(8, 'ü'))"
        )
        insert.wait()
        rows = sorted(tuple(row) for row in tables.execute_sql(f"SELECT * FROM {kind}_files").collect())
        assert [(*row[:5], tuple(row[5])) for row in rows] == expected, kind
        (fields,) = [
            tuple(row) for row in tables.execute_sql(f"SELECT f.y, e[1], a FROM {kind}_files WHERE f.x > 7").collect()
        ]
        assert fields == ("ü", 3, 2)


def test_two_inserts_of_a_set_are_one_job_and_a_program_names_its_tables(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tables = new_tables(1)
    for name in ("low", "high"):
        tables.execute_sql(
            f"CREATE TABLE {name} (v INT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path / name}', "
            "'format' = 'csv')"
        )
    tables.create_temporary_view("v", tables.sql_query("SELECT * FROM (VALUES (1), (5), (9)) AS t(v)"))
    result = tables.execute_sql(
        "EXECUTE STATEMENT SET BEGIN INSERT INTO low SELECT v FROM v WHERE v < 5; "
        "INSERT INTO high SELECT v FROM v WHERE v >= 5; END"
    )
    result.wait()
    assert len(result.column_names()) == 2
    assert [tuple(row) for row in tables.from_path("low").execute().collect()] == [(1,)]
    assert sorted(tuple(row) for row in tables.from_path("high").execute().collect()) == [(5,), (9,)]
    tables.execute_sql("CREATE TABLE shown (v INT) WITH ('connector' = 'blackhole')")
    tables.from_path("high").execute_insert("shown").wait()


def test_a_value_that_can_not_be_computed_fails_the_job_with_the_row() -> None:
    tables = new_tables(1)
    with pytest.raises(
        JobError, match=r"CAST\(b AS INT NOT NULL\) can't be computed for b = 'x': 'x' is no 32-bit integer"
    ):
        list(tables.execute_sql("SELECT CAST(b AS INT) FROM (VALUES ('1'), ('x')) AS t(b)").collect())


def test_statements_that_write_tables(tmp_path: Path) -> None:
    """INSERT with few columns, NOT NULL, CREATE TABLE AS, and a Python function in a slot."""
    tables = new_tables(1)
    connector = "WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{}')"
    tables.execute_sql(f"CREATE TABLE t (a INT NOT NULL, b STRING, c INT) {connector.format(tmp_path / 't')}")
    tables.execute_sql("SET 'table.dml-sync' = 'true'")
    tables.execute_sql("INSERT INTO t (c, a) VALUES (3, 1), (4, CAST('2' AS INT))")

    def rows(query: str = "SELECT * FROM t") -> list[tuple[object, ...]]:
        return sorted(tuple(row) for row in tables.execute_sql(query).collect())

    assert rows() == [(1, None, 3), (2, None, 4)]
    nulls = "SELECT TRY_CAST(x AS INT), x, 0 FROM (VALUES ('7'), ('x')) AS v(x)"
    with pytest.raises(JobError, match="the column a is NOT NULL, and a row has NULL for it"):
        tables.execute_sql(f"INSERT INTO t {nulls}")
    assert rows() == [(1, None, 3), (2, None, 4)], "nothing was written"
    tables.execute_sql("SET 'table.exec.sink.not-null-enforcer' = 'DROP'")
    tables.execute_sql(f"INSERT INTO t {nulls}")
    assert rows() == [(1, None, 3), (2, None, 4), (7, "7", 0)]
    tables.execute_sql("CREATE FUNCTION sign AS 'math.copysign' LANGUAGE PYTHON")
    with pytest.raises(ProgramError, match=r"math\.copysign does not say what it returns"):
        tables.execute_sql("SELECT default_database.sign(1, a) FROM t")
    tables.execute_sql(
        "CREATE FUNCTION unquoted AS 'tests.integration.embedded.sql_functions.unquoted' LANGUAGE PYTHON"
    )
    assert rows("SELECT unquoted(b), a FROM t WHERE a > 1") == [("7", 7), ("none", 2)]
    tables.execute_sql(f"CREATE TABLE u {connector.format(tmp_path / 'u')} AS SELECT a, b FROM t WHERE a < 7")
    assert rows("SELECT * FROM u") == [(1, None), (2, None)]


@pytest.mark.long
def test_tables_are_overwritten_and_truncated(tmp_path: Path) -> None:
    tables = new_tables(1)
    connector = "WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{}')"
    tables.execute_sql(f"CREATE TABLE t (a INT NOT NULL, b STRING) {connector.format(tmp_path / 't')}")
    tables.execute_sql(f"CREATE TABLE p (v INT, d STRING) PARTITIONED BY (d) {connector.format(tmp_path / 'p')}")
    tables.execute_sql("SET 'table.dml-sync' = 'true'")
    tables.execute_sql(
        "EXECUTE STATEMENT SET BEGIN INSERT INTO t VALUES (1, NULL), (2, 'x'); "
        "INSERT INTO p VALUES (1, 'a'), (2, 'b'); END"
    )

    def rows(table: str) -> list[tuple[object, ...]]:
        return sorted(tuple(row) for row in tables.execute_sql(f"SELECT * FROM {table}").collect())

    with pytest.raises(ProgramError, match="INSERT OVERWRITE needs batch mode"):
        tables.execute_sql("INSERT OVERWRITE t SELECT * FROM t")
    tables.execute_sql("SET 'execution.runtime-mode' = 'BATCH'")
    tables.execute_sql("INSERT OVERWRITE t SELECT a * 10, b FROM t")
    assert rows("t") == [(10, None), (20, "x")], "the former rows are gone, and were read before"
    tables.execute_sql("TRUNCATE TABLE t")
    assert list((tmp_path / "t").rglob("part-*")) == []
    tables.execute_sql("INSERT OVERWRITE p PARTITION (d = 'a') SELECT 3")
    assert rows("p") == [(2, "b"), (3, "a")], "the other partition stays"


def test_jobs_are_listed_described_and_stopped(tmp_path: Path) -> None:
    tables = new_tables(1)
    tables.execute_sql("CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '10')")
    tables.execute_sql("CREATE TABLE nowhere (id BIGINT) WITH ('connector' = 'blackhole')")
    tables.execute_sql(f"SET 'execution.checkpointing.savepoint-dir' = '{tmp_path}'")
    jobs = [
        str(tables.execute_sql("INSERT INTO nowhere SELECT id FROM numbers").get_job_client().get_job_id())
        for _ in range(2)
    ]
    listed = {row[0]: tuple(row)[1:3] for row in tables.execute_sql("SHOW JOBS").collect()}
    assert set(jobs) <= set(listed)
    assert next(iter(tables.execute_sql(f"DESCRIBE JOB '{jobs[0]}'").collect()))[0] == jobs[0]
    path = None
    while path is None:
        try:
            ((path,),) = tables.execute_sql(f"STOP JOB '{jobs[0]}' WITH SAVEPOINT").collect()
        except SqlError as error:
            if "Not all required tasks are currently running" not in error.problem:
                raise
            time.sleep(0.05)
    assert str(tmp_path) in path
    assert list(tables.execute_sql(f"STOP JOB '{jobs[1]}'").collect()) == [Row("OK")]
    with pytest.raises(SqlError, match="has ended: it is FINISHED"):
        tables.execute_sql(f"STOP JOB '{jobs[0]}'")


def test_windows_joins_and_aggregates_are_exact_though_a_slot_is_killed(tmp_path: Path) -> None:
    tables = new_tables()
    tables.execute_sql("SET 'execution.checkpointing.interval' = '100ms'")
    tables.execute_sql("SET 'restart-strategy.type' = 'fixed-delay'")
    tables.execute_sql("SET 'restart-strategy.fixed-delay.delay' = '0s'")
    tables.execute_sql("CREATE FUNCTION passed AS 'tests.integration.embedded.sql_functions.passed' LANGUAGE PYTHON")
    tables.execute_sql(
        "CREATE TABLE numbers (id BIGINT, ts AS TO_TIMESTAMP_LTZ(id, 3), WATERMARK FOR ts AS ts) WITH "
        "('connector' = 'datagen', 'fields.id.kind' = 'sequence', 'fields.id.start' = '0', "
        "'fields.id.end' = '19999', 'rows-per-second' = '10000')"
    )
    tables.execute_sql(
        f"CREATE TABLE sums (start TIMESTAMP(3), name STRING, n BIGINT, most BIGINT, different BIGINT) WITH "
        f"('connector' = 'filesystem', 'path' = '{tmp_path / 'sums'}', 'format' = 'json')"
    )
    insert = tables.execute_sql(
        "INSERT INTO sums SELECT start, name, n, most, different FROM ("
        "SELECT window_start AS start, k, COUNT(*) AS n, MAX(id) AS most, COUNT(DISTINCT MOD(id, 7)) AS different FROM "
        f"(SELECT *, MOD(passed(id, '{tmp_path / 'killed'}'), 3) AS k FROM TABLE("
        "TUMBLE(TABLE numbers, DESCRIPTOR(ts), INTERVAL '1' SECOND))) GROUP BY window_start, window_end, k) AS sums "
        "JOIN (VALUES (0, 'a'), (1, 'b'), (2, 'c')) AS names (code, name) ON k = code"
    )
    insert.wait(120_000)
    rows = sorted(tuple(row) for row in tables.execute_sql("SELECT * FROM sums").collect())
    expected = []
    for second in range(20):
        for remainder, name in enumerate("abc"):
            ids = [number for number in range(1000 * second, 1000 * (second + 1)) if number % 3 == remainder]
            start = datetime(1970, 1, 1, 0, 0, second)
            expected.append((start, name, len(ids), max(ids), 7))
    assert (tmp_path / "killed").exists()
    assert rows == expected


def test_in_batch_mode_a_query_gives_its_final_rows_in_their_order() -> None:
    tables = new_tables()
    tables.execute_sql("SET 'execution.runtime-mode' = 'BATCH'")
    tables.execute_sql(
        "CREATE TABLE numbers (id BIGINT, k AS MOD(id, 3)) WITH ('connector' = 'datagen', "
        "'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '2000', "
        "'rows-per-second' = '1000000')"
    )
    query = (
        "SELECT a.k, COUNT(*) AS n, MAX(b.id) AS most FROM numbers AS a LEFT JOIN numbers AS b "
        "ON a.id = b.id AND b.id <= 1000 GROUP BY a.k"
    )
    rows = list(tables.execute_sql(query).collect())
    assert sorted(map(tuple, rows)) == [(0, 666, 999), (1, 667, 1000), (2, 667, 998)]
    assert {row.get_row_kind() for row in rows} == {RowKind.INSERT}
    ordered = tables.execute_sql("SELECT id FROM numbers ORDER BY k DESC, id DESC LIMIT 3 OFFSET 1").collect()
    assert [tuple(row) for row in ordered] == [(1997,), (1994,), (1991,)]


def test_in_epochs_each_result_is_one_of_a_moment() -> None:
    """What one account pays another gets: the sum of all balances is 0 whenever somebody looks."""
    tables = new_tables()
    tables.execute_sql(
        "CREATE TABLE transfers (id BIGINT, payer AS MOD(id * 7, 5), payee AS MOD(id * 11, 3)) WITH ('connector' = "
        "'datagen', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '3000', "
        "'rows-per-second' = '1000')"
    )
    query = (
        "SELECT SUM(balance) AS total, COUNT(*) AS accounts, SUM(ABS(balance)) AS moved FROM (SELECT account, "
        "SUM(amount) AS balance FROM (SELECT payer AS account, -id AS amount FROM transfers UNION ALL "
        "SELECT payee, id FROM transfers) GROUP BY account)"
    )
    tables.execute_sql("SET 'table.exec.consistency' = 'epoch'")
    with pytest.raises(OptionRefused, match="gives the changes of a query with each checkpoint"):
        tables.execute_sql(query)
    tables.execute_sql("SET 'execution.checkpointing.interval' = '100 ms'")
    rows = [(row.get_row_kind(), *row) for row in tables.execute_sql(query).collect()]
    balances: Counter[int] = Counter()
    for number in range(1, 3001):
        balances[number * 7 % 5] -= number
        balances[number * 11 % 3] += number
    assert rows[-1] == (RowKind.UPDATE_AFTER, 0, 5, sum(map(abs, balances.values())))
    assert {row[1] for row in rows} == {0}


def test_windows_by_the_clock_end_with_it_and_with_the_input() -> None:
    tables = new_tables()
    tables.execute_sql(
        "CREATE TABLE ticks (id BIGINT, k AS MOD(id, 3), pt AS PROCTIME()) WITH ('connector' = 'datagen', "
        "'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '1500', 'rows-per-second' = '1000')"
    )
    rows = list(
        tables.execute_sql(
            "SELECT k, window_start AS b, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(pt), "
            "INTERVAL '0.5' SECOND)) GROUP BY k, window_start, window_end"
        ).collect()
    )
    assert sum(row["n"] for row in rows) == 1500
    windows = [(row["k"], row["b"]) for row in rows]
    assert len(set(windows)) == len(windows) >= 6


def test_rows_are_joined_with_those_of_a_database(tmp_path: Path) -> None:
    path = tmp_path / "goods.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE goods (id INTEGER, name TEXT)")
        database.executemany("INSERT INTO goods VALUES (?, ?)", [(0, "tea"), (1, "milk")])
    database.close()
    tables = new_tables()
    tables.execute_sql(
        f"CREATE TABLE goods (id BIGINT, name STRING) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{path}', "
        "'table-name' = 'goods')"
    )
    tables.execute_sql(
        "CREATE TABLE orders (id BIGINT, at AS PROCTIME()) WITH ('connector' = 'datagen', "
        "'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '2999', "
        "'rows-per-second' = '1000000')"
    )
    query = (
        "SELECT name, COUNT(*) AS n FROM orders LEFT JOIN goods FOR SYSTEM_TIME AS OF orders.at "
        "ON MOD(orders.id, 3) = goods.id AND orders.id >= 30 GROUP BY name"
    )
    counts: Counter[tuple[object, ...]] = Counter()
    for row in tables.execute_sql(query).collect():
        counts[tuple(row)] += -1 if row.get_row_kind() in (RowKind.UPDATE_BEFORE, RowKind.DELETE) else 1
    assert +counts == {("tea", 990): 1, ("milk", 990): 1, (None, 1020): 1}
