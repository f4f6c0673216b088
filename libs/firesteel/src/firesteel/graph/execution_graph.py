"""The ExecutionGraph: the JobGraph spread out into subtasks and their attempts, with states. Pure."""

from __future__ import annotations

import heapq
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from firesteel.common.job_status import JobStatus
from firesteel.core.clock import Clock
from firesteel.core.ids import AllocationId, ExecutionId, VertexId, execution_id
from firesteel.core.secret import new_salt
from firesteel.core.state_machine import StateMachine
from firesteel.functions.metrics import (
    HOT_KEYS,
    LATENCIES,
    OPERATORS,
    USER_COUNTERS,
    USER_METRICS,
    WATERMARK_PROGRESS,
)
from firesteel.graph.event_time import Progress, progress_in
from firesteel.graph.execution_states import (
    EXECUTION_MOVES,
    JOB_MOVES,
    TERMINAL_STATES,
    ExecutionState,
    aggregate_state,
    progress_between,
)
from firesteel.graph.job_graph import JobEdge, JobGraph, JobVertex
from firesteel.graph.key_shares import KeyShare, key_shares_in
from firesteel.graph.latencies import Latencies, latencies_in
from firesteel.graph.pipelined_regions import pipelined_regions

_FIGURES = re.compile(r"\d+")
_CAUSE_LENGTH = 500
_MOST_CAUSES = 200
"""Causes of failures whose repeats are counted; further ones are not."""
KEPT_RESTARTS = 1000
"""Moments of restarts that are kept, for their number within the last hour."""
KEPT_FAILURES = 16
"""Failures that a job's history keeps; Flink's default of ``web.exception-history-size``."""
PEACE_MS = 3_600_000
"""A failure this long after the last one has nothing to do with it; as long as Flink's threshold that resets a backoff
(``restart-strategy.exponential-delay.reset-backoff-threshold``)."""
KEPT_CONCURRENT = 64
"""Concurrent failures that an entry of the history keeps beside its root failure."""
KEPT_ATTEMPTS = 16
"""Former attempts that are kept of each subtask."""
MOST_USER_METRICS = 30_000
"""Values that are kept of a task's metrics report: enough for as many distributions as a task may have."""


@dataclass(frozen=True)
class LogicalSlot:
    """A slot as the scheduler sees it.

    Attributes:
        allocation_id: id of the slot's allocation to this job.
        taskmanager_id, taskmanager_address, slot_index: TaskManager that offers the slot, and the slot's number there.
        data_address: where the slot's process listens for records of other slots.
        pid: process id of the slot.
    """

    allocation_id: AllocationId
    taskmanager_id: str
    taskmanager_address: str
    slot_index: int
    data_address: Mapping[str, Any]
    pid: int

    @property
    def endpoint(self) -> str:
        """``host:port`` of the TaskManager."""
        return self.taskmanager_address.split("//", 1)[-1].rstrip("/")


class Tally:
    """Counts of a job's current attempts, kept up to date by each move, so that nothing has to walk over all attempts.

    Attributes:
        total: number of current attempts (one for each subtask).
        states: number of attempts in each state.
        ended: vertex id -> number of its subtasks whose outputs have ended.
        outputs_ended, finished: number of all workers whose outputs have ended, and of those that are FINISHED.
        workers: number of attempts that are not enumerators of users.
    """

    def __init__(self) -> None:
        self.total = self.outputs_ended = self.finished = self.workers = 0
        self.states: Counter[ExecutionState] = Counter()
        self.ended: Counter[str] = Counter()
        self._regions: dict[tuple[str, int], RegionTally] = {}

    def count(self, execution: Execution, region: RegionTally) -> None:
        """Add the first attempt of a subtask."""
        self.total += 1
        self.workers += execution.vertex.enumerates is None
        self._regions[execution.vertex.id, execution.subtask] = region
        region.total += 1
        self._begin(execution, region)

    def _begin(self, execution: Execution, region: RegionTally) -> None:
        self.states[execution.state] += 1
        region.live += 1
        region.created += 1

    def replaced(self, former: Execution, current: Execution) -> None:
        """Count a subtask's next attempt instead of the former one, which has ended."""
        self.states[former.state] -= 1
        self.finished -= former.state is ExecutionState.FINISHED and former.vertex.enumerates is None
        if former.has_ended_outputs:
            self._add_ended(former, -1)
        self._begin(current, self._regions[current.vertex.id, current.subtask])

    def moved(self, execution: Execution, left_state: ExecutionState, entered_state: ExecutionState) -> None:
        """Follow an attempt that moves to another state; attempts that were never counted are ignored."""
        region = self._regions.get((execution.vertex.id, execution.subtask))
        if region is None:
            return
        self.states[left_state] -= 1
        self.states[entered_state] += 1
        region.created -= left_state is ExecutionState.CREATED
        region.live -= entered_state in TERMINAL_STATES
        if entered_state is ExecutionState.FINISHED:
            self.finished += execution.vertex.enumerates is None
            if not execution.end_of_data:
                self._add_ended(execution, 1)

    def outputs(self, execution: Execution, had_ended: bool) -> None:
        """Follow a possible change of ``Execution.has_ended_outputs``; ``had_ended`` is its former value."""
        if execution.has_ended_outputs != had_ended:
            self._add_ended(execution, -1 if had_ended else 1)

    def _add_ended(self, execution: Execution, change: int) -> None:
        self.ended[execution.vertex.id] += change
        self.outputs_ended += change if execution.vertex.enumerates is None else 0


