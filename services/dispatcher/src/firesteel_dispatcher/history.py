"""Jobs that have ended: their ends are stored, sooner or later, and read again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from firesteel.config import Settings
from firesteel.core.backoff import pauses
from firesteel.ha.jobs import StoredEnd
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rest.archive_cache import Archive, ArchiveCache
from firesteel.rest.views import job_overview
from firesteel.service.lanes import Spawn
from firesteel.service.retries import until_storage_answers
from firesteel_dispatcher.archiving import Archiver
from firesteel_dispatcher.clean_up import CleanUps, Remains
from firesteel_dispatcher.core import DispatcherCore
from firesteel_dispatcher.job import Moment
from firesteel_dispatcher.leadership import DispatcherLeadership
from firesteel_dispatcher.settings import DispatcherSettings

logger = logging.getLogger(__name__)
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0


class History:
    """Stores ends until it works: a full disk must not make a job run for ever.

    Args:
        core: decides which ended jobs are forgotten.
        leadership: has the store.
        settings: say whether archives are kept in the store, else only in memory, and how large the cache is.
        cluster_settings: all settings of the cluster, for the archive and the clean-up.
        spawn: runs work in the background.

    Attributes:
        cache: archives of ended jobs in memory.
        clean_ups: what jobs that have ended left behind is removed there.

    Raises:
        ConfigurationError: ``jobmanager.archive.fs.dir`` is wrong.
    """

    def __init__(
        self,
        core: DispatcherCore,
        leadership: DispatcherLeadership,
        settings: DispatcherSettings,
        cluster_settings: Settings,
        spawn: Spawn,
    ) -> None:
        self._core, self._leadership, self._spawn = core, leadership, spawn
        self._in_files = settings.history_in_files
        self.cache = ArchiveCache(settings.history_cache)
        self.clean_ups = CleanUps(leadership.ha, cluster_settings, self.is_stored, spawn)
        self._archiver = Archiver(cluster_settings, spawn)
        self._storing: dict[str, asyncio.Task[None]] = {}
        self._configs: dict[str, Mapping[str, str]] = {}

    def restore(self, ends: Iterable[StoredEnd], now: Moment) -> None:
        """Show the ended jobs of the store again, and finish what earlier Dispatchers did not do for them."""
        ends = list(ends)
        for end in ends:
            ended_at = now.monotonic - max(0, now.epoch_ms - end.ended_ms) / 1000
            self._core.restored_end(end.job_id, end.name, end.fingerprint, job_overview(end.archive), ended_at)
            self.cache.put(end.job_id, end.archive)
            self.clean_ups.ended(end.job_id, Remains.of(end.config, end.archive))
        self._archiver.restored((end.job_id, end.archive) for end in ends)
        if ends:
            self._spawn(self._clean_up([end.job_id for end in ends]), "clean-up of ended jobs")

    async def _clean_up(self, job_ids: list[str]) -> None:
        """JobMasters that died between the end of their job and their own have left something."""
        ha = self._leadership.ha
        dirty_jobs = await self._leadership.on_disk(lambda: [job_id for job_id in job_ids if ha.remembers_job(job_id)])
        for job_id in dirty_jobs:
            self.clean_ups.start(job_id)

    def store(self, job_id: str, config: Mapping[str, str]) -> None:
        """Begin to store the end of a job with these settings."""
        self.clean_ups.ended(job_id, Remains.of(config, self._core.job(job_id).archive or {}))
        self._configs[job_id] = config
        task = self._spawn(self._store_end(job_id), f"end of job {job_id}")
        if task is not None:
            self._storing[job_id] = task
            task.add_done_callback(lambda _: self._stored(job_id))

    def _stored(self, job_id: str) -> None:
        self._storing.pop(job_id, None)
        self._configs.pop(job_id, None)

    async def is_stored(self, job_id: str, seconds: float) -> bool:
        """Wait until the end of a job is safe, or for so many seconds; returns whether it is. A forgotten job is."""
        task = self._storing.get(job_id)
        if task is not None:
            await asyncio.wait([task], timeout=seconds)
        job = self._core.jobs.get(job_id)
        return job is None or job.stored

    async def drain(self) -> None:
        """Wait until all ends and archives are stored."""
        while self._storing:
            await asyncio.wait(list(self._storing.values()))
        await self._archiver.drain()

    def forget(self, job_id: str) -> None:
        """Delete all that is stored of a job."""
        self.clean_ups.forget(job_id)
        self.cache.forget(job_id)
        self._spawn(self._forget(job_id), f"forgetting job {job_id}")

    async def read(self, job_id: str) -> Archive | None:
        """The archive of a job that has ended.

        Raises:
            DamagedEntryError: the file was damaged.
            RpcFault: it can't be read for now.
        """
        try:
            return await self._leadership.on_disk(self._leadership.store.archive, job_id)
        except OSError as error:
            text = f"how job {job_id} ended can't be read for now: {error.strerror or error}"
            raise RpcFault(RpcCode.INTERNAL, text) from error

    async def _store_end(self, job_id: str) -> None:
        async def store() -> Archive | None:
            job = self._core.jobs.get(job_id)
            if job is None or job.archive is None:
                return None  # the job was forgotten meanwhile
            if self._in_files:
                ended_ms = int(job.archive.get("end-time", 0))
                end = StoredEnd(job.id, job.name, job.fingerprint, ended_ms, job.archive, self._configs[job_id])
                await self._leadership.on_disk(self._leadership.store.end, end)
                self.cache.put(job_id, job.archive)
            else:
                await self._leadership.on_disk(self._leadership.store.remove_job, job_id)
            return job.archive

        problem = f"the end of job {job_id} could not be stored"
        archive = await until_storage_answers(problem, store, pauses(FIRST_PAUSE, LONGEST_PAUSE))
        if archive is not None:
            self._archiver.ended(job_id, archive)
            self._core.end_stored(job_id, keep_archive=not self._in_files)

    async def _forget(self, job_id: str) -> None:
        try:
            await self._leadership.on_disk(self._leadership.store.forget, job_id)
        except OSError as error:
            logger.error("what is stored of job %s could not be deleted: %s", job_id, error)
