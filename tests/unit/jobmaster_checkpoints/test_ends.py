"""What stays of checkpoints, and of sinks' files, when a job ends at a bad moment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from firesteel.checkpoint import closing as closing_module
from firesteel.checkpoint import metadata as metadata_module
from firesteel.checkpoint.store import CompletedCheckpointStore, MemoryCheckpointStore
from firesteel.core.errors import CheckpointStorageError
from firesteel.graph.job_archive import CLEAN_UP
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoint_work import Complete, Recover, Work, WorkResult
from firesteel_jobmaster.checkpoints.coordinator import END_SECONDS, LATE_SECONDS
from firesteel_jobmaster.checkpoints.pending import SavepointTarget
from firesteel_jobmaster.checkpoints.worker import AbandonableCall
from tests.archives import job_archive
from tests.unit.jobmaster import jobs
from tests.unit.jobmaster_checkpoints.test_of_job import CORRUPTED, Cluster, cluster, retained

FOREIGN = "firesteel.core.errors.CheckpointVersionError"
AWAY = "firesteel.core.errors.StateAwayError"
NO_RESTART: dict[str, Any] = {"restart-strategy.type": "none"}
KEEPS: dict[str, Any] = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}
TAKEOVER: dict[str, Any] = {"recovers": True, "takeover": (1, "it was killed")}


class Away:
    """A storage that can't be read for a while, and a store whose answers come when the test says so."""

    def __init__(self, job_cluster: Cluster) -> None:
        self.unreadable = self.holds = False
        self.results: list[WorkResult] = []
        self._found, self._inner = job_cluster, job_cluster.worker.do
        job_cluster.worker.do = self.do  # type: ignore[method-assign]

    def do(self, work: Work, call: AbandonableCall | None = None) -> WorkResult:
        if self.unreadable and isinstance(work, Recover):
            return WorkResult(work, error=str(CheckpointStorageError("the storage is away")))
        done = self._inner(work)
        if self.holds and isinstance(work, Complete):
            self.results.append(done)
            return WorkResult(type("Nothing", (), {})())
        return done

    def answer(self) -> None:
        self.holds = False
        self._found.do(self._found.core.checkpoint_work_done(self.results.pop()))

    def lose(self) -> None:
        """The store has done what it was asked for, and its answer is lost."""
        self.results.append(replace(self.results.pop(), error="no answer", hung=True))
        self.answer()


def predecessor(directory: Path, store: CompletedCheckpointStore) -> None:
    """A JobMaster that is lost after two checkpoints."""
    first = cluster(directory, store)
    first.advance(25)
    assert retained(directory) == ["chk-2"]


def follower(directory: Path, store: CompletedCheckpointStore, **more: Any) -> tuple[Cluster, Away]:
    job_cluster = Cluster(jobs.two_by_two(), directory, store, **{**NO_RESTART, **TAKEOVER, **more})
    away = Away(job_cluster)
    away.unreadable = True
    return job_cluster, away


def completing(directory: Path, before: int, **more: Any) -> tuple[Cluster, Away]:
    """A checkpoint is being completed, behind so many others."""
    job_cluster = cluster(directory, **more)
    job_cluster.advance(10 * before + 5)
    away = Away(job_cluster)
    away.holds = True
    job_cluster.advance(10)
    assert len(away.results) == 1
    return job_cluster, away


def last_location(job_cluster: Cluster) -> str:
    """The directory of the last complete checkpoint, as the archive says it."""
    return Path(job_archive(job_cluster.core)["checkpoints"]["latest"]["COMPLETED"]["location"]).parent.name


def released(job_cluster: Cluster) -> set[int | None]:
    return {instruction.last_checkpoint for instruction in job_cluster.out if isinstance(instruction, do.ReleaseSlot)}


# -- a takeover while the storage can't be read


def test_a_takeover_waits_for_its_storage_for_as_long_as_it_takes(tmp_path: Path) -> None:
    store = MemoryCheckpointStore()
    predecessor(tmp_path, store)
    job_cluster, away = follower(tmp_path, store)
    job_cluster.start()
    job_cluster.advance(7_200)  # slot.request.timeout is 5 min, execution.checkpointing.timeout 10 min
    assert job_cluster.state == "RUNNING"
    assert retained(tmp_path) == ["chk-2"]
    away.unreadable = False
    job_cluster.advance(10)
    assert job_cluster.words()["V1/0"].endswith("_0_0 at 2")


