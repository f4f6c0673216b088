"""JobMasters in the process of the service: all of an embedded cluster, or the one of a job process."""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from firesteel.checkpoint.store import CompletedCheckpointStore, MemoryCheckpointStore
from firesteel.config import Settings
from firesteel.core.call_pool import close_in_time
from firesteel.core.clock import Clock
from firesteel.core.errors import JobNotFoundError
from firesteel.core.ids import new_fencing_token
from firesteel.core.run_directory import RunDirectory
from firesteel.graph.job_graph import JobGraph
from firesteel.ha.services import JOBMASTER_HOST, HighAvailabilityServices, LeaderRetrieval
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import DispatcherGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import RpcClient
from firesteel.rpc.process_calls import process_routes
from firesteel.service.background import BackgroundTasks
from firesteel.service.base import Service
from firesteel.service.job_log import job_log
from firesteel.service.leaders import Candidate
from firesteel.service.measured import Measured, of_job
from firesteel.service.otlp_metrics import otlp_metric_reporters
from firesteel.service.process_logs import ProcessLogs
from firesteel.service.retries import until_it_works
from firesteel.traces.settings import trace_reporters
from firesteel.traces.tracing import Tracing, tracing_of
from firesteel_jobmaster.handover import JobAttempts
from firesteel_jobmaster.host import HostService
from firesteel_jobmaster.routes import host_routes, job_routes
from firesteel_jobmaster.settings import JobMasterSettings
from firesteel_jobmaster.shell import JobMaster
from firesteel_jobmaster.submission import check_leads, check_term, leads_elsewhere, other_job, read_job

logger = logging.getLogger(__name__)
DRAIN_SECONDS = 2.0
KEPT_JOBS = 32
"""JobMasters of ended jobs that still answer late messages, and give away last results; older ones are forgotten."""


@dataclass
class _Legacy:
    """What JobMasters of a job in this process leave to the one that follows them.

    Attributes:
        store: of completed checkpoints.
        jobmasters: how many JobMasters the job has had.
    """

    store: CompletedCheckpointStore = field(default_factory=MemoryCheckpointStore)
    jobmasters: int = 0

    def attempts(self, former: JobMaster | None, takeover: int) -> JobAttempts | None:
        """Attempts that the next JobMaster must not use again; ``former`` is the JobMaster before it."""
        self.jobmasters += 1
        if former is None:
            return None
        return JobAttempts(max(former.core.graph.next_attempt(), takeover), lambda _: None, self.jobmasters)


