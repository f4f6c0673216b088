"""Alert on absence: a machine that says nothing for two minutes raises an alarm, and another line when it is back.

    python examples/recipes/alert_on_absence.py --output /tmp/alerts

Heartbeats are JSON, one a line: ``{"machine": "press-1", "time": "2026-11-27T10:00:03Z"}``.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from firesteel.common import Duration, Encoder, Row, Types, WatermarkStrategy
from firesteel.datastream import (
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from firesteel.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    MalformedPolicy,
    MalformedRecord,
    RollingPolicy,
)
from firesteel.datastream.formats.json import JsonLinesFormat
from firesteel.datastream.state import ValueStateDescriptor

OUT_OF_ORDER = Duration.of_seconds(10)  # how much older than its neighbours a heartbeat may come
IDLE = Duration.of_seconds(30)  # after which a source without any heartbeat does not hold time back
HEARTBEAT = Types.ROW_NAMED(["machine", "time"], [Types.STRING(), Types.SQL_TIMESTAMP()])
CLOCK = ""  # machine of the ticks, which only take time on
BAD = OutputTag("bad", Types.STRING())


def event_time(beat: Row) -> int:
    return 0 if beat.time is None else int(beat.time.replace(tzinfo=datetime.UTC).timestamp() * 1000)


class Check(ProcessFunction[Any, Row]):
    """Sends what is no heartbeat aside: one bad line must not stop the job, and must not vanish either."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if isinstance(value, MalformedRecord):
            yield BAD, f"{value.path}, byte {value.offset}: {value.reason}"
        elif not value.machine or value.time is None:
            yield BAD, f"no machine or no time: {value}"
        else:
            yield value


class Watch(KeyedProcessFunction[str, Row, str]):
    """A timer for each machine, which every heartbeat puts off."""

    def __init__(self, silence_ms: int) -> None:
        self.silence_ms = silence_ms

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))
        self.silent = runtime_context.get_state(ValueStateDescriptor("silent", Types.BOOLEAN()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        now, last = ctx.timestamp(), self.last.value()
        if value.machine == CLOCK or now is None or (last is not None and now <= last):
            return  # a heartbeat that was overtaken says nothing new
        if last is not None:
            # a gap is one also where event time has not got that far yet: results don't depend on how fast is read
            if not self.silent.value() and now - last > self.silence_ms:
                yield alert(value.machine, "silent", last)
                self.silent.update(True)
            if self.silent.value():
                yield alert(value.machine, "back", now)
                self.silent.clear()
            ctx.timer_service().delete_event_time_timer(last + self.silence_ms)
        self.last.update(now)
        ctx.timer_service().register_event_time_timer(now + self.silence_ms)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[str]:
        self.silent.update(True)
        yield alert(ctx.get_current_key(), "silent", timestamp - self.silence_ms)


def alert(machine: str, state: str, since_ms: int) -> str:
    since = datetime.datetime.fromtimestamp(since_ms / 1000, datetime.UTC)
    return json.dumps({"machine": machine, "state": state, "since": f"{since:%FT%TZ}"}, ensure_ascii=False)


def tick(number: int) -> Row:
    return Row(machine=CLOCK, time=datetime.datetime.now(datetime.UTC).replace(tzinfo=None))


def build(
    env: StreamExecutionEnvironment, source: str, output: Path, *, silence: float = 120.0, follow: bool = False
) -> None:
    """The program."""
    files = FileSource.for_record_stream_format(JsonLinesFormat(HEARTBEAT), source).on_malformed(MalformedPolicy.EMIT)
    if follow:
        files.monitor_continuously(Duration.of_seconds(1))
    times = WatermarkStrategy.for_bounded_out_of_orderness(OUT_OF_ORDER).with_timestamp_assigner(event_time)
    read = env.from_source(files.build(), times.with_idleness(IDLE), "heartbeats").uid("heartbeats")
    checked = heartbeats = read.process(Check(), HEARTBEAT)
    if follow:
        # Event time goes on only with records. When all machines are silent, which is the worst of cases, the clock's
        # ticks take it on; while heartbeats come, also old ones after an outage, these say how late it is.
        clock = DataGeneratorSource(tick, rate_limiter_strategy=RateLimiterStrategy.per_second(1), type_info=HEARTBEAT)
        ticks = env.from_source(clock, times, "clock").set_parallelism(1).uid("clock")
        heartbeats = heartbeats.union(ticks)
    alerts = (
        heartbeats.key_by(lambda beat: beat.machine, Types.STRING())
        .process(Watch(int(silence * 1000)), Types.STRING())
        .uid("watch")
    )
    results = {"alerts": alerts, "bad": checked.get_side_output(BAD)}
    for name, lines in results.items():  # each line is there once, whatever dies meanwhile
        sink = FileSink.for_row_format(str(output / name), Encoder.simple_string_encoder())
        sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())  # a file is visible at each
        lines.sink_to(sink.build()).uid(f"{name} files")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--input", default=str(Path(__file__).parents[1] / "data" / "heartbeats.jsonl"), help="file or folder"
    )
    parser.add_argument("--output", type=Path, required=True, help="folder")
    parser.add_argument("--silence", type=float, default=120.0, help="seconds after which a machine is missing")
    parser.add_argument("--follow", action="store_true", help="without an end: read each file that comes")
    options = parser.parse_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(5_000)
    build(env, options.input, options.output, silence=options.silence, follow=options.follow)
    env.execute("alert on absence")


if __name__ == "__main__":
    main()
