"""Work with the checkpoint storage, one piece after the other; the last of it when the job's end is known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from firesteel_jobmaster.checkpoints import queue
from firesteel_jobmaster.checkpoints.queue import WorkQueue
from firesteel_jobmaster.checkpoints.work import Close, Discard, Done, Work


class Worker:
    """Writes down what it is asked for; what it can't do fails so often."""

    def __init__(self, failures: int = 0, fenced: bool = False) -> None:
        self.done: list[Work] = []
        self.failures, self.fenced = failures, fenced

    def do(self, work: Work) -> Done:
        self.done.append(work)
        if self.failures:
            self.failures -= 1
            return Done(work, error="no space", fenced=self.fenced)
        return Done(work)


class Job:
    """A queue, its worker, and what was answered."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.answers = worker, list[Done]()
        self.end_is_known = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.queue = WorkQueue(worker, self.answers.append, self._spawn, self._at_once, self.end_is_known.wait)  # type: ignore[arg-type]

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        self._tasks.append(asyncio.ensure_future(coroutine))
        return self._tasks[-1]

    async def _at_once(self, work: Callable[[], Done]) -> Done:
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
