"""W2 with many keys, at a sink that notes how it goes on: what checkpoints and faults are measured with."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from benchmarks.column_programs import BID, Events
from benchmarks.programs import CountByKey, EventSource, note

from firesteel.common import WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.base import Sink, SinkWriter, WriterContext
from firesteel.datastream.connectors.data_generator import DataGeneratorSource
from firesteel.expressions import count

VARIANTS: Final = {"w2": (10_000, False), "w2cm": (1_000_000, True), "w2m": (1_000_000, False)}
"""Keys, and whether in columns."""
_SAMPLE_SECONDS: Final = 0.1
FAULT: Final = "fault"
"""A file in the folder of the notes: the sink that sees it first takes it away and raises."""


class SamplingSink(Sink[Any]):
    """Notes ten times a second how many rows have come and how much processor time its process has used."""

    def __init__(self, out: str) -> None:
        self.out = out

    def create_writer(self, context: WriterContext) -> SinkWriter[Any]:
        return _SamplingWriter(self.out)


class _SamplingWriter(SinkWriter[Any]):
    takes_columns = True

    def __init__(self, out: str) -> None:
        self._out = out
        self._rows = self._sum = 0
        self._next = 0.0
        self._samples: list[tuple[float, int, float]] = []

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        self._add(len(values), sum([value[1] for value in values]))

    def write_columns(self, batch: pa.RecordBatch, timestamps: npt.NDArray[np.int64] | None) -> None:
        self._add(batch.num_rows, int(batch.column("n").to_numpy().sum()))

    def _add(self, rows: int, total: int) -> None:
        if not self._rows:
            note(self._out, {"first_record": time.monotonic(), "pid": os.getpid()})
        self._rows += rows
        self._sum += total
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _SAMPLE_SECONDS
            self._samples.append((now, self._rows, time.process_time()))
            self._raise_if_wanted()

    def _raise_if_wanted(self) -> None:
        try:
            (Path(self._out) / FAULT).unlink()
        except FileNotFoundError:
            return
        note(self._out, {"raised": time.monotonic()})
        raise RuntimeError("as wanted by the benchmark")

    def close(self) -> None:
        note(self._out, {"rows": self._rows, "sum": self._sum, "samples": self._samples})


def build(env: StreamExecutionEnvironment, variant: str, total: int, out: str) -> None:
    """Add W2 with the variant's keys."""
    keys, columnar = VARIANTS[variant]
    no_marks = WatermarkStrategy.no_watermarks()
    if columnar:
        source = DataGeneratorSource.of_batches(Events(out, keys), BID, total)
        bids = env.from_source(source, no_marks, "Events")
        bids.key_by("auction").aggregate(count().alias("n")).sink_to(SamplingSink(out))
        return
    bids = env.from_source(EventSource(total, out, keys=keys), no_marks, "Events")
    bids.key_by(lambda bid: bid[0]).process(CountByKey()).sink_to(SamplingSink(out))


def notes_of(out: str) -> list[dict[str, Any]]:
    """All notes so far."""
    found = []
    for path in Path(out).glob("*.jsonl"):
        for line in path.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:  # it is being written
                continue
    return found
