"""What a port bears: many connections, slow ones, bodies of strangers, names."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from firesteel.core.clock import SystemClock
from firesteel.core.errors import ConfigurationError
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import RpcClient, RpcRequest, Signer, rpc_routes
from firesteel.service.base import Service
from tests.integration.services.signed import headers_of_call

SECRET = "a secret of these tests"
PATIENCE = 100.0


class Echo(Service):
    """Answers ``echo``."""

    def __init__(self) -> None:
        super().__init__("echo")

        async def echo(call: RpcRequest) -> Mapping[str, Any]:
            return call.payload

        self.app.add_routes(rpc_routes({"echo": echo}, SECRET))


@asynccontextmanager
async def echo(host: str = "127.0.0.1", advertised_host: str = "") -> AsyncIterator[Echo]:
    service = Echo()
    await service.start(host, 0, advertised_host)
    try:
        yield service
    finally:
        await service.stop()


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


async def connect(service: Echo) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port_of(service.address))


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What came until the other side closed."""
    async with asyncio.timeout(PATIENCE):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


def test_what_went_wrong_inside_is_told_to_the_log_and_to_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(_: web.Request) -> web.Response:
        raise ValueError("where the treasure lies")

    async def main() -> None:
        service = Echo()
        service.app.add_routes([web.get("/fails", fails)])
        await service.start("127.0.0.1", 0)
        try:
            async with service.session.get(f"{service.address}/fails") as answer:
                (said,) = (await answer.json())["errors"]
                assert answer.status == 500
        finally:
            await service.stop()
        assert "treasure" not in said
        assert "Traceback" not in said
        number = said.removesuffix(".").rpartition(" ")[2]
        (record,) = [r for r in caplog.records if number in r.getMessage()]
        assert record.exc_info is not None
        assert "treasure" in str(record.exc_info[1])

    asyncio.run(main())


def test_the_next_free_port_is_taken_where_that_is_wanted() -> None:
    async def main() -> None:
        async with echo() as first:
            used_port = port_of(first.address)
            address = await first.listen(first.new_app(), "127.0.0.1", used_port, next_free=True)
            assert used_port < port_of(address) < used_port + 100
            with pytest.raises(OSError, match=f"echo can't listen on 127.0.0.1:{used_port}: "):
                await first.listen(first.new_app(), "127.0.0.1", used_port)
            async with first.session.get(f"{address}/health") as answer:
                assert answer.status == 200
            second = port_of(address)
        with socket.socket() as nobody:
            assert nobody.connect_ex(("127.0.0.1", second)) != 0, "it ends with the service"

    asyncio.run(main())


ASK = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def ask(service: Echo, connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], *, signed: bool) -> None:
    """A request over a connection, which stays open."""
    reader, writer = connection
    request = ASK
    if signed:
        body = json.dumps({"v": 1, "id": "1", "payload": {}}).encode()
        headers = Signer(SECRET, SystemClock()).headers("POST", f"{service.address}/rpc/echo", body)
        head = f"POST /rpc/echo HTTP/1.1\r\nHost: 127.0.0.1:{port_of(service.address)}\r\n"
        head += f"Content-Length: {len(body)}\r\nAuthorization: {headers['Authorization']}\r\n\r\n"
        request = head.encode() + body
    writer.write(request)
    async with asyncio.timeout(PATIENCE):
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in answer.splitlines() if line.startswith(b"Content-Length:"))
        await reader.readexactly(length)
    assert answer.startswith(b"HTTP/1.1 421" if signed else b"HTTP/1.1 200"), "it does not name the process"


