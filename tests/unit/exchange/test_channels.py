"""The sending end of a channel on its own; what would be the connection is a list."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firesteel.core.errors import SerializationError
from firesteel.runtime.exchange.channels import ChannelId
from firesteel.runtime.exchange.flow_control import WideWindows
from firesteel.runtime.exchange.frames import HEADER, FrameKind, decode
from firesteel.runtime.exchange.output import RemoteOutputChannel
from firesteel.runtime.exchange.serialization import MessageReader, Segment
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import Batch
from tests.unit.exchange.support import FakeLink, ManualClock, batch_of, run_idle

ID = ChannelId(1, 2, 3)


class Sender:
    """An output channel and the messages that it ships."""

    def __init__(
        self,
        window: int = 1 << 20,
        timeout_ms: int = 100,
        max_chunk: int = 1 << 16,
        credit: int = 1 << 20,
        wide: WideWindows | None = None,
    ) -> None:
        self.clock, self.link = ManualClock(), FakeLink()
        self.loop = TaskLoop(self.clock)
        self.loop.close()  # no sockets here; timers and calls work without
        self.loop = TaskLoop(self.clock)
        self.channel = RemoteOutputChannel(
            ID,
            self.link,
            self.loop,
            attempt=0,
            window=window,
            max_chunk=max_chunk,
            buffer_timeout_ms=timeout_ms,
            wide=wide,
        )
        self.reader = MessageReader("test")
        self.channel.grant(credit)
        self.chunks: list[int] = []
        self.partial = b""

    def shipped(self) -> list[Any]:
        """The messages and ends that can go now, as lists of values."""
        result: list[Any] = []
        while self.channel.sendable:
            pieces: list[Segment] = []
            size = self.channel.take_chunk(pieces)
            stream = b"".join(pieces)
            assert len(stream) == size
            ((frame, _),) = decode(memoryview(stream), "test")
            assert frame.channel == ID
            if frame.kind is FrameKind.END_OF_INPUT:
                result.append("END")
                continue
            self.chunks.append(len(frame.payload))
            self.partial += frame.payload
            if not frame.value:
                result.append(self.reader.loads(bytearray(self.partial)).values)
                self.partial = b""
        return result

    def advance(self, seconds: float) -> None:
        self.clock.now += seconds
        run_idle(self.loop)


@pytest.fixture
def sender() -> Any:
    senders: list[Sender] = []

    def make(**settings: Any) -> Sender:
        senders.append(Sender(**settings))
        return senders[-1]

    yield make
    for sender_ in senders:
        sender_.loop.close()


def test_small_writes_wait_for_the_buffer_timeout_and_go_as_one_message(sender: Any) -> None:
    s = sender(timeout_ms=100)
    s.channel.write(batch_of(1, 2))
    s.advance(0.06)
    s.channel.write(batch_of(3))
    assert s.shipped() == []
    s.advance(0.05)
    assert s.shipped() == [[1, 2, 3]]
    s.channel.write(batch_of(4))
    s.advance(0.09)
    assert s.shipped() == []
    s.advance(0.02)
    assert s.shipped() == [[4]]
    assert s.channel.records_out == 4
    assert s.channel.queued_bytes == 0


def test_the_timeout_counts_from_the_first_record_after_a_flush(sender: Any) -> None:
    s = sender(timeout_ms=100)
    s.channel.write(batch_of(1))
    s.channel.flush()
    assert s.shipped() == [[1]]
    s.advance(0.08)
    s.channel.write(batch_of(2))
    s.advance(0.08)  # the first timer fires, for nothing
    assert s.shipped() == []
    s.advance(0.03)
    assert s.shipped() == [[2]]


def test_timeout_zero_ships_each_write_at_once(sender: Any) -> None:
    s = sender(timeout_ms=0)
    s.channel.write(batch_of(1))
    assert s.shipped() == [[1]]
    s.channel.write(batch_of(2))
    assert s.shipped() == [[2]]


def test_timeout_minus_one_waits_for_a_full_message_a_flush_or_the_end(sender: Any) -> None:
    s = sender(timeout_ms=-1)
    s.channel.write(batch_of(1))
    s.advance(1e9)
    assert s.shipped() == []
    s.channel.write(batch_of(*range(5000)))
    (full,) = s.shipped()
    assert len(full) == 4096
    s.channel.end()
    assert s.shipped() == [list(range(4095, 5000)), "END"]
    assert s.channel.finished


def test_a_task_that_rests_often_ships_four_times_in_a_millisecond_at_most(sender: Any) -> None:
    s = sender(timeout_ms=100)
    s.advance(10)
    s.channel.write(batch_of(1))
    s.channel.rest()
    assert s.shipped() == [[1]]  # nothing was written for long: at once
    for number in range(2, 6):
        s.advance(0.00005)
        s.channel.write(batch_of(number))
        s.channel.rest()
    assert s.shipped() == []
    s.advance(0.0001)
    assert s.shipped() == [[2, 3, 4, 5]]
    s.channel.write(batch_of(6))
    s.channel.rest()
    assert s.shipped() == []
    s.advance(0.0003)
    assert s.shipped() == [[6]]
    s.advance(0.0003)
    s.channel.write(batch_of(7))
    s.channel.rest()
    assert s.shipped() == [[7]]


def test_a_flush_waits_for_no_rest(sender: Any) -> None:
    s = sender(timeout_ms=100)
    for number in range(3):
        s.channel.write(batch_of(number))
        s.channel.rest()
        s.channel.flush()
        assert s.shipped() == [[number]]


def test_flush_with_nothing_queued_does_nothing(sender: Any) -> None:
    s = sender()
    before = s.link.activated
    s.channel.flush()
    s.channel.write(Batch([]))
    s.channel.flush()
    assert s.shipped() == []
    assert s.link.activated == before


def test_writing_after_the_end_is_a_bug(sender: Any) -> None:
    s = sender()
    s.channel.end()
    s.channel.end()
    assert s.shipped() == ["END"]
    with pytest.raises(RuntimeError, match="channel 1:2->3: write after end"):
        s.channel.write(batch_of(1))


@pytest.mark.parametrize("window", [64, 1000, 100_000])
def test_batches_are_cut_to_the_window(sender: Any, window: int) -> None:
    s = sender(window=window, credit=1 << 30, max_chunk=1 << 20)
    values = [f"record {i} {'x' * (i % 20)}" for i in range(2000)]
    s.channel.write(Batch(values))
    s.channel.flush()
    messages = s.shipped()
    assert [value for message in messages for value in message] == values
    assert all(size <= window or len(message) == 1 for size, message in zip(s.chunks, messages, strict=True))


def test_columns_are_cut_to_the_window(sender: Any) -> None:
    s = sender(window=10_000, credit=1 << 30, max_chunk=1 << 20)
    batch = pa.RecordBatch.from_pydict({"n": list(range(20_000))})
    s.channel.write(Batch(batch))
    s.channel.end()
    *messages, end = s.shipped()
    assert end == "END"
    assert pa.Table.from_batches(messages).to_pydict() == batch.to_pydict()
    assert max(s.chunks) <= 10_000


def test_a_wrong_estimate_is_put_right_by_cutting_again(sender: Any) -> None:
    s = sender(window=1000, credit=1 << 30, max_chunk=1 << 20)
    values = [bytes([i]) * (10 if i % 10 else 900) for i in range(100)]
    s.channel.write(Batch(values, list(range(100)), bytes_estimate=10))
    s.channel.flush()
    messages = s.shipped()
    assert [value for message in messages for value in message] == values
    assert all(size <= 1000 or len(message) == 1 for size, message in zip(s.chunks, messages, strict=True))
    assert s.channel.queued_bytes == 0


def test_batches_that_differ_in_kind_are_not_merged(sender: Any) -> None:
    s = sender(timeout_ms=-1)
    columns = pa.RecordBatch.from_pydict({"n": [1]})
    for batch in (
        batch_of(1),
        batch_of(2),
        Batch([3], [30]),
        Batch([4], [40]),
        Batch(columns),
        Batch(columns),
        batch_of(5),
    ):
        s.channel.write(batch)
    s.channel.flush()
    lists = [m if isinstance(m, list) else m.to_pydict() for m in s.shipped()]
    assert lists == [[1, 2], [3, 4], {"n": [1, 1]}, [5]]


def test_what_the_caller_gave_is_never_changed(sender: Any) -> None:
    s = sender(timeout_ms=-1)
    shared = Batch([1, 2], [10, 20])
    s.channel.write(shared)
    s.channel.write(Batch([3], [30]))
    s.channel.flush()
    assert s.shipped() == [[1, 2, 3]]
    assert (shared.values, shared.timestamps) == ([1, 2], [10, 20])


def test_only_what_was_granted_is_shipped_in_chunks_of_bounded_size(sender: Any) -> None:
    s = sender(credit=100, max_chunk=40)
    s.channel.write(batch_of("x" * 500))
    s.channel.flush()
    assert s.shipped() == []
    assert s.chunks == [40, 40, 20]
    s.channel.grant(10)
    assert s.shipped() == []
    assert s.chunks[3:] == [10]
    s.channel.grant(10_000)
    assert s.shipped() == [["x" * 500]]
    assert s.channel.bytes_out == sum(s.chunks)


def test_what_waits_for_credit_is_merged(sender: Any) -> None:
    s = sender(credit=0, timeout_ms=0)
    for value in range(100):
        s.channel.write(batch_of(value))
    s.channel.grant(1 << 20)
    assert s.shipped() == [list(range(100))]


def test_not_writable_at_the_window_and_writable_again_when_half_has_left(sender: Any) -> None:
    s = sender(window=10_000, credit=0, timeout_ms=0)
    calls: list[bool] = []
    s.channel.on_writable = lambda: calls.append(s.channel.writable)
    for value in range(9):
        s.channel.write(batch_of(str(value) * 1000))
    assert s.channel.writable
    s.channel.write(batch_of("x" * 1000))
    assert not s.channel.writable
    s.channel.grant(3000)
    s.shipped()
    run_idle(s.loop)
    assert calls == []
    s.channel.grant(3000)
    s.shipped()
    run_idle(s.loop)
    assert calls == [True]


def test_an_unpicklable_record_raises_where_it_is_written(sender: Any) -> None:
    s = sender(timeout_ms=0)
    with pytest.raises(SerializationError, match="lock"):
        s.channel.write(batch_of(threading.Lock()))
    s.channel.write(batch_of("next"))
    assert s.shipped() == [["next"]]
    assert s.channel.queued_bytes == 0


def test_an_unpicklable_record_of_a_timed_flush_is_reported_to_the_task_or_the_link(sender: Any) -> None:
    s = sender(timeout_ms=10, credit=0)
    errors: list[Exception] = []
    s.channel.write(batch_of(threading.Lock()))
    s.advance(0.02)
    s.channel.grant(1000)
    assert not s.link.errors, "the grant is in the middle of what the link has read"
    run_idle(s.loop)
    assert [type(error) for error in s.link.errors] == [SerializationError]
    s.channel.on_error = errors.append
    s.channel.write(batch_of(threading.Lock()))
    s.advance(0.02)
    assert [type(error) for error in errors] == [SerializationError]
    assert len(s.link.errors) == 1


def test_a_receiver_that_reads_no_more_frees_the_sender(sender: Any) -> None:
    s = sender(window=10, credit=0)
    calls: list[int] = []
    s.channel.on_writable = lambda: calls.append(1)
    s.channel.write(batch_of("x" * 100))
    assert not s.channel.writable
    s.channel.cancel()
    run_idle(s.loop)
    assert calls == [1]
    s.channel.write(batch_of("y" * 100))
    s.channel.end()
    assert s.channel.writable
    assert s.channel.queued_bytes == 0
    assert s.shipped() == []
    assert s.channel.finished


def test_a_closed_output_ships_nothing_more(sender: Any) -> None:
    s = sender()
    s.channel.write(batch_of(1))
    s.channel.close()
    s.advance(1)
    assert s.shipped() == []
    assert s.link.released == [s.channel]


# -- receiving


def test_after_much_has_gone_little_still_waits_for_the_timeout(sender: Any) -> None:
    s = sender(timeout_ms=100)
    for _ in range(3):
        s.channel.write(batch_of(*(f"record {i}" for i in range(10_000))))
        s.channel.flush()
        s.shipped()
    s.channel.write(batch_of("little"))
    assert s.shipped() == []
    s.advance(0.11)
    assert s.shipped() == [["little"]]


def test_columns_that_are_cut_again_still_announce_their_schema(sender: Any) -> None:
    s = sender(window=10_000, credit=1 << 30)
    batch = pa.RecordBatch.from_pydict({"n": list(range(20_000))})
    s.channel.write(Batch(batch, bytes_estimate=10))
    s.channel.end()
    *messages, _ = s.shipped()
    assert len(messages) > 10
    assert pa.Table.from_batches(messages).to_pydict() == batch.to_pydict()


def test_a_stopped_task_does_not_wait_for_more_records_than_it_may_write(sender: Any) -> None:
    s = sender(window=1000, timeout_ms=-1, credit=1 << 20)
    for _ in range(5):  # the same object again and again: its messages are much smaller than estimated
        s.channel.write(batch_of(*[SAME] * 100))
        s.channel.flush()
    s.shipped()
    for _ in range(20):
        s.channel.write(batch_of(SAME))
    assert s.channel.writable
    s.channel.write(batch_of(*[SAME] * 10))
    s.shipped()
    assert s.channel.writable


SAME = "the same string " * 5


def test_a_record_of_very_many_large_buffers_is_cut_into_chunks_of_few_pieces(sender: Any) -> None:
    s = sender(window=1 << 20, credit=1 << 40, max_chunk=1 << 20)
    s.channel.write(batch_of([np.full(5001, i % 256, np.uint8) for i in range(2000)]))
    s.channel.flush()
    received = b""
    while s.channel.sendable:
        pieces: list[Segment] = []
        s.channel.take_chunk(pieces)
        assert len(pieces) < 700  # sendmsg takes 1024
        received += b"".join(pieces)[HEADER.size :]
    (record,) = MessageReader("test").loads(bytearray(received)).values
    assert [int(array[0]) for array in record] == [i % 256 for i in range(2000)]


def wide_columns(rows: int, start: int = 0) -> Batch:
    numbers = np.arange(start, start + rows, dtype=np.int64)
    return Batch(pa.RecordBatch.from_pydict({"n": numbers, "m": numbers * 2}), numbers * 3)


def shipped_rows(s: Sender) -> list[int]:
    """Rows of the messages that can go, which hold the numbers from 0 on."""
    batches = s.shipped()
    numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
    assert numbers == list(range(len(numbers)))
    return [batch.num_rows for batch in batches]


def test_large_batches_of_columns_go_as_they_are_and_small_ones_are_merged(sender: Any) -> None:
    s = sender(credit=1 << 30, wide=WideWindows(1 << 30))
    s.channel.write(wide_columns(100_000))
    assert shipped_rows(s) == [100_000]
    s = sender(credit=1 << 30)
    s.channel.write(wide_columns(100_000))
    assert sum(shipped_rows(s)) == 100_000
    assert len(s.chunks) < 50, "no crumbs"
    s = sender(credit=0)
    for start in range(0, 50_000, 5_000):
        s.channel.write(wide_columns(5_000, start))
    s.channel.flush()
    s.channel.grant(1 << 30)
    assert shipped_rows(s) == [15_000, 15_000, 15_000, 5_000]
    s = sender(credit=0)
    s.channel.write(wide_columns(10_000))
    s.channel.write(wide_columns(10_000, 10_000))
    s.channel.grant(1 << 30)
    assert shipped_rows(s) == [10_000, 10_000], "what is large enough is not copied to be merged"


def test_columns_beyond_four_mib_are_cut_without_loss(sender: Any) -> None:
    s = sender(credit=1 << 30, wide=WideWindows(1 << 30))
    s.channel.write(wide_columns(400_000))
    sizes = shipped_rows(s)
    assert sum(sizes) == 400_000
    assert len(sizes) == 3


def test_a_window_is_widened_for_columns_and_what_was_taken_comes_back(sender: Any) -> None:
    wide = WideWindows(10 << 20)
    s = sender(window=1 << 16, credit=0, wide=wide)
    s.channel.write(batch_of(*range(20_000)))
    assert not s.channel.writable
    assert wide.available == 10 << 20, "records keep to their window"
    s.channel.close()
    s = sender(window=1 << 16, credit=0, wide=wide)
    for start in range(2):
        assert s.channel.writable
        s.channel.write(wide_columns(50_000, start * 50_000))  # 1.2 MB with timestamps
    s.channel.write(wide_columns(50_000, 100_000))
    assert not s.channel.writable
    assert 0 < wide.available < 10 << 20
    s.channel.close()
    assert wide.available == 10 << 20
    s = sender(window=1 << 16, credit=0, wide=WideWindows(0))
    s.channel.write(wide_columns(50_000))
    assert not s.channel.writable, "nothing is left to widen it"
