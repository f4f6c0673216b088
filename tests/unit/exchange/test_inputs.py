"""The receiving end of a channel, and channels within a slot."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from firesteel.core.errors import ProtocolError
from firesteel.runtime.exchange.channels import ChannelId
from firesteel.runtime.exchange.elements import dump_element
from firesteel.runtime.exchange.flow_control import WideWindows
from firesteel.runtime.exchange.input import LARGEST_PLACE, RemoteInputChannel
from firesteel.runtime.exchange.local import LocalPipe
from firesteel.runtime.exchange.reading import LARGE_MESSAGE
from firesteel.runtime.exchange.serialization import MessageWriter
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import END_OF_INPUT, Barrier, Batch, CancelBarrier, InBand, Watermark
from tests.unit.exchange.support import FakeLink, ManualClock, batch_of, drain, run_idle

ID = ChannelId(1, 2, 3)


def message(*values: Any) -> bytes:
    return b"".join(MessageWriter().dumps(Batch(list(values)))[0])


def receiver(window: int, wide: WideWindows | None = None) -> tuple[RemoteInputChannel, FakeLink, list[str]]:
    link = FakeLink()
    channel = RemoteInputChannel(ID, link, "slot x", attempt=0, window=window, wide=wide)
    calls: list[str] = []
    channel.on_readable = lambda: calls.append("readable")
    channel.start()
    return channel, link, calls


def test_the_window_is_granted_at_the_start_and_again_when_half_was_consumed() -> None:
    data = message("x" * 100)
    channel, link, _ = receiver(4 * len(data))
    assert link.granted == [4 * len(data)]
    for _ in range(4):
        channel.receive(memoryview(data), 0)
    batch = channel.poll()  # small messages that wait come as one
    assert isinstance(batch, Batch)
    assert batch.values == ["x" * 100] * 4
    assert sum(link.granted) == 8 * len(data)
    assert link.granted[1:] == [4 * len(data)], "they leave together"


def test_a_message_larger_than_the_window_is_let_through_alone() -> None:
    data = message("x" * 5000)
    channel, link, calls = receiver(100)
    small = message("s")
    channel.receive(memoryview(small), 0)
    channel.receive(memoryview(data)[: 100 - len(small)], len(data) - 100 + len(small))
    assert link.granted == [100]  # something is queued: the rest has to wait
    assert drain(channel) == ["s"]
    rest = len(data) - 100 + len(small)
    assert sum(link.granted) == 100 + rest
    assert not channel.readable
    channel.receive(memoryview(data)[100 - len(small) :], 0)
    assert calls == ["readable", "readable"]
    assert drain(channel) == ["x" * 5000]
    assert sum(link.granted) == 100 + rest + 100  # and the window is as it was
    assert channel.bytes_in == len(data) + len(small)


def columns(rows: int) -> bytes:
    values = pa.RecordBatch.from_pydict({"n": pa.array(range(rows), pa.int64())})
    return b"".join(MessageWriter().dumps(Batch(values))[0])


@pytest.mark.parametrize("element", [Watermark(5), Barrier(1, 0), CancelBarrier(1)], ids=repr)
@pytest.mark.parametrize("size", [1000, LARGE_MESSAGE, LARGEST_PLACE + 1], ids=["small", "large", "huge"])
def test_a_message_larger_than_the_window_passes_behind_an_element(size: int, element: InBand) -> None:
    data = message(b"x" * size)
    window = size // 2
    channel, link, _ = receiver(window)
    channel.receive_element(memoryview(dump_element(element)))
    channel.receive(memoryview(data)[:window], len(data) - window)
    assert sum(link.granted) == window, "the element is queued: the rest has to wait"
    assert channel.poll() == element
    assert sum(link.granted) == len(data)
    channel.receive(memoryview(data)[window:], 0)
    batch = channel.poll()
    assert isinstance(batch, Batch)
    assert batch.values == [b"x" * size]


def test_the_window_is_widened_for_large_messages_of_columns_and_given_back() -> None:
    wide = WideWindows(1 << 20)
    data, small = columns(20_000), message("s")
    channel, link, _ = receiver(1000, wide)
    channel.receive(memoryview(small), 0)
    assert channel.poll() is not None
    assert wide.available == 1 << 20, "records keep to their window"
    channel.receive(memoryview(data)[:900], len(data) - 900)
    assert sum(link.granted) - len(small) == 3 * len(data), "room for this message and two more"
    channel.receive(memoryview(data)[900:], 0)
    channel.receive(memoryview(data), 0)
    channel.receive(memoryview(data), 0)
    with pytest.raises(ProtocolError, match="were granted"):
        channel.receive(memoryview(data), 0)
    channel.close()
    assert wide.available == 1 << 20


def test_columns_of_a_message_refer_to_the_memory_that_they_were_received_in() -> None:
    data = columns(50_000)
    channel, _, _ = receiver(1 << 20)
    before = pa.total_allocated_bytes()
    for start in range(0, len(data), 60_000):
        channel.receive(memoryview(data)[start : start + 60_000], max(0, len(data) - start - 60_000))
    batch = channel.poll()
    assert isinstance(batch, Batch)
    assert isinstance(batch.values, pa.RecordBatch)
    assert pa.total_allocated_bytes() - before < 10_000
    channel.close()  # what was read lives on
    assert batch.values.column(0).to_pylist() == list(range(50_000))


def test_readable_is_told_once_until_all_was_polled() -> None:
    channel, _, calls = receiver(1 << 20)
    big = message("x" * 5000)
    for _ in range(3):
        channel.receive(memoryview(big), 0)
    channel.receive_end()
    assert calls == ["readable"]
    results = [channel.poll() for _ in range(5)]
    assert [type(result).__name__ for result in results] == ["Batch"] * 3 + ["EndOfInput", "NoneType"]
    assert results[3] is END_OF_INPUT
    assert channel.finished
    assert channel.records_in == 3


def test_senders_that_break_the_rules_are_refused() -> None:
    data = memoryview(message(1))
    channel, _, _ = receiver(len(data))
    channel.receive(data, 0)
    with pytest.raises(ProtocolError, match=r"slot x: channel 1:2->3: .* but only 0 were granted"):
        channel.receive(data, 0)
    channel, _, _ = receiver(1000)
    channel.receive(data[:10], 50)
    with pytest.raises(ProtocolError, match="20 bytes of a message are left, not 50"):
        channel.receive(data[:10], 10)
    with pytest.raises(ProtocolError, match="within a message, 50 bytes are missing"):
        channel.receive_end()
    channel, _, _ = receiver(1000)
    channel.receive_end()
    with pytest.raises(ProtocolError, match="data after the end"):
        channel.receive(data, 0)
    with pytest.raises(ProtocolError, match="second end"):
        channel.receive_end()


def test_small_messages_are_merged_only_if_they_are_alike() -> None:
    channel, _, _ = receiver(1 << 20)
    writer = MessageWriter()
    columns = Batch(pa.RecordBatch.from_pydict({"n": [1]}))
    for batch in (
        batch_of(1),
        batch_of(2),
        Batch([3], [30]),
        Batch([4], [40], [0]),
        columns,
        columns,
        batch_of(5),
        batch_of("x" * 5000),
        batch_of(6),
    ):
        channel.receive(memoryview(b"".join(writer.dumps(batch)[0])), 0)
    got = [channel.poll() for _ in range(9)]
    assert [len(batch) for batch in got if isinstance(batch, Batch)] == [2, 1, 1, 2, 1, 1, 1]
    assert got[1].timestamps == [30]  # type: ignore[union-attr]
    assert got[2].kinds == [0]  # type: ignore[union-attr]


def test_a_closed_input_is_empty_and_says_so_to_its_link() -> None:
    channel, link, calls = receiver(1000)
    channel.receive(memoryview(message(1)), 0)
    channel.close()
    channel.close()
    assert channel.poll() is None
    assert link.released == [channel]
    assert channel.finished
    assert calls == ["readable"]


# -- within a slot


@pytest.fixture
def pipe() -> Any:
    loop = TaskLoop(ManualClock())
    yield LocalPipe(ID, loop, 1000)
    loop.close()


def test_batches_pass_by_reference_in_order_and_end(pipe: LocalPipe) -> None:
    calls: list[str] = []
    pipe.input.on_readable = lambda: calls.append("readable")
    batches = [Batch(list(range(100)), list(range(100))) for _ in range(2)]
    for batch in batches:
        pipe.output.write(batch)
    pipe.output.flush()
    pipe.output.end()
    assert [pipe.input.poll() for _ in range(4)] == [*batches, END_OF_INPUT, None]
    assert calls == ["readable"]
    assert pipe.input.bytes_in == pipe.output.bytes_out > 0
    assert pipe.input.records_in == pipe.output.records_out == 200


def test_the_window_holds_within_a_slot_too(pipe: LocalPipe) -> None:
    calls: list[str] = []
    pipe.output.on_writable = lambda: calls.append("writable")
    written = 0
    while pipe.output.writable:
        pipe.output.write(Batch([b"x" * 100], bytes_estimate=100))
        written += 1
    assert written == 10
    first = pipe.input.poll()  # small batches that wait come as one
    run_idle(pipe.loop)
    assert isinstance(first, Batch)
    assert len(first) == 10
    assert calls == ["writable"]
    assert pipe.output.queued_bytes == pipe.input.queued_bytes == 0


def test_a_batch_larger_than_the_window_passes_alone(pipe: LocalPipe) -> None:
    pipe.output.write(batch_of(b"x" * 5000))
    assert not pipe.output.writable
    assert drain(pipe.input) == [b"x" * 5000]
    assert pipe.output.writable


def test_merging_within_a_slot_changes_no_batch_that_was_given(pipe: LocalPipe) -> None:
    first, two = batch_of(1), batch_of(2)
    for batch in (first, two, Batch([3], [30])):
        pipe.output.write(batch)
    merged, second = pipe.input.poll(), pipe.input.poll()
    assert isinstance(merged, Batch)
    assert isinstance(second, Batch)
    assert (merged.values, second.values, first.values) == ([1, 2], [3], [1])


def test_close_within_a_slot(pipe: LocalPipe) -> None:
    pipe.output.write(batch_of(1))
    assert drain(pipe.input) == [1]
    while pipe.output.writable:
        pipe.output.write(batch_of("x" * 100))
    pipe.input.close()
    assert pipe.output.writable
    pipe.output.write(batch_of(2))
    pipe.output.end()
    assert pipe.output.queued_bytes == 0
    assert pipe.input.poll() is None
