"""Accepts connections of peers and authenticates them; those that come before this slot knows its job wait here."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

from firesteel.core.forks import closed_in_children
from firesteel.core.refusals import RefusalLog
from firesteel.runtime.exchange.counters import Counters
from firesteel.runtime.exchange.handshake import AcceptingHandshake, Identity, RefusedError
from firesteel.runtime.exchange.sockets import describe, listen_on
from firesteel.runtime.loop.loop import Handle, TaskLoop

logger = logging.getLogger(__name__)
MAX_WAITING: Final = 1024
"""Most connections that are accepted but not authenticated yet; further ones are closed immediately."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE_SECONDS: Final = 1.0
"""Seconds without accepting after the process has run out of file descriptors or memory."""
_MAX_FORMER: Final = 1000
"""Most former peers that are remembered in order to refuse them; the oldest are forgotten first."""


class _Incoming:
    """A connection that was accepted and has not authenticated yet."""

    def __init__(self, sock: socket.socket, peer: str, host: str) -> None:
        self.sock, self.host = sock, host
        self.handshake = AcceptingHandshake(peer)
        self.timer: Handle | None = None
        self.answered = False


class Acceptor:
    """Listens for peers from its construction on, and authenticates them once ``configure`` was called.

    Args:
        loop: task loop of this process.
        listen: as for `firesteel.runtime.exchange.sockets.listen_on`.
        counters: running totals of the exchange.
        handshake_timeout: seconds until a connection has to say who it is.
        park_timeout: seconds for each step after that: until this slot can answer, and until the peer sends its proof.
        on_accepted: gets allocation id, authenticated socket (unregistered) and the bytes that came behind the
            handshake; returns whether it takes the socket.

    Raises:
        ConfigurationError: ``listen`` is malformed, or can't be listened on.
    """

    def __init__(
        self,
        loop: TaskLoop,
        listen: Sequence[str],
        counters: Counters,
        *,
        handshake_timeout: float,
        park_timeout: float,
        on_accepted: Callable[[str, socket.socket, bytes], bool],
    ) -> None:
        self._loop, self._counters = loop, counters
        self._handshake_timeout, self._park_timeout = handshake_timeout, park_timeout
        self._on_accepted = on_accepted
        self._listeners, self.address = listen_on(listen)
        self._identity: Identity | None = None
        self._secret = b""
        self._allowed: Collection[str] = ()
        self._former: dict[str, None] = {}
        self._incoming: set[_Incoming] = set()
        self._refusals = RefusalLog(logger, f"exchange at {describe(self.address)}")
        self._pause: Handle | None = None
        self._listen()

    @property
    def waiting(self) -> int:
        """Number of connections that are not authenticated yet."""
        return len(self._incoming)

    def configure(self, me: Identity, secret: bytes, allowed: Collection[str]) -> None:
        """Answer peers from now on, including those that wait; ``allowed`` are the allocation ids that may connect.

        Others wait until they are allowed: a slot that replaces another one may hear of us before we hear of it. Peers
        that were allowed before and are no longer have been replaced, and are refused.
        """
        self._former.update(dict.fromkeys(self._allowed))
        for allocation in allowed:
            self._former.pop(allocation, None)
        while len(self._former) > _MAX_FORMER:
            del self._former[next(iter(self._former))]
        self._identity, self._secret, self._allowed = me, secret, allowed
        for incoming in list(self._incoming):
            if incoming.handshake.hello is not None and not incoming.answered:
                self._answer(incoming)

    def close(self) -> None:
        """Stop listening, drop connections that wait, and remove the socket file."""
        if self._pause is not None:
            self._pause.cancel()
        self._stop_listening()
        for listener in self._listeners:
            listener.close()
        path = self.address.get("unix")
        if path is not None:
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
        for incoming in list(self._incoming):
            self._drop(incoming)

    def _listen(self) -> None:
        self._pause = None
        for listener in self._listeners:
            self._loop.register(listener, partial(self._on_connection, listener), None)

    def _on_connection(self, listener: socket.socket) -> None:
        for _ in range(64):
            try:
                sock, address = listener.accept()
                closed_in_children(sock)
            except BlockingIOError:
                return
            except OSError as error:
                logger.warning("exchange: a connection could not be accepted: %s", error)
                if error.errno in _EXHAUSTED:  # the listener stays ready: without a pause the loop would spin
                    self._stop_listening()
                    self._pause = self._loop.call_later(_PAUSE_SECONDS, self._listen)
                return
            sock.setblocking(False)
            if len(self._incoming) >= MAX_WAITING:
                self._counters.connections_refused += 1
                sock.close()
                continue
            if isinstance(address, tuple):
                peer, host = f"connection from {address[0]}:{address[1]}", str(address[0])
            else:
                peer, host = f"connection to unix:{self.address['unix']}", "a process of this host"
            incoming = _Incoming(sock, peer, host)
            self._incoming.add(incoming)
            self._limit(incoming, self._handshake_timeout)
            self._loop.register(sock, self._reader(incoming), None)

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            self._loop.unregister(listener)

    def _reader(self, incoming: _Incoming) -> Callable[[], None]:
        return lambda: self._on_readable(incoming)

    def _limit(self, incoming: _Incoming, seconds: float) -> None:
        if incoming.timer is not None:
            incoming.timer.cancel()
        incoming.timer = self._loop.call_later(
            seconds,
            # The peer is not told, so it tries again: user code may have kept its thread, or ours, for that long.
            lambda: self._refuse(
                incoming,
                RefusedError(incoming.handshake.peer, f"the handshake took longer than {seconds:g} s", tell=False),
            ),
        )

    def _on_readable(self, incoming: _Incoming) -> None:
        if incoming not in self._incoming:
            return
        try:
            data = incoming.sock.recv(16 * 1024)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(incoming)  # it gave up, or is gone
            return
        handshake = incoming.handshake
        try:
            reply = handshake.feed(data)
        except RefusedError as error:
            self._refuse(incoming, error)
            return
        if reply and not self._send(incoming, reply):
            return
        if handshake.done:
            self._accept(incoming)
        elif handshake.hello is not None and not incoming.answered:
            self._answer(incoming)

    def _answer(self, incoming: _Incoming) -> None:
        """Answer a HELLO, or let it wait until this slot knows whether the peer may connect."""
        handshake = incoming.handshake
        hello, me = handshake.hello, self._identity
        if hello is None:
            return
        if me is None or (hello["job"] == me.job_id and not self._is_known(hello, me)):
            self._limit(incoming, self._park_timeout)
            return
        try:
            reply = handshake.answer(me, self._secret, self._allowed)
        except RefusedError as error:
            self._refuse(incoming, error)
            return
        incoming.answered = True
        # The long timeout again: a peer that sends its proof late would not notice that we had closed the connection.
        self._limit(incoming, self._park_timeout)
        self._send(incoming, reply)

    def _is_known(self, hello: dict[str, Any], me: Identity) -> bool:
        """Whether this slot can decide already if a peer of its job may connect."""
        if hello["attempt"] > me.job_attempt:
            return False
        if hello["attempt"] < me.job_attempt or hello["to"] != me.allocation_id:
            return True
        return hello["from"] in self._allowed or hello["from"] in self._former or hello["from"] >= me.allocation_id

    def _accept(self, incoming: _Incoming) -> None:
        handshake = incoming.handshake
        hello = handshake.hello
        assert hello is not None
        if hello["attempt"] != (self._identity.job_attempt if self._identity else -1):
            self._refuse(incoming, RefusedError(handshake.peer, "the job was restarted meanwhile", stale=True))
            return
        self._release(incoming)
        if not self._on_accepted(hello["from"], incoming.sock, handshake.leftover):
            self._counters.connections_refused += 1
            logger.warning("exchange: %s connected a second time; the older connection stays", handshake.peer)
            incoming.sock.close()

    def _send(self, incoming: _Incoming, data: bytes) -> bool:
        """Send a message of the handshake. It fits into the buffer of a new socket; otherwise the peer is dropped."""
        try:
            if incoming.sock.send(data) == len(data):
                return True
        except OSError:
            pass
        self._drop(incoming)
        return False

    def _refuse(self, incoming: _Incoming, error: RefusedError) -> None:
        self._counters.connections_refused += 1
        self._refusals.refused(incoming.host, error.reason, error.reason[:40])
        if error.reply:
            try:
                incoming.sock.send(error.reply)
            except OSError:
                pass
        self._drop(incoming)

    def _release(self, incoming: _Incoming) -> None:
        self._incoming.discard(incoming)
        if incoming.timer is not None:
            incoming.timer.cancel()
        self._loop.unregister(incoming.sock)

    def _drop(self, incoming: _Incoming) -> None:
        self._release(incoming)
        incoming.sock.close()
