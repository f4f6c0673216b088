"""Every path of the history server, on a real archive: answers have the types that the reference has."""

from __future__ import annotations

import asyncio
import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from firesteel.core.clock import SystemClock
from firesteel.graph.execution_graph import ExecutionGraph
from firesteel.graph.job_archive import LOGS, archive_of
from firesteel.rest.endpoints import Endpoint, RestCall, answer_type, json_answer
from firesteel.rest.job_archives import DirectoryPlace, JobArchive
from firesteel_dispatcher.endpoints import ENDPOINTS as DISPATCHER_ENDPOINTS
from firesteel_historyserver.routes import ENDPOINTS
from firesteel_historyserver.shell import HistoryService, HistorySettings, UnknownArchiveError
from tests.unit.jobmaster.jobs import two_by_two

JOB = two_by_two().job_id
VERTEX = two_by_two().vertices[0].id
CHECKPOINT: dict[str, Any] = {
    "id": 1, "trigger": 1000, "status": "COMPLETED", "ended": 1500, "message": "", "location": "/c/chk-1",
    "discarded": False, "tasks": {VERTEX: {"subtasks": 2, "acknowledged": {"0": [1300, *range(9)]}}},
}  # fmt: skip
CHECKPOINTS: dict[str, Any] = {
    "counts": {"restored": 0, "total": 1, "in_progress": 0, "completed": 1, "failed": 0},
    "history": [CHECKPOINT], "latest": {"COMPLETED": CHECKPOINT}, "restored": None,
    "config": {
        "interval": 10.0, "at_least_once": False, "unaligned": True, "aligned_timeout": 2.0, "timeout": 600.0,
        "min_pause": 0.5, "max_concurrent": 1, "tolerable_failures": 2, "retention": "RETAIN_ON_CANCELLATION",
        "after_tasks_finish": True, "storage": "filesystem", "backend": "hashmap",
    },
}  # fmt: skip
PATH: dict[str, Any] = {
    "job_id": JOB, "application_id": JOB, "vertex_id": VERTEX, "subtask": 1, "attempt": 0, "checkpoint_id": 1,
    "taskmanager_id": "tm", "rescale_id": "1" * 32,
}  # fmt: skip


async def service_with_archive(folder: Path) -> HistoryService:
    archive = {
        **archive_of(ExecutionGraph(two_by_two(), SystemClock())),
        "checkpoints": CHECKPOINTS,
        "firesteel-settings": {"parallelism.default": {"value": "2", "origin": "program"}},
        LOGS: {"host": "h", "jobmaster": "/logs/jm.log"},
    }
    environment = {"jvm": {"version": "Python", "arch": "x", "options": []}, "classpath": []}
    place = DirectoryPlace(folder)
    place.write(JOB, JobArchive(JOB, 17, archive, environment, {"rest.port": "1"}).encode())
    service = HistoryService([place], HistorySettings(taskmanager_logs="http://logs/<jobid>/<tmid>"), SystemClock())
    await service.look()
    return service


def call(endpoint: Endpoint) -> RestCall:
    """A request to an endpoint that names parts of the archive, with default parameters."""
    path = {part: PATH[part] for part in endpoint.parts}
    return RestCall(None, path, {parameter.name: parameter.default for parameter in endpoint.query})  # type: ignore[arg-type]


SHOWN = [endpoint for endpoint in ENDPOINTS if "rescale_id" not in endpoint.parts]  # the job was not rescaled


@pytest.mark.parametrize("endpoint", SHOWN, ids=lambda endpoint: endpoint.path)
def test_an_answer_has_the_type_that_its_handler_says(endpoint: Endpoint, tmp_path: Path) -> None:
    async def answer() -> Any:
        return await endpoint.handle(await service_with_archive(tmp_path), call(endpoint))

    shown = json.loads(json_answer(asyncio.run(answer())).text or "")
    assert msgspec.convert(shown, endpoint.answer) == shown, "the type has all of its fields"


def test_a_job_without_an_archive_is_unknown(tmp_path: Path) -> None:
    async def answers() -> None:
        service = await service_with_archive(tmp_path)
        for endpoint in ENDPOINTS:
            if {"job_id", "application_id"} & set(endpoint.parts):
                request = call(endpoint)
                request = replace(request, path={**request.path, "job_id": "f" * 32, "application_id": "f" * 32})
                with pytest.raises(UnknownArchiveError):
                    await endpoint.handle(service, request)

    asyncio.run(answers())


class LockedPlace(DirectoryPlace):
    """Some archives in it belong to another user."""

    locked: frozenset[str] = frozenset()

    def read(self, job_id: str) -> bytes | None:
        if job_id in self.locked:
            raise PermissionError(errno.EACCES, "Permission denied", job_id)
        return super().read(job_id)


def test_an_archive_that_can_not_be_read_hides_no_other_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def shown() -> list[str]:
        await service_with_archive(tmp_path)
        place = LockedPlace(tmp_path)
        content = DirectoryPlace(tmp_path).read(JOB)
        assert content is not None
        archive = JobArchive.decode(content)
        for job_id in ("a" * 32, "b" * 32):
            place.write(job_id, replace(archive, job_id=job_id, archive={**archive.archive, "jid": job_id}).encode())
        place.locked = frozenset(list(place.listed())[:2])
        service = HistoryService([place], HistorySettings(), SystemClock())
        await service.look()
        await service.look()
        assert {row["jid"] for row in service.core.overviews()} == place.listed().keys() - place.locked
        place.locked = frozenset()
        await service.look()
        return [row["jid"] for row in service.core.overviews()]

    assert sorted(asyncio.run(shown())) == sorted([JOB, "a" * 32, "b" * 32])
    warnings = [record for record in caplog.records if "can't be read for now" in record.getMessage()]
    assert len(warnings) == 1, "once, and not at each look"


def test_paths_are_the_dispatchers() -> None:
    dispatcher = {endpoint.path: endpoint.answer for endpoint in DISPATCHER_ENDPOINTS if endpoint.method == "GET"}
    assert {endpoint.path: endpoint.answer for endpoint in ENDPOINTS}.items() <= dispatcher.items()


def test_a_handler_has_to_say_what_it_answers() -> None:
    async def silent(_: Any, __: RestCall) -> Any: ...

    with pytest.raises(TypeError, match="return type"):
        answer_type(silent)
