"""The connectors of ``nexmark_bench``: ``nx`` gives the events of Nexmark, ``tap`` counts the changes that it gets.

Each reader of events enters in a small file how far it is, so that the benchmark knows how many were read when it looks
at processor time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from benchmarks import nexmark_events
from typing_extensions import override

from firesteel.common.typeinfo import RowTypeInfo
from firesteel.common.types import RowKind
from firesteel.config.option import INT, STRING, Option
from firesteel.core.plugins import BUILT_IN
from firesteel.datastream import DataStream, StreamExecutionEnvironment
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
from firesteel.runtime.records.columns import StreamColumns
from firesteel_sql.connectors.changelog import ChangelogMode
from firesteel_sql.connectors.connector import GROUP, TableConnector, TableContext, read_source

EVENTS: Final = Option("events", INT, 0, "Number of events.")
FOLDER: Final = Option("folder", STRING, "", "Where readers and writers enter what they have done.")
MODE: Final = Option("mode", STRING, "upsert", "`upsert`: updates without the row before; `all`: with it.")
SUMS: Final = Option("sums", STRING, "off", "`on`: the sums of columns, where -U and -D count -1.")
MOST_READERS: Final = 64


def declare() -> None:
    """Have the connectors found by their names."""
    connectors = BUILT_IN.setdefault(GROUP, {})
    connectors["nx"], connectors["tap"] = f"{__name__}:EventsConnector", f"{__name__}:TapConnector"


class EventsConnector(TableConnector):
    """Each reader makes its part of the events: of two the first one has those with even numbers."""

    OPTIONS = (EVENTS, FOLDER)
    makes_watermarks = True

    @override
    def takes_fields(self, context: TableContext) -> bool:
        return True

    @override
    def read(self, environment: StreamExecutionEnvironment, context: TableContext) -> DataStream:
        options = context.options
        source = EventsSource(options.get(EVENTS), options.get(FOLDER), context.read_type)
        return read_source(environment, source, context)


class EventsSource(Source[Any]):
    """The first ``count`` events.

    Args:
        count: of all readers together.
        folder: has the file of their positions.
        type_info: of the rows: columns, and their fields, that are made.
    """

    def __init__(self, count: int, folder: str, type_info: RowTypeInfo) -> None:
        self.count, self.folder, self._type_info = count, folder, type_info

    @property
    @override
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @property
    @override
    def makes_columns(self) -> bool:
        return True

    @override
    def produced_type(self) -> RowTypeInfo:
        return self._type_info

    @override
    def with_columns(self, names: Sequence[str]) -> EventsSource:
        types = dict(zip(self._type_info.field_names, self._type_info.field_types, strict=True))
        narrower = copy(self)
        narrower._type_info = RowTypeInfo([types[name] for name in names], list(names))
        return narrower

    @override
    def enumerator(self) -> EnumeratorSpec:
        return EnumeratorSpec("subtasks", {})

    @override
    def create_reader(self, context: ReaderContext) -> SplitQueueReader[Any]:
        return _EventsReader(self, context)


class _EventsReader(SplitQueueReader[Any]):
    def __init__(self, source: EventsSource, context: ReaderContext) -> None:
        super().__init__()
        self._source, self._step = source, context.parallelism

    @override
    def open_split(self, split: Split) -> SplitCursor[Any]:
        subtask = int(split.data["subtask"])  # type: ignore[arg-type]
        position = subtask if split.position is None else int(split.position)  # type: ignore[arg-type]
        return _EventsCursor(self._source, subtask, position, self._step)


class _EventsCursor(SplitCursor[Any]):
    def __init__(self, source: EventsSource, subtask: int, position: int, step: int) -> None:
        self._end, self._subtask, self._position, self._step = source.count, subtask, position, step
        self._columns = {
            name: getattr(kind, "field_names", ())
            for name, kind in zip(source.produced_type().field_names, source.produced_type().field_types, strict=True)
        }
        self._schema = StreamColumns(source.produced_type()).schema
        self._positions = np.memmap(Path(source.folder) / "positions", np.int64, "r+", shape=MOST_READERS)

    @override
    def read(self, max_records: int) -> Chunk[Any]:
        stop = min(self._end, self._position + max_records * self._step)
        numbers = np.arange(self._position, stop, self._step, dtype=np.int64)
        self._position += len(numbers) * self._step
        self._positions[self._subtask] += len(numbers)
        batch = nexmark_events.batch(numbers, self._columns)
        return Chunk(batch, self._position, self._position >= self._end)


class TapConnector(TableConnector):
    """Counts rows by their kinds, and adds up columns."""

    OPTIONS = (FOLDER, MODE, SUMS)

    @override
    def sink_mode(self, context: TableContext, changes: ChangelogMode) -> ChangelogMode:
        return (
            changes if context.options.get(MODE) == "all" else ChangelogMode.of(changes.kinds - {RowKind.UPDATE_BEFORE})
        )

    @override
    def write(self, stream: DataStream, context: TableContext) -> None:
        stream.sink_to(_Tap(context.options.get(FOLDER), sums=context.options.get(SUMS) == "on"))


class _Tap(Sink[Any]):
    takes_changes = True

    def __init__(self, folder: str, *, sums: bool) -> None:
        self._folder, self._sums = folder, sums

    @override
    def create_writer(self, context: WriterContext) -> SinkWriter[Any]:
        return _TapWriter(Path(self._folder) / f"sink-{context.subtask_index}.json", sums=self._sums)


class _TapWriter(SinkWriter[Any]):
    takes_columns = True

    def __init__(self, path: Path, *, sums: bool) -> None:
        self._path, self._sums = path, sums
        self._kinds = np.zeros(4, np.int64)
        self._totals: dict[str, int] = {}
        self._last = 0.0

    @override
    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        raise TypeError("rows came where columns were expected")

    @override
    def write_columns(self, batch: pa.RecordBatch, timestamps: Any) -> None:
        self.write_changes(batch, np.zeros(batch.num_rows, np.int8), timestamps)

    @override
    def write_changes(self, batch: pa.RecordBatch, kinds: Any, timestamps: Any) -> None:
        self._kinds += np.bincount(kinds, minlength=4)
        self._last = time.monotonic()
        if self._sums:
            gone = pa.array((kinds & 1).astype(bool))
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                total = _sum(column.filter(pc.invert(gone))) - _sum(column.filter(gone))
                self._totals[name] = self._totals.get(name, 0) + total

    @override
    def close(self) -> None:
        seen = {"kinds": self._kinds.tolist(), "totals": self._totals, "last": self._last}
        self._path.write_text(json.dumps(seen))


def _sum(column: pa.Array) -> int:
    """A number for the values of a column.

    Numbers are added; decimals without their point; times as milliseconds after that of the first event; texts as their
    lengths in bytes and their bytes.
    """
    column = column.drop_null()
    if pa.types.is_string(column.type):
        data = np.frombuffer(b"".join(value.encode() for value in column.to_pylist()), np.uint8)
        return len(data) + int(data.sum(dtype=np.int64))
    if pa.types.is_timestamp(column.type):
        milliseconds = column.cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy()
        return int((milliseconds - nexmark_events.BEGINNING_MS).sum())
    if pa.types.is_decimal(column.type):
        return sum(int(value.scaleb(column.type.scale)) for value in column.to_pylist())
    return int(column.cast(pa.int64()).to_numpy().sum())
