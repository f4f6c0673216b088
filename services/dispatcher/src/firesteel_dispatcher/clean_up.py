"""Removes the checkpoints of jobs that ended without a JobMaster, or whose JobMaster died before it had cleaned up.

As in Flink, a result is *dirty* until that is done. A job is dirty here as long as the high-availability services have
an entry of it, which its JobMaster removes last (``HighAvailabilityServices.forget_job``). All that a clean-up needs is
stored with the end of the job: the job's settings, and what becomes of its checkpoints.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

from firesteel.checkpoint.closing import CleanUp, close_checkpoints
from firesteel.checkpoint.storage import CheckpointStorage, StorageParameters, load_checkpoint_storage
from firesteel.config import Settings
from firesteel.core.backoff import pauses
from firesteel.core.call_pool import CallPool
from firesteel.core.errors import CheckpointCorruptedError, CheckpointError, FencedError
from firesteel.graph.job_archive import CLEAN_UP
from firesteel.ha.services import HighAvailabilityServices, Leadership, of_job

logger = logging.getLogger(__name__)
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
_THREADS: Final = CallPool("clean-up of ended jobs", threads=8, deadline=None)
"""No deadline: a clean-up that was given up would go on beside its repeat, and both hold the job's leadership."""


@dataclass(frozen=True)
class Remains:
    """What a job that has ended may have left behind.

    Attributes:
        config: settings of the job.
        how: what becomes of its checkpoints; None = that is unknown, so their files are left alone.
    """

    config: Mapping[str, str]
    how: CleanUp | None

    @classmethod
    def of(cls, config: Mapping[str, str], archive: Mapping[str, Any]) -> Remains:
        """Find out what a job may have left, from its settings and archive."""
        clean_up = archive.get(CLEAN_UP)
        return cls(config, CleanUp(clean_up) if clean_up in set(CleanUp) else None)


class CleanUps:
    """The clean-ups of all jobs that have ended.

    Args:
        ha: knows which jobs are dirty.
        settings: of the cluster; those of a job come on top.
        is_stored: waits for a number of seconds until the end of a job is safe; returns whether it is.
        spawn: runs the work in the background.
    """

    def __init__(
        self,
        ha: HighAvailabilityServices,
        settings: Settings,
        is_stored: Callable[[str, float], Awaitable[bool]],
        spawn: Callable[[Coroutine[Any, Any, None], str], Any],
    ) -> None:
        self._ha, self._settings, self._is_stored, self._spawn = ha, settings, is_stored, spawn
        self._known: dict[str, Remains] = {}
        self._running: set[str] = set()

    def ended(self, job_id: str, remains: Remains) -> None:
        """A job has ended; its JobMaster cleans up, if it lives long enough."""
        self._known[job_id] = remains

    def forget(self, job_id: str) -> None:
        """Drop what is known of a job."""
        self._known.pop(job_id, None)

    def start(self, job_id: str) -> None:
        """Clean up behind a job that has ended, unless that was done, or a living JobMaster does it."""
        remains = self._known.get(job_id)
        if remains is None or job_id in self._running:
            return
        self._running.add(job_id)
        work = self._clean_up(job_id, remains)
        if self._spawn(work, f"clean-up of job {job_id}") is None:  # the service stops
            work.close()
            self._running.discard(job_id)

    async def _clean_up(self, job_id: str, remains: Remains) -> None:
        task = _Task(self._ha, self._settings, job_id, remains)
        try:
            while not await self._is_stored(job_id, LONGEST_PAUSE):
                await asyncio.sleep(FIRST_PAUSE)  # until then another JobMaster may have to go on with the job
            for pause in pauses(FIRST_PAUSE, LONGEST_PAUSE):
                try:
                    if await _THREADS.call(task.run):
                        return
                except (CheckpointError, OSError) as error:
                    logger.warning(
                        "the checkpoints of job %s, which has ended, can't be removed, next try in %g s: %s",
                        job_id, pause, error,
                    )  # fmt: skip
                except Exception as error:  # the storage is a plug-in
                    logger.error("files of the checkpoints of job %s may be left: %s", job_id, error, exc_info=error)
                    task.give_up()
                    return
                await asyncio.sleep(pause)
        finally:
            self._running.discard(job_id)


class _Task:
    """One clean-up. It holds the job's leadership until it is done, so that nobody else begins."""

    def __init__(self, ha: HighAvailabilityServices, settings: Settings, job_id: str, remains: Remains) -> None:
        self._ha, self._settings, self._job_id, self._remains = ha, settings, job_id, remains
        self._leadership: Leadership | None = None

    def run(self) -> bool:
        """Clean up; blocks. Returns whether nothing is left to do; if not, another process leads the job and may do it.

        Raises:
            CheckpointError: the clean-up has to be tried again.
            ConfigurationError: the job's storage can't be made.
        """
        ha, job_id = self._ha, self._job_id
        if self._leadership is None:
            if not ha.remembers_job(job_id):
                return True  # the JobMaster has cleaned up
            self._leadership = ha.campaign(of_job(job_id))
        if self._leadership is None:
            return False
        if self._remains.how is not None:
            store = ha.completed_checkpoints(job_id, self._leadership)
            try:
                close_checkpoints(self._storage, store, job_id, self._remains.how)
            except FencedError:
                self.give_up()
                return False  # another process leads the job now, and cleans up
            except CheckpointCorruptedError as error:  # no repeat will help
                logger.error("files of the checkpoints of job %s may be left: %s", job_id, error)
            else:
                logger.info("no JobMaster has cleaned up behind job %s: that is done now", job_id)
        self.give_up()
        ha.forget_job(job_id)
        return True

    def give_up(self) -> None:
        """Give the job's leadership back. Idempotent."""
        leadership, self._leadership = self._leadership, None
        if leadership is not None:
            try:
                leadership.release()
            except OSError as error:  # its lock is free all the same
                logger.warning("that nobody leads job %s any more could not be stored: %s", self._job_id, error)

    def _storage(self) -> CheckpointStorage:
        settings = self._settings.with_layer("program", dict(self._remains.config))
        return load_checkpoint_storage(StorageParameters(self._job_id, settings))
