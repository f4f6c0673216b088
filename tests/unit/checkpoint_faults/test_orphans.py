"""What nobody goes on from is removed, once nobody else can; what somebody needs never is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from firesteel.checkpoint.closing import CleanUp, read_own
from firesteel.checkpoint.handles import FileState
from firesteel.checkpoint.metadata import CheckpointMetadata
from firesteel.core.errors import CheckpointStorageError
from firesteel_jobmaster.checkpoint_work import Close, Complete, Discard, Dispose, RemoveOrphans
from firesteel_jobmaster.checkpoints.worker import CheckpointWorker
from tests.archives import job_archive
from tests.unit.checkpoint_faults.doubles import Faults, FaultyStorage
from tests.unit.checkpoint_faults.test_bad_input import signed
from tests.unit.checkpoint_faults.test_faults import inner
from tests.unit.checkpoint_faults.whole_job import WholeJob
from tests.unit.ha.directories import checkpoint_store, edit_record
from tests.unit.jobmaster.jobs import JOB


def checkpoints_in(job: WholeJob) -> set[str]:
    return {path.split("/")[1] for path in job.left()}


def hold(job: WholeJob, kind: type[Any]) -> None:
    """Until work of a kind is next; it is not done."""
    job.held = (kind,)
    job.until(lambda: bool(job.work) and isinstance(job.work[0], kind), f"{kind.__name__} is to be done")


def dies_at(job: WholeJob, kind: type[Any], *, halfway: bool) -> None:
    """The JobMaster dies before a piece of work, or in it: storage has done its part, the store not, or vice versa."""
    hold(job, kind)
    work = job.work[0]
    if halfway and isinstance(work, Complete):
        job.worker.storage.write_metadata(work.metadata.checkpoint_id, work.metadata.to_bytes())
    elif halfway and isinstance(work, Dispose):
        job.store.remove(work.checkpoint_id)
    job.held = ()
    job.kill_jobmaster()


@pytest.mark.parametrize("halfway", [False, True])
@pytest.mark.parametrize("kind", [Complete, Dispose])
def test_what_a_jobmaster_that_died_has_left_is_collected(kind: type[Any], halfway: bool, tmp_path: Path) -> None:
    job = WholeJob(tmp_path)
    job.until(job.has_completed(1), "a checkpoint")
    dies_at(job, kind, halfway=halfway)
    left = checkpoints_in(job)
    assert len(left) == 2, "nothing is left of a checkpoint"
    job.until(lambda: job.attempt is not None, "tasks run again")
    for _ in range(3):
        job.round()
        assert checkpoints_in(job) >= left, "something is removed before the tasks run in slots of the next JobMaster"
    job.until(job.has_completed(1), "a checkpoint of the next JobMaster")
    job.until(lambda: not job.work, "all work is done")
    assert checkpoints_in(job) & left == set()
    job.to_end()
    assert job.left() == []


def test_state_of_a_checkpoint_that_was_under_way_is_collected(tmp_path: Path) -> None:
    job = WholeJob(tmp_path)
    job.until(job.has_completed(1), "a checkpoint")
    job.until(lambda: len(checkpoints_in(job)) > 1, "state of another one is written")
    orphans = checkpoints_in(job) - {f"chk-{job.completed[-1]}"}
    job.kill_jobmaster()
    assert checkpoints_in(job) >= orphans
    job.until(job.has_completed(1), "a checkpoint")
    job.until(lambda: not job.work, "all work is done")
    assert not checkpoints_in(job) & orphans


def test_what_could_not_be_removed_is_collected_by_the_same_jobmaster(tmp_path: Path) -> None:
    faults = Faults()
    job = WholeJob(tmp_path, 0, 2, lambda: FaultyStorage(inner(tmp_path), faults))
    job.until(job.has_completed(1), "a checkpoint")
    hold(job, Dispose)
    faults.wrong = {len(faults.seen)}
    job.held = ()
    job.until(lambda: not job.work, "all work is done")
    assert faults.happened == ["dispose"]
    assert len(checkpoints_in(job)) == 2
    job.until(job.has_completed(1), "a checkpoint")
    job.until(lambda: not job.work, "all work is done")
    assert checkpoints_in(job) == {f"chk-{job.completed[-1]}"}


def retained(tmp_path: Path) -> Path:
    """A checkpoint that somebody keeps."""
    keep: dict[str, Any] = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}
    first = WholeJob(tmp_path, **keep)
    first.until(first.has_completed(2), "checkpoints")
    first.do(first.core.cancel("by a test"))
    first.until(lambda: first.ended, "the end")
    first.rest()
    (name,) = checkpoints_in(first)
    return tmp_path / "checkpoints" / JOB / name


@pytest.mark.parametrize("start_from_it", [False, True])
def test_retained_checkpoints_of_an_earlier_run_with_the_same_id_stay(start_from_it: bool, tmp_path: Path) -> None:
    checkpoint = retained(tmp_path)
    target = checkpoint.with_name("chk-9" if not start_from_it else checkpoint.name)
    if target != checkpoint:  # its id is among those that the next run gives
        body = (
            (checkpoint / "_metadata")
            .read_bytes()
            .split(b"\n", 1)[1]
            .replace(str(checkpoint).encode(), str(target).encode())
        )
        plain = json.loads(body)
        plain.update(checkpoint_id=9, properties={**plain["properties"], "since_ms": 1})  # clocks do not go back
        shutil.move(checkpoint, target)
        (target / "_metadata").write_bytes(signed(json.dumps(plain).encode()))
    before = {path: path.read_bytes() for path in target.iterdir()}
    more: dict[str, Any] = {"execution.state-recovery.path": str(target)} if start_from_it else {}
    store = checkpoint_store(tmp_path / "store")
    if not start_from_it:
        store.next_id(10)
    job = WholeJob(tmp_path, store=store, **more)
    job.until(lambda: bool(job.completed), "a checkpoint")
    job.kill_jobmaster()
    job.until(job.has_completed(1), "a checkpoint of the next JobMaster")
    job.until(lambda: job.ended, "the end")
    job.rest()
    assert {path: path.read_bytes() for path in target.iterdir()} == before


def test_a_directory_that_is_not_the_jobs_alone_is_not_searched(tmp_path: Path) -> None:
    more: dict[str, Any] = {"execution.checkpointing.create-subdir": "false"}
    job = WholeJob(tmp_path, **more)
    stranger = tmp_path / "checkpoints" / "chk-0"
    stranger.mkdir(parents=True)
    (stranger / "state").write_bytes(b"of another job")
    job.until(job.has_completed(1), "a checkpoint")
    job.kill_jobmaster()
    job.until(job.has_completed(1), "a checkpoint of the next JobMaster")
    assert (stranger / "state").exists()


# -- files that several checkpoints need


def shared(tmp_path: Path) -> tuple[CheckpointWorker, CheckpointMetadata, CheckpointMetadata, FileState]:
    """Two checkpoints, the second of which names a file of the first one."""
    job = WholeJob(tmp_path)
    job.until(job.has_completed(1), "a checkpoint")
    job.rest()
    worker = job.worker
    (first,) = worker.store.all()
    metadata = read_own(worker.storage, JOB, first)
    base = next(handle for handle in metadata.handles() if isinstance(handle, FileState))
    plain = {**metadata.to_plain(), "checkpoint_id": 77}
    later = CheckpointMetadata.from_plain(plain)
    worker.storage.prepare(77)
    assert worker.do(Complete(later)).error is None
    return worker, metadata, later, base


def test_discarding_a_subsumed_checkpoint_removes_no_file_that_a_retained_one_needs(tmp_path: Path) -> None:
    worker, first, later, base = shared(tmp_path)
    location = str(Path(base.path).parent / "_metadata")
    dispose = Dispose(first.checkpoint_id, location, frozenset(first.files()), frozenset(later.files()))
    assert worker.do(dispose).error is None
    worker.storage.verify(later.handles())
    assert worker.do(Discard(first.checkpoint_id, frozenset(first.files()), frozenset(later.files()))).error is None
    worker.storage.verify(later.handles())
    assert worker.do(RemoveOrphans(100, later.since_ms)).error is None
    worker.storage.verify(later.handles())
    assert worker.do(Close((), CleanUp.KEEP)).error is None
    worker.storage.verify(later.handles())
    assert not Path(location).exists()


def test_what_could_not_be_removed_at_the_end_of_a_job_is_removed_by_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, first, _, base = shared(tmp_path)
    location = str(Path(base.path).parent / "_metadata")
    close = Close((Dispose(first.checkpoint_id, location, frozenset(first.files()), frozenset()),), CleanUp.REMOVE)

    def failing(*arguments: Any) -> None:
        raise CheckpointStorageError("not now")

    with monkeypatch.context() as broken:
        broken.setattr(worker.storage, "dispose", failing)
        assert worker.do(close).error == "not now"
    assert [entry.checkpoint_id for entry in worker.store.all()] == [first.checkpoint_id, 77]
    assert worker.do(close).error is None
    assert not (tmp_path / "checkpoints" / JOB).exists()
    assert not worker.store.all()


def test_a_number_that_another_run_has_used_is_not_used_again(tmp_path: Path) -> None:
    checkpoint = retained(tmp_path)
    before = {path: path.read_bytes() for path in checkpoint.iterdir()}
    job = WholeJob(tmp_path, store=checkpoint_store(tmp_path / "next store"))  # which counts from 1
    job.until(job.has_completed(2), "checkpoints")
    job.until(lambda: job.ended, "the end")
    job.rest()
    number = int(checkpoint.name.removeprefix("chk-"))
    assert number in range(min(job.completed), max(job.completed))
    assert number not in job.completed
    assert {path: path.read_bytes() for path in checkpoint.iterdir()} == before


def test_the_coordinator_spares_what_kept_checkpoints_need(tmp_path: Path) -> None:
    job = WholeJob(tmp_path)
    job.until(job.has_completed(1), "a checkpoint")
    completed = job.core.checkpoints.coordinator.completed
    spared = completed.sparing(Discard(99, frozenset({"x"})))
    assert isinstance(spared, Discard)
    assert spared.keep == {path for path in spared.keep if f"chk-{job.completed[-1]}/" in path} != set()


def test_nothing_is_collected_while_it_is_not_known_what_is_needed(tmp_path: Path) -> None:
    worker, first, later, _ = shared(tmp_path)
    edit_record(tmp_path / "store", "checkpoint.77", lambda line: line[:-3])
    worker.store.remove(first.checkpoint_id)
    done = worker.do(RemoveOrphans(100, later.since_ms))
    assert "damaged entries of the store" in str(done.error)
    worker.storage.verify(first.handles())


def test_two_tasks_that_can_not_read_one_checkpoint_count_as_one(tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "execution.checkpointing.num-retained": "3",
        "firesteel.state-recovery.fall-back": "ALWAYS",
    }
    job = WholeJob(tmp_path, **more)
    job.until(job.has_completed(3), "checkpoints")
    last, before = job.completed[-1], job.completed[-2]
    for path in (tmp_path / "checkpoints" / JOB / f"chk-{last}").iterdir():
        if path.name != "_metadata":
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)
    job.kill_tasks()
    job.until(job.has_completed(1), "a checkpoint after the restart")
    assert job_archive(job.core)["checkpoints"]["restored"]["id"] == before
