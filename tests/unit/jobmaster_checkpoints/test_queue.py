"""Work with the checkpoint storage, one piece after the other; the last of it when the job's end is known."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from firesteel.checkpoint.metadata import CheckpointMetadata
from firesteel.checkpoint.storage import CheckpointStorage, StorageParameters, load_checkpoint_storage
from firesteel.checkpoint.store import CompletedCheckpointStore, MemoryCheckpointStore, StoredCheckpoint
from firesteel.config import Settings
from firesteel.core.errors import CheckpointStorageError
from firesteel_jobmaster.checkpoint_work import Close, Complete, Discard, Prepare, Recover, Undo, Work, WorkResult
from firesteel_jobmaster.checkpoints import queue
from firesteel_jobmaster.checkpoints.queue import WorkQueue, call_seconds, in_a_thread
from firesteel_jobmaster.checkpoints.worker import AbandonableCall, CheckpointWorker


class Worker:
    """Writes down what it is asked for; what it can't do fails so often."""

    def __init__(self, failures: int = 0, fenced: bool = False) -> None:
        self.done: list[Work] = []
        self.failures, self.fenced = failures, fenced

    def do(self, work: Work, call: AbandonableCall) -> WorkResult:
        self.done.append(work)
        if self.failures:
            self.failures -= 1
            return WorkResult(work, error="no space", fenced=self.fenced)
        return WorkResult(work)


