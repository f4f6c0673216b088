"""What a Dispatcher writes for history servers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from firesteel.config import Settings
from firesteel.rest.job_archives import JobArchive
from firesteel_dispatcher.archiving import Archiver

JOB = "ab" * 16


def test_an_archive_has_no_secrets(tmp_path: Path) -> None:
    secrets = {"s3.secret-key": "of-the-job", "s3.endpoint": "http://store"}
    settings = Settings({"jobmanager.archive.fs.dir": str(tmp_path), "s3.secret-key": "of-the-cluster"})

    async def write() -> None:
        def spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
            return asyncio.create_task(work, name=name)

        archiver = Archiver(settings, spawn)
        archiver.ended(JOB, {"jid": JOB, "end-time": 5, "vertices": [], "config": secrets})
        await archiver.drain()

    asyncio.run(write())
    content = (tmp_path / f"{JOB}.archive").read_bytes()
    assert b"of-the-" not in content
    decoded = JobArchive.decode(content)
    assert decoded.archive["config"] == {"s3.secret-key": "******", "s3.endpoint": "http://store"}
    assert decoded.config["s3.secret-key"] == "******"
