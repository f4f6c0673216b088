"""The JobMaster host that runs each job in a process of its own."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Iterable
from pathlib import Path

from firesteel.config import Settings
from firesteel.config.options import JOBMASTERS_END_WITH_HOST
from firesteel.core.clock import Clock
from firesteel.core.errors import FencedError, GraphError
from firesteel.core.log_files import keep_newest, last_lines
from firesteel.core.process import ProcessId, ask_to_end, is_running, kill
from firesteel.core.run_directory import RunDirectory, private_directory
from firesteel.graph.job_graph import JobGraph
from firesteel.ha.retrieval import FixedLeaders
from firesteel.ha.services import DISPATCHER, JOBMASTER_HOST, RESOURCEMANAGER, HighAvailabilityServices
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import DispatcherGateway, JobMasterGateway, ResourceManagerGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import RpcClient
from firesteel.rpc.process_calls import process_routes
from firesteel.service.base import Service
from firesteel.service.leader_link import LeaderChannel
from firesteel.service.leaders import Candidate
from firesteel.service.leaving import Leaving
from firesteel.service.retries import until_it_works
from firesteel_jobmaster.host_core import (
    AdoptJobMaster,
    EndJobProcess,
    ForgetEntry,
    ForkJobMaster,
    HostCore,
    Hosted,
    Instruction,
    KillJobProcess,
    ReportLoss,
)
from firesteel_jobmaster.job_start import JobRefusedError, JobStart, StartedProcess, StartError
from firesteel_jobmaster.registry import FOLDER, ProcessRegistry
from firesteel_jobmaster.routes import host_routes
from firesteel_jobmaster.submission import check_leads, read_job
from firesteel_jobmaster.template_process import TemplateProcess

logger = logging.getLogger(__name__)
DRAIN_SECONDS = 15.0
END_SECONDS = 10.0
"""When the cluster ends: JobMasters that have not given their slots back by then are killed."""
LOOK_SECONDS = 0.5
REPORT_SECONDS = 2.0
"""How long the template may take to say how a process ended that is gone."""
KEPT_LOGS = 100
LOG_TAIL = 30


class HostService(Service):
    """Forks a process for each job, knows which of them live, and tells the others when one was lost.

    Args:
        settings: of the cluster; those of a job come on top.
        secret: of the cluster.
        clock: injected.
        run_directory: of sockets, and of the logs of jobs if there is no directory for logs.
        cluster_directory: where it finds its jobs again after it was killed.
        bind_host: address that the jobs bind to.
        advertised_host: under which others find them.
        log_directory: where logs of jobs stay.
        ha: where it says that it is there, and finds the others; None: nobody looks, and they are where jobs say.
        host_names: see ``Service``.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        secret: str,
        clock: Clock,
        run_directory: RunDirectory,
        cluster_directory: Path,
        bind_host: str,
        advertised_host: str,
        log_directory: Path | None = None,
        ha: HighAvailabilityServices | None = None,
        host_names: Collection[str] = (),
    ) -> None:
        super().__init__("jobmaster", host_names=host_names, drain_seconds=DRAIN_SECONDS)
        self._settings, self._secret, self._clock = settings, secret, clock
        self._ends_all = settings.get(JOBMASTERS_END_WITH_HOST)
        self._candidate = Candidate(ha, JOBMASTER_HOST) if ha is not None else None
        leaders = ha or FixedLeaders({})
        self._dispatcher = LeaderChannel(leaders, DISPATCHER, DispatcherGateway, lambda: self._client)
        self._resourcemanager = LeaderChannel(leaders, RESOURCEMANAGER, ResourceManagerGateway, lambda: self._client)
        self._registry = ProcessRegistry(cluster_directory)
        self._logs = (
            run_directory.subdir(FOLDER) if log_directory is None else private_directory(log_directory / FOLDER)
        )
        self._core = HostCore(clock)
        self._left_behind: list[Instruction] = []
        """What is to be done about processes of a former host, once calls can be made."""
        self._looks_after = False
        """Whether this host leads, and answers for the processes."""
        self.template = TemplateProcess(self._template_reports)
        self._start = JobStart(
            self.template,
            settings=settings,
            secret=secret,
            bind_host=bind_host,
            advertised_host=advertised_host,
            run_directory=run_directory.path,
            cluster_directory=cluster_directory,
        )
        self._rpc: RpcClient | None = None
        self._starts: dict[str, asyncio.Future[m.JobStarted]] = {}
        self._generations: dict[str, int] = {}
        """Job -> generation of the template that has forked its process, and reports how the process ends."""
        self._missing_since: dict[str, float] = {}
        """Job -> when its process was first seen to be gone, with no report of the template."""
        self.app.add_routes([*host_routes(self, secret, clock), *process_routes(secret, clock)])

    def is_ready(self) -> bool:
        """Whether a job would start at once."""
        return super().is_ready() and self.template.is_ready

    def _recover(self) -> list[Instruction]:
        """Find what a former host left behind."""
        instructions: list[Instruction] = []
        for entry in self._registry.read_all():
            try:
                graph = JobGraph.from_plain(entry.start.job_graph)
            except GraphError as error:
                logger.error("the graph of job %s is malformed, its JobMaster is left alone: %s", entry.job_id, error)
                continue
            alive = is_running(entry.process)
            logger.info("job %s: process %d %s", entry.job_id, entry.process.pid, "runs" if alive else "is gone")
            instructions += self._core.recovered(entry, graph, alive)
        return instructions

    async def start(self, host: str = "127.0.0.1", port: int = 0, advertised_host: str = "") -> str:
        """Start the service; where another host leads and others may wait, this one waits for its turn.

        Raises:
            OSError: the port is taken.
            ConfigurationError: an advertised host is missing, or another JobMaster host leads and stays.
        """
        if self._candidate is not None:
            try:
                await self._candidate.lead()
            except BaseException:
                await self.stop()
                raise
        # Only a host that leads may know of the processes: another one would stop them when it ends.
        self._left_behind = self._recover()
        return await super().start(host, port, advertised_host)

    @property
    def is_standby(self) -> bool:
        """Whether it waits while another JobMaster host leads."""
        return self._candidate is not None and self._candidate.is_standby

    async def on_start(self) -> None:
        """Hear the template, and look after the processes."""
        self._rpc = RpcClient(self.session, self._secret, self._clock)  # whoever knows the port may call already
        self._dispatcher.start()
        self._resourcemanager.start()
        if self._candidate is not None:
            await self._candidate.announce(self.address, "")
            self.spawn(self._candidate.hold(), "leadership")
        self.template.attach()
        self._looks_after = True
        self._perform(self._left_behind)
        self.spawn(self._look(), "look for processes that are gone")

    # -- calls

    async def start_job(self, message: m.StartJob) -> m.JobStarted:
        """Run a job; one that is here already goes on, if it is the same.

        Raises:
            GraphError: the graph or its settings are malformed, or another job has its id.
            RpcFault: its process could not be started, or was lost; ``INTERNAL``: ask again.
        """
        await check_leads(self._candidate)
        graph, _ = read_job(self._settings, message)
        if self._core.get(graph.job_id) is not None and (entry := self._registry.read(graph.job_id)) is not None:
            self._core.adopted(entry)
        answer, instructions = self._core.start_job(graph, message)
        self._perform(instructions)
        if answer is not None:
            return answer
        if graph.job_id not in self._starts:
            text = f"the former JobMaster of job {graph.job_id} is being killed, or its start broke off; ask again"
            raise RpcFault(RpcCode.INTERNAL, text)
        return await asyncio.shield(self._starts[graph.job_id])

    def running_jobs(self) -> m.RunningJobs:
        """The jobs whose JobMasters run, for a Dispatcher that may adopt them."""
        return self._core.running_jobs()

    # -- instructions

    def _perform(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case ForkJobMaster(job_id):
                    left = self._registry.read(job_id)
                    if left is not None and not is_running(left.process):  # of one that was lost
                        self._registry.remove(job_id)
                    self._starts[job_id] = asyncio.get_running_loop().create_future()
                    self.spawn(self._start_process(job_id), f"start of job {job_id}")
                case AdoptJobMaster(job_id, adopt):
                    self.spawn(self._adopt(job_id, adopt), f"adoption of job {job_id}")
                case EndJobProcess(process):
                    ask_to_end(process)
                case KillJobProcess(process):
                    kill(process)
                case ReportLoss(job_id, jobmaster):
                    self._log_tail(job_id)
                    self.spawn(self._tell_loss(job_id, jobmaster), f"loss of the JobMaster of job {job_id}")
                case ForgetEntry(job_id, token):
                    self._registry.remove_own(job_id, token)

    async def _adopt(self, job_id: str, adopt: m.AdoptJob) -> None:
        job = self._core.get(job_id)
        if job is not None and self._rpc is not None:
            jobmaster = JobMasterGateway(self._rpc, job.address, job.token)
            await until_it_works(
                f"adoption of job {job_id}", lambda: jobmaster.adopt(adopt), lambda: self._core.get(job_id) is job
            )

    async def _tell_loss(self, job_id: str, job: Hosted) -> None:
        lost = m.JobMasterLost(job_id, job.cause, job.token)

        async def tell_resourcemanager() -> None:
            resourcemanager = self._resourcemanager.gateway(otherwise=job.start.resourcemanager_address)
            await resourcemanager.forget_jobmaster(lost)

        async def tell_dispatcher() -> None:
            await self._dispatcher.gateway(otherwise=job.start.dispatcher_address).jobmaster_lost(lost)

        self.spawn(
            until_it_works(f"loss of job {job_id}", tell_resourcemanager),
            f"loss of job {job_id}, to the ResourceManager",
        )
        await until_it_works(f"loss of job {job_id}", tell_dispatcher)
        self._perform(self._core.loss_told(job_id, job))

    @property
    def _client(self) -> RpcClient:
        assert self._rpc is not None
        return self._rpc

    # -- processes

    async def _start_process(self, job_id: str) -> None:
        job = self._core.get(job_id)
        assert job is not None
        failure: Exception = RpcFault(RpcCode.INTERNAL, "the JobMaster host stops")
        try:
            self._began(job_id, await self._make(job_id, job))
        except JobRefusedError as error:
            self._perform(self._core.start_failed(job_id, str(error)))
            failure = GraphError(str(error))
        except StartError as error:
            failure = self._start_failed(job_id, str(error))
        finally:
            answer = self._starts.pop(job_id)
            if job.address:
                answer.set_result(job.started)
            else:
                answer.set_exception(failure)
                answer.exception()  # the caller may have gone away

    async def _make(self, job_id: str, job: Hosted) -> StartedProcess:
        try:
            return await self._make_once(job_id, job)
        except StartError as error:
            if self._registry.has(job_id):  # the job had begun
                raise
            try:
                await check_leads(self._candidate)  # the successor of this host may have started one by now
            except RpcFault as fault:
                raise StartError(f"{error}; {fault}") from error
            logger.warning("job %s: %s; one more try", job_id, error)
            return await self._make_once(job_id, job)

    async def _make_once(self, job_id: str, job: Hosted) -> StartedProcess:
        try:
            return await self._start.run(job_id, job.start, self._logs / f"{job_id}.log")
        except StartError as error:
            if error.process is not None and not self._registry.has(job_id):
                kill(error.process)  # it may still begin, and nobody would know of it
            raise

    def _began(self, job_id: str, started: StartedProcess) -> None:
        self._generations[job_id] = self.template.generation
        self._perform(self._core.started(job_id, started.process, started.address, started.token))
        logger.info("job %s: runs in process %d, log %s", job_id, started.process.pid, self._logs / f"{job_id}.log")
        self.spawn(self._listen(job_id, started), f"connection to job {job_id}")

    def _start_failed(self, job_id: str, cause: str) -> RpcFault:
        entry = self._registry.read(job_id)
        if entry is not None:  # it had begun, and may have slots
            self._perform(
                self._core.recovered(entry, read_job(self._settings, entry.start)[0], is_running(entry.process))
            )
        else:
            self._perform(self._core.start_failed(job_id, cause))
            self._log_tail(job_id)
        return RpcFault(RpcCode.INTERNAL, f"the JobMaster of job {job_id} could not be started: {cause}")

    async def _listen(self, job_id: str, started: StartedProcess) -> None:
        try:
            while line := await started.reader.readline():
                message = json.loads(line)
                if "ended" in message:
                    self._perform(self._core.ended(job_id))
                elif "crashed" in message:
                    self._core.crashed(job_id, started.process, message["crashed"])
        except OSError:
            pass  # it is gone; how, the template tells
        finally:
            started.writer.close()

    def _template_reports(self, job_id: str, pid: int, how_it_ended: str) -> None:
        self._start.process_ended(job_id, how_it_ended)
        job = self._core.get(job_id)
        if job is not None and job.process is not None and job.process.pid == pid:
            self._process_ended(job_id, job.process, how_it_ended)

    def _process_ended(self, job_id: str, process: ProcessId, how_it_ended: str) -> None:
        self._generations.pop(job_id, None)
        self._missing_since.pop(job_id, None)
        in_order = not self._registry.has(job_id)
        logger.info("job %s: process %d %s", job_id, process.pid, how_it_ended)
        self._perform(self._core.process_ended(job_id, process, how_it_ended, in_order))
        self._trim_logs()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = self._clock.monotonic()
            for job in self._core.with_processes():
                job_id, process = job.graph.job_id, job.process
                if process is None or is_running(process):
                    continue
                since = self._missing_since.setdefault(job_id, now)
                is_templates = self._generations.get(job_id) == self.template.generation
                if not is_templates or now - since >= REPORT_SECONDS:
                    self._process_ended(job_id, process, "is gone")

    def _log_tail(self, job_id: str) -> None:
        try:
            lines = last_lines(self._logs / f"{job_id}.log")[-LOG_TAIL:]
        except OSError:
            return
        logger.error("last lines of the log of job %s:\n%s", job_id, "\n".join(lines))

    def _trim_logs(self) -> None:
        keep_newest(
            self._logs, "*.log*", KEPT_LOGS, lambda path: self._core.get(path.name.partition(".")[0]) is not None
        )

    # -- the end

    async def on_drain(self) -> None:
        """Wait for JobMasters that are being started; the next host finds them all by their files.

        If the cluster ends, or they would not outlive the host: have all give their slots back, and wait until they
        have ended; kill those that do not.
        """
        instructions = self._core.leave(Leaving.END_ALL if self._ends_all else self.leaving)
        is_deposed = isinstance(self.failure, FencedError) and not self._ends_all
        if not self._looks_after or is_deposed:  # they are another one's, if there are any
            return
        self._perform(instructions)
        deadline = self._clock.monotonic() + END_SECONDS
        while self._core.is_waited_for() and self._clock.monotonic() < deadline:
            for job in self._core.with_processes():
                if job.process is not None and not is_running(job.process):
                    self._process_ended(job.graph.job_id, job.process, "has ended")
            await asyncio.sleep(0.02)
            self._perform(self._core.leave(self.leaving))
        self._perform(self._core.overdue())
        pids = [job.process.pid for job in self._core.with_processes() if job.process is not None]
        if pids and self.leaving is Leaving.HAND_OVER:
            logger.info("JobMasters go on for the next host: processes %s", ", ".join(map(str, pids)))

    async def on_stop(self) -> None:
        self._dispatcher.close()
        self._resourcemanager.close()
        await self.template.close()

    async def on_stopped(self) -> None:
        """Another host may lead."""
        if self._candidate is not None:
            await self._candidate.give_up()
