"""Where the savepoints of a submitted job are to be, as services in other working directories understand it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from firesteel.client.job_client import ClusterJobClient
from firesteel.client.loop_thread import LoopThread
from tests.unit.client.test_progress import graph


class Rest:
    """Remembers the directories of the savepoints that it was to trigger."""

    def __init__(self) -> None:
        self.directories: list[str | None] = []

    async def trigger_savepoint(self, job_id: str, trigger_id: str, directory: str | None) -> None:
        self.directories.append(directory)

    async def stop(self, job_id: str, trigger_id: str, directory: str | None, *, drain: bool) -> None:
        self.directories.append(directory)

    async def savepoint_location(self, job_id: str, trigger_id: str) -> str:
        return "there"


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        (None, None),
        ("s3://bucket/savepoints", "s3://bucket/savepoints"),
        ("file:///savepoints", "file:///savepoints"),
        ("file:/savepoints", "file:/savepoints"),
        ("savepoints", str(Path.cwd() / "savepoints")),
    ],
)
def test_only_paths_are_made_absolute(directory: str | None, expected: str | None) -> None:
    rest, loop = Rest(), LoopThread("test")
    try:
        client = ClusterJobClient(graph(), cast(Any, rest), loop)
        client.trigger_savepoint(directory).result()
        client.stop_with_savepoint(False, directory).result()
    finally:
        loop.close()
    assert rest.directories == [expected, expected]
