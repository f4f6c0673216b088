"""Whole jobs whose checkpoints can't be written, read or removed: no result is lost or doubled, and they recover."""

from __future__ import annotations

import errno
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from firesteel.checkpoint.storage import CheckpointStorage, StorageParameters, load_checkpoint_storage
from firesteel.config import Settings
from tests.archives import job_archive
from tests.unit.checkpoint_faults.doubles import (
    AFTER,
    BEFORE,
    HALF,
    Faults,
    FaultyStorage,
    FaultyStore,
    system_faults,
)
from tests.unit.checkpoint_faults.whole_job import INTERVAL, PROCESSED, TIMEOUT, WholeJob
from tests.unit.ha.directories import checkpoint_store, kinds_of_records
from tests.unit.jobmaster.jobs import JOB


def inner(directory: Path) -> CheckpointStorage:
    settings = {
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "execution.checkpointing.data-inline-threshold": "1 bytes",
    }
    return load_checkpoint_storage(StorageParameters(JOB, Settings(settings)))


def troubled(directory: Path, faults: Faults) -> WholeJob:
    """A job whose storage and store have these faults."""
    store = FaultyStore(checkpoint_store(directory / "store"), faults)
    return WholeJob(directory, 7, 1, lambda: FaultyStorage(inner(directory), faults), store)


def through_its_life(job: WholeJob) -> None:
    """Checkpoints, slots that die, checkpoints, a JobMaster that dies, checkpoints, and the end."""
    job.until(lambda: len(job.completed) >= 2, "two checkpoints")
    job.kill_tasks()
    job.until(job.has_completed(1), "a checkpoint after a restart")
    job.kill_jobmaster()
    job.until(job.has_completed(1), "a checkpoint of the next JobMaster")
    job.to_end()


def test_nothing_goes_wrong(tmp_path: Path) -> None:
    job = troubled(tmp_path, Faults())
    through_its_life(job)
    assert job.attempts == 3
    assert job.left() == []
    assert kinds_of_records(tmp_path / "store") == {"writer"}


def _operations(directory: Path) -> list[str]:
    """All that storage and store do in such a life."""
    faults = Faults()
    through_its_life(troubled(directory, faults))
    return faults.seen


HOW = (BEFORE, AFTER, HALF)


def _each_operation_fails_once(tmp_path: Path, ways: Callable[[int], Sequence[str]]) -> None:
    seen = _operations(tmp_path / "well")
    assert {
        *("next_id", "prepare", "open_state_stream", "write", "close", "verify", "write_metadata", "add", "remove"),
        *("dispose", "open_state", "all", "read_metadata", "left_behind", "close_job", "clear"),
    } <= set(seen)
    happened: Counter[str] = Counter()
    for number in range(len(seen)):
        for how in ways(number):
            directory = tmp_path / f"{number}-{how}"
            faults = Faults({number}, how)
            job = troubled(directory, faults)
            through_its_life(job)
            happened.update(faults.happened)
            in_the_end = {"close_job", "clear", "dispose", "remove"}
            assert not job.left() or in_the_end & set(faults.happened), f"{faults.happened}: {job.left()} are left"
    assert set(happened) >= set(seen) - {"abort"}


def test_each_operation_of_storage_and_store_fails_once(tmp_path: Path) -> None:
    _each_operation_fails_once(tmp_path, lambda number: HOW[number % 3 : number % 3 + 1])


@pytest.mark.long
def test_each_operation_of_storage_and_store_fails_once_in_each_way(tmp_path: Path) -> None:
    _each_operation_fails_once(tmp_path, lambda number: HOW)


ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.EROFS, errno.ESTALE)


def some_of_each_kind(seen: Sequence[str], stride: int) -> list[int]:
    """Positions of every ``stride``-th call of each kind: rare calls are among them, too."""
    positions: defaultdict[str, list[int]] = defaultdict(list)
    for position, kind in enumerate(seen):
        positions[kind].append(position)
    return sorted(position for of_kind in positions.values() for position in of_kind[::stride])


