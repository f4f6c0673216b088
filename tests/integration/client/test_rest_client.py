"""The client's side of the REST API against servers that break, refuse, or are something else."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from firesteel.client.connections import close_connections, connect
from firesteel.client.loop_thread import LoopThread
from firesteel.client.remote import RemoteExecutor
from firesteel.client.rest_client import ClientPatience, RestClient
from firesteel.common.configuration import Configuration
from firesteel.config.settings import Settings
from firesteel.core.errors import GraphError, JobError, PeerUnreachableError, ProtocolError, RpcError, UnauthorizedError
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.graph.chaining import client_versions
from firesteel.graph.job_graph import JobGraph, JobVertex, OperatorInfo
from tests.ports import free_ports

BLOB = b"chain"
SHA = hashlib.sha256(BLOB).hexdigest()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def graph() -> JobGraph:
    vertex = JobVertex("1" * 32, "v", 1, 128, "default", SHA, (OperatorInfo("1" * 32, "op", None, "map"),))
    return JobGraph("a" * 32, "words", (vertex,), (), blobs={SHA: len(BLOB)}, versions=client_versions())


@asynccontextmanager
async def serving(*routes: web.RouteDef, port: int = 0) -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def submission(request: web.Request) -> tuple[str, dict[str, bytes]]:
    """Id of the job, and all parts by file name."""
    parts: dict[str, bytes] = {}
    async for part in await request.multipart():
        parts[part.filename or part.name] = bytes(await part.read())  # type: ignore[union-attr, index]
    return str(json.loads(parts["plan.json"])["job_id"]), parts


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(150):
            await scenario()

    asyncio.run(limited())


def test_a_submission_that_broke_is_sent_again_with_the_same_id() -> None:
    seen: list[str] = []

    async def submit(request: web.Request) -> web.StreamResponse:
        job, parts = await submission(request)
        assert parts[SHA] == BLOB
        seen.append(job)
        if len(seen) == 1:  # it was taken in, but the answer never arrived
            assert request.transport is not None
            request.transport.abort()
        if len(seen) == 2:
            return web.json_response({"errors": ["the cluster is being started"]}, status=503)
        return web.json_response({"jobUrl": ""}, status=202)

    async def scenario() -> None:
        async with serving(web.post("/jobs", submit)) as url:
            rest = RestClient(url, "token", patience=ClientPatience(100.0, 0.01))
            await rest.submit(graph(), {SHA: BLOB})
            await rest.close()
        assert seen == ["a" * 32] * 3

    run(scenario)


def test_a_cluster_that_comes_back_is_found_again() -> None:
    async def overview(_: web.Request) -> web.StreamResponse:
        return web.json_response({"jobs": []})

    async def scenario() -> None:
        async with serving(web.get("/config", overview), port=free_ports(1)[0]) as url:
            pass
        rest = RestClient(url, None, patience=ClientPatience(100.0, 0.01))
        async with asyncio.TaskGroup() as group:
            request = group.create_task(rest.get("/jobs/overview"))
            done, _ = await asyncio.wait([request], timeout=0.2)
            assert not done
            async with serving(web.get("/jobs/overview", overview), port=int(url.rpartition(":")[2])):
                assert await request == {"jobs": []}
        await rest.close()

    run(scenario)


def test_without_patience_the_first_failure_counts() -> None:
    async def scenario() -> None:
        async with serving() as url:
            pass
        rest = RestClient(url, None)
        with pytest.raises(PeerUnreachableError, match="Connection refused"):
            await rest.get("/jobs/overview")
        await rest.close()

    run(scenario)


def test_a_stall_of_this_process_is_not_the_clusters_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.client.rest_client.STALL_SECONDS", 0.1)
    requests = asyncio.Semaphore(0)

    async def slow(_: web.Request) -> web.StreamResponse:
        requests.release()
        await asyncio.sleep(0.05)
        return web.json_response({"jobs": []})

    async def scenario() -> None:
        async with serving(web.get("/jobs/overview", slow)) as url:
            rest = RestClient(url, None)
            answer = asyncio.ensure_future(rest.get("/jobs/overview", timeout_s=2))
            await requests.acquire()
            asyncio.get_running_loop().call_soon(time.sleep, 2.5)  # as a thread that holds the interpreter
            assert await answer == {"jobs": []}
            await requests.acquire()  # it was asked again
            await rest.close()

    run(scenario)


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (400, GraphError, "too old"),
        (409, GraphError, r"too old \(the client chooses the id: the next run takes another\)"),
        (413, GraphError, "too old"),
        (401, UnauthorizedError, r"refuses this client \(from a file\): too old"),
        (500, RpcError, "answered 500: too old"),
    ],
)
def test_refusals_bring_the_servers_words(status: int, error: type[Exception], said: str) -> None:
    async def submit(request: web.Request) -> web.StreamResponse:
        await request.read()
        return web.json_response({"errors": ["too old"]}, status=status)

    async def scenario() -> None:
        async with serving(web.post("/jobs", submit)) as url:
            rest = RestClient(url, "token", token_origin="from a file")
            with pytest.raises(error, match=said):
                await rest.submit(graph(), {SHA: BLOB})
            await rest.close()

    run(scenario)


def test_a_job_that_repeats_its_results_is_an_error_of_the_job() -> None:
    async def collect(_: web.Request) -> web.StreamResponse:
        return web.json_response({"errors": ["restarted from its beginning"]}, status=410)

    async def scenario() -> None:
        async with serving(web.get("/jobs/{job}/collect/{operator}", collect)) as url:
            rest = RestClient(url, None)
            with pytest.raises(JobError, match=r"^restarted from its beginning$"):
                await rest.collect("a" * 32, "op", 3, 1, 0)
            await rest.close()

    run(scenario)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"flink-version": "2.3.0"}, "Flink 2.3.0 is no Firesteel cluster"),
        (["x"], "what answers there is no Firesteel"),
    ],
)
def test_something_else_at_the_address_is_named(answer: Any, said: str) -> None:
    async def config(_: web.Request) -> web.StreamResponse:
        return web.json_response(answer)

    async def scenario() -> None:
        async with serving(web.get("/config", config)) as url:
            rest = RestClient(url, None)
            with pytest.raises(ProtocolError, match=said):
                await rest.contact()
            await rest.close()

    run(scenario)


class Cluster:
    """A cluster that accepts every job and notes the heartbeats of clients; it lives in a thread of its own."""

    def __init__(self) -> None:
        self.loop = LoopThread("cluster")
        self.beats: list[tuple[str, int]] = []
        self.plans: list[dict[str, Any]] = []
        self.enough = asyncio.Event()
        self._context = serving(
            web.get("/config", self._config),
            web.post("/jobs", self._submit),
            web.patch("/jobs/{job}/clientHeartbeat", self._heartbeat),
        )
        self.url = self.loop.run(self._context.__aenter__())

    def close(self) -> None:
        self.loop.run(self._context.__aexit__(None, None, None))
        self.loop.close()

    async def _config(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"firesteel-version": "0"})

    async def _submit(self, request: web.Request) -> web.StreamResponse:
        _, parts = await submission(request)
        self.plans.append(json.loads(parts["plan.json"]))
        return web.json_response({}, status=202)

    async def _heartbeat(self, request: web.Request) -> web.StreamResponse:
        self.beats.append((request.match_info["job"], (await request.json())["expiredTimestamp"]))
        if len(self.beats) == 3:
            self.enough.set()
            return web.json_response({"errors": ["not found"]}, status=404)
        return web.json_response({}, status=202)


def test_heartbeats_are_sent_until_the_job_is_gone_and_settings_travel_with_their_layers() -> None:
    cluster = Cluster()
    try:
        host, _, port = cluster.url.removeprefix("http://").partition(":")
        settings = {
            "rest.address": host,
            "rest.port": port,
            "execution.target": "remote",
            "execution.shutdown-on-attached-exit": "true",
            "client.heartbeat.interval": "1 ms",
            "client.heartbeat.timeout": "7 s",
        }
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
        assert isinstance(env._get_executor(), RemoteExecutor)
        env.from_collection([1]).print()
        job = env.execute_async("beats")
        cluster.loop.run(cluster.enough.wait(), timeout=30)
        assert [name for name, _ in cluster.beats] == [str(job.get_job_id())] * 3
        stamps = [stamp for _, stamp in cluster.beats]
        assert stamps == sorted(stamps)
        (plan,) = cluster.plans
        of_program = {key for key, layer in plan["config_layers"].items() if layer != "environment"}
        assert {key: plan["config_layers"][key] for key in of_program} == dict.fromkeys(settings, "program")
        assert {key: plan["config"][key] for key in of_program} == settings
        assert plan["python_path"] == []
    finally:
        close_connections()
        cluster.close()


def test_connections_are_shared_and_can_be_made_anew() -> None:
    cluster = Cluster()
    try:
        host, _, port = cluster.url.removeprefix("http://").partition(":")
        settings = Settings({"rest.address": host, "rest.port": port})
        first = connect(settings)
        assert connect(settings) is first
        close_connections()
        with pytest.raises(PeerUnreachableError, match="has been closed"):
            first.loop.run(first.rest.get("/config"))
        assert connect(settings) is not first
    finally:
        close_connections()
        cluster.close()
