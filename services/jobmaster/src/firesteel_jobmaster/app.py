"""The JobMaster host: runs the JobMasters of several jobs."""

from __future__ import annotations

import logging
from collections.abc import Collection

from aiohttp import web

from firesteel.config import Settings
from firesteel.core.clock import Clock
from firesteel.core.errors import ConfigurationError, GraphError, JobNotFoundError
from firesteel.core.ids import new_fencing_token, parse_job_id
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol import messages as m
from firesteel.rpc import RpcClient
from firesteel.service.background import BackgroundTasks
from firesteel.service.base import Service
from firesteel_jobmaster.routes import routes
from firesteel_jobmaster.settings import JobMasterSettings
from firesteel_jobmaster.shell import JobMaster

logger = logging.getLogger(__name__)
DRAIN_SECONDS = 2.0
KEPT_JOBS = 32
"""So many JobMasters of ended jobs still answer (late messages, the last results); older ones are forgotten."""


class JobMasterService(Service):
    """The host. Every job has a JobMaster object of its own, with its own fencing token.

    Args:
        settings: of the cluster; those of a job come on top.
        secret: of the cluster.
        clock: injected.
        host_names: see ``Service``.
    """

    def __init__(self, *, settings: Settings, secret: str, clock: Clock, host_names: Collection[str] = ()) -> None:
        super().__init__("jobmaster", host_names=host_names, drain_seconds=DRAIN_SECONDS)
        self._settings, self._secret, self._clock = settings, secret, clock
        self._jobs: dict[str, JobMaster] = {}
        self._graphs: dict[str, JobGraph] = {}
        self._rpc: RpcClient | None = None
        self._calls = BackgroundTasks("calls of the jobmaster")
        self.app.add_routes(routes(self, secret, clock))

    def start_job(self, message: m.StartJob) -> m.JobStarted:
        """Run a job; a job that is here already goes on, if it is the same.

        Raises:
            GraphError: the graph or its settings are malformed, or another job has its id.
        """
        graph = JobGraph.from_plain(message.job_graph)
        try:
            parse_job_id(graph.job_id)
            settings = JobMasterSettings.read(self._settings, graph.config)
        except ConfigurationError as error:
            raise GraphError(str(error)) from error
        known = self._jobs.get(graph.job_id)
        if known is not None:
            if self._graphs[graph.job_id] != graph:
                raise GraphError(f"another job with the id {graph.job_id} is here already")
            return m.JobStarted(known.address, known.token)
        if self._rpc is None:
            self._rpc = RpcClient(self.session, self._secret, self._clock)
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
        )
        self._jobs[graph.job_id], self._graphs[graph.job_id] = job, graph
        job.start()
        self.spawn(self._forget_later(job), f"end of job {graph.job_id}")
        return m.JobStarted(job.address, job.token)

    def job(self, job_id: str) -> JobMaster:
        """The JobMaster of a job.

        Raises:
            JobNotFoundError: there is none, or it ended long ago.
        """
        found = self._jobs.get(job_id)
        if found is None:
            raise JobNotFoundError(f"no JobMaster here runs job {job_id[:80]!r}", job_id)
        return found

    async def _forget_later(self, job: JobMaster) -> None:
        await job.acknowledged.wait()
        ended = [id_ for id_, job in self._jobs.items() if job.acknowledged.is_set()]
        for job_id in ended[:-KEPT_JOBS]:
            del self._jobs[job_id], self._graphs[job_id]

    async def on_drain(self) -> None:
        """Give the slots of all jobs back."""
        for job in self._jobs.values():
            job.suspend("the JobMaster stops")
        await self._calls.drain(DRAIN_SECONDS)

    async def on_stop(self) -> None:
        """Give up calls that nobody answers."""
        await self._calls.close()


def create_service(*, settings: Settings, secret: str, clock: Clock) -> JobMasterService:
    """A JobMaster host, ready to be started.

    Args:
        settings: of the cluster.
        secret: of the cluster.
        clock: injected.
    """
    return JobMasterService(settings=settings, secret=secret, clock=clock)


def create_app(*, settings: Settings, secret: str, clock: Clock) -> web.Application:
    """The application of a JobMaster host, for a runner of one's own."""
    return create_service(settings=settings, secret=secret, clock=clock).app
