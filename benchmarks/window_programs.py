"""W3, windows: Python functions on rows (``w3``) and aggregates of columns (``w3c``); ``s`` at the end: out of order.

The subtasks of a source take the events in turn, so that all are at about the same event time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from benchmarks import events
from benchmarks.column_programs import BID
from benchmarks.programs import note

from firesteel.common import Duration, Time, WatermarkStrategy
from firesteel.common.watermark_strategy import TimestampAssigner
from firesteel.datastream import AggregateFunction, ProcessWindowFunction, StreamExecutionEnvironment
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
    WriterContext,
)
from firesteel.datastream.connectors.data_generator import DataGeneratorSource
from firesteel.datastream.window import TumblingEventTimeWindows
from firesteel.expressions import col, count, max_

WINDOW_MS: Final = 10_000
_BLOCK: Final = 20_000
"""Events of 2 s, whose order is shuffled."""


def numbers(start: int, stop: int, total: int, parallelism: int, *, shuffled: bool) -> npt.NDArray[np.int64]:
    """Of the events that a subtask gives in place of those from ``start`` to ``stop`` of its part."""
    part = total // parallelism
    subtask, first = start // part, start % part
    places = np.arange(first, first + stop - start)
    if shuffled:
        block = _BLOCK // parallelism
        mixed = np.random.default_rng(7).permutation(block)
        places = np.minimum(places // block * block + mixed[places % block], part - 1)
    return places * parallelism + subtask


def expected(total: int) -> tuple[int, int]:
    """(rows, sum of the largest prices) for the events up to ``total``."""
    auction, _, price, _, ts = events.columns(0, total)
    places = ts // WINDOW_MS * 10_000 + auction
    order = np.argsort(places, kind="stable")
    first = np.flatnonzero(np.append(True, np.diff(places[order]) > 0))
    return len(first), int(np.maximum.reduceat(price[order], first).sum())


class Rows(Source[Any]):
    """The events as tuples.

    Args:
        count: of all subtasks together.
        out: where the time of the first poll goes.
        shuffled: out of order within 2 s.
    """

    def __init__(self, count: int, out: str, *, shuffled: bool) -> None:
        self.count, self.out, self.shuffled = count, out, shuffled

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def enumerator(self) -> EnumeratorSpec:
        return EnumeratorSpec("numbers", {"start": 0, "end": self.count})

    def create_reader(self, context: ReaderContext) -> SplitQueueReader[Any]:
        return _RowsReader(self, context.parallelism)


class _RowsReader(SplitQueueReader[Any]):
    def __init__(self, source: Rows, parallelism: int) -> None:
        super().__init__()
        self._source, self._parallelism = source, parallelism

    def open_split(self, split: Split) -> SplitCursor[Any]:
        note(self._source.out, {"first_poll": time.monotonic()})
        start, end = int(split.data["start"]), int(split.data["end"])  # type: ignore[arg-type]
        return _RowsCursor(self._source, start, end, self._parallelism)


class _RowsCursor(SplitCursor[Any]):
    def __init__(self, source: Rows, start: int, end: int, parallelism: int) -> None:
        self._source, self._position, self._end, self._parallelism = source, start, end, parallelism
        self._made: list[Any] = []
        self._given = 0

    def read(self, max_records: int) -> Chunk[Any]:
        source = self._source
        if self._given >= len(self._made):
            stop = min(self._end, self._position + _BLOCK)
            chosen = numbers(self._position, stop, source.count, self._parallelism, shuffled=source.shuffled)
            self._made, self._given = events.picked_tuples(chosen), 0
            self._position = stop
        values = self._made[self._given : self._given + max_records]
        self._given += len(values)
        left = len(self._made) - self._given
        return Chunk(values, self._position - left, self._position >= self._end and not left)


class Columns:
    """The events as record batches; all five fields, or those it is asked for."""

    def __init__(self, total: int, out: str, parallelism: int, *, shuffled: bool) -> None:
        self._total, self._out, self._parallelism, self._shuffled = total, out, parallelism, shuffled
        self._begun = False

    def __call__(self, start: int, count: int, columns: Sequence[str] = events.FIELDS) -> pa.RecordBatch:
        if not self._begun:
            self._begun = True
            note(self._out, {"first_poll": time.monotonic()})
        chosen = numbers(start, start + count, self._total, self._parallelism, shuffled=self._shuffled)
        return events.picked(chosen, columns)


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[4])


class CountAndMax(AggregateFunction[Any, Any, Any]):
    """Number and largest price."""

    combinable = True

    def create_accumulator(self) -> tuple[int, int]:
        return 0, -1

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        largest = accumulator[1]
        return accumulator[0] + 1, (value[2] if value[2] > largest else largest)

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], max(acc_a[1], acc_b[1])


class WithWindow(ProcessWindowFunction[Any, Any, Any, Any]):
    """Key, start of the window, number, largest price."""

    def process(self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Any) -> Any:
        for number, largest in elements:
            yield key, context.window().start, number, largest


class WindowSink(Sink[Any]):
    """Counts rows, and sums the numbers and the largest prices."""

    def __init__(self, out: str) -> None:
        self.out = out

    def create_writer(self, context: WriterContext) -> SinkWriter[Any]:
        return _WindowWriter(self.out)


class _WindowWriter(SinkWriter[Any]):
    takes_columns = True

    def __init__(self, out: str) -> None:
        self._out = out
        self._rows = self._counts = self._largest = 0
        self._last = 0.0

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        self._add(len(values), sum([value[2] for value in values]), sum([value[3] for value in values]))

    def write_columns(self, batch: pa.RecordBatch, timestamps: npt.NDArray[np.int64] | None) -> None:
        counts, largest = batch.column("count").to_numpy(), batch.column("max_price").to_numpy()
        self._add(batch.num_rows, int(counts.sum()), int(largest.sum()))

    def _add(self, rows: int, counts: int, largest: int) -> None:
        if not self._rows:
            note(self._out, {"first_record": time.monotonic()})
        self._rows += rows
        self._counts += counts
        self._largest += largest
        self._last = time.monotonic()

    def close(self) -> None:
        result = {"rows": self._rows, "sum": self._counts, "largest": self._largest, "last_record": self._last}
        note(self._out, result)


def build(env: StreamExecutionEnvironment, workload: str, count: int, out: str) -> None:
    """Add a workload's operators."""
    late = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(4))
    windows = TumblingEventTimeWindows.of(Time.seconds(10))
    shuffled = workload.endswith("s")
    if "c" in workload:
        made = Columns(count, out, env.get_parallelism(), shuffled=shuffled)
        source = DataGeneratorSource.of_batches(made, BID, count)
        bids = env.from_source(source, late.with_timestamp_assigner(col("ts")), "Events")
        results = bids.key_by("auction").window(windows).aggregate(*COUNT_AND_MAX)
    else:
        bids = env.from_source(Rows(count, out, shuffled=shuffled), late.with_timestamp_assigner(EventTime()), "Events")
        results = bids.key_by(lambda bid: bid[0]).window(windows).aggregate(CountAndMax(), WithWindow())
    results.sink_to(WindowSink(out))


COUNT_AND_MAX: Final = (count(), max_("price"))
