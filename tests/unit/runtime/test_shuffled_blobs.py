"""Blobs of Spark's shuffle: what a channel writes is what is read from them."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firesteel.core.errors import ProtocolError
from firesteel.runtime.bounded.blobs import BLOB_BYTES, MARKER, Shuffled, read_batch, totals
from firesteel.runtime.records.batch import Batch


def written(*batches: Batch) -> list[bytes]:
    shuffled = Shuffled()
    channel = shuffled.channel(0, 0, 7)
    for batch in batches:
        channel.write(batch)
    shuffled.flush()
    elements = list(shuffled.take())
    assert elements[::2] == [(7).to_bytes(8, "big")] * (len(elements) // 2)
    assert shuffled.bytes_out == sum(map(len, elements[1::2]))
    assert channel.records_out == sum(map(len, batches))
    assert all(blob[0] != MARKER for blob in elements[1::2]), "it would be taken for a marker"
    return elements[1::2]


def plain(batch: Batch) -> tuple[list[Any], Any, Any]:
    values = batch.values.to_pylist() if isinstance(batch.values, pa.RecordBatch) else batch.values
    return values, batch.timestamps, batch.kinds


def test_rows_of_several_parts_are_one_batch_again() -> None:
    blobs = written(Batch(["a"], [1]), Batch(["b", ("c",)], [2, 3]), Batch(["d" * 99], [4]))
    assert [plain(read_batch(blob, "p")) for blob in blobs] == [(["a", "b", ("c",), "d" * 99], [1, 2, 3, 4], None)]
    blobs = written(Batch([1], None, [0]), Batch([2], None, [3]))
    assert [plain(read_batch(blob, "p")) for blob in blobs] == [([1, 2], None, [0, 3])]


def test_what_differs_in_form_goes_apart_and_in_order() -> None:
    columns = pa.RecordBatch.from_pydict({"n": [1, 2]})
    others = pa.RecordBatch.from_pydict({"m": ["x"]})
    blobs = written(
        Batch([1]), Batch([2], [5]), Batch([3], [6]), Batch(columns), Batch(columns), Batch(others), Batch([4])
    )
    assert [plain(read_batch(blob, "p")) for blob in blobs] == [
        ([1], None, None),
        ([2, 3], [5, 6], None),
        ([{"n": 1}, {"n": 2}] * 2, None, None),
        ([{"m": "x"}], None, None),
        ([4], None, None),
    ]


def test_large_arrays_stay_writable() -> None:
    (blob,) = written(Batch([np.zeros(1000)]), Batch([np.ones(999), b"odd"]))
    first, second, third = read_batch(blob, "p").values
    first += 1
    second += 1
    assert (first.sum(), second.sum(), third) == (1000, 1998, b"odd")


def test_a_blob_leaves_when_it_is_large() -> None:
    shuffled = Shuffled()
    channel = shuffled.channel(0, 0, 0)
    channel.write(Batch([bytes(BLOB_BYTES // 2)]))
    assert list(shuffled.take()) == []
    channel.write(Batch([bytes(BLOB_BYTES // 2)]))
    assert len(list(shuffled.take())) == 2


def test_a_blob_that_was_cut_off_is_refused() -> None:
    (blob,) = written(Batch([1, 2], [3, 4]), Batch([3], [5]))
    with pytest.raises(ProtocolError, match="cut off"):
        read_batch(blob[:-8], "p")


def test_totals_do_not_wait_in_the_buffer_of_the_stream_that_carries_them() -> None:
    raw = io.BytesIO()
    stream = io.BufferedWriter(raw, 65536)  # as PySpark makes it
    for element in totals(7, 70, 3, 30, 0):
        stream.write(len(element).to_bytes(4, "big") + element)
    assert raw.getvalue()[:56] == b"".join(
        len(blob).to_bytes(4, "big") + blob for blob in (b"\xff" * 8, struct.pack(">5q", 7, 70, 3, 30, 0))
    )