@dataclass
class RegionTally:
    """Counts of the current attempts of one pipelined region.

    Attributes:
        total: number of all attempts.
        live: number of those that have not ended.
        created: number of those that are still CREATED.
        unplaced: number of those without a slot.
    """

    total: int = 0
    live: int = 0
    created: int = 0
    unplaced: int = 0


class Execution:
    """One attempt of one subtask.

    Attributes:
        id: ``<vertex>_<subtask>_<attempt>``.
        vertex: the JobVertex.
        subtask, attempt: from 0.
        machine: state machine of the attempt.
        slot: where it runs; None until it is placed.
        metrics: the running totals that its task reported last.
        operator_metrics: ``OPERATOR_METRICS`` of each operator, by the operator's name.
        user_metrics: metrics of user functions, by ``<operator>.<group>.<name>``.
        user_counters: ids of those user metrics that are counters.
        event_time: how far event time is at each input of the task.
        key_shares: the largest key of each of its keyed outputs.
        latencies: from sources to the attempt.
        metrics_complete: whether the metrics are the final ones.
        results_given: whether the client has received some of its results.
    """

    def __init__(self, vertex: JobVertex, subtask: int, attempt: int, clock: Clock, tally: Tally | None = None) -> None:
        self.id: ExecutionId = execution_id(VertexId(vertex.id), subtask, attempt)
        self.vertex, self.subtask, self.attempt = vertex, subtask, attempt
        self._tally = tally if tally is not None else Tally()
        self.machine = StateMachine(self.task_name, ExecutionState.CREATED, EXECUTION_MOVES, clock, self._moved)
        self.slot: LogicalSlot | None = None
        self.metrics: dict[str, float] = {}
        self.operator_metrics: dict[str, list[float]] = {}
        self.user_metrics: dict[str, float | str] = {}
        self.user_counters: tuple[str, ...] = ()
        self.event_time: tuple[Progress, ...] = ()
        self.key_shares: tuple[KeyShare, ...] = ()
        self.latencies: tuple[Latencies, ...] = ()
        self.metrics_complete = False
        self._end_of_data = False
        self.results_given = False

    def _moved(self, left_state: ExecutionState, entered_state: ExecutionState) -> None:
        self._tally.moved(self, left_state, entered_state)

    @property
    def end_of_data(self) -> bool:
        """Whether the task has read all of its input, has made its results durable and waits for the final commit."""
        return self._end_of_data

    @end_of_data.setter
    def end_of_data(self, value: bool) -> None:
        had_ended = self.has_ended_outputs
        self._end_of_data = value
        self._tally.outputs(self, had_ended)

    @property
    def has_ended_outputs(self) -> bool:
        """Whether the attempt sends no more records, though it may still run."""
        return self._end_of_data or self.state is ExecutionState.FINISHED

    @property
    def state(self) -> ExecutionState:
        return self.machine.state

    @property
    def task_name(self) -> str:
        """Name of the task in Flink's form, ``Map (1/4)#0``: subtask (from 1), parallelism, attempt."""
        return f"{self.vertex.name} ({self.subtask + 1}/{self.vertex.parallelism})#{self.attempt}"

    def report(self, state: ExecutionState, cause: str) -> bool:
        """Follow a slot's report that the task is in ``state``.

        Reports may overtake each other, so the attempt walks through the states whose reports have not come yet. An
        end that is reported while the attempt is CANCELING makes it CANCELED, whichever end it is: no other report
        will follow. Old and repeated reports change nothing.

        Returns:
            Whether the attempt's state has changed.
        """
        now = self.state
        if now.is_terminal or state is now or now in (ExecutionState.CREATED, ExecutionState.SCHEDULED):
            return False
        if now is ExecutionState.CANCELING:
            if state.is_terminal:
                self.machine.move(ExecutionState.CANCELED, f"{cause} as {state.value}")
            return state.is_terminal
        path = [state] if state.is_terminal else progress_between(now, state)
        for step in path:
            self.machine.move(step, cause)
        return bool(path)

    def update_metrics(self, metrics: Mapping[str, Any], final: bool = False) -> None:
        """Take over the metrics of a task's report.

        The report comes from a slot, where user code runs, so its values are checked: totals and operator metrics must
        be numbers, user metrics numbers or texts; everything else is dropped. Reports after the final one are ignored.
        """
        if self.metrics_complete and not final:
            return
        for name, value in metrics.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                self.metrics[name] = value
        of_operators = metrics.get(OPERATORS)
        if isinstance(of_operators, Mapping):
            self.operator_metrics = {
                str(name): values
                for name, values in islice(of_operators.items(), MOST_USER_METRICS)
                if isinstance(values, list) and all(isinstance(value, int | float) for value in values)
            }
        of_functions = metrics.get(USER_METRICS)
        if isinstance(of_functions, Mapping):
            self.user_metrics = {
                str(name): value
                for name, value in islice(of_functions.items(), MOST_USER_METRICS)
                if isinstance(value, int | float | str) and not isinstance(value, bool)
            }
        self.event_time = progress_in(metrics.get(WATERMARK_PROGRESS))
        self.key_shares = key_shares_in(metrics.get(HOT_KEYS))
        if LATENCIES in metrics:  # few jobs have them
            self.latencies = latencies_in(metrics[LATENCIES])
        counters = metrics.get(USER_COUNTERS)
        if isinstance(counters, list):
            self.user_counters = tuple(name for name in counters if isinstance(name, str))
        self.metrics_complete = self.metrics_complete or final


