"""Whether checkpoints can be written is looked at before a job begins that has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from firesteel.checkpoint.filesystem import DirectoryCheckpointStorage
from firesteel.core.errors import CheckpointStorageError, ConfigurationError
from tests.unit.checkpoint_faults.test_faults import inner
from tests.unit.checkpoint_faults.whole_job import WholeJob


def test_a_job_that_can_take_no_checkpoints_does_not_begin(tmp_path: Path) -> None:
    refused = ConfigurationError("there is no bucket 'x'")
    with mock.patch.object(DirectoryCheckpointStorage, "check", side_effect=refused):
        job = WholeJob(tmp_path, 7, 1, lambda: inner(tmp_path))
        job.kill_jobmaster()  # the next one looks what there is
        job.until(lambda: job.ended, "the end")
    assert job.state == "FAILED"
    assert "The job can't take checkpoints: there is no bucket 'x'" in job.message()
    assert job.completed == []


@pytest.mark.parametrize("directory", ["s3://bucket/checkpoints", "/checkpoints"])
def test_object_stores_are_looked_at_by_the_first_jobmaster_too(tmp_path: Path, directory: str) -> None:
    refused = ConfigurationError("there is no bucket 'x'")
    more: dict[str, Any] = {"execution.checkpointing.dir": directory}
    with mock.patch.object(DirectoryCheckpointStorage, "check", side_effect=refused) as check:
        job = WholeJob(tmp_path, 7, 1, lambda: inner(tmp_path), **more)
        job.until(lambda: job.ended, "the end")
    looked = directory.startswith("s3:")
    assert check.call_count == int(looked)
    assert job.state == ("FAILED" if looked else "FINISHED")


def test_a_storage_that_is_away_is_no_reason_not_to_begin(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    away = CheckpointStorageError("nobody answers")
    with mock.patch.object(DirectoryCheckpointStorage, "check", side_effect=away):
        job = WholeJob(tmp_path, 7, 1, lambda: inner(tmp_path))
        job.kill_jobmaster()
        job.until(job.has_completed(1), "a checkpoint")
        job.to_end()
    assert "checkpoints can't be written for now: nobody answers" in caplog.text


def test_a_job_that_has_a_checkpoint_goes_on_whatever_is_wrong(tmp_path: Path) -> None:
    job = WholeJob(tmp_path, 7, 1, lambda: inner(tmp_path))
    job.until(job.has_completed(1), "a checkpoint")
    with mock.patch.object(DirectoryCheckpointStorage, "check", side_effect=ConfigurationError("no")) as check:
        job.kill_jobmaster()
        job.until(job.has_completed(1), "a checkpoint of the next JobMaster")
        job.to_end()
    assert check.call_count == 0
