"""Has the coordinator's work done on threads, where it may block: one piece after the other, and each is answered.

Work that the job waits for comes first, clean-ups follow, and the work that closes the job is last. A piece that takes
too long is given up: its thread is left to itself, and the queue answers in its place. So nobody waits for a storage
that hangs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from firesteel.core.call_pool import CallPool
from firesteel.service.lanes import Calls, Spawn
from firesteel_jobmaster.checkpoint_work import Close, Discard, Dispose, DisposeClaimed, RemoveOrphans, Work, WorkResult
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
"""Pieces that the job waits for which may come one after the other while a clean-up waits."""
RunBlocking = Callable[[Callable[[], WorkResult]], Awaitable[WorkResult]]


_THREADS: Final = CallPool("checkpoint storage", threads=64, deadline=None)
"""Threads of all jobs of a process; each queue gives up its own calls, and has at most ``MOST_HUNG`` that hang."""


async def in_a_thread(work: Callable[[], T]) -> T:
    """Call a function that may block."""
    return await _THREADS.call(work)


def call_seconds(timeout: float) -> float:
    """Seconds that a piece of work may take where a checkpoint may take ``timeout`` seconds."""
    return min(timeout, max(CALL_SECONDS, timeout / 10))


class WorkQueue:
    """The work of one job.

    Args:
        worker: does the work.
        answered: hears of the end of each piece, on the event loop.
        spawn: runs the queue.
        run_blocking: calls a function where it may block.
        end_is_known: returns when somebody knows that the job has ended. Until then another JobMaster may have to go
            on with it, from its last checkpoint, which is not removed before; nor at all if the answer is False.
        seconds: after which a piece of work is given up.
    """

    def __init__(
        self,
        worker: CheckpointWorker,
        answered: Callable[[WorkResult], None],
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
        self._hung: set[asyncio.Task[WorkResult]] = set()
        self.files_are_left = False
        """Checkpoints that had to go when the job had ended could not be removed."""

    @property
    def hung(self) -> int:
        """How many calls were given up and have not returned."""
        return len(self._hung)

    def add(self, work: Work) -> None:
        """Queue a piece of work; pieces of one kind keep their order."""
        if isinstance(work, Close):
            self._last.append(work)
            self._closes += 1
        elif isinstance(work, Discard | Dispose | DisposeClaimed | RemoveOrphans):
            self._clean_ups.append(work)
        else:
            self._waited_for.append(work)
        self._lane.add(self._next)

    async def done(self) -> None:
        """Wait until all work is done that was added before, and work that closes the job, if there is any."""
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

    async def _call(self, work: Work) -> WorkResult:
        """Have a piece of work done, or give it up after some time."""
        work_name = type(work).__name__
        if len(self._hung) >= MOST_HUNG:
            await asyncio.wait(self._hung, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
            if len(self._hung) >= MOST_HUNG:
                return WorkResult(
                    work, error=f"the storage does not answer: {MOST_HUNG} calls have not returned", hung=True
                )
        call = AbandonableCall()
        running = asyncio.get_running_loop().create_task(self._run(work, call), name=f"checkpoint storage: {work_name}")
        try:
            await asyncio.wait({running}, timeout=self._seconds)
        except asyncio.CancelledError:
            running.cancel()
            raise
        if running.done() or not self._worker.give_up(call):
            return await running
        error = f"the storage has not answered within {self._seconds:g} s, and the call was given up ({work_name})"
        logger.error("%s", error)
        self._hung.add(running)
        running.add_done_callback(lambda future: self._returned(future, work_name))
        return call.given_up(work, error)

    async def _run(self, work: Work, call: AbandonableCall) -> WorkResult:
        return await self._run_blocking(lambda: self._worker.do(work, call))

    def _returned(self, future: asyncio.Task[WorkResult], work_name: str) -> None:
        self._hung.discard(future)
        if not future.cancelled():
            logger.warning(
                "a call of the storage that was given up has returned (%s)", work_name, exc_info=future.exception()
            )

    async def _close(self, work: Close) -> None:
        if not await self._end_is_known():
            return
        for pause in (*CLOSE_PAUSES, None):
            result = await self._call(work)
            if result.error is None:
                return
            if pause is None or result.fenced:
                logger.error("files of the job's checkpoints may be left: %s", result.error)
                self.files_are_left = not result.fenced
                return
            logger.warning("the job's checkpoints can't be removed, next try in %g s: %s", pause, result.error)
            await asyncio.sleep(pause)
