"""Brings the coordinator's work to where it may block, one piece after the other, and the answers back.

What the job waits for comes first, clean-ups behind it, and last what closes the job. A piece that takes too long is
given up: its thread is left to itself, and it is answered in its place. So nobody waits for a storage that hangs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from firesteel.core.call_pool import CallPool
from firesteel.service.lanes import Calls, Spawn
from firesteel_jobmaster.checkpoint_work import Close, Discard, Dispose, DisposeClaimed, Done, RemoveOrphans, Work
from firesteel_jobmaster.checkpoints.worker import AbandonableCall, CheckpointWorker

logger = logging.getLogger(__name__)
T = TypeVar("T")
CLOSE_PAUSES: Final = (1.0, 2.0, 4.0, 8.0)
"""Seconds between tries to remove what has to go when a job has ended."""
CALL_SECONDS: Final = 60.0
"""A piece of work that takes longer is given up, unless checkpoints may take very long: see ``call_seconds``."""
MOST_HUNG: Final = 4
"""Threads that may hang at a time; with so many nothing is begun before one of them has returned."""
FAIR: Final = 8
"""So many pieces that the job waits for may come one after the other while a clean-up waits."""
RunBlocking = Callable[[Callable[[], Done]], Awaitable[Done]]


_THREADS: Final = CallPool("checkpoint storage", threads=64, deadline=None)
"""Of all jobs of a process; each queue gives up its own calls, and has at most ``MOST_HUNG`` that hang."""


async def in_a_thread(work: Callable[[], T]) -> T:
    """Do it where it may block."""
    return await _THREADS.call(work)


def call_seconds(timeout: float) -> float:
    """How long a piece of work may take where a checkpoint may take ``timeout`` seconds."""
    return min(timeout, max(CALL_SECONDS, timeout / 10))


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
        seconds: float = CALL_SECONDS,
    ) -> None:
        self._worker, self._answered, self._run_blocking = worker, answered, run_blocking
        self._end_is_known, self._seconds = end_is_known, seconds
        self._lane = Calls("checkpoint storage", spawn)
        self._waited_for: deque[Work] = deque()
        self._clean_ups: deque[Work] = deque()
        self._last: deque[Close] = deque()
        self._closes = 0
        self._in_a_row = 0
        self._hung: set[asyncio.Task[Done]] = set()
        self.files_are_left = False
        """What had to go when the job had ended could not be removed."""

    @property
    def hung(self) -> int:
        """Calls that were given up and have not returned."""
        return len(self._hung)

    def add(self, work: Work) -> None:
        """Do this when its turn comes: pieces of one kind keep their order."""
        if isinstance(work, Close):
            self._last.append(work)
            self._closes += 1
        elif isinstance(work, Discard | Dispose | DisposeClaimed | RemoveOrphans):
            self._clean_ups.append(work)
        else:
            self._waited_for.append(work)
        self._lane.add(self._next)

    async def done(self) -> None:
        """Wait until all is done that was added before; and more, if that came between."""
        await self._lane.done()
        while self._closes:  # what was added later has taken its turn
            await self._lane.done()

    async def _next(self) -> None:
        if self._waited_for and not (self._clean_ups and self._in_a_row >= FAIR):
            self._in_a_row += 1
            self._answered(await self._call(self._waited_for.popleft()))
        elif self._clean_ups:
            self._in_a_row = 0
            self._answered(await self._call(self._clean_ups.popleft()))
        else:
            try:
                await self._close(self._last.popleft())
            finally:
                self._closes -= 1

    async def _call(self, work: Work) -> Done:
        """Have it done, or give it up."""
        what = type(work).__name__
        if len(self._hung) >= MOST_HUNG:
            await asyncio.wait(self._hung, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
            if len(self._hung) >= MOST_HUNG:
                return Done(work, error=f"the storage does not answer: {MOST_HUNG} calls have not returned", hung=True)
        call = AbandonableCall()
        running = asyncio.get_running_loop().create_task(self._run(work, call), name=f"checkpoint storage: {what}")
        try:
            await asyncio.wait({running}, timeout=self._seconds)
        except asyncio.CancelledError:
            running.cancel()
            raise
        if running.done() or not self._worker.give_up(call):
            return await running
        error = f"the storage has not answered within {self._seconds:g} s, and the call was given up ({what})"
        logger.error("%s", error)
        self._hung.add(running)
        running.add_done_callback(lambda future: self._returned(future, what))
        return call.given_up(work, error)

    async def _run(self, work: Work, call: AbandonableCall) -> Done:
        return await self._run_blocking(lambda: self._worker.do(work, call))

    def _returned(self, future: asyncio.Task[Done], what: str) -> None:
        self._hung.discard(future)
        if not future.cancelled():
            logger.warning(
                "a call of the storage that was given up has returned (%s)", what, exc_info=future.exception()
            )

    async def _close(self, work: Close) -> None:
        if not await self._end_is_known():
            return
        for pause in (*CLOSE_PAUSES, None):
            done = await self._call(work)
            if done.error is None:
                return
            if pause is None or done.fenced:
                logger.error("files of the job's checkpoints may be left: %s", done.error)
                self.files_are_left = not done.fenced
                return
            logger.warning("the job's checkpoints can't be removed, next try in %g s: %s", pause, done.error)
            await asyncio.sleep(pause)
