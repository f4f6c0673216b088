"""A connection between two slots, over a pair of sockets."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.core.errors import ProtocolError
from firesteel.runtime.exchange.channels import ChannelId
from firesteel.runtime.exchange.counters import Counters
from firesteel.runtime.exchange.frames import HEADER, FrameKind, decode, encode
from firesteel.runtime.exchange.input import RemoteInputChannel
from firesteel.runtime.exchange.link import Link
from firesteel.runtime.exchange.output import RemoteOutputChannel
from firesteel.runtime.exchange.reading import ReceiveBuffer
from firesteel.runtime.exchange.serialization import MessageWriter
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import Batch, Watermark
from tests.unit.exchange.support import ManualClock, batch_of, drain, run_idle


class End:
    """One side of a connection."""

    def __init__(self, loop: TaskLoop, name: str, peer: str) -> None:
        self.loop, self.counters = loop, Counters()
        self.lost: list[ProtocolError] = []
        self.record_errors: list[Exception] = []
        self.link = Link(
            peer, f"slot {peer}", loop, ReceiveBuffer(), self.counters,
            on_lost=lambda _, error: self.lost.append(error), on_record_error=self.record_errors.append,
        )  # fmt: skip

    def output(
        self, edge: int, *, window: int = 1 << 16, attempt: int = 0, max_chunk: int = 1 << 14
    ) -> RemoteOutputChannel:
        channel = RemoteOutputChannel(
            ChannelId(edge, 0, 0), self.link, self.loop, attempt=attempt, window=window, max_chunk=max_chunk,
            buffer_timeout_ms=0,
        )  # fmt: skip
        self.link.add_output(channel)
        return channel

    def input(self, edge: int, *, window: int = 1 << 16, attempt: int = 0) -> RemoteInputChannel:
        channel = RemoteInputChannel(ChannelId(edge, 0, 0), self.link, self.link.peer, attempt=attempt, window=window)
        self.link.add_input(channel)
        return channel


class Pair:
    def __init__(self) -> None:
        self.loop = TaskLoop(ManualClock())
        self.a, self.b = End(self.loop, "a", "b"), End(self.loop, "b", "a")

    def connect(self) -> Pair:
        left, right = socket.socketpair()
        for sock, end in ((left, self.a), (right, self.b)):
            sock.setblocking(False)
            end.link.attach(sock, b"")
        return self

    def run(self) -> None:
        run_idle(self.loop)

    def close(self) -> None:
        self.a.link.close()
        self.b.link.close()
        self.loop.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    both_ends = Pair()
    yield both_ends.connect()
    both_ends.close()


class Raw:
    """A link whose other side is written by hand."""

    def __init__(self) -> None:
        self.loop = TaskLoop(ManualClock())
        self.end = End(self.loop, "a", "evil")
        ours, self.sock = socket.socketpair()
        ours.setblocking(False)
        self.sock.setblocking(False)
        self.end.link.attach(ours, b"")

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)
        run_idle(self.loop)

    def received(self) -> list[tuple[FrameKind, ChannelId, int, bytes]]:
        run_idle(self.loop)
        data = b""
        try:
            while chunk := self.sock.recv(1 << 20):
                data += chunk
                run_idle(self.loop)
        except BlockingIOError:
            pass
        return [(f.kind, f.channel, f.value, bytes(f.payload)) for f, _ in decode(memoryview(data), "test")]

    def close(self) -> None:
        self.sock.close()
        self.end.link.close()
        self.loop.close()


@pytest.fixture
def raw() -> Iterator[Raw]:
    raw_end = Raw()
    yield raw_end
    raw_end.close()


def test_both_directions_and_many_channels_share_the_connection(pair: Pair) -> None:
    channels = []
    for edge in range(10):
        source, target = (pair.a, pair.b) if edge % 2 else (pair.b, pair.a)
        channels.append((source.output(edge), target.input(edge)))
    for edge, (output, _) in enumerate(channels):
        for number in range(5):
            output.write(batch_of((edge, number)))
        output.end()
    pair.run()
    for edge, (_, channel) in enumerate(channels):
        assert drain(channel) == [(edge, number) for number in range(5)]
        assert channel.finished
    assert pair.a.link.open_channels == pair.b.link.open_channels == 0


def test_what_was_said_before_the_connection_was_there_is_not_lost() -> None:
    pair = Pair()
    output = pair.a.output(1)
    output.write(batch_of("early"))
    pair.connect()
    pair.run()
    channel = pair.b.input(1)  # deployed last
    pair.run()
    assert drain(channel) == ["early"]
    pair.close()


def test_credit_that_comes_before_the_output_is_kept_for_it(pair: Pair) -> None:
    channel = pair.b.input(1)
    closed = pair.b.input(2)
    pair.run()
    closed.close()
    pair.run()
    output, unwanted = pair.a.output(1), pair.a.output(2)
    output.write(batch_of("x"))
    unwanted.write(batch_of("x"))
    pair.run()
    assert drain(channel) == ["x"]
    assert unwanted.finished


def test_a_stalled_channel_delays_no_other_and_memory_stays_bounded(pair: Pair) -> None:
    window = 1 << 16
    stalled, flowing = pair.a.output(1, window=window), pair.a.output(2, window=window)
    never_read, read = pair.b.input(1, window=window), pair.b.input(2, window=window)
    record = os.urandom(1000)
    got = 0
    for _ in range(5000):
        if stalled.writable:
            stalled.write(batch_of(record))
        flowing.write(batch_of(record))
        pair.run()
        got += len(drain(read))
    assert got == 5000
    assert never_read.queued_bytes <= window
    assert stalled.queued_bytes <= window + 1100
    assert not stalled.writable
    while not stalled.writable or never_read.queued_bytes:
        drain(never_read)
        pair.run()
    assert never_read.records_in == stalled.records_out


def test_control_frames_go_ahead_of_data_that_waits(raw: Raw) -> None:
    output = raw.end.output(1, window=1 << 24)
    raw.send(encode(FrameKind.CREDIT, output.id, 0, 1 << 24))
    for _ in range(100):
        output.write(batch_of(os.urandom(50_000)))
    run_idle(raw.loop)  # the socket is full now
    raw.end.input(2)
    kinds = [kind for kind, *_ in raw.received()]
    first_credit = kinds.index(FrameKind.CREDIT)
    assert first_credit < len(kinds) / 2
    assert kinds.count(FrameKind.DATA) >= 300


def test_channels_take_turns_chunk_by_chunk(raw: Raw) -> None:
    first, second = raw.end.output(1, max_chunk=1000), raw.end.output(2, max_chunk=1000)
    first.write(batch_of(os.urandom(20_000)))
    second.write(batch_of(os.urandom(20_000)))
    raw.send(b"".join(encode(FrameKind.CREDIT, channel.id, 0, 1 << 20) for channel in (first, second)))
    order = [channel.edge for kind, channel, *_ in raw.received() if kind is FrameKind.DATA]
    assert order[:40] == [1, 2] * 20


def test_grants_of_one_pass_go_in_one_frame(raw: Raw) -> None:
    channel = raw.end.input(1, window=1000)
    (first,) = raw.received()
    assert first == (FrameKind.CREDIT, channel.id, 1000, b"")
    raw.end.link.grant(channel, 3)
    raw.end.link.grant(channel, 4)
    assert raw.received() == [(FrameKind.CREDIT, channel.id, 7, b"")]


def test_late_frames_of_a_closed_channel_are_dropped_and_counted(pair: Pair) -> None:
    output, channel = pair.a.output(1), pair.b.input(1)
    pair.run()
    output.write(batch_of(1))
    channel.close()  # the data is under way
    pair.run()
    assert pair.b.counters.frames_dropped == 1
    assert output.finished
    assert pair.a.lost == pair.b.lost == []


def test_late_frames_of_an_old_attempt_are_dropped_and_counted(pair: Pair) -> None:
    output, old = pair.a.output(1), pair.b.input(1)
    pair.run()
    output.write(batch_of("old"))
    channel = pair.b.input(1, attempt=1)
    pair.run()
    assert old.finished
    assert pair.b.counters.frames_dropped == 1
    assert drain(channel) == []
    assert output.finished
    pair.a.output(1, attempt=1).write(batch_of("new"))
    pair.run()
    assert drain(channel) == ["new"]
    assert pair.a.lost == pair.b.lost == []


def test_a_sender_of_a_new_attempt_waits_for_its_receiver(pair: Pair) -> None:
    pair.a.output(1), pair.b.input(1)
    pair.run()
    output = pair.a.output(1, attempt=1)
    output.send(Watermark(7))
    output.write(batch_of("new"))
    output.end()
    pair.run()
    assert pair.a.lost == pair.b.lost == []
    channel = pair.b.input(1, attempt=1)
    pair.run()
    assert channel.poll() == Watermark(7)
    assert drain(channel) == ["new"]
    assert channel.ended


def test_what_a_receiver_of_an_old_attempt_said_early_is_forgotten(pair: Pair) -> None:
    pair.b.input(1).close()
    pair.run()
    output = pair.a.output(1, attempt=1)
    channel = pair.b.input(1, attempt=1)
    output.write(batch_of("new"))
    pair.run()
    assert drain(channel) == ["new"], "the cancel was for attempt 0"


ID = ChannelId(1, 0, 0)
DATA = b"".join(MessageWriter().dumps(batch_of(1))[0])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff" * HEADER.size, "unknown kind 255"),
        (encode(FrameKind.DATA, ChannelId(9, 9, 9), 0, 0, b"x"), "unknown channel 9:9->9 of attempt 0"),
        (encode(FrameKind.END_OF_INPUT, ChannelId(9, 9, 9), 0), "END_OF_INPUT frame for unknown channel"),
        (encode(FrameKind.DATA, ID, 5, 0, b"x"), "unknown channel 1:0->0 of attempt 5"),
        (encode(FrameKind.DATA, ID, 0, 0, b"x" * 2000), "only 1000 were granted"),
        (encode(FrameKind.DATA, ID, 0, 9, b"x") + encode(FrameKind.END_OF_INPUT, ID, 0), "within a message"),
        (encode(FrameKind.END_OF_INPUT, ID, 0) * 2, "second end"),
        (
            b"".join(encode(FrameKind.CREDIT, ChannelId(9, up, 0), 0, 1) for up in range(65537)),
            "more than 65536 unknown",
        ),
    ],
)
def test_a_peer_that_breaks_the_protocol_loses_its_connection(raw: Raw, data: bytes, reason: str) -> None:
    raw.end.input(1, window=1000)
    raw.received()
    for start in range(0, len(data), 50_000):
        raw.send(data[start : start + 50_000])
    (error,) = raw.end.lost
    assert error.peer == "slot evil"
    assert reason in error.reason
    assert not raw.end.link.connected
    (goodbye,) = (frame for frame in raw.received() if frame[0] is FrameKind.GOODBYE)
    assert b"protocol error" in goodbye[3]


@pytest.mark.parametrize("cut", [1, HEADER.size - 1, HEADER.size, HEADER.size + 5])
def test_an_end_within_a_frame_is_an_error(raw: Raw, cut: int) -> None:
    raw.end.input(1, window=1000)
    raw.send(encode(FrameKind.DATA, ID, 0, 0, DATA)[:cut])
    raw.sock.shutdown(socket.SHUT_WR)
    run_idle(raw.loop)
    (error,) = raw.end.lost
    assert f"within a frame, after {cut} of its bytes (1 channels were open)" in error.reason


def test_an_end_with_open_channels_is_an_error(pair: Pair) -> None:
    pair.a.output(1)
    pair.b.input(1)
    pair.run()
    sock = pair.b.link._sock
    assert sock is not None
    sock.shutdown(socket.SHUT_RDWR)
    pair.run()
    (error,) = pair.a.lost
    assert str(error) == "slot b: connection closed by the peer: its process has ended (1 channels were open)"


def test_an_end_after_all_channels_have_ended_is_none(pair: Pair) -> None:
    output, channel = pair.a.output(1), pair.b.input(1)
    output.write(batch_of(1))
    output.end()
    pair.run()
    pair.a.link.close()
    pair.run()
    assert drain(channel) == [1]
    assert not pair.b.link.connected
    assert pair.b.lost == []


def test_a_side_that_leaves_on_purpose_says_why(pair: Pair) -> None:
    pair.a.output(1)
    pair.b.input(1)
    pair.run()
    pair.a.link.close("the job was cancelled")
    pair.run()
    assert pair.a.lost == []
    (error,) = pair.b.lost
    assert "it closed the connection: the job was cancelled" in error.reason


def test_large_frames_and_tiny_socket_buffers(pair: Pair) -> None:
    for end in (pair.a, pair.b):
        assert end.link._sock is not None
        end.link._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    output, channel = pair.a.output(1, max_chunk=1 << 20, window=1 << 22), pair.b.input(1, window=1 << 22)
    values = [os.urandom(size) for size in (1, 3_000_000, 10, 500_000)]
    for value in values:
        output.write(batch_of(value))
    got: list[Any] = []
    for _ in range(20):
        pair.run()
        drain(channel, got)
    assert got == values


class Bomb:
    exploded = False

    def __reduce__(self) -> Any:
        return setattr, (Bomb, "exploded", True)


@given(st.binary(max_size=400), st.booleans())
def test_garbage_ends_the_connection_or_waits_for_more_and_nothing_else(garbage: bytes, plausible: bool) -> None:
    raw = Raw()
    try:
        raw.end.input(1, window=1000)
        raw.end.output(2)
        raw.send((encode(FrameKind.DATA, ID, 0, 50, pickle.dumps(Bomb())[:50]) if plausible else b"") + garbage)
        raw.sock.close()
        run_idle(raw.loop)
        assert len(raw.end.lost) == 1
        assert not raw.end.link.connected
        assert not Bomb.exploded
    finally:
        raw.close()


def test_batches_of_a_message_are_only_unpickled_when_they_are_polled(raw: Raw) -> None:
    data = b"".join(MessageWriter().dumps(Batch([Bomb()]))[0])
    channel = raw.end.input(1, window=1000)
    raw.send(encode(FrameKind.DATA, ID, 0, 0, data))
    assert not Bomb.exploded
    channel.poll()
    assert Bomb.exploded
    Bomb.exploded = False
