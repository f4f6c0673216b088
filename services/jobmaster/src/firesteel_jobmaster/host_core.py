"""The decisions of a host whose JobMasters are processes: events in, instructions out. No I/O, no waiting."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from firesteel.core.clock import Clock
from firesteel.core.process import ProcessId
from firesteel.core.state_machine import StateMachine
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol import messages as m
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.service.leaving import Leaving
from firesteel_jobmaster.registry import RegisteredProcess
from firesteel_jobmaster.submission import check_term, leads_elsewhere, other_job

logger = logging.getLogger(__name__)
MOST_ENDED = 4
"""Processes of ended jobs that may still answer late questions; the oldest are told to end."""
KEPT_ENDED = 32
"""Ended jobs of which the host remembers how they were started, for orders that come twice."""


class HostedState(Enum):
    """Where the JobMaster of a job is, as its host sees it."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    ENDED = "ENDED"
    LOST = "LOST"
    GONE = "GONE"


_H = HostedState
HOSTED_MOVES: Mapping[HostedState, frozenset[HostedState]] = {
    _H.STARTING: frozenset({_H.RUNNING, _H.LOST, _H.GONE}),
    _H.RUNNING: frozenset({_H.ENDED, _H.LOST, _H.GONE}),
    _H.ENDED: frozenset({_H.GONE}),
    _H.LOST: frozenset({_H.GONE}),
}
"""STARTING: its process is made. RUNNING: it runs, or tries to tell the end of its job. ENDED: the Dispatcher has
stored the end, and the JobMaster has cleaned up: the process is about to go. LOST: the process ended before that, and
the others are being told.
GONE: no process, nothing to tell."""


@dataclass
class Hosted:
    """A JobMaster, as its host knows it.

    Attributes:
        graph: of the job.
        start: order with which the JobMaster was started, with the Dispatcher that leads now.
        machine: state of the JobMaster.
        process, address, token: known once the JobMaster runs.
        cause: why the JobMaster was lost.
        crash: the JobMaster's own report before its process ended; empty = it gave none.
        given_up: the JobMaster is being killed, since the Dispatcher wants another one.
    """

    graph: JobGraph
    start: m.StartJob
    machine: StateMachine[HostedState]
    process: ProcessId | None = None
    address: str = ""
    token: str = field(default="", repr=False)
    cause: str = ""
    crash: str = ""
    given_up: bool = False

    @property
    def state(self) -> HostedState:
        return self.machine.state

    @property
    def started(self) -> m.JobStarted:
        """The answer to the Dispatcher's order."""
        return m.JobStarted(self.address, self.token)


@dataclass(frozen=True)
class ForkJobMaster:
    """Make a process for a job; report ``started`` or ``start_failed``."""

    job_id: str


@dataclass(frozen=True)
class AdoptJobMaster:
    """Tell a JobMaster that another Dispatcher leads."""

    job_id: str
    adopt: m.AdoptJob


@dataclass(frozen=True)
class EndJobProcess:
    """The process of an ended job may go now; or the cluster ends, and the JobMaster gives its slots back."""

    process: ProcessId


@dataclass(frozen=True)
class KillJobProcess:
    """A JobMaster was given up and lives: it has to go before another one follows. Or it does not end with its host."""

    process: ProcessId


@dataclass(frozen=True)
class ReportLoss:
    """Tell the Dispatcher and the ResourceManager that a JobMaster is gone; report ``loss_told``."""

    job_id: str
    jobmaster: Hosted


@dataclass(frozen=True)
class ForgetEntry:
    """Remove the file of a JobMaster, unless it is of another one by now."""

    job_id: str
    token: str = field(repr=False)


Instruction = ForkJobMaster | AdoptJobMaster | EndJobProcess | KillJobProcess | ReportLoss | ForgetEntry


