"""JSON behind the number of its JSON Schema."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from firesteel.common import Row, Types
from firesteel.core.errors import MalformedDataError, ProgramError
from firesteel.expressions.values import column_of, records_of
from firesteel_formats.confluent_json import (
    ConfluentRegistryJsonDeserializationSchema,
    ConfluentRegistryJsonSerializationSchema,
)
from firesteel_formats.schema_registry import framed
from tests.unit.connectors.registries import Registry

ROW = Types.ROW_NAMED(["id", "note"], [Types.LONG(), Types.STRING()])
SCHEMA: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "required": ["id"],
    "properties": {"id": {"type": "integer", "minimum": 0}, "note": {"type": ["string", "null"], "maxLength": 5}},
}  # fmt: skip


def reader(registry: Registry, validate: bool = False) -> ConfluentRegistryJsonDeserializationSchema:
    return ConfluentRegistryJsonDeserializationSchema(ROW, "http://registry", validate=validate, fetch=registry)


def writer(registry: Registry, **more: Any) -> ConfluentRegistryJsonSerializationSchema:
    return ConfluentRegistryJsonSerializationSchema(
        "orders-value", json.dumps(SCHEMA), ROW, "http://registry", fetch=registry, **more
    )


def test_rows_come_back() -> None:
    registry = Registry()
    write = pickle.loads(pickle.dumps(writer(registry)))
    rows = [Row(id=number, note="x" * number) for number in range(3)]
    written = [write.serialize(row) for row in rows]
    assert written[1] == b'\0\0\0\0\1{"id":1,"note":"x"}'
    read = reader(registry)
    assert [read.deserialize(message) for message in written] == rows
    batch = read.deserialize_columns(written)
    assert batch is not None
    assert records_of(batch) == rows
    assert write.serialize_columns(batch) == written
    assert column_of([1], "id", Types.LONG()).to_pylist() == [1]


def test_reading_asks_no_registry_unless_it_validates() -> None:
    registry = Registry()
    number = registry.add(json.dumps(SCHEMA), "JSON")
    reader(registry).deserialize(framed(number, b'{"id": 1}'))
    assert registry.asked == []
    read = reader(registry, validate=True)
    assert not read.gives_columns
    for _ in range(2):
        assert read.deserialize(framed(number, b'{"id": 1}')) == Row(id=1, note=None)
    assert registry.asked == ["/schemas/ids/1"]


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b'{"id": 1}', "does not begin with a zero"),
        (framed(1, b'{"id": -1}'), "not valid by its JSON Schema: .*id.* 0"),
        (framed(1, b'{"note": "x"}'), "not valid by its JSON Schema"),
        (framed(1, b"{"), "malformed JSON"),
        (framed(2, b'{"id": 1}'), "is one of AVRO, not of Json"),
        (framed(9, b'{"id": 1}'), "has no schema 9"),
    ],
)
def test_what_is_not_valid_is_malformed(message: bytes, error: str) -> None:
    registry = Registry()
    registry.add(json.dumps(SCHEMA), "JSON")
    registry.add('"string"')
    with pytest.raises(MalformedDataError, match=error):
        reader(registry, validate=True).deserialize(message)


def test_a_row_that_is_not_valid_is_not_written() -> None:
    write = writer(Registry(), validate=True)
    assert not write.takes_columns
    assert write.serialize(Row(id=1, note=None))
    with pytest.raises(ValueError, match=r"not valid by its JSON Schema: .*note"):
        write.serialize(Row(id=1, note="too long"))


def test_a_schema_that_uses_another_one() -> None:
    registry = Registry()
    registry.add(json.dumps({"type": "integer", "minimum": 0}), "JSON", subject="number")
    uses = {"type": "object", "properties": {"id": {"$ref": "number.json"}}}
    reference = {"name": "number.json", "subject": "number", "version": 1}
    number = registry.add(json.dumps(uses), "JSON", [reference])
    read = reader(registry, validate=True)
    assert read.deserialize(framed(number, b'{"id": 1}')).id == 1
    with pytest.raises(MalformedDataError, match="not valid"):
        read.deserialize(framed(number, b'{"id": -1}'))


def test_a_schema_that_is_used_may_use_others() -> None:
    registry = Registry()
    registry.add(json.dumps({"type": "integer", "minimum": 0}), "JSON", subject="number")
    to_number = {"name": "number.json", "subject": "number", "version": 1}
    key = {"type": "object", "properties": {"n": {"$ref": "number.json"}}}
    registry.add(json.dumps(key), "JSON", [to_number], subject="key")
    uses = {"type": "object", "properties": {"note": {"anyOf": [{"$ref": "key.json"}, {"type": "string"}]}}}
    number = registry.add(json.dumps(uses), "JSON", [{"name": "key.json", "subject": "key", "version": 1}])
    read = reader(registry, validate=True)
    assert read.deserialize(framed(number, b'{"id": 1, "note": "x"}')) == Row(id=1, note="x")
    with pytest.raises(MalformedDataError, match="not valid"):
        read.deserialize(framed(number, b'{"id": 1, "note": {"n": -1}}'))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "is no JSON"),
        (
            '{"$schema": "https://json-schema.org/draft/2020-12/schema"}',
            "and not of 'https://json-schema.org/draft/2020",
        ),
        ('{"type": "number of things"}', "the JSON Schema is not valid"),
        ('{"properties": {"id": {"$ref": "else.json"}}}', "refers to"),
    ],
)
def test_schemas_that_can_not_be(schema: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        ConfluentRegistryJsonSerializationSchema("s", schema, ROW, "http://r", validate=True, fetch=Registry())
