"""Sessionise: clicks of a web shop become visits, which end when a user is silent for half an hour.

    python examples/recipes/sessionise.py --output /tmp/visits

Clicks are JSON, one a line: ``{"id": "c1", "user": "ann", "page": "/cart", "time": "2026-11-27T10:00:03Z"}``.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from firesteel.common import Duration, Encoder, Row, Time, Types, WatermarkStrategy
from firesteel.datastream import (
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
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
from firesteel.datastream.window import EventTimeSessionWindows

GAP = Time.minutes(30)
OUT_OF_ORDER = Duration.of_minutes(1)  # by how much a click may come behind a later one and still count
IDLE = Duration.of_seconds(10)  # a reader that has had nothing for so long does not hold time back
CLICK = Types.ROW_NAMED(
    ["id", "user", "page", "time"], [Types.STRING(), Types.STRING(), Types.STRING(), Types.SQL_TIMESTAMP()]
)
BAD, LATE = OutputTag("bad", Types.STRING()), OutputTag("late", CLICK)


def event_time(click: Row) -> int:
    return 0 if click.time is None else int(click.time.replace(tzinfo=datetime.UTC).timestamp() * 1000)


class Check(ProcessFunction[Any, Row]):
    """Sends what is no click aside: one bad line must not stop the job, and must not vanish either."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if isinstance(value, MalformedRecord):
            yield BAD, f"{value.path}, byte {value.offset}: {value.reason}"
        elif value.user is None or value.time is None:
            yield BAD, f"no user or no time: {value}"
        else:
            yield value


class Visit(ProcessWindowFunction[Row, str, str, Any]):
    """One line for a session, when it is over."""

    def process(self, key: str, context: ProcessWindowFunction.Context[Any], elements: Iterable[Row]) -> Iterator[str]:
        clicks = sorted(elements, key=lambda click: (click.time, click.id or ""))
        first, last = clicks[0], clicks[-1]
        span = {"from": f"{first.time.isoformat()}Z", "to": f"{last.time.isoformat()}Z", "clicks": len(clicks)}
        yield json.dumps({"user": key, **span, "entry": first.page, "exit": last.page}, ensure_ascii=False)


def build(env: StreamExecutionEnvironment, source: str, output: Path, *, follow: bool = False) -> None:
    """The program."""
    files = FileSource.for_record_stream_format(JsonLinesFormat(CLICK), source).on_malformed(MalformedPolicy.EMIT)
    if follow:
        files.monitor_continuously(Duration.of_seconds(1))
    times = WatermarkStrategy.for_bounded_out_of_orderness(OUT_OF_ORDER).with_idleness(IDLE)
    read = env.from_source(files.build(), times.with_timestamp_assigner(event_time), "clicks").uid("clicks")
    clicks = read.process(Check(), CLICK)
    visits = (
        clicks.key_by(lambda click: click.user, Types.STRING())
        .window(EventTimeSessionWindows.with_gap(GAP))
        .side_output_late_data(LATE)
        .process(Visit(), Types.STRING())
        .uid("visits of users")
    )
    late = visits.get_side_output(LATE).map(str, Types.STRING())
    results = {"visits": visits, "late": late, "bad": clicks.get_side_output(BAD)}
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
    parser.add_argument("--batch", action="store_true", help="in stages, over what is there: nothing is late then")
    options = parser.parse_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    if options.batch:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    else:
        env.enable_checkpointing(10_000)
    build(env, options.input, options.output, follow=options.follow)
    env.execute("visits")


if __name__ == "__main__":
    main()
