"""The Dispatcher at work: carries out what its core decides, and asks JobMasters and the ResourceManager."""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
from collections.abc import Iterable, Mapping
from typing import Any

from firesteel.core.clock import Clock
from firesteel.core.errors import FencedError, PeerUnreachableError, RpcError
from firesteel.core.ids import new_fencing_token
from firesteel.core.run_directory import RunDirectory
from firesteel.graph.execution_graph import ExecutionGraph
from firesteel.graph.job_archive import archive_of
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol import messages as m
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import RpcClient
from firesteel.rpc.gateways import RemoteJobMaster, RemoteJobMasterHost, RemoteResourceManager
from firesteel.service.base import Service
from firesteel.service.heartbeat import HeartbeatMonitor
from firesteel_dispatcher.core import CancelJob, DeleteJobData, DispatcherCore, Instruction, Job, StartJob
from firesteel_dispatcher.settings import DispatcherSettings
from firesteel_dispatcher.stores import BlobStore, DirectoryBlobStore, InMemoryJobGraphStore, JobGraphStore
from firesteel_dispatcher.submission import Submission

logger = logging.getLogger(__name__)
PORTS = 100
"""So many ports after a taken one are tried."""
_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)
_COLLECT_MARGIN = 10.0
_LOST = "firesteel.core.errors.PeerUnreachableError"


