"""Archives of ended jobs in a real MinIO: a Dispatcher writes them, a history server finds, shows and removes them."""

from __future__ import annotations

import asyncio

import pytest

from firesteel.client import embedded
from firesteel.config import Settings
from firesteel.core.clock import SystemClock
from firesteel.rest.archive_cache import Archive
from firesteel.rest.job_archives import open_place
from firesteel_historyserver.core import ArchiveRetention
from firesteel_historyserver.shell import HistoryService, HistorySettings, UnknownArchiveError
from tests.integration.embedded.programs import ended, new_environment
from tests.servers.minio.server import BUCKET, MinioServer
from tests.waiting import wait_until

PLACE = f"s3://{BUCKET}/of/jobs"


def test_a_job_that_ended_is_shown_from_the_bucket_until_it_has_expired(minio: MinioServer) -> None:
    settings = {**minio.settings(), "jobmanager.archive.fs.dir": PLACE}
    settings.pop("execution.checkpointing.dir")
    try:
        options = {key.replace(".", "__").replace("-", "_"): value for key, value in settings.items()}
        env = new_environment(1, **options)
        env.from_collection([1, 2, 3]).map(lambda number: number + 1).name("more").print()
        job = env.execute_async("in the bucket")
        assert ended(job) == "FINISHED"
        job_id = str(job.get_job_id())
        place = open_place(PLACE, "jobmanager.archive.fs.dir", Settings(settings))
        wait_until(lambda: job_id in place.listed(), "the archive is there")
    finally:
        embedded.stop_embedded_cluster()
    service = HistoryService([place], HistorySettings(), SystemClock())
    archived = asyncio.run(looked(service, job_id))
    assert (archived["name"], archived["state"]) == ("in the bucket", "FINISHED")
    (vertex,) = archived["vertices"]
    assert [row["status"] for row in vertex["subtasks"]] == ["FINISHED"]
    assert minio.settings()["s3.secret-key"] not in str(archived), "secrets are stars"
    short = HistoryService([place], HistorySettings(retention=ArchiveRetention(age_ms=1)), SystemClock())
    with pytest.raises(UnknownArchiveError):
        asyncio.run(looked(short, job_id))
    assert place.listed() == {}


async def looked(service: HistoryService, job_id: str) -> Archive:
    """What a history server shows after it has looked once."""
    await service.look()
    job = await service.archive_of(job_id)
    return await service.archive_of(job_id, job["vertices"][0]["id"])
