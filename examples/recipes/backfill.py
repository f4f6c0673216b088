"""Backfill: turnover by hour, first from an archive of files, then from a topic, with no order missing and none twice.

    python examples/recipes/backfill.py --archive examples/data/orders --cutover 2026-11-27T12 --output /tmp/turnover

The archive has a file for each hour, ``2026-11-27T10.jsonl``, by the time of the orders. The topic has the newest ones,
and overlaps with the archive: what is older than the cutover comes from the files, all else from the topic.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from firesteel.common import Duration, Encoder, Row, Time, Types, WatermarkStrategy
from firesteel.datastream import OutputTag, ProcessFunction, StreamExecutionEnvironment
from firesteel.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    MalformedPolicy,
    MalformedRecord,
    RollingPolicy,
)
from firesteel.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaSource,
)
from firesteel.datastream.formats.json import JsonLinesFormat, JsonRowDeserializationSchema
from firesteel.datastream.window import TumblingEventTimeWindows
from firesteel.expressions import count, sum_

MARGIN_MS = 10 * 60_000  # by how much clocks of producers may differ from that of Kafka
OUT_OF_ORDER = Duration.of_minutes(1)
AHEAD = Duration.of_minutes(10)  # by how much the topic may be read in front of the archive
IDLE = Duration.of_seconds(10)  # a partition without orders for so long does not hold time back
ORDER = Types.ROW_NAMED(
    ["id", "product", "cents", "time"], [Types.STRING(), Types.STRING(), Types.LONG(), Types.SQL_TIMESTAMP()]
)
BAD, LATE = OutputTag("bad", Types.STRING()), OutputTag("late", ORDER)


def event_time(order: Row) -> int:
    return 0 if order.time is None else int(order.time.replace(tzinfo=datetime.UTC).timestamp() * 1000)


class SinceCutover(KafkaRecordDeserializationSchema):
    """Orders of the topic that the archive does not have."""

    def __init__(self, cutover: datetime.datetime) -> None:
        self.cutover = cutover
        self.schema = JsonRowDeserializationSchema.builder().type_info(ORDER).build()

    def deserialize(self, record: Any) -> Any:
        order = None if record.value is None else self.schema.deserialize(record.value)
        if order is not None and order.time is not None and order.time < self.cutover:
            return None  # nothing
        return order


class Check(ProcessFunction[Any, Row]):
    """Sends what is no order aside: one bad record must not stop the job, and must not vanish either."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if isinstance(value, MalformedRecord):
            yield BAD, f"{value.path}, {value.offset}: {value.reason}"
        elif value.product is None or value.cents is None or value.time is None:
            yield BAD, f"a field is missing: {value}"
        else:
            yield value


def hour(window: Row) -> str:
    begin = datetime.datetime.fromtimestamp(window.window_start / 1000, datetime.UTC)
    values = {"hour": f"{begin:%FT%H}", "product": window.product, "orders": window.orders, "cents": window.cents}
    return json.dumps(values, ensure_ascii=False)


def build(
    env: StreamExecutionEnvironment,
    archive: Path,
    cutover: str,
    kafka: str,
    topic: str,
    output: Path,
    *,
    until_now: bool = False,
) -> None:
    """The program."""
    history = sorted(str(path) for path in archive.glob("*.jsonl") if path.stem < cutover)
    if not history:
        raise SystemExit(f"{archive} has no file of an hour before {cutover}")
    begin = datetime.datetime.fromisoformat(f"{cutover}:00:00")  # of UTC, as times of orders are
    begin_ms = int(begin.replace(tzinfo=datetime.UTC).timestamp() * 1000)
    files = FileSource.for_record_stream_format(JsonLinesFormat(ORDER), *history).on_malformed(MalformedPolicy.EMIT)
    live = KafkaSource.builder().set_bootstrap_servers(kafka).set_topics(topic).set_group_id("backfill")
    live.set_starting_offsets(KafkaOffsetsInitializer.timestamp(begin_ms - MARGIN_MS))
    live.set_deserializer(SinceCutover(begin)).on_malformed(MalformedPolicy.EMIT)
    if until_now:
        live.set_bounded(KafkaOffsetsInitializer.latest())
    times = WatermarkStrategy.for_bounded_out_of_orderness(OUT_OF_ORDER).with_timestamp_assigner(event_time)
    # Event time of both together is that of the one that is behind: no window of the archive ends before its orders are
    # read. The topic is not even read before: alignment pauses whoever is ahead.
    times = times.with_watermark_alignment("orders", AHEAD)
    old = env.from_source(files.build(), times, "archive").uid("archive").process(Check(), ORDER)
    new = env.from_source(live.build(), times.with_idleness(IDLE), "topic").uid("topic").process(Check(), ORDER)
    hours = (
        old.union(new)
        .key_by("product")
        .window(TumblingEventTimeWindows.of(Time.hours(1)))
        .side_output_late_data(LATE)
        .aggregate(count().alias("orders"), sum_("cents").alias("cents"))
        .uid("hours")
    )
    late = hours.get_side_output(LATE).map(str, Types.STRING())
    results = {"hours": hours.map(hour, Types.STRING()), "late": late}
    results["bad"] = old.get_side_output(BAD).union(new.get_side_output(BAD))
    for name, lines in results.items():  # each line is there once, whatever dies meanwhile
        sink = FileSink.for_row_format(str(output / name), Encoder.simple_string_encoder())
        sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())  # a file is visible at each
        lines.sink_to(sink.build()).uid(f"{name} files")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--archive", type=Path, required=True, help="folder with a file for each hour")
    parser.add_argument("--cutover", required=True, help="hour of UTC with which the topic begins: 2026-11-27T12")
    parser.add_argument("--kafka", default="localhost:9094", help="brokers")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--output", type=Path, required=True, help="folder")
    parser.add_argument("--until-now", action="store_true", help="end behind the orders that are there")
    options = parser.parse_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(5_000)
    build(
        env, options.archive, options.cutover, options.kafka, options.topic, options.output, until_now=options.until_now
    )
    env.execute("turnover by hour")


if __name__ == "__main__":
    main()
