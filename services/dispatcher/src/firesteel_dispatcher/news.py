"""Waiting for changes of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from firesteel_dispatcher.core import DispatcherCore
from firesteel_dispatcher.job import JobPhase, JobRecord


class JobNews:
    """Wakes callers that wait for a job to change.

    Args:
        core: of the Dispatcher.
    """

    def __init__(self, core: DispatcherCore) -> None:
        self._core = core
        self._changed: dict[str, asyncio.Event] = {}
        self._closed = False

    def changed(self, job_id: str) -> None:
        """Wake all who wait for this job."""
        event = self._changed.pop(job_id, None)
        if event is not None:
            event.set()

    def close(self) -> None:
        """Wake all; nobody waits from now on."""
        self._closed = True
        for job_id in list(self._changed):
            self.changed(job_id)

    def is_awaited(self, job_id: str) -> bool:
        """Whether a caller waits for this job."""
        return job_id in self._changed

    async def ended(self, job_id: str, seconds: float) -> JobRecord:
        """Wait until a job has ended, or for so many seconds; returns the job.

        Raises:
            UnknownJobError: there is no such job.
        """
        return await self._wait(job_id, seconds, lambda job: job.ended)

    async def led(self, job_id: str, seconds: float) -> JobRecord:
        """Wait until a JobMaster runs a job, or it has ended, or for so many seconds; returns the job.

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
