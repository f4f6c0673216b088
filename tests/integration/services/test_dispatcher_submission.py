"""``POST /jobs``: Flink's envelope, what is refused, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from firesteel.client.rest_client import RestClient
from firesteel.core.errors import GraphError, RpcError, UnauthorizedError
from firesteel.graph.chaining import client_versions
from firesteel.ha.disk import Disk
from firesteel.ha.payloads import DirectoryPayloads
from firesteel.protocol.message import RpcCode
from firesteel_dispatcher import jobmasters
from firesteel_dispatcher.shell import DispatcherService
from tests.integration.services.dispatcher_world import BEARER, BLOB, JOB, SHA, World, graph, run, world

JAVA = b"\xac\xed\x00\x05sr"
PLAN = json.dumps(graph().to_plain()).encode()


async def post(w: World, parts: list[tuple[str, str | None, bytes]], **options: Any) -> tuple[int, str]:
    """Send parts (name, file name, content); status and first error or the answer."""
    form = aiohttp.FormData(quote_fields=False)
    for name, file_name, content in parts:
        if file_name is None:
            form.add_field(name, content.decode(), content_type="application/json")
        else:
            form.add_field(name, content, filename=file_name, content_type="application/octet-stream")
    status, answer = await w.ask("POST", "/v1/jobs", data=form, headers=BEARER, **options)
    return status, answer["errors"][0] if "errors" in answer else json.dumps(answer)


def request(plan: str | None = "plan", **fields: Any) -> bytes:
    return json.dumps({**({"executionPlanFileName": plan} if plan else {}), **fields}).encode()


def nothing_left(w: World) -> bool:
    return (w.received(), w.stored("job"), w.stored("ended")) == ([], [], [])


ARTIFACT = [{"entryName": "chain", "fileName": "file-7"}]


@pytest.mark.parametrize(
    "parts",
    [
        [("request", None, request()), ("file_0", "plan", PLAN), ("file_1", SHA, BLOB)],
        [("file_1", SHA, BLOB), ("file_0", "plan", PLAN), ("request", "request.json", request())],
        [("request", None, request(jobArtifactFileNames=ARTIFACT)), ("a", "plan", PLAN), ("b", "file-7", BLOB)],
        [("request", None, request(None, jobGraphFileName="plan")), ("a", "plan", PLAN), ("b", SHA, BLOB)],
        [("request", None, request(jobJarFileNames=[], more=1)), ("a", "plan", PLAN), ("b", "any", BLOB)],
    ],
    ids=["as our client", "any order", "artifact of another name", "field of Flink 1", "named by content alone"],
)
def test_flinks_envelope_is_read(parts: list[tuple[str, str | None, bytes]]) -> None:
    async def scenario() -> None:
        async with world() as w:
            assert await post(w, parts) == (202, json.dumps({"jobUrl": f"/jobs/{JOB}"}))
            await w.jobmaster.wait_for("start_job")
            assert w.stored_blobs() == [SHA]
            assert w.received() == []

    run(scenario())


BAD: dict[str, tuple[list[tuple[str, str | None, bytes]], str]] = {
    "java": (
        [
            ("request", None, request(jobJarFileNames=["j.jar"])),
            ("a", "plan", b"\xac\xed\x00\x05sr"),
            ("b", "j.jar", b""),
        ],
        "Java-serialised object.*firesteel run",
    ),
    "jar": (
        [("request", None, request(jobJarFileNames=["j.jar"])), ("a", "plan", PLAN), ("b", "j.jar", b"PK")],
        "Java archives can't be run",
    ),
    "no request": ([("a", "plan", PLAN)], "no part 'request'"),
    "two requests": ([("request", None, request()), ("request", None, request())], "came twice"),
    "request no json": ([("request", None, b"{"), ("a", "plan", PLAN)], "'request' is not JSON"),
    "request a list": ([("request", None, b"[]"), ("a", "plan", PLAN)], "not a JSON object"),
    "no plan named": ([("request", None, b"{}"), ("a", "plan", PLAN)], "executionPlanFileName"),
    "plan missing": ([("request", None, request("other")), ("a", "plan", PLAN)], "plan 'other' is not among"),
    "plan no json": ([("request", None, request()), ("a", "plan", b"\x80\x04")], "the graph is not JSON"),
    "plan no graph": ([("request", None, request()), ("a", "plan", b"[]")], "a job graph is a JSON object"),
    "artifact missing": (
        [("request", None, request(jobArtifactFileNames=ARTIFACT)), ("a", "plan", PLAN)],
        "artifact 'file-7' is not among",
    ),
    "artifact malformed": (
        [("request", None, request(jobArtifactFileNames=["x"])), ("a", "plan", PLAN)],
        "no entryName or no fileName",
    ),
    "artifacts no list": ([("request", None, request(jobArtifactFileNames=7)), ("a", "plan", PLAN)], "not a list"),
    "a file twice": ([("request", None, request()), ("a", "plan", PLAN), ("b", "plan", PLAN)], "came twice"),
    "a blob twice": (
        [("request", None, request()), ("a", "plan", PLAN), ("b", SHA, BLOB), ("c", "again", BLOB)],
        "came twice",
    ),
}


def test_a_bad_envelope_is_refused_and_leaves_nothing() -> None:
    async def scenario() -> None:
        async with world() as w:
            for name, (parts, reason) in BAD.items():
                status, error = await post(w, parts)
                assert status == 400, (name, error)
                assert re.search(reason, error), (name, error)
                assert nothing_left(w), name
            assert (await w.get("/jobs"))[1] == {"jobs": []}

    run(scenario())


BAD_GRAPHS: list[tuple[dict[str, Any], dict[str, bytes], str]] = [
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
    (
        {"config": {"execution.shutdown-on-attached-exit": "true", "client.heartbeat.timeout": "soon"}},
        {SHA: BLOB},
        "client.heartbeat.timeout",
    ),
]


def test_a_bad_graph_is_refused_and_leaves_nothing() -> None:
    async def scenario() -> None:
        async with world() as w:
            for changed, blobs, reason in BAD_GRAPHS:
                with pytest.raises(GraphError, match=reason):
                    await w.rest.submit(replace(graph(), **changed), blobs)
                assert nothing_left(w), reason
            assert (await w.get("/jobs"))[1] == {"jobs": []}

    run(scenario())


def test_submissions_need_the_token_and_have_a_limit() -> None:
    async def scenario() -> None:
        async with world(options={"rest.server.max-content-length": "1 mb"}) as w:
            stranger = RestClient(w.service.rest.address, "wrong")
            try:
                with pytest.raises(UnauthorizedError, match="token is wrong"):
                    await stranger.submit(graph(), {SHA: BLOB})
            finally:
                await stranger.close()
            large = os.urandom(1 << 20)
            sha = hashlib.sha256(large).hexdigest()
            too_large = graph(blobs={SHA: len(BLOB), sha: len(large)})
            with pytest.raises((GraphError, RpcError), match="max-content-length"):
                await w.rest.submit(too_large, {SHA: BLOB, sha: large})

            async def chunks() -> Any:  # no Content-Length, as Flink's clients send it
                yield b'--x\r\nContent-Disposition: form-data; name="a"; filename="b"\r\n\r\n'
                for _ in range(64):
                    yield large[: 1 << 16]
                yield b"\r\n--x--\r\n"

            headers = {**BEARER, "Content-Type": "multipart/form-data; boundary=x"}
            assert (await w.ask("POST", "/jobs", data=chunks(), headers=headers))[0] == 413
            assert (await w.ask("POST", "/jobs", json={}, headers=BEARER))[0] == 400
            assert nothing_left(w)

    run(scenario())


class FullDisk(Disk):
    """Takes nothing while it is full."""

    def __init__(self, number: int = errno.ENOSPC) -> None:
        super().__init__(durable=True)
        self.number, self.full = number, False

    def write(self, path: Path, content: bytes) -> None:
        if self.full:
            raise OSError(self.number, os.strerror(self.number))
        super().write(path, content)

    def sync(self, path: Path) -> None:
        if self.full:
            raise OSError(self.number, os.strerror(self.number))
        super().sync(path)


def _on(disk: Disk, directory: Path) -> Any:
    def prepare(service: DispatcherService) -> None:
        services: Any = service.leadership.ha
        services.payloads = DirectoryPayloads(directory / "dispatcher", disk)

    return prepare


@pytest.mark.parametrize(("number", "status"), [(errno.ENOSPC, 507), (errno.EDQUOT, 507), (errno.EIO, 500)])
def test_what_the_disk_does_not_take_is_not_accepted(number: int, status: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FullDisk(number)
        async with world(cluster_directory=tmp_path, prepare=_on(disk, tmp_path)) as w:
            disk.full = True
            parts = [("request", None, request()), ("a", "plan", PLAN), ("b", SHA, BLOB)]
            answer_status, error = await post(w, parts)
            assert (answer_status, "Nothing of it is left" in error) == (status, True)
            assert ("the disk is full" in error) == (status == 507)
            assert nothing_left(w)
            assert (await w.get("/jobs"))[1] == {"jobs": []}
            disk.full = False
            assert (await post(w, parts))[0] == 202

    run(scenario())


def test_an_end_that_the_disk_does_not_take_is_asked_for_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FullDisk()
        async with world(cluster_directory=tmp_path, prepare=_on(disk, tmp_path)) as w:
            await w.submit()
            disk.full = True
            report = asyncio.gather(w.finish(), return_exceptions=True)
            result = await w.rest.execution_result(JOB, 40_000)
            assert result is not None, "clients need not wait for the disk"
            assert result["application-status"] == "SUCCEEDED"
            (refused,) = await report
            assert "could not be stored yet" in str(refused)
            assert w.stored("job") == [JOB]
            disk.full = False
            await w.finish()
            assert (w.stored("job"), w.stored("ended")) == ([], [JOB])

    run(scenario())


def test_a_host_that_fails_to_start_a_jobmaster_is_asked_again() -> None:
    async def scenario() -> None:
        async with world() as w:
            w.host.failing = 2
            await w.submit()
            await w.jobmaster.wait_for("start_job", 3)
            await w.jobmaster.wait_for("details")  # it is led
            assert len(w.jobmaster.of("start_job")) == 3

    run(scenario())


@pytest.mark.parametrize("code", [code for code in RpcCode if code is not RpcCode.REFUSED])
def test_whatever_a_host_answers_but_that_the_job_is_wrong_the_job_waits(
    code: RpcCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobmasters, "FIRST_PAUSE", 0.01)

    async def scenario() -> None:
        async with world() as w:
            w.host.failing, w.host.code = 7, code
            await w.submit()
            await w.jobmaster.wait_for("start_job", 7)
            await w.jobmaster.wait_for("details")  # it is led
            assert w.service.core.job(JOB).progress == ""

    run(scenario())


def test_a_job_that_the_host_refuses_fails_with_the_reason() -> None:
    async def scenario() -> None:
        async with world() as w:
            w.host.failing, w.host.code = 1000, RpcCode.REFUSED
            await w.submit()
            result = await w.rest.execution_result(JOB, 120_000)
            assert result is not None
            assert result["application-status"] == "FAILED"
            assert result["failure-cause"]["class"] == "firesteel.core.errors.GraphError"
            assert "no template" in str(result)
            assert len(w.jobmaster.of("start_job")) == 1

    run(scenario())


@pytest.mark.smoke
def test_many_clients_at_once() -> None:
    async def scenario() -> None:
        async with world() as w:
            jobs = [f"{number:032x}" for number in range(12)]

            async def client(job: str) -> Mapping[str, Any]:
                await w.rest.submit(graph(job), {SHA: BLOB})
                await w.rest.submit(graph(job), {SHA: BLOB})
                return (await w.get(f"/jobs/{job}"))[1]  # type: ignore[no-any-return]

            shown = await asyncio.gather(*map(client, jobs))
            assert len(shown) == 12
            await w.jobmaster.wait_for("start_job", 12)
            assert len(w.jobmaster.of("start_job")) == 12
            _, listed = await w.get("/jobs/overview")
            assert {job["jid"] for job in listed["jobs"]} <= {JOB}, "the recording JobMaster tells of one job"
            assert sorted(job["id"] for job in (await w.get("/jobs"))[1]["jobs"]) == jobs

    run(scenario())
