"""Formats of tables: rows become messages, and messages become rows; what can't be read says why."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firesteel.common.time import Instant
from firesteel.common.typeinfo import RowTypeInfo
from firesteel.core.errors import ProgramError
from firesteel.expressions.values import records_of, row_values
from firesteel.table.types import DataType, DataTypes
from firesteel_sql.connectors.formats.format import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, RowDecoder, batch_of
from firesteel_sql.connectors.formats.known import MESSAGE_FORMATS, format_of
from firesteel_sql.connectors.options import TableOptions
from firesteel_sql.types.columns import type_info_of

T = DataTypes
ID: dict[str, DataType] = {"id": T.BIGINT(), "name": T.STRING()}
ALL: dict[str, DataType] = {
    "flag": T.BOOLEAN(),
    "small": T.TINYINT(),
    "big": T.BIGINT(),
    "double": T.DOUBLE(),
    "price": T.DECIMAL(10, 2),
    "text": T.STRING(),
    "raw": T.BYTES(),
    "day": T.DATE(),
    "at": T.TIMESTAMP(3),
    "instant": T.TIMESTAMP_LTZ(3),
    "tags": T.ARRAY(T.STRING()),
    "counts": T.MAP(T.STRING(), T.INT()),
    "inner": T.ROW([T.FIELD("x", T.INT()), T.FIELD("at", T.TIMESTAMP(3))]),
}
FULL = (
    True, -3, 1 << 40, 0.5, Decimal("12.30"), 'a "text", ü', b"\x00\xff", datetime(2024, 2, 29).date(),
    datetime(2024, 2, 29, 1, 2, 3, 450_000), Instant(1_700_000_000, 123_000_000), ["a", None], {"k": 1},
    [7, datetime(2024, 1, 1)],
)  # fmt: skip
EMPTY = (None,) * len(FULL)


def row_type(columns: dict[str, DataType]) -> RowTypeInfo:
    return RowTypeInfo([type_info_of(kind) for kind in columns.values()], list(columns))


def make(name: str, **options: str) -> Any:
    given = {f"{name}.{key.replace('_', '-')}": value for key, value in options.items()}
    return format_of(TableOptions("t", given), "format", name, MESSAGE_FORMATS)


def decoder(name: str, columns: dict[str, DataType] = ID, **options: str) -> RowDecoder:
    decoder: RowDecoder = make(name, **options).decoder(row_type(columns), list(columns.values()))
    return decoder


def read(reader: RowDecoder, *messages: bytes) -> list[tuple[int, list[Any]]]:
    """Rows with their kinds, as columns give them; those of single messages have to be the same."""
    decoded = reader.decode(messages)
    assert decoded is not None
    kinds = [INSERT] * decoded.rows.num_rows if decoded.kinds is None else decoded.kinds.tolist()
    names = tuple(reader.row_type.field_names)
    rows = [list(row_values(row, names)) for row in records_of(decoded.rows, reader.row_type)]
    changes = [change for message in messages for change in reader.changes(message)]
    alone = batch_of([change.values for change in changes], reader.row_type)
    assert alone.equals(decoded.rows)
    assert [change.kind for change in changes] == kinds
    return list(zip(kinds, rows, strict=True))


@pytest.mark.parametrize("name", ["json", "avro"])
def test_values_of_all_types_come_back(name: str) -> None:
    rows = batch_of([FULL, EMPTY], row_type(ALL))
    messages = make(name).encoder(row_type(ALL), list(ALL.values())).encode(rows, None)
    decoded = decoder(name, ALL).decode(messages)
    assert decoded is not None
    assert decoded.rows.equals(rows)


def test_values_come_back_from_csv() -> None:
    flat = {name: kind for name, kind in ALL.items() if name not in ("counts", "inner", "tags")}
    values = [value for value, name in zip(FULL, ALL, strict=True) if name in flat]
    rows = batch_of([values], row_type(flat))
    messages = make("csv").encoder(row_type(flat), list(flat.values())).encode(rows, None)
    assert messages[0].endswith(b'2024-02-29,"2024-02-29 01:02:03.45","2023-11-14 22:13:20.123Z"')
    decoded = decoder("csv", flat).decode(messages)
    assert decoded is not None
    assert decoded.rows.equals(rows)


@pytest.mark.parametrize(
    ("standard", "text"), [("SQL", "2024-02-29 01:02:03.45"), ("ISO-8601", "2024-02-29T01:02:03.45")]
)
def test_timestamps_are_written_as_the_option_says_also_inside_of_values(standard: str, text: str) -> None:
    columns = {"at": T.TIMESTAMP(3), "all": T.ARRAY(T.TIMESTAMP(3)), "by": T.MAP(T.STRING(), T.TIMESTAMP_LTZ(3))}
    at = datetime(2024, 2, 29, 1, 2, 3, 450_000)
    rows = batch_of([[None] * 3, [at, [at, None], {"k": at.replace(tzinfo=UTC)}]], row_type(columns)).slice(1)
    encoder = format_of(
        TableOptions("t", {"json.timestamp-format.standard": standard}), "format", "json", MESSAGE_FORMATS
    ).encoder(row_type(columns), list(columns.values()))
    (message,) = encoder.encode(rows, None)
    assert message is not None
    assert json.loads(message) == {"at": text, "all": [text, None], "by": {"k": f"{text}Z"}}
    assert read(decoder("json", {"at": T.TIMESTAMP(3)}), message) == [(INSERT, [at])]


def test_decimals_are_rounded_and_null_where_they_do_not_fit() -> None:
    reader = decoder("json", {"d": T.DECIMAL(5, 2), "all": T.ARRAY(T.DECIMAL(5, 2))})
    message = b'{"d": 1.005, "all": [999.995, "1.1", -999.99]}'
    assert read(reader, message) == [(INSERT, [Decimal("1.01"), [None, Decimal("1.10"), Decimal("-999.99")]])]
    largest = "9" * 36 + ".99"
    assert read(decoder("json", {"d": T.DECIMAL(38, 2)}), f'{{"d": "{largest}"}}'.encode()) == [
        (INSERT, [Decimal(largest)])
    ]


@pytest.mark.parametrize(
    ("name", "message", "problem"),
    [
        ("json", b'{"id": "x"}', r"malformed JSON .*field 'id'"),
        ("json", b"[1]", "an object is expected"),
        ("json", b"{", "malformed JSON"),
        ("csv", b"x,a", r"malformed CSV b'x,a': column 'id'"),
        ("csv", b"1", "1 fields for 2 columns"),
        ("debezium-json", b'{"before":null,"after":{"id":1},"op":"u"}', "REPLICA IDENTITY FULL"),
        ("debezium-json", b'{"after":{"id":1},"op":"x"}', "op is 'x'"),
        ("debezium-json", b'{"after":{"id":"x"},"op":"c"}', "field 'id'"),
        ("debezium-json", b'{"after":[1],"op":"c"}', "an object is expected"),
        ("canal-json", b'{"data":[{"id":1}],"type":"QUERY"}', "type is 'QUERY'"),
        ("canal-json", b'{"data":[{"id":1}],"old":[],"type":"UPDATE"}', "malformed JSON"),
        ("maxwell-json", b'{"type":"insert"}', "there is no data"),
        ("ogg-json", b'{"op_type":"D","after":{}}', "the row before the change is null"),
        ("avro", b"\x07", "malformed Avro"),
    ],
)
def test_what_can_not_be_read_says_why(name: str, message: bytes, problem: str) -> None:
    reader = decoder(name)
    assert reader.decode([message]) is None
    with pytest.raises(ValueError, match=problem):
        reader.changes(message)


@pytest.mark.parametrize("name", ["json", "csv", "debezium-json", "canal-json"])
def test_errors_may_be_ignored(name: str) -> None:
    bad = {
        "json": [b'{"id": "x", "name": "a"}', b"{", b"null"],
        "csv": [b"x,a", b'"x'],
        "debezium-json": [b'{"after":{"id":"x","name":"a"},"op":"c"}', b"{", b'{"op":"u"}'],
        "canal-json": [b'{"data":[{"id":"x","name":"a"}],"type":"INSERT"}', b"1", b'{"type":"X"}'],
    }[name]
    assert read(decoder(name, ignore_parse_errors="true"), *bad) == [(INSERT, [None, "a"])]


def test_json_without_a_field() -> None:
    assert read(decoder("json"), b'{"id": 1}') == [(INSERT, [1, None])]
    strict = decoder("json", fail_on_missing_field="true")
    assert strict.decode([b'{"id": 1}']) is None
    with pytest.raises(ValueError, match="field 'name': the field is missing"):
        strict.changes(b'{"id": 1}')
    with pytest.raises(ProgramError, match="exclude each other"):
        decoder("json", fail_on_missing_field="true", ignore_parse_errors="true")


def test_nulls_are_left_out_of_json() -> None:
    options = TableOptions("t", {"json.encode.ignore-null-fields": "true"})
    encoder = format_of(options, "format", "json", MESSAGE_FORMATS).encoder(row_type(ID), list(ID.values()))
    assert encoder.encode(batch_of([[1, None], [None, "null"]], row_type(ID)), None) == [
        b'{"id":1}',
        b'{"name":"null"}',
    ]


def test_small_decimals_have_no_exponent() -> None:
    columns = {"d": T.DECIMAL(20, 10)}
    encoder = make("json").encoder(row_type(columns), list(columns.values()))
    assert encoder.encode(batch_of([[Decimal("0.0000000001")]], row_type(columns)), None) == [b'{"d":0.0000000001}']


def test_the_subject_of_a_schema_follows_from_the_topic() -> None:
    options = TableOptions("t", {"avro-confluent.url": "http://registry:1"})
    table_format = format_of(options, "format", "avro-confluent", MESSAGE_FORMATS)
    with pytest.raises(ProgramError, match=r"'avro-confluent\.subject' is missing"):
        table_format.encoder(row_type(ID), list(ID.values()))
    encoder: Any = table_format.for_topic("orders", "key").encoder(row_type(ID), list(ID.values()))
    assert "orders-key" in vars(encoder._schema).values()


CHANGES = {
    "debezium-json": [
        b'{"before":null,"after":{"id":1,"name":"a"},"op":"c"}',
        b'{"before":{"id":1,"name":"a"},"after":{"id":1,"name":"b"},"op":"u"}',
        b'{"before":{"id":1,"name":"b"},"after":null,"op":"d"}',
    ],
    "canal-json": [
        b'{"data":[{"id":1,"name":"a"}],"type":"INSERT"}',
        b'{"data":[{"id":1,"name":"b"}],"old":[{"name":"a"}],"type":"UPDATE"}',
        b'{"data":null,"type":"CREATE"}',
        b'{"data":[{"id":1,"name":"b"}],"type":"DELETE"}',
    ],
    "maxwell-json": [
        b'{"data":{"id":1,"name":"a"},"type":"insert"}',
        b'{"data":{"id":1,"name":"b"},"old":{"name":"a"},"type":"update"}',
        b'{"data":{"id":1,"name":"b"},"type":"delete"}',
    ],
    "ogg-json": [
        b'{"after":{"id":1,"name":"a"},"op_type":"I"}',
        b'{"before":{"id":1,"name":"a"},"after":{"id":1,"name":"b"},"op_type":"U"}',
        b'{"before":{"id":1,"name":"b"},"op_type":"D"}',
    ],
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_read_and_written(name: str) -> None:
    reader = decoder(name)
    expected = [(INSERT, [1, "a"]), (UPDATE_BEFORE, [1, "a"]), (UPDATE_AFTER, [1, "b"]), (DELETE, [1, "b"])]
    assert read(reader, *CHANGES[name]) == expected
    decoded = reader.decode(CHANGES[name])
    assert decoded is not None
    messages = make(name).encoder(row_type(ID), list(ID.values())).encode(decoded.rows, decoded.kinds)
    # As in Flink, an update is written as a delete and an insert.
    assert read(reader, *messages) == [(INSERT, [1, "a"]), (DELETE, [1, "a"]), (INSERT, [1, "b"]), (DELETE, [1, "b"])]


@pytest.mark.parametrize("name", ["debezium-json", "ogg-json"])
def test_whole_rows_are_read_at_once_where_nobody_needs_metadata(name: str) -> None:
    slow, quick = decoder(name), decoder(name)
    quick.gives_metadata = False
    expected = slow.decode(CHANGES[name])
    found = quick.decode(CHANGES[name])
    assert expected is not None
    assert found is not None
    assert vars(quick)["_quick"] is not None
    assert found.rows.equals(expected.rows)
    assert np.array_equal(found.kinds, expected.kinds)  # type: ignore[arg-type]
    quoted = b'{"before":null,"after":{"id":"1","name":5},"op":"c","op_type":"I"}'
    assert read(quick, quoted) == read(slow, quoted) == [(INSERT, [1, "5"])], (
        "msgspec refuses them, the slow way does not"
    )
    with pytest.raises(ValueError, match="field 'id'"):
        quick.changes(quoted.replace(b'"1"', b'"x"'))


def test_a_field_that_was_null_before_an_update_is_not_one_that_did_not_change() -> None:
    message = b'{"data":[{"id":1,"name":"b"}],"old":[{"name":null}],"type":"UPDATE"}'
    assert read(decoder("canal-json"), message) == [(UPDATE_BEFORE, [1, None]), (UPDATE_AFTER, [1, "b"])]


def test_canal_leaves_other_tables_out() -> None:
    options = TableOptions("t", {"canal-json.database.include": "shop|sho", "canal-json.table.include": "o.*"})
    reader = format_of(options, "format", "canal-json", MESSAGE_FORMATS).decoder(row_type(ID), [])
    row = b'"data":[{"id":1}],"type":"INSERT"'
    names = [("shop", "orders"), ("shops", "orders"), ("shop", "users")]
    messages = [f'{{"database":"{d}","table":"{t}",'.encode() + row + b"}" for d, t in names]
    assert len(read(reader, *messages)) == 1
    with pytest.raises(ProgramError, match="no regular expression"):
        format_of(TableOptions("t", {"canal-json.table.include": "("}), "format", "canal-json", MESSAGE_FORMATS)


def test_metadata_of_debezium_and_its_schema() -> None:
    options = TableOptions("t", {"debezium-json.schema-include": "true"})
    table_format = format_of(options, "format", "debezium-json", MESSAGE_FORMATS)
    message = (
        b'{"schema":{},"payload":{"after":{"id":1},"op":"r","ts_ms":5000,'
        b'"source":{"ts_ms":4000,"db":"shop","table":"orders","pos":7}}}'
    )
    (change,) = table_format.decoder(row_type(ID), []).changes(message)
    assert change.metadata["ingestion-timestamp"] == Instant.of_epoch_milli(5000)
    assert change.metadata["source.timestamp"] == Instant.of_epoch_milli(4000)
    assert (change.metadata["source.database"], change.metadata["source.schema"]) == ("shop", None)
    assert change.metadata["source.properties"] == {"ts_ms": "4000", "db": "shop", "table": "orders", "pos": "7"}
    assert set(change.metadata) == set(table_format.metadata())


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (T.STRING(), "ü", "ü".encode()),
        (T.BYTES(), b"\xff", b"\xff"),
        (T.INT(), -2, b"\xff\xff\xff\xfe"),
        (T.BIGINT(), 1, b"\0\0\0\0\0\0\0\1"),
        (T.DOUBLE(), 1.0, b"\x3f\xf0\0\0\0\0\0\0"),
        (T.BOOLEAN(), True, b"\1"),
    ],
)
def test_raw_values(kind: DataType, value: Any, message: bytes) -> None:
    columns = {"v": kind}
    assert read(decoder("raw", columns), message) == [(INSERT, [value])]
    encoder = make("raw").encoder(row_type(columns), [kind])
    assert encoder.encode(batch_of([[value], [None]], row_type(columns)), None) == [message, None]


def test_raw_options_and_refusals() -> None:
    assert read(decoder("raw", {"v": T.SMALLINT()}, endianness="little-endian"), b"\x01\x00") == [(INSERT, [1])]
    assert read(decoder("raw", {"v": T.STRING()}, charset="latin-1"), b"\xfc") == [(INSERT, ["ü"])]
    with pytest.raises(ProgramError, match="holds one column, and there are 2"):
        decoder("raw")
    with pytest.raises(ProgramError, match="can't hold the column v"):
        decoder("raw", {"v": T.DATE()})
    with pytest.raises(ProgramError, match="no charset"):
        decoder("raw", {"v": T.STRING()}, charset="utf-9")
    with pytest.raises(ValueError, match="are no number of 4"):
        decoder("raw", {"v": T.INT()}).changes(b"1")


def test_csv_options() -> None:
    options = {"field_delimiter": "\\t", "null_literal": "-", "quote_character": "'", "allow_comments": "true"}
    reader = decoder("csv", ID, **options)
    assert read(reader, b"1\t'a\tb'", b"# no row", b"2\t-") == [(INSERT, [1, "a\tb"]), (INSERT, [2, None])]
    with pytest.raises(ProgramError, match=r"'csv\.field-delimiter' is 'ab', and has to be one character"):
        decoder("csv", field_delimiter="ab")
    with pytest.raises(ProgramError, match="says that there is none"):
        decoder("csv", quote_character="'", disable_quote_character="true")


def test_a_format_that_is_not_there_is_refused_by_near_names() -> None:
    with pytest.raises(ProgramError, match="did you mean debezium-json"):
        format_of(TableOptions("t", {}), "format", "debezium", MESSAGE_FORMATS)
    with pytest.raises(ProgramError, match="'format' is 'avro': MAP"):
        decoder("avro", {"m": T.MAP(T.INT(), T.INT())})
    with pytest.raises(ProgramError, match=r"'value\.avro-confluent\.url' is missing"):
        format_of(TableOptions("t", {}), "value.format", "avro-confluent", MESSAGE_FORMATS, "value.").decoder(
            row_type(ID), list(ID.values())
        )


def test_a_batch_of_no_rows_has_its_columns() -> None:
    assert batch_of([], row_type(ALL)).schema.names == list(ALL)
    assert isinstance(batch_of([], row_type(ID)), pa.RecordBatch)
