"""Buckets of input with keys: what comes in pieces from many tasks goes on in as few as it may."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from firesteel.runtime.batch import Batch
from firesteel.runtime.bounded.buckets import Bucket
from firesteel.runtime.bounded.operators import PARTS, is_parts


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
    found = [one.batch for one in bucket.ordered()]
    assert [is_parts(batch.values) for batch in found] == [True, False]
    held, sent = found
    assert numbers_of(held) == [1, 2, 3]
    assert numbers_of(sent) == [1, 5, 6, 7, 8], "by time"
    assert sent.timestamps is not None
    assert list(sent.timestamps) == [1, 5, 6, 7, 8]


def test_records_that_change_others_stay_behind_them() -> None:
    bucket = Bucket(None)
    for batch in (Batch([1]), Batch([1], None, [3]), Batch([2])):
        bucket.add(batch, 0, 100)
    assert [(one.batch.values, one.batch.kinds) for one in bucket.ordered()] == [([1], None), ([1], [3]), ([2], None)]
