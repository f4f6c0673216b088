"""Writes an archive of each job that has ended, for history servers (``jobmanager.archive.fs.dir``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from firesteel.config import Settings, options
from firesteel.core.backoff import pauses
from firesteel.core.call_pool import CallPool
from firesteel.rest.archive_cache import Archive
from firesteel.rest.job_archives import ArchivePlace, JobArchive, open_place
from firesteel.service.process_metrics import environment
from firesteel.service.retries import until_storage_answers

logger = logging.getLogger(__name__)
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0


class Archiver:
    """Writes archives until it works: storage that is away must not hold up the end of a job, nor lose its archive.

    Args:
        settings: of the cluster.
        spawn: runs the work in the background.

    Raises:
        ConfigurationError: ``jobmanager.archive.fs.dir`` is wrong.
    """

    def __init__(
        self, settings: Settings, spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None] | None]
    ) -> None:
        place = settings.get(options.ARCHIVE_DIRECTORY)
        self._place = None if place is None else open_place(place, options.ARCHIVE_DIRECTORY.key, settings)
        self._config = dict(settings.to_shown())
        self._spawn = spawn
        self._threads = CallPool("archives of jobs")
        self._writing: set[asyncio.Task[None]] = set()

    def ended(self, job_id: str, archive: Archive) -> None:
        """Write the archive of a job that has ended, and whose end is safe."""
        if self._place is not None:
            self._start(self._write(self._place, job_id, archive), f"archive of job {job_id}")

    def restored(self, ends: Iterable[tuple[str, Archive]]) -> None:
        """Write the archives that are missing of jobs that ended under earlier Dispatchers."""
        archives = dict(ends)
        if self._place is not None and archives:
            self._start(self._write_missing(self._place, archives), "archives of former jobs")

    async def drain(self) -> None:
        """Wait until all archives are written."""
        while self._writing:
            await asyncio.wait(self._writing)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._spawn(work, name)
        if task is not None:
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def _write_missing(self, place: ArchivePlace, archives: Mapping[str, Archive]) -> None:
        stored = await until_storage_answers(
            f"archives of jobs can't be listed in {place}",
            lambda: self._threads.call(place.listed),
            pauses(FIRST_PAUSE, LONGEST_PAUSE),
        )
        for job_id in archives.keys() - stored.keys():
            await self._write(place, job_id, archives[job_id])

    async def _write(self, place: ArchivePlace, job_id: str, archive: Archive) -> None:
        # Without secrets, since other people read and copy archives.
        shown = {**archive, "config": Settings(archive.get("config", {})).to_shown()}
        job_archive = JobArchive(job_id, int(archive.get("end-time", 0)), shown, environment(), self._config)
        content = await self._threads.call(job_archive.encode)
        await until_storage_answers(
            f"no archive of job {job_id} in {place}",
            lambda: self._threads.call(place.write, job_id, content),
            pauses(FIRST_PAUSE, LONGEST_PAUSE),
        )
        logger.info("the archive of job %s is in %s", job_id, place)
