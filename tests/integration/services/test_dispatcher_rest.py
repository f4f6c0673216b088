"""The Dispatcher's REST API over loopback, with recording JobMasters and ResourceManager."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import pickle
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import pytest

from firesteel.client.rest_client import RestClient
from firesteel.config import Settings
from firesteel.core.clock import SystemClock
from firesteel.core.errors import GraphError, RpcError
from firesteel.core.run_directory import RunDirectory
from firesteel.graph.chaining import client_versions
from firesteel.graph.execution_graph import ExecutionGraph
from firesteel.graph.job_archive import archive_of
from firesteel.graph.job_graph import JobGraph, JobVertex, OperatorInfo
from firesteel.protocol import messages as m
from firesteel.rpc.gateways import RemoteDispatcher
from firesteel_dispatcher.app import create_service
from firesteel_dispatcher.shell import DispatcherService
from tests.integration.services.cluster_peers import PATIENCE, SECRET, Peer, client_of, serving

BLOB = b"chain" * 1000
SHA = hashlib.sha256(BLOB).hexdigest()
JOB = "0123456789abcdef" * 2
VERTEX = "1" * 32
TASKMANAGER = {
    "id": "tm", "path": "http://tm", "dataPort": -1, "jmxPort": -1, "timeSinceLastHeartbeat": 1, "slotsNumber": 2,
    "freeSlots": 1, "allocatedSlots": [{"jobId": JOB}],
}  # fmt: skip


def graph(job: str = JOB, name: str = "words") -> JobGraph:
    vertex = JobVertex(VERTEX, "v", 1, 128, "default", SHA, (OperatorInfo(VERTEX, "op", None, "map"),))
    return JobGraph(job, name, (vertex,), (), blobs={SHA: len(BLOB)}, versions=client_versions())


def archive(state: str = "RUNNING", **changes: Any) -> dict[str, Any]:
    return {**archive_of(ExecutionGraph(graph(), SystemClock())), "state": state, **changes}


@dataclass
class World:
    """A Dispatcher with its peers."""

    service: DispatcherService
    jobmaster: Peer
    rest: RestClient
    session: aiohttp.ClientSession
    blobs: str
    may_start: asyncio.Event

    async def get(self, path: str, **options: Any) -> tuple[int, Any]:
        """Status and JSON of a GET."""
        return await self.ask("GET", path, **options)

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """Status and JSON of any request."""
        async with self.session.request(method, self.service.address + path, **options) as answer:
            text = await answer.read()
            return answer.status, json.loads(text) if text else None

    async def submit(self) -> None:
        """A job that has been started."""
        await self.rest.submit(graph(), {SHA: BLOB})
        await self.jobmaster.wait_for("start_job")

    def dispatcher(self) -> RemoteDispatcher:
        """Calls as a JobMaster makes them."""
        (start,) = self.jobmaster.of("start_job")[-1:]
        return RemoteDispatcher(client_of(self.jobmaster), start["dispatcher_address"], start["dispatcher_token"])

    async def finish(self, state: str = "FINISHED", **changes: Any) -> None:
        """The job ends."""
        await self.dispatcher().job_finished(m.JobFinished(JOB, archive(state, **changes)))


@asynccontextmanager
async def world(port: int = 0, /, **settings: str) -> AsyncIterator[World]:
    async def start_job(_: Any) -> dict[str, Any]:
        await may_start.wait()
        return {"address": jobmaster.address, "jobmaster_token": "jm"}

    may_start = asyncio.Event()
    may_start.set()
    data = base64.b64encode(pickle.dumps([1, 2])).decode()
    jobmaster = Peer(
        {
            "start_job": start_job,
            "details": lambda _: archive(),
            "cancel": lambda _: {},
            "collect": lambda call: {**call, "count": 2, "end": False, "data": data, "state": "RUNNING"},
        }
    )
    resourcemanager = Peer(
        {"overview": lambda _: {"taskmanagers": [TASKMANAGER], "slots_total": 2, "slots_available": 1}}
    )
    directory = RunDirectory.create()
    try:
        async with serving(jobmaster, resourcemanager):
            service = create_service(
                settings=Settings({key.replace("_", "."): value for key, value in settings.items()}),
                secret=SECRET, clock=SystemClock(), run_directory=directory,
                jobmaster_address=jobmaster.address, resourcemanager_address=resourcemanager.address,
            )  # fmt: skip
            await service.start("127.0.0.1", port)
            rest = RestClient(service.address, SECRET)
            try:
                async with aiohttp.ClientSession() as session:
                    yield World(service, jobmaster, rest, session, str(directory.path / "blobs"), may_start)
                assert service.failure is None
            finally:
                await rest.close()
                await service.stop()
            assert os.listdir(directory.path) == []
    finally:
        directory.remove()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(2 * PATIENCE):
            await scenario

    asyncio.run(limited())


READING = [
    "/config", "/overview", "/jobs", "/jobs/overview", f"/jobs/{JOB}", f"/jobs/{JOB}/status", f"/jobs/{JOB}/config",
    f"/jobs/{JOB}/plan", f"/jobs/{JOB}/exceptions", f"/jobs/{JOB}/execution-result", f"/jobs/{JOB}/vertices/{VERTEX}",
    f"/jobs/{JOB}/vertices/{VERTEX}/subtasktimes", f"/jobs/{JOB}/vertices/{VERTEX}/taskmanagers", "/taskmanagers",
    "/taskmanagers/tm",
]  # fmt: skip


def test_every_path_answers_bare_and_versioned_while_the_job_runs_and_after_its_end() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.submit()
            for path in READING:
                for prefix in ("", "/v1"):
                    body = {"data": b"{}", "headers": {"Content-Type": "application/json"}}  # as the Java client does
                    status, answer = await w.get(prefix + path, **body)
                    assert status == 200, (prefix + path, answer)
                assert (await w.ask("HEAD", path))[0] == 404
                assert (await w.ask("DELETE", path))[0] == 404
            await w.finish()
            for path in READING:
                status, answer = await w.get(path)
                assert status == 200, (path, answer)
            assert (await w.get("/v2/jobs"))[0] == 404

    run(scenario())


def test_the_cluster_presents_itself_as_flinks_clients_expect() -> None:
    async def scenario() -> None:
        async with world() as w:
            _, config = await w.get("/config")
            assert config["flink-version"] == "2.3.0"
            assert config["firesteel-version"]
            assert config["features"]["web-cancel"] is True
            _, overview = await w.get("/overview")
            assert (overview["taskmanagers"], overview["slots-total"], overview["slots-available"]) == (1, 2, 1)
            assert overview["jobs-running"] == 0
            _, listed = await w.get("/taskmanagers")
            assert listed["taskmanagers"][0]["assignedTasks"] == 0
            assert (await w.get("/taskmanagers/unknown"))[0] == 404
            async with w.session.get(w.service.address + "/") as page:
                assert "Firesteel" in await page.text()
                assert "Access-Control-Allow-Origin" not in page.headers

    run(scenario())


def test_a_job_is_stored_before_the_answer_and_its_blobs_go_with_it() -> None:
    async def scenario() -> None:
        async with world() as w:
            w.may_start.clear()
            await w.rest.submit(graph(), {SHA: BLOB})
            assert os.listdir(w.blobs) == [SHA]
            assert (await w.get(f"/jobs/{JOB}/status"))[1] == {"status": "INITIALIZING"}
            assert (await w.get(f"/jobs/{JOB}"))[1]["state"] == "INITIALIZING"
            w.may_start.set()
            (start,) = await w.jobmaster.wait_for("start_job")
            assert JobGraph.from_plain(start["job_graph"]) == graph()
            bearer = {"Authorization": f"Bearer {SECRET}"}
            async with w.session.get(f"{start['blob_address']}/blobs/{SHA}", headers=bearer) as answer:
                assert await answer.read() == BLOB
            assert (await w.get(f"/blobs/{SHA}"))[0] == 401
            assert (await w.get(f"/blobs/{'0' * 64}", headers=bearer))[0] == 404
            await w.rest.submit(graph(), {SHA: BLOB})  # again: the same job
            assert os.listdir(w.blobs) == [SHA]
            with pytest.raises(GraphError, match="another graph"):
                await w.rest.submit(graph(name="other"), {SHA: BLOB})
            await w.finish()
            assert os.listdir(w.blobs) == []
            await w.rest.submit(graph(), {SHA: BLOB})  # it ran already
            assert len(w.jobmaster.of("start_job")) == 1

    run(scenario())


@pytest.mark.parametrize(
    ("changed", "blobs", "reason"),
    [
        ({"versions": {**client_versions(), "python": "2.7.1"}}, {SHA: BLOB}, "python 2.7.1 was used"),
        ({"versions": {}}, {SHA: BLOB}, "version of python is missing"),
        ({"job_id": "../../etc"}, {SHA: BLOB}, "not a job id"),
        ({"format_version": 99}, {SHA: BLOB}, "format 99"),
        ({}, {}, "blobs are missing"),
        ({}, {SHA: BLOB[:-1]}, "fewer bytes"),
        ({}, {SHA: BLOB + b"!"}, "more bytes"),
        ({}, {SHA: BLOB[:-1] + b"!"}, "arrived damaged"),
        ({}, {SHA: BLOB, "f" * 64: b""}, "not a blob of this graph"),
        ({"vertices": ()}, {SHA: BLOB}, "graph is empty"),
    ],
)
def test_a_bad_submission_is_refused_and_leaves_nothing(changed: Any, blobs: dict[str, bytes], reason: str) -> None:
    async def scenario() -> None:
        async with world() as w:
            with pytest.raises(GraphError, match=reason):
                await w.rest.submit(replace(graph(), **changed), blobs)
            assert not os.path.exists(w.blobs) or os.listdir(w.blobs) == []
            assert (await w.get("/jobs"))[1] == {"jobs": []}

    run(scenario())


def test_submissions_need_the_secret_and_have_a_limit() -> None:
    async def scenario() -> None:
        async with world(0, **{"rest_server_max-content-length": "1 mb"}) as w:
            stranger = RestClient(w.service.address, "wrong")
            try:
                with pytest.raises(RpcError, match="401"):
                    await stranger.submit(graph(), {SHA: BLOB})
            finally:
                await stranger.close()
            large = os.urandom(1 << 20)
            sha = hashlib.sha256(large).hexdigest()
            with pytest.raises(RpcError, match=r"413.*max-content-length"):
                await w.rest.submit(replace(graph(), blobs={SHA: len(BLOB), sha: len(large)}), {SHA: BLOB, sha: large})
            assert os.listdir(w.blobs) == []
            assert (await w.ask("POST", "/jobs", json={}, headers={"Authorization": f"Bearer {SECRET}"}))[0] == 400

    run(scenario())


def test_waiting_for_the_end_of_a_job() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.submit()
            assert await w.rest.execution_result(JOB, 1) is None
            waiting = asyncio.gather(w.rest.execution_result(JOB, 60_000))
            await asyncio.sleep(0.05)
            failure = {"kind": "user", "error_class": "E", "message": "boom", "traceback": "T", "operator": "o"}
            await w.finish("FAILED", failure=failure, **{"end-time": 5})
            (result,) = await waiting
            assert result is not None
            assert result["application-status"] == "FAILED"
            assert result["firesteel-failure"] == failure

    run(scenario())


def test_waiting_ends_when_the_dispatcher_stops() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.submit()
            waiting = asyncio.gather(w.rest.execution_result(JOB, 60_000), return_exceptions=True)
            await asyncio.sleep(0.05)
            await w.service.stop()
            await waiting

    run(scenario())


@pytest.mark.parametrize(
    ("method", "path"), [("PATCH", f"/jobs/{JOB}?mode=cancel"), ("GET", f"/v1/jobs/{JOB}/yarn-cancel")]
)
def test_cancelling(method: str, path: str) -> None:
    async def scenario() -> None:
        async with world() as w:
            assert (await w.ask(method, path))[0] == 404
            w.may_start.clear()
            await w.rest.submit(graph(), {SHA: BLOB})
            assert (await w.ask(method, path)) == (202, {})  # it waits, and is passed on later
            w.may_start.set()
            await w.jobmaster.wait_for("cancel")
            await w.finish("CANCELED")
            status, answer = await w.ask(method, path)
            assert status == 409
            assert "CANCELED" in answer["errors"][0]

    run(scenario())


def test_results_are_pulled_through() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.submit()
            results = await w.rest.collect(JOB, "op", 7, 100, 10)
            assert (results.offset, results.count, results.end, results.state) == (7, 2, False, "RUNNING")
            assert pickle.loads(results.data) == [1, 2]
            assert w.jobmaster.of("collect") == [{"operator_id": "op", "offset": 7, "max_bytes": 100, "wait_ms": 10}]
            await w.finish()
            results = await w.rest.collect(JOB, "op", 9, 100, 10)
            assert (results.count, results.end, results.state, results.data) == (0, True, "FINISHED", b"")
            assert (await w.get(f"/jobs/{JOB}/collect/op"))[0] == 401

    run(scenario())


def test_details_are_kept_for_a_moment() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.submit()
            await asyncio.gather(*(w.get(f"/jobs/{JOB}") for _ in range(20)))
            assert 1 <= len(w.jobmaster.of("details")) <= 5

    run(scenario())


def test_a_job_whose_jobmaster_is_gone_fails() -> None:
    async def scenario() -> None:
        async with world(heartbeat_interval="50 ms", heartbeat_timeout="300 ms") as w:
            await w.submit()
            await w.jobmaster.stop()
            result = await w.rest.execution_result(JOB, 10_000)
            assert result is not None
            assert "no sign of life" in result["failure-cause"]["stack-trace"]

    run(scenario())


def test_a_job_fails_when_no_jobmaster_can_be_started() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.jobmaster.stop()
            await w.rest.submit(graph(), {SHA: BLOB})
            result = await w.rest.execution_result(JOB, 10_000)
            assert result is not None
            assert "no JobMaster could be started" in result["failure-cause"]["stack-trace"]

    run(scenario())


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
def test_other_sites_are_refused(headers: dict[str, str]) -> None:
    async def scenario() -> None:
        async with world() as w:
            status, answer = await w.get("/overview", headers=headers)
            assert status == 403
            assert "evil.example" in answer["errors"][0]

    run(scenario())


@pytest.mark.parametrize(
    ("path", "status"),
    [("/jobs/xyz", 400), (f"/jobs/{'f' * 32}", 404), ("/nothing", 404), (f"/jobs/{'f' * 32}/exceptions", 404)],
)
def test_errors_have_flinks_shape(path: str, status: int) -> None:
    async def scenario() -> None:
        async with world() as w:
            found, answer = await w.get(path)
            assert found == status
            assert isinstance(answer["errors"][0], str)

    run(scenario())


def test_a_taken_port_is_stepped_over() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            async with world(port) as w:
                found = int(w.service.address.rpartition(":")[2])
                assert port < found <= port + 100

    run(scenario())
