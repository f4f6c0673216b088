"""The Dispatcher at work: carries out what its core decides."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from aiohttp import web

from firesteel.checkpoint import savepoint_places
from firesteel.common.job_status import JobStatus
from firesteel.config import Settings
from firesteel.config.addresses import base_url, is_loopback, is_wildcard
from firesteel.config.options import REST_BIND_PORT, REST_PORT
from firesteel.core.backoff import pauses
from firesteel.core.call_pool import CallPool, close_in_time
from firesteel.core.clock import Clock
from firesteel.core.errors import (
    ConfigurationError,
    FencedError,
    FileSystemError,
    GraphError,
    PeerUnreachableError,
    ProgramError,
    RpcError,
    class_name,
)
from firesteel.core.ids import new_fencing_token
from firesteel.graph.job_graph import JobGraph
from firesteel.ha.documents import DamagedEntryError, UnknownFormatError
from firesteel.ha.jobs import JobStore, StoreContents, StoredJob
from firesteel.ha.services import DISPATCHER, JOBMASTER_HOST, RESOURCEMANAGER, HighAvailabilityServices
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import (
    DispatcherGateway,
    JobMasterGateway,
    JobMasterHostGateway,
    ResourceManagerGateway,
)
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rest.access import RestAccess
from firesteel.rest.archive_cache import Archive, ArchiveCache
from firesteel.rest.job_settings import client_timeout, client_timeout_or_none, is_for_jobs
from firesteel.rest.views import job_exceptions, job_values
from firesteel.rpc import RpcClient, answers
from firesteel.service.base import Service
from firesteel.service.heartbeat import CHECK_PAUSE, HeartbeatMonitor
from firesteel.service.leader_link import LeaderChannel
from firesteel.service.leaders import Candidate
from firesteel.service.leaving import Leaving
from firesteel.service.measured import JOBMANAGER, Measured, numbers, of_job
from firesteel.service.process_logs import ProcessLogs
from firesteel.service.retries import until_it_works
from firesteel.traces.settings import trace_reporters
from firesteel.traces.tracing import tracing_of
from firesteel_dispatcher import instructions as do
from firesteel_dispatcher.application import Application
from firesteel_dispatcher.application_mode import ApplicationSettings, record_of, resume
from firesteel_dispatcher.applications import Applications
from firesteel_dispatcher.archiving import Archiver
from firesteel_dispatcher.checkpoint_requests import SavepointRequest
from firesteel_dispatcher.clean_up import CleanUps, Remains
from firesteel_dispatcher.core import DispatcherCore
from firesteel_dispatcher.datasets import DataSets
from firesteel_dispatcher.details import JobDetailsCache
from firesteel_dispatcher.disposals import Disposals
from firesteel_dispatcher.flame_graphs import FlameGraphs, Profiles
from firesteel_dispatcher.history import History
from firesteel_dispatcher.job import ENDED, JobEndedError, JobPhase, Moment, UnknownJobError
from firesteel_dispatcher.jobmasters import Addresses, JobMasterCalls
from firesteel_dispatcher.metric_history import MetricHistory
from firesteel_dispatcher.news import JobNews
from firesteel_dispatcher.programs import ProgramOrder, UploadedPrograms
from firesteel_dispatcher.settings import DispatcherSettings
from firesteel_dispatcher.standby import RestRelay
from firesteel_dispatcher.submission import Submission, fingerprint_of
from firesteel_dispatcher.submitted import submitted_archive, unreadable_archive
from firesteel_dispatcher.traces import SubmissionTraces, Submitting

logger = logging.getLogger(__name__)
T = TypeVar("T")
_COLLECT_MARGIN: Final = 10.0
_END_SECONDS: Final = 2.0
"""A JobMaster that reports an end gets an answer within this time."""
SUSPENDED: Final = JobStatus.SUSPENDED.name
_SHUTDOWN_CALL: Final = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two calls to a service that is to end with the cluster."""
_LOOK_AT_OWN: Final = 0.1
_LOOK_AGAIN: Final = 1.0
"""Seconds between two looks at jobs that can't be read, at first; then up to ``_LONGEST_WAIT``."""
_LONGEST_WAIT: Final = 30.0
_OF_COORDINATORS: Final = re.compile(r"firesteel-.*-(dispatcher|resourcemanager|jobmaster)-\d+-.*\.(log|out)")
"""Logs of the services of a JobManager, as deploy/standalone/bin names them: they are in one directory."""
_STORE_SECONDS: Final = 5.0
"""A Dispatcher that stops waits so long for what its store has begun; a disk that hangs keeps no process alive."""
_STATUS: Final = CallPool("status file")
_PLANS: Final = CallPool("submissions", deadline=300.0)
"""They compute, and look at nothing outside."""