class HostCore:
    """The JobMasters of a host. Single-threaded; every method returns what to do now.

    Args:
        clock: stamps states.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: dict[str, Hosted] = {}
        self._ended: OrderedDict[str, Hosted] = OrderedDict()
        self._leaving: Leaving | None = None
        """How the host leaves, once it does."""

    def get(self, job_id: str) -> Hosted | None:
        """The JobMaster of a job; None: there is none, or it is gone."""
        return self._jobs.get(job_id)

    def with_processes(self) -> list[Hosted]:
        """The JobMasters that have a process, as far as is known."""
        return [job for job in self._jobs.values() if job.process is not None and job.state is not HostedState.LOST]

    def running_jobs(self) -> m.RunningJobs:
        """The jobs that a Dispatcher may adopt."""
        return m.RunningJobs(
            tuple(
                m.RunningJob(job_id, job.address, job.token, job.start.job_graph)
                for job_id, job in self._jobs.items()
                if job.state is HostedState.RUNNING
            )
        )

    def start_job(self, graph: JobGraph, message: m.StartJob) -> tuple[m.JobStarted | None, list[Instruction]]:
        """A Dispatcher wants a job to run; answers how it is reached, or None while its process is being made.

        Raises:
            GraphError: another job has its id.
            RpcFault: its JobMaster was lost, and the Dispatcher has not heard of it yet; or another Dispatcher leads.
        """
        if self._leaving is not None:
            raise RpcFault(RpcCode.INTERNAL, "the JobMaster host stops")
        remembered = self._ended.get(graph.job_id)
        job = self._jobs.get(graph.job_id)
        former = job or remembered
        if former is not None:
            if former.graph != graph:
                raise other_job(graph.job_id)
            check_term(graph.job_id, former.start, message)
        if job is not None and job.token in message.given_up:
            if job.state is not HostedState.LOST and job.process is not None:
                return self._give_up(job, job.process)
            job = None  # Dispatcher and ResourceManager are being told that it is lost
        if job is None:
            if remembered is not None and _is_repeated(message, remembered):
                return remembered.started, []
            self._jobs[graph.job_id] = self._hosted(graph, message, HostedState.STARTING)
            return None, [ForkJobMaster(graph.job_id)]
        if job.state is HostedState.LOST:
            raise RpcFault(RpcCode.INTERNAL, job.cause)
        if not leads_elsewhere(job.start, message):
            return (None if job.state is HostedState.STARTING else job.started), []
        if job.state is HostedState.STARTING:
            raise RpcFault(RpcCode.INTERNAL, f"the JobMaster of job {graph.job_id} is being started; ask again")
        job.start = message
        adopt = m.AdoptJob(message.dispatcher_address, message.dispatcher_token, message.dispatcher_term)
        return job.started, [AdoptJobMaster(graph.job_id, adopt)]

    def _give_up(self, job: Hosted, process: ProcessId) -> tuple[m.JobStarted | None, list[Instruction]]:
        """The Dispatcher has given up a JobMaster that lives: two of them must never lead a job."""
        if job.given_up:
            return None, []
        logger.warning("the JobMaster of job %s (process %d) was given up: it is killed", job.graph.job_id, process.pid)
        job.given_up = True
        return None, [KillJobProcess(process)]

    def _hosted(self, graph: JobGraph, start: m.StartJob, state: HostedState) -> Hosted:
        name = f"JobMaster of {graph.name} ({graph.job_id})"
        return Hosted(graph, start, StateMachine(name, state, HOSTED_MOVES, self._clock))

    def started(self, job_id: str, process: ProcessId, address: str, token: str) -> list[Instruction]:
        job = self._jobs[job_id]
        job.process, job.address, job.token = process, address, token
        job.machine.move(HostedState.RUNNING, f"process {process.pid}")
        return [EndJobProcess(process)] if self._leaving is Leaving.END_ALL else []

    def start_failed(self, job_id: str, cause: str) -> list[Instruction]:
        """The process of a job could not be started: the job has no JobMaster."""
        self._jobs.pop(job_id).machine.move(HostedState.GONE, cause)
        return []

    def recovered(self, entry: RegisteredProcess, graph: JobGraph, alive: bool) -> list[Instruction]:
        """A former host left a JobMaster behind, or what remained of one."""
        job = self._hosted(graph, entry.start, HostedState.RUNNING)
        job.process, job.address, job.token = entry.process, entry.address, entry.token
        self._jobs[entry.job_id] = job
        if alive:
            return []
        return self._lose(entry.job_id, job, "ended while no host was there to see it")

    def adopted(self, entry: RegisteredProcess) -> None:
        """A JobMaster may have been told without its host that another Dispatcher leads: its file says which."""
        job = self._jobs.get(entry.job_id)
        if job is not None and job.token == entry.token and entry.start.dispatcher_term > job.start.dispatcher_term:
            job.start = entry.start

    def ended(self, job_id: str) -> list[Instruction]:
        """The end of the job is stored, and its JobMaster has cleaned up."""
        job = self._jobs.get(job_id)
        if job is None or job.state is not HostedState.RUNNING:
            return []
        job.machine.move(HostedState.ENDED, "stored")
        ended = [j for j in self._jobs.values() if j.state is HostedState.ENDED]
        ended.sort(key=lambda j: j.machine.entered_ms[HostedState.ENDED])
        return [EndJobProcess(j.process) for j in ended[:-MOST_ENDED] if j.process is not None]

    def crashed(self, job_id: str, process: ProcessId, message: str) -> None:
        """The process of a JobMaster is about to end, and says why."""
        job = self._jobs.get(job_id)
        if job is not None and job.process == process:
            job.crash = message

    def process_ended(self, job_id: str, process: ProcessId, how_it_ended: str, in_order: bool) -> list[Instruction]:
        """The process of a JobMaster is gone.

        Args:
            job_id: of the job.
            process: that ended.
            how_it_ended: a verb phrase such as ``was killed by signal 9 (SIGKILL)``.
            in_order: the end of its job is stored, and it has cleaned up.
        """
        job = self._jobs.get(job_id)
        if job is None or job.process != process or job.state is HostedState.LOST:
            return []
        ends_with_cluster = self._leaving is Leaving.END_ALL
        if in_order or ends_with_cluster or job.state is HostedState.ENDED:
            del self._jobs[job_id]
            job.machine.move(HostedState.GONE, how_it_ended)
            self._ended[job_id] = job
            self._ended.move_to_end(job_id)
            while len(self._ended) > KEPT_ENDED:
                self._ended.popitem(last=False)
            return [ForgetEntry(job_id, job.token)] if ends_with_cluster and job.token else []
        return self._lose(job_id, job, how_it_ended)

    # -- the end of the host

    def leave(self, leaving: Leaving) -> list[Instruction]:
        """The host stops and starts no JobMaster any more. Those that run go on for its successor, or end with it.

        Whoever ends the cluster has the last word: this may be called again.

        Args:
            leaving: whether they go on or end.
        """
        if self._leaving is not Leaving.END_ALL:
            self._leaving = leaving
            if leaving is Leaving.END_ALL:
                return [EndJobProcess(job.process) for job in self.with_processes() if job.process is not None]
        return []

    def is_waited_for(self) -> bool:
        """Whether a host that leaves has to wait: for JobMasters that are being started, or for all that are to end."""
        if self._leaving is Leaving.END_ALL:
            return any(job.state is not HostedState.LOST for job in self._jobs.values())
        return any(job.state is HostedState.STARTING for job in self._jobs.values())

    def overdue(self) -> list[Instruction]:
        """The host has waited long enough for JobMasters to end: kill those that have not."""
        if self._leaving is not Leaving.END_ALL:
            return []
        late_jobs = self.with_processes()
        for job in late_jobs:
            logger.error("job %s did not stop in time: its JobMaster is killed", job.graph.job_id)
        return [KillJobProcess(job.process) for job in late_jobs if job.process is not None]

    def _lose(self, job_id: str, job: Hosted, how_it_ended: str) -> list[Instruction]:
        pid = job.process.pid if job.process is not None else 0
        how_it_ended = f"{job.crash}, and {how_it_ended}" if job.crash else how_it_ended
        job.cause = f"The JobMaster of job {job.graph.name!r} (process {pid}) {how_it_ended} before the job had ended"
        logger.error("%s", job.cause)
        job.machine.move(HostedState.LOST, how_it_ended)
        return [ReportLoss(job_id, job)]

    def loss_told(self, job_id: str, job: Hosted) -> list[Instruction]:
        """Dispatcher and ResourceManager know that a JobMaster is gone."""
        if job.state is not HostedState.LOST:
            return []
        job.machine.move(HostedState.GONE, "its loss was told")
        if self._jobs.get(job_id) is job:
            del self._jobs[job_id]
        return [ForgetEntry(job_id, job.token)]


def _is_repeated(message: m.StartJob, ended: Hosted) -> bool:
    """Whether an order for a JobMaster that has ended in order is the one that it was made for, and comes twice; else
    the Dispatcher knows of no end, and wants another one."""
    return ended.token not in message.given_up and not leads_elsewhere(ended.start, message)
