"""Keyed input in batch mode: it comes bucket by bucket, and all records of a key are in one bucket.

Records of a bucket are sorted as in Flink's batch mode: by key, and by time within a key; or only by time, if nobody
can see the order of keys. A bucket that does not fit into memory is divided by key into files (a Grace hash partition).
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa

from firesteel.common.nan_keys import each_with_one_nan
from firesteel.core.call_each import call_each
from firesteel.expressions.keys import ManyKeys
from firesteel.functions.functions import KeySelector
from firesteel.runtime.bounded.operators import is_parts
from firesteel.runtime.exchange.serialization import MessageReader, MessageWriter
from firesteel.runtime.operator_base.base import method_of
from firesteel.runtime.records.batch import MIN_WATERMARK, Batch, InputBatch, alike, merge
from firesteel.runtime.records.columns import take
from firesteel.runtime.records.rows import to_list, to_rows

HELD_BYTES: Final = 32 << 20
"""Bytes of one bucket, as in the shuffle, that are in memory at a time."""
PARTS: Final = 16
"""Number of files into which a larger bucket is divided; each of them is divided again if it is still too large."""
DEEPEST: Final = 4
"""Most times that records are divided. If they are still too many then, they belong to one key, or to a few."""
RUN_DIRECTORY_VARIABLE: Final = "FIRESTEEL_RUN_DIRECTORY"
"""Environment variable with the directory for files of workers (``firesteel.spark.workers``)."""
_FRAME: Final = struct.Struct(">iq")
KeysOf = Callable[[Sequence[Any]], Iterable[Any]]


def keys_of(selector: Any) -> KeysOf:
    """A function that computes the keys of many records, with every NaN replaced by one object, as in operators."""
    if isinstance(selector, ManyKeys):
        return lambda values: each_with_one_nan(list(selector.keys_of(values)))
    key = method_of(selector, KeySelector, "get_key")
    return lambda values: each_with_one_nan(call_each(key, values))


class Bucket:
    """The records of some key groups, from all inputs. Those that do not fit into memory are in files, divided by key.

    Args:
        selectors: key selectors of the operator, for each input; None = records need not be sorted by key.
        keys: key selectors by which records may be divided; None = they must not be divided.
        spilled: called with the number of bytes that were written to a file.
        depth: how often these records were divided.
    """

    def __init__(
        self,
        selectors: Sequence[Any] | None,
        keys: Sequence[Any] | None = None,
        spilled: Callable[[int], None] = lambda _: None,
        depth: int = 0,
    ) -> None:
        self._selectors, self._keys, self._spilled, self._depth = selectors, keys, spilled, depth
        self._batches: list[InputBatch] = []
        self._bytes = 0
        self._files: list[BinaryIO] = []

    def add(self, batch: Batch, input_index: int, size: int) -> None:
        """Add records of an input, which have this many bytes in the shuffle."""
        self._batches.append(InputBatch(batch, input_index))
        self._bytes += size
        if self._bytes > HELD_BYTES and self._keys is not None and self._depth < DEEPEST:
            self._spill()

    def __len__(self) -> int:
        return len(self._batches) + len(self._files)

    def pieces(self) -> Iterator[Bucket]:
        """Yield buckets that fit into memory, each with all records of its keys; use one before taking the next."""
        if not self._files:
            yield self
            return
        self._spill()
        while self._files:
            with self._files.pop(0) as file:
                file.seek(0)
                piece = Bucket(self._selectors, self._keys, self._spilled, self._depth + 1)
                for index, blob in _read(file):
                    piece.add(MessageReader("its own file").loads(blob), index, len(blob))
                if len(piece):
                    yield from piece.pieces()

    def close(self) -> None:
        """Close the files, with records that were not read."""
        for file in self._files:
            file.close()
        self._files = []

    def _spill(self) -> None:
        """Divide the records in memory by key, and write them to files without names, which vanish with the process."""
        if not self._files:
            folder = os.environ.get(RUN_DIRECTORY_VARIABLE) or None
            for _ in range(PARTS):
                self._files.append(tempfile.TemporaryFile(dir=folder, prefix="bucket-"))  # noqa: SIM115 # see close
        assert self._keys is not None
        batches, self._batches, self._bytes = self._batches, [], 0
        for batch, index in batches:
            rows = to_rows(batch)
            places: list[list[int]] = [[] for _ in range(PARTS)]
            for number, key in enumerate(keys_of(self._keys[index])(rows.values)):
                places[hash((self._depth, key)) % PARTS].append(
                    number
                )  # with the depth, or a file could not be divided
            for file, numbers in zip(self._files, places, strict=True):
                if numbers:
                    segments, _ = MessageWriter().dumps(_chosen(rows, numbers))
                    blob = b"".join(segments)
                    file.write(_FRAME.pack(index, len(blob)))
                    file.write(blob)
                    self._spilled(len(blob))

    def ordered(self) -> Iterator[InputBatch]:
        """Take the records in order: by key and time, or only by time."""
        inputs, self._batches = self._batches, []
        indexes = {incoming.input_index for incoming in inputs}
        if self._selectors is None and len(indexes) == 1:
            (index,) = indexes
            batches = [incoming.batch for incoming in inputs]
            # Parts first, which come between the rows of each sender, so that rows can be merged into few batches.
            batches.sort(key=lambda batch: not is_parts(batch.values))
            for batch in _runs(batches):
                yield InputBatch(_by_time(batch), index)
        else:
            yield from self._by_key(inputs)

    def _by_key(self, batches: Sequence[InputBatch]) -> Iterator[InputBatch]:
        places: dict[Any, list[tuple[int, int, Any, Any, Any]]] = {}
        selectors = self._selectors
        for batch, index in batches:
            rows = to_rows(batch)
            values: list[Any] = rows.values
            count = len(values)
            nothing: list[Any] = [None] * count
            stamps, kinds = to_list(rows.timestamps) or nothing, to_list(rows.kinds) or nothing
            keys = nothing if selectors is None else keys_of(selectors[index])(values)
            for key, value, stamp, kind in zip(keys, values, stamps, kinds, strict=True):
                time = MIN_WATERMARK if stamp is None else stamp
                places.setdefault(key, []).append((time, index, value, stamp, kind))
        run: list[tuple[int, int, Any, Any, Any]] = []
        form: Any = None
        for records in places.values():
            records.sort(key=_time_and_input)
            for record in records:
                # A batch has one input, and either all of its records have a timestamp (a row kind) or none.
                record_form = record[1], record[3] is None, record[4] is None
                if run and record_form != form:
                    yield _batch(run)
                    run = []
                form = record_form
                run.append(record)
        if run:
            yield _batch(run)


def _read(file: BinaryIO) -> Iterator[tuple[int, bytearray]]:
    """Yield what was spilled to a file: the number of the input, and the message of a batch."""
    while head := file.read(_FRAME.size):
        index, size = _FRAME.unpack(head)
        yield index, bytearray(file.read(size))


def _chosen(rows: Batch, numbers: Sequence[int]) -> Batch:
    """The rows at these positions, as a batch."""
    stamps, kinds = to_list(rows.timestamps), to_list(rows.kinds)
    return Batch(
        [rows.values[number] for number in numbers],
        stamps and [stamps[number] for number in numbers],
        kinds and [kinds[number] for number in numbers],
    )


def _time_and_input(record: tuple[int, int, Any, Any, Any]) -> tuple[int, int]:
    return record[0], record[1]


def _batch(run: Sequence[tuple[int, int, Any, Any, Any]]) -> InputBatch:
    _, index, _, stamp, kind = run[0]
    values = [record[2] for record in run]
    stamps = None if stamp is None else [record[3] for record in run]
    return InputBatch(Batch(values, stamps, None if kind is None else [record[4] for record in run]), index)


def _runs(batches: Sequence[Batch]) -> Iterator[Batch]:
    """Merge consecutive batches that are alike."""
    run: list[Batch] = []
    for batch in batches:
        if run and not alike(run[-1], batch):
            yield merge(run)
            run = []
        run.append(batch)
    if run:
        yield merge(run)


def _by_time(batch: Batch) -> Batch:
    stamps = batch.timestamps
    if stamps is None:
        return batch
    times = np.asarray(stamps, np.int64)
    if bool(np.all(times[1:] >= times[:-1])):
        return batch
    order = np.argsort(times, kind="stable")
    if isinstance(batch.values, pa.RecordBatch):
        return take(batch, order)
    places = order.tolist()
    values, kinds = batch.values, batch.kinds
    return Batch([values[i] for i in places], times[order].tolist(), kinds and [kinds[i] for i in places])