class ExecutionVertex:
    """One subtask and its attempts; the last one is current.

    Attributes:
        region: number of the subtask's pipelined region.
        attempts: the latest attempts, the oldest first.
        shared: the slot that the subtask shares with others of its slot-sharing group.
    """

    shared: SharedSlot

    def __init__(self, vertex: JobVertex, subtask: int, clock: Clock, first_attempt: int, tally: Tally) -> None:
        self.vertex, self.subtask, self._clock, self._tally = vertex, subtask, clock, tally
        self.region = 0
        self.attempts = [Execution(vertex, subtask, first_attempt, clock, tally)]

    @property
    def current(self) -> Execution:
        return self.attempts[-1]

    def restart(self) -> Execution:
        former = self.current
        execution = Execution(self.vertex, self.subtask, former.attempt + 1, self._clock, self._tally)
        self.attempts.append(execution)
        self._tally.replaced(former, execution)
        del self.attempts[: -KEPT_ATTEMPTS - 1]
        return self.current


class ExecutionJobVertex:
    """A vertex with all its subtasks.

    Attributes:
        tasks: number of subtasks that have something to do, which batch mode chooses by the input's size; None = all.
        spark_stage: number of the vertex's stage in Spark (batch mode).
    """

    def __init__(self, vertex: JobVertex, clock: Clock, first_attempt: int, tally: Tally) -> None:
        self.vertex = vertex
        self.tasks: int | None = None
        self.spark_stage: int | None = None
        self.subtasks = [ExecutionVertex(vertex, i, clock, first_attempt, tally) for i in range(vertex.parallelism)]

    def executions(self) -> list[Execution]:
        """The current attempts by subtask."""
        return [subtask.current for subtask in self.subtasks]

    def state_counts(self) -> Counter[ExecutionState]:
        """Return the number of subtasks in each state."""
        return Counter(e.state for e in self.executions())

    @property
    def state(self) -> ExecutionState:
        """State of the vertex, derived from its subtasks by Flink's rule."""
        return aggregate_state(self.state_counts(), self.vertex.parallelism)