def test_strangers_have_a_share_that_keeps_nobody_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They hold as many connections as they like, silent ones and such on which they have asked something."""
    monkeypatch.setattr("firesteel.service.connections.MOST_STRANGERS", 4)

    async def main() -> None:
        async with echo() as service:
            client = RpcClient(service.session, SECRET, SystemClock())
            friend = await connect(service)
            await ask(service, friend, signed=True)
            connections = [await connect(service) for _ in range(4)]
            await ask(service, connections[0], signed=False)
            for _ in range(6):
                connections.append(await connect(service))
                assert await client.call(service.address, "echo", {"a": 1}) == {"a": 1}
            for reader, writer in connections[:6]:
                assert await ended(reader) == b"", "the oldest of them go"
                writer.close()
            await ask(service, connections[-1], signed=False)
            await ask(service, friend, signed=True)
            for _, writer in (*connections, friend):
                writer.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert caplog.text.count("echo refused 127.0.0.1: 4 connections of strangers are open already") == 1


def test_a_stranger_that_asks_nothing_is_closed_soon_and_one_of_the_cluster_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("firesteel.service.connections.STRANGER_SECONDS", 0.3)

    async def main() -> None:
        async with echo() as service:
            friend, silent, slow, polite = [await connect(service) for _ in range(4)]
            await ask(service, friend, signed=True)
            slow[1].write(b"GET /health HTTP/1.1\r\nHost: loc")
            await ask(service, polite, signed=False)
            for reader, writer in (silent, slow, polite):
                assert await ended(reader) == b""
                writer.close()
            await ask(service, friend, signed=True)
            friend[1].close()

    asyncio.run(main())


def test_a_stranger_is_not_closed_while_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.service.connections.STRANGER_SECONDS", 0.1)

    async def main() -> None:
        async with echo() as service:
            go_on = asyncio.Event()

            async def slow(_: web.Request) -> web.Response:
                await go_on.wait()
                return web.Response(text="done")

            app = service.new_app()
            app.add_routes([web.get("/slow", slow)])
            address = await service.listen(app, "127.0.0.1", 0)
            asking = asyncio.ensure_future(service.session.get(f"{address}/slow"))
            asyncio.get_running_loop().call_later(0.5, go_on.set)
            async with asyncio.timeout(PATIENCE), await asking as answer:
                assert await answer.text() == "done"

    asyncio.run(main())


def test_of_too_many_connections_the_one_that_was_idle_longest_goes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("firesteel.service.connections.MOST_CONNECTIONS", 3)

    async def main() -> None:
        async with echo() as service:
            connections = []
            for _ in range(4):
                connections.append(await connect(service))
                await ask(service, connections[-1], signed=True)
            assert await ended(connections[0][0]) == b""
            for connection in connections[1:]:
                await ask(service, connection, signed=True)
            for _, writer in connections:
                writer.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert caplog.text.count("echo refused 127.0.0.1: 3 connections are open already") == 1


def test_a_client_that_sends_no_whole_header_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.service.listener.HEADER_SECONDS", 0.3)

    async def main() -> None:
        async with echo() as service:
            for begun in (b"", b"GET /health HTTP/1.1\r\nHost: loc"):
                reader, writer = await connect(service)
                writer.write(begun)
                assert await ended(reader) == b""
                writer.close()

    asyncio.run(main())


def test_the_body_of_a_stranger_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer comes before the body."""

    async def main() -> None:
        async with echo() as service:
            reader, writer = await connect(service)
            writer.write(b"POST /rpc/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000000\r\n\r\n{")
            async with asyncio.timeout(PATIENCE):
                assert (await reader.readline()).startswith(b"HTTP/1.1 401")
            writer.close()

    asyncio.run(main())


def test_a_signed_body_that_does_not_come_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("firesteel.service.middlewares.STALL_SECONDS", 0.3)

    async def main() -> None:
        async with echo() as service:
            headers = Signer(SECRET, SystemClock()).headers("POST", f"{service.address}/rpc/echo", b"12345")
            reader, writer = await connect(service)
            head = f"POST /rpc/echo HTTP/1.1\r\nHost: 127.0.0.1:{port_of(service.address)}\r\nContent-Length: 5\r\n"
            writer.write(f"{head}Authorization: {headers['Authorization']}\r\n\r\n12".encode())
            for byte in (b"3", b"4"):  # it comes slowly, but it comes
                await asyncio.sleep(0.05)
                writer.write(byte)
            async with asyncio.timeout(PATIENCE):
                assert (await reader.readline()).startswith(b"HTTP/1.1 408")
            writer.close()

    asyncio.run(main())
    assert "'/rpc/echo': nothing more of the request's body came for 0.3 s" in caplog.text


