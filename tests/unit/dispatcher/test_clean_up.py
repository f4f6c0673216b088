"""What a JobMaster that died behind the end of its job has left of the job's checkpoints."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.checkpoint.closing import CleanUp
from firesteel.checkpoint.metadata import CheckpointMetadata
from firesteel.checkpoint.storage import CheckpointStorage, StorageParameters, load_checkpoint_storage
from firesteel.checkpoint.store import StoredCheckpoint
from firesteel.config import Settings, options
from firesteel.config.recovery_options import HA_STORAGE_DIRECTORY
from firesteel.core.errors import CheckpointStorageError
from firesteel.graph.job_archive import CLEAN_UP
from firesteel.ha.directory import DirectoryServices
from firesteel.ha.services import Leadership, of_job
from firesteel_dispatcher import clean_up
from firesteel_dispatcher.clean_up import CleanUps, Remains

JOB = "7" * 32
KEPT_FILES = {"chk-3/_metadata"}


class Left:
    """Checkpoint 3 of a job, which is complete, and 4, which is not; and who takes care of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkpoints"
        self.config = {options.CHECKPOINTING_DIRECTORY.key: str(self.folder)}
        self.cluster = Settings({HA_STORAGE_DIRECTORY.key: str(folder / "ha")})
        self.ha = DirectoryServices(self.cluster)
        leadership = self.ha.campaign(of_job(JOB))
        assert leadership is not None
        self.jobmaster: Any = leadership
        leadership.announce("http://127.0.0.1:1", "token")
        storage = self.storage()
        for number in (3, 4):
            storage.prepare(number)
        metadata = CheckpointMetadata(3, JOB, 5, ())
        store = self.ha.completed_checkpoints(JOB, leadership)
        store.add(StoredCheckpoint(3, storage.write_metadata(3, metadata.to_bytes())))
        self.stored, self.asked = True, 0
        self.clean_ups = CleanUps(self.ha, self.cluster, self._is_stored, self._spawn)
        self.tasks: list[asyncio.Task[None]] = []

    def storage(self) -> CheckpointStorage:
        return load_checkpoint_storage(StorageParameters(JOB, Settings(self.config)))

    def kill_jobmaster(self) -> None:
        """The kernel lets its lock go; nothing else happens."""
        while self.ha.cells._locks:
            _, lock = self.ha.cells._locks.popitem()
            os.close(lock)

    async def _is_stored(self, job_id: str, seconds: float) -> bool:
        assert job_id == JOB
        self.asked += 1
        return self.stored or self.asked > 3

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> Any:
        self.tasks.append(asyncio.get_running_loop().create_task(work, name=name))
        return self.tasks[-1]

    def run(self, how: CleanUp | None, before: Callable[[], None] = lambda: None) -> None:
        """The JobMaster was lost, as its host says."""

        async def main() -> None:
            before()
            self.clean_ups.ended(JOB, Remains.of(self.config, {} if how is None else {CLEAN_UP: str(how)}))
            self.clean_ups.start(JOB)
            self.clean_ups.start(JOB)
            await asyncio.gather(*self.tasks)
            assert len(self.tasks) == 1, "once is enough"

        asyncio.run(main())

    def files(self) -> set[str]:
        """Of the job's checkpoints; directories count as well."""
        folder = self.folder / JOB
        return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Left]:
    monkeypatch.setattr(clean_up, "FIRST_PAUSE", 0.0)
    left_behind = Left(tmp_path)
    yield left_behind
    left_behind.ha.close()


def test_checkpoints_are_removed_and_the_job_is_forgotten(left: Left) -> None:
    assert left.files() >= {"chk-3", "chk-3/_metadata", "chk-4"}
    left.kill_jobmaster()
    left.run(CleanUp.REMOVE)
    assert not (left.folder / JOB).exists()
    assert not left.ha.remembers_job(JOB)


