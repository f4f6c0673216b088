"""The control channel's thread: what can be said without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from firesteel.protocol.slot_channel import FrameDecoder
from firesteel.runtime.slot.control import OUTPUT_LIMIT, ControlChannel
from tests.unit.runtime.support import ManualClock


@pytest.fixture
def channel() -> Iterator[ControlChannel]:
    channel = ControlChannel("nowhere", ManualClock(), lambda message, payload: None, lambda reason: None)
    yield channel
    channel.close(0)


def frames(channel: ControlChannel) -> list[tuple[dict[str, Any], bytes]]:
    """What would be sent now."""
    data = b""
    while part := channel._next():
        data += part
    return list(FrameDecoder("test").feed(data))


def test_messages_keep_their_order_and_output_is_put_together(channel: ControlChannel) -> None:
    channel.send({"type": "a"})
    channel.send_output("stdout", "one\n")
    channel.send_output("stdout", "two\n")
    channel.send_output("stderr", "three\n")
    channel.send({"type": "b"}, b"payload")
    assert frames(channel) == [
        ({"type": "a"}, b""),
        ({"type": "stdout", "stream": "stdout"}, b"one\ntwo\n"),
        ({"type": "stdout", "stream": "stderr"}, b"three\n"),
        ({"type": "b"}, b"payload"),
    ]


def test_output_frames_stay_small(channel: ControlChannel) -> None:
    for _ in range(8):
        channel.send_output("stdout", "x" * 20_000)
    assert [len(payload) for _, payload in frames(channel)] == [60_000, 60_000, 40_000]


def test_room_for_output_is_announced_when_half_has_left(channel: ControlChannel) -> None:
    wake_ups: list[int] = []
    channel.on_output_room = lambda: wake_ups.append(1)
    while channel.output_room():
        channel.send_output("stdout", "x" * 60_000)
    assert OUTPUT_LIMIT <= 60_000 * len(channel._queue) <= OUTPUT_LIMIT + 60_000
    assert channel._next()
    assert not wake_ups
    frames(channel)
    assert wake_ups == [1]
    assert channel.output_room()


def test_text_that_utf_8_cannot_hold_is_escaped(channel: ControlChannel) -> None:
    channel.send_output("stdout", "a\ud800b")
    assert frames(channel)[0][1] == b"a\\ud800b"


def test_a_wake_up_during_the_draining_of_another_is_not_lost(channel: ControlChannel) -> None:
    class Wake:
        """Between two reads another thread sends something."""

        def __init__(self) -> None:
            self.reads = 0

        def recv(self, size: int) -> bytes:
            self.reads += 1
            if self.reads > 1:
                raise BlockingIOError
            channel.send({"type": "late"})
            return b"\0"

        def close(self) -> None: ...

    real, channel._wake_in = channel._wake_in, Wake()  # type: ignore[assignment]
    channel._drain_wake()
    assert [message for message, _ in frames(channel)] == [{"type": "late"}]
    assert not channel._awake, "else the next sender would not write to the pipe, which is empty"
    channel._wake_in = real


def test_a_closed_channel_takes_nothing_and_never_waits(channel: ControlChannel) -> None:
    while channel.output_room():
        channel.send_output("stdout", "x" * 60_000)
    channel.close(0)
    channel.send({"type": "a"})
    channel.send_output("stdout", "x")
    assert channel.output_room()
    assert frames(channel) == []
