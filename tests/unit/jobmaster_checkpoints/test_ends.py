"""What stays of checkpoints, and of sinks' files, when a job ends at a bad moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from firesteel.checkpoint import restore_point as restoring_module
from firesteel.checkpoint.store import CompletedCheckpointStore, MemoryCheckpointStore
from firesteel.core.errors import CheckpointStorageError
from firesteel.graph.job_archive import CLEAN_UP
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoints import completed as completed_module
from firesteel_jobmaster.checkpoints.work import Complete, Done, Recover, Work
from firesteel_jobmaster.checkpoints.worker import Call
from tests.archives import seen
from tests.unit.jobmaster import jobs
from tests.unit.jobmaster_checkpoints.test_of_job import CORRUPTED, Cluster, cluster, retained

NO_RESTART: dict[str, Any] = {"restart-strategy.type": "none"}
KEEPS: dict[str, Any] = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}
TAKEOVER: dict[str, Any] = {"recovers": True, "takeover": (1, "it was killed")}


class Away:
    """A storage that can't be read for a while, and a store whose answers come when the test says so."""

    def __init__(self, found: Cluster) -> None:
        self.unreadable = self.holds = False
        self.held: list[Done] = []
        self._found, self._inner = found, found.worker.do
        found.worker.do = self.do  # type: ignore[method-assign]

    def do(self, work: Work, call: Call | None = None) -> Done:
        if self.unreadable and isinstance(work, Recover):
            return Done(work, error=str(CheckpointStorageError("the storage is away")))
        done = self._inner(work)
        if self.holds and isinstance(work, Complete):
            self.held.append(done)
            return Done(type("Nothing", (), {})())
        return done

    def answer(self) -> None:
        self.holds = False
        self._found.do(self._found.core.checkpoint_work_done(self.held.pop()))


def predecessor(directory: Path, store: CompletedCheckpointStore) -> None:
    """A JobMaster that is lost after two checkpoints."""
    first = cluster(directory, store)
    first.advance(25)
    assert retained(directory) == ["chk-2"]


def follower(directory: Path, store: CompletedCheckpointStore, **more: Any) -> tuple[Cluster, Away]:
    found = Cluster(jobs.two_by_two(), directory, store, **{**NO_RESTART, **TAKEOVER, **more})
    away = Away(found)
    away.unreadable = True
    return found, away


def released(found: Cluster) -> set[int | None]:
    return {one.last_checkpoint for one in found.out if isinstance(one, do.ReleaseSlot)}


# -- a takeover while the storage can't be read


def test_a_takeover_waits_for_its_storage_for_as_long_as_it_takes(tmp_path: Path) -> None:
    store = MemoryCheckpointStore()
    predecessor(tmp_path, store)
    found, away = follower(tmp_path, store)
    found.start()
    found.advance(86_400)  # slot.request.timeout is 5 min, execution.checkpointing.timeout 10 min
    assert found.state == "RUNNING"
    assert retained(tmp_path) == ["chk-2"]
    away.unreadable = False
    found.advance(10)
    assert found.words()["V1/0"].endswith("_0_0 at 2")


def test_slots_that_never_come_fail_a_takeover_and_what_could_not_be_read_stays(tmp_path: Path) -> None:
    store = MemoryCheckpointStore()
    predecessor(tmp_path, store)
    found, _ = follower(tmp_path, store)
    found.do(found.core.start())
    found.do(found.core.resourcemanager_connected())
    found.advance(301)
    assert found.state == "FAILED"
    assert "slot.request.timeout" in seen(found.core)["failure"]["message"]
    assert seen(found.core)[CLEAN_UP] == "touch nothing"
    assert retained(tmp_path) == ["chk-2"]


def test_a_cancelled_takeover_removes_what_the_user_does_not_keep(tmp_path: Path) -> None:
    store = MemoryCheckpointStore()
    predecessor(tmp_path, store)
    found, _ = follower(tmp_path, store)
    found.start()
    found.do(found.core.cancel("by a test"))
    assert seen(found.core)[CLEAN_UP] == "remove"
    assert retained(tmp_path) == []


def test_a_checkpoint_that_does_not_fit_the_next_version_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryCheckpointStore()
    with monkeypatch.context() as older:
        for module in (completed_module, restoring_module):
            older.setattr(module, "KEY_HASH_VERSION", 0)
        predecessor(tmp_path, store)
    found, away = follower(tmp_path, store)
    away.unreadable = False
    found.start()
    assert found.state == "FAILED"
    assert seen(found.core)[CLEAN_UP] == "touch nothing"
    assert retained(tmp_path) == ["chk-2"]


# -- an end while a checkpoint is on its way into the store


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("keeps", [True, False])
def test_sinks_files_of_a_checkpoint_that_is_being_completed_stay_if_it_does(
    keeps: bool, before: int, tmp_path: Path
) -> None:
    found = cluster(tmp_path, **(KEEPS if keeps else {}))
    found.advance(10 * before + 5)
    away = Away(found)
    away.holds = True
    found.advance(10)
    assert len(away.held) == 1
    found.do(found.core.cancel("by a test"))
    assert found.state == "CANCELED"
    assert released(found) == {before + 1 if keeps else 0}
    away.answer()
    assert retained(tmp_path) == ([f"chk-{before + 1}"] if keeps else [])


def test_sinks_files_of_a_checkpoint_that_is_given_up_while_it_is_completed_go(tmp_path: Path) -> None:
    more = {
        **KEEPS,
        "execution.checkpointing.timeout": "2 s",
        "execution.checkpointing.tolerable-failed-checkpoints": "9",
    }
    found = cluster(tmp_path, **more)
    found.advance(15)
    away = Away(found)
    away.holds = True
    found.advance(8)
    assert len(away.held) == 1
    found.do(found.core.cancel("by a test"))
    assert released(found) == {1}
    away.answer()
    assert retained(tmp_path) == ["chk-1"]


def test_no_file_goes_when_a_damaged_checkpoint_fails_the_job(tmp_path: Path) -> None:
    """Its message asks for the file to be brought back: then the sinks' files are needed, too."""
    more: dict[str, Any] = {"execution.checkpointing.num-retained": "2"}
    found = Cluster(jobs.two_by_two(commits=True), tmp_path, MemoryCheckpointStore(), **more).start()
    found.advance(25)
    found.fail_a_task()
    found.advance(1)
    found.fail_a_task(CORRUPTED, "chk-2/x: its checksum is wrong")
    assert found.state == "FAILED"
    assert "No file of a checkpoint was removed" in seen(found.core)["failure"]["message"]
    assert retained(tmp_path) == ["chk-1", "chk-2"]
    assert released(found) == {None}