def test_a_takeover_waits_for_the_mount_of_its_checkpoints(tmp_path: Path) -> None:
    """An empty mount point says nothing about the checkpoints; a file that is missing beside others does."""
    store, mount = MemoryCheckpointStore(), tmp_path / "mount"
    predecessor(mount, store)
    mount.rename(tmp_path / "unmounted")
    mount.mkdir()
    job_cluster, away = follower(mount, store)
    away.unreadable = False
    job_cluster.start()
    job_cluster.advance(3600)
    assert job_cluster.state == "RUNNING", job_archive(job_cluster.core)["failure"]
    assert not any(isinstance(instruction, do.SubmitSlot) for instruction in job_cluster.out), (
        "nothing may begin without its state"
    )
    assert list(mount.iterdir()) == [], "nothing is written into the mount point"
    mount.rmdir()
    (tmp_path / "unmounted").rename(mount)
    job_cluster.advance(10)
    assert job_cluster.words()["V1/0"].endswith("_0_0 at 2")


def test_slots_that_never_come_fail_a_takeover_and_what_could_not_be_read_stays(tmp_path: Path) -> None:
    store = MemoryCheckpointStore()
    predecessor(tmp_path, store)
    job_cluster, _ = follower(tmp_path, store)
    job_cluster.do(job_cluster.core.start())
    job_cluster.do(job_cluster.core.resourcemanager_connected())
    job_cluster.advance(301)
    assert job_cluster.state == "FAILED"
    assert "slot.request.timeout" in job_archive(job_cluster.core)["failure"]["message"]
    assert job_archive(job_cluster.core)["checkpoints"]["unread"], "nobody may take it for a job without checkpoints"
    assert job_archive(job_cluster.core)[CLEAN_UP] == "touch nothing"
    assert retained(tmp_path) == ["chk-2"]


def test_a_cancelled_takeover_removes_what_the_user_does_not_keep(tmp_path: Path) -> None:
    store = MemoryCheckpointStore()
    predecessor(tmp_path, store)
    job_cluster, _ = follower(tmp_path, store)
    job_cluster.start()
    job_cluster.do(job_cluster.core.cancel("by a test"))
    assert job_archive(job_cluster.core)[CLEAN_UP] == "remove"
    assert retained(tmp_path) == []


def test_a_takeover_waits_for_the_release_that_has_written_its_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that were hashed in another way, metadata of another version: the cluster's version is rolled forward."""
    store = MemoryCheckpointStore()
    predecessor(tmp_path, store)
    job_cluster, away = follower(tmp_path, store)
    away.unreadable = False
    monkeypatch.setattr(closing_module, "KEY_HASH_VERSION", 0)
    job_cluster.start()
    job_cluster.advance(7_200)
    monkeypatch.undo()
    monkeypatch.setattr(metadata_module, "VERSION", metadata_module.OLDEST)
    job_cluster.advance(7_200)
    assert job_cluster.state == "RUNNING", job_archive(job_cluster.core)["failure"]
    assert not any(isinstance(instruction, do.SubmitSlot) for instruction in job_cluster.out), (
        "nothing may begin without its state"
    )
    assert retained(tmp_path) == ["chk-2"]
    monkeypatch.undo()
    job_cluster.advance(10)
    assert job_cluster.words()["V1/0"].endswith("_0_0 at 2")


