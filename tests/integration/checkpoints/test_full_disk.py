"""Checkpoints on a disk that is full, a real one: they fail, nothing wrong is used, and they come back with room."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.runtime.task import task as task_module
from tests.archives import job_archive
from tests.unit.checkpoint_faults.whole_job import OPEN, WholeJob

SIZE_KB = 512


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small file system of its own."""
    folder = Path(tempfile.mkdtemp(prefix="firesteel-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_KB}k,mode=0700", "firesteel-test", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        if not mounted:
            pytest.skip("only root can mount a small disk")
        yield folder
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


@pytest.fixture(autouse=True)
def _loops_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(task_module, "STEP_SECONDS", -1.0)
    yield
    while OPEN:
        OPEN.pop().close()


def fill(disk: Path, spare: int) -> Path:
    """All but so many bytes."""
    ballast = disk / "ballast"
    free = shutil.disk_usage(disk).free
    with ballast.open("wb") as file:
        file.write(bytes(max(0, free - spare)))
    return ballast


@pytest.mark.may_skip(reason="only root can mount a small disk")
@pytest.mark.parametrize("spare", [pytest.param(0, marks=pytest.mark.smoke), 4096, 8192])
def test_a_full_disk_fails_checkpoints_and_room_cures_it(
    spare: int, disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    more: dict[str, Any] = {"firesteel.state-recovery.fall-back": "NEVER"}
    job = WholeJob(disk, spare, 2, **more)
    job.until(job.has_completed(1), "a checkpoint")
    ballast = fill(disk, spare)
    job.until(lambda: job_archive(job.core)["checkpoints"]["counts"]["failed"] >= 2, "checkpoints fail")
    job.kill_tasks()
    before = len(job.completed)
    for _ in range(10):
        job.round()
    assert len(job.completed) == before
    assert "No space left on device" in caplog.text
    ballast.unlink()
    job.until(job.has_completed(1), "a checkpoint with room")
    job.kill_jobmaster()
    job.to_end()
    assert job.left() == []
