"""Confluent's wire format: schemas of a registry, which may be away, or not know one."""

from __future__ import annotations

import http.client
import io
import json
import pickle
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from firesteel.common import Row
from firesteel.core.errors import MalformedDataError, ProgramError
from firesteel.expressions.values import records_of
from firesteel_formats.avro_schema import AvroSchema, fastavro_module
from firesteel_formats.confluent_avro import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
)
from firesteel_formats.schema_registry import RegisteredSchema, SchemaRegistry, UnknownSchemaError
from tests.unit.connectors.registries import Registry, refusal

OLD = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]}
NEW = {
    "type": "record", "name": "r",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": "-"}],
}  # fmt: skip


def filled(*trouble: Exception) -> Registry:
    """Has OLD as 1, NEW as 2, and one of another kind as 3."""
    registry = Registry(*trouble)
    assert [registry.add(json.dumps(OLD)), registry.add(json.dumps(NEW)), registry.add("{}", "JSON")] == [1, 2, 3]
    return registry


def message(number: int, definition: Any, record: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro_module().schemaless_writer(stream, AvroSchema(definition).parsed, record)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


def schema(registry: Registry) -> ConfluentRegistryAvroDeserializationSchema:
    return ConfluentRegistryAvroDeserializationSchema(json.dumps(NEW), "http://registry:8081/", fetch=registry)


MESSAGES = [message(1, OLD, {"id": 5}), message(2, NEW, {"id": 6, "note": "x"}), message(1, OLD, {"id": 7})]


def test_records_of_all_schemas_are_rows_of_one() -> None:
    registry = filled()
    read = schema(registry)
    rows = [read.deserialize(message) for message in MESSAGES]
    assert [(row.id, row.note) for row in rows] == [(5, "-"), (6, "x"), (7, "-")]
    assert registry.asked == ["/schemas/ids/1", "/schemas/ids/2"]
    batch = read.deserialize_columns(MESSAGES)
    assert batch is not None
    assert records_of(batch) == rows
    assert pickle.loads(pickle.dumps(read)).get_produced_type() == read.get_produced_type()


@pytest.mark.parametrize("odd", [b"", b"\0\0\0\0", b"\1" + MESSAGES[0][1:], MESSAGES[0] + b"x", MESSAGES[0][:-1]])
def test_malformed_messages(odd: bytes) -> None:
    read = schema(filled())
    assert read.deserialize_columns([MESSAGES[0], odd]) is None
    with pytest.raises(MalformedDataError, match="malformed Avro"):
        read.deserialize(odd)


def test_records_are_not_malformed_because_an_answer_of_the_registry_broke_off() -> None:
    registry = filled(*[http.client.IncompleteRead(b"{")] * 5)
    read = ConfluentRegistryAvroDeserializationSchema(json.dumps(NEW), "http://registry", fetch=registry)
    read._registry = SchemaRegistry("http://registry", None, registry, lambda seconds: None)
    with pytest.raises(ConnectionError):
        read.deserialize(MESSAGES[0])
    assert read.deserialize(MESSAGES[0]).id == 5


@pytest.mark.parametrize(("number", "reason"), [(9, "has no schema 9"), (3, "is one of JSON, not of Avro")])
def test_schemas_that_are_not_there(number: int, reason: str) -> None:
    with pytest.raises(MalformedDataError, match=reason):
        schema(filled()).deserialize(message(number, NEW, {"id": 1, "note": ""}))


def test_a_schema_that_uses_another_one() -> None:
    registry = filled()
    inner = {"type": "record", "name": "shop.money", "fields": [{"name": "cents", "type": "long"}]}
    outer = {"type": "record", "name": "shop.order", "fields": [{"name": "total", "type": "shop.money"}]}
    registry.add(json.dumps(inner), subject="money")
    reference = {"name": "shop.money", "subject": "money", "version": 1}
    number = registry.add(json.dumps(outer), references=[reference])
    whole = {**outer, "fields": [{"name": "total", "type": inner}]}
    read = ConfluentRegistryAvroDeserializationSchema(json.dumps(whole), "http://registry", fetch=registry)
    assert read.deserialize(message(number, whole, {"total": {"cents": 250}})) == Row(total=Row(cents=250))


def test_rows_are_written_with_a_schema_that_is_registered_once() -> None:
    registry = filled()
    write = ConfluentRegistryAvroSerializationSchema("orders-value", json.dumps(NEW), "http://registry", fetch=registry)
    written = [write.serialize(Row(id=number, note="x")) for number in range(3)]
    assert registry.asked == ["/subjects/orders-value/versions"]
    assert [schema(registry).deserialize(message).id for message in written] == [0, 1, 2]
    registry.closed = True
    other = ConfluentRegistryAvroSerializationSchema("orders-value", json.dumps(OLD), "http://registry", fetch=registry)
    with pytest.raises(ProgramError, match=r"refuses schema of subject 'orders-value'.*not compatible"):
        other.serialize(Row(id=1))
    strict = ConfluentRegistryAvroSerializationSchema(
        "a/b", json.dumps(OLD), "http://registry", auto_register=False, fetch=registry
    )
    with pytest.raises(UnknownSchemaError, match="has no schema of subject 'a/b'"):
        strict.serialize(Row(id=1))
    assert registry.asked[-1] == "/subjects/a%2Fb"


def registry(*trouble: Exception) -> tuple[SchemaRegistry, list[float]]:
    waits: list[float] = []
    return SchemaRegistry("http://user:secret@registry", None, filled(*trouble), waits.append), waits


def test_a_registry_that_is_away_is_asked_again() -> None:
    client, waits = registry(http.client.IncompleteRead(b"{"), refusal(503), refusal(429))
    assert client.schema(1, "AVRO") == RegisteredSchema("AVRO", json.dumps(OLD))
    assert waits == [0.2, 0.4, 0.8]
    assert "secret" not in client.url


def test_certificates_that_can_not_be_read_are_no_silence(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    for name in ("missing", "empty"):
        configs = {"schema.registry.ssl.ca.location": str(tmp_path / name)}
        registry = SchemaRegistry("https://registry.invalid", configs, None, lambda seconds: pytest.fail("it waits"))
        with pytest.raises(ProgramError, match=rf"ca\.location: .*{name} can't be read"):
            registry.schema(1, "AVRO")


def test_a_registry_that_stays_away_or_refuses() -> None:
    client, waits = registry(*[OSError("away")] * 5)
    with pytest.raises(ConnectionError, match="the registry at http://registry does not answer: away"):
        client.schema(1, "AVRO")
    assert len(waits) == 4
    client, waits = registry(*[http.client.IncompleteRead(b"{")] * 5)
    with pytest.raises(ConnectionError, match="does not answer: IncompleteRead"):
        client.schema(1, "AVRO")
    assert len(waits) == 4
    cut_off = refusal(401)
    cut_off.read = cut_off.fp.read = Mock(side_effect=http.client.IncompleteRead(b""))  # type: ignore[method-assign]
    client, _ = registry(cut_off)
    with pytest.raises(ProgramError, match="refuses schema 1"):
        client.schema(1, "AVRO")
    client, _ = registry(refusal(401))
    with pytest.raises(ProgramError, match="refuses schema 1"):
        client.schema(1, "AVRO")


@pytest.mark.parametrize(
    ("url", "configs", "message"),
    [
        ("registry:8081", {}, "a schema registry is at"),
        ("http://u:secret/x@r", {}, "a schema registry is at"),
        ("http://r:8081/of secret", {}, "a schema registry is at"),
        ("http://r", {"basic.auth.user": "x"}, "has no setting 'basic.auth.user'"),
        ("http://u:secret@r", {"bearer.auth.token": "secret"}, "not both"),
    ],
)
def test_settings_that_can_not_be(url: str, configs: dict[str, str], message: str) -> None:
    with pytest.raises(ProgramError, match=message) as caught:
        SchemaRegistry(url, configs)
    assert "secret" not in str(caught.value)
