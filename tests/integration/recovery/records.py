"""A source of records that are known in advance: each split counts until it has all, or until the test says stop.

A record is ``(key, time, split, number, last)``; how many there were of each split is written beside the orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from firesteel.common import TimestampAssigner, TypeInformation, Types
from firesteel.core.process import myself
from firesteel.datastream.connectors.base import (
    END,
    NEED_SPLITS,
    Boundedness,
    EnumeratorSpec,
    ReaderContext,
    Source,
    SourceBatch,
    SourceReader,
    Split,
    Wait,
)
from tests.integration.recovery import steps

KEYS: Final = 13
LATE_MS: Final = 12
"""No record comes so many milliseconds behind a later one of its split."""
STOP: Final = "stop"
PIECE: Final = 50
"""Most records of one poll."""


class Record(NamedTuple):
    """See the module."""

    key: int
    at: int
    split: str
    number: int
    last: bool


TYPE: Final = Types.ROW_NAMED(
    list(Record._fields), [Types.LONG(), Types.LONG(), Types.STRING(), Types.LONG(), Types.BOOLEAN()]
)


def record(split: str, number: int, last: bool = False) -> Record:
    """A record of a split."""
    key = (number * 31 + ord(split[-1])) % KEYS
    gap = number // 400 * 500  # so that sessions end
    return Record(key, gap + number * 3 + number * 7 % LATE_MS, split, number, last)


class AtOfRecord(TimestampAssigner):
    """The time of a record."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Records(Source[Any]):
    """See the module.

    Args:
        folder: of the orders.
        name: of the source, and of what it writes.
        splits: name to number of records; None = until the test says stop.
        rate: records a second of each reader.
        columns: batches are columns.
    """

    def __init__(
        self, folder: Path, name: str, splits: dict[str, int | None], rate: int = 2000, columns: bool = False
    ) -> None:
        self.folder, self.name, self._splits, self.rate, self.columns = folder, name, splits, rate, columns

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def enumerator(self) -> EnumeratorSpec:
        splits = [Split(name, {"count": count}).to_plain() for name, count in self._splits.items()]
        return EnumeratorSpec("static", {"splits": splits})

    def create_reader(self, context: ReaderContext) -> SourceReader[Any]:
        return _Reader(self, context)

    def produced_type(self) -> TypeInformation | None:
        return TYPE if self.columns else None

    @property
    def makes_columns(self) -> bool:
        return self.columns


class _Reader(SourceReader[Any]):
    def __init__(self, source: Records, context: ReaderContext) -> None:
        self._source, self._context = source, context
        self._splits: list[Split] = []
        self._no_more = False
        self._given = 0

    def open(self) -> None:
        me = myself()
        steps.write(self._source.folder / f"slot-{me.pid}", str(me.start))
        self._since = self._context.monotonic()

    def add_splits(self, splits: Sequence[Split]) -> None:
        self._splits += splits

    def no_more_splits(self) -> None:
        self._no_more = True

    def pause_splits(self, split_ids: Sequence[str]) -> None: ...

    def resume_splits(self, split_ids: Sequence[str]) -> None: ...

    def snapshot(self) -> list[Split]:
        return list(self._splits)

    def ready_for_checkpoint(self) -> bool:
        steps.at(self._source.folder, steps.BEFORE_BARRIER)
        return True

    def poll(self, max_records: int) -> Any:
        if not self._splits:
            return END if self._no_more else NEED_SPLITS
        ahead = self._given / self._source.rate - (self._context.monotonic() - self._since)
        if ahead > 0:
            return Wait(max(ahead, 0.005))
        split = self._splits[0]
        begin: Any = split.position or 0
        count: Any = split.data["count"]
        end = begin + min(PIECE, max_records, self._source.rate // 20 + 1)
        if count is not None:
            end = min(end, count)
        finished = end == count if count is not None else (self._source.folder / STOP).exists()
        values = [record(split.id, number, finished and number == end - 1) for number in range(begin, end)]
        if finished:
            steps.write(self._source.folder / f"{steps.READ}{self._source.name}-{split.id}", str(end))
            del self._splits[0]
        else:
            self._splits[0] = split.at(end)
        self._given += len(values)
        batch_values: Any = _columns(values) if self._source.columns else [tuple(value) for value in values]
        return SourceBatch(batch_values, split.id, end, split_finished=finished)


def _columns(values: list[Record]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {name: list(column) for name, column in zip(Record._fields, zip(*values, strict=True), strict=True)}
    )


def read(folder: Path, name: str) -> Iterator[Record]:
    """All records of a source, split by split; it has ended."""
    prefix = f"{steps.READ}{name}-"
    for file in sorted(folder.glob(f"{prefix}*")):
        count = int(file.read_text())
        for number in range(count):
            yield record(file.name.removeprefix(prefix), number, number == count - 1)
