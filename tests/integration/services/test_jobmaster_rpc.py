"""Calls and the life cycle of services over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp import web

from firesteel.core.clock import SystemClock
from firesteel.core.errors import FencedError, NoResourceAvailableError, PeerUnreachableError, ProtocolError
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import Handler, RpcClient, RpcRequest, Signer, check_reachable, check_token, rpc_routes
from firesteel.service.base import Service
from tests.integration.services.cluster_peers import nothing_answers
from tests.integration.services.signed import headers_of_call

SECRET = "test secret"


class Echo(Service):
    """Answers calls as the tests need it."""

    def __init__(self) -> None:
        super().__init__("echo", drain_seconds=0.2)
        self.calls = 0
        self.gate = asyncio.Event()
        self.pause = 0.0
        fenced = {"echo": self.echo, "fail": self.fail, "big": self.big}
        handlers = {name: _for_t1(handler) for name, handler in fenced.items()} | {"slow": self.slow}
        self.app.add_routes(rpc_routes(handlers, SECRET))
        self.app.add_routes([web.get("/break", self.broken), web.post("/upload", self.upload)])

    async def echo(self, call: RpcRequest) -> Mapping[str, Any]:
        self.calls += 1
        return {"got": call.payload, "n": self.calls}

    async def big(self, call: RpcRequest) -> Mapping[str, Any]:
        self.calls += 1
        return {"data": "x" * 100_000}

    async def fail(self, call: RpcRequest) -> Mapping[str, Any]:
        kinds: dict[str, Exception] = {
            "bug": KeyError("oops"),
            "fault": RpcFault(RpcCode.NOT_FOUND, "nobody here"),
            "malformed": ProtocolError("X", "field 'a' is missing"),
            "slots": NoResourceAvailableError("2 needed"),
        }
        raise kinds[call.payload["kind"]]

    async def slow(self, call: RpcRequest) -> Mapping[str, Any]:
        self.calls += 1
        await self.gate.wait()
        await asyncio.sleep(self.pause)
        return {"n": self.calls}

    async def broken(self, _: web.Request) -> web.Response:
        raise RuntimeError("kaputt")

    async def upload(self, request: web.Request) -> web.Response:
        return web.json_response({"size": len(await request.read())})


def _for_t1(handler: Handler) -> Handler:
    async def handle(call: RpcRequest) -> Mapping[str, Any]:
        check_token(call, "t1")
        return await handler(call)

    return handle


@asynccontextmanager
async def post_signed(service: Echo, method: str, plain: Any) -> AsyncIterator[aiohttp.ClientResponse]:
    """A call whose envelope is written by hand."""
    url, body = f"{service.address}/rpc/{method}", json.dumps(plain).encode()
    headers = await headers_of_call(service.session, SECRET, url, body)
    async with service.session.post(url, data=body, headers=headers) as answer:
        yield answer


@asynccontextmanager
async def echo() -> AsyncIterator[tuple[Echo, RpcClient]]:
    service = Echo()
    await service.start()
    try:
        yield service, RpcClient(service.session, SECRET, SystemClock())
    finally:
        await service.stop()


def over_loopback(test: Callable[[Echo, RpcClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with echo() as (service, client):
            await test(service, client)

    asyncio.run(main())


def test_a_call_and_its_answer() -> None:
    async def test(service: Echo, client: RpcClient) -> None:
        assert await client.call(service.address, "echo", {"a": 1}, "t1") == {"got": {"a": 1}, "n": 1}
        large = {"a": "x" * (3 << 20)}  # a warning of aiohttp's would be an error here
        assert await client.call(service.address, "echo", large, "t1") == {"got": large, "n": 2}

    over_loopback(test)


@pytest.mark.parametrize(
    ("kind", "code", "text"),
    [
        ("bug", RpcCode.INTERNAL, "KeyError: 'oops'"),
        ("fault", RpcCode.NOT_FOUND, "nobody here"),
        ("malformed", RpcCode.BAD_REQUEST, "field 'a' is missing"),
        ("slots", RpcCode.NO_RESOURCES, "2 needed"),
    ],
)
def test_refusals_carry_a_code_and_the_reason(kind: str, code: RpcCode, text: str) -> None:
    async def test(service: Echo, client: RpcClient) -> None:
        with pytest.raises(RpcFault, match=text) as caught:
            await client.call(service.address, "fail", {"kind": kind}, "t1")
        assert caught.value.code is code

    over_loopback(test)


def test_fencing_secret_unknown_methods_and_versions() -> None:
    async def test(service: Echo, client: RpcClient) -> None:
        with pytest.raises(FencedError):
            await client.call(service.address, "echo", {}, "t0")
        with pytest.raises(RpcFault, match="secret") as caught:
            await RpcClient(service.session, "wrong", SystemClock()).call(service.address, "echo", {}, "t1")
        assert caught.value.code is RpcCode.UNAUTHORIZED
        with pytest.raises(RpcFault, match="no method 'nothing'"):
            await client.call(service.address, "nothing", {}, "t1")
        for body, code in [
            ({"v": 2, "id": "x", "token": "", "payload": {}}, "VERSION"),
            ({"v": 1, "id": "x", "token": "", "payload": []}, "BAD_REQUEST"),
            ({"v": 1, "token": "", "payload": {}}, "BAD_REQUEST"),
            ([], "BAD_REQUEST"),
        ]:
            async with post_signed(service, "echo", body) as answer:
                assert (answer.status, (await answer.json())["code"]) == (400, code)
        assert service.calls == 0

    over_loopback(test)


def test_a_repeated_id_is_done_once_even_while_the_first_is_at_work() -> None:
    async def test(service: Echo, client: RpcClient) -> None:
        body = {"v": 1, "id": "same", "token": "t1", "payload": {}}

        async def post(method: str) -> Any:
            async with post_signed(service, method, body) as answer:
                return await answer.json()

        assert await post("echo") == await post("echo")
        assert service.calls == 1
        both = asyncio.gather(post("slow"), post("slow"))
        while service.calls < 2:
            await asyncio.sleep(0.001)
        service.gate.set()
        first, second = await both
        assert first == second
        assert service.calls == 2
        await post("big")
        await post("big")
        assert service.calls == 4, "long answers are not kept"

    over_loopback(test)


def test_silence_and_absence() -> None:
    async def test(service: Echo, client: RpcClient) -> None:
        with pytest.raises(PeerUnreachableError, match=r"no answer within 0\.05 s"):
            await client.call(service.address, "slow", {}, timeout=0.05)
        with pytest.raises(PeerUnreachableError, match=r"127\.0\.0\.1:1"):
            await client.call("http://127.0.0.1:1", "echo", {})
        service.gate.set()

    over_loopback(test)


def test_where_nothing_answers_no_connection_is_waited_for_as_long_as_for_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("firesteel.rpc.client.CONNECT_SECONDS", 0.2)

    async def test(service: Echo, client: RpcClient) -> None:
        await check_reachable(service.address)
        with nothing_answers() as address:
            with pytest.raises(PeerUnreachableError, match=r"no connection within 0\.2 s"):
                await client.call(address, "echo", {}, timeout=3600.0)
            with pytest.raises(PeerUnreachableError, match=r"no connection within 0\.2 s"):
                await check_reachable(address)
        with pytest.raises(PeerUnreachableError, match=r"127\.0\.0\.1:1: .*[Rr]efused"):
            await check_reachable("http://127.0.0.1:1")
        with monkeypatch.context() as without_names:
            refuse = Mock(side_effect=socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"))
            without_names.setattr("socket.getaddrinfo", refuse)
            await check_reachable("http://jobmaster.example:6124")
            refuse.assert_called_once()

    over_loopback(test)


def test_a_stall_of_the_caller_is_not_the_peers_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.rpc.client.STALL_SECONDS", 0.2)

    async def test(service: Echo, client: RpcClient) -> None:
        await client.call(service.address, "echo", {}, "t1")
        asyncio.get_running_loop().call_later(0.01, time.sleep, 3.0)  # as a thread that holds the interpreter
        service.gate.set()
        service.pause = 0.05
        assert await client.call(service.address, "slow", {}, timeout=2.0) == {"n": 2}

    over_loopback(test)


def test_a_kept_connection_that_the_peer_closed_is_no_error() -> None:
    async def main() -> None:
        seen: list[str] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length"))
            seen.append(json.loads(await reader.readexactly(length))["id"])
            if len(seen) != 2:  # the second call finds the connection closed in the middle
                answer = b'{"payload":{}}'
                nonce = next(h for h in head.decode().split("\r\n") if h.startswith("Authorization:")).split(" ")[3]
                (signature,) = Signer(SECRET, SystemClock()).answer_headers(nonce, 200, answer).items()
                lines = [b"HTTP/1.1 200 OK", b"Connection: close", b"Content-Length: %d" % len(answer)]
                writer.write(b"\r\n".join([*lines, ": ".join(signature).encode(), b"", answer]))
                await writer.drain()
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with aiohttp.ClientSession() as session:
            client = RpcClient(session, SECRET, SystemClock())
            await client.call(address, "a", {})
            await client.call(address, "b", {})
        server.close()
        await server.wait_closed()
        assert len(seen) == 3
        assert seen[1] == seen[2], "the repeat carries the same id"

    asyncio.run(main())


def test_errors_are_json_and_other_sites_are_refused() -> None:
    async def test(service: Echo, client: RpcClient) -> None:
        async def get(method: str, path: str, **headers: str) -> tuple[int, list[str], Mapping[str, str]]:
            async with service.session.request(method, service.address + path, headers=headers) as answer:
                return answer.status, (await answer.json())["errors"], answer.headers

        status, errors, _ = await get("GET", "/nothing")
        assert (status, errors) == (404, ["Not found: GET /nothing"])
        status, errors, _ = await get("PUT", "/upload")
        assert (status, errors) == (404, ["Not found: PUT /upload"])
        status, errors, headers = await get("GET", "/break")
        assert status == 500
        assert "the log of the service tells more about error" in errors[0]
        assert "kaputt" not in str(errors)
        assert not any(h.lower().startswith("access-control") for h in headers)
        for bad in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
            status, errors, _ = await get("GET", "/health", **bad)
            assert (status, "is refused" in errors[0]) == (403, True)
        for good in ({"Host": "localhost:99"}, {"Origin": "http://127.0.0.1:8081"}, {"Host": "[::1]:8081"}):
            async with service.session.get(f"{service.address}/health", headers=good) as answer:
                assert answer.status == 200

    over_loopback(test)


def test_health_tells_of_a_background_task_that_failed() -> None:
    async def test(service: Echo, client: RpcClient) -> None:
        async def look(path: str) -> tuple[int, Any]:
            async with service.session.get(service.address + path) as answer:
                return answer.status, await answer.json()

        assert await look("/health") == (200, {"status": "OK", "service": "echo"})
        assert (await look("/ready"))[0] == 200

        async def bad() -> None:
            raise RuntimeError("lost my way")

        service.spawn(bad(), "bad")
        await service.background.drain(1)
        status, answer = await look("/health")
        assert (status, answer["errors"]) == (500, ["RuntimeError: lost my way"])
        assert (await look("/ready"))[0] == 503

    over_loopback(test)


def test_a_taken_port_leaves_nothing_open() -> None:
    async def main() -> None:
        async with echo() as (service, _):
            other = Echo()
            with pytest.raises(OSError, match=r"echo can.t listen on 127\.0\.0\.1"):
                await other.start(port=int(service.address.rsplit(":", 1)[1]))
            with pytest.raises(RuntimeError, match="has not been started"):
                _ = other.address

    asyncio.run(main())


def test_kept_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.rpc.server.KEEP_TOTAL", 200)

    async def test(service: Echo, client: RpcClient) -> None:
        async def post(call: str) -> Any:
            body = {"v": 1, "id": call, "token": "t1", "payload": {"pad": "x" * 80}}
            async with post_signed(service, "echo", body) as answer:
                return (await answer.json())["payload"]["n"]

        assert [await post(c) for c in "aabbccddaa"] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]

    over_loopback(test)
