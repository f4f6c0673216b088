"""State with a time-to-live, and metrics: lets each line of a text pass once an hour, and counts what it kept back.

Lines that were seen are forgotten after an hour, so that the state of a stream without end does not grow for ever.
The counters are shown by ``/jobs/:jobid/vertices/:vertexid/metrics`` while the job runs.

Run it with ``python examples/duplicates.py [FILE ...]``; without one, it reads modules of the standard library.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from firesteel.common import Time, Types, WatermarkStrategy
from firesteel.datastream import KeyedProcessFunction, OutputTag, RuntimeContext, StreamExecutionEnvironment
from firesteel.datastream.connectors.file_system import FileSource, StreamFormat
from firesteel.datastream.state import StateTtlConfig, ValueStateDescriptor

AGAIN = OutputTag("again", Types.STRING())


class OnceAnHour(KeyedProcessFunction[str, str, str]):
    """Passes a line on if it was not seen for an hour."""

    def open(self, runtime_context: RuntimeContext) -> None:
        an_hour = (
            StateTtlConfig.new_builder(Time.hours(1))
            .set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)
            .never_return_expired()
            .build()
        )
        descriptor = ValueStateDescriptor("seen", Types.BOOLEAN())
        descriptor.enable_time_to_live(an_hour)
        self.seen = runtime_context.get_state(descriptor)
        group = runtime_context.get_metrics_group().add_group("lines")
        self.passed, self.rate, self.kept = group.counter("passed"), group.meter("rate"), 0
        group.gauge("kept", lambda: self.kept)

    def process_element(
        self, value: str, ctx: KeyedProcessFunction.Context
    ) -> Iterator[str | tuple[OutputTag[str], str]]:
        self.rate.mark_event()
        if self.seen.value():
            self.kept += 1
            yield AGAIN, value
        else:
            self.seen.update(True)
            self.passed.inc()
            yield value


def main(paths: list[str]) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *paths).build()
    lines = env.from_source(files, WatermarkStrategy.no_watermarks(), "lines")
    once = lines.map(str.strip, Types.STRING()).filter(bool).key_by(lambda line: line).process(OnceAnHour())
    passed, again = once.map(lambda line: (line, 0)), once.get_side_output(AGAIN).map(lambda line: (line, 1))
    with passed.union(again).execute_and_collect("Duplicates") as results:
        found = list(results)
    repeated = sum(count for _, count in found)
    print(f"{len(found)} lines, {len(found) - repeated} of them for the first time")


if __name__ == "__main__":
    library = Path(sysconfig.get_paths()["stdlib"])
    main(sys.argv[1:] or [str(library / name) for name in ("argparse.py", "csv.py")])
