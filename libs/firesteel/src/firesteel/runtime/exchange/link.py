"""The connection to one other slot process: all channels between the two, multiplexed over one socket.

The reader (``reading``) never stops: a sender sends only what was granted to it, so all that arrives has its place. The
writer sends control frames ahead of data, and lets channels that may send take turns with one chunk each. One
``sendmsg`` gathers these chunks from the memory in which they lie, without a copy. Until the socket is connected,
frames wait here.
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
"""Most buffers given to one ``sendmsg``; the kernel takes 1024 (IOV_MAX)."""
_MAX_EARLY: Final = 1 << 16
"""Most channels whose receivers may send credit before the sender exists here; a peer with more is broken."""
_NO_CHANNEL: Final = ChannelId(0, 0, 0)
_IN_BAND: Final = frozenset({FrameKind.DATA, FrameKind.END_OF_INPUT, FrameKind.ELEMENT, FrameKind.OVERDRAFT})


class Link:
    """One connection and its channels. The exchange makes a link for each peer and attaches a socket when it has one.

    Args:
        allocation: allocation id of the other slot.
        peer: name of the other slot in errors.
        loop: task loop of this process.
        buffer: receive buffer that all connections of the process share.
        counters: running totals of the exchange.
        on_lost: gets the link and the reason; called once for each socket that is lost while channels are open.
        on_record_error: gets errors of serialisation of channels whose task has set no ``on_error``.
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
        self._released: dict[ChannelId, int] = {}  # closed channels and the attempts in which they were closed
        self._early: dict[tuple[ChannelId, int], tuple[int, bool]] = {}  # (credit, cancelled) before the output exists
        self._credits: dict[RemoteInputChannel, int] = {}  # grants that were not sent yet
        self._control: deque[bytes] = deque()
        self._ring: deque[RemoteOutputChannel] = deque()  # channels that may send, in the order of their turns
        self._inflight: list[Segment] = []  # what the socket has not taken of the last ``sendmsg``
        self._inflight_bytes = 0
        self._pump_posted = False
        self._want_write = False  # whether the loop watches for room in the socket
        self._reader = FrameReader(peer, buffer, self)
        self._goodbye: str | None = None  # why the peer said that it closes the connection

    # -- the exchange's side

    @property
    def connected(self) -> bool:
        """Whether a socket is attached, so that nobody has to connect or wait for the peer."""
        return self._sock is not None

    @property
    def open_channels(self) -> int:
        """Number of channels whose end has not passed yet: those to which the loss of the socket matters."""
        outputs = sum(not channel.finished for channel in self.outputs.values())
        return outputs + sum(not channel.finished for channel in self.inputs.values())

    def attach(self, sock: socket.socket, received: bytes) -> None:
        """Use this socket, whose handshake is done; ``received`` are the bytes that came behind the handshake."""
        self._sock = sock
        self._reader = FrameReader(self.peer, self._buffer, self)
        self._goodbye = None
        self._want_write = False
        self._loop.register(sock, self._on_readable, None)
        if received:
            # On the next turn: frames call back into tasks and may close this link, in the middle of ``attach``.
            self._loop.call_soon(lambda: self._parse(sock, received))
        self._post_pump()

    def add_output(self, channel: RemoteOutputChannel) -> None:
        """Carry this channel in place of an older attempt, and apply what its receiver has sent before it existed."""
        former = self.outputs.get(channel.id)
        if former is not None:
            former.close()
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
        former = self.inputs.get(channel.id)
        if former is not None:
            former.close()
        self.inputs[channel.id] = channel
        channel.start()

    def close(self, reason: str = "") -> None:
        """Send a goodbye, as far as the socket takes it without waiting, and close the socket. Idempotent."""
        sock = self._sock
        if sock is None:
            return
        if self.open_channels or reason:
            text = (reason or "the slot closes its exchange").encode(errors="replace")[:1000]
            try:
                # Behind the rest of a frame that has left in part, or the peer could not read the goodbye.
                sock.sendmsg([*self._inflight, encode(FrameKind.GOODBYE, _NO_CHANNEL, 0, 0, text)])
            except OSError:
                pass
        self._drop_socket()

    # -- the channels' side

    def activate(self, channel: RemoteOutputChannel) -> None:
        """Give a channel that has something to send a place in the ring."""
        if not channel.active:
            channel.active = True
            self._ring.append(channel)
        self._post_pump()

    def release_output(self, channel: RemoteOutputChannel) -> None:
        """Forget a closed channel, but remember its attempt, so that late frames of its receiver are dropped."""
        if self.outputs.get(channel.id) is channel:
            del self.outputs[channel.id]
            self._released[channel.id] = channel.attempt

    def grant(self, channel: RemoteInputChannel, amount: int) -> None:
        """Send a grant. Grants of one channel in one turn of the loop share a frame."""
        self._credits[channel] = self._credits.get(channel, 0) + amount
        self._post_pump()

    def release_input(self, channel: RemoteInputChannel) -> None:
        """Forget a closed channel, and tell its sender to stop unless its end has come."""
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
        """Write until the socket is full, nothing is left, or it is the turn of other connections."""
        sock = self._sock
        if sock is None:
            return
        for _ in range(4):  # at most 1 MiB (4 * GATHER_BYTES) before the loop serves others
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
            self._post_pump()

    def _gather(self) -> bool:
        """Collect the buffers of the next ``sendmsg``; returns whether there are any."""
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
            pieces[:] = [b"".join(pieces)]  # control frames are small: one buffer costs the kernel less than many
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
        """Drop the first ``sent`` bytes of what is in flight, which the socket has taken."""
        pieces = self._inflight
        self._inflight_bytes -= sent
        for index, piece in enumerate(pieces):
            if sent < len(piece):
                pieces[:index] = []
                pieces[0] = memoryview(piece)[sent:]
                return
            sent -= len(piece)

    def _watch_writable(self, watch: bool) -> None:
        if watch != self._want_write and self._sock is not None:
            self._want_write = watch
            self._loop.modify(self._sock, self._on_readable, self._pump if watch else None)

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
        """Read the frames that came with the handshake, unless the link has another socket by now."""
        if self._sock is sock:
            try:
                self._reader.parse(memoryview(received))
            except ProtocolError as error:
                self._fail(error)

    def room(self, frame: Frame, size: int) -> memoryview | None:
        """Memory of the receiving channel for a chunk of a large message (``FrameTarget.room``)."""
        receiver = self.inputs.get(frame.channel)
        if receiver is None or receiver.attempt != frame.attempt:
            return None
        return receiver.room(size, frame.value)

    def placed(self, frame: Frame, size: int) -> bool:
        """Tell the receiving channel that its chunk is complete (``FrameTarget.placed``)."""
        receiver = self.inputs.get(frame.channel)
        if receiver is not None and receiver.attempt == frame.attempt:
            receiver.placed(size, frame.value)
        else:
            self._counters.frames_dropped += 1
        return self._sock is not None

    def dispatch(self, frame: Frame) -> bool:
        """Give a frame to the channel to which it belongs (``FrameTarget.dispatch``)."""
        try:
            self._dispatch(frame)
        except ProtocolError:
            raise
        except Exception as error:  # a bug of ours: frames behind this one belong to other channels and must be read
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
        else:  # the receiver was deployed before the sender: keep what it says until ``add_output``
            credit, cancelled = self._early.get((channel, attempt), (0, False))
            self._early[channel, attempt] = (credit + value, cancelled or kind is FrameKind.CANCEL)

    def _is_over(
        self, channel: ChannelId, attempt: int, current: RemoteInputChannel | RemoteOutputChannel | None
    ) -> bool:
        """Whether this attempt of the channel is closed or replaced by a later one, so that its frames are late."""
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
        """Close after the peer is gone; an error only if channels were open, as idle links end with their jobs."""
        count = self.open_channels
        self._drop_socket()
        if not count:
            logger.debug("%s: %s; no channel was open", self.peer, reason)
            return
        error = ProtocolError(self.peer, f"{reason} ({count} channels were open)")
        error.__cause__ = cause
        self._on_lost(self, error)

    def _fail(self, error: ProtocolError) -> None:
        """Close because the peer broke the protocol, and tell it why."""
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
