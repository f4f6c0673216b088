"""Kafka to Postgres: turnover of each product and minute, from a topic of orders into a table.

    python examples/recipes/kafka_to_postgres.py --postgres jdbc:postgresql://localhost:5432/postgres

Orders are JSON: ``{"id": "o1", "product": "tea", "cents": 350, "time": "2026-11-27T10:00:03Z"}``. Rows of ``turnover``
are upserts: one may be written twice, and the table is as if it had been once. The tables: examples/data/turnover.sql.
"""

from __future__ import annotations

import argparse
import datetime
import os
from collections.abc import Iterator
from typing import Any

from firesteel.common import Duration, Row, Time, Types, WatermarkStrategy
from firesteel.datastream import OutputTag, ProcessFunction, StreamExecutionEnvironment
from firesteel.datastream.connectors.file_system import MalformedPolicy, MalformedRecord
from firesteel.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcExecutionOptions, JdbcSink
from firesteel.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from firesteel.datastream.formats.json import JsonRowDeserializationSchema
from firesteel.datastream.window import TumblingEventTimeWindows
from firesteel.expressions import count, sum_

OUT_OF_ORDER = Duration.of_seconds(20)  # by how much an order may come behind a later one and be in the first result
CORRECTED = Time.hours(1)  # how long an order that is later still corrects its row
IDLE = Duration.of_seconds(10)  # a partition without orders for so long does not hold time back
ORDER = Types.ROW_NAMED(
    ["id", "product", "cents", "time"], [Types.STRING(), Types.STRING(), Types.LONG(), Types.SQL_TIMESTAMP()]
)
MINUTE = Types.ROW_NAMED(
    ["minute", "product", "orders", "cents"], [Types.SQL_TIMESTAMP(), Types.STRING(), Types.LONG(), Types.LONG()]
)
REJECT = Types.ROW_NAMED(["problem"], [Types.STRING()])
BAD, LATE = OutputTag("bad", REJECT), OutputTag("late", ORDER)
UPSERT = """
INSERT INTO turnover VALUES (?, ?, ?, ?)
ON CONFLICT (minute, product) DO UPDATE SET orders = excluded.orders, cents = excluded.cents
WHERE turnover.orders < excluded.orders
"""
# A minute's orders only become more: the condition keeps what is written again after a failure from setting a row back.


def event_time(order: Row) -> int:
    return 0 if order.time is None else int(order.time.replace(tzinfo=datetime.UTC).timestamp() * 1000)


class Check(ProcessFunction[Any, Row]):
    """Sends what is no order aside: one bad record must not stop the job, and must not vanish either."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if isinstance(value, MalformedRecord):
            yield BAD, Row(f"{value.path}, offset {value.offset}: {value.reason}")
        elif value.product is None or value.cents is None or value.time is None:
            yield BAD, Row(f"a field is missing: {value}")
        else:
            yield value


def to_row(window: Row) -> Row:
    minute = datetime.datetime.fromtimestamp(window.window_start / 1000, datetime.UTC).replace(tzinfo=None)
    return Row(minute, window.product, window.orders, window.cents)


def build(
    env: StreamExecutionEnvironment, kafka: str, topic: str, postgres: JdbcConnectionOptions, *, until_now: bool = False
) -> None:
    """The program."""
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(kafka)
        .set_topics(topic)
        .set_group_id("kafka-to-postgres")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(JsonRowDeserializationSchema.builder().type_info(ORDER).build())
        .on_malformed(MalformedPolicy.EMIT)
    )
    if until_now:
        source.set_bounded(KafkaOffsetsInitializer.latest())
    times = WatermarkStrategy.for_bounded_out_of_orderness(OUT_OF_ORDER).with_idleness(IDLE)
    read = env.from_source(source.build(), times.with_timestamp_assigner(event_time), "orders").uid("orders")
    orders = read.process(Check(), ORDER)
    minutes = (
        orders.key_by("product")
        .window(TumblingEventTimeWindows.of(Time.minutes(1)))
        .allowed_lateness(CORRECTED)
        .side_output_late_data(LATE)
        .aggregate(count().alias("orders"), sum_("cents").alias("cents"))
        .uid("minutes")
    )
    late = minutes.get_side_output(LATE).map(lambda order: Row(f"too late: {order}"), REJECT)
    # a row waits for others for a second at most, not for 5000 of them
    often = JdbcExecutionOptions.builder().with_batch_interval_ms(1000).build()
    minutes.map(to_row, MINUTE).sink_to(JdbcSink.sink(UPSERT, MINUTE, postgres, often)).uid("turnover")
    rejects = JdbcSink.exactly_once_sink("INSERT INTO rejects VALUES (?)", REJECT, postgres)  # these have no key
    orders.get_side_output(BAD).union(late).sink_to(rejects).uid("rejects")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kafka", default="localhost:9094", help="brokers")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--postgres", required=True, help="address; user and password by PGUSER and PGPASSWORD")
    parser.add_argument("--until-now", action="store_true", help="end behind the orders that are there")
    options = parser.parse_args()
    connection = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(options.postgres)
    connection.with_user_name(os.environ.get("PGUSER", "postgres")).with_password(os.environ.get("PGPASSWORD", ""))
    postgres = connection.build()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(5_000)
    build(env, options.kafka, options.topic, postgres, until_now=options.until_now)
    env.execute("turnover")


if __name__ == "__main__":
    main()
