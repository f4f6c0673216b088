"""Whoever asks a Dispatcher that stands by gets the answers of the one that leads."""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from firesteel.ha.retrieval import DISPATCHER, Leader, LeaderRetrieval, Listener
from firesteel_dispatcher import standby
from firesteel_dispatcher.standby import RestRelay
from tests.ports import free_ports

OWN, OTHER = "127.0.0.2", "127.0.0.3"


class Told(LeaderRetrieval):
    """Says what it was told."""

    def __init__(self, address: str) -> None:
        self._address = address

    def leader(self, component: str) -> Leader | None:
        assert component == DISPATCHER
        return Leader(1, self._address) if self._address else None

    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        return lambda: None

    def close(self) -> None:
        pass


async def _answer(request: web.Request) -> web.Response:
    return web.json_response({"host": request.headers["Host"], "sent": len(await request.read())})


@asynccontextmanager
async def leading(port: int) -> AsyncIterator[None]:
    """A REST API at the leader's address."""
    app = web.Application(client_max_size=10 << 20)
    app.add_routes([web.post("/overview", _answer)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, OTHER, port).start()
    try:
        yield
    finally:
        await runner.cleanup()


@asynccontextmanager
async def relaying(host: str) -> AsyncIterator[tuple[int, str]]:
    """A relay that knows a leader on a host; its port, and a URL of it."""
    (port,) = free_ports(1)
    relay = RestRelay(Told(f"http://{host}:6123" if host else ""), OWN, port, OWN)
    await relay.start()
    try:
        yield port, f"http://{OWN}:{port}/overview"
    finally:
        await relay.stop()
        await relay.stop()


async def _refused(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.post(url) as answer:
        assert answer.status == 503
        (why,) = (await answer.json())["errors"]
        return str(why)


def test_requests_and_bodies_go_through() -> None:
    async def run() -> None:
        async with relaying(OTHER) as (port, url), leading(port), aiohttp.ClientSession() as session:
            for size in (0, 3 << 20, 1):
                async with session.post(url, data=io.BytesIO(b"x" * size)) as answer:
                    assert await answer.json() == {"host": f"{OWN}:{port}", "sent": size}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("leader", "said"), [("", "nobody is known to lead"), (OWN, "nobody is known to lead"), (OTHER, "does not answer")]
)
def test_without_a_leader_it_says_so(leader: str, said: str) -> None:
    async def run() -> None:
        async with relaying(leader) as (_, url):
            assert said in await _refused(url)

    asyncio.run(run())


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "CONNECTIONS", 1)

    async def run() -> None:
        async with relaying(OTHER) as (port, url), leading(port):
            reader, writer = await asyncio.open_connection(OWN, port)
            writer.write(b"POST /overview HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            assert "come again" in await _refused(url)
            writer.close()
            await writer.wait_closed()

    asyncio.run(run())


def test_a_port_that_another_process_has_is_left_alone() -> None:
    async def run() -> None:
        with socket.create_server((OWN, 0)) as other:
            relay = RestRelay(Told(""), OWN, other.getsockname()[1], OWN)
            await relay.start()
            await relay.stop()

    asyncio.run(run())