class ClosingError(Exception):
    """The cluster is being shut down."""


@dataclass(frozen=True)
class RestListener:
    """Where the REST API listens, and under which name others find it.

    Attributes:
        host: address to bind to.
        ports: those of which it takes the first one that is free; 0 = any.
        advertised_host: its name for others.
        next_free: if all are taken, take one behind the last.
    """

    host: str = "127.0.0.1"
    ports: tuple[int, ...] = (0,)
    advertised_host: str = ""
    next_free: bool = False


class DispatcherService(Service):
    """One Dispatcher: jobs, their graphs and blobs, their ends.

    ``app`` and ``address`` are those of the internal port; ``rest`` and ``rest_address`` those of the REST API.

    Args:
        settings: what it takes from the cluster's.
        cluster_settings: all of them, to show what holds for a job.
        secret: of the cluster.
        clock: for all timeouts.
        ha: keeps jobs, and says where JobMaster host and ResourceManager are.
        listener: of the REST API.
        tokens: that open the REST API.
        all_paths: every path of the REST API needs one.
        cancel_is_free: jobs can be cancelled without one.
        takes_over: look for jobs that a former Dispatcher left.
        host_names: under which it may be asked for, beside the usual ones.
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
        takes_over: bool = False,
        host_names: Iterable[str] = (),
    ) -> None:
        super().__init__("dispatcher", host_names=tuple(host_names), drain_seconds=1.0)
        self.settings, self.cluster_settings, self.secret, self.clock = settings, cluster_settings, secret, clock
        self.token, self._term = str(new_fencing_token()), 0
        self.access = RestAccess(tokens, all_paths, self.refusals, cancel_is_free)
        self.core = DispatcherCore(settings.limits)
        self.ha = ha
        self._store: JobStore | None = None
        self.rest: web.Application = self.new_app()
        self.rest_address = ""
        self.own_rest_address = ""
        """Of the REST API for programs beside this process: the name for others may lead here only later, as that of a
        Service of Kubernetes does, or to another Dispatcher."""
        self.closing = False
        self._listener = listener
        self._candidate = Candidate(ha, DISPATCHER)
        self._host = LeaderChannel(ha, JOBMASTER_HOST, JobMasterHostGateway, lambda: self.client, self._host_changed)
        self._resourcemanager = LeaderChannel(ha, RESOURCEMANAGER, ResourceManagerGateway, lambda: self.client)
        self._takes_over = takes_over
        self._disk = CallPool("dispatcher-store", threads=1, deadline=None)  # in order: none may come after its repeat
        self._submitting = asyncio.Lock()
        self._graphs: dict[str, JobGraph] = {}
        self._tick = min(1.0, settings.heartbeat_timeout / 4)
        self._heartbeats = HeartbeatMonitor(clock, settings.heartbeat_timeout, self._tick, settings.heartbeat_failures)
        self.news = JobNews(self.core)
        self.metric_history = MetricHistory(settings.metrics_interval, settings.metrics_size)
        self.disposals = Disposals("savepoint", lambda path: savepoint_places.dispose(path, cluster_settings))
        self.datasets = DataSets(cluster_settings)
        self.flame_graphs = FlameGraphs(settings.flame_graphs, clock, self.spawn)
        self.profiles = Profiles(clock, self.spawn)
        self.programs = UploadedPrograms(settings.upload_directory, tokens[0])
        self.applications = Applications(
            self.programs,
            self.core,
            self.cancel,
            self._failure_of,
            self.spawn,
            lambda: self.clock.epoch_ms(),
            settings.terminate_on_any_job,
        )
        self.core.is_held = self.applications.holds
        self._recorded_ends: dict[str, Archive] = {}
        """Jobs that had ended while no Dispatcher was up, until the services are connected."""
        self._own_application: Mapping[str, Any] | None = None
        self._own_task: asyncio.Task[None] | None = None
        self.logs = ProcessLogs(
            lambda name: _OF_COORDINATORS.match(name) is not None, below={"jobmasters": "jobmaster-"}
        )
        self._tracing = tracing_of(trace_reporters(cluster_settings), "dispatcher")
        self.traces = SubmissionTraces(None if self._tracing is None else self._tracing.export, clock)
        self._calls = JobMasterCalls(
            self.core,
            self._graphs,
            self.perform,
            self.spawn,
            self.now,
            2 * settings.heartbeat_timeout,
            self._has_ended,
            self._read_again,
            self.traces.of,
        )
        cache = ArchiveCache(settings.history_cache)
        self._archiver = Archiver(cluster_settings, self.spawn)
        self.history = History(
            self.core, lambda: self.store, cache, settings.history_in_files, self.on_disk, self.spawn, self._archiver
        )
        self._clean_ups = CleanUps(ha, cluster_settings, self.history.is_stored, self.spawn)
        self.details = JobDetailsCache(
            self.core,
            clock,
            settings.details_age,
            settings.details_patience,
            cache,
            self.history.read,
            self.spawn,
            self.perform,
            self.now,
            self._heartbeats.heard,
            self._heartbeats.failed,
        )

    @property
    def apps(self) -> list[web.Application]:
        return [self.app, self.rest]

    async def measured(self) -> list[Measured]:
        """Its own, and those of all jobs that run: their JobMasters have ports that nobody knows."""
        labels = {"host": self.host}
        jobs = await self.details.of_running()
        return [
            *await super().measured(),
            *numbers(JOBMANAGER, {"numRunningJobs": sum(job.get("state") not in ENDED for job in jobs)}, labels),
            *(one for job in jobs if job for one in of_job(job["jid"], job["name"], job_values(job), labels)),
        ]

    async def measured_of_process(self) -> list[Measured]:
        """What this process takes of the machine."""
        return await super().measured()

    def now(self) -> Moment:
        """For events of the core."""
        return Moment(self.clock.monotonic(), self.clock.epoch_ms())

    async def on_disk(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a method of the store, in its thread: one after the other."""
        return await self._disk.call(function, *arguments)

    # -- life

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
            await self.lead(advertised_host or host)
        except BaseException:
            await self.stop()
            raise
        return await super().start(host, port, advertised_host)

    async def lead(self, own_host: str = "") -> None:
        """Lead the cluster, and read what the Dispatchers before have stored.

        Args:
            own_host: under which it will be found when it leads.

        Raises:
            ConfigurationError: the store's directory can't be used, or another Dispatcher leads and stays.
        """
        where = self._listener
        relay = RestRelay(self.ha, where.host, where.ports[0], own_host)
        # On loopback nobody else asks, and of a port that is free by chance the leader's is not known.
        hands_on = where.ports[0] != 0 and not is_loopback(where.host)

        async def stand_by() -> None:
            nonlocal hands_on
            if hands_on:
                hands_on = False  # it does until this process leads, however often it waits for its turn
                await relay.start()

        found, waits = None, pauses(_LOOK_AGAIN, _LONGEST_WAIT)
        try:
            while found is None:
                leadership = await self._candidate.lead(stand_by)
                store = self.ha.job_store(leadership)
                try:
                    found = await self.on_disk(store.open, self.clock.epoch_ms())
                except FencedError as error:
                    logger.warning("another Dispatcher leads by now: %s", error)
                    await self._candidate.give_back()
                except OSError as error:  # trouble of the storage is no reason to lead without the jobs, nor to end
                    pause = next(waits)
                    logger.error(
                        "%s. The leadership is given back, so that another host may try; next try here in %g s",
                        error, pause,
                    )  # fmt: skip
                    await self._candidate.give_back()
                    await asyncio.sleep(pause)
        finally:
            await relay.stop()
        self._store = store
        self._restore(found)
        for job in found.jobs:
            job_id = job.graph.job_id
            try:
                archive = await self._recorded_end(job_id)
            except (OSError, DamagedEntryError, UnknownFormatError) as error:  # it is read again before a start
                logger.warning("whether job %s has ended can't be read from its record for now: %s", job_id, error)
            else:
                if archive is not None:
                    self._recorded_ends[job_id] = archive

    @property
    def store(self) -> JobStore:
        """Of jobs; there is one as soon as this Dispatcher leads."""
        if self._store is None:
            raise RuntimeError("the Dispatcher does not lead yet")
        return self._store

    @property
    def is_standby(self) -> bool:
        """Whether it waits while another Dispatcher leads."""
        return self._candidate.is_standby

    def _restore(self, found: StoreContents) -> None:
        now, self._term = self.now(), found.term
        self._own_application = found.application
        for end in found.ends:
            self.history.restore(end, now)
            self.applications.submitted(end.job_id, end.config)
            self.datasets.submitted(end.config)
            self._clean_ups.ended(end.job_id, Remains.of(end.config, end.archive))
        for damaged in found.unreadable:
            logger.error("job %s waits: %s", damaged.job_id, damaged.reason)
            archive = unreadable_archive(damaged.job_id, now.epoch_ms)
            name, follows = str(archive["name"]), self._follows_jobmasters
            self.core.restored(
                damaged.job_id, name, "", archive, now, None, damaged.jobmaster, damaged.cancel_wanted, follows
            )
        for job in found.jobs:
            graph = job.graph
            self._graphs[graph.job_id] = graph
            self.applications.submitted(graph.job_id, graph.config)
            self.datasets.submitted(graph.config)
            self.core.restored(
                graph.job_id,
                graph.name,
                job.fingerprint,
                submitted_archive(graph, self.cluster_settings, job.submitted_ms),
                now,
                client_timeout_or_none(graph),
                job.jobmaster,
                job.cancel_wanted,
                self._follows_jobmasters,
            )
        self._archiver.restored((end.job_id, end.archive) for end in found.ends)
        if found.ends:
            self.spawn(self._clean_up([end.job_id for end in found.ends]), "clean-up of ended jobs")
        if found.jobs or found.ends:
            logger.info("%d jobs had not ended, %d had", len(found.jobs), len(found.ends))

    async def _recorded_end(self, job_id: str) -> Archive | None:
        """How a job ended that counts as running here, as its own record says; None: it has not ended.

        Raises:
            OSError: that can't be read for now.
            DamagedEntryError: the record is damaged.
        """
        end = await self.on_disk(self.ha.recorded_end, job_id)
        job = self.core.jobs.get(job_id)
        if end is None or job is None or job.ended or end.submitted_ms != job.submitted_ms:
            return None  # a record of another run was left where nobody had cleaned up
        shown: Mapping[str, Any] = (job.archive or {}).get("firesteel-settings", {})
        return {**end.archive, "firesteel-settings": shown}

    async def _has_ended(self, job_id: str) -> bool:
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
            self.perform(self.core.had_ended(job_id, archive, self.now()))
        return archive is not None

    async def _read_again(self, job_id: str) -> JobGraph:
        """The graph of a job that is to get a JobMaster, and of which something stored was damaged.

        Raises:
            RpcFault: it still is, or can't be read: the job waits, is shown with the reason, and can be cancelled.
        """
        try:
            job = await self.on_disk(self.store.read_again, job_id)
        except (OSError, DamagedEntryError, UnknownFormatError) as error:
            text = f"{error}. Bring back what is missing, or cancel the job and submit it again"
            raise RpcFault(RpcCode.INTERNAL, text) from error
        graph = job.graph
        record = self.core.jobs.get(job_id)
        if record is not None and not record.ended:
            logger.info("what was damaged of job %s (%s) is whole again", job_id, graph.name)
            archive = await _PLANS.call(submitted_archive, graph, self.cluster_settings, job.submitted_ms)
            self.core.read_again(job_id, graph.name, job.fingerprint, archive)
            self._graphs[job_id] = graph
            self.applications.submitted(job_id, graph.config)
            self.datasets.submitted(graph.config)
        return graph

    async def _clean_up(self, job_ids: Iterable[str]) -> None:
        """JobMasters that died between the end of their job and their own have left something."""
        for job_id in await self.on_disk(lambda: [one for one in job_ids if self.ha.remembers_job(one)]):
            self._clean_ups.start(job_id)

    async def _open_rest(self, where: RestListener) -> None:
        """Open the REST API.

        Raises:
            OSError: all its ports are taken. Clients would hand their tokens to whoever listens where they look for
                it, so the cluster does not move on silently.
        """
        *others, last = where.ports
        for port in others:
            try:
                self.rest_address = await self.listen(self.rest, where.host, port, where.advertised_host)
                break
            except OSError as error:
                logger.info("%s", error.strerror or error)
        else:
            try:
                self.rest_address = await self.listen(
                    self.rest, where.host, last, where.advertised_host, next_free=where.next_free
                )
            except OSError as error:
                raise OSError(
                    error.errno,
                    f"the REST API does not start: {error.strerror or error}. End that one, or set "
                    f"{REST_PORT.key}, or {REST_BIND_PORT.key} to a range such as {last}-{min(last + 9, 65535)}.",
                ) from error
        port = int(self.rest_address.rpartition(":")[2])
        self.own_rest_address = base_url("127.0.0.1" if is_wildcard(where.host) else where.host, port)
        logger.info("the REST API listens on %s", self.rest_address)
        if where.ports[0] not in (0, port):
            logger.warning("port %d is taken: the REST API listens on port %d", where.ports[0], port)

    async def on_start(self) -> None:
        """Open the REST API; watch JobMasters, clients and the age of ended jobs."""
        self.client = RpcClient(self.session, self.secret, self.clock)
        self.details.connect(self.client)
        self._host.start()
        self._resourcemanager.start()
        addresses = Addresses(self.address, self.token, self._term, self._host, self._resourcemanager)
        self._calls.connect(self.client, addresses)
        await self._open_rest(self._listener)
        await self._candidate.announce(self.address, self.token)
        self.spawn(self._candidate.hold(), "leadership")
        self.spawn(self._watch(), "watch")
        self.spawn(self._ask_jobmasters(), "heartbeats")
        if self.settings.metrics_interval > 0:
            self.spawn(self._sample(), "history of metrics")
        for job_id, ended in self._recorded_ends.items():
            self.perform(self.core.had_ended(job_id, ended, self.now()))
        if self._takes_over:
            self.perform([do.AskHost()])
        self.spawn(self._remove_drafts(), "drafts of uploads")
        self._say_where()
        if self.settings.application is not None:
            self._own_task = self.spawn(self._run_own(self.settings.application), "application of the cluster")

    async def _remove_drafts(self) -> None:
        try:
            await self.programs.remove_drafts()
        except OSError as error:
            logger.warning("uploads that were cut off can't be removed: %s", error)

    def _host_changed(self) -> None:
        if self._takes_over:
            self.perform([do.AskHost()])

    async def on_drain(self) -> None:
        """Nobody waits for the end of a job any longer; ends are stored."""
        self.news.close()
        await self.history.drain()

    async def on_stop(self) -> None:
        """Let the store go."""
        self._host.close()
        self._resourcemanager.close()
        await self.programs.close()
        if self._store is not None:
            try:
                async with asyncio.timeout(_STORE_SECONDS):
                    await self.on_disk(self._store.close)
            except TimeoutError:
                logger.error("the store of jobs does not answer: it is left as it is")
        self._disk.shutdown(wait=False)
        if self._tracing is not None:
            await close_in_time(self._tracing.close, "traces")

    async def on_stopped(self) -> None:
        """Another Dispatcher may lead."""
        await self._candidate.give_up()

    # -- instructions

    def perform(self, instructions: Iterable[do.Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case do.SendStartJob():
                    self._calls.start(instruction.job_id, instruction.delay)
                case do.AskHost():
                    self._calls.ask_host()
                case do.TakeOver():
                    self._take_over(instruction)
                case do.SendAdoptJob():
                    self._calls.adopt(instruction)
                case do.ProbeJobMaster():
                    self._calls.probe(instruction)
                case do.CancelJob():
                    self._calls.cancel(instruction)
                case do.RememberJobMaster():
                    self._heartbeats.watch(instruction.job_id)
                    self.spawn(self._remember(instruction), f"note of the JobMaster of job {instruction.job_id}")
                    self.news.changed(instruction.job_id)
                case do.ForgetJobMaster():
                    self._heartbeats.forget(instruction.job_id)
                    self.details.forget(instruction.job_id)
                    self.news.changed(instruction.job_id)
                case do.StoreEnd():
                    self._store_end(instruction.job_id)
                case do.CleanUpCheckpoints():
                    self._clean_ups.start(instruction.job_id)
                case do.DeleteStoredJob():
                    self._clean_ups.forget(instruction.job_id)
                    self.history.forget(instruction.job_id)

    def _store_end(self, job_id: str) -> None:
        self._heartbeats.forget(job_id)
        graph = self._graphs.pop(job_id, None)
        config = {} if graph is None else graph.config
        self.details.forget(job_id)
        self._clean_ups.ended(job_id, Remains.of(config, self.core.job(job_id).archive or {}))
        self.history.store(job_id, config)
        self.news.changed(job_id)

    async def _remember(self, note: do.RememberJobMaster) -> None:
        try:
            await self.on_disk(self.store.set_jobmaster, note.job_id, note.address, note.token)
        except OSError as error:
            logger.error("where the JobMaster of job %s is could not be stored: %s", note.job_id, error)
        await self.details.refresh_job(note.job_id)  # which also brings the state of a job that was found again

    def _take_over(self, order: do.TakeOver) -> None:
        try:
            graph = JobGraph.from_plain(self._calls.listed[order.job_id].job_graph)
        except (KeyError, GraphError) as error:
            logger.error("job %s runs without a record, and its graph can't be read: %s", order.job_id, error)
            return
        self._graphs[graph.job_id] = graph
        self.applications.submitted(graph.job_id, graph.config)
        self.datasets.submitted(graph.config)
        now = self.now()
        archive = submitted_archive(graph, self.cluster_settings, now.epoch_ms)
        where = (order.address, order.token)
        self.perform(self.core.taken_over(graph.job_id, graph.name, fingerprint_of(graph), archive, where, now))

    # -- applications

    async def _run_own(self, settings: ApplicationSettings) -> None:
        """Run the program of a cluster in application mode, and end the cluster with it."""
        found = resume(settings, self._own_application, self._candidate.has_stood_by)
        if found.ended is not None:
            logger.info("application %s has ended already, as %s: it is not run again", found.id, found.ended.state)
            application = found.ended
            self.applications.keep(application)
            try:
                await self._show_own(record_of(settings, found.run, application))
            except OSError as error:
                logger.error("how the application has ended could not be shown: %s", error)
        else:
            if found.is_new and settings.job_id is not None:  # the run before had the same ids
                for job_id in [one.id for one in self.core.jobs.values() if one.ended]:
                    if self.applications.of_job(job_id) == found.id:
                        del self.core.jobs[job_id]
                        await self.on_disk(self.store.forget, job_id)
            order = ProgramOrder("", settings.entry, settings.arguments, self._of_own_jobs(), found.id)
            try:
                order = await self._fetched(order, settings.program)
                application = await self.applications.begin(order, self.own_rest_address, own=True)
            except (ConfigurationError, ProgramError) as error:
                logger.error("the program of this cluster can't be run: %s", error)
                application = Application(found.id, Path(settings.program).name)
                application.failed_to_start(str(error), class_name(error), self.clock.epoch_ms())
                self.applications.keep(application)
            await self._store_own(settings, found.run, application)
            while not application.ended:
                await asyncio.sleep(_LOOK_AT_OWN)
            await self._store_own(settings, found.run, application)
        if settings.ends_cluster:
            self.exit_code = application.exit_code or 0
            self.shut_down_cluster()

    async def _end_applications(self) -> None:
        """The cluster ends before its programs: these are cancelled, and the end of its own one is stored."""
        for application in list(self.applications.known.values()):
            application.cancel(self.clock.epoch_ms())
        if self._own_task is not None:
            await asyncio.wait({self._own_task}, timeout=self.settings.shutdown_timeout)

    def _say_over(self) -> None:
        """Whoever supervises the services need not start again what ends from now on."""
        if (status := self.settings.status_file) is None:
            return
        try:
            status.write_over()
        except OSError as error:
            logger.error("that the cluster ends can't be written to %s: %s", status.path, error)

    def _say_where(self) -> None:
        """Tell whoever supervises the services of a session where the REST API is."""
        status = self.settings.status_file
        if status is None or self.settings.application is not None:
            return
        try:
            status.write(self.rest_address)
        except OSError as error:
            logger.error("where the REST API is can't be written to %s: %s", status.path, error)

    async def _fetched(self, order: ProgramOrder, program: str) -> ProgramOrder:
        """With the program, and what travels with its jobs, on this host; a file system that does not answer is waited
        for."""
        for pause in pauses(_FIRST_PAUSE, _LONGEST_WAIT):
            try:
                path = await self.programs.fetched(program, self.cluster_settings)
                jobs = await self.programs.dependencies_fetched(order.settings or {}, self.cluster_settings)
                return replace(order, path=path, settings=jobs)
            except (OSError, FileSystemError) as error:
                logger.error("the program %s can't be read: %s; next try in %g s", program, error, pause)
                await asyncio.sleep(pause)
        raise AssertionError  # pauses never end

    def _of_own_jobs(self) -> dict[str, str]:
        """What the program of the cluster gets of its settings: what somebody has set for jobs."""
        return {key: value for key, value in self.cluster_settings.to_plain().items() if is_for_jobs(key)}

    async def _show_own(self, record: Mapping[str, Any]) -> None:
        """Tell whoever supervises the services how the application is."""
        if (status := self.settings.status_file) is not None:
            await _STATUS.call(status.write, self.rest_address, record)

    async def _store_own(self, settings: ApplicationSettings, run: int, application: Application) -> None:
        record = record_of(settings, run, application)
        for pause in pauses(_FIRST_PAUSE, _LONGEST_PAUSE):
            try:
                await self.on_disk(self.store.set_application, record)
                await self._show_own(record)
            except OSError as error:
                logger.error("how the application is could not be stored: %s; next try in %g s", error, pause)
                await asyncio.sleep(pause)
            else:
                return

    async def _failure_of(self, job_id: str) -> tuple[str, str] | None:
        """Class and stack trace of what ended a job."""
        try:
            entries = job_exceptions(await self.details.of(job_id), 1)["exceptionHistory"]["entries"]
        except (UnknownJobError, DamagedEntryError, RpcError):
            return None
        return (str(entries[0]["exceptionName"]), str(entries[0]["stacktrace"])) if entries else None

    # -- what users want

    async def submit(self, submission: Submission, received: Path, trace: Submitting | None = None) -> None:
        """Store a job and have it run; when this returns it is safe.

        Args:
            submission: what was read.
            received: the directory with its files.
            trace: of the request; None = nobody began one.

        Raises:
            JobConflictError: another job has its id.
            ConfigurationError: one of its settings has a bad value.
            ClosingError: the cluster is being shut down.
            OSError: it could not be stored.
        """
        graph, fingerprint = submission.graph, submission.fingerprint
        async with self._submitting:
            if self.core.is_known(graph.job_id, fingerprint):
                return
            if self.closing:
                raise ClosingError
            timeout, now = client_timeout(graph), self.now()
            archive = await _PLANS.call(submitted_archive, graph, self.cluster_settings, now.epoch_ms)
            job = StoredJob(graph, fingerprint, now.epoch_ms)
            await self.on_disk(self.store.put, job, received, submission.blobs)
            if trace is not None:
                self.traces.step(trace, "Store")
                self.traces.known(trace, graph.job_id)
            self._graphs[graph.job_id] = graph
            self.applications.submitted(graph.job_id, graph.config)
            self.datasets.submitted(graph.config)
            again = self._follows_jobmasters
            self.perform(self.core.submitted(graph.job_id, graph.name, fingerprint, archive, now, timeout, again))

    @property
    def _follows_jobmasters(self) -> bool:
        """Whether a JobMaster that is lost is followed by another one, whatever the restart strategy of its job is:
        that counts failures of the job."""
        return self.settings.takes_over

    async def cancel(self, job_id: str) -> None:
        """Cancel a job; when this returns, a restart of the Dispatcher does not lose it.

        Raises:
            UnknownJobError: there is no such job.
            JobEndedError: it has ended.
        """
        self.perform(self.core.cancel(job_id, self.now()))
        try:
            await self.on_disk(self.store.set_cancelled, job_id)
        except OSError as error:
            logger.error("that job %s is to be cancelled could not be stored: %s", job_id, error)

    async def trigger_checkpoint(self, job_id: str, trigger_id: str, full: bool) -> None:
        """Have the JobMaster of a job take a checkpoint; answered before it is taken.

        Raises:
            UnknownJobError: there is no such job.
            JobEndedError: it has ended.
            RpcError: the JobMaster does not answer, or refuses.
        """
        job = await self.news.led(job_id, _COLLECT_MARGIN)
        if job.ended:
            raise JobEndedError(f"Job {job_id} has ended ({job.state}): no checkpoint can be taken of it.")
        if job.phase is not JobPhase.LED or job.jobmaster is None:
            raise PeerUnreachableError(f"no JobMaster runs job {job_id} yet")
        await JobMasterGateway(self.client, *job.jobmaster).trigger_checkpoint(m.TriggerJobCheckpoint(trigger_id, full))
        self.details.outdated(job_id)

    async def trigger_savepoint(self, job_id: str, wanted: SavepointRequest) -> None:
        """Have the JobMaster of a job take a savepoint, or stop the job with one; as ``trigger_checkpoint``.

        Raises:
            RpcFault: there is no directory for it.
        """
        job = await self.news.led(job_id, _COLLECT_MARGIN)
        if job.ended:
            raise JobEndedError(f"Job {job_id} has ended ({job.state}): no savepoint can be taken of it.")
        if job.phase is not JobPhase.LED or job.jobmaster is None:
            raise PeerUnreachableError(f"no JobMaster runs job {job_id} yet")
        message = m.TriggerJobSavepoint(wanted.trigger_id, wanted.target, wanted.format, wanted.stop)
        await JobMasterGateway(self.client, *job.jobmaster).trigger_savepoint(message)
        self.details.outdated(job_id)

    async def collect(
        self, job_id: str, operator_id: str, offset: int, max_bytes: int, wait_ms: int
    ) -> m.CollectedFromJob:
        """Results of a collect operator, through the JobMaster; waits for the first one.

        Raises:
            UnknownJobError: there is no such job.
            RpcError: the JobMaster does not answer, or refuses.
        """
        job = await self.news.led(job_id, wait_ms / 1000)
        if job.phase is not JobPhase.LED or job.jobmaster is None:
            return m.CollectedFromJob(offset, 0, job.ended, "", job.state)
        gateway = JobMasterGateway(self.client, *job.jobmaster, timeout=_COLLECT_MARGIN)
        return await gateway.collect(m.CollectFromJob(operator_id, offset, max_bytes, wait_ms))

    @property
    def coordinators(self) -> dict[str, LeaderChannel[Any]]:
        """Those that lead beside this one, by name."""
        return {"resourcemanager": self._resourcemanager, "jobmaster host": self._host}

    async def archive_of(self, job_id: str, vertex_id: str = "") -> Archive:
        """As ``JobDetailsCache.of``: the views of jobs read archives by it."""
        return await self.details.of(job_id, vertex_id)

    async def cluster(self) -> m.ClusterOverview:
        """TaskManagers and slots.

        Raises:
            RpcError: the ResourceManager does not answer.
        """
        return await self._resourcemanager.gateway().overview()

    def shut_down_cluster(self) -> None:
        """End all jobs, then the JobMaster host, the ResourceManager and this process; returns at once."""
        if not self.closing:
            self.closing = True
            self.spawn(self._shut_down(), "shutdown of the cluster")

    async def _shut_down(self) -> None:
        if any(not application.ended for application in self.applications.known.values()):
            await self._end_applications()
        running = [job for job in self.core.jobs.values() if not job.ended]
        logger.warning("the cluster is being shut down; %d jobs are cancelled", len(running))
        for job in running:
            try:
                await self.cancel(job.id)
            except JobEndedError:
                pass
        deadline = self.clock.monotonic() + self.settings.shutdown_timeout
        await asyncio.gather(*(self.news.ended(j.id, max(0.0, deadline - self.clock.monotonic())) for j in running))
        for job in running:
            if not job.ended:
                logger.warning("job %s has not ended within %g s", job.id, self.settings.shutdown_timeout)
        self._say_over()
        deadline = self.clock.monotonic() + self.settings.shutdown_timeout
        await self._tell_to_end("JobMaster host", lambda: self._host.gateway(_SHUTDOWN_CALL).shut_down(), deadline)
        end_resourcemanager = lambda: self._resourcemanager.gateway(_SHUTDOWN_CALL).shut_down()  # noqa: E731
        await self._tell_to_end("ResourceManager", end_resourcemanager, deadline)
        self.request_stop(Leaving.END_ALL)

    async def _tell_to_end(self, name: str, shut_down: Callable[[], Awaitable[None]], deadline: float) -> None:
        """Have a service end with all that it looks after; one that is away may be on its way back."""
        waits = pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
        in_time = lambda: self.clock.monotonic() < deadline  # noqa: E731
        if not await until_it_works(f"end of the {name}", shut_down, in_time, waits=waits):
            logger.error("the %s was not told to end, and may be left", name)

    # -- what JobMasters report

    @answers(DispatcherGateway.job_state_changed)
    def job_state_changed(self, message: m.JobStateChanged) -> None:
        """See ``DispatcherGateway``."""
        token = message.jobmaster_token
        if message.state == SUSPENDED:  # it was stopped, and has given its slots back: another one need not wait
            text = "its JobMaster was stopped before the job had ended"
            self.perform(self.core.jobmaster_lost(message.job_id, text, self.now(), token))
            return
        self.perform(self.core.state_changed(message.job_id, message.state, message.timestamps, token))
        if self.core.is_former(message.job_id, token):
            return
        self._heartbeats.heard(message.job_id)
        self.details.outdated(message.job_id)
        self.news.changed(message.job_id)

    @answers(DispatcherGateway.job_finished)
    async def job_finished(self, message: m.JobFinished) -> None:
        """See ``DispatcherGateway``; when this returns, the end is safe.

        Raises:
            RpcFault: it could not be stored yet: say it again; or it is not wanted, since another one has the job.
        """
        job = self.core.job(message.job_id)
        if self.core.is_former(message.job_id, message.jobmaster_token):
            text = f"an end of job {message.job_id} is refused: its JobMaster was given up, and another one goes on"
            logger.info("%s", text)
            raise RpcFault(RpcCode.GONE, text)
        shown: Mapping[str, Any] = (job.archive or {}).get("firesteel-settings", {})
        archive: Archive = {**message.archive, "firesteel-settings": shown}
        self.perform(self.core.finished(message.job_id, archive, self.now()))
        if not await self.history.is_stored(message.job_id, _END_SECONDS):
            raise RpcFault(RpcCode.INTERNAL, f"the end of job {message.job_id} could not be stored yet")

    @answers(DispatcherGateway.jobmaster_lost)
    def jobmaster_lost(self, message: m.JobMasterLost) -> None:
        """See ``DispatcherGateway``."""
        self.perform(self.core.jobmaster_lost(message.job_id, message.cause, self.now(), message.jobmaster_token))

    # -- watching

    async def _ask_jobmasters(self) -> None:
        pause = interval = self.settings.heartbeat_interval
        while True:
            await asyncio.sleep(pause)
            pause = min(interval, CHECK_PAUSE) if await self.details.refresh() else interval

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(self.settings.metrics_interval)
            for archive in await self.details.of_running():
                if archive.get("vertices"):
                    self.metric_history.record(archive, self.clock.epoch_ms())
            self.metric_history.keep(self.core.jobs)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._tick)
            now = self.now()
            for job_id in self._heartbeats.tick():
                text = (
                    f"its JobMaster gave no sign of life for {self.settings.heartbeat_timeout:g} s, or nobody listened "
                    f"at its address {self.settings.heartbeat_failures} heartbeats in a row"
                )
                self.perform(self.core.jobmaster_silent(job_id, text, now))
            self.perform(self.core.tick(now))