def test_checkpoints_that_are_to_stay_stay(left: Left) -> None:
    left.kill_jobmaster()
    left.run(CleanUp.KEEP)
    assert {name for name in left.files() if "chk" in name} == {"chk-3", "chk-3/_metadata"}
    assert left.storage().read_metadata(str(left.folder / JOB / "chk-3"))[1].startswith(b"FIRESTEEL-CHECKPOINT")
    assert not left.ha.remembers_job(JOB)


@pytest.mark.parametrize("how", [CleanUp.TOUCH_NOTHING, None])
def test_nothing_is_touched_that_somebody_may_want_to_look_at(left: Left, how: CleanUp | None) -> None:
    before = left.files()
    left.kill_jobmaster()
    left.run(how)
    assert left.files() == before
    assert not left.ha.remembers_job(JOB)


def test_a_jobmaster_that_lives_is_left_alone_until_it_has_gone(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    before, file_sets = left.files(), list[set[str]]()
    campaign = left.ha.campaign

    def looks(component: str) -> Leadership | None:
        leadership = campaign(component)
        file_sets.append(left.files())
        if len(file_sets) == 2:
            left.jobmaster.check()  # it leads
            left.kill_jobmaster()
        return leadership

    monkeypatch.setattr(left.ha, "campaign", looks)
    left.run(CleanUp.REMOVE)
    assert file_sets == [before] * 3
    assert not (left.folder / JOB).exists()
    assert not left.ha.remembers_job(JOB)


def test_a_clean_up_that_ends_by_an_error_holds_nothing(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    left.kill_jobmaster()
    monkeypatch.setattr(clean_up, "load_checkpoint_storage", lambda parameters: 1 / 0)
    left.run(CleanUp.REMOVE)
    assert left.ha.campaign(of_job(JOB)) is not None


def test_what_is_clean_is_not_looked_at(left: Left) -> None:
    left.jobmaster.release()
    left.ha.forget_job(JOB)
    before = left.files()
    left.run(CleanUp.REMOVE)
    assert left.files() == before, "they may be those of a run with the same id"


def test_nothing_is_removed_before_the_end_is_safe(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    left.stored = False
    left.kill_jobmaster()
    campaigns: list[int] = []
    campaign = left.ha.campaign

    def counted(component: str) -> Leadership | None:
        campaigns.append(left.asked)
        return campaign(component)

    monkeypatch.setattr(left.ha, "campaign", counted)
    left.run(CleanUp.REMOVE)
    assert campaigns == [4]
    assert left.files() == set()


def test_a_storage_that_fails_is_asked_again_and_until_then_the_result_is_dirty(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    left.kill_jobmaster()
    storage, dirty = left.storage(), []
    close_job = storage.close_job

    def failing(keep: Any = ()) -> None:
        dirty.append(left.ha.remembers_job(JOB))
        if len(dirty) < 3:
            raise CheckpointStorageError("not now")
        close_job(keep)

    monkeypatch.setattr(storage, "close_job", failing)
    monkeypatch.setattr(clean_up, "load_checkpoint_storage", lambda parameters: storage)
    left.run(CleanUp.REMOVE)
    assert dirty == [True] * 3
    assert left.files() == set()
    assert not left.ha.remembers_job(JOB)


def test_a_checkpoint_that_could_not_be_removed_is_not_forgotten(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    left.kill_jobmaster()
    storage, tries = left.storage(), []
    dispose = storage.dispose

    def failing(*arguments: Any) -> None:
        tries.append(arguments)
        if len(tries) < 3:
            raise CheckpointStorageError("not now")
        dispose(*arguments)

    monkeypatch.setattr(storage, "dispose", failing)
    monkeypatch.setattr(clean_up, "load_checkpoint_storage", lambda parameters: storage)
    left.run(CleanUp.REMOVE)
    assert len(tries) == 3
    assert left.files() == set()
    assert not left.ha.remembers_job(JOB)