@pytest.mark.parametrize("stride", [12, pytest.param(1, marks=pytest.mark.long)])
def test_each_call_of_the_system_fails_once(stride: int, tmp_path: Path) -> None:
    counted, store = Faults(), checkpoint_store(tmp_path / "well" / "store")
    with system_faults(tmp_path, counted, errno.EIO):
        through_its_life(WholeJob(tmp_path / "well", 7, 1, store=store))
    assert {"mkdir", "create", "write", "fsync", "link", "unlink", "rename", "stat", "open file"} <= set(counted.seen)
    for turn, position in enumerate(some_of_each_kind(counted.seen, stride)):
        directory = tmp_path / str(position)
        faults, store = Faults({position}, BEFORE), checkpoint_store(directory / "store")
        with system_faults(tmp_path, faults, ERRORS[turn % len(ERRORS)]):
            job = WholeJob(directory, 7, 1, store=store)
            through_its_life(job)
        assert faults.happened


@pytest.mark.parametrize("seed", range(6))
def test_storage_that_is_away_for_a_while(seed: int, tmp_path: Path) -> None:
    """Nothing can be written or read: the job goes on, and so do checkpoints when it is back."""
    faults = Faults()
    store = FaultyStore(checkpoint_store(tmp_path / "store"), faults)
    job = WholeJob(tmp_path, seed, 2, lambda: FaultyStorage(inner(tmp_path), faults), store)
    job.until(job.has_completed(1), "a checkpoint")
    faults.wrong, faults.how = range(10**9), [BEFORE, AFTER, HALF][seed % 3]
    if seed >= 3:
        job.kill_tasks()
    before = len(job.completed)
    for _ in range(30):
        job.round()
    assert len(job.completed) == before
    faults.wrong = ()
    job.until(job.has_completed(1), "a checkpoint when storage is back")
    job.to_end()
    assert job.left() == []


def test_storage_that_hangs_holds_up_no_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = WholeJob(tmp_path)
    job.until(job.has_completed(1), "a checkpoint")
    job.stalled = True
    before = PROCESSED[0]
    job.advance(INTERVAL)
    for _ in range(5):
        for _ in range(4):
            job.round()
        job.advance(TIMEOUT)
    assert job_archive(job.core)["checkpoints"]["counts"]["failed"] >= 4
    assert "(execution.checkpointing.timeout). The checkpoint storage has not answered" in caplog.text
    assert (job.state, job.attempts) == ("RUNNING", 1)
    assert PROCESSED[0] > before, "records have waited for the storage"
    job.stalled = False
    job.until(job.has_completed(1), "a checkpoint when storage answers again")
    job.to_end()
    assert job.left() == []


def test_a_read_only_directory_is_told_and_cured(tmp_path: Path) -> None:
    job = WholeJob(tmp_path)
    job.until(job.has_completed(1), "a checkpoint")
    with system_faults(tmp_path / "checkpoints", Faults(range(10**9)), errno.EROFS):
        before = len(job.completed)
        for _ in range(20):
            job.round()
        assert len(job.completed) == before
        failed = str(job_archive(job.core)["checkpoints"]["latest"]["FAILED"])
        assert "Read-only file system" in failed
        assert "execution.checkpointing.dir" in failed
    job.until(job.has_completed(1), "a checkpoint")
    job.to_end()
    assert job.left() == []


# -- lies


