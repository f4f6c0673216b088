"""The workloads as Firesteel programs: Python functions on rows. Run by ``python -m benchmarks``.

Each process of a job appends what it saw to a file of the folder ``out``: sources their first poll, sinks their
counts, their sum and the time of their last record (seconds of the system-wide monotonic clock).
"""

from __future__ import annotations

import json
import os
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import events

from firesteel.common import Configuration, Types, WatermarkStrategy
from firesteel.datastream import FlatMapFunction, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from firesteel.datastream.connectors.base import (
    Boundedness,
    Chunk,
    EnumeratorSpec,
    ReaderContext,
    Sink,
    SinkWriter,
    Source,
    Split,
    SplitCursor,
    SplitQueueReader,
    Wait,
    WriterContext,
)
from firesteel.datastream.connectors.file_system import FileSource, StreamFormat
from firesteel.datastream.state import ValueStateDescriptor

_MADE_AT_ONCE = 20_000


def note(out: str, what: dict[str, Any]) -> None:
    """Add a line to this process's file."""
    with (Path(out) / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(what) + "\n")


class EventSource(Source[Any]):
    """The events, made by numpy 20,000 at a time and given out as tuples.

    Args:
        count: of all subtasks together.
        out: where the time of the first poll goes.
        rate: events per second of all subtasks together; the timestamp field then holds the time at which the event
            was due (monotonic nanoseconds); None = as fast as possible.
        keys: different auctions.
    """

    def __init__(self, count: int, out: str, rate: float | None = None, keys: int = events.KEYS) -> None:
        self.count, self.out, self.rate, self.keys = count, out, rate, keys

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def enumerator(self) -> EnumeratorSpec:
        return EnumeratorSpec("numbers", {"start": 0, "end": self.count})

    def create_reader(self, context: ReaderContext) -> SplitQueueReader[Any]:
        return _EventReader(self, context)


class _EventReader(SplitQueueReader[Any]):
    def __init__(self, source: EventSource, context: ReaderContext) -> None:
        super().__init__()
        self._source, self._context = source, context

    def open_split(self, split: Split) -> SplitCursor[Any]:
        note(self._source.out, {"first_poll": time.monotonic()})
        start, end = int(split.data["start"]), int(split.data["end"])  # type: ignore[arg-type]
        if split.position is not None:
            start = int(split.position)  # type: ignore[arg-type]
        if self._source.rate is None:
            return _FastCursor(start, end, keys=self._source.keys)
        return _PacedCursor(start, end, self._source.rate / self._context.parallelism)


class _FastCursor(SplitCursor[Any]):
    def __init__(self, start: int, end: int, made_at_once: int = _MADE_AT_ONCE, keys: int = events.KEYS) -> None:
        self._position, self._end, self._made_at_once, self._keys = start, end, made_at_once, keys
        self._made: list[Any] = []
        self._given = 0

    def read(self, max_records: int) -> Chunk[Any]:
        if self._given >= len(self._made):
            stop = min(self._end, self._position + self._made_at_once)
            self._made, self._given = events.tuples(self._position, stop, self._keys), 0
            self._position = stop
        values = self._made[self._given : self._given + max_records]
        self._given += len(values)
        left = len(self._made) - self._given
        return Chunk(values, self._position - left, self._position >= self._end and not left)


class _PacedCursor(SplitCursor[Any]):
    """Event i is due at the beginning + i / rate; late ones do not shift the others."""

    def __init__(self, start: int, end: int, rate: float) -> None:
        self._rows = _FastCursor(start, end, made_at_once=500)  # to make 20,000 takes 10 ms
        self._given, self._rate = 0, rate
        self._began = time.monotonic_ns()

    def read(self, max_records: int) -> Chunk[Any] | Wait:
        step = 1e9 / self._rate
        elapsed = time.monotonic_ns() - self._began
        due = int(elapsed / step) + 1 - self._given
        if due <= 0:
            return Wait((self._given * step - elapsed) / 1e9)
        chunk = self._rows.read(min(due, max_records))
        first = self._given
        self._given += len(chunk.values)
        values = [(a, b, p, c, self._began + int((first + k) * step)) for k, (a, b, p, c, _) in enumerate(chunk.values)]
        return Chunk(values, chunk.position, chunk.finished)


