"""Results of ``execute_and_collect``: pulled by offset, so that a slow reader slows the job and nothing piles up."""

from __future__ import annotations

import asyncio
import pickle
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, Final, NoReturn

from firesteel.client.loop_thread import LoopThread
from firesteel.client.progress_display import TICK_SECONDS, ProgressDisplay
from firesteel.client.rest_client import CollectedResults, RestClient
from firesteel.core.errors import JobError, JobNotFoundError, RpcError

_MAX_BYTES: Final = 4 * 1024 * 1024
_WAIT_MS: Final = 5_000
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
"""Seconds between acknowledgements of all results, until the job has ended."""
_ENDED: Final = ("FINISHED", "CANCELED", "FAILED")


class RestResultStream:
    """The results of one collect operator; a ``firesteel.common.executor.ResultStream``.

    It cancels the job when it is closed, or forgotten, before the end. The next pull is on its way while the program
    reads the results of the last one.

    Args:
        job_id: of the job.
        operator_id: of the collect operator.
        rest: client of the cluster's Dispatcher.
        loop: where ``rest`` lives.
        outcome: waits for the job's end; raises unless it finished.
        progress: is shown while results are waited for; None = nobody is to see it.

    Attributes:
        abandon: cancels the job unless its end has been seen; may be called at any time, and does it once.
    """

    def __init__(
        self,
        job_id: str,
        operator_id: str,
        rest: RestClient,
        loop: LoopThread,
        outcome: Callable[[], Coroutine[Any, Any, Any]],
        progress: ProgressDisplay | None = None,
    ) -> None:
        self._job_id, self._operator_id = job_id, operator_id
        self._rest, self._loop, self._outcome, self._progress = rest, loop, outcome, progress
        self._offset = 0
        self._ended = False
        self._failure: JobError | None = None
        self._pull = loop.start(self._next(0))  # the coroutine must not know self: a forgotten stream cancels its job
        self.abandon = weakref.finalize(self, _cancel_job, rest, loop, job_id)

    def fetch(self) -> list[Any] | None:
        """The next results; empty if none came for a while; None at the end. See the protocol for what it raises."""
        if self._ended:
            if self._failure is not None:
                raise self._failure
            return None
        try:
            answer = self._answer()
        except CancelledError:
            if self._ended:  # closed by another thread while this one waited: there are no further results
                return None
            self.close()
            raise
        except BaseException as error:
            if isinstance(error, JobError):
                self._failure = error
            self.close()
            if isinstance(error, KeyboardInterrupt) and self._progress is not None:
                self._progress.interrupted()
            raise
        results: list[Any] = []
        if answer.count:
            results = pickle.loads(answer.data)[max(0, self._offset - answer.offset) :]
            self._offset = answer.offset + answer.count
        if answer.end or (answer.state in _ENDED and not answer.count):
            self._finish()
        elif not self._ended:
            self._pull = self._loop.start(self._next(self._offset))
        return results if results or not self._ended else self.fetch()

    def _answer(self) -> CollectedResults:
        """The answer to the pull that is on its way; progress is shown meanwhile."""
        if self._progress is None:
            return self._pull.result()
        while True:
            self._progress.tick()
            try:
                return self._pull.result(TICK_SECONDS)
            except TimeoutError:
                if self._pull.done():
                    raise

    def _finish(self) -> None:
        """Tell the slot that all has arrived, and learn how the job ended."""
        self._ended = True
        try:
            self._loop.run(self._end())
        except JobError as error:
            self._failure = error.with_traceback(None)  # how it got here says nothing to the program's author
        except BaseException:
            self.abandon()
            raise
        self.abandon.detach()
        if self._progress is not None:
            self._progress.finish()
            self._progress.close()

    async def _end(self) -> None:
        """The collect task ends when all is acknowledged, and does so again after a restart that comes behind that.

        Raises:
            JobError: the job did not finish, or began anew after it had given results; it is cancelled then.
        """
        loop = asyncio.get_running_loop()
        outcome, asking = loop.create_task(self._outcome()), loop.create_task(self._acknowledge())
        try:
            await asyncio.wait((outcome, asking), return_when=asyncio.FIRST_COMPLETED)
            if outcome.done():
                outcome.result()
            else:
                await _cancelled(self._rest, self._job_id)
                asking.result()
        finally:
            outcome.cancel()
            asking.cancel()

    async def _acknowledge(self) -> NoReturn:
        """Say again and again that all results have arrived: a call may be lost, and nobody may lead the job for now.

        Raises:
            JobError: the job began anew.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._rest.collect(self._job_id, self._operator_id, self._offset, 1, 0)
            except (RpcError, JobNotFoundError):  # how the job ended is for others to say
                pass
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _next(self, offset: int) -> Coroutine[Any, Any, CollectedResults]:
        return self._rest.collect(self._job_id, self._operator_id, offset, _MAX_BYTES, _WAIT_MS)

    def close(self) -> None:
        """Give up reading; a job that has not ended is cancelled. Idempotent."""
        if not self._ended:
            self._ended = True
            self._pull.cancel()
            self.abandon()


def _cancel_job(rest: RestClient, loop: LoopThread, job_id: str) -> None:
    if loop.is_current():  # the last reference went away in the loop's own thread: it can't wait for itself
        loop.start(_cancelled(rest, job_id))
        return
    try:
        loop.run(rest.cancel(job_id), timeout=10)
    except (RpcError, JobError, TimeoutError, RuntimeError):  # the cluster has gone, and the job with it
        pass


async def _cancelled(rest: RestClient, job_id: str) -> None:
    try:
        await rest.cancel(job_id)
    except (RpcError, JobError):
        pass
