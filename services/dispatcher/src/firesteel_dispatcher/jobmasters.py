"""Calls to JobMasters and to their host: start, adopt, cancel. Each is repeated until there is an answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from firesteel.core.backoff import pauses
from firesteel.core.errors import GraphError, PeerUnreachableError, RpcError, class_name
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import JobMasterGateway, JobMasterHostGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import RpcClient, check_reachable
from firesteel.service.lanes import Spawn
from firesteel.service.retries import Failure, is_gone, repeated, until_it_works
from firesteel_dispatcher.core import DispatcherCore
from firesteel_dispatcher.instructions import Instruction, ProbeJobMaster, SendAdoptJob, SendCancelJob
from firesteel_dispatcher.job import JobPhase, Moment
from firesteel_dispatcher.leadership import Coordinators, DispatcherLeadership

logger = logging.getLogger(__name__)
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0
"""Seconds; short enough that jobs start soon when the host comes."""


class JobMasterCalls:
    """Makes the calls to JobMasters that the core decides, and reports the answers to the core.

    Args:
        core: of the Dispatcher.
        leadership: tells JobMasters who leads, and where.
        coordinators: the links to the JobMaster host and the ResourceManager.
        graphs: of jobs that have not ended.
        perform: carries out the instructions that follow from an answer.
        spawn: runs calls in the background.
        now: the moment.
        patience: seconds for which the JobMaster of a job that has ended is still called to cancel it.
        has_ended: whether a job ended under a JobMaster that could not report it; called before another one is started.
        read_again: reads the graph of a job that is not among ``graphs``, since it was damaged before.
        trace_of: ``traceparent`` of a job's submission.
    """

    def __init__(
        self,
        core: DispatcherCore,
        leadership: DispatcherLeadership,
        coordinators: Coordinators,
        graphs: Mapping[str, JobGraph],
        perform: Callable[[Iterable[Instruction]], None],
        spawn: Spawn,
        now: Callable[[], Moment],
        patience: float,
        has_ended: Callable[[str], Awaitable[bool]],
        read_again: Callable[[str], Awaitable[JobGraph]],
        trace_of: Callable[[str], str],
    ) -> None:
        self._core, self._leadership, self._coordinators = core, leadership, coordinators
        self._graphs, self._perform, self._spawn = graphs, perform, spawn
        self._now, self._patience, self._has_ended, self._trace_of = now, patience, has_ended, trace_of
        self._read_again = read_again
        self._running: set[str] = set()
        self.listed: dict[str, m.RunningJob] = {}
        """The last list of the JobMaster host, by job id."""

    def connect(self, client: RpcClient) -> None:
        """Make calls with this client; comes before any other method."""
        self._client = client

    def start(self, job_id: str, delay: float = 0.0) -> None:
        """Have a JobMaster run a job, after a pause in seconds."""
        self._once(f"start of job {job_id}", self._start(job_id, delay))

    def ask_host(self) -> None:
        self._once("question to the JobMaster host", self._ask_host())

    def adopt(self, order: SendAdoptJob) -> None:
        """Have a JobMaster report to this Dispatcher from now on."""
        self._once(f"adoption of job {order.job_id} from {order.address}", self._adopt(order))

    def probe(self, order: ProbeJobMaster) -> None:
        """Look whether a connection to a JobMaster can be made."""
        self._once(f"probe of {order.address}, of job {order.job_id}", self._probe(order))

    def cancel(self, order: SendCancelJob) -> None:
        self._once(f"cancelling job {order.job_id} at {order.address}", self._cancel(order))

    def _once(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a call in the background, unless the same call is under way: it repeats itself until it is answered."""
        if name in self._running:
            work.close()
            return

        async def run() -> None:
            try:
                await work
            finally:
                self._running.discard(name)

        self._running.add(name)
        if self._spawn(run(), name) is None:  # the service stops
            work.close()
            self._running.discard(name)

    async def _start(self, job_id: str, delay: float) -> None:
        if delay:
            await asyncio.sleep(delay)

        async def start(host: JobMasterHostGateway) -> None:
            job = self._core.jobs.get(job_id)
            if job is None or job.ended:
                return
            graph = self._graphs.get(job_id) or await self._read_again(job_id)
            if await self._has_ended(job_id) or not self._core.may_start(job_id):
                return
            leadership, job = self._leadership, self._core.job(job_id)
            resourcemanager, _ = self._coordinators.resourcemanager.where()
            message = m.StartJob(
                graph.to_plain(), leadership.address, leadership.token, resourcemanager, leadership.address,
                leadership.term, job.takeovers, job.takeover_cause, tuple(job.former),
                self._trace_of(job_id), job.submitted_ms, job.events,
            )  # fmt: skip
            answer = await host.start_job(message)
            if answer.jobmaster_token in job.former:
                raise RpcFault(RpcCode.INTERNAL, "the JobMaster host answers with a JobMaster that was given up")
            self._perform(self._core.started(job_id, answer.address, answer.jobmaster_token))

        def failed(error: Failure) -> bool:
            if isinstance(error, RpcFault) and error.code is RpcCode.REFUSED:
                self._perform(self._core.refused(job_id, class_name(GraphError), str(error), self._now()))
            else:  # any other failure, such as a host of another version, is not the job's fault: it waits
                self._perform(self._core.unreachable(job_id, str(error), self._now()))
            return True

        await self._coordinators.jobmaster_host.ask(start, failed, pauses(FIRST_PAUSE, LONGEST_PAUSE))

    async def _ask_host(self) -> None:
        def failed(error: Failure) -> bool:
            logger.info("the JobMaster host does not say what runs: %s", error)
            self._perform(self._core.host_away(str(error), self._now()))
            return True

        answer = await self._coordinators.jobmaster_host.ask(
            lambda host: host.list_jobs(), failed, pauses(FIRST_PAUSE, LONGEST_PAUSE)
        )
        self.listed = {job.job_id: job for job in answer.jobs}
        running = {job.job_id: (job.address, job.jobmaster_token) for job in answer.jobs}
        self._perform(self._core.host_lists(running, self._now()))

    async def _adopt(self, order: SendAdoptJob) -> None:
        jobmaster = JobMasterGateway(self._client, order.address, order.token)
        message = m.AdoptJob(self._leadership.address, self._leadership.token, self._leadership.term)

        def goes_on(error: Failure) -> bool:
            if is_gone(error):
                text = f"its JobMaster is gone: {error}"
                self._perform(self._core.jobmaster_lost(order.job_id, text, self._now(), order.token))
                return False
            self._perform(self._core.unreachable(order.job_id, str(error), self._now()))
            job = self._core.jobs.get(order.job_id)
            recovers = job is not None and job.phase is JobPhase.RECOVERING
            return recovers and job is not None and job.jobmaster == (order.address, order.token)

        try:
            await repeated(lambda: jobmaster.adopt(message), goes_on, pauses(FIRST_PAUSE, LONGEST_PAUSE))
        except RpcError as error:
            logger.info("job %s is not adopted from %s: %s", order.job_id, order.address, error)
        else:
            self._perform(self._core.adopted(order.job_id, order.address, order.token))

    async def _probe(self, order: ProbeJobMaster) -> None:
        try:
            await check_reachable(order.address)
        except PeerUnreachableError as error:
            text = f"another JobMaster host leads than that of the job's JobMaster, which can't be reached: {error}"
            self._perform(self._core.jobmaster_lost(order.job_id, text, self._now(), order.token))

    async def _cancel(self, order: SendCancelJob) -> None:
        """Call until it works. A final error means that the JobMaster knows of the job's end, or does not lead it."""

        def goes_on() -> bool:
            job = self._core.jobs.get(order.job_id)
            return job is not None and not (job.ended and self._now().monotonic - job.ended_at > self._patience)

        jobmaster, job = JobMasterGateway(self._client, order.address, order.token), self._core.jobs.get(order.job_id)
        message = m.CancelJob("" if job is None else job.cancelled_by)
        if not await until_it_works(
            f"cancelling job {order.job_id}",
            lambda: jobmaster.cancel(message),
            goes_on,
            waits=pauses(FIRST_PAUSE, LONGEST_PAUSE),
        ):
            logger.info("the JobMaster of job %s is not told to cancel it any more", order.job_id)
