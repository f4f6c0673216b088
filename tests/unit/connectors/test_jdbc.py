"""Tables as source and sink, by drivers of embedded databases."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from firesteel.common.time import Instant
from firesteel.common.typeinfo import RowTypeInfo, TypeInformation, Types
from firesteel.common.types import Row
from firesteel.connectors.split_reader import Chunk
from firesteel.core.errors import FiresteelError, ProgramError
from firesteel.expressions.values import records_of
from firesteel.functions.source import Split
from firesteel.functions.two_phase import CommitOutcome, Committable
from firesteel.testing import check_source, check_two_phase_sink
from firesteel.testing.writing import Context
from firesteel_jdbc.databases import database_of, statement
from firesteel_jdbc.options import JdbcConnectionOptions, JdbcExactlyOnceOptions, JdbcExecutionOptions
from firesteel_jdbc.sink import JdbcSink
from firesteel_jdbc.source import (
    JdbcGenericParameterValuesProvider,
    JdbcNumericBetweenParametersProvider,
    JdbcSource,
)
from firesteel_jdbc.values import DeclaredColumns

pytestmark = pytest.mark.usefixtures("no_pandas")

ROWS = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
UPSERT = "INSERT INTO t (id, name) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name"
DRIVERS = ["sqlite", "sqlite by adbc", "duckdb"]
Connect = Callable[[str], JdbcConnectionOptions]


def connection(driver: str, path: Path) -> JdbcConnectionOptions:
    builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
    builder.with_url(f"jdbc:{driver.split()[0]}:{path}")
    if driver.endswith("adbc"):
        builder.with_driver_name("adbc")
    return builder.build()


@pytest.fixture(params=DRIVERS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> JdbcConnectionOptions:
    options = connection(request.param, tmp_path / "test.db")
    run(options, "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(100))")
    run(options, "CREATE TABLE log (id BIGINT, name VARCHAR(100))")
    return options


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    return pauses


def run(options: JdbcConnectionOptions, sql: str) -> list[Any]:
    connection = options.database().connect()
    try:
        rows = connection.run(sql)
        connection.commit()
        return [tuple(row) for row in rows]
    finally:
        connection.close()


def rows(count: int) -> list[Row]:
    return [Row(id=number, name=f"name {number}") for number in range(count)]


def table(options: JdbcConnectionOptions, name: str = "t") -> list[Row]:
    return [Row(id=id_, name=text) for id_, text in run(options, f"SELECT id, name FROM {name} ORDER BY id")]


def test_each_record_is_written_once_whatever_happens(database: JdbcConnectionOptions) -> None:
    def sink() -> JdbcSink:
        return JdbcSink.exactly_once_sink("INSERT INTO log VALUES (?, ?)", ROWS, database)

    check_two_phase_sink(sink, rows(20), lambda: table(database, "log"))


def test_the_same_committable_has_no_effect_again(database: JdbcConnectionOptions) -> None:
    sink = JdbcSink.exactly_once_sink("INSERT INTO log VALUES (?, ?)", ROWS, database)
    writer = sink.create_writer(Context(0, 1))
    writer.write(rows(3), None)
    (data,) = writer.prepare_commit(end_of_input=False)
    writer.write([Row(id=7, name=None)], None)
    (more,) = writer.prepare_commit(end_of_input=True)
    outcomes = []
    for batch in ([data], [data, more], [data, more]):
        committer = sink.create_committer(Context(0, 1))
        outcomes += [[result.outcome for result in committer.commit([Committable(data) for data in batch])]]
        committer.close()
    done, before = CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED
    assert outcomes == [[done], [before, done], [before, before]]
    assert table(database, "log") == [*rows(3), Row(id=7, name=None)]


def test_a_transaction_that_fails_leaves_nothing(database: JdbcConnectionOptions, no_pauses: list[float]) -> None:
    options = JdbcExecutionOptions.builder().with_max_retries(1).build()
    sink = JdbcSink.exactly_once_sink("INSERT INTO t VALUES (?, ?)", ROWS, database, options)
    writer = sink.create_writer(Context(0, 1))
    writer.write([*rows(2), Row(id=0, name="twice")], None)
    (data,) = writer.prepare_commit(end_of_input=True)
    committer = sink.create_committer(Context(0, 1))
    (result,) = committer.commit([Committable(data)])
    assert (result.outcome, "2 attempts" in result.reason) == (CommitOutcome.UNKNOWN, True)
    assert (table(database), len(no_pauses)) == ([], 1)
    good = pickle.dumps((pickle.loads(data)[0], [(0, "a")]))
    assert [result.outcome for result in committer.commit([Committable(good)])] == [CommitOutcome.COMMITTED]
    committer.close()


def test_old_notes_are_removed(database: JdbcConnectionOptions) -> None:
    options = JdbcExactlyOnceOptions("notes", keep_days=1)
    sink = JdbcSink.exactly_once_sink("INSERT INTO log VALUES (?, ?)", ROWS, database, None, options)
    run(database, "CREATE TABLE notes (id VARCHAR(64) PRIMARY KEY, committed_ms BIGINT NOT NULL)")
    run(database, "INSERT INTO notes VALUES ('old', 5)")
    writer = sink.create_writer(Context(0, 1))
    writer.write(rows(1), None)
    committer = sink.create_committer(Context(0, 1))
    committer.commit([Committable(data) for data in writer.prepare_commit(end_of_input=True)])
    committer.close()
    assert [name == "old" for (name,) in run(database, "SELECT id FROM notes")] == [False]


def test_batches_and_barriers_write(database: JdbcConnectionOptions) -> None:
    execution = JdbcExecutionOptions.builder().with_batch_size(3).build()
    sink = JdbcSink.sink(UPSERT, ROWS, database, execution)
    writer = sink.create_writer(Context(0, 1))
    writer.open()
    writer.write(rows(2), None)
    assert table(database) == []
    writer.write([Row(id=1, name="newer"), Row(id=2, name=None)], None)
    assert table(database) == [Row(id=0, name="name 0"), Row(id=1, name="newer"), Row(id=2, name=None)]
    writer.write([Row(id=0, name="at the barrier")], None)
    assert list(writer.prepare_commit(end_of_input=False)) == []
    assert table(database)[0] == Row(id=0, name="at the barrier")
    assert writer.takes_columns == (database.driver_name == "adbc")
    if writer.takes_columns:
        writer.write_columns(pa.record_batch({"name": ["c", None], "id": [8, 9]}), None)
        writer.prepare_commit(end_of_input=True)
        assert table(database)[3:] == [Row(id=8, name="c"), Row(id=9, name=None)]
    writer.close()


def test_what_was_gathered_is_written_by_the_clock(database: JdbcConnectionOptions) -> None:
    class Timers(Context):
        called: list[Callable[[], None]] = []

        def register_timer(self, epoch_ms: int, callback: Callable[[], None]) -> None:
            self.called.append(callback)

    execution = JdbcExecutionOptions.builder().with_batch_interval_ms(100).with_batch_size(0).build()
    writer = JdbcSink.sink(UPSERT, ROWS, database, execution).create_writer(Timers(0, 1))
    writer.open()
    writer.write(rows(2), None)
    assert table(database) == []
    Timers.called.pop()()
    assert table(database) == rows(2)
    assert len(Timers.called) == 1
    writer.close()


def test_a_database_that_says_no_is_asked_again(database: JdbcConnectionOptions, no_pauses: list[float]) -> None:
    execution = JdbcExecutionOptions.builder().with_max_retries(2).build()
    sink = JdbcSink.sink("INSERT INTO missing VALUES (?, ?)", ROWS, database, execution)
    writer = sink.create_writer(Context(0, 1))
    writer.write(rows(1), None)
    with pytest.raises(FiresteelError, match=r"(?s)JDBC: \w+:.*missing.*\(3 attempts at"):
        writer.prepare_commit(end_of_input=False)
    assert len(no_pauses) == 2
    run(database, "CREATE TABLE missing (id BIGINT, name VARCHAR(100))")
    writer.prepare_commit(end_of_input=False)
    assert table(database, "missing") == rows(1)
    writer.close()


# -- source


def source(options: JdbcConnectionOptions, splits: int = 3) -> JdbcSource:
    return (
        JdbcSource.builder()
        .set_connection_options(options)
        .set_sql("SELECT id, name FROM t WHERE id BETWEEN ? AND ? ORDER BY id")
        .set_type_information(ROWS)
        .set_jdbc_parameter_values_provider(JdbcNumericBetweenParametersProvider(0, 299).of_batch_num(splits))
        .set_result_set_fetch_size(7)
        .build()
    )


def test_the_contract_of_sources_is_kept(database: JdbcConnectionOptions) -> None:
    writer = JdbcSink.sink(UPSERT, ROWS, database).create_writer(Context(0, 1))
    writer.write(rows(300), None)
    writer.prepare_commit(end_of_input=True)
    writer.close()
    check_source(lambda: source(database), rows(300))


def test_types_come_as_they_are_declared(database: JdbcConnectionOptions) -> None:
    kinds = Types.ROW_NAMED(["n", "x", "text", "none"], [Types.INT(), Types.DOUBLE(), Types.STRING(), Types.LONG()])
    queries = (
        JdbcSource.builder()
        .set_connection_options(database)
        .set_sql("SELECT 1, 0.5e0, 'it''s a ?', NULL -- ?")
        .set_type_information(kinds)
        .build()
    )
    cursor = queries.open(Split("q", {"parameters": []}))
    chunk = cursor.read(10)
    assert isinstance(chunk, Chunk)
    values = chunk.values
    rows = values if isinstance(values, list) else records_of(values)
    assert rows == [Row(n=1, x=0.5, text="it's a ?", none=None)]
    cursor.close()


def read(options: JdbcConnectionOptions, sql: str, row_type: RowTypeInfo) -> list[Any]:
    built = JdbcSource.builder().set_connection_options(options).set_sql(sql).set_type_information(row_type).build()
    cursor = built.open(Split("q", {"parameters": []}))
    try:
        chunk = cursor.read(10)
        assert isinstance(chunk, Chunk)
        return chunk.values if isinstance(chunk.values, list) else records_of(chunk.values)
    finally:
        cursor.close()


def test_what_a_database_has_no_type_for_comes_as_it_is_declared(database: JdbcConnectionOptions) -> None:
    """SQLite has integers for BOOLEAN, texts for dates, and numbers for DECIMAL."""
    row_type = Types.ROW_NAMED(
        ["flag", "day", "at", "price", "big", "i"],
        [
            Types.BOOLEAN(), Types.SQL_DATE(), Types.SQL_TIMESTAMP(), Types.BIG_DEC(), Types.DOUBLE(), Types.INSTANT(),
        ],
    )  # fmt: skip
    sql = "SELECT 1, '2020-01-02', '2020-01-02 03:04:05.5', '12.50', 7, '2020-01-02 03:04:05'"
    (row,) = read(database, sql, row_type)
    assert row == Row(
        flag=True, day=date(2020, 1, 2), at=datetime(2020, 1, 2, 3, 4, 5, 500_000), price=Decimal("12.50"), big=7.0,
        i=Instant.of_epoch_milli(1_577_934_245_000),
    )  # fmt: skip
    assert [type(row.flag), str(row.price), type(row.big)] == [bool, "12.50", float]


@pytest.mark.parametrize(
    ("sql", "declared", "message"),
    [
        ("SELECT 7", Types.BOOLEAN(), r"column 'a': 7 \(int\) is no Boolean"),
        ("SELECT 'x'", Types.INT(), r"column 'a': 'x' \(str\) is no Integer"),
        ("SELECT 1.5e0", Types.INT(), r"column 'a': 1.5 \(float\) is no Integer"),
        ("SELECT 5000000000", Types.INT(), r"column 'a': 5000000000 \(int\) is no Integer"),
        ("SELECT 5", Types.STRING(), r"column 'a': 5 \(int\) is no String: it is no text; cast it in the query"),
        ("SELECT 'soon'", Types.SQL_DATE(), r"column 'a': 'soon' \(str\)"),
        ("SELECT 1, 2", Types.INT(), r"gives 2 columns, and set_type_information\(\) declares 1: a"),
    ],
)
def test_what_does_not_fit_is_told_by_name(
    database: JdbcConnectionOptions, sql: str, declared: TypeInformation, message: str
) -> None:
    with pytest.raises(ProgramError, match=message):
        read(database, sql, Types.ROW_NAMED(["a"], [declared]))


@pytest.mark.parametrize(
    ("declared", "value_read", "fitted"),
    [
        (Types.BOOLEAN(), Decimal(1), True), (Types.BOOLEAN(), "f", False), (Types.LONG(), Decimal("7.00"), 7),
        (Types.INT(), "12", 12), (Types.DOUBLE(), Decimal("0.5"), 0.5), (Types.BIG_DEC(), 0.1, Decimal("0.1")),
        (Types.BIG_INT(), Decimal(10**30), 10**30), (Types.SQL_DATE(), datetime(2020, 1, 2), date(2020, 1, 2)),
        (Types.SQL_TIME(), timedelta(hours=3, seconds=1), time(3, 0, 1)), (Types.SQL_TIME(), "03:00:01", time(3, 0, 1)),
        (Types.SQL_TIMESTAMP(), datetime(2020, 1, 2, 3, tzinfo=UTC), datetime(2020, 1, 2, 3)),
        (Types.INSTANT(), datetime(1970, 1, 1, 0, 0, 1, 5), Instant(1, 5000)),
        (Types.STRING(), UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), memoryview(b"x"), b"x"), (Types.INT(), None, None),
        (Types.PICKLED_BYTE_ARRAY(), {"any": 1}, {"any": 1}),
    ],
)  # fmt: skip
def test_what_other_drivers_give_is_fitted(declared: TypeInformation, value_read: Any, fitted: Any) -> None:
    ((value,),) = DeclaredColumns(RowTypeInfo([declared], ["a"])).rows([(value_read,)])
    assert (value, type(value)) == (fitted, type(fitted))


@pytest.mark.parametrize(
    ("declared", "value_read"),
    [
        (Types.SQL_DATE(), datetime(2020, 1, 2, 3)), (Types.SQL_TIME(), timedelta(days=2)), (Types.LONG(), 0.5),
        (Types.LONG(), True), (Types.BYTE(), 200), (Types.LONG(), Decimal("0.5")), (Types.SQL_TIMESTAMP(), 5),
        (Types.DOUBLE(), "1,5"), (Types.BIG_DEC(), True), (Types.STRING(), b"x"), (Types.BOOLEAN(), 0.0),
    ],
)  # fmt: skip
def test_what_would_lose_something_is_refused(declared: TypeInformation, value_read: Any) -> None:
    with pytest.raises(ProgramError, match="column 'a': "):
        DeclaredColumns(RowTypeInfo([declared], ["a"])).rows([(value_read,)])


def test_ranges() -> None:
    provider = JdbcNumericBetweenParametersProvider(1, 10)
    assert provider.of_batch_size(4).get_parameter_values() == [[1, 3], [4, 6], [7, 10]]
    assert provider.of_batch_num(20).get_parameter_values() == [[n, n] for n in range(1, 11)]
    assert JdbcGenericParameterValuesProvider([("a",), ("b",)]).get_parameter_values() == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("qmark", """SELECT ?, '?''?', "?" /* ? */ FROM t WHERE a LIKE '5%' AND b = ?"""),
        ("dollar", """SELECT $1, '?''?', "?" /* ? */ FROM t WHERE a LIKE '5%' AND b = $2"""),
        ("format", """SELECT %s, '?''?', "?" /* ? */ FROM t WHERE a LIKE '5%%' AND b = %s"""),
        ("numeric", """SELECT :1, '?''?', "?" /* ? */ FROM t WHERE a LIKE '5%' AND b = :2"""),
    ],
)
def test_placeholders(style: str, text: str) -> None:
    sql = """SELECT ?, '?''?', "?" /* ? */ FROM t WHERE a LIKE '5%' AND b = ?"""
    assert statement(sql, style) == (text, 2)


def test_passwords_are_not_shown() -> None:
    builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:postgresql://host:5432/db?user=u")
    options = builder.with_driver_name("org.postgresql.Driver").with_user_name("u").with_password("s3cret").build()
    sink = JdbcSink.sink("INSERT INTO t VALUES (?, ?)", ROWS, options)
    assert "s3cret" not in f"{options} {options!r} {sink.describe()}"
    assert options.get_password() == "s3cret"
    database = database_of("postgresql://u:s3cret@host/db", None, None, None)
    assert database.name == "postgresql://host/db"


def test_what_is_refused(tmp_path: Path) -> None:
    options = connection("sqlite", tmp_path / "x")
    with pytest.raises(ProgramError, match=r"with_url\(\) is missing"):
        JdbcConnectionOptions.JdbcConnectionOptionsBuilder().build()
    with pytest.raises(ProgramError, match="of no database that is known"):
        JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:oracle:thin:@h").build()
    with pytest.raises(ProgramError, match=r"1 parameters .* 2 fields"):
        JdbcSink.sink("INSERT INTO t VALUES (?)", ROWS, options)
    with pytest.raises(TypeError, match="row or tuple type"):
        JdbcSink.sink("INSERT INTO t VALUES (?)", Types.STRING(), options)
    with pytest.raises(ProgramError, match="the query has 1 parameters"):
        JdbcSource.builder().set_connection_options(options).set_sql("SELECT ?").set_type_information(ROWS).build()
    builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:mysql://h/d")
    missing = builder.with_driver_name("no_such_driver").build()
    with pytest.raises(ProgramError, match="no_such_driver is not installed"):
        JdbcSink.sink("INSERT INTO t VALUES (?, ?)", ROWS, missing).check()
