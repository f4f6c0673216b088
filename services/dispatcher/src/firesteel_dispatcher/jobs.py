"""The jobs of the cluster at work: carries out what the core decides about them, and tells it what happened."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from firesteel.common.job_status import JobStatus
from firesteel.config import Settings
from firesteel.core.clock import Clock
from firesteel.core.errors import PeerUnreachableError, RpcError
from firesteel.ha.documents import DamagedEntryError
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import DispatcherGateway, JobMasterGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rest.archive_cache import Archive
from firesteel.rest.views import job_exceptions
from firesteel.rpc import RpcClient, answers
from firesteel.service.heartbeat import CHECK_PAUSE, HeartbeatMonitor
from firesteel.service.lanes import Spawn
from firesteel_dispatcher import instructions as do
from firesteel_dispatcher.admission import JobAdmission
from firesteel_dispatcher.checkpoint_requests import SavepointRequest
from firesteel_dispatcher.core import DispatcherCore
from firesteel_dispatcher.details import JobDetailsCache
from firesteel_dispatcher.history import History
from firesteel_dispatcher.job import JobEndedError, JobPhase, Moment, UnknownJobError
from firesteel_dispatcher.jobmasters import JobMasterCalls
from firesteel_dispatcher.leadership import Coordinators, DispatcherLeadership
from firesteel_dispatcher.news import JobNews
from firesteel_dispatcher.settings import DispatcherSettings
from firesteel_dispatcher.traces import SubmissionTraces

logger = logging.getLogger(__name__)
_COLLECT_MARGIN: Final = 10.0
"""Seconds beyond the time that a JobMaster may wait for the first result of a collect operator."""
_END_SECONDS: Final = 2.0
"""A JobMaster that reports an end gets an answer within this time."""
SUSPENDED: Final = JobStatus.SUSPENDED.name


class ClusterJobs:
    """All jobs of the cluster, from their submission until they are forgotten.

    Args:
        core: decides.
        leadership: has the store of jobs.
        coordinators: the links to the JobMaster host and the ResourceManager.
        settings: timeouts and bounds.
        cluster_settings: all settings of the cluster; those of a job come on top.
        clock: for all timeouts.
        traces: of submissions.
        lasting: see the attribute.
        on_known: called with id and settings of each job that becomes known.
        spawn: runs work in the background.

    Attributes:
        admission: jobs become known there.
        history: jobs that have ended.
        details: archives of jobs, running or ended.
        news: wakes those who wait for a job.
        calls: calls to JobMasters and their host.
        lasting: jobs outlive this process, so the JobMaster host is asked which jobs run.
    """

    def __init__(
        self,
        core: DispatcherCore,
        leadership: DispatcherLeadership,
        coordinators: Coordinators,
        settings: DispatcherSettings,
        cluster_settings: Settings,
        clock: Clock,
        traces: SubmissionTraces,
        lasting: bool,
        on_known: Callable[[str, Mapping[str, str]], None],
        spawn: Spawn,
    ) -> None:
        self.core, self.lasting = core, lasting
        self._leadership, self._settings, self._clock, self._spawn = leadership, settings, clock, spawn
        timeout = settings.heartbeat_timeout
        self._heartbeats = HeartbeatMonitor(clock, timeout, failure_threshold=settings.heartbeat_failures)
        self.news = JobNews(core)
        self.history = History(core, leadership, settings, cluster_settings, spawn)
        self.admission = JobAdmission(
            core, leadership, self.history, cluster_settings, settings.takes_over, traces, self.perform, on_known,
            self.now,
        )  # fmt: skip
        self.calls = JobMasterCalls(
            core, leadership, coordinators, self.admission.graphs, self.perform, spawn, self.now, 2 * timeout,
            self.admission.has_ended, self.admission.read_again, traces.of,
        )  # fmt: skip
        self.details = JobDetailsCache(
            core, clock, settings.details_age, settings.details_patience, self.history.cache, self.history.read, spawn,
            self.perform, self.now, self._heartbeats.heard, self._heartbeats.failed,
        )  # fmt: skip

    def connect(self, client: RpcClient) -> None:
        """Make calls to JobMasters with this client; comes before any instruction is performed."""
        self._client = client
        self.details.connect(client)
        self.calls.connect(client)

    def start(self) -> None:
        """Watch JobMasters and clients, and find the jobs of earlier Dispatchers."""
        self._spawn(self._watch(), "watch")
        self._spawn(self._ask_jobmasters(), "heartbeats")
        self.admission.end_recorded_jobs()
        self.host_changed()

    def now(self) -> Moment:
        """The moment, for events of the core."""
        return Moment(self._clock.monotonic(), self._clock.epoch_ms())

    def host_changed(self) -> None:
        """Another JobMaster host leads, or this Dispatcher has just begun: which jobs run is not known."""
        if self.lasting:
            self.perform([do.AskHost()])

    # -- instructions

    def perform(self, instructions: Iterable[do.Instruction]) -> None:
        """Carry out what the core decided; what takes time goes on in the background."""
        for instruction in instructions:
            match instruction:
                case do.SendStartJob():
                    self.calls.start(instruction.job_id, instruction.delay)
                case do.AskHost():
                    self.calls.ask_host()
                case do.TakeOver():
                    self.admission.take_over(instruction, self.calls.listed)
                case do.SendAdoptJob():
                    self.calls.adopt(instruction)
                case do.ProbeJobMaster():
                    self.calls.probe(instruction)
                case do.SendCancelJob():
                    self.calls.cancel(instruction)
                case do.RememberJobMaster():
                    self._heartbeats.watch(instruction.job_id)
                    self._spawn(self._remember(instruction), f"note of the JobMaster of job {instruction.job_id}")
                    self.news.changed(instruction.job_id)
                case do.ForgetJobMaster():
                    self._heartbeats.forget(instruction.job_id)
                    self.details.forget(instruction.job_id)
                    self.news.changed(instruction.job_id)
                case do.StoreEnd():  # clients that wait are woken at once; they need not wait for the disk
                    self._heartbeats.forget(instruction.job_id)
                    self.details.forget(instruction.job_id)
                    graph = self.admission.graphs.pop(instruction.job_id, None)
                    self.history.store(instruction.job_id, {} if graph is None else graph.config)
                    self.news.changed(instruction.job_id)
                case do.CleanUpCheckpoints():
                    self.history.clean_ups.start(instruction.job_id)
                case do.DeleteStoredJob():
                    self.history.forget(instruction.job_id)

    async def _remember(self, note: do.RememberJobMaster) -> None:
        store = self._leadership.store
        try:
            await self._leadership.on_disk(store.set_jobmaster, note.job_id, note.address, note.token)
        except OSError as error:
            logger.error("where the JobMaster of job %s is could not be stored: %s", note.job_id, error)
        await self.details.refresh_job(note.job_id)  # which also brings the state of a job that was found again

    # -- what users want of a job

    async def cancel(self, job_id: str, by: str = "") -> None:
        """Cancel a job; when this returns, a restart of the Dispatcher does not lose it.

        Args:
            job_id: of the job.
            by: who asks for it, and from which address.

        Raises:
            UnknownJobError: there is no such job.
            JobEndedError: it has ended.
        """
        self.perform(self.core.cancel(job_id, self.now(), by))
        try:
            await self._leadership.on_disk(self._leadership.store.set_cancelled, job_id)
        except OSError as error:
            logger.error("that job %s is to be cancelled could not be stored: %s", job_id, error)

    async def trigger_checkpoint(self, job_id: str, trigger_id: str, full: bool, by: str = "") -> None:
        """Have the JobMaster of a job take a checkpoint; answered before it is taken.

        Raises:
            UnknownJobError: there is no such job.
            JobEndedError: it has ended.
            RpcError: the JobMaster does not answer, or refuses.
        """
        jobmaster = await self._jobmaster_of(job_id, "checkpoint")
        await jobmaster.trigger_checkpoint(m.TriggerJobCheckpoint(trigger_id, full, by))
        self.details.outdated(job_id)

    async def trigger_savepoint(self, job_id: str, request: SavepointRequest, by: str = "") -> None:
        """Have the JobMaster of a job take a savepoint, or stop the job with one; as ``trigger_checkpoint``.

        Raises:
            RpcFault: there is no directory for it.
        """
        jobmaster = await self._jobmaster_of(job_id, "savepoint")
        await jobmaster.trigger_savepoint(
            m.TriggerJobSavepoint(request.trigger_id, request.target, request.format, request.stop, by)
        )
        self.details.outdated(job_id)

    async def _jobmaster_of(self, job_id: str, snapshot: str) -> JobMasterGateway:
        """The JobMaster that is to take a checkpoint or savepoint; one that is on its way is waited for."""
        job = await self.news.led(job_id, _COLLECT_MARGIN)
        if job.ended:
            raise JobEndedError(f"Job {job_id} has ended ({job.state}): no {snapshot} can be taken of it.")
        if job.phase is not JobPhase.LED or job.jobmaster is None:
            raise PeerUnreachableError(f"no JobMaster runs job {job_id} yet")
        return JobMasterGateway(self._client, *job.jobmaster)

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
        gateway = JobMasterGateway(self._client, *job.jobmaster, timeout=_COLLECT_MARGIN)
        return await gateway.collect(m.CollectFromJob(operator_id, offset, max_bytes, wait_ms))

    async def failure_of(self, job_id: str) -> tuple[str, str] | None:
        """Class and stack trace of the failure that ended a job; None where nothing is known of one."""
        try:
            entries = job_exceptions(await self.details.of(job_id), 1)["exceptionHistory"]["entries"]
        except (UnknownJobError, DamagedEntryError, RpcError):
            return None
        return (str(entries[0]["exceptionName"]), str(entries[0]["stacktrace"])) if entries else None

    # -- what JobMasters report

    @answers(DispatcherGateway.job_state_changed)
    def job_state_changed(self, message: m.JobStateChanged) -> None:
        """A JobMaster reports another state of its job, as a sign of life as well."""
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
        """A JobMaster reports the end of its job; when this returns, the end is safe.

        Raises:
            RpcFault: the end could not be stored yet, so the JobMaster repeats its report; or it does not count, since
                another JobMaster has the job.
        """
        job = self.core.job(message.job_id)
        if self.core.is_former(message.job_id, message.jobmaster_token):
            text = f"an end of job {message.job_id} is refused: its JobMaster was given up, and another one goes on"
            logger.info("%s", text)
            raise RpcFault(RpcCode.GONE, text)
        shown_settings: Mapping[str, Any] = (job.archive or {}).get("firesteel-settings", {})
        archive: Archive = {**message.archive, "firesteel-settings": shown_settings}
        self.perform(self.core.finished(message.job_id, archive, self.now()))
        if not await self.history.is_stored(message.job_id, _END_SECONDS):
            raise RpcFault(RpcCode.INTERNAL, f"the end of job {message.job_id} could not be stored yet")

    @answers(DispatcherGateway.jobmaster_lost)
    def jobmaster_lost(self, message: m.JobMasterLost) -> None:
        """A JobMaster host, or the JobMaster's own process, reports that the JobMaster is gone."""
        self.perform(self.core.jobmaster_lost(message.job_id, message.cause, self.now(), message.jobmaster_token))

    # -- watching

    async def _ask_jobmasters(self) -> None:
        """Ask JobMasters for details as heartbeats: sooner again where a port is closed, since that one is gone."""
        pause = interval = self._settings.heartbeat_interval
        while True:
            await asyncio.sleep(pause)
            pause = min(interval, CHECK_PAUSE) if await self.details.refresh() else interval

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeats.tick_seconds)
            now = self.now()
            for job_id in self._heartbeats.tick():
                text = (
                    f"its JobMaster gave no sign of life for {self._settings.heartbeat_timeout:g} s, or nobody listened"
                    f" at its address {self._settings.heartbeat_failures} heartbeats in a row"
                )
                self.perform(self.core.jobmaster_silent(job_id, text, now))
            self.perform(self.core.tick(now))
