"""The REST port of a Dispatcher that stands by: connections are handed on to the Dispatcher that leads.

So it makes no difference which of several pods or hosts a client asks, and one name may stand for all of them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from urllib.parse import urlsplit

from firesteel.ha.retrieval import DISPATCHER, LeaderRetrieval
from firesteel.service.leaders import PeerLeader

logger = logging.getLogger(__name__)
CONNECT_SECONDS = 5.0
CONNECTIONS = 200
"""Connections that are handed on at the same time; further ones are told to come again."""
_CHUNK = 64 * 1024


class RestRelay:
    """Hands connections on, byte by byte. It does not read them; the leader checks tokens as always.

    Args:
        leaders: tell who leads.
        host: address to listen on.
        port: port to listen on, which is also that of the leader's REST API.
        own_host: host name under which this process announces itself when it leads. A leader with this name is gone: it
            was this process's predecessor.
    """

    def __init__(self, leaders: LeaderRetrieval, host: str, port: int, own_host: str) -> None:
        self._leader = PeerLeader(leaders, DISPATCHER)
        self._host, self._port, self._own_host = host, port, own_host
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen, unless another process of this host has the port."""
        try:
            self._server = await asyncio.start_server(self._accept, self._host, self._port)
        except OSError as error:
            logger.info("the REST API of the leader is not to be had here: %s", error.strerror or error)
            return
        self._leader.start()
        logger.info("until this Dispatcher leads, port %d hands on to the one that does", self._port)

    async def stop(self) -> None:
        """Stop listening, and end all connections. Idempotent."""
        if self._server is None:
            return
        self._leader.stop()
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._hand_on(reader, writer)
        except (OSError, TimeoutError) as error:
            logger.debug("a connection that was handed on broke: %s", error)
        except asyncio.CancelledError:
            pass  # this task ends here anyway, and asyncio would report the exception
        finally:
            self._serving.discard(task)
            writer.close()

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host = urlsplit(self._leader.address).hostname
        if len(self._serving) > CONNECTIONS:
            return await _refuse(writer, f"{CONNECTIONS} connections are handed on already: come again")
        if host is None or host == self._own_host:
            return await _refuse(writer, "This Dispatcher stands by, and nobody is known to lead: come again.")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                from_leader, to_leader = await asyncio.open_connection(host, self._port)
        except (OSError, TimeoutError):
            return await _refuse(writer, f"This Dispatcher stands by, and that at {host} does not answer: come again.")
        try:
            await asyncio.gather(_pump(reader, to_leader), _pump(from_leader, writer))
        finally:
            to_leader.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()


async def _refuse(writer: asyncio.StreamWriter, reason: str) -> None:
    body = json.dumps({"errors": [reason]}).encode()
    head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Retry-After: 1\r\nConnection: close\r\n\r\n".encode() + body)
    await writer.drain()
