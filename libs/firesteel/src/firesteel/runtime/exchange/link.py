"""The connection to one other slot process: all channels between the two, multiplexed over one socket.

The reader (``reading``) never stops: what a sender may send was granted before, so all that arrives has its place. The
writer sends control frames ahead of data, and lets the channels that may send take turns by one chunk each. What one
``sendmsg`` takes is gathered from where it lies. Until the socket is there, everything waits here.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from firesteel.core.errors import ProtocolError
from firesteel.runtime.exchange.channels import ChannelId
from firesteel.runtime.exchange.counters import Counters
from firesteel.runtime.exchange.frames import Frame, FrameKind, encode
from firesteel.runtime.exchange.input import RemoteInputChannel
from firesteel.runtime.exchange.output import RemoteOutputChannel
from firesteel.runtime.exchange.reading import FrameReader, ReceiveBuffer
from firesteel.runtime.exchange.serialization import Segment
from firesteel.runtime.loop.loop import TaskLoop

logger = logging.getLogger(__name__)
GATHER_BYTES: Final = 256 * 1024
"""One ``sendmsg`` takes about this many bytes of data; control frames wait for no more than that."""
GATHER_PIECES: Final = 256
_MAX_EARLY: Final = 1 << 16
_NO_CHANNEL: Final = ChannelId(0, 0, 0)
_IN_BAND: Final = frozenset({FrameKind.DATA, FrameKind.END_OF_INPUT, FrameKind.ELEMENT, FrameKind.OVERDRAFT})


class Link:
    """See the module.

    Args:
        allocation: of the other slot.
        peer: its name, for errors.
        loop: of this process.
        buffer: shared by all connections of the process.
        counters: of the exchange.
        on_lost: gets the link and why; called once for each socket that was lost while channels were open.
        on_record_error: gets errors of serialisation that no task asked for.
    """

    def __init__(
        self,
        allocation: str,
        peer: str,
        loop: TaskLoop,
        buffer: ReceiveBuffer,
        counters: Counters,
        *,
        on_lost: Callable[[Link, ProtocolError], None],
        on_record_error: Callable[[Exception], None],
    ) -> None:
        self.allocation, self.peer = allocation, peer
        self.outputs: dict[ChannelId, RemoteOutputChannel] = {}
        self.inputs: dict[ChannelId, RemoteInputChannel] = {}
        self._loop, self._buffer, self._counters = loop, buffer, counters
        self._on_lost = on_lost
        self.failed = on_record_error
        self._sock: socket.socket | None = None
        self._released: dict[ChannelId, int] = {}  # channels that existed, and their last attempts
        self._early: dict[tuple[ChannelId, int], tuple[int, bool]] = {}  # (credit, cancelled) before the output exists
        self._credits: dict[RemoteInputChannel, int] = {}
        self._control: deque[bytes] = deque()
        self._ring: deque[RemoteOutputChannel] = deque()
        self._inflight: list[Segment] = []
        self._inflight_bytes = 0
        self._pump_posted = False
        self._want_write = False
        self._reader = FrameReader(peer, buffer, self)
        self._goodbye: str | None = None

    # -- the exchange's side

    @property
    def connected(self) -> bool:
        """Whether there is a socket."""
        return self._sock is not None

    @property
    def open_channels(self) -> int:
        """Channels over which something has still to come or to go."""
        outputs = sum(not channel.finished for channel in self.outputs.values())
        return outputs + sum(not channel.finished for channel in self.inputs.values())

    def attach(self, sock: socket.socket, received: bytes) -> None:
        """Use this socket, whose handshake is done; ``received`` came behind the handshake."""
        self._sock = sock
        self._reader = FrameReader(self.peer, self._buffer, self)
        self._goodbye = None
        self._want_write = False
        self._loop.register(sock, self._on_readable, None)
        if received:
            self._loop.call_soon(lambda: self._parse(sock, received))
        self._post_pump()

    def add_output(self, channel: RemoteOutputChannel) -> None:
        """Carry this channel, in place of an older attempt. What the receiver said about it before is applied."""
        before = self.outputs.get(channel.id)
        if before is not None:
            before.close()
        self.outputs[channel.id] = channel
        credit, cancelled = self._early.pop((channel.id, channel.attempt), (0, False))
        for key in [key for key in self._early if key[0] == channel.id and key[1] < channel.attempt]:
            del self._early[key]
        if credit:
            channel.grant(credit)
        if cancelled:
            channel.cancel()

    def add_input(self, channel: RemoteInputChannel) -> None:
        """Carry this channel, in place of an older attempt, and let the sender begin."""
        before = self.inputs.get(channel.id)
        if before is not None:
            before.close()
        self.inputs[channel.id] = channel
        channel.start()

    def close(self, reason: str = "") -> None:
        """Say goodbye as far as that goes without waiting, and close the socket. Idempotent."""
        sock = self._sock
        if sock is None:
            return
        if self.open_channels or reason:
            text = (reason or "the slot closes its exchange").encode(errors="replace")[:1000]
            try:  # what was cut in the middle goes first
                sock.sendmsg([*self._inflight, encode(FrameKind.GOODBYE, _NO_CHANNEL, 0, 0, text)])
            except OSError:
                pass
        self._drop_socket()

    # -- the channels' side

    def activate(self, channel: RemoteOutputChannel) -> None:
        """See ``OutputLink``."""
        if not channel.active:
            channel.active = True
            self._ring.append(channel)
        self._post_pump()

    def release_output(self, channel: RemoteOutputChannel) -> None:
        """See ``OutputLink``."""
        if self.outputs.get(channel.id) is channel:
            del self.outputs[channel.id]
            self._released[channel.id] = channel.attempt

    def grant(self, channel: RemoteInputChannel, amount: int) -> None:
        """See ``InputLink``. Grants of one pass of the loop go in one frame."""
        self._credits[channel] = self._credits.get(channel, 0) + amount
        self._post_pump()

    def release_input(self, channel: RemoteInputChannel) -> None:
        """See ``InputLink``."""
        if self.inputs.get(channel.id) is channel:
            del self.inputs[channel.id]
            self._released[channel.id] = channel.attempt
            self._credits.pop(channel, None)
            if not channel.ended:
                self._control.append(encode(FrameKind.CANCEL, channel.id, channel.attempt))
                self._post_pump()

    # -- writing

    def _post_pump(self) -> None:
        if not self._pump_posted and not self._want_write and self._sock is not None:
            self._pump_posted = True
            self._loop.call_soon(self._posted_pump)

    def _posted_pump(self) -> None:
        self._pump_posted = False
        if not self._want_write:
            self._pump()

    def _pump(self) -> None:
        sock = self._sock
        if sock is None:
            return
        for _ in range(4):
            if not self._inflight and not ((self._ring or self._control or self._credits) and self._gather()):
                self._watch_writable(False)
                return
            try:
                sent = sock.sendmsg(self._inflight)
            except BlockingIOError:
                self._watch_writable(True)
                return
            except OSError as error:
                self._lost(f"connection lost while sending: {error}", error)
                return
            self._counters.bytes_sent += sent
            if sent < self._inflight_bytes:
                self._trim(sent)
                self._watch_writable(True)
                return
            self._inflight = []
            self._inflight_bytes = 0
        if not self._want_write:
            self._post_pump()  # more is there: let the others have their turn

    def _gather(self) -> bool:
        pieces = self._inflight
        size = 0
        while self._control:
            pieces.append(self._control.popleft())
            size += len(pieces[-1])
        if self._credits:
            for receiver, amount in self._credits.items():
                pieces.append(encode(FrameKind.CREDIT, receiver.id, receiver.attempt, amount))
                size += len(pieces[-1])
            self._credits.clear()
        if len(pieces) > 1:
            pieces[:] = [b"".join(pieces)]
        ring = self._ring
        while ring and size < GATHER_BYTES and len(pieces) < GATHER_PIECES:
            channel = ring.popleft()
            if channel.sendable:
                size += channel.take_chunk(pieces)
            if channel.sendable:
                ring.append(channel)
            else:
                channel.active = False
        self._inflight_bytes = size
        return size > 0

    def _trim(self, sent: int) -> None:
        pieces = self._inflight
        self._inflight_bytes -= sent
        for index, piece in enumerate(pieces):
            if sent < len(piece):
                pieces[:index] = []
                pieces[0] = memoryview(piece)[sent:]
                return
            sent -= len(piece)

    def _watch_writable(self, wanted: bool) -> None:
        if wanted != self._want_write and self._sock is not None:
            self._want_write = wanted
            self._loop.modify(self._sock, self._on_readable, self._pump if wanted else None)

    # -- reading

    def _on_readable(self) -> None:
        sock = self._sock
        if sock is None:
            return
        try:
            count = self._reader.read(sock)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(f"connection lost: {error}", error)
            return
        except ProtocolError as error:
            self._fail(error)
            return
        self._counters.bytes_received += count
        if not count:
            self._end_of_stream()

    def _parse(self, sock: socket.socket, received: bytes) -> None:
        """Take what came with the handshake."""
        if self._sock is sock:
            try:
                self._reader.parse(memoryview(received))
            except ProtocolError as error:
                self._fail(error)

    def room(self, frame: Frame, size: int) -> memoryview | None:
        """See ``FrameTarget``."""
        receiver = self.inputs.get(frame.channel)
        if receiver is None or receiver.attempt != frame.attempt:
            return None
        return receiver.room(size, frame.value)

    def placed(self, frame: Frame, size: int) -> bool:
        """See ``FrameTarget``."""
        receiver = self.inputs.get(frame.channel)
        if receiver is not None and receiver.attempt == frame.attempt:
            receiver.placed(size, frame.value)
        else:
            self._counters.frames_dropped += 1
        return self._sock is not None

    def dispatch(self, frame: Frame) -> bool:
        """See ``FrameTarget``."""
        try:
            self._dispatch(frame)
        except ProtocolError:
            raise
        except Exception as error:  # a bug of ours: the frames behind this one belong to others, and have to be read
            self._loop.call_soon(partial(self.failed, error))
        return self._sock is not None

    def _dispatch(self, frame: Frame) -> None:
        kind, channel, attempt, value, payload = frame
        if kind is FrameKind.GOODBYE:
            self._goodbye = "".join(c if c.isprintable() else "?" for c in bytes(payload).decode(errors="replace"))
        elif kind in _IN_BAND:
            receiver = self.inputs.get(channel)
            if receiver is not None and receiver.attempt == attempt:
                if kind is FrameKind.DATA:
                    receiver.receive(payload, value)
                elif kind is FrameKind.ELEMENT:
                    receiver.receive_element(payload)
                elif kind is FrameKind.OVERDRAFT:
                    receiver.overdrawn(value)
                else:
                    receiver.receive_end()
            elif self._is_over(channel, attempt, receiver):
                self._counters.frames_dropped += 1
            else:
                raise ProtocolError(self.peer, f"{kind.name} frame for unknown {channel} of attempt {attempt}")
        else:
            self._dispatch_to_sender(kind, channel, attempt, value)

    def _dispatch_to_sender(self, kind: FrameKind, channel: ChannelId, attempt: int, value: int) -> None:
        sender = self.outputs.get(channel)
        if sender is not None and sender.attempt == attempt:
            if kind is FrameKind.CREDIT:
                sender.grant(value)
            else:
                sender.cancel()
        elif self._is_over(channel, attempt, sender):
            self._counters.frames_dropped += 1
        elif len(self._early) >= _MAX_EARLY:
            raise ProtocolError(self.peer, f"{kind.name} frames for more than {_MAX_EARLY} unknown channels")
        else:  # the receiver was deployed first
            credit, cancelled = self._early.get((channel, attempt), (0, False))
            self._early[channel, attempt] = (credit + value, cancelled or kind is FrameKind.CANCEL)

    def _is_over(
        self, channel: ChannelId, attempt: int, current: RemoteInputChannel | RemoteOutputChannel | None
    ) -> bool:
        """Whether an attempt of a channel was here, or a later one is."""
        return attempt <= self._released.get(channel, -1) or (current is not None and attempt < current.attempt)

    # -- the end

    def _end_of_stream(self) -> None:
        if self._reader.pending:
            self._lost(f"connection closed within a frame, after {self._reader.pending} of its bytes")
        elif self._goodbye is not None:
            self._lost(f"it closed the connection: {self._goodbye}")
        else:
            self._lost("connection closed by the peer: its process has ended")

    def _lost(self, reason: str, cause: Exception | None = None) -> None:
        count = self.open_channels
        self._drop_socket()
        if not count:
            logger.debug("%s: %s; no channel was open", self.peer, reason)
            return
        error = ProtocolError(self.peer, f"{reason} ({count} channels were open)")
        error.__cause__ = cause
        self._on_lost(self, error)

    def _fail(self, error: ProtocolError) -> None:
        if self._sock is not None:
            self._reader.discard(self._sock)
        self.close(f"protocol error: {error.reason}")
        self._on_lost(self, error)

    def _drop_socket(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            self._loop.unregister(sock)
            sock.close()
        self._inflight = []
        self._inflight_bytes = 0
        self._control.clear()
        self._credits.clear()
        self._want_write = False
