"""What a Kafka sink is built of, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from firesteel.common import SimpleStringSchema
from firesteel.core.errors import ProgramError
from firesteel.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaProducerRecord,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSinkBuilder,
    KafkaTopicSelector,
)

SCHEMA = (
    KafkaRecordSerializationSchema.builder().set_topic("t").set_value_serialization_schema(SimpleStringSchema()).build()
)


def builder() -> KafkaSinkBuilder:
    return KafkaSink.builder().set_bootstrap_servers("a:1").set_record_serializer(SCHEMA)


def exactly() -> KafkaSinkBuilder:
    return builder().set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix("p")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: KafkaSink.builder().set_record_serializer(SCHEMA), "set_bootstrap_servers"),
        (lambda: KafkaSink.builder().set_bootstrap_servers("a:1"), "set_record_serializer"),
        (lambda: builder().set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE), "set_transactional_id_prefix"),
        (lambda: exactly().set_property("acks", "1"), "EXACTLY_ONCE needs acks=all"),
        (lambda: exactly().set_property("enable.idempotence", "false"), "enable.idempotence=true"),
        (lambda: exactly().set_property("transaction.timeout.ms", "0"), "at least 1"),
        (lambda: builder().set_property("delivery.timeout.ms", "0"), r"delivery\.timeout\.ms is at least 1"),
        (lambda: builder().set_property("linger.ms", "soon"), "whole number"),
        (lambda: builder().set_property("retrys", "3"), "'retrys' is not supported"),
        (lambda: builder().set_property("key.serializer", "x"), "record serializer makes the bytes"),
    ],
)
def test_what_is_missing_or_wrong_is_told(build: Callable[[], KafkaSinkBuilder], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        build().build()


def test_what_a_sink_has_no_use_for_is_left_out_and_named(caplog: pytest.LogCaptureFixture) -> None:
    """PyFlink's own examples give a sink the properties of their consumer."""
    sink = builder().set_property("group.id", "test_group_1").set_property("transaction.timeout.ms", "1000").build()
    assert not sink._settings.properties.keys() & {"group.id", "transaction.timeout.ms"}
    assert [record.getMessage() for record in caplog.records] == [
        "Kafka sink: properties without effect are left out: group.id, transaction.timeout.ms"
    ]
    assert exactly().set_property("transaction.timeout.ms", "1000").build()._settings.properties[
        "transaction.timeout.ms"
    ] == "1000"  # fmt: skip


def test_secrets_are_in_no_plan_and_no_text() -> None:
    sink = exactly().set_property("security.protocol", "SASL_SSL").set_property("sasl.mechanism", "PLAIN")
    sink.set_property("sasl.username", "u").set_property("sasl.password", "very secret")
    built = sink.build()
    assert "very secret" not in f"{built.describe()}{built._settings}"
    described = built.describe()
    assert (described["guarantee"], described["transactionalIdPrefix"], described["acks"]) == (
        "EXACTLY_ONCE",
        "p",
        "all",
    )
    assert pickle.loads(pickle.dumps(built)).describe() == described


class ByLength(KafkaTopicSelector):
    def apply(self, data: Any) -> str:
        return f"of-{len(data)}"


def test_records_are_made_one_by_one_and_in_batches_alike() -> None:
    parts = KafkaRecordSerializationSchema.builder().set_value_serialization_schema(SimpleStringSchema())
    parts.set_key_serialization_schema(SimpleStringSchema("UTF-16LE"))
    texts, stamps = ["a", "bb"], [5, -(1 << 63)]
    schema = parts.set_topic("t").build()
    expected = [
        KafkaProducerRecord("t", b"a", b"a\0", None, 5),
        KafkaProducerRecord("t", b"bb", b"b\0b\0", None, None),
    ]
    assert list(schema.serialize_all(texts, stamps)) == expected
    assert [schema.serialize("a", 5), schema.serialize("bb", None)] == expected
    assert [record.timestamp for record in schema.serialize_all(texts, None) if record] == [None, None]
    chosen = parts.set_topic_selector(ByLength()).build()
    assert [record.topic for record in chosen.serialize_all(texts, stamps) if record] == ["of-1", "of-2"]
    placed = parts.set_partitioner(lambda record, key, value, topic, partitions: partitions[-1]).build()
    placed.open(lambda topic: (0, 1, 2))
    assert [record.partition for record in placed.serialize_all(texts, None) if record] == [2, 2]
    wrong = parts.set_partitioner(lambda *_: 7).build()
    wrong.open(lambda topic: (0, 1, 2))
    with pytest.raises(ProgramError, match="partitioner gave 7, and topic of-1 has 3 partitions"):
        list(wrong.serialize_all(texts, None))


def test_topic_and_values_are_needed() -> None:
    with pytest.raises(ProgramError, match="set_topic"):
        KafkaRecordSerializationSchema.builder().set_value_serialization_schema(SimpleStringSchema()).build()
    with pytest.raises(ProgramError, match="set_value_serialization_schema"):
        KafkaRecordSerializationSchema.builder().set_topic("t").build()
    with pytest.raises(TypeError, match=r"KafkaRecordSerializationSchema\.builder"):
        KafkaSink.builder().set_record_serializer(SimpleStringSchema())  # type: ignore[arg-type]