def short(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def gone(path: Path) -> None:
    path.unlink()


def changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("lie", [short, gone])
def test_state_that_was_not_written_in_full_is_found_before_the_checkpoint_counts(
    lie: Callable[[Path], None], tmp_path: Path
) -> None:
    lies = [False]
    job = WholeJob(
        tmp_path, 3, 2, lambda: FaultyStorage(inner(tmp_path), lie=lambda path: lie(path) if lies[0] else None)
    )
    job.until(job.has_completed(1), "a checkpoint")
    lies[0] = True
    before = list(job.completed)
    for _ in range(20):
        job.round()
    assert job.completed == before
    record = job_archive(job.core)["checkpoints"]["latest"]["FAILED"]
    assert "Failure to finalize checkpoint" in str(record)
    assert f"{tmp_path}/checkpoints/{JOB}/chk-" in str(record)
    lies[0] = False
    job.kill_tasks()
    job.to_end()


def liar(tmp_path: Path, **settings: str) -> tuple[WholeJob, list[bool]]:
    """A job whose state is changed after it was written, when the test says so; two checkpoints are kept."""
    lies = [False]

    def storage() -> CheckpointStorage:
        return FaultyStorage(inner(tmp_path), lie=lambda path: changed(path) if lies[0] else None)

    more: dict[str, Any] = {"execution.checkpointing.num-retained": "2", **settings}
    return WholeJob(tmp_path, 3, 2, storage, **more), lies


def _one_bad_one(job: WholeJob, lies: list[bool]) -> None:
    job.until(job.has_completed(2), "checkpoints")
    lies[0] = True
    job.until(job.has_completed(1), "a checkpoint that is bad")
    job.kill_tasks()
    lies[0] = False


def test_state_that_was_changed_is_found_at_the_restore_and_nothing_that_was_committed_is_repeated(
    tmp_path: Path,
) -> None:
    job, lies = liar(tmp_path)
    _one_bad_one(job, lies)
    job.until(lambda: job.ended, "the end")
    assert job.state == "FAILED"
    message = job.message()
    assert f"{tmp_path}/checkpoints/{JOB}/chk-3/" in message
    assert "checksum" in message
    assert "what its sinks (number) have committed, or given to the program, since would be repeated" in message
    assert f"{tmp_path}/checkpoints/{JOB}/chk-2/_metadata (-s on the command line)" in message
    assert "firesteel.state-recovery.fall-back" in message
    job.rest()
    assert {"chk-2", "chk-3"} == {path.split("/")[1] for path in job.left()}
    assert Counter(job.shelf.visible) <= job.expected


def test_a_job_that_allows_it_goes_on_from_the_checkpoint_before(tmp_path: Path) -> None:
    job, lies = liar(tmp_path, **{"firesteel.state-recovery.fall-back": "ALWAYS"})
    _one_bad_one(job, lies)
    job.until(lambda: job.ended, "the end")
    assert job.state == "FINISHED", job.message()
    assert Counter(job.shelf.visible) >= job.expected
    assert job_archive(job.core)["checkpoints"]["restored"]["id"] == 2


def test_a_job_that_allows_no_older_checkpoint_gets_none(tmp_path: Path) -> None:
    more = {"firesteel.state-recovery.fall-back": "NEVER", "execution.checkpointing.mode": "AT_LEAST_ONCE"}
    job, lies = liar(tmp_path, **more)
    _one_bad_one(job, lies)
    job.until(lambda: job.ended, "the end")
    assert job.state == "FAILED"
    assert "firesteel.state-recovery.fall-back is NEVER" in job.message()


def test_at_least_once_may_repeat(tmp_path: Path) -> None:
    job, lies = liar(tmp_path, **{"execution.checkpointing.mode": "AT_LEAST_ONCE"})
    _one_bad_one(job, lies)
    job.until(lambda: job.ended, "the end")
    assert job.state == "FINISHED", job.message()
    assert Counter(job.shelf.visible) >= job.expected


def test_metadata_that_are_lost_are_no_reason_to_repeat_results_either(tmp_path: Path) -> None:
    more: dict[str, Any] = {"execution.checkpointing.num-retained": "2"}
    job = WholeJob(tmp_path, **more)
    job.until(job.has_completed(3), "checkpoints")
    last = tmp_path / "checkpoints" / JOB / f"chk-{job.completed[-1]}" / "_metadata"
    short(last)
    job.kill_jobmaster()
    job.until(lambda: job.ended, "the end")
    assert job.state == "FAILED"
    assert f"{last}: it is cut off: 1 of" in job.message()
    job.rest()
    assert f"{JOB}/{last.parent.name}/_metadata" in job.left()
    assert Counter(job.shelf.visible) <= job.expected
