"""Messages of a schema registry in a real Kafka: schemas that have changed, and messages that can't be read, with their
places. The registry is a stand-in that speaks its REST API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from firesteel.common import JobClient, Row, Types, WatermarkStrategy
from firesteel.common.serialization import DeserializationSchema, SerializationSchema
from firesteel.core.errors import FiresteelError
from firesteel.datastream import DataStream, OutputTag
from firesteel.datastream.connectors.file_system import MalformedPolicy, MalformedToSideOutput
from firesteel.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from firesteel.datastream.formats.avro import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
)
from firesteel.datastream.formats.json import (
    ConfluentRegistryJsonDeserializationSchema,
    ConfluentRegistryJsonSerializationSchema,
)
from firesteel.datastream.formats.protobuf import (
    ConfluentRegistryProtobufDeserializationSchema,
    ConfluentRegistryProtobufSerializationSchema,
    ProtobufMessage,
)
from tests.integration.embedded.programs import ended, new_environment, rest_of
from tests.integration.recovery.places import Embedded, embedded
from tests.servers.kafka.server import KafkaCluster
from tests.unit.connectors.registries import Registry

pytestmark = [pytest.mark.may_skip(reason="Kafka comes by Maven"), pytest.mark.long, pytest.mark.timeout(300)]

ROW = Types.ROW_NAMED(["id", "note"], [Types.LONG(), Types.STRING()])
OLD_ROW = Types.ROW_NAMED(["id"], [Types.LONG()])


@pytest.fixture(scope="module")
def place() -> Iterator[Embedded]:
    with embedded() as place:
        yield place


@dataclass(frozen=True)
class Kind:
    """A format.

    Attributes:
        old, new: write a row with the schema that was, and with the one that is.
        reads: rows of the schema that is.
        row_type: of these.
        missing: what a row of the old schema has in the new field.
        poison: a message that is none.
    """

    old: SerializationSchema
    new: SerializationSchema
    reads: DeserializationSchema
    row_type: Any
    missing: str | None
    poison: bytes


def avro(url: str) -> Kind:
    fields = [{"name": "id", "type": "long"}]
    old = json.dumps({"type": "record", "name": "r", "fields": fields})
    note = {"name": "note", "type": "string", "default": "-"}
    new = json.dumps({"type": "record", "name": "r", "fields": [*fields, note]})
    reads = ConfluentRegistryAvroDeserializationSchema(new, url)
    return Kind(
        ConfluentRegistryAvroSerializationSchema("orders-value", old, url),
        ConfluentRegistryAvroSerializationSchema("orders-value", new, url),
        reads, reads.get_produced_type(), "-", b"\0\0\0\0\x63\2",
    )  # fmt: skip


def json_schema(url: str) -> Kind:
    properties = {"id": {"type": "integer"}}
    old = json.dumps({"type": "object", "properties": properties})
    new = json.dumps({"type": "object", "properties": properties | {"note": {"type": "string"}}})
    return Kind(
        ConfluentRegistryJsonSerializationSchema("orders-value", old, OLD_ROW, url),
        ConfluentRegistryJsonSerializationSchema("orders-value", new, ROW, url),
        ConfluentRegistryJsonDeserializationSchema(ROW, url), ROW, None, b'\0\0\0\0\1{"id": "x"}',
    )  # fmt: skip


def message_of(*names: str) -> ProtobufMessage:
    files = descriptor_pb2.FileDescriptorSet()
    message = files.file.add(name="order.proto", syntax="proto3").message_type.add(name="Order")
    kinds = {"id": message.field.add().TYPE_INT64, "note": message.field[0].TYPE_STRING}
    del message.field[:]
    for number, name in enumerate(names, 1):
        message.field.add(name=name, number=number, type=kinds[name], label=1)
    return ProtobufMessage(files.SerializeToString(), "Order")


def protobuf(url: str) -> Kind:
    old, new = message_of("id"), message_of("id", "note")
    return Kind(
        ConfluentRegistryProtobufSerializationSchema("orders-value", old, url),
        ConfluentRegistryProtobufSerializationSchema("orders-value", new, url),
        ConfluentRegistryProtobufDeserializationSchema(new), new.row_type, "", b"\0\0\0\0\1\0\x08",
    )  # fmt: skip


def stream_of(kafka: KafkaCluster, topic: str, kind: Kind, policy: MalformedPolicy) -> DataStream:
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(kafka.bootstrap)
        .set_topics(topic)
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(kind.reads)
        .on_malformed(policy)
        .build()
    )
    return new_environment(1).from_source(source, WatermarkStrategy.no_watermarks(), "kafka")


def skipped(job: JobClient) -> float:
    """Messages that were not read, as the job counts them; its vertices are the source and its enumerator."""
    counts = []
    for vertex in rest_of(job)["vertices"]:
        path = f"/vertices/{vertex['id']}/subtasks/metrics"
        names = [metric["id"] for metric in rest_of(job, path) if metric["id"].endswith("numRecordsInErrors")]
        counts += [rest_of(job, f"{path}?get={name}&agg=sum")[0]["sum"] for name in names]
    (count,) = counts
    return float(count)


@pytest.mark.parametrize("make", [avro, json_schema, protobuf])
def test_schemas_that_have_changed_and_messages_that_can_not_be_read(
    kafka: KafkaCluster, place: Embedded, make: Callable[[str], Kind]
) -> None:
    topic, registry = kafka.create_topic(), Registry()
    with registry.serving() as url:
        kind = make(url)
        kafka.produce(topic, [*((None, kind.old.serialize(Row(id=n))) for n in range(4)), (None, kind.poison)], 0)
        environment = new_environment(1)
        schema = KafkaRecordSerializationSchema.builder().set_topic(topic).set_value_serialization_schema(kind.new)
        sink = (
            KafkaSink.builder()
            .set_bootstrap_servers(kafka.bootstrap)
            .set_record_serializer(schema.build())
            .set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
            .build()
        )
        rows = [Row(id=number, note=f"n{number}") for number in range(4, 8)]
        environment.from_collection(rows, kind.row_type).sink_to(sink)
        environment.execute("write")
        assert len(registry.subjects["orders-value"]) == 2, "two versions of the schema"
        expected = [*((number, kind.missing) for number in range(4)), *((row.id, row.note) for row in rows)]

        with pytest.raises(FiresteelError, match=rf"topic '{topic}', partition 0, offset 4: "):
            list(stream_of(kafka, topic, kind, MalformedPolicy.FAIL).execute_and_collect())

        skipping = stream_of(kafka, topic, kind, MalformedPolicy.SKIP)
        skipping.filter(lambda row: False).print()
        job = skipping.get_execution_environment().execute_async("skip")
        assert ended(job) == "FINISHED"
        assert skipped(job) == 1
        with stream_of(kafka, topic, kind, MalformedPolicy.SKIP).execute_and_collect() as results:
            assert [(row.id, row.note) for row in results] == expected

        tag: OutputTag[Any] = OutputTag("malformed")
        main = stream_of(kafka, topic, kind, MalformedPolicy.EMIT).process(
            MalformedToSideOutput(tag), output_type=kind.row_type
        )
        aside = main.get_side_output(tag).map(lambda bad: (bad.path, bad.offset, bad.data))
        with main.map(lambda row: (row.id, row.note)).union(aside).execute_and_collect() as results:
            results_of_both = list(results)
        assert (f"topic '{topic}', partition 0", 4, kind.poison) in results_of_both
        assert sorted(pair for pair in results_of_both if len(pair) == 2) == expected
