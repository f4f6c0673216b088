"""How a connection reads: large messages to where they stay, small frames many at once."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firesteel.runtime.exchange.channels import ChannelId
from firesteel.runtime.exchange.elements import dump_element
from firesteel.runtime.exchange.frames import HEADER, FrameKind, encode
from firesteel.runtime.exchange.input import LARGEST_PLACE
from firesteel.runtime.exchange.reading import CALM_FRAMES, LARGE_MESSAGE
from firesteel.runtime.exchange.serialization import MessageWriter
from firesteel.runtime.records.batch import Batch, Watermark
from firesteel.runtime.records.copies import COPIES
from tests.unit.exchange.support import batch_of, drain, run_idle
from tests.unit.exchange.test_link import Raw

WINDOW = 1 << 26
ROWS = 20_000
CHUNK = 30_000


@pytest.fixture
def raw() -> Iterator[Raw]:
    raw_end = Raw()
    yield raw_end
    raw_end.close()


def columns(start: int, rows: int = ROWS) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": np.arange(start, start + rows), "half": np.arange(rows) / 2})


def frames_of(edge: int, batch: Batch, writer: MessageWriter, chunk: int = CHUNK) -> list[bytes]:
    """A message, a frame for each chunk."""
    data = b"".join(writer.dumps(batch)[0])
    cuts = range(0, len(data), chunk)
    channel = ChannelId(edge, 0, 0)
    return [
        encode(FrameKind.DATA, channel, 0, max(0, len(data) - start - chunk), data[start : start + chunk])
        for start in cuts
    ]


def send(raw: Raw, data: bytes, step: int = 100_000) -> None:
    for start in range(0, len(data), step):
        raw.send(data[start : start + step])


def numbers(batch: Any) -> list[int]:
    assert isinstance(batch, Batch)
    assert isinstance(batch.values, pa.RecordBatch)
    values: list[int] = batch.values.column(0).to_pylist()
    return values


@pytest.mark.parametrize("step", [100, 1000, CHUNK + HEADER.size, 100_000, 180_000])
def test_large_messages_are_not_copied_and_stay_as_they_came(raw: Raw, step: int) -> None:
    channel = raw.end.input(1, window=WINDOW)
    writer = MessageWriter()
    messages = [b"".join(frames_of(1, Batch(columns(n), np.arange(ROWS)), writer)) for n in range(6)]
    before = COPIES.bytes
    for message in messages:
        send(raw, message, step)
    assert COPIES.bytes == before
    batches = [channel.poll() for _ in messages]
    spans = sorted((batch.values.column(0).buffers()[1].address, 8 * ROWS) for batch in batches)  # type: ignore[union-attr]
    assert all(start + size <= next_start for (start, size), (next_start, _) in pairwise(spans))
    channel.close()
    assert [numbers(batch)[:2] for batch in batches] == [[n, n + 1] for n in range(6)]
    assert channel.queued_bytes == 0


def test_small_frames_between_large_messages_cost_no_copy_of_these(raw: Raw) -> None:
    large, small = raw.end.input(1, window=WINDOW), raw.end.input(2, window=WINDOW)
    writer, other = MessageWriter(), MessageWriter()
    data, tiny = b"", 0
    for n in range(5):
        data += b"".join(frames_of(1, Batch(columns(n)), writer))
        data += encode(FrameKind.ELEMENT, ChannelId(1, 0, 0), 0, 0, dump_element(Watermark(n)))
        data += encode(FrameKind.CREDIT, ChannelId(7, 0, 0), 0, 10)
        message = b"".join(frames_of(2, batch_of(n), other))
        tiny += len(message) - HEADER.size
        data += message
    before = COPIES.bytes
    send(raw, data, 70_000)
    assert COPIES.bytes - before == tiny
    assert drain(small) == list(range(5))
    for n in range(5):
        assert numbers(large.poll())[0] == n
        assert large.poll() == Watermark(n)


def test_after_some_small_frames_many_are_read_at_once(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = raw.end.input(1, window=WINDOW)
    writer = MessageWriter()
    messages = [frames_of(1, batch_of(n), writer)[0] for n in range(1000)]
    raw.send(b"".join(messages[:CALM_FRAMES]))
    reads = 0
    read = raw.end.link._reader.read

    def counted(sock: socket.socket) -> int:
        nonlocal reads
        reads += 1
        return read(sock)

    monkeypatch.setattr(raw.end.link._reader, "read", counted)
    raw.send(b"".join(messages[CALM_FRAMES:]))
    assert reads <= 2
    assert drain(channel) == list(range(1000))


def test_a_large_message_behind_many_small_ones_is_copied_in_part_only(raw: Raw) -> None:
    channel, small = raw.end.input(1, window=WINDOW), raw.end.input(2, window=WINDOW)
    writer, other = MessageWriter(), MessageWriter()
    rows = 200_000
    data = b"".join(frames_of(2, batch_of(n), other)[0] for n in range(100))
    data += b"".join(frames_of(1, Batch(columns(0, rows)), writer)) + b"".join(frames_of(1, Batch(columns(1)), writer))
    before = COPIES.bytes
    send(raw, data, 200_000)
    assert 0 < COPIES.bytes - before <= 256 * 1024, "what was read with the small ones"
    assert drain(small) == list(range(100))
    assert numbers(channel.poll()) == list(range(rows))
    assert numbers(channel.poll())[0] == 1


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.integers(1, 400_000))
def test_frames_arrive_as_they_were_sent(seed: int, step: int) -> None:
    r = random.Random(seed)
    raw = Raw()
    inputs = [raw.end.input(edge, window=WINDOW) for edge in range(3)]
    writers = [MessageWriter() for _ in inputs]
    sent: list[list[Any]] = [[] for _ in inputs]
    queues: list[list[bytes]] = [[] for _ in inputs]
    for number in range(r.randrange(1, 30)):
        edge = r.randrange(3)
        size = r.choice([1, 10, LARGE_MESSAGE // 16, ROWS])
        if r.random() < 0.2:
            queues[edge].append(encode(FrameKind.ELEMENT, ChannelId(edge, 0, 0), 0, 0, dump_element(Watermark(number))))
            if sent[edge] and isinstance(sent[edge][-1], Watermark):
                sent[edge].pop()
            sent[edge].append(Watermark(number))
            continue
        batch = Batch(columns(number, size) if r.random() < 0.5 else [number] * size)
        queues[edge] += frames_of(edge, batch, writers[edge], r.choice([1000, CHUNK, 1 << 20]))
        sent[edge].append(numbers(batch) if isinstance(batch.values, pa.RecordBatch) else batch.values)
    data = b""
    while any(queues):
        queue = r.choice([queue for queue in queues if queue])
        data += queue.pop(0)
        if r.random() < 0.1:
            data += encode(FrameKind.CREDIT, ChannelId(9, 0, 0), 0, 5)
    # Small steps for small data, and for the first of much: megabytes byte by byte take half a minute.
    few = min(len(data), 2_000 * step)
    send(raw, data[:few], min(step, 180_000))
    send(raw, data[few:], max(step % 180_000, 1_000))
    for channel, expected in zip(inputs, sent, strict=True):
        assert flat(channel) == [value for item in expected for value in (item if isinstance(item, list) else [item])]
        assert channel.queued_bytes == 0
    assert raw.end.lost == []
    raw.close()


def flat(channel: Any) -> list[Any]:
    """All values; small messages may come together."""
    items: list[Any] = []
    while (got := channel.poll()) is not None:
        if isinstance(got, Batch):
            items += got.values if isinstance(got.values, list) else numbers(got)
        else:
            items.append(got)
    return items


def test_what_comes_for_a_channel_that_was_closed_in_the_middle_is_dropped(raw: Raw) -> None:
    channel, other = raw.end.input(1, window=WINDOW), raw.end.input(2, window=WINDOW)
    first, second = frames_of(1, Batch(columns(0)), MessageWriter(), 200_000)
    cut = len(first) // 2
    raw.send(first[:cut])
    channel.close()
    raw.send(first[cut:])
    raw.send(second + frames_of(2, batch_of("on"), MessageWriter())[0])
    assert drain(other) == ["on"]
    assert raw.end.counters.frames_dropped == 2
    assert raw.end.lost == []


def test_an_attempt_that_follows_while_a_chunk_is_read_gets_none_of_it(raw: Raw) -> None:
    raw.end.input(1, window=WINDOW)
    first, *_ = frames_of(1, Batch(columns(0)), MessageWriter(), 200_000)
    raw.send(first[:100_000])
    channel = raw.end.input(1, window=WINDOW, attempt=1)
    raw.send(first[100_000:])
    assert (channel.bytes_in, channel.queued_bytes) == (0, 0)
    assert raw.end.lost == []


def test_an_end_within_a_chunk_that_is_read_to_its_place(raw: Raw) -> None:
    raw.end.input(1, window=WINDOW)
    first, *_ = frames_of(1, Batch(columns(0)), MessageWriter(), 200_000)
    raw.send(first[:70_000])
    raw.sock.shutdown(socket.SHUT_WR)
    run_idle(raw.loop)
    (error,) = raw.end.lost
    assert "within a frame, after 70000 of its bytes" in error.reason


def test_no_memory_is_taken_for_what_is_only_announced(raw: Raw) -> None:
    channel = raw.end.input(1, window=WINDOW)
    raw.send(encode(FrameKind.DATA, ChannelId(1, 0, 0), 0, 1 << 39, b"x" * 1000))
    assert raw.end.lost == []
    assert channel._place is None
    assert channel.queued_bytes == 1000
    other = raw.end.input(2, window=WINDOW)
    raw.send(encode(FrameKind.DATA, ChannelId(2, 0, 0), 0, LARGEST_PLACE - 1000, b"x" * 1000))
    assert other._place is not None
    raw.send(encode(FrameKind.DATA, ChannelId(2, 0, 0), 0, 5, b"x" * 1000))
    (error,) = raw.end.lost
    assert "1005 bytes of a message are left, not" in error.reason


def test_columns_keep_their_memory_while_others_are_read(raw: Raw) -> None:
    """Back-pressure: what waits is not overwritten, and half of the window is granted when half was taken."""
    channel = raw.end.input(1, window=WINDOW)
    writer = MessageWriter()
    batches: list[Any] = []
    for n in range(12):
        send(raw, b"".join(frames_of(1, Batch(columns(n * ROWS)), writer)))
        if n % 3 == 2:
            batches.append(channel.poll())
    batches += [channel.poll() for _ in range(8)]
    assert [value for batch in batches for value in numbers(batch)] == list(range(12 * ROWS))
    assert channel.poll() is None
