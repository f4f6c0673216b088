"""Tables of databases: SQLite holds what was written, and gives it back; statements in the dialects."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from firesteel.common.time import Instant
from firesteel.common.types import Row, RowKind
from firesteel.core.errors import ProgramError
from firesteel.expressions.values import records_of, row_values
from firesteel.functions.source import Split
from firesteel.runtime.records.columns import StreamColumns
from firesteel_sql.connectors.connector import connector_of
from tests.unit.sql.test_kafka_tables import Recorded, declared

COLUMNS = "id BIGINT, name STRING, price DECIMAL(10, 2), at TIMESTAMP(3), z TIMESTAMP_LTZ(3), raw BYTES, flag BOOLEAN"


def source_of(columns: str, options: dict[str, str]) -> Any:
    environment: Any = Recorded()
    connector, context = connector_of(("c", "d", "t"), declared(columns, {"connector": "jdbc", **options}))
    connector.read(environment, context)
    return environment.source


def sink_of(columns: str, options: dict[str, str]) -> tuple[Any, Recorded]:
    stream: Any = Recorded()
    connector, context = connector_of(("c", "d", "t"), declared(columns, {"connector": "jdbc", **options}), writes=True)
    connector.write(stream, context)
    return stream.sinks[0], stream


def writer_of(sink: Any) -> Any:
    timers: list[Any] = []
    writer = sink.create_writer(SimpleNamespace(register_timer=lambda at, callback: timers.append(callback)))
    writer.open()
    assert len(timers) == 1, "changes wait for a second at most"
    return writer


def change(kind: RowKind, *values: Any) -> Row:
    return Row.of_kind(kind, *values)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT, price NUMERIC, at TEXT, z TEXT, raw BLOB, "
            "flag BOOL)"
        )
    connection.close()
    return path


def rows_of(database: Path, sql: str) -> list[Any]:
    connection = sqlite3.connect(database)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def read(source: Any) -> list[list[Any]]:
    found = []
    for plain in source.enumerator().config["splits"]:
        cursor = source.open(Split.from_plain(plain))
        while True:
            chunk = cursor.read(10)
            values = chunk.values if isinstance(chunk.values, list) else records_of(chunk.values)
            found += [list(row_values(row, tuple(source.produced_type().field_names))) for row in values]
            if chunk.finished:
                cursor.close()
                break
    return found


KEYED = f"{COLUMNS}, PRIMARY KEY (id) NOT ENFORCED"


def test_changes_are_kept_by_their_key_and_read_again(database: Path) -> None:
    options = {"url": f"jdbc:sqlite:{database}", "table-name": "orders"}
    sink, _ = sink_of(KEYED, options)
    assert sink.takes_changes
    writer = writer_of(sink)
    moment, instant = datetime(2024, 1, 2, 3, 4, 5, 600_000), Instant(1_700_000_000, 123_000_000)
    rest = (Decimal("12.50"), moment, instant, b"\0", True)
    writer.write(
        [
            change(RowKind.INSERT, 1, "a", *rest),
            change(RowKind.INSERT, 2, "b", *rest),
            change(RowKind.UPDATE_BEFORE, 1, "a", *rest),
            change(RowKind.UPDATE_AFTER, 1, "c", *rest),
            change(RowKind.INSERT, 3, None, None, None, None, None, None),
        ],
        None,
    )
    assert rows_of(database, "SELECT * FROM orders") == [], "they wait for a checkpoint, the time or 100 changes"
    writer.prepare_commit(end_of_input=False)
    writer.write(
        [change(RowKind.DELETE, 2, None, None, None, None, None, None), change(RowKind.INSERT, 3, "d", *rest)], None
    )
    writer.write([change(RowKind.DELETE, 4, "x", *rest)], None)
    writer.flush()
    writer.close()
    assert rows_of(database, "SELECT id, name FROM orders ORDER BY id") == [(1, "c"), (3, "d")]
    assert read(source_of(KEYED, options)) == [[1, "c", *rest], [3, "d", *rest]]


def test_changes_come_as_columns(database: Path) -> None:
    sink, _ = sink_of(KEYED, {"url": f"jdbc:sqlite:{database}", "table-name": "orders"})
    writer = writer_of(sink)
    rest = (Decimal("12.50"), datetime(2024, 1, 2, 3, 4, 5, 600_000), Instant(1_700_000_000, 0), b"\0", True)
    _, context = connector_of(("c", "d", "t"), declared(KEYED, {"connector": "jdbc", "url": "x", "table-name": "y"}))
    columns = StreamColumns(context.read_type)
    assert writer.takes_columns
    writer.write_columns(columns.from_records([Row(1, "a", *rest), Row(2, "b", *rest)]), None)
    changes = columns.from_records([Row(1, "a", *rest), Row(1, "c", *rest), Row(2, "b", *rest)])
    writer.write_changes(changes, np.array([1, 2, 3], np.int8), None)
    writer.flush()
    by_columns = rows_of(database, "SELECT * FROM orders")
    writer.write([change(RowKind.UPDATE_AFTER, 1, "c", *rest)], None)
    writer.flush()
    writer.close()
    assert by_columns == rows_of(database, "SELECT * FROM orders"), "the same values as those of rows"
    assert [row[:3] for row in by_columns] == [(1, "c", 12.5)]


def test_a_failed_write_is_repeated_as_a_whole(database: Path) -> None:
    sink, _ = sink_of("id BIGINT, missing INT, PRIMARY KEY (id) NOT ENFORCED",
                      {"url": f"jdbc:sqlite:{database}", "table-name": "orders", "sink.max-retries": "0"})  # fmt: skip
    writer = writer_of(sink)
    writer.write([change(RowKind.DELETE, 1, 1), change(RowKind.INSERT, 2, 2)], None)
    with pytest.raises(Exception, match="no column named missing"):
        writer.flush()
    writer.close()


def test_rows_without_a_key_are_appended(database: Path) -> None:
    sink, stream = sink_of(
        "id BIGINT, name STRING",
        {"url": f"jdbc:sqlite:{database}", "table-name": "orders", "sink.parallelism": "2",
         "sink.buffer-flush.max-rows": "2"},
    )  # fmt: skip
    assert not sink.takes_changes, "a change would be an error"
    assert stream.parallelism == [2]
    writer = writer_of(sink)
    writer.write([Row(1, "a"), Row(2, "b")], None)
    assert rows_of(database, "SELECT id FROM orders") == [(1,), (2,)], "so many are written at once"
    writer.close()


def test_a_table_is_read_in_parts(database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.executemany("INSERT INTO orders (id) VALUES (?)", [(number,) for number in range(10)])
    connection.commit()
    connection.close()
    bounds = {"scan.partition.column": "id", "scan.partition.num": "3", "scan.partition.lower-bound": "1",
              "scan.partition.upper-bound": "8"}  # fmt: skip
    source = source_of("id BIGINT", {"url": f"jdbc:sqlite:{database}", "table-name": "orders", **bounds})
    assert len(source.enumerator().config["splits"]) == 3
    assert read(source) == [[number] for number in range(1, 9)]


@pytest.mark.parametrize(
    ("url", "table", "columns", "sql"),
    [
        ("jdbc:postgresql://h/d", "s.orders", "id INT, `order` INT, PRIMARY KEY (id) NOT ENFORCED",
         'INSERT INTO "s"."orders" ("id", "order") VALUES (?, ?) ON CONFLICT ("id") DO UPDATE SET "order" = '
         'EXCLUDED."order"'),
        ("jdbc:postgresql://h/d", "orders", "userId INT, PRIMARY KEY (userId) NOT ENFORCED",
         'INSERT INTO "orders" (userId) VALUES (?) ON CONFLICT (userId) DO NOTHING'),
        ("jdbc:mysql://h/d", "orders", "id INT, n INT, PRIMARY KEY (id) NOT ENFORCED",
         "INSERT INTO `orders` (`id`, `n`) VALUES (?, ?) ON DUPLICATE KEY UPDATE `n` = VALUES(`n`)"),
        ("jdbc:postgresql://h/d", "orders", "`a\"b` INT", 'INSERT INTO "orders" ("a""b") VALUES (?)'),
    ],
)  # fmt: skip
def test_statements_in_the_dialects(url: str, table: str, columns: str, sql: str) -> None:
    options = {"url": url, "table-name": table, "driver": "sqlite3" if "mysql" in url else "psycopg"}
    sink, _ = sink_of(columns, options)
    assert sink._write_sql == sql


@pytest.mark.parametrize(
    ("columns", "options", "problem"),
    [
        ("id INT", {"url": "jdbc:sqlite:/x"}, "'table-name' is missing"),
        ("id INT", {"table-name": "t"}, "'url' is missing"),
        ("id INT", {"scan.partition.column": "id"}, "'scan.partition.num' is missing"),
        ("id STRING", {"scan.partition.column": "id", "scan.partition.num": "2", "scan.partition.lower-bound": "1",
                       "scan.partition.upper-bound": "2"}, "has to hold whole numbers"),
        ("id INT", {"scan.partition.column": "id", "scan.partition.num": "2", "scan.partition.lower-bound": "3",
                    "scan.partition.upper-bound": "2"}, "above the upper bound"),
        ("id INT", {"tablename": "t"}, "did you mean table-name?"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together(columns: str, options: dict[str, str], problem: str) -> None:
    base = {} if len(options) == 1 and ("url" in options or "table-name" in options) else {
        "url": "jdbc:sqlite:/x", "table-name": "t",
    }  # fmt: skip
    with pytest.raises(ProgramError) as caught:
        source_of(columns, {**base, **options})
    assert problem in str(caught.value)


def test_a_database_that_knows_no_upsert_is_refused() -> None:
    with pytest.raises(ProgramError, match="rows with a PRIMARY KEY can't be written"):
        sink_of(
            "id INT, PRIMARY KEY (id) NOT ENFORCED", {"url": "jdbc:oracle:x", "table-name": "t", "driver": "sqlite3"}
        )
