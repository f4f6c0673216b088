"""Confluent's wire format: schemas of a registry, which may be away, or not know one."""

from __future__ import annotations

import email.message
import io
import json
import pickle
import urllib.error
from typing import Any

import pytest

from firesteel.connectors.formats.avro_schema import AvroSchema, fastavro_module
from firesteel.connectors.formats.confluent_avro import ConfluentRegistryAvroDeserializationSchema, SchemaRegistry
from firesteel.core.errors import MalformedDataError, ProgramError
from firesteel.expressions.values import records_of

OLD = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]}
NEW = {
    "type": "record", "name": "r",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": "-"}],
}  # fmt: skip
SCHEMAS = {1: {"schema": json.dumps(OLD)}, 2: {"schema": json.dumps(NEW)}, 3: {"schema": "{}", "schemaType": "JSON"}}


class Registry:
    """Answers what stands in ``SCHEMAS``, after some trouble."""

    def __init__(self, *trouble: Exception) -> None:
        self.asked: list[str] = []
        self._trouble = list(trouble)

    def __call__(self, url: str) -> bytes:
        self.asked.append(url)
        if self._trouble:
            raise self._trouble.pop(0)
        number = int(url.rpartition("/")[2])
        if number not in SCHEMAS:
            raise refusal(404)
        return json.dumps(SCHEMAS[number]).encode()


def refusal(code: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://registry", code, "no", email.message.Message(), io.BytesIO())


def message(number: int, definition: Any, record: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro_module().schemaless_writer(stream, AvroSchema(definition).parsed, record)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


def schema(registry: Registry) -> ConfluentRegistryAvroDeserializationSchema:
    return ConfluentRegistryAvroDeserializationSchema(json.dumps(NEW), "http://registry:8081/", fetch=registry)


MESSAGES = [message(1, OLD, {"id": 5}), message(2, NEW, {"id": 6, "note": "x"}), message(1, OLD, {"id": 7})]


def test_records_of_all_schemas_are_rows_of_one() -> None:
    registry = Registry()
    read = schema(registry)
    rows = [read.deserialize(one) for one in MESSAGES]
    assert [(row.id, row.note) for row in rows] == [(5, "-"), (6, "x"), (7, "-")]
    assert registry.asked == ["http://registry:8081/schemas/ids/1", "http://registry:8081/schemas/ids/2"]
    batch = read.deserialize_columns(MESSAGES)
    assert batch is not None
    assert records_of(batch) == rows
    assert pickle.loads(pickle.dumps(read)).get_produced_type() == read.get_produced_type()


@pytest.mark.parametrize("odd", [b"", b"\0\0\0\0", b"\1" + MESSAGES[0][1:], MESSAGES[0] + b"x", MESSAGES[0][:-1]])
def test_malformed_messages(odd: bytes) -> None:
    read = schema(Registry())
    assert read.deserialize_columns([MESSAGES[0], odd]) is None
    with pytest.raises(MalformedDataError, match="malformed Avro"):
        read.deserialize(odd)


@pytest.mark.parametrize(("number", "reason"), [(9, "has no schema 9"), (3, "is one of JSON, not of Avro")])
def test_schemas_that_are_not_there(number: int, reason: str) -> None:
    with pytest.raises(MalformedDataError, match=reason):
        schema(Registry()).deserialize(message(number, NEW, {"id": 1, "note": ""}))


def registry(*trouble: Exception) -> tuple[SchemaRegistry, list[float]]:
    waits: list[float] = []
    return SchemaRegistry("http://user:secret@registry", Registry(*trouble), waits.append), waits


def test_a_registry_that_is_away_is_asked_again() -> None:
    asked, waits = registry(OSError("away"), refusal(503), TimeoutError())
    assert asked.schema(1).definition == OLD
    assert waits == [0.2, 0.4, 0.8]
    assert "secret" not in asked.url


def test_a_registry_that_stays_away_or_refuses() -> None:
    asked, waits = registry(*[OSError("away")] * 5)
    with pytest.raises(ConnectionError, match="the registry at http://registry does not answer: away"):
        asked.schema(1)
    assert len(waits) == 4
    asked, _ = registry(refusal(401))
    with pytest.raises(ProgramError, match="refuses schema 1"):
        asked.schema(1)
    with pytest.raises(ProgramError, match="a schema registry is at"):
        SchemaRegistry("registry:8081")