@dataclass(frozen=True)
class FailureRecord:
    """One failure in the job's history.

    Attributes:
        failure: plain ``firesteel.protocol.deployment.TaskFailure``.
        timestamp_ms: when the JobMaster was told of the failure.
        task_name, endpoint, taskmanager_id: task and TaskManager that failed; empty if it was neither.
    """

    failure: Mapping[str, Any]
    timestamp_ms: int
    task_name: str = ""
    endpoint: str = ""
    taskmanager_id: str = ""


@dataclass
class FailureRepeats:
    """How often a job has failed with the same cause, also where the history keeps fewer failures.

    Attributes:
        number: of the cause among those of the job.
        count: of its failures.
        first_ms, last_ms: when the first and the last one were, in epoch ms.
    """

    number: int
    count: int = 0
    first_ms: int = 0
    last_ms: int = 0

    def add(self, at_ms: int) -> None:
        """Count a failure among those that repeat."""
        self.count, self.first_ms, self.last_ms = self.count + 1, self.first_ms or at_ms, at_ms


@dataclass
class FailureEntry:
    """A root failure that the job answered by a restart or by its end, and the failures concurrent with it.

    Attributes:
        root: the failure that is taken for the cause of the others.
        rank: rank of the root failure; of two failures the one with the lower rank is more likely the cause.
        concurrent: failures that came before the answer, most of them consequences.
        answer: which restart answers the failure, and when, for people (``restart 3 in 2.5 s``); empty: none does.
        repeats: failures with the same cause, as the root had it when it came; None: there are too many causes.
    """

    root: FailureRecord
    rank: int = 0
    concurrent: list[FailureRecord] = field(default_factory=list)
    answer: str = ""
    repeats: FailureRepeats | None = None

    def add(self, record: FailureRecord, rank: int) -> bool:
        """Add a concurrent failure; return whether it became the root because its rank is lower than the root's."""
        if rank < self.rank:
            self.concurrent.append(self.root)
            self.root, self.rank = record, rank
            return True
        if len(self.concurrent) < KEPT_CONCURRENT:
            self.concurrent.append(record)
        return False


def _explained(
    record: FailureRecord, taskmanager_id: str, better: Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
) -> FailureRecord:
    explanation = better(record.failure) if record.taskmanager_id == taskmanager_id else None
    return record if explanation is None else replace(record, failure=explanation)


@dataclass
class SharedSlot:
    """The subtasks that run in one slot: the ``index``-th of each vertex of a slot-sharing group.

    Attributes:
        group: name of the slot-sharing group.
        index: index of the subtasks in their vertices.
        number: position among all shared slots of the job.
        slot: the slot that they have been given; None = none yet.
        members: the subtasks.
    """

    group: str
    index: int
    number: int = 0
    slot: LogicalSlot | None = None
    members: list[ExecutionVertex] = field(default_factory=list)

    @property
    def executions(self) -> list[Execution]:
        return [member.current for member in self.members]


