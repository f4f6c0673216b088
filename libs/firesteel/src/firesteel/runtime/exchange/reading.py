"""Reads the frames of one connection.

Small frames are read many at once, into a buffer that all connections share. A large message is read to where it stays,
chunk after chunk: what ``recvmsg`` takes is the rest of a chunk and the next header, no more, so that its place is
known before the kernel copies it. A connection reads in this careful way from the beginning and as long as large
messages come; after some frames of other kinds in a row it goes back to reading many at once.
"""

from __future__ import annotations

import socket
from typing import Final, Protocol

from firesteel.runtime.exchange.frames import HEADER, MAX_PAYLOAD, Frame, FrameKind, scan
from firesteel.runtime.records.copies import COPIES

LARGE_MESSAGE: Final = 128 * 1024
"""Bytes; messages from this size on are read to where they stay."""
CALM_FRAMES: Final = 8
"""So many frames in a row that are none of a large message: reading many at once costs less."""
READ_BYTES: Final = 256 * 1024
"""One call reads about this much; then it is the others' turn."""


class ReceiveBuffer:
    """The buffer that all connections of a process read into; what is incomplete they copy out."""

    def __init__(self, size: int = READ_BYTES) -> None:
        self.view = memoryview(bytearray(size))

    def reserve(self, carried: int) -> memoryview:
        """The buffer, large enough to read on behind this many bytes."""
        if carried * 2 > len(self.view):
            self.view = memoryview(bytearray(2 * (carried + MAX_PAYLOAD)))
        return self.view


class FrameTarget(Protocol):
    """What gets the frames. All methods raise ``ProtocolError`` if the peer broke the rules."""

    def dispatch(self, frame: Frame) -> bool:
        """Take a frame; whether there will be others. The payload is overwritten later."""

    def room(self, frame: Frame, size: int) -> memoryview | None:
        """Where the payload of a DATA frame, of ``size`` bytes, is to be read to; None: ``dispatch`` is to get it."""

    def placed(self, frame: Frame, size: int) -> bool:
        """The payload is there; whether there will be other frames."""


class FrameReader:
    """See the module.

    Args:
        peer: named in errors.
        buffer: shared by all connections of the process.
        target: gets the frames.
    """

    def __init__(self, peer: str, buffer: ReceiveBuffer, target: FrameTarget) -> None:
        self._peer, self._buffer, self._target = peer, buffer, target
        self._carry = b""  # the beginning of a frame, where many are read at once
        self._head = memoryview(bytearray(HEADER.size))
        self._have = 0  # bytes of the next header, in ``_head``
        self._frame: Frame | None = None  # its payload is being read, to ``_room``
        self._size = 0  # of that payload
        self._room: memoryview | None = None  # what is left of it
        self._to_target = False  # the room is the target's
        self._calm = 0  # frames in a row that are none of a large message

    @property
    def pending(self) -> int:
        """Bytes that are there of a frame that is not complete."""
        if self._room is not None:
            return HEADER.size + self._size - len(self._room)
        return self._have or len(self._carry)

    def read(self, sock: socket.socket) -> int:
        """Read once, or a few times; how many bytes came (0: the end).

        Raises:
            BlockingIOError: nothing is there.
            OSError: the connection is lost.
            ProtocolError: what came can't be a frame, or breaks the rules.
        """
        if self._room is not None or self._have or (self._calm < CALM_FRAMES and not self._carry):
            return self._read_carefully(sock)
        carry = self._carry
        start = len(carry)
        buffer = self._buffer.reserve(start)
        count = sock.recv_into(buffer[start:])
        if count:
            buffer[:start] = carry
            self.parse(buffer[: start + count])
        return count

    def parse(self, view: memoryview) -> None:
        """Take the frames of a buffer.

        Raises:
            ProtocolError: what is there can't be a frame, or breaks the rules.
        """
        done, end = 0, len(view)
        for frame, stop in scan(view, self._peer):
            if stop > end:
                if self._begin(frame, stop - done - HEADER.size):
                    done = end
                break
            self._calm = 0 if frame.kind is FrameKind.DATA and frame.value >= LARGE_MESSAGE else self._calm + 1
            if not self._target.dispatch(frame):
                return
            done = stop
        left = end - done
        if left < HEADER.size and self._calm < CALM_FRAMES:
            self._head[:left] = view[done:]
            self._have, self._carry = left, b""
        else:
            self._carry = bytes(view[done:])

    def discard(self, sock: socket.socket) -> None:
        """Read what is there, as far as that is little: a socket that is closed before that resets its peer, which
        would not see what was said to it.
        """
        try:
            for _ in range(4):
                if not sock.recv_into(self._buffer.view):
                    return
        except OSError:
            pass

    def _begin(self, frame: Frame, size: int) -> bool:
        """Whether the payload of a frame goes to a place of its own; what is there of it has been copied."""
        room = self._target.room(frame, size) if frame.kind is FrameKind.DATA else None
        if room is None:
            return False
        there = len(frame.payload)
        if there:
            room[:there] = frame.payload
            COPIES.bytes += there
        self._frame, self._size, self._room, self._to_target = frame, size, room[there:], True
        self._calm = 0
        return True

    def _read_carefully(self, sock: socket.socket) -> int:
        total = 0
        while total < READ_BYTES:
            room, head = self._room, self._head[self._have :]
            try:
                count = sock.recvmsg_into([head] if room is None else [room, head])[0]
            except BlockingIOError:
                if total:
                    break
                raise
            total += count
            if room is not None:
                if count < len(room):
                    self._room = room[count:]
                    break
                count -= len(room)
                self._room = None
                if not self._filled():
                    break
            self._have += count
            if self._have < HEADER.size:
                break
            self._have = 0
            if not self._headed() or self._carry:
                break
        return total

    def _filled(self) -> bool:
        """A payload is complete; whether other frames come."""
        frame, self._frame = self._frame, None
        assert frame is not None
        return self._target.placed(frame, self._size) if self._to_target else self._target.dispatch(frame)

    def _headed(self) -> bool:
        """A header is complete; whether other frames come."""
        for frame, stop in scan(self._head, self._peer):
            size = stop - HEADER.size
            if self._begin(frame, size):
                return True
            self._calm += 1
            if not size:
                return self._target.dispatch(frame)
            if self._calm >= CALM_FRAMES:
                self._carry = bytes(self._head)
                return True
            self._size, self._room, self._to_target = size, memoryview(bytearray(size)), False
            self._frame = frame._replace(payload=self._room)
        return True
