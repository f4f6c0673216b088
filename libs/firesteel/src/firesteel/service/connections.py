"""The connections of a listener. Strangers get few and short ones, so that the cluster's own always have room."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from aiohttp import web

from firesteel.core.refusals import RefusalLog

MOST_CONNECTIONS = 1000
"""Open connections of one listener; beyond it the one that was idle for longest is closed, or, if all are busy, the new
one."""
MOST_STRANGERS = 100
"""Open connections that have shown neither the secret nor a token; beyond it one of them is closed."""
STRANGER_SECONDS = 15.0
"""A stranger that sends no whole request header for so many seconds is closed, also between two requests."""


class TrackedConnection(web.RequestHandler):
    """A connection to a service.

    It is a stranger's until a request on it was signed with the cluster's secret, or had a token.
    """

    __slots__ = ("_connections", "_timer", "idle_since", "is_stranger", "peer")

    def __init__(self, connections: Connections, server: Any, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(server, loop=loop, **server._kwargs)
        self._connections = connections
        self._timer: asyncio.TimerHandle | None = None
        self.is_stranger, self.idle_since, self.peer = True, loop.time(), "?"

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return self._request_in_progress

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve the connection, if there is room."""
        if self._connections.is_closed:  # accepted before the listener stopped, and served only after that
            transport.close()
            return
        super().connection_made(transport)
        self.peer = str((transport.get_extra_info("peername") or ("?",))[0])
        self._watch(STRANGER_SECONDS)
        self._connections.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self not in self._connections.open:  # it was never served
            return
        self._connections.open.discard(self)
        self._connections.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def authenticated(self) -> None:
        """The peer has shown the secret or a token, so it is no stranger any more."""
        if self.is_stranger:
            self.is_stranger = False
            self._connections.strangers.pop(self, None)
            if self._timer is not None:
                self._timer.cancel()

    async def _handle_request(self, *arguments: Any) -> Any:
        try:
            return await super()._handle_request(*arguments)
        finally:
            self.idle_since = self._loop.time()

    def _watch(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._close_if_silent)

    def _close_if_silent(self) -> None:
        seconds = STRANGER_SECONDS if self.is_busy else self.idle_since + STRANGER_SECONDS - self._loop.time()
        if seconds > 0:
            self._watch(seconds)
        else:
            self.force_close()


class Connections:
    """All connections of one listener.

    Args:
        refusals: logs the connections that were closed for lack of room.

    Attributes:
        all: connections that count, in the order in which they came.
        strangers: those of strangers, in the same order.
        open: all connections that are open, also those that were told to close.
        is_closed: the listener has stopped: no connection is served any more.
    """

    def __init__(self, refusals: RefusalLog) -> None:
        self._refusals = refusals
        self.all: dict[TrackedConnection, None] = {}
        self.strangers: dict[TrackedConnection, None] = {}
        self.open: set[TrackedConnection] = set()
        self.is_closed = False

    def add(self, connection: TrackedConnection) -> None:
        """Count a new connection; if there is no room, another one is closed for it, or the new one itself."""
        self.open.add(connection)
        self.all[connection] = self.strangers[connection] = None
        if len(self.strangers) > MOST_STRANGERS:
            self._close(self._stranger_to_go(), f"{MOST_STRANGERS} connections of strangers are open already")
        elif len(self.all) > MOST_CONNECTIONS:
            idle = [other for other in self.all if not other.is_busy and other is not connection]
            victim = min(idle, key=lambda other: other.idle_since, default=connection)
            self._close(victim, f"{MOST_CONNECTIONS} connections are open already")

    def _stranger_to_go(self) -> TrackedConnection:
        """The stranger to close: of the host with most strangers, the oldest idle one, or else the oldest.

        So a host that opens many connections can't push out those of others.
        """
        hosts = Counter(stranger.peer for stranger in self.strangers)
        most = max(hosts.values())
        candidates = [stranger for stranger in self.strangers if hosts[stranger.peer] == most]
        return next((stranger for stranger in candidates if not stranger.is_busy), candidates[0])

    def _close(self, connection: TrackedConnection, reason: str) -> None:
        self.remove(connection)
        self._refusals.refused(connection.peer, reason)
        connection.force_close()

    def remove(self, connection: TrackedConnection) -> None:
        self.all.pop(connection, None)
        self.strangers.pop(connection, None)


def authenticated(request: web.BaseRequest) -> None:
    """A request was signed with the cluster's secret, or had a token."""
    connection = request.protocol
    if isinstance(connection, TrackedConnection):
        connection.authenticated()
