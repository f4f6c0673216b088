"""The history server at work: finds archives, reads them, and removes those that have expired."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from firesteel.core.call_pool import CallPool
from firesteel.core.clock import Clock
from firesteel.core.errors import FiresteelError
from firesteel.graph.job_archive import HISTORY, with_rows
from firesteel.ha.documents import DamagedEntryError
from firesteel.rest.access import RestAccess
from firesteel.rest.archive_cache import Archive, ArchiveCache
from firesteel.rest.job_archives import ArchivePlace, JobArchive
from firesteel.rest.views import application_id, job_overview
from firesteel.service.background import in_slices
from firesteel.service.base import Service
from firesteel_historyserver.core import ArchiveEntry, ArchiveRetention, HistoryCore

logger = logging.getLogger(__name__)
CACHE_BYTES: Final = 50 << 20


class UnknownArchiveError(FiresteelError):
    """No place has an archive of the job."""


@dataclass(frozen=True)
class HistorySettings:
    """Settings of a history server.

    Attributes:
        refresh: seconds between two looks at the places.
        web_refresh_ms: interval in which pages refresh.
        retention: of archives.
        jobmanager_logs, taskmanager_logs: patterns of URLs (``historyserver.log.*.url-pattern``); empty: none.
    """

    refresh: float = 10.0
    web_refresh_ms: int = 10_000
    retention: ArchiveRetention = field(default_factory=ArchiveRetention)
    jobmanager_logs: str = ""
    taskmanager_logs: str = ""


class HistoryService(Service):
    """Shows the archives of jobs that have ended.

    Args:
        places: directories of archives.
        settings: of the history server.
        clock: for the age of archives.
        access: decides who may call.
        host_names: see ``Service``.
    """

    def __init__(
        self,
        places: Sequence[ArchivePlace],
        settings: HistorySettings,
        clock: Clock,
        access: RestAccess | None = None,
        host_names: Collection[str] = (),
    ) -> None:
        super().__init__("historyserver", host_names=host_names)
        self.settings, self.clock = settings, clock
        self.access = access or RestAccess((), False, self.refusals)
        self.core = HistoryCore(settings.retention)
        self._places, self._cache = list(places), ArchiveCache(CACHE_BYTES)
        self._threads = [CallPool(f"archives in {place}", deadline=20.0) for place in self._places]
        """Threads of each place: a place that hangs must not hold up another one."""
        self._troubled: set[int] = set()
        self._looked = asyncio.Event()

    async def on_start(self) -> None:
        """Begin to look for archives."""
        self.spawn(self._look_periodically(), "looking for archives")

    def is_ready(self) -> bool:
        """Whether all places were looked at once."""
        return super().is_ready() and self._looked.is_set()

    async def _look_periodically(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(self.settings.refresh)

    async def look(self) -> None:
        """Look at all places; of a place that does not answer, the archives that were there stay listed."""
        await asyncio.gather(*(self._look_at(number, place) for number, place in enumerate(self._places)))
        for number, job_id in self.core.expired(self.clock.epoch_ms()):
            await self._remove(number, job_id)
        self._looked.set()

    async def _look_at(self, number: int, place: ArchivePlace) -> None:
        trouble: OSError | None = None
        try:
            listed = await self._threads[number].call(place.listed)
            for job_id in self.core.to_read(number, listed):
                try:
                    await self._read(number, job_id, listed[job_id])
                except TimeoutError:  # the place hangs: each further archive would take its time as well
                    raise
                except OSError as error:  # one archive that can't be read must not hide those behind it
                    trouble = error
        except OSError as error:
            trouble = error
        if trouble is not None:
            if number not in self._troubled:
                logger.warning("archives in %s can't be read for now: %s", place, trouble)
            self._troubled.add(number)
        elif number in self._troubled:
            logger.info("archives in %s can be read again", place)
            self._troubled.discard(number)

    async def _read(self, number: int, job_id: str, stamp: str) -> None:
        self._cache.forget(job_id)
        place = self._places[number]
        try:
            job_archive = await self._threads[number].call(_decoded, place, job_id)
            overview = None if job_archive is None else job_overview(job_archive.archive)
        except (DamagedEntryError, KeyError, TypeError, ValueError, AttributeError) as error:
            reason = str(error) if isinstance(error, DamagedEntryError) else repr(error)
            logger.error("the archive of job %s in %s is damaged and left out: %s", job_id, place, reason)
            self.core.read(number, job_id, ArchiveEntry(stamp))
            return
        if job_archive is None or overview is None:
            self.core.gone(number, job_id)
        elif job_archive.job_id != job_id:
            logger.error("%s.archive in %s holds job %s; it is left out", job_id, place, job_archive.job_id)
            self.core.read(number, job_id, ArchiveEntry(stamp))
        else:
            application = application_id(job_archive.archive)
            self.core.read(number, job_id, ArchiveEntry(stamp, job_archive.ended_ms, overview, application))

    async def _remove(self, number: int, job_id: str) -> None:
        try:
            await self._threads[number].call(self._places[number].remove, job_id)
        except OSError as error:
            logger.warning("the archive of job %s can't be removed: %s", job_id, error)
            return
        logger.info("the archive of job %s in %s has expired and was removed", job_id, self._places[number])
        self.core.gone(number, job_id)
        self._cache.forget(job_id)

    async def archive_of(self, job_id: str, vertex_id: str = "") -> Archive:
        """The archive of a job.

        Args:
            job_id: of the job.
            vertex_id: vertex whose rows of subtasks the archive has; empty = none.

        Raises:
            UnknownArchiveError: there is no archive of the job.
            DamagedEntryError: the archive is damaged.
            OSError: the archive can't be read for now.
        """
        located = self.core.place_of(job_id)
        if located is None:
            raise UnknownArchiveError(f"There is no archive of job {job_id} in {', '.join(map(str, self._places))}")
        number, entry = located
        if entry.overview is None:
            raise DamagedEntryError(f"the archive of job {job_id} in {self._places[number]} is damaged")
        archive: Archive | None = self._cache.get(job_id)
        if archive is None:
            job_archive = await self._threads[number].call(_decoded, self._places[number], job_id)
            if job_archive is None:
                self.core.gone(number, job_id)
                raise UnknownArchiveError(f"The archive of job {job_id} was removed")
            history = {"environment": job_archive.environment, "config": job_archive.config}
            archive = {**job_archive.archive, HISTORY: history}
            self._cache.put(job_id, archive)
        return await in_slices(with_rows(archive, vertex_id))


def _decoded(place: ArchivePlace, job_id: str) -> JobArchive | None:
    content = place.read(job_id)
    return None if content is None else JobArchive.decode(content)
