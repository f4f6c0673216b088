"""Jobs that have ended: their ends are stored, sooner or later, and read again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from firesteel.core.backoff import pauses
from firesteel.ha.jobs import JobStore, StoredEnd
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rest.archive_cache import Archive, ArchiveCache
from firesteel.rest.views import job_overview
from firesteel_dispatcher.archiving import Archiver
from firesteel_dispatcher.core import DispatcherCore
from firesteel_dispatcher.job import Moment

logger = logging.getLogger(__name__)
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0


class History:
    """Stores ends until it works: a full disk must not make a job run for ever.

    Args:
        core: of the Dispatcher.
        store: gives that of jobs.
        cache: of archives.
        in_files: keep archives in the store; else only in memory.
        on_disk: calls a method of the store in its thread.
        spawn: runs the work in the background.
        archiver: hears of ends that are safe.
    """

    def __init__(
        self,
        core: DispatcherCore,
        store: Callable[[], JobStore],
        cache: ArchiveCache,
        in_files: bool,
        on_disk: Callable[..., Awaitable[Any]],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None] | None],
        archiver: Archiver,
    ) -> None:
        self._archiver = archiver
        self._core, self._store, self._cache, self._in_files = core, store, cache, in_files
        self._on_disk, self._spawn = on_disk, spawn
        self._storing: dict[str, asyncio.Task[None]] = {}
        self._configs: dict[str, Mapping[str, str]] = {}

    def restore(self, end: StoredEnd, now: Moment) -> None:
        """An end was found in the store."""
        ended_at = now.monotonic - max(0, now.epoch_ms - end.ended_ms) / 1000
        self._core.restored_end(end.job_id, end.name, end.fingerprint, job_overview(end.archive), ended_at)
        self._cache.put(end.job_id, end.archive)

    def store(self, job_id: str, config: Mapping[str, str]) -> None:
        """Begin to store the end of a job with these settings."""
        self._configs[job_id] = config
        task = self._spawn(self._store_end(job_id), f"end of job {job_id}")
        if task is not None:
            self._storing[job_id] = task
            task.add_done_callback(lambda _: self._stored(job_id))

    def _stored(self, job_id: str) -> None:
        self._storing.pop(job_id, None)
        self._configs.pop(job_id, None)

    async def is_stored(self, job_id: str, seconds: float) -> bool:
        """Whether the end of a job is safe, now or within so many seconds; one that was forgotten is."""
        task = self._storing.get(job_id)
        if task is not None:
            await asyncio.wait([task], timeout=seconds)
        job = self._core.jobs.get(job_id)
        return job is None or job.stored

    async def drain(self) -> None:
        """Wait until all ends are stored."""
        while self._storing:
            await asyncio.wait(list(self._storing.values()))
        await self._archiver.drain()

    def forget(self, job_id: str) -> None:
        """Delete what is known of a job."""
        self._cache.forget(job_id)
        self._spawn(self._forget(job_id), f"forgetting job {job_id}")

    async def read(self, job_id: str) -> Archive | None:
        """The archive of a job that has ended.

        Raises:
            DamagedEntryError: the file was damaged.
            RpcFault: it can't be read for now.
        """
        try:
            found: Archive | None = await self._on_disk(self._store().archive, job_id)
        except OSError as error:
            text = f"how job {job_id} ended can't be read for now: {error.strerror or error}"
            raise RpcFault(RpcCode.INTERNAL, text) from error
        return found

    async def _store_end(self, job_id: str) -> None:
        for pause in pauses(FIRST_PAUSE, LONGEST_PAUSE):
            job = self._core.jobs.get(job_id)
            if job is None or job.archive is None:
                return
            try:
                if self._in_files:
                    ended_ms = int(job.archive.get("end-time", 0))
                    end = StoredEnd(job.id, job.name, job.fingerprint, ended_ms, job.archive, self._configs[job_id])
                    await self._on_disk(self._store().end, end)
                    self._cache.put(job_id, job.archive)
                else:
                    await self._on_disk(self._store().remove_job, job_id)
            except OSError as error:
                logger.error("the end of job %s could not be stored: %s; next try in %g s", job_id, error, pause)
                await asyncio.sleep(pause)
            else:
                self._archiver.ended(job_id, job.archive)
                self._core.end_stored(job_id, keep_archive=not self._in_files)
                return

    async def _forget(self, job_id: str) -> None:
        try:
            await self._on_disk(self._store().forget, job_id)
        except OSError as error:
            logger.error("what is stored of job %s could not be deleted: %s", job_id, error)
