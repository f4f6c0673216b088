"""The Dispatcher as a service: its ports, its start and end, and the end of the cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from aiohttp import web

from firesteel.checkpoint import savepoint_places
from firesteel.config import Settings
from firesteel.core.clock import Clock
from firesteel.ha.services import HighAvailabilityServices
from firesteel.rest.access import RestAccess
from firesteel.rest.archive_cache import Archive
from firesteel.rest.views import job_values
from firesteel.rpc import RpcClient
from firesteel.service.base import Service
from firesteel.service.leaving import Leaving
from firesteel.service.measured import JOBMANAGER, Measured, numbers, of_job
from firesteel.traces.settings import trace_reporters
from firesteel.traces.tracing import tracing_of
from firesteel_dispatcher.application import Application
from firesteel_dispatcher.applications import Applications
from firesteel_dispatcher.cluster_application import ClusterApplication
from firesteel_dispatcher.core import DispatcherCore
from firesteel_dispatcher.datasets import DataSets
from firesteel_dispatcher.diagnostics import Diagnostics
from firesteel_dispatcher.disposals import Disposals
from firesteel_dispatcher.job import ENDED, JobEndedError
from firesteel_dispatcher.jobs import ClusterJobs
from firesteel_dispatcher.leadership import Coordinators, DispatcherLeadership
from firesteel_dispatcher.programs import UploadedPrograms
from firesteel_dispatcher.rest_server import RestListener, RestServer
from firesteel_dispatcher.settings import DispatcherSettings
from firesteel_dispatcher.traces import SubmissionTraces

logger = logging.getLogger(__name__)
_DRAIN_SECONDS: Final = 1.0


class DispatcherService(Service):
    """One Dispatcher: ``app`` and ``address`` are those of its internal port, ``rest`` has those of the REST API.

    Args:
        settings: settings of the cluster that concern the Dispatcher.
        cluster_settings: all settings of the cluster, to show what holds for a job.
        secret: of the cluster.
        clock: for all timeouts.
        ha: keeps jobs, and says where JobMaster host and ResourceManager are.
        listener: of the REST API.
        tokens: open the REST API.
        all_paths: every path of the REST API needs a token.
        cancel_is_free: jobs can be cancelled without a token.
        lasting: jobs outlive this process: those of a former Dispatcher are looked for.
        host_names: names that requests may carry in ``Host``, beside the usual ones.

    Attributes:
        core: decides what becomes of jobs.
        leadership: of this process over the cluster, with the store of jobs.
        coordinators: the links to the JobMaster host and the ResourceManager.
        jobs: carries out what the core decides.
        applications: programs with their jobs.
        cluster_application: the program of a cluster in application mode; None in a session.
        diagnostics: what people look at to understand the cluster.
        disposals: savepoints that are being removed.
        datasets: results that ``cache()`` keeps.
        client: calls other processes; there is one once this service listens.
    """

    def __init__(
        self,
        *,
        settings: DispatcherSettings,
        cluster_settings: Settings,
        secret: str,
        clock: Clock,
        ha: HighAvailabilityServices,
        listener: RestListener,
        tokens: tuple[str, ...],
        all_paths: bool = False,
        cancel_is_free: bool = False,
        lasting: bool = False,
        host_names: Iterable[str] = (),
    ) -> None:
        super().__init__("dispatcher", host_names=tuple(host_names), drain_seconds=_DRAIN_SECONDS)
        self.settings, self.cluster_settings, self.secret, self.clock = settings, cluster_settings, secret, clock
        access = RestAccess(tokens, all_paths, self.refusals, cancel_is_free)
        self.rest = RestServer(self.new_app(), access, listener)
        self.core = DispatcherCore(settings.limits)
        self.leadership = DispatcherLeadership(ha, clock)
        self.coordinators = Coordinators(ha, lambda: self.client, lambda: self.jobs.host_changed())
        traces = SubmissionTraces(tracing_of(trace_reporters(cluster_settings), "dispatcher"), clock)
        self.jobs = ClusterJobs(
            self.core, self.leadership, self.coordinators, settings, cluster_settings, clock, traces, lasting,
            self._job_known, self.spawn,
        )  # fmt: skip
        self.applications = Applications(
            UploadedPrograms(settings.upload_directory, tokens[0]), self.core, self.jobs.cancel, self.jobs.failure_of,
            self.spawn, clock.epoch_ms, settings.terminate_on_any_job,
        )  # fmt: skip
        self.core.is_held = self.applications.holds
        self.cluster_application: ClusterApplication | None = None
        if settings.application is not None:
            self.cluster_application = ClusterApplication(
                settings.application, cluster_settings, settings.status_file, self.applications, self.core,
                self.leadership, self.rest, clock,
            )  # fmt: skip
        self.diagnostics = Diagnostics(settings, clock, self.spawn)
        self.disposals = Disposals("savepoint", lambda path: savepoint_places.dispose(path, cluster_settings))
        self.datasets = DataSets(cluster_settings)

    def _job_known(self, job_id: str, config: Mapping[str, str]) -> None:
        self.applications.submitted(job_id, config)
        self.datasets.submitted(config)

    @property
    def apps(self) -> list[web.Application]:
        return [self.app, self.rest.app]

    async def archive_of(self, job_id: str, vertex_id: str = "") -> Archive:
        """Like ``JobDetailsCache.of``: the views of jobs read archives by it (``ArchiveReader``)."""
        return await self.jobs.details.of(job_id, vertex_id)

    async def measured(self) -> list[Measured]:
        """Metrics of the process and of all running jobs, whose JobMasters have no ports that users know."""
        labels = {"host": self.host}
        jobs = await self.jobs.details.of_running()
        return [
            *await super().measured(),
            *numbers(JOBMANAGER, {"numRunningJobs": sum(job.get("state") not in ENDED for job in jobs)}, labels),
            *(value for job in jobs if job for value in of_job(job["jid"], job["name"], job_values(job), labels)),
        ]

    async def measured_of_process(self) -> list[Measured]:
        """Metrics of this process alone."""
        return await super().measured()

    # -- life

    @property
    def is_standby(self) -> bool:
        """Whether it waits while another Dispatcher leads."""
        return self.leadership.candidate.is_standby

    async def start(self, host: str = "127.0.0.1", port: int = 0, advertised_host: str = "") -> str:
        """Lead, listen on both ports and begin to work; returns the internal base URL.

        Where another Dispatcher leads and others may wait, this one waits for its turn.

        Args:
            host: address of the internal port.
            port: internal port; 0 = any free one.
            advertised_host: see ``Service``.

        Raises:
            OSError: a port is taken.
            ConfigurationError: the store's directory can't be used, another Dispatcher leads, or an advertised host is
                missing.
        """
        try:
            contents = await self.leadership.lead(self.rest.listener, advertised_host or host)
            if self.cluster_application is not None:
                self.cluster_application.record = contents.application
            await self.jobs.admission.restore(contents)
        except BaseException:
            await self.stop()
            raise
        return await super().start(host, port, advertised_host)

    async def on_start(self) -> None:
        """Open the REST API; watch JobMasters, clients and the age of ended jobs."""
        self.client = RpcClient(self.session, self.secret, self.clock)
        self.leadership.address = self.address
        self.jobs.connect(self.client)
        self.coordinators.start()
        await self.rest.open(self.listen)
        # Peers may find this Dispatcher from here on: both ports are open.
        await self.leadership.candidate.announce(self.address, self.leadership.token)
        self.spawn(self.leadership.candidate.hold(), "leadership")
        self.jobs.start()
        if self.settings.metrics_interval > 0:
            self.spawn(self.diagnostics.record_metrics(self.jobs), "history of metrics")
        self.spawn(self._remove_drafts(), "drafts of uploads")
        if self.cluster_application is not None:
            self.spawn(self.cluster_application.run(self._application_ended), "application of the cluster")
        elif self.settings.status_file is not None:
            try:
                self.settings.status_file.write(self.rest.address)
            except OSError as error:
                logger.error("where the REST API is can't be written to %s: %s", self.settings.status_file.path, error)

    async def _remove_drafts(self) -> None:
        try:
            await self.applications.programs.remove_drafts()
        except OSError as error:
            logger.warning("uploads that were cut off can't be removed: %s", error)

    async def on_drain(self) -> None:
        """Wake all requests that wait for a job, and store the ends of jobs."""
        self.jobs.news.close()
        await self.jobs.history.drain()

    async def on_stop(self) -> None:
        """End the programs, and close the store."""
        self.coordinators.close()
        await self.applications.programs.close()
        await self.leadership.close()
        await self.jobs.admission.traces.close()

    async def on_stopped(self) -> None:
        """Another Dispatcher may lead."""
        await self.leadership.candidate.give_up()

    # -- the end of the cluster

    def _application_ended(self, application: Application) -> None:
        if self.settings.application is not None and self.settings.application.ends_cluster:
            self.exit_code = application.exit_code or 0
            self.shut_down_cluster()

    def shut_down_cluster(self) -> None:
        """End all jobs, then the JobMaster host, the ResourceManager and this process; returns at once."""
        if not self.jobs.admission.is_closed:
            self.jobs.admission.is_closed = True
            self.spawn(self._shut_down(), "shutdown of the cluster")

    async def _shut_down(self) -> None:
        if any(not application.ended for application in self.applications.known.values()):
            await self._end_applications()
        running = [job for job in self.core.jobs.values() if not job.ended]
        logger.warning("the cluster is being shut down; %d jobs are cancelled", len(running))
        for job in running:
            try:
                await self.jobs.cancel(job.id, "the shutdown of the cluster")
            except JobEndedError:
                pass
        now, timeout, ended = self.clock.monotonic, self.settings.shutdown_timeout, self.jobs.news.ended
        deadline = now() + timeout
        await asyncio.gather(*(ended(job.id, max(0.0, deadline - now())) for job in running))
        for job in running:
            if not job.ended:
                logger.warning("job %s has not ended within %g s", job.id, timeout)
        # From here on services end: their supervisor must not start them again.
        if (status_file := self.settings.status_file) is not None:
            try:
                status_file.write_over()
            except OSError as error:
                logger.error("that the cluster ends can't be written to %s: %s", status_file.path, error)
        await self.coordinators.shut_down(self.clock, now() + timeout)
        self.request_stop(Leaving.END_ALL)

    async def _end_applications(self) -> None:
        """Cancel all programs, since the cluster ends before them, and wait until the cluster's own one is stored."""
        for application in list(self.applications.known.values()):
            application.cancel(self.clock.epoch_ms())
        if self.cluster_application is not None:
            await self.cluster_application.wait(self.settings.shutdown_timeout)