class CountingSink(Sink[Any]):
    """Counts rows and sums their second field."""

    def __init__(self, out: str, *, sums: bool, latency: bool = False) -> None:
        self.out, self.sums, self.latency = out, sums, latency

    def create_writer(self, context: WriterContext) -> SinkWriter[Any]:
        return _LatencyWriter(self.out) if self.latency else _CountingWriter(self.out, self.sums)


class _CountingWriter(SinkWriter[Any]):
    def __init__(self, out: str, sums: bool) -> None:
        self._out, self._sums = out, sums
        self._rows = self._sum = 0
        self._last = 0.0

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        if not self._rows:
            note(self._out, {"first_record": time.monotonic()})
        self._rows += len(values)
        if self._sums:
            self._sum += sum([value[1] for value in values])
        self._last = time.monotonic()

    def close(self) -> None:
        note(self._out, {"rows": self._rows, "sum": self._sum, "last_record": self._last})


class _LatencyWriter(SinkWriter[Any]):
    """Keeps sink time - due time of every record, the first 15 s left out; in arrays, which no collector looks at."""

    def __init__(self, out: str) -> None:
        self._out = out
        self._late = array("q")
        self._rows = 0
        self._begun = self._last = 0

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        now = self._last = time.monotonic_ns()
        self._begun = self._begun or now
        self._rows += len(values)
        if now - self._begun > 15_000_000_000:
            self._late.extend([now - value[2] for value in values])

    def close(self) -> None:
        np.save(Path(self._out) / f"latency-{os.getpid()}.npy", np.array(self._late))
        note(self._out, {"rows": self._rows, "sum": 0, "last_record": self._last / 1e9})


class SplitLine(FlatMapFunction[str, str]):
    """Gives the words of a line; notes when the first line came."""

    def __init__(self, out: str) -> None:
        self._out, self._begun = out, False

    def flat_map(self, value: str) -> list[str]:
        if not self._begun:
            self._begun = True
            note(self._out, {"first_poll": time.monotonic()})
        return value.split()


class CountByKey(KeyedProcessFunction[Any, Any, Any]):
    """Emits (key, count so far) for every record."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield value[0], count


class CountWithDueTime(CountByKey):
    """The same, with the time at which the record was due."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield value[0], count, value[4]


class CountAtTheEnd(KeyedProcessFunction[Any, Any, Any]):
    """Emits (key, count) when event time has ended. It is no function that could be combined."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        count = self._count.value()
        if count is None:
            count = 0
            ctx.timer_service().register_event_time_timer(0)
        self._count.update(count + 1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield ctx.get_current_key(), self._count.value()


def environment(parallelism: int, options: dict[str, str]) -> StreamExecutionEnvironment:
    """An environment with these options set."""
    configuration = Configuration()
    for key, value in options.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(parallelism)
    return env


def build(
    env: StreamExecutionEnvironment,
    workload: str,
    count: int,
    out: str,
    text: list[str],
    rate: float,
    keys: int = events.KEYS,
) -> None:
    """Add a workload's operators."""
    no_marks = WatermarkStrategy.no_watermarks()
    if workload == "w4":
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *text).build()
        words = env.from_source(source, no_marks, "Lines").flat_map(SplitLine(out))
        counts = words.key_by(lambda word: word).process(_CountWords())
        counts.sink_to(CountingSink(out, sums=True))
        return
    if workload == "latency":
        bids = env.from_source(EventSource(count, out, rate, keys), no_marks, "Events")
        counts = bids.key_by(lambda bid: bid[0]).process(CountWithDueTime())
        counts.sink_to(CountingSink(out, sums=False, latency=True))
        return
    bids = env.from_source(EventSource(count, out, keys=keys), no_marks, "Events")
    if workload == "w1":
        euros = bids.map(lambda b: (b[0], b[1], b[2] * 0.908, b[3], b[4]))
        euros.filter(lambda b: b[0] % 123 == 0).sink_to(CountingSink(out, sums=False))
    else:
        bids.key_by(lambda bid: bid[0]).process(CountByKey()).sink_to(CountingSink(out, sums=True))


class _CountWords(CountByKey):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield value, count
