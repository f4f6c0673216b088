"""The Dispatcher's REST API over loopback, with recording JobMasters and ResourceManager."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import pytest

from firesteel.core.clock import SystemClock
from firesteel.core.errors import GraphError
from firesteel.graph.job_graph import JobGraph
from firesteel.ha.retrieval import DISPATCHER
from firesteel.protocol import messages as m
from firesteel.rpc.signing import Signer
from tests.integration.services.cluster_peers import SECRET, eventually
from tests.integration.services.dispatcher_world import BEARER, BLOB, JOB, SHA, VERTEX, archive, graph, run, world

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
            async with w.session.get(w.service.rest.address + "/") as page:
                assert "Firesteel" in await page.text()
                assert "Access-Control-Allow-Origin" not in page.headers
                assert "script-src 'self'" in page.headers["Content-Security-Policy"]

    run(scenario())


def test_a_job_is_stored_before_the_answer_and_its_blobs_go_with_it() -> None:
    async def scenario() -> None:
        async with world() as w:
            w.host.may_start.clear()
            await w.rest.submit(graph(), {SHA: BLOB})
            assert w.stored_blobs() == [SHA]
            assert (await w.get(f"/jobs/{JOB}/status"))[1] == {"status": "INITIALIZING"}
            assert (await w.get(f"/jobs/{JOB}"))[1]["state"] == "INITIALIZING"
            w.host.may_start.set()
            (start,) = await w.jobmaster.wait_for("start_job")
            assert JobGraph.from_plain(start["job_graph"]) == graph()
            signer, url = Signer(SECRET, SystemClock()), f"{start['blob_address']}/blobs/{SHA}"
            async with w.session.get(url, headers=signer.headers("GET", url)) as answer:
                assert await answer.read() == BLOB
            async with w.session.get(url, headers=BEARER) as answer:
                assert answer.status == 401
            other = f"{start['blob_address']}/blobs/{'0' * 64}"
            async with w.session.get(other, headers=signer.headers("GET", other)) as answer:
                assert answer.status == 404
            assert (await w.get(f"/blobs/{SHA}", headers=BEARER))[0] == 404, "code is not for clients"
            await w.rest.submit(graph(), {SHA: BLOB})  # again: the same job
            assert w.stored("job") == [JOB]
            with pytest.raises(GraphError, match="another graph"):
                await w.rest.submit(graph(name="other"), {SHA: BLOB})
            await w.finish()
            assert (w.stored("job"), w.received(), w.stored("ended")) == ([], [], [JOB])
            await w.rest.submit(graph(), {SHA: BLOB})  # it ran already
            assert len(w.jobmaster.of("start_job")) == 1

    run(scenario())


def test_waiting_for_the_end_of_a_job() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.submit()
            assert await w.rest.execution_result(JOB, 1) is None
            waiting = asyncio.gather(w.rest.execution_result(JOB, 60_000))
            await eventually(lambda: w.service.jobs.news.is_awaited(JOB))
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
            await eventually(lambda: w.service.jobs.news.is_awaited(JOB))
            await w.service.stop()
            await waiting

    run(scenario())


@pytest.mark.parametrize(
    ("method", "path"), [("PATCH", f"/jobs/{JOB}?mode=cancel"), ("GET", f"/v1/jobs/{JOB}/yarn-cancel")]
)
def test_cancelling(method: str, path: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with world(cluster_directory=tmp_path / "cluster") as w:
            assert (await w.ask(method, path, headers=BEARER))[0] == 404
            services: Any = w.service.leadership.ha
            w.host.may_start.clear()
            await w.rest.submit(graph(), {SHA: BLOB})
            await w.jobmaster.wait_for("start_job")
            assert (await w.ask(method, path))[0] == 401
            assert (await w.ask(method, path, headers=BEARER)) == (202, {})  # it waits, and is passed on later
            assert f"cancel.{JOB}" in services.cells.names(DISPATCHER)
            w.host.may_start.set()
            await w.jobmaster.wait_for("cancel")
            await w.finish("CANCELED")
            status, answer = await w.ask(method, path, headers=BEARER)
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


def test_a_jobmaster_that_hangs_does_not_hold_up_the_lists() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.submit()
            while (await w.get(f"/jobs/{JOB}"))[1]["state"] != "RUNNING":
                pass
            hung, goes_on = asyncio.Event(), asyncio.Event()

            async def hangs() -> dict[str, Any]:
                hung.set()
                await goes_on.wait()
                return archive()

            w.host.details = hangs
            try:
                async with asyncio.timeout(30):  # it never answers
                    while not hung.is_set():
                        assert (await w.get("/jobs/overview"))[0] == 200
                    for path in ("/jobs/overview", f"/jobs/{JOB}", "/taskmanagers"):
                        assert (await w.get(path))[0] == 200
                    assert (await w.get(f"/jobs/{JOB}"))[1]["state"] == "RUNNING"
            finally:
                goes_on.set()

    run(scenario())


NOTHING_OUTLIVES = {"high-availability.type": "NONE"}


def test_a_job_whose_jobmaster_is_silent_fails_where_nothing_outlives_it() -> None:
    async def scenario() -> None:
        async with world(
            options={**NOTHING_OUTLIVES, "heartbeat.interval": "50 ms", "heartbeat.timeout": "300 ms"}
        ) as w:
            await w.submit()
            w.host.silent = True
            result = await w.rest.execution_result(JOB, 40_000)
            assert result is not None
            assert "no sign of life" in result["failure-cause"]["stack-trace"]

    run(scenario())


def test_a_job_whose_jobmaster_ended_fails_at_once_where_nothing_outlives_it() -> None:
    async def scenario() -> None:
        async with world(options=NOTHING_OUTLIVES) as w:
            await w.submit()
            gateway = w.dispatcher()
            gateway.token = "of a Dispatcher that is long gone"  # a host knows no leader
            await gateway.jobmaster_lost(m.JobMasterLost(JOB, "the process of the JobMaster was killed by signal 9"))
            await gateway.jobmaster_lost(m.JobMasterLost("f" * 32, "unknown"))
            result = await w.rest.execution_result(JOB, 40_000)
            assert result is not None
            assert "killed by signal 9" in result["failure-cause"]["stack-trace"]
            (cancel,) = [call for call in await w.jobmaster.wait_for("cancel")]
            assert cancel == {"by": ""}

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
            answer_status, answer = await w.get(path)
            assert answer_status == status
            assert isinstance(answer["errors"][0], str)

    run(scenario())
