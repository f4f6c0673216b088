"""What a reader gets of the batches that wait in a channel: small ones together, in their order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from firesteel.runtime.exchange.inbox import MERGED_ROWS, SMALL_COLUMNS, Inbox
from firesteel.runtime.exchange.serialization import MessageReader, MessageWriter
from firesteel.runtime.records.batch import Batch, InBand, Watermark

WINDOW = 1 << 20


def _columns(first: int, count: int, kind: int | None = None) -> Batch:
    rows = pa.RecordBatch.from_pydict({"number": np.arange(first, first + count)})
    kinds = None if kind is None else np.full(count, kind, np.int8)
    return Batch(rows, np.arange(first, first + count), kinds, 8 * count)


def _numbers(item: Batch | InBand | None) -> list[int]:
    assert isinstance(item, Batch)
    assert isinstance(item.values, pa.RecordBatch)
    numbers: list[int] = item.values.column("number").to_pylist()
    assert item.timestamps is not None
    assert list(item.timestamps) == numbers
    return numbers


def _message(batch: Batch, writer: MessageWriter) -> bytearray:
    segments, _ = writer.dumps(batch)
    return bytearray(b"".join(bytes(segment) for segment in segments))


def test_small_batches_of_columns_are_taken_together() -> None:
    inbox = Inbox(WINDOW)
    for first in range(0, 30, 10):
        inbox.put(_columns(first, 10))
    batch = inbox.take()
    assert _numbers(batch) == list(range(30))
    assert isinstance(batch, Batch)
    assert batch.bytes_estimate == 240
    assert inbox.take() is None


def test_rows_are_not_taken_over_a_watermark() -> None:
    inbox = Inbox(WINDOW)
    inbox.put(_columns(0, 2))
    inbox.put(Watermark(7))
    inbox.put(_columns(2, 2))
    assert _numbers(inbox.take()) == [0, 1]
    assert isinstance(inbox.take(), Watermark)
    assert _numbers(inbox.take()) == [2, 3]


def test_rows_with_kinds_are_not_joined_with_rows_without() -> None:
    inbox = Inbox(WINDOW)
    inbox.put(_columns(0, 2))
    inbox.put(_columns(2, 2, kind=3))
    inbox.put(_columns(4, 2, kind=0))
    assert _numbers(inbox.take()) == [0, 1]
    batch = inbox.take()
    assert _numbers(batch) == [2, 3, 4, 5]
    assert isinstance(batch, Batch)
    assert batch.kinds is not None
    assert list(batch.kinds) == [3, 3, 0, 0]


def test_large_batches_are_taken_as_they_are() -> None:
    inbox = Inbox(WINDOW)
    inbox.put(_columns(0, SMALL_COLUMNS))
    inbox.put(_columns(0, 3))
    inbox.put(_columns(0, SMALL_COLUMNS))
    assert [len(_numbers(inbox.take())) for _ in range(3)] == [SMALL_COLUMNS, 3, SMALL_COLUMNS]


def test_no_more_rows_are_taken_together_than_make_a_good_batch() -> None:
    inbox = Inbox(WINDOW)
    count = SMALL_COLUMNS // 2
    for _ in range(40):
        inbox.put(_columns(0, count))
    assert len(_numbers(inbox.take())) == MERGED_ROWS
    small_window = Inbox(8 * count * 3)
    for _ in range(40):
        small_window.put(_columns(0, count))
    assert len(_numbers(small_window.take())) == 3 * count


def test_messages_of_columns_are_taken_together_and_deserialised_once() -> None:
    writer, reader = MessageWriter(), MessageReader("peer")
    loads: list[int] = []

    def load(message: bytearray | memoryview) -> Batch:
        loads.append(len(message))
        return reader.loads(message)

    inbox = Inbox(WINDOW, load)
    for first, kind in ((0, 0), (5, 0), (10, None), (15, None)):
        inbox.put(_message(_columns(first, 5, kind), writer))
    assert _numbers(inbox.take()) == list(range(10))
    assert _numbers(inbox.take()) == list(range(10, 20))
    assert len(loads) == 4
