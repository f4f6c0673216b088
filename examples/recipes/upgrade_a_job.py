"""Upgrade a job: another program goes on with the state of the one before, from a savepoint.

    firesteel run -d examples/recipes/upgrade_a_job.py --version 1 --input /tmp/clicks --output /tmp/counts

Version 1 counts the clicks of each user, version 2 also by page. Both stand here to be compared; usually the second is
the first one, edited.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from firesteel.common import Duration, Encoder, Types, WatermarkStrategy
from firesteel.datastream import (
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
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
from firesteel.datastream.state import MapStateDescriptor, ValueStateDescriptor

BAD = OutputTag("bad", Types.STRING())


class Check(ProcessFunction[Any, Any]):
    """Sends what is no click aside. It has no state, so it may be added, removed or renamed at any time."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if isinstance(value, MalformedRecord):
            yield BAD, f"{value.path}, byte {value.offset}: {value.reason}"
        elif not isinstance(value, dict) or not isinstance(value.get("user"), str):
            yield BAD, f"no user: {value!r}"
        else:
            yield value


class Count(KeyedProcessFunction[str, Any, str]):
    """Version 1: how often each user has clicked."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.clicks = runtime_context.get_state(ValueStateDescriptor("clicks", Types.INT()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        clicks = (self.clicks.value() or 0) + 1
        self.clicks.update(clicks)
        yield json.dumps({"user": value["user"], "clicks": clicks}, ensure_ascii=False)


class CountByPage(KeyedProcessFunction[str, Any, str]):
    """Version 2: also on the page. The class has another name, which is no matter: state knows its operator by uid."""

    def open(self, runtime_context: RuntimeContext) -> None:
        # the same name: the counts of version 1; a wider type: they are converted
        self.clicks = runtime_context.get_state(ValueStateDescriptor("clicks", Types.LONG()))
        # a new name: begins empty
        self.pages = runtime_context.get_map_state(MapStateDescriptor("pages", Types.STRING(), Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        page = str(value.get("page"))
        clicks, here = (self.clicks.value() or 0) + 1, (self.pages.get(page) or 0) + 1
        self.clicks.update(clicks)
        self.pages.put(page, here)
        line = {"user": value["user"], "clicks": clicks, "page": page, "on this page": here}
        yield json.dumps(line, ensure_ascii=False)


def build(env: StreamExecutionEnvironment, source: str, output: Path, version: int) -> None:
    """The program."""
    files = FileSource.for_record_stream_format(JsonLinesFormat(), source).on_malformed(MalformedPolicy.EMIT)
    files.monitor_continuously(Duration.of_seconds(1))
    # Whatever has state has a uid: sources (what was read), functions (what they remember), sinks (what is not visible
    # yet). A uid is for ever; names, classes, the order of operators and the parallelism may change.
    read = env.from_source(files.build(), WatermarkStrategy.no_watermarks(), "clicks").uid("clicks")
    clicks = read.process(Check())
    count = Count() if version == 1 else CountByPage()
    counts = clicks.key_by(lambda click: click["user"], Types.STRING()).process(count, Types.STRING()).uid("count")
    for name, lines in {"counts": counts, "bad": clicks.get_side_output(BAD)}.items():
        sink = FileSink.for_row_format(str(output / name), Encoder.simple_string_encoder())
        sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())  # a file is visible at each
        lines.sink_to(sink.build()).uid(f"{name} files")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--version", type=int, choices=(1, 2), default=2)
    parser.add_argument("--input", required=True, help="folder that is watched")
    parser.add_argument("--output", type=Path, required=True, help="folder")
    options = parser.parse_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    # Key groups are part of savepoints: this is the one number that never changes, and the most subtasks there can be.
    env.set_max_parallelism(128)
    env.enable_checkpointing(5_000)
    build(env, options.input, options.output, options.version)
    env.execute("clicks of users")


if __name__ == "__main__":
    main()
