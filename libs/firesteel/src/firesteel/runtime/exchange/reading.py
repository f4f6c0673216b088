"""Reads the frames of one connection, in one of two modes.

In bulk, one ``recv`` takes many small frames into a buffer that all connections share. In place, a large message is
read chunk after chunk into the memory in which it stays: each ``recvmsg`` takes the rest of a chunk and the next
header, no more, so that the place of every byte is known before the kernel copies it. A connection begins in place and
stays so while large messages come; after several frames in a row that belong to none it reads in bulk.
"""

from __future__ import annotations

import socket
from typing import Final, Protocol

from firesteel.runtime.exchange.frames import HEADER, MAX_PAYLOAD, Frame, FrameKind, scan
from firesteel.runtime.records.copies import COPIES

LARGE_MESSAGE: Final = 128 * 1024
"""Messages from this many bytes on are read into memory of their own."""
CALM_FRAMES: Final = 8
"""Frames in a row that belong to no large message, after which a connection reads in bulk."""
READ_BYTES: Final = 256 * 1024
"""Bytes that one call reads, about, before other connections have their turn."""


class ReceiveBuffer:
    """The buffer into which all connections of a process read in bulk; each copies out its incomplete last frame."""

    def __init__(self, size: int = READ_BYTES) -> None:
        self.view = memoryview(bytearray(size))

    def reserve(self, carried: int) -> memoryview:
        """Return the buffer, large enough to read on behind this many bytes of an incomplete frame."""
        if carried * 2 > len(self.view):
            self.view = memoryview(bytearray(2 * (carried + MAX_PAYLOAD)))
        return self.view


class FrameTarget(Protocol):
    """The receiver of the frames. All methods raise ``ProtocolError`` if the peer broke the rules."""

    def dispatch(self, frame: Frame) -> bool:
        """Take a frame, whose payload is overwritten afterwards; returns False if the connection was closed."""

    def room(self, frame: Frame, size: int) -> memoryview | None:
        """Memory for the payload, ``size`` bytes, of a DATA frame; None if ``dispatch`` is to get that payload."""

    def placed(self, frame: Frame, size: int) -> bool:
        """Take note that a payload is in the memory of ``room``; returns False if the connection was closed."""


class FrameReader:
    """Reads the frames of one connection and hands them to a target.

    Args:
        peer: name of the other slot in errors.
        buffer: receive buffer that all connections of the process share.
        target: gets the frames.
    """

    def __init__(self, peer: str, buffer: ReceiveBuffer, target: FrameTarget) -> None:
        self._peer, self._buffer, self._target = peer, buffer, target
        self._carry = b""  # the beginning of an incomplete frame that was read in bulk
        self._head = memoryview(bytearray(HEADER.size))
        self._head_bytes = 0  # bytes of the next header that are in ``_head``
        self._frame: Frame | None = None  # the frame whose payload is being read into ``_room``
        self._size = 0  # bytes of that payload
        self._room: memoryview | None = None  # memory for the part of that payload that has not come
        self._to_target = False  # whether that memory is the target's
        self._calm = 0  # frames in a row that belong to no large message

    @property
    def pending(self) -> int:
        """Bytes that have come of an incomplete frame."""
        if self._room is not None:
            return HEADER.size + self._size - len(self._room)
        return self._head_bytes or len(self._carry)

    def read(self, sock: socket.socket) -> int:
        """Read once, or a few times; returns how many bytes came (0: the peer has closed the connection).

        Raises:
            BlockingIOError: nothing has come.
            OSError: the connection is lost.
            ProtocolError: what came can't be a frame, or breaks the rules.
        """
        if self._room is not None or self._head_bytes or (self._calm < CALM_FRAMES and not self._carry):
            return self._read_in_place(sock)
        carry = self._carry
        start = len(carry)
        buffer = self._buffer.reserve(start)
        count = sock.recv_into(buffer[start:])
        if count:
            buffer[:start] = carry
            self.parse(buffer[: start + count])
        return count

    def parse(self, view: memoryview) -> None:
        """Dispatch the complete frames of a buffer, and copy out the incomplete one at its end.

        Raises:
            ProtocolError: what is there can't be a frame, or breaks the rules.
        """
        position, end = 0, len(view)
        for frame, stop in scan(view, self._peer):
            if stop > end:
                if self._begin(frame, stop - position - HEADER.size):
                    position = end
                break
            self._calm = 0 if frame.kind is FrameKind.DATA and frame.value >= LARGE_MESSAGE else self._calm + 1
            if not self._target.dispatch(frame):
                return
            position = stop
        incomplete = end - position
        if incomplete < HEADER.size and self._calm < CALM_FRAMES:
            self._head[:incomplete] = view[position:]
            self._head_bytes, self._carry = incomplete, b""
        else:
            self._carry = bytes(view[position:])

    def discard(self, sock: socket.socket) -> None:
        """Read and drop a few buffers before the socket is closed.

        A socket that is closed with unread data resets the connection, so that the peer would lose our last words.
        """
        try:
            for _ in range(4):
                if not sock.recv_into(self._buffer.view):
                    return
        except OSError:
            pass

    def _begin(self, frame: Frame, size: int) -> bool:
        """Begin to read a payload in place, if its target has memory for it; copy there the part that has come."""
        room = self._target.room(frame, size) if frame.kind is FrameKind.DATA else None
        if room is None:
            return False
        received = len(frame.payload)
        if received:
            room[:received] = frame.payload
            COPIES.bytes += received
        self._frame, self._size, self._room, self._to_target = frame, size, room[received:], True
        self._calm = 0
        return True

    def _read_in_place(self, sock: socket.socket) -> int:
        """Alternate between headers and payloads until the socket is empty or ``READ_BYTES`` have come."""
        total = 0
        while total < READ_BYTES:
            room, head = self._room, self._head[self._head_bytes :]
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
                if not self._payload_complete():
                    break
            self._head_bytes += count
            if self._head_bytes < HEADER.size:
                break
            self._head_bytes = 0
            if not self._header_complete() or self._carry:
                break
        return total

    def _payload_complete(self) -> bool:
        """Hand over a frame whose payload is complete; returns False if the connection was closed."""
        frame, self._frame = self._frame, None
        assert frame is not None
        return self._target.placed(frame, self._size) if self._to_target else self._target.dispatch(frame)

    def _header_complete(self) -> bool:
        """Decide from a complete header where its payload goes; returns False if the connection was closed."""
        for frame, stop in scan(self._head, self._peer):
            size = stop - HEADER.size
            if self._begin(frame, size):
                return True
            self._calm += 1
            if not size:
                return self._target.dispatch(frame)
            if self._calm >= CALM_FRAMES:
                # Go back to reading in bulk, which begins with the bytes in ``_carry``.
                self._carry = bytes(self._head)
                return True
            self._size, self._room, self._to_target = size, memoryview(bytearray(size)), False
            self._frame = frame._replace(payload=self._room)
        return True
