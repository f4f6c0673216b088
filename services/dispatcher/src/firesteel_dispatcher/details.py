"""Archives of jobs for the REST API: of running jobs from their JobMasters, of ended jobs from the history."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final

from firesteel.core.clock import Clock
from firesteel.core.errors import RpcError
from firesteel.graph.job_archive import EVENTS, with_rows
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import JobMasterGateway
from firesteel.rest import types as t
from firesteel.rest.archive_cache import Archive, ArchiveCache
from firesteel.rest.views import job_overview
from firesteel.rpc import RpcClient
from firesteel.service.background import in_slices
from firesteel.service.heartbeat import is_refused
from firesteel.service.retries import is_gone
from firesteel_dispatcher.core import DispatcherCore
from firesteel_dispatcher.instructions import Instruction
from firesteel_dispatcher.job import ENDED, JobPhase, JobRecord, Moment, UnknownJobError

logger = logging.getLogger(__name__)
PROGRESS: Final = "firesteel-progress"
"""Field of an archive: what the job waits for."""


class JobDetailsCache:
    """Asks JobMasters for archives, once for all requests that come at about the same time.

    Args:
        core: of the Dispatcher.
        clock: for the age of answers.
        most_age: seconds after which an answer is out of date.
        patience: seconds that a request waits for a JobMaster's answer.
        cache: of ended jobs.
        read: brings the archive of an ended job; None = there is none.
        spawn: runs questions in the background.
        perform: carries out what the core decides.
        now: the moment.
        heard: called with the id of a job whose JobMaster answered.
        refused: called at a heartbeat with the id of a job whose JobMaster's port is closed.
    """

    def __init__(
        self,
        core: DispatcherCore,
        clock: Clock,
        most_age: float,
        patience: float,
        cache: ArchiveCache,
        read: Callable[[str], Awaitable[Archive | None]],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None] | None],
        perform: Callable[[Iterable[Instruction]], None],
        now: Callable[[], Moment],
        heard: Callable[[str], None],
        refused: Callable[[str], None],
    ) -> None:
        self._core, self._clock, self._most_age, self._patience = core, clock, most_age, patience
        self._cache, self._read, self._spawn, self._perform = cache, read, spawn, perform
        self._now, self._heard, self._refused = now, heard, refused
        self._last: dict[str, dict[str, tuple[float, Archive]]] = {}
        """Last answers: job -> vertex whose subtasks the answer has (empty: no subtasks) -> monotonic time, archive."""
        self._asking: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._unanswered: dict[str, tuple[tuple[str, str], bool]] = {}
        """Job -> the JobMaster that did not answer the last question, and whether its host refused the connection."""

    def connect(self, client: RpcClient) -> None:
        """Make calls with this client; comes before any question."""
        self._client = client

    def outdated(self, job_id: str) -> None:
        """The job has changed, so the next request asks the JobMaster."""
        for vertex_id, (_, archive) in self._last.get(job_id, {}).items():
            self._last[job_id][vertex_id] = (float("-inf"), archive)

    def forget(self, job_id: str) -> None:
        """The job has ended, or is forgotten."""
        self._last.pop(job_id, None)
        self._unanswered.pop(job_id, None)

    async def of(self, job_id: str, vertex_id: str = "") -> Archive:
        """A job: from its JobMaster while it runs, else as it ended.

        Args:
            job_id: of the job.
            vertex_id: vertex whose rows of subtasks the archive has; empty = none.

        Raises:
            UnknownJobError: there is no such job.
            DamagedEntryError: the stored end of the job is damaged.
        """
        job = self._core.job(job_id)
        await self._refresh(job, vertex_id)
        archive = await self._of_ended(job) if job.ended else self._known(job, vertex_id)
        return await in_slices(with_rows(archive, vertex_id))

    async def refresh(self) -> bool:
        """Ask all JobMasters, as a heartbeat; returns whether a JobMaster's host refused the connection."""
        jobs = list(self._core.jobs.values())
        await asyncio.gather(*map(self._refresh, jobs))
        refused = [
            job.id
            for job in jobs
            if job.phase is JobPhase.LED and self._unanswered.get(job.id) == (job.jobmaster, True)
        ]
        for job_id in refused:
            self._refused(job_id)
        return bool(refused)

    async def refresh_job(self, job_id: str) -> None:
        """Ask the JobMaster of a job, if one runs it."""
        job = self._core.jobs.get(job_id)
        if job is not None:
            await self._refresh(job)

    async def _refresh(self, job: JobRecord, vertex_id: str = "") -> None:
        last = self._last.get(job.id, {}).get(vertex_id)
        is_new = last is not None and self._clock.monotonic() - last[0] < self._most_age
        if job.phase is not JobPhase.LED or is_new:
            return
        question = job.id, vertex_id
        asking = self._asking.get(question)
        if asking is None:
            asking = self._spawn(self._ask(job, vertex_id), f"details of job {job.id}")
            if asking is None:  # the service stops
                return
            self._asking[question] = asking
            asking.add_done_callback(lambda _: self._asking.pop(question, None))
        await asyncio.wait([asking], timeout=self._patience)

    async def overviews(self) -> list[t.JobRow]:
        """Lines of ``/jobs/overview`` in the order of submission; ended jobs last."""
        jobs = list(self._core.jobs.values())
        return [
            job.overview if job.overview is not None else {**job_overview(archive), "firesteel-progress": job.progress}
            for job, archive in zip(jobs, await asyncio.gather(*map(self._of_running, jobs)), strict=True)
        ]

    async def of_running(self) -> list[Archive]:
        """Details of all jobs that have not ended."""
        return list(await asyncio.gather(*(self._of_running(j) for j in self._core.jobs.values() if not j.ended)))

    async def _of_running(self, job: JobRecord) -> Archive:
        if job.ended:
            return {}
        try:
            return await self.of(job.id)
        except UnknownJobError:  # it was forgotten just now
            return self._known(job)

    async def _of_ended(self, job: JobRecord) -> Archive:
        archive = job.archive if job.archive is not None else self._cache.get(job.id)
        if archive is None:
            archive = await self._read(job.id)
            if archive is None:
                raise UnknownJobError(f"Job {job.id} not found")
            self._cache.put(job.id, archive)
        return archive

    def _known(self, job: JobRecord, vertex_id: str = "") -> Archive:
        """The last answer of the JobMaster, with the present state of the job."""
        last = self._last.get(job.id, {}).get(vertex_id)
        archive = last[1] if last is not None else job.archive or {}
        now = self._now().epoch_ms
        start = archive.get("start-time", now)
        return {
            **archive, "state": job.state, "timestamps": dict(job.timestamps), "now": now, "duration": now - start,
            PROGRESS: job.progress, EVENTS: job.events,
            "firesteel-settings": (job.archive or {}).get("firesteel-settings", {}),
        }  # fmt: skip

    async def _ask(self, job: JobRecord, vertex_id: str) -> None:
        if job.jobmaster is None:  # it was lost before this began
            return
        jobmaster = address, token = job.jobmaster
        gateway = JobMasterGateway(self._client, address, token)
        try:
            answer = (await gateway.details(m.LookAtJob((vertex_id,) if vertex_id else ()))).archive
        except RpcError as error:
            if is_gone(error):
                text = f"the JobMaster of the job is lost: {error}"
                self._perform(self._core.jobmaster_lost(job.id, text, self._now(), token))
            else:
                if job.id not in self._unanswered:
                    logger.warning("no details of job %s: %s", job.id, error)
                self._unanswered[job.id] = jobmaster, is_refused(error)
            return
        if job.jobmaster != jobmaster:  # it was followed by another one meanwhile
            return
        self._unanswered.pop(job.id, None)
        self._heard(job.id)
        if not job.ended:
            job.events = answer.get(EVENTS, job.events)
            self._last.setdefault(job.id, {})[vertex_id] = (self._clock.monotonic(), answer)
            if answer["state"] not in ENDED:  # a JobMaster reports an end by a call of its own (job_finished)
                self._core.state_changed(job.id, str(answer["state"]), answer.get("timestamps", {}))
