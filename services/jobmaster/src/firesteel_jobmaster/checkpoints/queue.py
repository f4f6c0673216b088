"""Brings the coordinator's work to where it may block, one piece after the other, and the answers back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from firesteel.service.daemon_threads import DaemonThreads
from firesteel_jobmaster.checkpoints.work import Close, Done, Work
from firesteel_jobmaster.checkpoints.worker import CheckpointWorker
from firesteel_jobmaster.lanes import Lane, Spawn

logger = logging.getLogger(__name__)
T = TypeVar("T")
CLOSE_PAUSES: Final = (1.0, 2.0, 4.0, 8.0)
"""Seconds between tries to remove what has to go when a job has ended."""
RunBlocking = Callable[[Callable[[], Done]], Awaitable[Done]]


_THREADS: Final = DaemonThreads("checkpoint storage")


async def in_a_thread(work: Callable[[], T]) -> T:
    """Do it where it may block."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)


class WorkQueue:
    """Work of one job.

    Args:
        worker: does it.
        answered: hears of the end of each piece, on the event loop.
        spawn: runs the queue.
        run_blocking: has a function done elsewhere.
        end_is_known: returns when somebody knows that the job has ended. Until then another JobMaster may have to go
            on with it, from its last checkpoint: that is not removed before; nor at all if the answer is False.
    """

    def __init__(
        self,
        worker: CheckpointWorker,
        answered: Callable[[Done], None],
        spawn: Spawn,
        run_blocking: RunBlocking,
        end_is_known: Callable[[], Awaitable[bool]],
    ) -> None:
        self._worker, self._answered, self._run_blocking = worker, answered, run_blocking
        self._end_is_known = end_is_known
        self._lane = Lane("checkpoint storage", spawn)
        self.files_are_left = False
        """What had to go when the job had ended could not be removed."""

    def add(self, work: Work) -> None:
        """Do this after all that was added before."""
        self._lane.add(type(work).__name__, lambda: self._do(work))

    async def done(self) -> None:
        """Wait until all is done that was added before."""
        await self._lane.done()

    async def _do(self, work: Work) -> None:
        if isinstance(work, Close):
            await self._close(work)
        else:
            self._answered(await self._run_blocking(lambda: self._worker.do(work)))

    async def _close(self, work: Close) -> None:
        if not await self._end_is_known():
            return
        for pause in (*CLOSE_PAUSES, None):
            done = await self._run_blocking(lambda: self._worker.do(work))
            if done.error is None:
                return
            if pause is None or done.fenced:
                logger.error("files of the job's checkpoints may be left: %s", done.error)
                self.files_are_left = not done.fenced
                return
            logger.warning("the job's checkpoints can't be removed, next try in %g s: %s", pause, done.error)
            await asyncio.sleep(pause)
