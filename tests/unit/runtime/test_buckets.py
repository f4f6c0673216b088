"""Buckets of input with keys: what comes in pieces from many tasks goes on in as few as it may."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firesteel.common.types import Row
from firesteel.expressions.keys import ManyKeys
from firesteel.runtime.bounded import buckets
from firesteel.runtime.bounded.buckets import Bucket
from firesteel.runtime.bounded.operators import PARTS, is_parts
from firesteel.runtime.records.batch import Batch


def rows(*numbers: int) -> Batch:
    return Batch(pa.RecordBatch.from_pydict({"n": numbers}), np.array(numbers, np.int64))


def numbers_of(batch: Batch) -> list[int]:
    assert isinstance(batch.values, pa.RecordBatch)
    return list(batch.values.to_pydict()["n"])


def parts(*numbers: int) -> Batch:
    return Batch(pa.RecordBatch.from_pydict({"n": numbers}).replace_schema_metadata({PARTS: b""}))


def test_rows_of_all_tasks_come_together_though_parts_stand_between_them() -> None:
    """Else windows would get a handful of rows for each pane, once for each task."""
    bucket = Bucket(None)
    for batch in (parts(1), rows(5, 7), rows(6), parts(2, 3), rows(1, 8)):
        bucket.add(batch, 0, 100)
    batches = [entry.batch for entry in bucket.ordered()]
    assert [is_parts(batch.values) for batch in batches] == [True, False]
    held_batch, sent = batches
    assert numbers_of(held_batch) == [1, 2, 3]
    assert numbers_of(sent) == [1, 5, 6, 7, 8], "by time"
    assert sent.timestamps is not None
    assert list(sent.timestamps) == [1, 5, 6, 7, 8]


def test_records_that_change_others_stay_behind_them() -> None:
    bucket = Bucket(None)
    for batch in (Batch([1]), Batch([1], None, [3]), Batch([2])):
        bucket.add(batch, 0, 100)
    assert [(entry.batch.values, entry.batch.kinds) for entry in bucket.ordered()] == [
        ([1], None),
        ([1], [3]),
        ([2], None),
    ]


class ManyFirst(ManyKeys):
    """As keys of several columns are read."""

    def keys_of(self, records: Any) -> Any:
        return tuple(record[0] for record in records)


NAN_KEYS: dict[str, Callable[[], Any]] = {
    "float": lambda: float("nan"),
    "tuple": lambda: ("a", (float("nan"), 1)),
    "Decimal": lambda: Decimal("NaN"),
    "numpy": lambda: np.float32("nan"),
    "row": lambda: Row(a=float("nan")),
}


@pytest.mark.parametrize("selector", [lambda value: value[0], ManyFirst()], ids=["each", "many"])
@pytest.mark.parametrize("make", NAN_KEYS.values(), ids=NAN_KEYS)
def test_nan_is_one_key(make: Callable[[], Any], selector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of time within it, and in one piece when a bucket is divided among files."""
    monkeypatch.setattr(buckets, "HELD_BYTES", 100)
    for keys in (None, [selector]):
        bucket = Bucket([selector], keys)
        for time in (5, 3, 9, 1):
            bucket.add(Batch([(make(), time), ("other", 2 * time)], [time, time]), 0, 60)
        pieces = [[batch for batch, _ in piece.ordered()] for piece in bucket.pieces()]
        times = [[value[1] for batch in piece for value in batch.values if value[0] != "other"] for piece in pieces]
        assert [piece for piece in times if piece] == [[1, 3, 5, 9]]
