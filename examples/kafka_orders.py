"""Totals of orders by user, from one topic of Kafka to another, each of them once whatever dies meanwhile.

Orders are JSON: ``{"user": "ann", "amount": 12.5}``. So are totals: ``{"user": "ann", "orders": 3, "total": 40.0}``;
the user is their key. Run it with ``python examples/kafka_orders.py --bootstrap localhost:9092``, or on a cluster with
``firesteel run``; read the totals with ``isolation.level=read_committed``. ``--until-now`` ends behind the orders that
are there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from firesteel.common import SerializationSchema, Types, WatermarkStrategy
from firesteel.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from firesteel.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from firesteel.datastream.formats.json import JsonRowDeserializationSchema
from firesteel.datastream.state import ValueStateDescriptor

Total = tuple[str, int, float]


class AddUp(KeyedProcessFunction[str, Any, Total]):
    """Number and sum of a user's orders."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Total]:
        orders, total = self.total.value() or (0, 0.0)
        orders, total = orders + 1, total + value[1]
        self.total.update((orders, total))
        yield value[0], orders, total


class User(SerializationSchema):
    """The key of a total."""

    def serialize(self, element: Total) -> bytes:
        return element[0].encode()


class AsJson(SerializationSchema):
    """The value of a total."""

    def serialize(self, element: Total) -> bytes:
        return json.dumps(dict(zip(("user", "orders", "total"), element, strict=True))).encode()


def build(
    env: StreamExecutionEnvironment, orders: str, totals: str, properties: Mapping[str, str], *, until_now: bool
) -> None:
    """The program: from the topic of orders to that of totals; the properties say where brokers are, and who asks."""
    row_type = Types.ROW_NAMED(["user", "amount"], [Types.STRING(), Types.DOUBLE()])
    source = (
        KafkaSource.builder()
        .set_properties(properties)
        .set_topics(orders)
        .set_group_id("kafka-orders")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(JsonRowDeserializationSchema.builder().type_info(row_type).build())
    )
    if until_now:
        source.set_bounded(KafkaOffsetsInitializer.latest())
    schema = KafkaRecordSerializationSchema.builder().set_topic(totals)
    sink = (
        KafkaSink.builder()
        .set_record_serializer(
            schema.set_key_serialization_schema(User()).set_value_serialization_schema(AsJson()).build()
        )
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(f"totals-of-{orders}")
    )
    for key, value in properties.items():
        sink.set_property(key, value)
    stream = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "orders")
    stream.key_by(lambda order: order[0], Types.STRING()).process(AddUp()).sink_to(sink.build())


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bootstrap", default="localhost:9092", help="brokers")
    parser.add_argument("--properties", type=Path, help="file with key=value lines, as security.protocol=SASL_SSL")
    parser.add_argument("--orders", default="orders", help="topic to read")
    parser.add_argument("--totals", default="totals", help="topic to write")
    parser.add_argument("--until-now", action="store_true", help="end behind what is there")
    given = parser.parse_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    properties = {"bootstrap.servers": given.bootstrap}
    for line in given.properties.read_text().splitlines() if given.properties else ():
        key, equals, value = line.partition("=")
        if equals and not key.startswith("#"):
            properties[key.strip()] = value.strip()
    build(env, given.orders, given.totals, properties, until_now=given.until_now)
    env.execute("totals of orders")


if __name__ == "__main__":
    main()
