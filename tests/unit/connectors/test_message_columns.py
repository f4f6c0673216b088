"""Many messages at once, as columns, are what they are one by one; whatever is odd is left to that."""

from __future__ import annotations

import datetime
import json
import pickle
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from firesteel.common.serialization import DeserializationSchema
from firesteel.common.typeinfo import Types
from firesteel.connectors.formats.csv_rows import CsvRowDeserializationSchema
from firesteel.connectors.formats.json_rows import JsonRowDeserializationSchema
from firesteel.core.errors import MalformedDataError
from firesteel.expressions.values import records_of
from firesteel_formats.avro_rows import AvroRowDeserializationSchema, AvroRowSerializationSchema

NESTED = Types.ROW_NAMED(["x"], [Types.INT()])
ROW = Types.ROW_NAMED(
    ["id", "name", "price", "small", "ok", "at", "tags", "inner"],
    [
        Types.LONG(), Types.STRING(), Types.DOUBLE(), Types.FLOAT(), Types.BOOLEAN(), Types.SQL_TIMESTAMP(),
        Types.LIST(Types.INT()), NESTED,
    ],
)  # fmt: skip
FLAT = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])


def json_schema(row_type: Any = ROW, *, complete: bool = False) -> JsonRowDeserializationSchema:
    builder = JsonRowDeserializationSchema.builder().type_info(row_type)
    if complete:
        builder.fail_on_missing_field()
    return builder.build()


def one_by_one(schema: DeserializationSchema, messages: list[bytes]) -> list[Any] | None:
    """The records; None if one is malformed, or none."""
    try:
        rows = [schema.deserialize(message) for message in messages]
    except MalformedDataError:
        return None
    return None if None in rows else rows


def same(schema: DeserializationSchema, messages: list[bytes]) -> bool:
    """Whether columns came; they are what rows are."""
    assert schema.gives_columns
    batch = schema.deserialize_columns(messages)
    rows = one_by_one(schema, messages)
    if batch is None:
        return False
    assert rows is not None, f"columns of what is malformed: {messages}"
    assert batch.num_rows == len(messages)
    records = records_of(batch)
    assert records == rows
    assert [[type(value) for value in row] for row in records] == [[type(value) for value in row] for row in rows]
    return True


GOOD = {
    "id": 1, "name": "é\n\"", "price": 0.1, "small": 0.1, "ok": True, "at": "2026-02-03 04:05:06.789",
    "tags": [1, None], "inner": {"x": 5}, "unknown": {"deep": [1, {}]},
}  # fmt: skip


def encoded(*values: Any) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


def test_plain_json_comes_as_columns() -> None:
    assert same(json_schema(), encoded(GOOD, {}, {**GOOD, "name": None, "price": 3, "inner": None, "tags": []}))
    assert same(pickle.loads(pickle.dumps(json_schema())), encoded(GOOD))
    raw = json.dumps(GOOD, ensure_ascii=False).encode()
    assert same(json_schema(), [raw, raw])


@pytest.mark.parametrize(
    "odd",
    [
        b"", b" ", b"null", b"[]", b"{", b"{}{}", b"{}\n{}", b" {}", b"{} ", b'{"id": NaN}', b'{"price": NaN}',
        b'{"price":-Infinity}', b'{"x": [NaN]}', b'{"id": 1.0}', b'{"id": "1"}', b'{"id": 9223372036854775808}',
        b'{"name": 5}', b'{"name": "\xff"}', b'{"x": "\xff"}', b'{"name": "\\ud800"}', b'{"id": 1, "id": 2}',
        b'{"small": 1e39}', b'{"price": 1e400}', b'{"price": "1.5"}', b'{"at": "yesterday"}', b'{"at": 5}',
        b'{"ok": "true"}', b'{"inner": 5}', b'{"inner": {"x": "a"}}', b'{"tags": [1.5]}', b'{"tags": {}}',
        b'{"id": 1,}', b"{'id': 1}", b'{"id": 01}', b"\xef\xbb\xbf{}", b'{"at": "2026-02-30 00:00:00"}',
    ],
)  # fmt: skip
def test_odd_json_is_never_read_in_another_way(odd: bytes) -> None:
    for messages in ([odd], [b"{}", odd], [odd, b"{}"], [b"{}", odd, b" "], [odd, b""]):
        same(json_schema(), messages)
        same(json_schema(FLAT, complete=True), messages)


