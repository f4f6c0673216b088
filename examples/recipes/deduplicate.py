"""Deduplicate: of events with the same id, as a sender that tries again makes them, the first goes on.

    python examples/recipes/deduplicate.py --output /tmp/clicks

Events are JSON, one a line: ``{"id": "c1", "user": "ann", "page": "/cart", "time": "2026-11-27T10:00:03Z"}``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from firesteel.common import Duration, Encoder, Time, Types, WatermarkStrategy
from firesteel.datastream import (
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from firesteel.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    MalformedPolicy,
    MalformedRecord,
    RollingPolicy,
)
from firesteel.datastream.formats.json import JsonLinesFormat
from firesteel.datastream.state import StateTtlConfig, ValueStateDescriptor

REMEMBER = Time.hours(24)  # how long an id is known: state grows with the ids of this time
BAD, AGAIN = OutputTag("bad", Types.STRING()), OutputTag("again", Types.STRING())


class Check(ProcessFunction[Any, Any]):
    """Sends what is no event aside: one bad line must not stop the job, and must not vanish either."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if isinstance(value, MalformedRecord):
            yield BAD, f"{value.path}, byte {value.offset}: {value.reason}"
        elif not isinstance(value, dict) or not isinstance(value.get("id"), str):
            yield BAD, f"no id: {value!r}"
        else:
            yield value


class First(KeyedProcessFunction[str, Any, str]):
    """Lets the first event of an id pass, and the others to a side output."""

    def open(self, runtime_context: RuntimeContext) -> None:
        seen = ValueStateDescriptor("seen", Types.BOOLEAN())
        seen.enable_time_to_live(StateTtlConfig.new_builder(REMEMBER).build())
        self.seen = runtime_context.get_state(seen)
        self.repeated = runtime_context.get_metrics_group().counter("repeated")

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        line = json.dumps(value, ensure_ascii=False)
        if self.seen.value():
            self.repeated.inc()
            yield AGAIN, line
        else:
            self.seen.update(True)
            yield line


def build(env: StreamExecutionEnvironment, source: str, output: Path, *, follow: bool = False) -> None:
    """The program."""
    # without a type, JSON stays what it is: fields that this program does not know go through it
    files = FileSource.for_record_stream_format(JsonLinesFormat(), source).on_malformed(MalformedPolicy.EMIT)
    if follow:
        files.monitor_continuously(Duration.of_seconds(1))
    read = env.from_source(files.build(), WatermarkStrategy.no_watermarks(), "events").uid("events")
    events = read.process(Check())
    first = events.key_by(lambda event: event["id"], Types.STRING()).process(First(), Types.STRING()).uid("first")
    results = {"events": first, "again": first.get_side_output(AGAIN), "bad": events.get_side_output(BAD)}
    for name, lines in results.items():  # each line is there once, whatever dies meanwhile
        sink = FileSink.for_row_format(str(output / name), Encoder.simple_string_encoder())
        sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())  # a file is visible at each
        lines.sink_to(sink.build()).uid(f"{name} files")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--input", default=str(Path(__file__).parents[1] / "data" / "clicks.jsonl"), help="file or folder"
    )
    parser.add_argument("--output", type=Path, required=True, help="folder")
    parser.add_argument("--follow", action="store_true", help="without an end: read each file that comes")
    parser.add_argument("--batch", action="store_true", help="in stages, over what is there")
    options = parser.parse_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    if options.batch:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    else:
        env.enable_checkpointing(10_000)
    build(env, options.input, options.output, follow=options.follow)
    env.execute("deduplicate")


if __name__ == "__main__":
    main()
