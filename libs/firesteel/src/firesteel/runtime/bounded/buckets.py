"""Input with keys, where it is bounded: it comes bucket by bucket, and all records of a key are in one bucket.

Records of a bucket are put into the order in which Flink gives them in batch mode: key by key, and by time within a
key; where nobody can see the order of keys, only by time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.expressions.keys import ManyKeys
from firesteel.functions.functions import KeySelector
from firesteel.runtime.batch import MIN_WATERMARK, Batch, InputBatch, alike, merge
from firesteel.runtime.columns.columns import take
from firesteel.runtime.columns.rows import to_list, to_rows
from firesteel.runtime.operators.base import method_of

KeysOf = Callable[[Sequence[Any]], Iterable[Any]]


def keys_of(selector: Any) -> KeysOf:
    """What gives the keys of many records."""
    if isinstance(selector, ManyKeys):
        return selector.keys_of
    key = method_of(selector, KeySelector, "get_key")
    return lambda values: map(key, values)


class Bucket:
    """The records of some key groups, of all inputs.

    Args:
        selectors: of the operator, for each input; None = the order of keys is nobody's business.
    """

    def __init__(self, selectors: Sequence[Any] | None) -> None:
        self._selectors = selectors
        self._batches: list[InputBatch] = []

    def add(self, batch: Batch, input_index: int) -> None:
        """Records came."""
        self._batches.append(InputBatch(batch, input_index))

    def __len__(self) -> int:
        return len(self._batches)

    def ordered(self) -> Iterator[InputBatch]:
        """All of them."""
        batches, self._batches = self._batches, []
        indexes = {one.input_index for one in batches}
        if self._selectors is None and len(indexes) == 1:
            (index,) = indexes
            for batch in _runs([one.batch for one in batches]):
                yield InputBatch(_by_time(batch), index)
        else:
            yield from self._by_key(batches)

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
                mine = record[1], record[3] is None, record[4] is None
                if run and mine != form:
                    yield _batch(run)
                    run = []
                form = mine
                run.append(record)
        if run:
            yield _batch(run)


def _time_and_input(record: tuple[int, int, Any, Any, Any]) -> tuple[int, int]:
    return record[0], record[1]


def _batch(run: Sequence[tuple[int, int, Any, Any, Any]]) -> InputBatch:
    _, index, _, stamp, kind = run[0]
    values = [record[2] for record in run]
    stamps = None if stamp is None else [record[3] for record in run]
    return InputBatch(Batch(values, stamps, None if kind is None else [record[4] for record in run]), index)


def _runs(batches: Sequence[Batch]) -> Iterator[Batch]:
    """As few batches as it may be."""
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
