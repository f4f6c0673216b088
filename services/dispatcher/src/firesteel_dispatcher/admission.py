"""How jobs become known to a Dispatcher: submitted by a client, restored from the store, or found running."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from firesteel.config import Settings
from firesteel.core.call_pool import CallPool
from firesteel.core.errors import GraphError
from firesteel.graph.job_graph import JobGraph
from firesteel.ha.documents import DamagedEntryError, UnknownFormatError
from firesteel.ha.jobs import StoreContents, StoredJob
from firesteel.protocol import messages as m
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rest.archive_cache import Archive
from firesteel.rest.job_settings import client_timeout, client_timeout_or_none
from firesteel_dispatcher.archives import submitted_archive, unreadable_archive
from firesteel_dispatcher.core import DispatcherCore
from firesteel_dispatcher.history import History
from firesteel_dispatcher.instructions import Instruction, TakeOver
from firesteel_dispatcher.job import Moment
from firesteel_dispatcher.leadership import DispatcherLeadership
from firesteel_dispatcher.submission import Submission, fingerprint_of
from firesteel_dispatcher.traces import SubmissionTraces, Submitting

logger = logging.getLogger(__name__)
_PLANS: Final = CallPool("submissions", deadline=300.0)
"""Threads for plans of jobs, which are computed and look at nothing outside."""


class ClosingError(Exception):
    """The cluster is being shut down."""


class JobAdmission:
    """Lets jobs in, and keeps the graphs of those that have not ended.

    Args:
        core: decides about jobs.
        leadership: has the store.
        history: takes the jobs that have ended.
        cluster_settings: all settings of the cluster; those of a job come on top.
        follows_jobmasters: see the attribute.
        traces: of submissions.
        perform: carries out what the core decides.
        on_known: called with id and settings of each job that becomes known.
        now: the moment.

    Attributes:
        graphs: of jobs that have not ended, by job id; a graph that is damaged in the store is missing.
        follows_jobmasters: whether a JobMaster that is lost is followed by another one, whatever the restart strategy
            of its job is: that counts failures of the job.
        is_closed: the cluster is being shut down; submissions are refused.
    """

    def __init__(
        self,
        core: DispatcherCore,
        leadership: DispatcherLeadership,
        history: History,
        cluster_settings: Settings,
        follows_jobmasters: bool,
        traces: SubmissionTraces,
        perform: Callable[[Iterable[Instruction]], None],
        on_known: Callable[[str, Mapping[str, str]], None],
        now: Callable[[], Moment],
    ) -> None:
        self._core, self._leadership, self._history, self.traces = core, leadership, history, traces
        self._cluster_settings, self.follows_jobmasters = cluster_settings, follows_jobmasters
        self._perform, self._on_known, self._now = perform, on_known, now
        self.graphs: dict[str, JobGraph] = {}
        self.is_closed = False
        self._submitting = asyncio.Lock()
        self._recorded_ends: dict[str, Archive] = {}
        """Jobs that ended while no Dispatcher was up, until the services are connected."""

    def _know(self, graph: JobGraph) -> None:
        self.graphs[graph.job_id] = graph
        self._on_known(graph.job_id, graph.config)

    # -- submission

    async def submit(
        self, submission: Submission, received: Path, trace: Submitting | None = None, by: str = ""
    ) -> None:
        """Store a job and have it run; when this returns it is safe.

        Args:
            submission: the job, read and checked.
            received: the directory with its files.
            trace: of the request; None = there is none.
            by: who submits it, and from which address.

        Raises:
            JobConflictError: another job has its id.
            ConfigurationError: one of its settings has a bad value.
            ClosingError: the cluster is being shut down.
            OSError: it could not be stored.
        """
        graph, fingerprint = submission.graph, submission.fingerprint
        async with self._submitting:
            if self._core.is_known(graph.job_id, fingerprint):
                return  # the client repeats a submission whose answer was lost
            if self.is_closed:
                raise ClosingError
            timeout, now = client_timeout(graph), self._now()
            archive = await _PLANS.call(submitted_archive, graph, self._cluster_settings, now.epoch_ms, by)
            job = StoredJob(graph, fingerprint, now.epoch_ms)
            await self._leadership.on_disk(self._leadership.store.put, job, received, submission.blobs)
            if trace is not None:
                self.traces.step(trace, "Store")
                self.traces.known(trace, graph.job_id)
            self._know(graph)
            follows = self.follows_jobmasters
            self._perform(self._core.submitted(graph.job_id, graph.name, fingerprint, archive, now, timeout, follows))

    # -- after a restart

    async def restore(self, contents: StoreContents) -> None:
        """Take over the jobs of earlier Dispatchers from the store; the JobMasters that run are found later."""
        now = self._now()
        self._history.restore(contents.ends, now)
        for end in contents.ends:
            self._on_known(end.job_id, end.config)
        for damaged in contents.unreadable:
            logger.error("job %s waits: %s", damaged.job_id, damaged.reason)
            archive = unreadable_archive(damaged.job_id, now.epoch_ms)
            self._core.restored(
                damaged.job_id, str(archive["name"]), "", archive, now, None,
                damaged.jobmaster, damaged.cancel_wanted, self.follows_jobmasters,
            )  # fmt: skip
        for job in contents.jobs:
            graph = job.graph
            self._know(graph)
            archive = submitted_archive(graph, self._cluster_settings, job.submitted_ms)
            self._core.restored(
                graph.job_id, graph.name, job.fingerprint, archive, now, client_timeout_or_none(graph),
                job.jobmaster, job.cancel_wanted, self.follows_jobmasters,
            )  # fmt: skip
        if contents.jobs or contents.ends:
            logger.info("%d jobs had not ended, %d had", len(contents.jobs), len(contents.ends))
        for job in contents.jobs:
            job_id = job.graph.job_id
            try:
                end_archive = await self._recorded_end(job_id)
            except (OSError, DamagedEntryError, UnknownFormatError) as error:  # it is read again before a start
                logger.warning("whether job %s has ended can't be read from its record for now: %s", job_id, error)
            else:
                if end_archive is not None:
                    self._recorded_ends[job_id] = end_archive

    def end_recorded_jobs(self) -> None:
        """Take over the ends that JobMasters recorded while no Dispatcher was up; comes after all is connected."""
        recorded_ends, self._recorded_ends = self._recorded_ends, {}
        for job_id, archive in recorded_ends.items():
            self._perform(self._core.had_ended(job_id, archive, self._now()))

    async def _recorded_end(self, job_id: str) -> Archive | None:
        """The archive in the record of a job that counts as running here; None: the job has not ended.

        Raises:
            OSError: the record can't be read for now.
            DamagedEntryError: the record is damaged.
        """
        end = await self._leadership.on_disk(self._leadership.ha.recorded_end, job_id)
        job = self._core.jobs.get(job_id)
        if end is None or job is None or job.ended or end.submitted_ms != job.submitted_ms:
            return None  # the record of another run, behind which no JobMaster has cleaned up
        shown_settings: Mapping[str, Any] = (job.archive or {}).get("firesteel-settings", {})
        return {**end.archive, "firesteel-settings": shown_settings}

    async def has_ended(self, job_id: str) -> bool:
        """Whether a job that is to get a JobMaster ended under the one before; its end is taken over then.

        Raises:
            RpcFault: that is not known for now: no JobMaster may be started.
        """
        try:
            archive = await self._recorded_end(job_id)
        except (OSError, DamagedEntryError, UnknownFormatError) as error:
            text = f"whether the job has ended already can't be read from its record: {error}"
            raise RpcFault(RpcCode.INTERNAL, text) from error
        if archive is not None:
            self._perform(self._core.had_ended(job_id, archive, self._now()))
        return archive is not None

    async def read_again(self, job_id: str) -> JobGraph:
        """The graph of a job that is to get a JobMaster, and of which something stored was damaged.

        Raises:
            RpcFault: it still is, or can't be read: the job waits, is shown with the reason, and can be cancelled.
        """
        try:
            job = await self._leadership.on_disk(self._leadership.store.read_again, job_id)
        except (OSError, DamagedEntryError, UnknownFormatError) as error:
            text = f"{error}. Bring back what is missing, or cancel the job and submit it again"
            raise RpcFault(RpcCode.INTERNAL, text) from error
        graph = job.graph
        record = self._core.jobs.get(job_id)
        if record is not None and not record.ended:
            logger.info("what was damaged of job %s (%s) is whole again", job_id, graph.name)
            archive = await _PLANS.call(submitted_archive, graph, self._cluster_settings, job.submitted_ms)
            self._core.read_again(job_id, graph.name, job.fingerprint, archive)
            self._know(graph)
        return graph

    def take_over(self, order: TakeOver, listed: Mapping[str, m.RunningJob]) -> None:
        """Take over a job that runs although there is no record of it.

        Args:
            order: names the job and its JobMaster.
            listed: the jobs of the JobMaster host by id, with their graphs.
        """
        try:
            graph = JobGraph.from_plain(listed[order.job_id].job_graph)
        except (KeyError, GraphError) as error:
            logger.error("job %s runs without a record, and its graph can't be read: %s", order.job_id, error)
            return
        self._know(graph)
        now = self._now()
        archive = submitted_archive(graph, self._cluster_settings, now.epoch_ms)
        jobmaster = (order.address, order.token)
        self._perform(self._core.taken_over(graph.job_id, graph.name, fingerprint_of(graph), archive, jobmaster, now))
