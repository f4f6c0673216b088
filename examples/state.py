"""Keyed and broadcast state on real text: modules of the Python standard library, read line by line.

For each function that a module defines the program remembers where (map state), how often it is defined (value state),
and the mean length of its first lines (aggregating state); at the end of the input a timer of each key tells. The names
that are left out come as a stream of their own: broadcast state, which each subtask has whole.

Run it with ``python examples/state.py [FILE ...]``.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from firesteel.common import Types, WatermarkStrategy
from firesteel.datastream import KeyedBroadcastProcessFunction, RuntimeContext, StreamExecutionEnvironment
from firesteel.datastream.connectors.file_system import FileSource, StreamFormat
from firesteel.datastream.state import AggregatingStateDescriptor, MapStateDescriptor, ValueStateDescriptor

DEFINITION = re.compile(r"\s*def (\w+)\((\w*)")
LEFT_OUT = MapStateDescriptor("left out", Types.STRING(), Types.BOOLEAN())
END_OF_TIME = 2**63 - 1
"""A timer for the end of event time fires when the input has ended."""


class Mean:
    """An AggregateFunction."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


def definitions(line: str) -> Iterator[tuple[str, str, int]]:
    """Name, first parameter and length of a line that defines a function."""
    if found := DEFINITION.match(line):
        yield found[1], found[2], len(line)


class Definitions(KeyedBroadcastProcessFunction[str, tuple[str, str, int], str, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.parameters = runtime_context.get_map_state(MapStateDescriptor("parameters", Types.STRING(), Types.LONG()))
        self.mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([Types.LONG(), Types.LONG()]))
        )

    def process_element(self, value: tuple[str, str, int], ctx: Any) -> None:
        _, parameter, length = value
        self.count.update((self.count.value() or 0) + 1)
        self.parameters.put(parameter, (self.parameters.get(parameter) or 0) + 1)
        self.mean.add(length)
        ctx.timer_service().register_event_time_timer(END_OF_TIME)

    def process_broadcast_element(self, value: str, ctx: Any) -> None:
        ctx.get_broadcast_state(LEFT_OUT).put(value, True)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[str]:
        count = self.count.value() or 0
        if count < 5 or ctx.get_broadcast_state(LEFT_OUT).contains(ctx.get_current_key()):
            return
        parameter, times = max(self.parameters.items(), key=lambda item: item[1])
        yield (
            f"{count:>6,} x {ctx.get_current_key():<24} {times:>6,} times with the first parameter {parameter!r}, "
            f"{self.mean.get():.0f} characters"
        )


def main(paths: list[str]) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *paths).build()
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "Lines", Types.STRING())
    left_out = env.from_collection(["__init__", "__repr__", "main"], Types.STRING()).broadcast(LEFT_OUT)
    found = (
        lines.flat_map(definitions, Types.TUPLE([Types.STRING(), Types.STRING(), Types.INT()]))
        .key_by(lambda definition: definition[0])
        .connect(left_out)
        .process(Definitions(), Types.STRING())
    )
    for line in sorted(found.execute_and_collect("State"), reverse=True):
        print(line)


if __name__ == "__main__":
    standard_library = Path(sysconfig.get_paths()["stdlib"])
    main(sys.argv[1:] or [str(standard_library / name) for name in ("unittest", "email", "json", "asyncio", "http")])