@pytest.mark.parametrize("lost", [False, True])
def test_what_a_user_begins_with_is_refused_at_once_or_waited_for_behind_a_lost_jobmaster(
    lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predecessor(tmp_path / "before", MemoryCheckpointStore())
    (path,) = (tmp_path / "before").glob("*/chk-2")
    more = {**NO_RESTART, "execution.state-recovery.path": str(path), **(TAKEOVER if lost else {})}
    job_cluster = Cluster(jobs.two_by_two(), tmp_path / "c", MemoryCheckpointStore(), **more)
    monkeypatch.setattr(metadata_module, "VERSION", metadata_module.OLDEST)
    job_cluster.start()
    if not lost:
        message = job_archive(job_cluster.core)["failure"]["message"]
        assert job_cluster.state == "FAILED", "its user is there, and can name another one"
        assert f"{path}/_metadata: it is of version 3" in message
        assert "go on with the version that wrote it" in message
        return
    job_cluster.advance(7_200)
    assert job_cluster.state == "RUNNING", job_archive(job_cluster.core)["failure"]
    monkeypatch.undo()
    job_cluster.advance(10)
    assert job_cluster.words()["V1/0"].endswith("_0_0 at 2")


def test_a_host_that_can_not_read_state_uses_up_no_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Restarts follow in growing pauses, whatever the strategy; a function that raises still ends the job."""
    job_cluster = cluster(tmp_path, **NO_RESTART)
    job_cluster.advance(15)
    reason = "the state of a task can't be read on host-b: /mnt is empty on host-b: is its file system mounted?"
    begun = job_cluster.clock.monotonic()
    pauses = []
    while job_cluster.clock.monotonic() - begun < 300:
        job_cluster.fail_a_task(AWAY, reason, kind="external")
        assert job_cluster.state == "RESTARTING"
        failed = job_cluster.clock.monotonic()
        while job_cluster.state == "RESTARTING":
            job_cluster.advance(0.5)
        pauses.append(job_cluster.clock.monotonic() - failed)
        job_cluster.advance(0.1)
    assert pauses[:5] == pytest.approx([1, 2, 4, 8, 16], abs=0.5)
    assert pauses[5:] == pytest.approx([30] * len(pauses[5:]), abs=0.5)
    assert len(pauses) > 9
    assert reason in caplog.text
    job_cluster.advance(600)
    job_cluster.fail_a_task(AWAY, reason, kind="external")
    job_cluster.advance(1.5)
    assert job_cluster.state == "RUNNING", "it begins with short pauses again"
    job_cluster.fail_a_task()
    assert job_cluster.state == "FAILED"


def test_tasks_whose_state_another_release_has_written_wait_for_it_and_fail_only_what_a_user_begins(
    tmp_path: Path,
) -> None:
    job_cluster = cluster(tmp_path / "c", **NO_RESTART)
    job_cluster.advance(15)
    job_cluster.fail_a_task(FOREIGN, "file sink: state of version 2 was written by a later release", kind="external")
    assert job_cluster.state == "RESTARTING"
    job_cluster.advance(1.5)
    assert job_cluster.words()["V1/0"].endswith("_0_0 at 1")
    (path,) = (tmp_path / "c").glob("*/chk-1")
    more = {**NO_RESTART, "execution.state-recovery.path": str(path)}
    begun = Cluster(jobs.two_by_two(), tmp_path / "d", MemoryCheckpointStore(), **more).start()
    begun.fail_a_task(FOREIGN, "file sink: state of version 2 was written by a later release", kind="external")
    begun.advance(60)
    assert begun.state == "FAILED"
    assert "written by a later release" in job_archive(begun.core)["failure"]["message"]


# -- an end while a checkpoint is on its way into the store


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("cancelled", [True, False])
def test_a_job_that_keeps_its_checkpoints_ends_when_the_one_that_is_being_completed_is(
    cancelled: bool, before: int, tmp_path: Path
) -> None:
    job_cluster, away = completing(tmp_path, before, **KEEPS, **NO_RESTART)
    if cancelled:
        job_cluster.do(job_cluster.core.cancel("by a test"))
    else:
        job_cluster.fail_a_task()
    assert job_cluster.state == ("CANCELLING" if cancelled else "FAILING")
    away.answer()
    assert job_cluster.state == ("CANCELED" if cancelled else "FAILED")
    assert released(job_cluster) == {before + 1}
    assert retained(tmp_path) == [f"chk-{before + 1}"]
    assert last_location(job_cluster) == f"chk-{before + 1}"


@pytest.mark.parametrize("stored", [True, False])
def test_a_checkpoint_whose_completion_nobody_hears_of_is_taken_back_behind_the_end(
    stored: bool, tmp_path: Path
) -> None:
    """What the job has shown as its last one when it ended is what is there in the end."""
    job_cluster, away = completing(tmp_path, 1, **KEEPS)
    job_cluster.do(job_cluster.core.cancel("by a test"))
    job_cluster.advance(END_SECONDS - 1)
    assert job_cluster.state == "CANCELLING"
    job_cluster.advance(1)
    assert job_cluster.state == "CANCELED"
    assert released(job_cluster) == {1}
    assert last_location(job_cluster) == "chk-1"
    away.answer() if stored else away.lose()
    assert retained(tmp_path) == ["chk-1"]
    assert [entry.checkpoint_id for entry in job_cluster.worker.store.all()] == []
    assert last_location(job_cluster) == "chk-1"
    assert job_archive(job_cluster.core)["checkpoints"]["counts"]["in_progress"] == 0


def test_a_checkpoint_that_would_not_stay_holds_up_no_end(tmp_path: Path) -> None:
    job_cluster, away = completing(tmp_path, 1)
    job_cluster.do(job_cluster.core.cancel("by a test"))
    assert job_cluster.state == "CANCELED"
    assert released(job_cluster) == {0}
    assert job_archive(job_cluster.core)["checkpoints"]["counts"]["in_progress"] == 0
    away.answer()
    assert not list(tmp_path.iterdir())


def test_a_savepoint_that_is_being_completed_is_the_users_also_when_the_job_is_cancelled(tmp_path: Path) -> None:
    job_cluster = cluster(tmp_path / "c")
    job_cluster.advance(5)
    away = Away(job_cluster)
    away.holds = True
    job_cluster.do(job_cluster.core.trigger_savepoint("mine", SavepointTarget(str(tmp_path / "s"))))
    job_cluster.do(job_cluster.core.cancel("by a test"))
    assert job_cluster.state == "CANCELLING"
    away.answer()
    assert job_cluster.state == "CANCELED"
    assert job_archive(job_cluster.core)["checkpoints"]["triggers"]["mine"]["location"]
    assert len(list((tmp_path / "s").glob("*/_metadata"))) == 1


def test_an_acknowledgement_that_comes_again_behind_the_end_removes_nothing_that_stays(tmp_path: Path) -> None:
    job_cluster = cluster(tmp_path, **KEEPS)
    job_cluster.advance(15)
    job_cluster.do(job_cluster.core.cancel("by a test"))
    (metadata,) = tmp_path.glob("*/chk-1/_metadata")
    job_cluster.acknowledge(job_cluster.core.graph.executions()[0], 1)
    job_cluster.advance(2 * LATE_SECONDS)
    assert metadata.is_file()


def test_sinks_files_of_a_checkpoint_that_is_given_up_while_it_is_completed_go(tmp_path: Path) -> None:
    more = {
        **KEEPS,
        "execution.checkpointing.timeout": "2 s",
        "execution.checkpointing.tolerable-failed-checkpoints": "9",
    }
    job_cluster = cluster(tmp_path, **more)
    job_cluster.advance(15)
    away = Away(job_cluster)
    away.holds = True
    job_cluster.advance(8)
    assert len(away.results) == 1
    job_cluster.do(job_cluster.core.cancel("by a test"))
    assert job_cluster.state == "CANCELED"
    assert released(job_cluster) == {1}
    away.answer()
    assert retained(tmp_path) == ["chk-1"]


def test_no_file_goes_when_a_damaged_checkpoint_fails_the_job(tmp_path: Path) -> None:
    """Its message asks for the file to be brought back: then the sinks' files are needed, too."""
    more: dict[str, Any] = {"execution.checkpointing.num-retained": "2"}
    job_cluster = Cluster(jobs.two_by_two(commits=True), tmp_path, MemoryCheckpointStore(), **more).start()
    job_cluster.advance(25)
    job_cluster.fail_a_task()
    job_cluster.advance(1)
    job_cluster.fail_a_task(CORRUPTED, "chk-2/x: its checksum is wrong")
    assert job_cluster.state == "FAILED"
    assert "No file of a checkpoint was removed" in job_archive(job_cluster.core)["failure"]["message"]
    assert retained(tmp_path) == ["chk-1", "chk-2"]
    assert released(job_cluster) == {None}