class DispatcherService(Service):
    """One Dispatcher: jobs, their graphs and blobs, their ends."""

    def __init__(
        self,
        *,
        settings: DispatcherSettings,
        secret: str,
        clock: Clock,
        run_directory: RunDirectory,
        jobmaster_address: str,
        resourcemanager_address: str,
    ) -> None:
        super().__init__("dispatcher", drain_seconds=1.0)
        self.settings, self.secret, self.clock = settings, secret, clock
        self.token = str(new_fencing_token())
        self.core = DispatcherCore(settings.kept_jobs)
        self.jobmaster_address, self.resourcemanager_address = jobmaster_address, resourcemanager_address
        self.graphs: JobGraphStore = InMemoryJobGraphStore()
        self._directory = DirectoryBlobStore(run_directory.path / "blobs")
        self.blobs: BlobStore = self._directory
        self._tick = min(1.0, settings.heartbeat_timeout / 4)
        self._jobmasters = HeartbeatMonitor(clock, settings.heartbeat_timeout, self._tick, failure_threshold=0)
        self._changed: dict[str, asyncio.Event] = {}
        self._details: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._asking: dict[str, asyncio.Task[Mapping[str, Any]]] = {}

    # -- life

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen and begin to work; returns the base URL.

        Args:
            host: address to listen on.
            port: if it is taken, one of the next hundred; 0 = any free one.

        Raises:
            OSError: all these ports are taken.
        """
        free = first_free_port(host, port) if port else 0
        if free != port:
            logger.warning("port %d is taken: the REST API listens on port %d", port, free)
        return await super().start(host, free)

    async def on_start(self) -> None:
        """Watch JobMasters."""
        self.client = RpcClient(self.session, self.secret, self.clock)
        self.spawn(self._watch_jobmasters(), "heartbeat watch")
        self.spawn(self._ask_jobmasters(), "heartbeats")

    async def on_drain(self) -> None:
        """Nobody waits for the end of a job any longer."""
        for event in self._changed.values():
            event.set()

    async def on_stop(self) -> None:
        """Blobs go with their owner."""
        self._directory.close()

    # -- events and instructions

    def perform(self, instructions: Iterable[Instruction]) -> None:
        """Carry out instructions."""
        for instruction in instructions:
            match instruction:
                case StartJob():
                    self.spawn(self._start_job(instruction.job_id), f"start of job {instruction.job_id}")
                case CancelJob():
                    self.spawn(self._cancel_job(instruction), f"cancelling job {instruction.job_id}")
                case DeleteJobData():
                    self.graphs.remove(instruction.job_id)
                    self.blobs.release(instruction.job_id)
                    self._jobmasters.forget(instruction.job_id)
                    self._details.pop(instruction.job_id, None)
                    self._notify(instruction.job_id)

    def submit(self, submission: Submission) -> None:
        """Store a job and have it run. What it brought is dropped if it was submitted before.

        Raises:
            JobConflictError: another job has its id.
        """
        graph, fingerprint = submission.graph, submission.fingerprint
        try:
            if self.core.is_known(graph.job_id, fingerprint):
                return
            self.blobs.keep(graph.job_id, submission.blobs)
            self.graphs.put(graph)
            archive = archive_of(ExecutionGraph(graph, self.clock))
            self.perform(self.core.submitted(graph.job_id, graph.name, fingerprint, archive))
        finally:
            self.blobs.drop(submission.blobs.values())

    def job_state_changed(self, message: m.JobStateChanged) -> None:
        """See ``DispatcherGateway``."""
        self.core.state_changed(message.job_id, message.state, message.timestamps)
        self._jobmasters.heard(message.job_id)
        self._details.pop(message.job_id, None)
        self._notify(message.job_id)

    def job_finished(self, message: m.JobFinished) -> None:
        """See ``DispatcherGateway``."""
        self.perform(self.core.finished(message.job_id, message.archive))

    def _notify(self, job_id: str) -> None:
        event = self._changed.pop(job_id, None)
        if event is not None:
            event.set()

    async def _start_job(self, job_id: str) -> None:
        graph = self.graphs.get(job_id)
        if graph is None:
            return
        job = self.core.job(job_id)
        for pause in (*_PAUSES, None):
            if job.cancel_wanted:  # nobody runs it yet
                self._fail(job_id, _LOST, "it was cancelled before it was started")
                return
            try:
                answer = await self._host_start(graph)
            except PeerUnreachableError as error:
                if pause is None:
                    self._fail(job_id, _LOST, f"no JobMaster could be started: {error}")
                    return
                await asyncio.sleep(pause)
            except RpcError as error:
                self._fail(job_id, f"{type(error).__module__}.{type(error).__qualname__}", str(error))
                return
            else:
                self._jobmasters.watch(job_id)
                self.perform(self.core.started(job_id, answer.address, answer.jobmaster_token))
                self._notify(job_id)
                return

    async def _host_start(self, graph: JobGraph) -> m.JobStarted:
        host = RemoteJobMasterHost(self.client, self.jobmaster_address)
        return await host.start_job(
            m.StartJob(graph.to_plain(), self.address, self.token, self.resourcemanager_address, self.address)
        )

    async def _cancel_job(self, order: CancelJob) -> None:
        jobmaster = RemoteJobMaster(self.client, order.address, order.token)
        for pause in (*_PAUSES, None):
            try:
                await jobmaster.cancel()
                return
            except PeerUnreachableError as error:
                if pause is None:
                    logger.error("job %s could not be cancelled: %s", order.job_id, error)
                    return
                await asyncio.sleep(pause)
            except RpcError as error:
                logger.warning("job %s could not be cancelled: %s", order.job_id, error)
                return

    def _fail(self, job_id: str, error_class: str, message: str) -> None:
        self.perform(self.core.failed(job_id, error_class, message, self.clock.epoch_ms()))

    # -- questions

    async def archive(self, job_id: str) -> Mapping[str, Any]:
        """Everything about a job: from its JobMaster while it runs, else as it ended.

        Raises:
            UnknownJobError: there is no such job.
        """
        job = self.core.job(job_id)
        if job.ended or job.jobmaster is None:
            return job.archive
        kept = self._details.get(job_id)
        if kept is not None and self.clock.monotonic() - kept[0] < self.settings.details_age:
            return kept[1]
        asking = self._asking.get(job_id)
        if asking is None:
            asking = self.spawn(self._ask(job), f"details of job {job_id}")
            if asking is None:
                return job.archive
            self._asking[job_id] = asking
            asking.add_done_callback(lambda _: self._asking.pop(job_id, None))
        return await asyncio.shield(asking)

    async def archives(self) -> list[Mapping[str, Any]]:
        """Of all jobs, in the order of submission; ended ones last."""
        return list(await asyncio.gather(*(self.archive(job_id) for job_id in list(self.core.jobs))))

    async def _ask(self, job: Job) -> Mapping[str, Any]:
        assert job.jobmaster is not None
        gateway = RemoteJobMaster(self.client, *job.jobmaster)
        try:
            answer = await gateway.details()
        except (FencedError, RpcFault) as error:
            if isinstance(error, FencedError) or error.code is RpcCode.NOT_FOUND:
                self._fail(job.id, _LOST, f"the JobMaster of the job is lost: {error}")
            return self._known(job)
        except RpcError as error:
            logger.warning("no details of job %s: %s", job.id, error)
            return self._known(job)
        self._jobmasters.heard(job.id)
        found: Mapping[str, Any] = answer["archive"] if "archive" in answer and "jid" not in answer else answer
        if job.ended:
            return job.archive
        self._details[job.id] = (self.clock.monotonic(), found)
        return found

    def _known(self, job: Job) -> Mapping[str, Any]:
        if job.ended:
            return job.archive
        return {**job.archive, "state": job.state, "timestamps": job.timestamps}

    async def wait_ended(self, job_id: str, seconds: float) -> Job:
        """A job, once it has ended or after so many seconds.

        Raises:
            UnknownJobError: there is no such job.
        """
        job = self.core.job(job_id)
        try:
            async with asyncio.timeout(seconds):
                while not job.ended and not self.stopping:
                    await self._changed.setdefault(job_id, asyncio.Event()).wait()
        except TimeoutError:
            pass
        return job

    async def collect(
        self, job_id: str, operator_id: str, offset: int, max_bytes: int, wait_ms: int
    ) -> m.CollectedFromJob:
        """Results of a collect operator, through the JobMaster; waits for the first one.

        Raises:
            UnknownJobError: there is no such job.
            RpcError: the JobMaster does not answer, or refuses.
        """
        job = self.core.job(job_id)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while job.jobmaster is None and not job.ended and not self.stopping:
                    await self._changed.setdefault(job_id, asyncio.Event()).wait()
        except TimeoutError:
            pass
        if job.ended or job.jobmaster is None:
            return m.CollectedFromJob(offset, 0, job.ended, "", job.state)
        gateway = RemoteJobMaster(self.client, *job.jobmaster, timeout=_COLLECT_MARGIN)
        return await gateway.collect(m.CollectFromJob(operator_id, offset, max_bytes, wait_ms))

    async def cluster(self) -> m.ClusterOverview:
        """TaskManagers and slots.

        Raises:
            RpcError: the ResourceManager does not answer.
        """
        return await RemoteResourceManager(self.client, self.resourcemanager_address).overview()

    # -- watching

    async def _ask_jobmasters(self) -> None:
        while True:
            await asyncio.sleep(self.settings.heartbeat_interval)
            running = [job_id for job_id, job in self.core.jobs.items() if not job.ended]
            await asyncio.gather(*(self.archive(job_id) for job_id in running))

    async def _watch_jobmasters(self) -> None:
        while True:
            await asyncio.sleep(self._tick)
            for job_id in self._jobmasters.tick():
                self._fail(job_id, _LOST, "the JobMaster of the job gave no sign of life")


def decode_results(results: m.CollectedFromJob) -> bytes:
    """The pickled list; empty if there is none."""
    return base64.b64decode(results.data)


def first_free_port(host: str, port: int) -> int:
    """The first port from ``port`` on that nobody listens on.

    Raises:
        OSError: the next hundred are taken too.
    """
    last: OSError | None = None
    for candidate in range(port, min(port + PORTS, 65535) + 1):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, candidate))
            except OSError as error:
                last = error
            else:
                return candidate
    raise OSError(f"ports {port} to {port + PORTS} of {host} can't be used for the REST API ({last}): set rest.port")
