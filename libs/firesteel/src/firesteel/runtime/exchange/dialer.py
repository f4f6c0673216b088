"""Makes the connection to one peer: tries until the peer listens, then authenticates."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from firesteel.core.errors import ConfigurationError, ProtocolError
from firesteel.runtime.exchange.handshake import ConnectingHandshake, Identity, RefusedError
from firesteel.runtime.exchange.sockets import Address, is_numeric, reach, resolve, start_connect
from firesteel.runtime.loop.loop import Handle, TaskLoop

BUSY: Final = "; does code of the job keep its thread? Classes with blocking = True have one of their own"
_FIRST_PAUSE: Final = 0.005
"""Seconds before the second attempt; each further pause is twice as long, up to ``_LONGEST_PAUSE``."""
_LONGEST_PAUSE: Final = 0.2
_UNDER_WAY: Final = frozenset({errno.EINPROGRESS, errno.EALREADY, errno.EINTR})


class Dialer:
    """Tries to connect to a peer from its construction on, until it succeeds, fails for good, or is closed.

    Args:
        loop: task loop of this process.
        address: where the peer listens; a Unix socket is used if it is on this node, else TCP.
        peer: name of the peer in errors.
        me: identity of this slot.
        target: allocation id of the peer.
        secret: secret of the job.
        timeout: seconds for all attempts together, including the handshake.
        on_connected: gets the authenticated socket (unregistered) and the bytes that came behind the handshake.
        on_failed: gets the reason; called at most once, and not after ``close``.
    """

    def __init__(
        self,
        loop: TaskLoop,
        address: Address,
        peer: str,
        me: Identity,
        target: str,
        secret: bytes,
        timeout: float,
        on_connected: Callable[[socket.socket, bytes], None],
        on_failed: Callable[[ProtocolError], None],
    ) -> None:
        self._loop, self._address, self._peer = loop, address, peer
        self._me, self._target, self._secret = me, target, secret
        self._on_connected, self._on_failed = on_connected, on_failed
        self._timeout = timeout
        self._sock: socket.socket | None = None
        self._handshake: ConnectingHandshake | None = None
        self._pause = _FIRST_PAUSE
        self._retry: Handle | None = None
        self._last_failure = "nothing was tried"
        self._resolved_addresses: deque[Address] = deque()
        """The numeric addresses of the peer, once its name is resolved; the first is tried next."""
        self._closed = False
        self._deadline = loop.call_later(timeout, self._expired)
        loop.call_soon(self._try)

    def close(self) -> None:
        """Stop trying to connect. May be called again."""
        self._closed = True
        self._deadline.cancel()
        if self._retry is not None:
            self._retry.cancel()
        self._drop()

    def _try(self) -> None:
        self._retry = None
        if self._closed:
            return
        try:
            address = self._resolved_addresses[0] if self._resolved_addresses else reach(self._address)
        except ConfigurationError as error:
            self.close()
            self._on_failed(ProtocolError(self._peer, str(error)))
            return
        if "tcp" in address and not is_numeric(address["tcp"][0]):
            name = f"firesteel-resolve-{address['tcp'][0]}"
            threading.Thread(target=self._resolve, args=tuple(address["tcp"]), name=name, daemon=True).start()
        else:
            self._connect(address)

    def _resolve(self, host: str, port: int) -> None:
        """Resolve the name of the peer, on a thread of its own, as a name server may take seconds."""
        addresses, reason = [], ""
        try:
            addresses = resolve(host, port)
        except OSError as error:
            reason = f"the name {host!r} is not known: {error}"
        if not self._closed:
            self._loop.call_soon_threadsafe(lambda: self._on_resolved(addresses, reason))

    def _on_resolved(self, addresses: list[Address], reason: str) -> None:
        if self._closed:
            return
        self._resolved_addresses.extend(addresses)
        if addresses:
            self._connect(addresses[0])
        else:
            self._try_again(reason)

    def _connect(self, address: Address) -> None:
        try:
            self._sock, code = start_connect(address)
        except OSError as error:
            self._try_again(str(error))
            return
        if code == 0:
            self._loop.register(self._sock, self._on_readable, None)
            self._say_hello()
        elif code in _UNDER_WAY:
            self._loop.register(self._sock, None, self._on_writable)
        else:
            self._try_again(os.strerror(code))

    def _on_writable(self) -> None:
        assert self._sock is not None
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._try_again(os.strerror(code))
            return
        self._loop.modify(self._sock, self._on_readable, None)
        self._say_hello()

    def _say_hello(self) -> None:
        self._handshake = ConnectingHandshake(self._peer, self._me, self._target, self._secret)
        self._send(self._handshake.start())

    def _send(self, data: bytes) -> None:
        assert self._sock is not None
        try:
            if data and self._sock.send(data) != len(data):
                self._try_again("the handshake did not fit into the socket's buffer")
        except OSError as error:
            self._try_again(str(error))

    def _on_readable(self) -> None:
        sock, handshake = self._sock, self._handshake
        assert sock is not None
        assert handshake is not None
        try:
            data = sock.recv(16 * 1024)
        except BlockingIOError:
            return
        except OSError as error:
            self._try_again(str(error))
            return
        if not data:
            self._try_again("it closed the connection during the handshake")
            return
        try:
            reply = handshake.feed(data)
        except RefusedError as error:
            if error.reply:
                self._send(error.reply)
            self.close()
            self._on_failed(error)
            return
        self._send(reply)
        if handshake.done and self._sock is sock:
            self._sock = None
            self._loop.unregister(sock)
            self.close()
            self._on_connected(sock, handshake.leftover)

    def _try_again(self, reason: str) -> None:
        self._last_failure = reason
        self._resolved_addresses.rotate(-1)  # the name may have several addresses, of which only some are reachable
        self._drop()
        if not self._closed:
            self._retry = self._loop.call_later(self._pause, self._try)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _expired(self) -> None:
        in_handshake = self._handshake is not None and self._sock is not None
        reason = f"it has not answered the handshake{BUSY}" if in_handshake else self._last_failure
        self.close()
        self._on_failed(ProtocolError(self._peer, f"could not connect within {self._timeout:g} s: {reason}"))

    def _drop(self) -> None:
        sock, self._sock = self._sock, None
        self._handshake = None
        if sock is not None:
            self._loop.unregister(sock)
            sock.close()
