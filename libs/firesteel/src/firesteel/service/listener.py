"""A bound port, with limits on connections, sizes of headers and slow clients; refused peers are logged."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import Any

from aiohttp import web

from firesteel.config.addresses import base_url, is_wildcard
from firesteel.core.port_holders import port_holder
from firesteel.core.refusals import RefusalLog
from firesteel.service.connections import Connections, TrackedConnection

HEADER_SECONDS = 60.0
"""Seconds without a whole request header after which a connection is closed, also an idle one; our own callers keep
idle connections for 30 s. Strangers have less time: see ``connections``."""
HEADER_LINE = 8190
HEADER_LINES = 64
"""Largest header line in bytes, and largest number of lines."""
LINGER_SECONDS = 2.0
"""Seconds for which the unread rest of a body is read and thrown away, so that the caller gets the answer."""
PORTS_TRIED = 100


class Listener:
    """Serves one application on one port.

    Args:
        app: the application.
        name: of the service, for logs.
        refusals: where refused peers are logged.
    """

    def __init__(self, app: web.Application, name: str, refusals: RefusalLog) -> None:
        self._name, self._connections = name, Connections(refusals)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=1.0,
            keepalive_timeout=HEADER_SECONDS,
            max_line_size=HEADER_LINE,
            max_field_size=HEADER_LINE,
            max_headers=HEADER_LINES,
            lingering_time=LINGER_SECONDS,
            logger=_HttpLogger(refusals),
        )
        self._server: asyncio.Server | None = None
        self._host, self.port = "", 0

    def address(self, advertised_host: str = "") -> str:
        """Base URL, with the name under which others find it."""
        return base_url(advertised_host or self._host, self.port)

    async def start(self, host: str, port: int, *, next_free: bool = False) -> None:
        """Bind and serve.

        Args:
            host: address to bind to.
            port: 0 = any free port.
            next_free: if the port is taken, try the ports behind it.

        Raises:
            OSError: the port is taken, or the address is not one of this machine; the message names both.
        """
        await self._runner.setup()
        # One socket on one address: a name such as localhost may stand for several, with different free ports.
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        tries = PORTS_TRIED if next_free and port else 1
        for attempt in range(tries):
            listening_socket = socket.socket(family, kind, protocol)
            try:
                listening_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening_socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not is_wildcard(host)))
                listening_socket.bind((address[0], port + attempt, *address[2:]))
                self._server = await loop.create_server(self._connect, sock=listening_socket, backlog=256)
            except OSError as error:
                listening_socket.close()
                if attempt + 1 == tries or port + attempt >= 65535:
                    last = f" to {port + attempt}" if attempt else ""
                    reason = error.strerror or str(error)
                    if error.errno == errno.EADDRINUSE and (holder := port_holder(port)):
                        reason = f"{reason}: {holder} listens there"
                    raise OSError(
                        error.errno, f"{self._name} can't listen on {base_url(host, port)[7:]}{last}: {reason}"
                    ) from error
            else:
                self._host, self.port = host, listening_socket.getsockname()[1]
                return

    async def stop(self) -> None:
        """Accept no more connections, and end those that are open."""
        self._connections.is_closed = True
        if self._server is not None:
            for listening_socket in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listening_socket.fileno())
            for _ in range(2):  # asyncio would leave a socket open that it has accepted and not begun to serve
                await asyncio.sleep(0)
            self._server.close()
        await self._runner.cleanup()

    def _connect(self) -> asyncio.BaseProtocol:
        server: Any = self._runner.server
        if server is None:
            return _Closed()
        return TrackedConnection(self._connections, server, asyncio.get_running_loop())


class _Closed(asyncio.Protocol):
    """Closes a connection at once, since the service stops."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class _HttpLogger(logging.Logger):
    """Takes aiohttp's log records of connections: bytes that are no HTTP become refusals, others are logged."""

    def __init__(self, refusals: RefusalLog) -> None:
        super().__init__("firesteel.http", logging.DEBUG)
        self._refusals = refusals
        self.parent = logging.getLogger("firesteel.http")

    def handle(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, web.HTTPException) or type(error).__module__.startswith("aiohttp.http"):
            peer = str(record.args[0]) if isinstance(record.args, tuple) and record.args else "?"
            first_line = (str(error).splitlines() or [""])[0]
            self._refusals.refused(peer, f"no HTTP request: {type(error).__name__} {first_line[:200]}", "http")
        elif record.levelno > logging.DEBUG:
            super().handle(record)