class ExecutionGraph:
    """All attempts of a job with their states, and where they run.

    Args:
        job_graph: validated.
        clock: gives the time stamps of states.
        job_attempt: number of restarts of the whole job so far.
        salt: salt of the secret of the job's slots (`firesteel.core.secret.job_secret`); default: a new random one.
        first_attempt: number of each task's first attempt; attempts of former JobMasters have smaller numbers.
    """

    def __init__(
        self,
        job_graph: JobGraph,
        clock: Clock,
        job_attempt: int = 0,
        salt: str | None = None,
        first_attempt: int = 0,
    ) -> None:
        self.clock, self.job_attempt = clock, job_attempt
        self.salt = salt if salt is not None else new_salt()
        name = f"Job {job_graph.name} ({job_graph.job_id})"
        self.job: StateMachine[JobStatus] = StateMachine(name, JobStatus.INITIALIZING, JOB_MOVES, clock)
        self.failures: list[FailureEntry] = []
        self._repeats: dict[str, FailureRepeats] = {}
        """By class and message of a failure, without the figures in it."""
        self._first_failure: FailureEntry | None = None
        """The first of the failures that follow each other within ``PEACE_MS``, until the last one."""
        self.failures_dropped = False
        """Whether the history has dropped failures because there were too many."""
        self.spark_pages = ""
        """Address of Spark's own pages about the job's stages (batch mode); empty = there are none."""
        self.waiting_reason = ""
        """Why the job has to wait for slots, as far as is known; empty = it does not wait."""
        self._restarting_ms = 0
        self.restarts = 0
        """Number of restarts of the job or of some of its regions since its submission."""
        self.restarted_ms: deque[int] = deque(maxlen=KEPT_RESTARTS)
        """When the last ones were, in epoch ms."""
        self._spread(job_graph, first_attempt)

    def _spread(self, job_graph: JobGraph, first_attempt: int) -> None:
        self.job_graph = job_graph
        self.tally = Tally()
        self.vertices = {
            VertexId(v.id): ExecutionJobVertex(v, self.clock, first_attempt, self.tally) for v in job_graph.vertices
        }
        self._next_attempt = first_attempt + 1
        self.regions = self._find_regions()
        self.shared_slots = self._share_slots()
        self._by_id = {e.id: e for v in self.vertices.values() for e in v.executions()}
        self._by_allocation: dict[AllocationId, SharedSlot] = {}
        self._region_tallies = [RegionTally() for _ in self.regions]
        self._unplaced = list(range(len(self.shared_slots)))
        """Heap of the numbers of shared slots without a slot; ``place`` skips those with nothing to run."""
        self._are_unplaced = set(self._unplaced)
        for number, region in enumerate(self.regions):
            for subtask in region:
                self.tally.count(subtask.current, self._region_tallies[number])
                self._region_tallies[number].unplaced += 1

    def submitted(self, epoch_ms: int) -> None:
        """Set when the job was submitted: earlier than this graph was made, if a former JobMaster has run the job."""
        stamps = self.job.entered_ms
        stamps[JobStatus.INITIALIZING] = min(epoch_ms, stamps[JobStatus.INITIALIZING])

    def rescale(self, job_graph: JobGraph) -> None:
        """Spread the same job out again at other parallelisms: all subtasks get new attempts, without slots.

        Every former attempt must have ended, or none may have begun; the former attempts are forgotten.
        """
        assert self.all_terminal() or self.tally.states[ExecutionState.CREATED] == self.tally.total, self.tally.states
        self._spread(job_graph, self._next_attempt)

    def _share_slots(self) -> list[SharedSlot]:
        groups: dict[str, list[SharedSlot]] = {}
        for job_vertex in self.vertices.values():
            shared = groups.setdefault(job_vertex.vertex.slot_sharing_group, [])
            for subtask in job_vertex.subtasks:
                if subtask.subtask == len(shared):
                    shared.append(SharedSlot(job_vertex.vertex.slot_sharing_group, subtask.subtask))
                shared[subtask.subtask].members.append(subtask)
                subtask.shared = shared[subtask.subtask]
        shared_slots = [slot for shared in groups.values() for slot in shared]
        for number, slot in enumerate(shared_slots):
            slot.number = number
        return shared_slots

    def _find_regions(self) -> list[list[ExecutionVertex]]:
        regions = [
            [self.vertices[VertexId(vertex)].subtasks[index] for vertex, index in region]
            for region in pipelined_regions(self.job_graph)
        ]
        for number, region in enumerate(regions):
            for subtask in region:
                subtask.region = number
        return regions

    def region_of(self, execution: Execution) -> int:
        """Return the number of an attempt's pipelined region."""
        return self.vertices[VertexId(execution.vertex.id)].subtasks[execution.subtask].region

    def in_regions(self, numbers: Iterable[int]) -> list[Execution]:
        """Return the current attempts of all subtasks in these regions."""
        return [subtask.current for number in numbers for subtask in self.regions[number]]

    def restart(self, subtasks: Iterable[ExecutionVertex]) -> list[Execution]:
        """Give subtasks new attempts, in the slots of the former ones where the job still holds them."""
        executions = []
        for subtask in subtasks:
            forgotten = subtask.attempts[0] if len(subtask.attempts) > KEPT_ATTEMPTS else None
            execution = subtask.restart()
            self._by_id[execution.id] = execution
            if forgotten is not None:
                del self._by_id[forgotten.id]
            executions.append(execution)
            execution.slot = subtask.shared.slot
            if execution.slot is None:
                self._wants_slot(subtask.shared)
            self._next_attempt = max(self._next_attempt, execution.attempt + 1)
        return executions

    @property
    def state(self) -> JobStatus:
        return self.job.state

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended."""
        return self.state.is_globally_terminal_state()

    @property
    def slots_needed(self) -> int:
        """Number of slots that the job needs."""
        return len(self.shared_slots)

    def restarting_ms(self, now: int) -> int:
        """Return for how many ms in total the job has been RESTARTING, until ``now`` (epoch ms)."""
        since = self.job.entered_ms.get(JobStatus.RESTARTING)
        open_ms = now - since if since is not None and self.state is JobStatus.RESTARTING else 0
        return self._restarting_ms + open_ms

    def move_job(self, to: JobStatus, cause: str) -> None:
        """Move the job to another state.

        Raises:
            IllegalTransitionError: there is no such move.
        """
        restarting_ms = self.restarting_ms(self.clock.epoch_ms())  # before the move: it counts the state that is left
        self.job.move(to, cause)
        self._restarting_ms = restarting_ms

    def executions(self) -> list[Execution]:
        """Return the current attempts of all subtasks, in topological order."""
        return [e for v in self.vertices.values() for e in v.executions()]

    def execution(self, id_: str) -> Execution | None:
        """Return the attempt of this id; None if the job has no such attempt, or has forgotten it."""
        return self._by_id.get(ExecutionId(id_))

    def next_attempt(self) -> int:
        """Return a number above those of all attempts so far."""
        return self._next_attempt

    def executions_in(self, allocation_id: str) -> list[Execution]:
        """Return the current attempts that share a slot; none if nothing was placed there."""
        shared = self._by_allocation.get(AllocationId(allocation_id))
        return list(shared.executions) if shared else []

    def all_terminal(self) -> bool:
        """Whether every attempt has ended."""
        return sum(self.tally.states[state] for state in TERMINAL_STATES) == self.tally.total

    def waits_for_commit(self) -> bool:
        """Whether the outputs of all workers have ended, and some of these still wait for the final commit."""
        return self.tally.outputs_ended == self.tally.workers > self.tally.finished

    def all_run(self) -> bool:
        """Whether every attempt runs or has finished, and some run."""
        running = self.tally.states[ExecutionState.RUNNING]
        return running > 0 and running + self.tally.states[ExecutionState.FINISHED] == self.tally.total

    def shared_slot(self, execution: Execution) -> SharedSlot:
        """Return the shared slot in which an attempt is to run."""
        return self.vertices[VertexId(execution.vertex.id)].subtasks[execution.subtask].shared

    def has_ended(self, region: int) -> bool:
        """Whether every attempt of a region has ended."""
        return self._region_tallies[region].live == 0

    def is_ready(self, region: int) -> bool:
        """Whether a region can be deployed: all its attempts are CREATED and have their slots."""
        tally = self._region_tallies[region]
        return tally.created == tally.total and tally.unplaced == 0

    def place(self, slots: Iterable[LogicalSlot], most: int | None = None) -> tuple[list[LogicalSlot], set[int]]:
        """Give free slots to shared slots that have something to run and no slot.

        Neighbours of a group go to neighbouring slots of one TaskManager.

        Args:
            slots: candidates; those that hold something already are left out.
            most: largest number of slots to give; None = all.

        Returns:
            The slots that were given, and the numbers of the regions that received some of them.
        """
        free = deque(
            sorted((s for s in slots if not self.is_placed(s)), key=lambda s: (s.taskmanager_id, s.slot_index))
        )
        regions: set[int] = set()
        placed: list[LogicalSlot] = []
        while free and self._unplaced and (most is None or len(placed) < most):
            shared = self.shared_slots[heapq.heappop(self._unplaced)]
            self._are_unplaced.discard(shared.number)
            if not self._runs_something(shared):
                continue
            slot = shared.slot = free.popleft()
            placed.append(slot)
            self._by_allocation[slot.allocation_id] = shared
            for member in shared.members:
                self._region_tallies[member.region].unplaced -= 1
                regions.add(member.region)
                if member.current.state is ExecutionState.CREATED:
                    member.current.slot = slot
        return placed, regions

    def is_placed(self, slot: LogicalSlot) -> bool:
        """Whether subtasks run in this slot or have been placed there."""
        return slot.allocation_id in self._by_allocation

    def _wants_slot(self, shared: SharedSlot) -> None:
        if shared.number not in self._are_unplaced:
            self._are_unplaced.add(shared.number)
            heapq.heappush(self._unplaced, shared.number)

    @staticmethod
    def _runs_something(shared: SharedSlot) -> bool:
        return any(e.state is ExecutionState.CREATED for e in shared.executions)

    def unplace(self, allocation_id: str) -> None:
        """Take a slot that the job has lost away from its subtasks."""
        shared = self._by_allocation.pop(AllocationId(allocation_id), None)
        if shared is not None:
            shared.slot = None
            self._wants_slot(shared)
            for member in shared.members:
                self._region_tallies[member.region].unplaced += 1
                if member.current.state is ExecutionState.CREATED:
                    member.current.slot = None

    def placed_slots(self) -> list[LogicalSlot]:
        """Return the slots in which subtasks have been placed."""
        return [shared.slot for shared in self.shared_slots if shared.slot is not None]

    def edges_touching(self, vertex_ids: Iterable[str]) -> list[JobEdge]:
        """Return the edges that begin or end at one of these vertices."""
        ids = set(vertex_ids)
        return [e for e in self.job_graph.edges if e.source in ids or e.target in ids]

    @property
    def root_failure(self) -> FailureRecord | None:
        """The latest root failure: what the job fails with if it is not restarted."""
        return self.failures[-1].root if self.failures else None

    def explain(self, taskmanager_id: str, better: Callable[[Mapping[str, Any]], Mapping[str, Any] | None]) -> None:
        """Replace failures of a TaskManager's tasks by better explanations, once more is known about its end.

        Args:
            taskmanager_id: the TaskManager.
            better: failure -> the failure that the history shows instead; None = it stays as it is.
        """
        for entry in self.failures:
            entry.root = _explained(entry.root, taskmanager_id, better)
            entry.concurrent = [_explained(record, taskmanager_id, better) for record in entry.concurrent]

    def _repeat(self, record: FailureRecord) -> FailureRepeats | None:
        """Count a failure among those with the same cause."""
        message = str(record.failure.get("message", "")).partition("\n")[0][:_CAUSE_LENGTH]
        cause = (
            f"{record.failure.get('error_class')} {record.task_name.partition(' (')[0]} {_FIGURES.sub('#', message)}"
        )
        repeats = self._repeats.get(cause)
        if repeats is None:
            if len(self._repeats) >= _MOST_CAUSES:
                return None
            repeats = self._repeats[cause] = FailureRepeats(len(self._repeats))
        repeats.add(record.timestamp_ms)
        return repeats

    def count_restart(self) -> None:
        """The job, or some of its regions, will be restarted."""
        self.restarts += 1
        self.restarted_ms.append(self.clock.epoch_ms())

    def record_failure(self, record: FailureRecord, rank: int, most_entries: int = KEPT_FAILURES) -> FailureEntry:
        """Add a root failure to the history and return its entry, to which concurrent failures can be added.

        If the history is full, the oldest entry is dropped, but never the first of the current series of failures
        (``PEACE_MS``): the later ones are often its consequences.
        """
        last = self.failures[-1].root.timestamp_ms if self.failures else None
        entry = FailureEntry(record, rank, repeats=self._repeat(record))
        if last is None or record.timestamp_ms - last > PEACE_MS:
            self._first_failure = entry
        self.failures.append(entry)
        if len(self.failures) > most_entries:
            del self.failures[1 if most_entries > 1 and self.failures[0] is self._first_failure else 0]
            self.failures_dropped = True
        return entry