class Job:
    """A queue, its worker, and what was answered."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.answers = worker, list[WorkResult]()
        self.end_is_known = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.queue = WorkQueue(worker, self.answers.append, self._spawn, self._at_once, self.end_is_known.wait)  # type: ignore[arg-type]

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        self._tasks.append(asyncio.ensure_future(coroutine))
        return self._tasks[-1]

    async def _at_once(self, work: Callable[[], WorkResult]) -> WorkResult:
        return work()


CLOSE = Close(())


async def _steps() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_nothing_is_removed_before_the_end_is_known() -> None:
    async def run() -> None:
        job = Job(Worker())
        job.queue.add(Discard(1, frozenset()))
        job.queue.add(CLOSE)
        await _steps()
        assert job.worker.done == [Discard(1, frozenset())]
        job.end_is_known.set()
        await job.queue.done()
        assert job.worker.done[1:] == [CLOSE]
        assert [done.work for done in job.answers] == [Discard(1, frozenset())]  # nobody waits for the other

    asyncio.run(run())


def test_the_end_is_waited_for_though_a_late_clean_up_takes_its_turn() -> None:
    """Else the job is forgotten, and whoever finds its files does not know them."""

    async def run() -> None:
        job, goes_on = Job(Worker()), asyncio.Event()

        async def slowly(work: Callable[[], WorkResult]) -> WorkResult:
            await goes_on.wait()
            return work()

        job.queue = WorkQueue(job.worker, job.answers.append, job._spawn, slowly, job.end_is_known.wait)  # type: ignore[arg-type]
        job.queue.add(Discard(1, frozenset()))
        job.queue.add(CLOSE)
        waits = asyncio.ensure_future(job.queue.done())
        await _steps()
        job.queue.add(Discard(2, frozenset()))
        goes_on.set()
        await _steps()
        assert not waits.done()
        job.end_is_known.set()
        await waits
        assert CLOSE in job.worker.done

    asyncio.run(run())


def test_nothing_is_removed_when_another_jobmaster_goes_on_with_the_job() -> None:
    async def refused() -> bool:
        return False

    async def run() -> None:
        job = Job(Worker())
        job.queue = WorkQueue(job.worker, job.answers.append, job._spawn, job._at_once, refused)  # type: ignore[arg-type]
        job.queue.add(CLOSE)
        await job.queue.done()
        assert job.worker.done == []

    asyncio.run(run())


@pytest.mark.parametrize(("failures", "fenced", "tries"), [(2, False, 3), (9, False, 3), (1, True, 1)])
def test_what_can_not_be_removed_at_the_end_is_tried_again(
    failures: int, fenced: bool, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "CLOSE_PAUSES", (0.0, 0.0))

    async def run() -> None:
        job = Job(Worker(failures, fenced))
        job.end_is_known.set()
        job.queue.add(CLOSE)
        await job.queue.done()
        assert job.worker.done == [CLOSE] * tries

    asyncio.run(run())


# Calls that hang


class Storage(CheckpointStorage):
    """In memory; calls of one kind stop in front of their effect until they may go on, on threads of their own."""

    name = "stopped"
    persistent = True

    def __init__(self) -> None:
        self.stop: set[str] = set()
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.directories: set[int] = set()
        self.metadata: set[int] = set()
        self.calls: list[str] = []

    def at(self, what: str) -> None:
        self.calls.append(what)
        if what in self.stop:
            self.entered.set()
            assert self.go_on.wait(60)

    def open_state_stream(self, checkpoint_id: int, hint: str = "") -> Any:
        raise NotImplementedError

    def open_state(self, handle: Any) -> Any:
        raise NotImplementedError

    def prepare(self, checkpoint_id: int) -> None:
        self.at("prepare")
        self.directories.add(checkpoint_id)

    def verify(self, handles: Any) -> None:
        self.at("verify")

    def write_metadata(self, checkpoint_id: int, data: bytes) -> str:
        self.at("write_metadata")
        self.metadata.add(checkpoint_id)
        return f"/c/chk-{checkpoint_id}/_metadata"

    def read_metadata(self, location: str) -> tuple[str, bytes]:
        raise NotImplementedError

    def left_behind(self, below: int) -> list[tuple[int, str, bytes | None]]:
        return []

    def discard(self, checkpoint_id: int, files: Collection[str] = (), keep: Collection[str] = ()) -> None:
        self.at("discard")
        self.directories.discard(checkpoint_id)
        self.metadata.discard(checkpoint_id)

    def dispose(self, location: str, files: Collection[str], keep: Collection[str] = ()) -> None:
        self.at("dispose")

    def close_job(self, keep: Collection[str] = ()) -> None:
        self.at("close_job")


class StoppedStore(CompletedCheckpointStore):
    """The same for a store; ``renewals`` says whether it can be renewed."""

    def __init__(self, entries: MemoryCheckpointStore, storage: Storage, renewals: bool = True) -> None:
        self.entries, self.storage, self.renewals = entries, storage, renewals
        self.over = False

    @contextmanager
    def _at(self) -> Iterator[None]:
        self.storage.at("store")
        if self.over:
            raise CheckpointStorageError("this one was renewed")
        yield

    def renewed(self) -> CompletedCheckpointStore | None:
        if not self.renewals:
            return None
        self.over = True
        return StoppedStore(self.entries, self.storage)

    def next_id(self, above: int = 0) -> int:
        with self._at():
            return self.entries.next_id(above)

    def add(self, checkpoint: StoredCheckpoint) -> None:
        with self._at():
            self.entries.add(checkpoint)

    def remove(self, checkpoint_id: int) -> None:
        with self._at():
            self.entries.remove(checkpoint_id)

    def all(self) -> list[StoredCheckpoint]:
        return self.entries.all()

    @property
    def damaged(self) -> tuple[str, ...]:
        return ()

    def clear(self) -> None:
        with self._at():
            self.entries.clear()


class HungJob:
    """A queue with threads, whose patience a test ends."""

    def __init__(self, renewals: bool = True) -> None:
        self.storage, self.entries = Storage(), MemoryCheckpointStore()
        self.worker = CheckpointWorker(
            "ab" * 16, lambda: self.storage, StoppedStore(self.entries, self.storage, renewals)
        )
        self.answers: list[WorkResult] = []
        self._tasks: list[asyncio.Task[None]] = []
        end = asyncio.Event()
        end.set()

        def spawn(coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
            self._tasks.append(asyncio.ensure_future(coroutine))
            return self._tasks[-1]

        self.queue = WorkQueue(self.worker, self.answers.append, spawn, in_a_thread, end.wait, 0.05)

    async def do(self, work: Work) -> WorkResult:
        self.queue.add(work)
        await self.queue.done()
        return self.answers[-1]

    async def returned(self) -> None:
        """Calls that hung have returned."""
        self.storage.stop.clear()
        self.storage.go_on.set()
        while self.queue.hung:
            await asyncio.sleep(0)

    async def patiently(self, work: Work) -> WorkResult:
        """Done again and again, as the coordinator does what it has to."""
        while (done := await self.do(work)).error is not None:
            pass
        return done


def completing(checkpoint_id: int) -> Complete:
    return Complete(CheckpointMetadata(checkpoint_id, "ab" * 16, 1, (), {}))


@pytest.mark.parametrize("where", ["verify", "write_metadata"])
def test_a_hung_call_of_the_storage_never_makes_a_checkpoint_visible(where: str) -> None:
    async def run() -> None:
        job = HungJob()
        job.storage.stop = {where}
        done = await job.do(completing(1))
        assert done.hung
        assert not done.stored, "it was given up before the store was asked, and will never ask it"
        assert "has not answered within 0.05 s" in str(done.error)
        job.storage.stop = set()
        assert (await job.patiently(completing(2))).stored, "others go on beside it"
        await job.returned()
        assert [entry.checkpoint_id for entry in job.entries.all()] == [2]
        assert job.storage.metadata == {2}, "what it has written late is removed by itself"

    asyncio.run(run())


def test_a_hung_call_of_the_store_has_no_effect_behind_an_undo() -> None:
    async def run() -> None:
        job = HungJob()
        job.storage.stop = {"store"}
        done = await job.do(completing(1))
        assert (done.hung, done.stored) == (True, True), "it may be in the store"
        job.storage.stop = set()
        done = await job.patiently(Undo(1, done.location, frozenset()))
        assert done.removed
        assert (await job.patiently(completing(2))).stored
        await job.returned()
        assert [entry.checkpoint_id for entry in job.entries.all()] == [2], "the late one came behind"

    asyncio.run(run())


def test_a_store_that_can_not_be_renewed_is_waited_for() -> None:
    async def run() -> None:
        job = HungJob(renewals=False)
        job.storage.stop = {"store"}
        done = await job.do(completing(1))
        job.storage.stop = set()
        undone = await job.do(Undo(1, done.location, frozenset()))
        assert "may still do what it was asked for" in str(undone.error)
        assert not undone.removed
        await job.returned()
        assert (await job.patiently(Undo(1, done.location, frozenset()))).removed
        assert job.entries.all() == []

    asyncio.run(run())


def test_a_place_that_is_made_late_is_removed_by_who_has_made_it() -> None:
    async def run() -> None:
        job = HungJob()
        job.storage.stop = {"prepare"}
        done = await job.do(Prepare(1, 0))
        assert (done.hung, done.checkpoint_id) == (True, 1)
        await job.returned()
        assert not job.storage.directories
        assert (await job.patiently(Prepare(2, 1))).checkpoint_id == 2

    asyncio.run(run())


def test_threads_that_hang_are_bounded_in_number() -> None:
    async def run() -> None:
        job = HungJob()
        job.storage.stop = {"verify"}
        for number in range(1, queue.MOST_HUNG + 4):
            assert (await job.do(completing(number))).hung
        assert job.queue.hung == queue.MOST_HUNG == job.storage.calls.count("verify")
        assert f"{queue.MOST_HUNG} calls have not returned" in str(job.answers[-1].error)
        await job.returned()
        assert (await job.patiently(completing(99))).stored

    asyncio.run(run())


def test_what_the_job_waits_for_goes_in_front_of_clean_ups() -> None:
    async def run() -> None:
        job = Job(Worker())
        job.end_is_known.set()
        clean_ups = [Discard(number, frozenset()) for number in range(3)]
        counts = [Prepare(number, 0) for number in range(queue.FAIR + 2)]
        expected: list[Work] = [*clean_ups, CLOSE, *counts]
        for work in expected:
            job.queue.add(work)
        await job.queue.done()
        first, rest = counts[: queue.FAIR], counts[queue.FAIR :]
        assert job.worker.done == [*first, clean_ups[0], *rest, *clean_ups[1:], CLOSE], "clean-ups do get their turn"

    asyncio.run(run())


def test_what_a_storage_may_take_follows_what_a_checkpoint_may_take() -> None:
    assert [call_seconds(timeout) for timeout in (5.0, 600.0, 6000.0)] == [5.0, 60.0, 600.0]


@pytest.mark.parametrize("start_from", [None, "hdfs://nameservice/jobs/old/chk-7"])
def test_an_hdfs_that_the_configuration_does_not_know_is_not_waited_for(
    start_from: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    settings = Settings({"execution.checkpointing.dir": "hdfs://nameservice/jobs"})
    storage = load_checkpoint_storage(StorageParameters("ab" * 16, settings))
    done = CheckpointWorker("ab" * 16, lambda: storage, MemoryCheckpointStore()).do(Recover(start_from))
    assert (done.corrupted, done.of_user, done.refused) == (True, start_from is not None, start_from is None)
    assert done.error is not None
    assert "does not say where it is" in done.error
