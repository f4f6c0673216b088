"""The connections of a listener: few and short ones for strangers, so that the cluster's own always have room."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from aiohttp import web

from firesteel.core.refusals import RefusalLog

MOST_CONNECTIONS = 1000
"""Of one listener at a time; beyond it the one that has been idle longest goes, or, if all are at work, the new one."""
MOST_STRANGERS = 100
"""Of those that have shown no secret and no token; beyond it one of them goes."""
STRANGER_SECONDS = 15.0
"""A stranger that sent no whole request header for so long is closed, also between two requests."""


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
        """It begins, if there is room."""
        if self._connections.is_closed:  # it was taken before the listener stopped, and begins behind that
            transport.close()
            return
        super().connection_made(transport)
        self.peer = str((transport.get_extra_info("peername") or ("?",))[0])
        self._watch(STRANGER_SECONDS)
        self._connections.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self not in self._connections.known:  # it never began
            return
        self._connections.known.discard(self)
        self._connections.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def authenticated(self) -> None:
        """Whoever is at the other end is none of the strangers."""
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
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        left = STRANGER_SECONDS if self.is_busy else self.idle_since + STRANGER_SECONDS - self._loop.time()
        if left > 0:
            self._watch(left)
        else:
            self.force_close()


class Connections:
    """All of one listener.

    Args:
        refusals: where connections that had to go are logged.
    """

    def __init__(self, refusals: RefusalLog) -> None:
        self._refusals = refusals
        self.all: dict[TrackedConnection, None] = {}
        self.strangers: dict[TrackedConnection, None] = {}
        """In the order in which they came."""
        self.known: set[TrackedConnection] = set()
        """Those that have begun and not ended, also if they had to go."""
        self.is_closed = False
        """The listener has stopped: no connection begins any more."""

    def add(self, new: TrackedConnection) -> None:
        """One more; perhaps another one has to go for it, or it goes itself."""
        self.known.add(new)
        self.all[new] = self.strangers[new] = None
        if len(self.strangers) > MOST_STRANGERS:
            self._close(self._stranger_to_go(), f"{MOST_STRANGERS} connections of strangers are open already")
        elif len(self.all) > MOST_CONNECTIONS:
            idle = [one for one in self.all if not one.is_busy and one is not new]
            gone = min(idle, key=lambda one: one.idle_since, default=new)
            self._close(gone, f"{MOST_CONNECTIONS} connections are open already")

    def _stranger_to_go(self) -> TrackedConnection:
        """Of the host that has most of them, the idle before the busy, then the oldest: never the new one alone."""
        hosts = Counter(one.peer for one in self.strangers)
        most = max(hosts.values())
        candidates = [one for one in self.strangers if hosts[one.peer] == most]
        return next((one for one in candidates if not one.is_busy), candidates[0])

    def _close(self, one: TrackedConnection, reason: str) -> None:
        self.remove(one)
        self._refusals.refused(one.peer, reason)
        one.force_close()

    def remove(self, one: TrackedConnection) -> None:
        self.all.pop(one, None)
        self.strangers.pop(one, None)


def authenticated(request: web.BaseRequest) -> None:
    """A request was signed with the cluster's secret, or had a token."""
    connection = request.protocol
    if isinstance(connection, TrackedConnection):
        connection.authenticated()
