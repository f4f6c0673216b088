"""All connections of a slot process: listens, connects, authenticates, and hands out channels."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from firesteel.core.clock import Clock
from firesteel.core.errors import ConfigurationError, ProtocolError
from firesteel.runtime.exchange.acceptor import Acceptor
from firesteel.runtime.exchange.channels import ChannelId, InputChannel, OutputChannel
from firesteel.runtime.exchange.counters import Counters
from firesteel.runtime.exchange.dialer import BUSY, Dialer
from firesteel.runtime.exchange.flow_control import TimedLimit, WideWindows
from firesteel.runtime.exchange.frames import MAX_PAYLOAD
from firesteel.runtime.exchange.handshake import Identity
from firesteel.runtime.exchange.input import RemoteInputChannel
from firesteel.runtime.exchange.link import Link
from firesteel.runtime.exchange.local import LocalPipe
from firesteel.runtime.exchange.output import RemoteOutputChannel
from firesteel.runtime.exchange.reading import ReceiveBuffer
from firesteel.runtime.exchange.sockets import Address, describe, tune
from firesteel.runtime.loop.loop import Handle, TaskLoop

logger = logging.getLogger(__name__)
DEFAULT_WINDOW: Final = 512 * 1024
"""Window of each channel, in bytes."""
WIDE_BYTES: Final = 64 * 1024 * 1024
"""Bytes that channels with columns of one slot may have in flight beyond their windows, at each of the two ends."""
DEFAULT_MAX_CHUNK: Final = 64 * 1024
"""Most bytes of data in one frame, after which the next channel has its turn."""


@dataclass(frozen=True)
class ExchangeStatistics:
    """The counters of an exchange at one moment.

    Attributes:
        connections: connections that are up.
        connections_waiting: connections that are accepted but not authenticated yet.
        connections_refused: running total of connections that failed the handshake.
        frames_dropped: running total of late frames of an old attempt or of a closed channel.
        bytes_sent, bytes_received: running totals with all overhead.
        queued_out, queued_in: bytes that wait in all channels now.
    """

    connections: int
    connections_waiting: int
    connections_refused: int
    frames_dropped: int
    bytes_sent: int
    bytes_received: int
    queued_out: int
    queued_in: int


class Exchange:
    """The data plane of a slot: it owns the connections to other slots and hands out channels to tasks.

    Everything but the constructor belongs to the thread of the loop.

    Args:
        loop: task loop of this process.
        listen: ``unix:<path>``, ``tcp:<host>`` (a free port is chosen), or both; ``tcp:<host to bind to>=<host for
            others>`` if these differ.
        clock: measures how fast readers are (``TimedLimit``).
        connect_timeout: seconds from when a peer is needed until it must be connected. Long: user code may keep a
            slot's only thread for minutes, and whether the process lives is for its TaskManager to say.
        handshake_timeout: seconds until a connection has to say who it is; from then on ``connect_timeout`` holds.

    Attributes:
        on_failure: gets each connection that broke, could not be made, or whose peer broke the protocol, as a
            ``ProtocolError`` that names peer and reason (``__cause__`` is an ``OSError`` if there was one), and the
            allocation id of that peer; its channels stand still from then on. Also gets a ``SerializationError``
            that belongs to an output channel without ``on_error``, with None. Without it the error goes to the
            loop's ``on_error``.

    Raises:
        ConfigurationError: ``listen`` is malformed, or can't be listened on.
    """

    def __init__(
        self,
        loop: TaskLoop,
        listen: Sequence[str],
        clock: Clock,
        *,
        connect_timeout: float = 600.0,
        handshake_timeout: float = 10.0,
    ) -> None:
        self._loop, self._clock = loop, clock
        self._connect_timeout = connect_timeout
        self.on_failure: Callable[[Exception, str | None], None] | None = None
        self._identity: Identity | None = None
        self._secret = b""
        self._peers: dict[str, Address] = {}
        self._window, self._max_chunk = DEFAULT_WINDOW, DEFAULT_MAX_CHUNK
        self._in_flight_seconds = 0.0
        self._links: dict[str, Link] = {}
        self._dialers: dict[str, Dialer] = {}
        self._expected: dict[str, Handle] = {}  # timers of the peers that have to connect to this slot
        self._pipes: dict[ChannelId, LocalPipe] = {}
        self._buffer = ReceiveBuffer()
        self._wide = WideWindows(WIDE_BYTES)
        self._counters = Counters()
        self._closed = False
        self._acceptor = Acceptor(
            loop,
            listen,
            self._counters,
            handshake_timeout=handshake_timeout,
            park_timeout=connect_timeout,
            on_accepted=self._accepted,
        )

    @property
    def address(self) -> dict[str, Any]:
        """Where peers find it: ``{"unix": path, "node": id, "tcp": [host, port]}``, or a part of that."""
        return dict(self._acceptor.address)

    def configure(
        self,
        job_id: str,
        job_attempt: int,
        secret: str,
        my_allocation: str,
        peers: Mapping[str, Mapping[str, Any]],
        window: int = DEFAULT_WINDOW,
        max_chunk: int = DEFAULT_MAX_CHUNK,
        in_flight_seconds: float = 0.0,
    ) -> None:
        """Set the job that this slot works for, and the slots with which it exchanges records.

        May be called again when slots of the job were replaced: connections to slots that are named again stay, with
        their channels; the others are closed.

        Args:
            job_id: id of the job.
            job_attempt: tells JobMasters of the same job apart.
            secret: secret of the job, in hex.
            my_allocation: allocation id of this slot.
            peers: allocation id -> address, for all slots that this one exchanges records with (its own is ignored).
            window: window of each channel in bytes, the same in all slots.
            max_chunk: most bytes of data in a frame; more than 1 MiB counts as 1 MiB.
            in_flight_seconds: how long records may be in flight in front of a slow reader; 0 = the window alone counts.

        Raises:
            ConfigurationError: a value is out of range, or another job or slot was configured before.
        """
        if window < 1 or max_chunk < 1:
            raise ConfigurationError(f"window {window} and max chunk {max_chunk} must be at least 1")
        former = self._identity
        if former is not None and former != Identity(job_id, job_attempt, my_allocation):
            raise ConfigurationError(
                f"the exchange serves {former}; it can't be used for slot {my_allocation}, attempt {job_attempt} of "
                f"job {job_id}"
            )
        try:
            self._secret = bytes.fromhex(secret)
        except ValueError:
            raise ConfigurationError("the job's secret is not hex") from None
        self._identity = Identity(job_id, job_attempt, my_allocation)
        self._peers = {allocation: dict(address) for allocation, address in peers.items()}
        self._window, self._max_chunk = window, min(max_chunk, MAX_PAYLOAD)
        self._in_flight_seconds = in_flight_seconds
        for allocation in [allocation for allocation in self._links if allocation not in self._peers]:
            self._forget(allocation)
        allowed = [allocation for allocation in self._peers if allocation < my_allocation]
        self._acceptor.configure(self._identity, self._secret, allowed)

    # -- channels

    def output(
        self, edge: int, up: int, down: int, target_allocation: str, buffer_timeout_ms: int, attempt: int = 0
    ) -> OutputChannel:
        """Open the sending end of a channel; connects to the peer if necessary.

        Args:
            edge, up, down: name the channel.
            target_allocation: allocation id of the receiver's slot.
            buffer_timeout_ms: how long a record waits for others: 0 not at all, -1 for ever.
            attempt: attempt of the tasks at both ends, which are restarted together. Records sent in an older attempt
                never get into a later one.

        Raises:
            ConfigurationError: the exchange is not configured, the peer is unknown, or this attempt of the channel, or
                a later one, exists.
        """
        channel = ChannelId(edge, up, down)
        identity = self._need_identity()
        if target_allocation == identity.allocation_id:
            pipe = self._pipe(channel, attempt)
            if pipe.output_taken:
                raise ConfigurationError(f"{channel} has an output already")
            pipe.output_taken = True
            return pipe.output
        link = self._link(target_allocation)
        if channel in link.outputs and link.outputs[channel].attempt >= attempt:
            raise ConfigurationError(f"{channel} has an output already")
        output = RemoteOutputChannel(
            channel,
            link,
            self._loop,
            attempt=attempt,
            window=self._window,
            timed=self._in_flight_seconds > 0,
            max_chunk=self._max_chunk,
            buffer_timeout_ms=buffer_timeout_ms,
            wide=self._wide,
        )
        link.add_output(output)
        return output

    def input(self, edge: int, up: int, down: int, source_allocation: str, attempt: int = 0) -> InputChannel:
        """Open the receiving end of a channel; connects to the peer if necessary. Arguments are those of ``output``.

        Raises:
            ConfigurationError: as for ``output``.
        """
        channel = ChannelId(edge, up, down)
        identity = self._need_identity()
        if source_allocation == identity.allocation_id:
            pipe = self._pipe(channel, attempt)
            if pipe.input_taken:
                raise ConfigurationError(f"{channel} has an input already")
            pipe.input_taken = True
            return pipe.input
        link = self._link(source_allocation)
        if channel in link.inputs and link.inputs[channel].attempt >= attempt:
            raise ConfigurationError(f"{channel} has an input already")
        receiver = RemoteInputChannel(
            channel, link, link.peer, attempt=attempt, window=self._window, wide=self._wide, timed=self._timed(2)
        )
        link.add_input(receiver)
        return receiver

    def statistics(self) -> ExchangeStatistics:
        """A snapshot of the counters."""
        outputs = [channel for link in self._links.values() for channel in link.outputs.values()]
        inputs = [channel for link in self._links.values() for channel in link.inputs.values()]
        return ExchangeStatistics(
            connections=sum(link.connected for link in self._links.values()),
            connections_waiting=self._acceptor.waiting,
            connections_refused=self._counters.connections_refused,
            frames_dropped=self._counters.frames_dropped,
            bytes_sent=self._counters.bytes_sent,
            bytes_received=self._counters.bytes_received,
            queued_out=sum(c.queued_bytes for c in outputs) + sum(p.output.queued_bytes for p in self._pipes.values()),
            queued_in=sum(c.queued_bytes for c in inputs),
        )

    def close(self) -> None:
        """Close all connections and the listener, and remove its socket file. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._acceptor.close()
        for allocation in list(self._links):
            self._forget(allocation)
        self._pipes.clear()

    # -- inside

    def _need_identity(self) -> Identity:
        if self._identity is None or self._closed:
            raise ConfigurationError("the exchange is closed" if self._closed else "the exchange is not configured yet")
        return self._identity

    def _timed(self, ends: int) -> TimedLimit | None:
        return TimedLimit(self._clock, self._in_flight_seconds, ends) if self._in_flight_seconds else None

    def _pipe(self, channel: ChannelId, attempt: int) -> LocalPipe:
        pipe = self._pipes.get(channel)
        if pipe is None or pipe.attempt < attempt:
            pipe = self._pipes[channel] = LocalPipe(channel, self._loop, self._window, attempt, self._timed(1))
        elif pipe.attempt > attempt:
            raise ConfigurationError(f"attempt {attempt} of {channel} is over: attempt {pipe.attempt} runs")
        return pipe

    def _link(self, allocation: str) -> Link:
        identity = self._need_identity()
        link = self._links.get(allocation)
        if link is None:
            address = self._peers.get(allocation)
            if address is None:
                raise ConfigurationError(f"slot {allocation} is not among the peers of slot {identity.allocation_id}")
            link = self._new_link(allocation, address)
        if not link.connected:
            self._await_connection(link)
        return link

    def _new_link(self, allocation: str, address: Address) -> Link:
        link = self._links[allocation] = Link(
            allocation,
            f"slot {allocation} ({describe(address)})",
            self._loop,
            self._buffer,
            self._counters,
            on_lost=lambda _, error: self._fail(error, allocation),
            on_record_error=self._fail,
        )
        return link

    def _accepted(self, allocation: str, sock: socket.socket, rest: bytes) -> bool:
        """Attach the socket of a peer that has connected and authenticated; returns False if it has one already."""
        link = self._links.get(allocation)
        if link is None:
            self._new_link(allocation, self._peers[allocation])
        elif link.connected:
            return False
        self._connected(allocation, sock, rest)
        return True

    def _await_connection(self, link: Link) -> None:
        """Connect to a peer, or wait until it connects. Both sides give up after ``connect_timeout``.

        The slot with the smaller allocation id connects, so that two slots never make two connections.
        """
        identity = self._need_identity()
        allocation = link.allocation
        if identity.allocation_id < allocation:
            if allocation not in self._dialers:
                self._dialers[allocation] = Dialer(
                    self._loop,
                    self._peers[allocation],
                    link.peer,
                    identity,
                    allocation,
                    self._secret,
                    self._connect_timeout,
                    lambda sock, rest: self._connected(allocation, sock, rest),
                    lambda error: self._not_connected(allocation, error),
                )
        elif allocation not in self._expected:
            self._expected[allocation] = self._loop.call_later(
                self._connect_timeout,
                lambda: self._not_connected(
                    allocation, ProtocolError(link.peer, f"it did not connect within {self._connect_timeout:g} s{BUSY}")
                ),
            )

    def _connected(self, allocation: str, sock: socket.socket, rest: bytes) -> None:
        self._stop_waiting(allocation)
        tune(sock)
        self._links[allocation].attach(sock, rest)

    def _not_connected(self, allocation: str, error: ProtocolError) -> None:
        self._stop_waiting(allocation)
        self._fail(error, allocation)

    def _stop_waiting(self, allocation: str) -> None:
        dialer = self._dialers.pop(allocation, None)
        if dialer is not None:
            dialer.close()
        timer = self._expected.pop(allocation, None)
        if timer is not None:
            timer.cancel()

    def _forget(self, allocation: str) -> None:
        self._stop_waiting(allocation)
        self._links.pop(allocation).close()

    def _fail(self, error: Exception, allocation: str | None = None) -> None:
        """Report a failure to ``on_failure``; raise it to the loop if nobody has set that."""
        if self._closed:
            return
        logger.info("exchange: %s", error)
        if self.on_failure is None:
            raise error
        self.on_failure(error, allocation)
