"""Waiting for what happens to jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from firesteel_dispatcher.core import DispatcherCore
from firesteel_dispatcher.job import JobPhase, JobRecord


class JobNews:
    """Wakes those who wait for news of a job.

    Args:
        core: of the Dispatcher.
    """

    def __init__(self, core: DispatcherCore) -> None:
        self._core = core
        self._changed: dict[str, asyncio.Event] = {}
        self._closed = False

    def changed(self, job_id: str) -> None:
        """Something happened to a job."""
        event = self._changed.pop(job_id, None)
        if event is not None:
            event.set()

    def close(self) -> None:
        """Nobody waits any longer."""
        self._closed = True
        for job_id in list(self._changed):
            self.changed(job_id)

    def is_awaited(self, job_id: str) -> bool:
        """Whether somebody waits for news of a job."""
        return job_id in self._changed

    async def ended(self, job_id: str, seconds: float) -> JobRecord:
        """A job, once it has ended or after so many seconds.

        Raises:
            UnknownJobError: there is no such job.
        """
        return await self._wait(job_id, seconds, lambda job: job.ended)

    async def led(self, job_id: str, seconds: float) -> JobRecord:
        """A job, once a JobMaster runs it, or it has ended, or after so many seconds.

        Raises:
            UnknownJobError: there is no such job.
        """
        return await self._wait(job_id, seconds, lambda job: job.phase in (JobPhase.LED, JobPhase.ENDED))

    async def _wait(self, job_id: str, seconds: float, condition: Callable[[JobRecord], bool]) -> JobRecord:
        job = self._core.job(job_id)
        try:
            async with asyncio.timeout(seconds):
                while not condition(job) and not self._closed:
                    await self._changed.setdefault(job_id, asyncio.Event()).wait()
        except TimeoutError:
            pass
        return job
