"""The workloads over columns: sources that make record batches, expressions, and functions of both kinds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from benchmarks import events
from benchmarks.programs import CountByKey, note

from firesteel.common import Types, WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.base import Sink, SinkWriter, WriterContext
from firesteel.datastream.connectors.data_generator import DataGeneratorSource
from firesteel.datastream.connectors.file_system import FileSource, StreamFormat
from firesteel.expressions import col, count

BID = Types.ROW_NAMED(
    ["auction", "bidder", "price", "channel", "ts"],
    [Types.LONG(), Types.LONG(), Types.LONG(), Types.STRING(), Types.LONG()],
)


class Events:
    """Makes the events as record batches; all five fields, or those it is asked for.

    Args:
        out: where the time of the first call goes.
        keys: different auctions.
    """

    def __init__(self, out: str, keys: int = events.KEYS) -> None:
        self._out, self._begun, self._keys = out, False, keys

    def __call__(self, start: int, count: int, columns: Sequence[str] = events.FIELDS) -> pa.RecordBatch:
        if not self._begun:
            self._begun = True
            note(self._out, {"first_poll": time.monotonic()})
        return events.batch(start, start + count, columns, self._keys)


class CountingColumns(Sink[Any]):
    """Counts rows and sums the column ``n`` if there is one; takes rows, too."""

    def __init__(self, out: str, *, sums: bool) -> None:
        self.out, self.sums = out, sums

    def create_writer(self, context: WriterContext) -> SinkWriter[Any]:
        return _CountingWriter(self.out, self.sums)


class _CountingWriter(SinkWriter[Any]):
    takes_columns = True

    def __init__(self, out: str, sums: bool) -> None:
        self._out, self._sums = out, sums
        self._rows = self._sum = 0
        self._last = 0.0

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        self._add(len(values), sum([value[1] for value in values]) if self._sums else 0)

    def write_columns(self, batch: pa.RecordBatch, timestamps: npt.NDArray[np.int64] | None) -> None:
        self._add(batch.num_rows, int(batch.column("n").to_numpy().sum()) if self._sums else 0)

    def _add(self, rows: int, total: int) -> None:
        if not self._rows:
            note(self._out, {"first_record": time.monotonic()})
        self._rows += rows
        self._sum += total
        self._last = time.monotonic()

    def close(self) -> None:
        note(self._out, {"rows": self._rows, "sum": self._sum, "last_record": self._last})


BID_TUPLE = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG(), Types.STRING(), Types.LONG()])
"""Python functions take tuples in a third of the time that rows with names need."""
TEXT = Types.TUPLE([Types.STRING()])


class Words:
    """The words of a batch of lines; notes when the first lines came."""

    def __init__(self, out: str) -> None:
        self._out, self._begun = out, False

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self._begun:
            self._begun = True
            note(self._out, {"first_poll": time.monotonic()})
        words = pc.list_flatten(pc.ascii_split_whitespace(batch.column(0)))
        return pa.RecordBatch.from_arrays([words], ["f0"])


def build(
    env: StreamExecutionEnvironment, workload: str, total: int, out: str, text: list[str], keys: int = events.KEYS
) -> None:
    """Add a workload's operators."""
    no_marks = WatermarkStrategy.no_watermarks()
    if workload in ("w4c", "w4p"):
        lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(column="line"), *text).build()
        words = env.from_source(lines, no_marks, "Lines").map_batches(Words(out), TEXT).key_by("f0")
        counted = words.aggregate(count().alias("n")) if workload == "w4c" else words.process(CountByKey())
        counted.sink_to(CountingColumns(out, sums=True))
        return
    declared = BID_TUPLE if workload == "w2p" else BID
    source = DataGeneratorSource.of_batches(Events(out, keys), declared, total, projects=workload.endswith("cp"))
    bids = env.from_source(source, no_marks, "Events")
    if workload.startswith("w1"):
        kept = bids.with_columns((col("price") * 0.908).alias("price")).filter(col("auction") % 123 == 0)
        kept = kept.select("auction", "price") if workload == "w1cp" else kept
        kept.sink_to(CountingColumns(out, sums=False))
    elif workload == "w2p":
        bids.key_by("f0").process(CountByKey()).sink_to(CountingColumns(out, sums=True))
    else:
        bids.key_by("auction").aggregate(count().alias("n")).sink_to(CountingColumns(out, sums=True))
