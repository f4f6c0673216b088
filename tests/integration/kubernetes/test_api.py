"""Questions to an API server and watches, as they go over a socket; and programs that tell credentials."""

from __future__ import annotations

import asyncio
import json
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from firesteel_kubernetes.access import ApiServerAccess, CredentialProgram, Credentials
from firesteel_kubernetes.api import (
    ApiError,
    ConflictError,
    KubernetesApi,
    MissingError,
    UnansweredError,
    UnreachableError,
)
from tests.ports import free_ports
from tests.waiting import wait_until


class Changing(Credentials):
    """A token that is another one when it was refused."""

    def __init__(self) -> None:
        self.given = "old"

    def token(self) -> str:
        return self.given

    def refused(self) -> bool:
        before, self.given = self.given, "new"
        return before != self.given


class Server:
    """Answers as it is told, and says what it was asked."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.requests: list[str] = []
        self.watches: list[list[object]] = []
        """What each watch tells, one after the other; then the connection ends, or stays open at ``None``."""
        self.lists = 0
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert self.ready.wait(20)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._start())
        self.ready.set()
        self.loop.run_forever()
        self.loop.run_until_complete(self.runner.cleanup())
        self.loop.close()

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self.runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self.runner.setup()
        (self.port,) = free_ports(1)
        await web.TCPSite(self.runner, "127.0.0.1", self.port).start()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        self.requests.append(f"{request.method} {request.headers.get('Authorization', '')} {path}")
        if path == "things":
            return await self._things(request)
        if path == "slow":
            await asyncio.sleep(60)
        if path == "private" and request.headers["Authorization"] != "Bearer new":
            return web.json_response({"message": "who are you", "reason": "Unauthorized"}, status=401)
        if path == "echo":
            return web.json_response({"kind": request.headers["Content-Type"], "body": await request.json()})
        if path.isdigit():
            return web.json_response({"message": "no", "reason": "Why"}, status=int(path), headers={"Retry-After": "7"})
        return web.json_response({"path": path})

    async def _things(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            self.lists += 1
            item = {"metadata": {"name": "a", "resourceVersion": str(self.lists)}}
            return web.json_response({"metadata": {"resourceVersion": str(self.lists)}, "items": [item]})
        self.requests.append(f"from {request.query['resourceVersion']}")
        answer = web.StreamResponse()
        await answer.prepare(request)
        for event in self.watches.pop(0) if self.watches else [None]:
            if event is None:
                await asyncio.sleep(60)
            text = json.dumps(event).encode() + b"\n"
            await answer.write(text[:7])  # lines come in pieces
            await asyncio.sleep(0.01)
            await answer.write(text[7:])
        return answer

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(20)


@pytest.fixture
def server() -> Iterator[Server]:
    api_server = Server()
    yield api_server
    api_server.close()


@pytest.fixture
def api(server: Server) -> Iterator[KubernetesApi]:
    kubernetes = KubernetesApi(ApiServerAccess(f"http://127.0.0.1:{server.port}", None, Changing()))
    yield kubernetes
    kubernetes.close()


@pytest.mark.smoke
def test_answers_and_what_they_mean(api: KubernetesApi, server: Server) -> None:
    assert api.ask("GET", "/thing") == {"path": "thing"}
    assert api.ask("PATCH", "/echo", {"a": 1}) == {"kind": "application/merge-patch+json", "body": {"a": 1}}
    for status, kind in (
        (404, MissingError), (409, ConflictError), (429, UnreachableError), (500, UnansweredError),
        (503, UnansweredError), (504, UnansweredError), (403, ApiError), (422, ApiError),
    ):  # fmt: skip
        with pytest.raises(ApiError, match=f"answers GET /{status} with {status} Why: no") as caught:
            api.ask("GET", f"/{status}")
        assert type(caught.value) is kind
        assert (caught.value.status, caught.value.retry_after) == (status, 7.0)
    with pytest.raises(UnansweredError, match=r"has not answered for 0\.2 s"):
        api.ask("PUT", "/slow", {}, seconds=0.2)
    assert sum("slow" in request for request in server.requests) == 1, "nobody else repeats a write"


def test_a_token_that_was_refused_is_replaced_at_once(api: KubernetesApi, server: Server) -> None:
    assert api.ask("GET", "/private") == {"path": "private"}
    assert server.requests == ["GET Bearer old private", "GET Bearer new private"]


def test_nobody_is_there() -> None:
    (port,) = free_ports(1)
    api = KubernetesApi(ApiServerAccess(f"http://127.0.0.1:{port}", None, Changing()))
    with pytest.raises(UnreachableError, match=f"not to be reached at http://127.0.0.1:{port}"):
        api.ask("GET", "/thing")
    api.close()
    api.close()
    with pytest.raises(UnreachableError, match="was closed"):
        api.ask("GET", "/thing")


def test_a_watch_goes_on_where_it_was_and_begins_anew_where_its_place_is_forgotten(
    api: KubernetesApi, server: Server
) -> None:
    def event(kind: str, name: str, version: str) -> dict[str, object]:
        return {"type": kind, "object": {"metadata": {"name": name, "resourceVersion": version}}}

    gone = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
    server.watches = [
        [event("ADDED", "b", "5"), event("DELETED", "a", "6"), event("BOOKMARK", "", "9")],
        [gone],
        [event("ADDED", "c", "12"), None],
    ]
    changes: list[set[str]] = []
    watched = api.watch("/things", {}, lambda watch: changes.append(set(watch.snapshot())))
    wait_until(lambda: changes and changes[-1] == {"a", "c"}, lambda: f"all is told: {changes}, {server.requests}")
    assert changes == [{"a"}, {"a", "b"}, {"b"}, {"a"}, {"a", "c"}]
    assert [request for request in server.requests if request.startswith("from")] == ["from 1", "from 9", "from 2"]
    watched.end()


def test_a_program_is_asked_again_when_its_token_has_ended(tmp_path: Path) -> None:
    token_file, program = tmp_path / "told", tmp_path / "program"
    program.write_text(f'#!/bin/sh\n[ "$1 $EXTRA" = "get-token x" ] || exit 4\ncat {token_file}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def tell(token: str, ends: str) -> None:
        token_file.write_text(json.dumps({"status": {"token": token, "expirationTimestamp": ends}}))

    credentials = CredentialProgram(
        [str(program), "get-token"], {"EXTRA": "x"}, "client.authentication.k8s.io/v1", "install it"
    )
    tell("old", "2001-01-01T00:00:00Z")
    assert credentials.token() == "old"
    tell("new", "2999-01-01T00:00:00Z")
    assert credentials.token() == "new"
    tell("newer", "2999-01-01T00:00:00Z")
    assert credentials.token() == "new"
    credentials.refused()
    assert credentials.token() == "newer"
    with pytest.raises(OSError, match="ended with 4"):
        CredentialProgram([str(program)], {}, "v1", "").token()
    with pytest.raises(OSError, match=r"can't be run: .*install it"):
        CredentialProgram([str(tmp_path / "none")], {}, "v1", "install it").token()
    token_file.write_text("?")
    with pytest.raises(OSError, match="returned none"):
        CredentialProgram([str(program), "get-token"], {"EXTRA": "x"}, "v1", "").token()