class JobMasterService(Service):
    """Runs JobMasters. Every job has a JobMaster object of its own, with its own fencing token.

    Args:
        settings: of the cluster; those of a job come on top.
        secret: of the cluster.
        clock: injected.
        host_names: see ``Service``.
        takes_jobs: answer the calls of a host; else jobs are only started by ``create_job``.
        ha: where this host says that it is there, and where JobMasters find the ResourceManager; it stays the caller's.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        secret: str,
        clock: Clock,
        host_names: Collection[str] = (),
        takes_jobs: bool = True,
        ha: HighAvailabilityServices | None = None,
    ) -> None:
        super().__init__("jobmaster", host_names=host_names, drain_seconds=DRAIN_SECONDS)
        self._settings, self._secret, self._clock = settings, secret, clock
        self._leaders: LeaderRetrieval | None = ha
        self._candidate = Candidate(ha, JOBMASTER_HOST) if ha is not None and takes_jobs else None
        self._jobs: dict[str, JobMaster] = {}
        self._legacies: dict[str, _Legacy] = {}
        self._graphs: dict[str, JobGraph] = {}
        self._rpc: RpcClient | None = None
        self._calls = BackgroundTasks("calls of the jobmaster")
        self._trace_reporters = trace_reporters(settings)
        self._tracing: Tracing | None = None
        self._meters = [reporter.to_plain() for reporter in otlp_metric_reporters(settings)]
        if takes_jobs:
            self.app.add_routes(host_routes(self, secret, clock))
        of_process = process_routes(secret, clock, job_log=functools.partial(job_log, ProcessLogs()))
        self.app.add_routes([*job_routes(self, secret, clock), *of_process])

    async def on_start(self) -> None:
        """Say where this host is."""
        if self._candidate is not None:
            await self._candidate.lead()
            await self._candidate.announce(self.address, "")

    async def measured(self) -> list[Measured]:
        """Figures of the service, and of the jobs that run here."""
        measurements, labels = await super().measured(), {"host": self.host}
        for job_id, job in self._jobs.items():
            if not job.dispatcher.acknowledged.is_set():
                measurements += of_job(job_id, job.core.graph.job_graph.name, job.core.job_values(), labels)
        return measurements

    async def start_job(self, message: m.StartJob) -> m.JobStarted:
        """Run a job; a job that is here already goes on, if it is the same.

        Raises:
            GraphError: the graph or its settings are malformed, or another job has its id.
            RpcFault: another host leads, or another Dispatcher.
        """
        await check_leads(self._candidate)
        graph, settings = read_job(self._settings, message)
        job = self._jobs.get(graph.job_id)
        if job is not None:
            check_term(graph.job_id, job.start_message, message)
        if job is not None and str(job.token) in message.given_up:
            job.suspend("the Dispatcher has given this JobMaster up")
            job = None
        elif job is not None and job.door.crashed.is_set():
            raise RpcFault(RpcCode.INTERNAL, f"the JobMaster of job {graph.job_id} {job.door.crash_cause}")
        if job is None:
            job = self._create(graph, settings, message)
            job.start()
        elif self._graphs[graph.job_id] != graph:
            raise other_job(graph.job_id)
        elif leads_elsewhere(job.start_message, message):
            job.adopt(m.AdoptJob(message.dispatcher_address, message.dispatcher_token, message.dispatcher_term))
        return m.JobStarted(job.address, job.token)

    def create_job(
        self,
        message: m.StartJob,
        checkpoint_store: CompletedCheckpointStore | None = None,
        leaders: LeaderRetrieval | None = None,
        attempts: JobAttempts | None = None,
    ) -> JobMaster:
        """Make the JobMaster of a job, which begins with its ``start``.

        Args:
            message: of the Dispatcher.
            checkpoint_store: remembers completed checkpoints; None: for as long as this JobMaster lives.
            leaders: say where the ResourceManager is; None: the services of this host do.
            attempts: of former JobMasters; None: there were none.

        Raises:
            GraphError: the graph or its settings are malformed.
        """
        return self._create(*read_job(self._settings, message), message, checkpoint_store, leaders, attempts)

    def _create(
        self,
        graph: JobGraph,
        settings: JobMasterSettings,
        message: m.StartJob,
        checkpoint_store: CompletedCheckpointStore | None = None,
        leaders: LeaderRetrieval | None = None,
        attempts: JobAttempts | None = None,
    ) -> JobMaster:
        if self._rpc is None:
            self._rpc = RpcClient(self.session, self._secret, self._clock)
        if self._tracing is None:
            self._tracing = tracing_of(self._trace_reporters, "jobmaster")
        legacy = None
        if checkpoint_store is None:
            legacy = self._legacies.setdefault(graph.job_id, _Legacy())
            checkpoint_store, attempts = legacy.store, legacy.attempts(self._jobs.get(graph.job_id), message.takeover)
        job = JobMaster(
            graph,
            message,
            f"{self.address}/jobs/{graph.job_id}",
            new_fencing_token(),
            settings,
            self._clock,
            self._rpc,
            self.spawn,
            self._calls.spawn,
            checkpoint_store=checkpoint_store,
            may_recover=legacy is None or legacy.jobmasters > 1,
            leaders=leaders or self._leaders,
            attempts=attempts,
            tracing=self._tracing,
            meters=self._meters,
        )
        self._jobs[graph.job_id], self._graphs[graph.job_id] = job, graph
        self.spawn(self._forget_later(job), f"end of job {graph.job_id}")
        if legacy is not None:
            self.spawn(self._report_crash(job), f"loss of job {graph.job_id}")
        return job

    async def _report_crash(self, job: JobMaster) -> None:
        """Report a JobMaster that crashes as lost: here it has no process that could die."""
        await job.door.crashed.wait()
        assert self._rpc is not None
        job.resourcemanager.disconnect()  # the slots go back, for the JobMaster that follows
        cause = f"The JobMaster of job {job.core.graph.job_graph.name!r} {job.door.crash_cause}"
        lost, start = m.JobMasterLost(job.job_id, cause, job.token), job.start_message
        dispatcher = DispatcherGateway(self._rpc, start.dispatcher_address)
        await until_it_works(f"loss of job {job.job_id}", lambda: dispatcher.jobmaster_lost(lost))

    def job(self, job_id: str) -> JobMaster:
        """The JobMaster of a job.

        Raises:
            JobNotFoundError: there is none, or it ended long ago.
        """
        jobmaster = self._jobs.get(job_id)
        if jobmaster is None:
            raise JobNotFoundError(f"no JobMaster here runs job {job_id[:80]!r}", job_id)
        return jobmaster

    def running_jobs(self) -> m.RunningJobs:
        """The jobs that run, and those whose end no Dispatcher has acknowledged."""
        return m.RunningJobs(
            tuple(
                m.RunningJob(id_, job.address, job.token, job.start_message.job_graph)
                for id_, job in self._jobs.items()
                if not (job.dispatcher.acknowledged.is_set() or job.door.crashed.is_set())
            )
        )

    async def _forget_later(self, job: JobMaster) -> None:
        await job.dispatcher.acknowledged.wait()
        ended = [id_ for id_, job in self._jobs.items() if job.dispatcher.acknowledged.is_set()]
        for job_id in ended[:-KEPT_JOBS]:
            del self._jobs[job_id], self._graphs[job_id]
            self._legacies.pop(job_id, None)

    async def on_drain(self) -> None:
        """Give the slots of all jobs back."""
        for job in self._jobs.values():
            job.suspend("the JobMaster stops")
        await self._calls.drain(DRAIN_SECONDS)

    async def on_stop(self) -> None:
        """Give up calls that nobody answers, and export the last spans."""
        await self._calls.close()
        if self._tracing is not None:
            await close_in_time(self._tracing.close, "traces")

    async def on_stopped(self) -> None:
        """Another host may lead."""
        if self._candidate is not None:
            await self._candidate.give_up()


def create_service(
    *, settings: Settings, secret: str, clock: Clock, ha: HighAvailabilityServices | None = None
) -> JobMasterService:
    """A JobMaster host whose jobs run in its own process, ready to be started.

    Args:
        settings: of the cluster.
        secret: of the cluster.
        clock: injected.
        ha: see ``JobMasterService``.
    """
    return JobMasterService(settings=settings, secret=secret, clock=clock, ha=ha)


def create_host(
    *,
    settings: Settings,
    secret: str,
    clock: Clock,
    run_directory: RunDirectory,
    cluster_directory: Path,
    bind_host: str = "127.0.0.1",
    advertised_host: str = "",
    log_directory: Path | None = None,
    ha: HighAvailabilityServices | None = None,
) -> HostService:
    """A JobMaster host that runs each job in a process of its own, ready to be started.

    It starts a process already: call it before any thread or event loop runs, and start and stop the service.

    Args:
        settings: of the cluster.
        secret: of the cluster.
        clock: injected.
        run_directory: of sockets, and of the logs of jobs if there is no directory for logs; owned by the caller.
        cluster_directory: where it finds its jobs again after it was killed.
        bind_host: address that the jobs bind to.
        advertised_host: under which others find the jobs; needed if ``bind_host`` means all interfaces.
        log_directory: where logs of jobs stay.
        ha: where this host says that it is there, and finds the others; it stays the caller's.
    """
    return HostService(
        settings=settings,
        secret=secret,
        clock=clock,
        run_directory=run_directory,
        cluster_directory=cluster_directory,
        bind_host=bind_host,
        advertised_host=advertised_host,
        log_directory=log_directory,
        ha=ha,
    )