def test_a_body_that_was_changed_on_its_way_is_refused() -> None:
    async def main() -> None:
        async with echo() as service:
            url = f"{service.address}/rpc/echo"
            headers = Signer(SECRET, SystemClock()).headers("POST", url, b'{"a": 1}')
            async with service.session.post(url, data=b'{"a": 2}', headers=headers) as answer:
                assert answer.status == 401
                assert "is not the one that was signed" in (await answer.json())["errors"][0]

    asyncio.run(main())


def test_a_repeated_request_is_refused() -> None:
    async def main() -> None:
        async with echo() as service:
            url, body = f"{service.address}/rpc/echo", json.dumps({"v": 1, "id": "1", "payload": {}}).encode()
            headers = await headers_of_call(service.session, SECRET, url, body)
            statuses = []
            for _ in range(2):
                async with service.session.post(url, data=body, headers=headers) as answer:
                    statuses.append(answer.status)
            assert statuses == [200, 401]

    asyncio.run(main())


def test_a_recorded_call_is_of_no_use_with_the_next_process_at_the_port() -> None:
    """Nonces are in memory, so a process that follows has not seen those of its predecessor."""

    async def main() -> None:
        calls: list[str] = []

        class Ended(Service):
            def __init__(self) -> None:
                super().__init__("ended")

                async def shut_down(call: RpcRequest) -> Mapping[str, Any]:
                    calls.append(call.id)
                    return {}

                self.app.add_routes(rpc_routes({"shut_down": shut_down}, SECRET))

        first = Ended()
        await first.start("127.0.0.1", 0)
        url, body = f"{first.address}/rpc/shut_down", json.dumps({"v": 1, "id": "recorded", "payload": {}}).encode()
        async with aiohttp.ClientSession() as session:
            client = RpcClient(session, SECRET, SystemClock())
            await client.call(first.address, "shut_down", {})
            headers = await headers_of_call(session, SECRET, url, body)
            async with session.post(url, data=body, headers=headers) as answer:
                assert answer.status == 200
            await first.stop()
            second = Ended()
            await second.start("127.0.0.1", port_of(first.address))
            try:
                del calls[:]
                for recorded in (headers, Signer(SECRET, SystemClock()).headers("POST", url, body)):
                    async with session.post(url, data=body, headers=recorded) as answer:
                        assert answer.status == 421
                assert calls == []
                await client.call(second.address, "shut_down", {})  # a caller of the former process learns the new one
                assert len(calls) == 1
            finally:
                await second.stop()

    asyncio.run(main())


def test_an_answer_of_somebody_else_is_not_believed() -> None:
    """Whoever took the port of a service can't speak for it."""

    async def main() -> None:
        async def lie(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            answer = b'{"payload": {"trust": "me"}}'
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(lie, "127.0.0.1", 0)
        async with server, echo() as service:
            client = RpcClient(service.session, SECRET, SystemClock())
            with pytest.raises(RpcFault, match="not signed with the cluster secret") as caught:
                await client.call(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "echo", {})
            assert caught.value.code is RpcCode.UNAUTHORIZED

    asyncio.run(main())


def test_all_interfaces_need_a_name() -> None:
    async def main() -> None:
        for advertised in ("", "0.0.0.0"):
            with pytest.raises(ConfigurationError, match="binds to all interfaces"):
                await Echo().start("0.0.0.0", 0, advertised)
        async with echo("0.0.0.0", "Node-1") as service:
            port = port_of(service.address)
            assert service.address == f"http://Node-1:{port}"
            for host, status in [("node-1", 200), ("10.1.2.3:99", 200), ("localhost", 200), ("evil.example", 403)]:
                async with service.session.get(f"http://127.0.0.1:{port}/health", headers={"Host": host}) as answer:
                    assert (host, answer.status) == (host, status)

    asyncio.run(main())