def test_odd_json_is_left_to_the_reader_of_rows() -> None:
    for odd in (b"", b"{}{}", b'{"price": NaN}', b'{"id": "1"}', b'{"name": "\xff"}', b'{"x": "\xff"}', b"{}\n{}"):
        assert json_schema().deserialize_columns([b"{}", odd]) is None, odd
    assert same(json_schema(), encoded({"name": "Information NaN"})), "words in text are text"


def test_missing_fields_are_found() -> None:
    schema = json_schema(FLAT, complete=True)
    assert same(schema, encoded({"id": 1, "name": "a"}))
    assert not same(schema, encoded({"id": 1}))
    assert not json_schema(ROW, complete=True).gives_columns, "what is missing deep inside can't be told from null"


def test_types_that_arrow_does_not_read_have_no_columns() -> None:
    for odd in (Types.BIG_DEC(), Types.MAP(Types.STRING(), Types.INT()), Types.PRIMITIVE_ARRAY(Types.BYTE())):
        assert not json_schema(Types.ROW_NAMED(["x"], [odd])).gives_columns
    assert not json_schema(Types.LONG()).gives_columns


SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(max_size=5)
    | st.sampled_from(["2026-01-01 00:00:00", "1", "NaN"])
)  # fmt: skip
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner))
OBJECTS = st.dictionaries(st.sampled_from([*ROW.field_names, "other"]), VALUES, max_size=4)


@given(st.lists(OBJECTS, min_size=1, max_size=4))
@example([{"price": 5e-324, "small": 1e-46}])
@example([{"price": -0.0, "small": -0.0, "id": 0}])
def test_any_json_is_the_same_or_left(objects: list[dict[str, Any]]) -> None:
    same(json_schema(), encoded(*objects))


def csv_schema(**settings: Any) -> CsvRowDeserializationSchema:
    builder = CsvRowDeserializationSchema.Builder(FLAT)
    for name, value in settings.items():
        getattr(builder, name)(value)
    return builder.build()


def test_csv_comes_as_columns() -> None:
    assert same(csv_schema(), [b"1,a", b'2,"b,c"', b",", b"4,\xc3\xa9"])
    assert same(csv_schema(), [b"1,a\n", b"2,b\n"])
    assert same(csv_schema(set_field_delimiter=";", set_null_literal="-"), [b"1;-", b"-;x"])


@pytest.mark.parametrize(
    "odd",
    [b"", b"\n", b"1", b"1,a,b", b"x,a", b"1,a\n2,b", b'1,"a', b'1,"a\nb"', b"1,\xff", b"1,a\r\n", b"1,a\n", b"#1,a"],
)
def test_odd_csv_is_never_read_in_another_way(odd: bytes) -> None:
    for messages in ([odd], [b"1,a", odd], [odd, b"1,a"], [odd, b"1,a\n"], [odd, b""]):
        same(csv_schema(), messages)
        same(csv_schema(set_allow_comments=True), messages)


AVRO = json.dumps(
    {
        "type": "record", "name": "r", "fields": [
            {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "tags", "type": {"type": "array", "items": "int"}},
        ],
    }
)  # fmt: skip


def test_avro_comes_as_columns() -> None:
    write = AvroRowSerializationSchema(avro_schema_string=AVRO)
    read = AvroRowDeserializationSchema(avro_schema_string=AVRO)
    moment = datetime.datetime(2026, 2, 3, 4, 5, 6, 789000)
    messages = [
        write.serialize({"id": number, "name": None if number else "a", "at": moment, "tags": [1, number]})
        for number in range(3)
    ]
    assert same(read, messages)
    assert same(pickle.loads(pickle.dumps(read)), messages)
    for odd in (b"", messages[0][:-1], messages[0] + b"x"):
        assert not same(read, [messages[0], odd])
