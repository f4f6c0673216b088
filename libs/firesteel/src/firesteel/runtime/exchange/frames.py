"""Frames of the data plane. Every frame is a header of fixed size, for data followed by a chunk of a message.

A message is one serialised batch. It travels as chunks; each says how much of its message is still to come, so that
the receiver knows the message's size from its first chunk. Everything is little endian. The decoder is pure and looks
into nothing but headers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from firesteel.core.errors import ProtocolError
from firesteel.runtime.exchange.channels import ChannelId

HEADER: Final = struct.Struct("<IBxHIIIQ")
"""Length of the payload, kind, edge, job attempt, upstream subtask, downstream subtask, value."""
MAX_PAYLOAD: Final = 1 << 20
"""Most bytes of a frame's payload; a larger length is taken for garbage."""
MAX_MESSAGE: Final = 1 << 40
"""Most bytes of a message or a grant; a larger value is taken for garbage."""


class FrameKind(IntEnum):
    """What a frame carries. Later kinds get new numbers; a reader refuses kinds that it does not know."""

    DATA = 1
    """A chunk of a message; value = bytes of the message that follow in later chunks (0: this was the last)."""
    END_OF_INPUT = 2
    """End of the channel, in-band: it carries nothing more."""
    CREDIT = 3
    """From the receiver: value = bytes of messages that the sender may send in addition."""
    CANCEL = 4
    """From the receiver: it reads no more; the sender drops what it has."""
    GOODBYE = 5
    """The sender of this frame closes the connection on purpose; payload = reason, UTF-8. Channel fields are 0."""
    ELEMENT = 6
    """In-band: payload = an element (``elements.dump_element``), in order with the messages of its channel."""

    OVERDRAFT = 7
    """In-band: value = bytes of messages that follow beyond what was granted, in front of a barrier that overtakes."""


WITH_PAYLOAD: Final = frozenset({FrameKind.DATA, FrameKind.GOODBYE, FrameKind.ELEMENT})
_KINDS: Final = {int(kind): kind for kind in FrameKind}


class Frame(NamedTuple):
    """One decoded frame; ``payload`` is a view into the decoded buffer, valid as long as that is not overwritten."""

    kind: FrameKind
    channel: ChannelId
    attempt: int
    value: int
    payload: memoryview


def encode(kind: FrameKind, channel: ChannelId, attempt: int, value: int = 0, payload: bytes = b"") -> bytes:
    """A whole frame in one piece. For data the writer packs only the header, and sends the chunk without a copy."""
    return HEADER.pack(len(payload), kind, channel.edge, attempt, channel.up, channel.down, value) + payload


def decode(view: memoryview, peer: str) -> Iterator[tuple[Frame, int]]:
    """Yield the complete frames of a buffer, each with the offset behind it. Bytes behind the last are incomplete.

    Args:
        view: bytes received.
        peer: named in errors.

    Raises:
        ProtocolError: what is there can't be a frame; the connection must be closed.
    """
    end = len(view)
    for frame, stop in scan(view, peer):
        if stop <= end:
            yield frame, stop


def scan(view: memoryview, peer: str) -> Iterator[tuple[Frame, int]]:
    """Like ``decode``, but also yield a last frame of which the header is complete and the payload is not.

    The offset behind that frame lies beyond the buffer.
    """
    position, end = 0, len(view)
    size = HEADER.size
    while end - position >= size:
        length, number, edge, attempt, up, down, value = HEADER.unpack_from(view, position)
        kind = _KINDS.get(number)
        if kind is None:
            raise ProtocolError(peer, f"frame of unknown kind {number}")
        if length > MAX_PAYLOAD:
            raise ProtocolError(peer, f"{kind.name} frame of {length} bytes; at most {MAX_PAYLOAD} are allowed")
        if value > MAX_MESSAGE:
            raise ProtocolError(peer, f"{kind.name} frame with the impossible value {value}")
        if kind is FrameKind.DATA:
            if length == 0:
                raise ProtocolError(peer, "DATA frame without data")
        elif length and kind not in WITH_PAYLOAD:
            raise ProtocolError(peer, f"{kind.name} frame with {length} bytes of payload; none are allowed")
        stop = position + size + length
        yield Frame(kind, ChannelId(edge, up, down), attempt, value, view[position + size : stop]), stop
        position = stop
