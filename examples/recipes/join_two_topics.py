"""Join two topics: orders and their payments, which come within a quarter of an hour, become a third topic.

    python examples/recipes/join_two_topics.py --kafka localhost:9094

Orders are ``{"id": "o1", "product": "tea", "cents": 350, "time": "2026-11-27T10:00:03Z"}``, payments
``{"order": "o1", "method": "card", "time": "2026-11-27T10:04:00Z"}``.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Iterator
from typing import Any

from firesteel.common import Duration, Time, Types, WatermarkStrategy
from firesteel.datastream import (
    DataStream,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    StreamExecutionEnvironment,
)
from firesteel.datastream.connectors.file_system import MalformedPolicy, MalformedRecord
from firesteel.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaProducerRecord,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from firesteel.datastream.formats.json import JsonRowDeserializationSchema

BEFORE, AFTER = Time.seconds(-5), Time.minutes(15)  # clocks differ: a payment may seem to come before its order
OUT_OF_ORDER = Duration.of_seconds(20)
IDLE = Duration.of_seconds(10)  # a partition without records for so long does not hold time back
ORDER = Types.ROW_NAMED(
    ["id", "product", "cents", "time"], [Types.STRING(), Types.STRING(), Types.LONG(), Types.SQL_TIMESTAMP()]
)
PAYMENT = Types.ROW_NAMED(["order", "method", "time"], [Types.STRING(), Types.STRING(), Types.SQL_TIMESTAMP()])
BAD, LATE_ORDER, LATE_PAYMENT = OutputTag("bad"), OutputTag("late order", ORDER), OutputTag("late payment", PAYMENT)


def event_time(value: Any) -> int:
    return 0 if value.time is None else int(value.time.replace(tzinfo=datetime.UTC).timestamp() * 1000)


class Check(ProcessFunction[Any, Any]):
    """Sends what has no key or no time aside: one bad record must not stop the job, and must not vanish either."""

    def __init__(self, key: str) -> None:
        self.key = key

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if isinstance(value, MalformedRecord):
            yield BAD, {"problem": f"{value.path}, offset {value.offset}: {value.reason}"}
        elif value[self.key] is None or value.time is None:
            yield BAD, {"problem": f"no {self.key} or no time: {value}"}
        else:
            yield value


class Paid(ProcessJoinFunction[Any, Any, Any]):
    """An order and one of its payments."""

    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterator[Any]:
        wait = (right.time - left.time).total_seconds()
        yield {"order": left.id, "product": left.product, "cents": left.cents, "method": right.method, "wait": wait}


class AsJson(KafkaRecordSerializationSchema):
    """Dicts as JSON; those of one order have one key, so they stay in one partition."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def serialize(self, element: Any, timestamp: int | None) -> KafkaProducerRecord:
        key = element["order"].encode() if "order" in element else None
        return KafkaProducerRecord(self.topic, json.dumps(element, ensure_ascii=False).encode(), key)


def read(env: StreamExecutionEnvironment, kafka: str, topic: str, row_type: Any, *, until_now: bool) -> DataStream:
    source = KafkaSource.builder().set_bootstrap_servers(kafka).set_topics(topic).set_group_id("join-two-topics")
    source.set_starting_offsets(KafkaOffsetsInitializer.earliest()).on_malformed(MalformedPolicy.EMIT)
    source.set_value_only_deserializer(JsonRowDeserializationSchema.builder().type_info(row_type).build())
    if until_now:
        source.set_bounded(KafkaOffsetsInitializer.latest())
    times = WatermarkStrategy.for_bounded_out_of_orderness(OUT_OF_ORDER).with_idleness(IDLE)
    records = env.from_source(source.build(), times.with_timestamp_assigner(event_time), topic).uid(topic)
    return records.process(Check(row_type.get_field_names()[0]), row_type)


def write(stream: DataStream, kafka: str, topic: str) -> None:
    """Exactly once, for readers with isolation.level=read_committed."""
    sink = KafkaSink.builder().set_bootstrap_servers(kafka).set_record_serializer(AsJson(topic))
    sink.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix(f"join-{topic}")
    stream.sink_to(sink.build()).uid(f"to {topic}")


def build(env: StreamExecutionEnvironment, kafka: str, topics: list[str], *, until_now: bool = False) -> None:
    """The program; topics are those of orders, of payments, of what is paid, and of what could not be joined."""
    orders = read(env, kafka, topics[0], ORDER, until_now=until_now)
    payments = read(env, kafka, topics[1], PAYMENT, until_now=until_now)
    joined = orders.key_by(lambda order: order.id, Types.STRING()).interval_join(
        payments.key_by(lambda payment: payment.order, Types.STRING())
    )
    paid = (
        joined.between(BEFORE, AFTER)
        .side_output_left_late_data(LATE_ORDER)
        .side_output_right_late_data(LATE_PAYMENT)
        .process(Paid())
        .uid("join")
    )
    write(paid, kafka, topics[2])
    late = paid.get_side_output(LATE_ORDER).map(lambda order: {"problem": f"too late: {order}"})
    late_too = paid.get_side_output(LATE_PAYMENT).map(lambda payment: {"problem": f"too late: {payment}"})
    rejects = orders.get_side_output(BAD).union(payments.get_side_output(BAD), late, late_too)
    write(rejects, kafka, topics[3])


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kafka", default="localhost:9094", help="brokers")
    parser.add_argument("--topics", nargs=4, default=["orders", "payments", "paid", "rejects"])
    parser.add_argument("--until-now", action="store_true", help="end behind the records that are there")
    options = parser.parse_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(5_000)  # results are visible at each
    build(env, options.kafka, options.topics, until_now=options.until_now)
    env.execute("paid orders")


if __name__ == "__main__":
    main()
