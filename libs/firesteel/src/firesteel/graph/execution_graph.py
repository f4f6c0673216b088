"""The ExecutionGraph: the JobGraph spread out into subtasks and their attempts, with states. Pure."""

from __future__ import annotations

import heapq
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
from firesteel.functions.metrics import OPERATORS, USER_COUNTERS, USER_METRICS
from firesteel.graph.execution_states import (
    EXECUTION_MOVES,
    JOB_MOVES,
    TERMINAL_STATES,
    ExecutionState,
    aggregate_state,
    progress_between,
)
from firesteel.graph.job_graph import JobEdge, JobGraph, JobVertex
from firesteel.graph.pipelined_regions import pipelined_regions

KEPT_FAILURES = 16
PEACE_MS = 3_600_000
"""A failure this long after the last one has nothing to do with it; as long as Flink's threshold that resets a backoff
(``restart-strategy.exponential-delay.reset-backoff-threshold``)."""
"""Flink's default of ``web.exception-history-size``."""
KEPT_CONCURRENT = 64
"""Failures that are kept of those that came along with another one."""
KEPT_ATTEMPTS = 16
"""Of a subtask, besides the current one."""
MOST_USER_METRICS = 30_000
"""Values that are kept of a task's report: those of as many distributions as a task may have."""


@dataclass(frozen=True)
class LogicalSlot:
    """A slot as the scheduler sees it.

    Attributes:
        allocation_id: of the allocation to this job.
        taskmanager_id, taskmanager_address, slot_index: where it is.
        data_address: where its process listens for other slots.
        pid: of its process.
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
    """Counts of a job's current attempts, so that nobody has to look at each of them.

    Attributes:
        total: attempts.
        states: how many are in each state.
        ended: vertex id -> how many of its subtasks have ended their outputs.
        outputs_ended, finished: how many have in all, and how many are FINISHED; enumerators of users left out.
        workers: attempts that are no enumerators of users.
    """

    def __init__(self) -> None:
        self.total = self.outputs_ended = self.finished = self.workers = 0
        self.states: Counter[ExecutionState] = Counter()
        self.ended: Counter[str] = Counter()
        self._regions: dict[tuple[str, int], RegionTally] = {}

    def count(self, execution: Execution, region: RegionTally) -> None:
        """A subtask has its first attempt."""
        self.total += 1
        self.workers += execution.vertex.enumerates is None
        self._regions[execution.vertex.id, execution.subtask] = region
        region.total += 1
        self._begin(execution, region)

    def _begin(self, execution: Execution, region: RegionTally) -> None:
        self.states[execution.state] += 1
        region.live += 1
        region.created += 1

    def replaced(self, old: Execution, new: Execution) -> None:
        """A subtask has another attempt; the one before has ended."""
        self.states[old.state] -= 1
        self.finished -= old.state is ExecutionState.FINISHED and old.vertex.enumerates is None
        if old.has_ended_outputs:
            self._add_ended(old, -1)
        self._begin(new, self._regions[new.vertex.id, new.subtask])

    def moved(self, execution: Execution, before: ExecutionState, after: ExecutionState) -> None:
        """An attempt goes to another state."""
        region = self._regions.get((execution.vertex.id, execution.subtask))
        if region is None:
            return
        self.states[before] -= 1
        self.states[after] += 1
        region.created -= before is ExecutionState.CREATED
        region.live -= after in TERMINAL_STATES
        if after is ExecutionState.FINISHED:
            self.finished += execution.vertex.enumerates is None
            if not execution.end_of_data:
                self._add_ended(execution, 1)

    def outputs(self, execution: Execution, had_ended: bool) -> None:
        """Whether the outputs of an attempt have ended may have changed."""
        if execution.has_ended_outputs != had_ended:
            self._add_ended(execution, -1 if had_ended else 1)

    def _add_ended(self, execution: Execution, change: int) -> None:
        self.ended[execution.vertex.id] += change
        self.outputs_ended += change if execution.vertex.enumerates is None else 0


@dataclass
class RegionTally:
    """Counts of the current attempts of one pipelined region: all, those that have not ended, not begun, no slot."""

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
        machine: its state.
        slot: where it runs; None until it is placed.
        metrics: the running totals that were reported last.
        operator_metrics: ``OPERATOR_METRICS`` of each operator, by its name.
        user_metrics: those of user functions, by ``<operator>.<group>.<name>``.
        user_counters: ids of those that are counters.
        metrics_complete: they are final.
        results_given: the client has got some of its results.
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
        self.metrics_complete = False
        self._end_of_data = False
        self.results_given = False

    def _moved(self, before: ExecutionState, after: ExecutionState) -> None:
        self._tally.moved(self, before, after)

    @property
    def end_of_data(self) -> bool:
        """Whether all its results are durable, and it waits for the commit."""
        return self._end_of_data

    @end_of_data.setter
    def end_of_data(self, value: bool) -> None:
        had_ended = self.has_ended_outputs
        self._end_of_data = value
        self._tally.outputs(self, had_ended)

    @property
    def has_ended_outputs(self) -> bool:
        """Whether nothing comes from it any more, though it may still run."""
        return self._end_of_data or self.state is ExecutionState.FINISHED

    @property
    def state(self) -> ExecutionState:
        return self.machine.state

    @property
    def task_name(self) -> str:
        """As people know it from Flink: ``Map (1/4)#0``."""
        return f"{self.vertex.name} ({self.subtask + 1}/{self.vertex.parallelism})#{self.attempt}"

    def report(self, state: ExecutionState, cause: str) -> bool:
        """Follow a slot's report that the task is in this state; whether anything changed.

        Walks through states whose reports were overtaken. An end that comes while the attempt is CANCELING is its
        CANCELED, whatever it says: nobody will report another end. Old and repeated reports change nothing.
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
        """Take over totals; what is no number is dropped, and of user functions what is no text either."""
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
        counters = metrics.get(USER_COUNTERS)
        if isinstance(counters, list):
            self.user_counters = tuple(name for name in counters if isinstance(name, str))
        self.metrics_complete = self.metrics_complete or final


class ExecutionVertex:
    """One subtask and its attempts; the last one is current.

    Attributes:
        region: number of its pipelined region.
        attempts: the last ones, the oldest first.
        shared: the slot that it shares with others.
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
        before = self.current
        after = Execution(self.vertex, self.subtask, before.attempt + 1, self._clock, self._tally)
        self.attempts.append(after)
        self._tally.replaced(before, after)
        del self.attempts[: -KEPT_ATTEMPTS - 1]
        return self.current


class ExecutionJobVertex:
    """A vertex with all its subtasks.

    Attributes:
        tasks: how many of them have something to do, where that is known later only (batch mode); None = all.
        spark_stage: number of its stage in Spark.
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
        """How many subtasks are in each state."""
        return Counter(e.state for e in self.executions())

    @property
    def state(self) -> ExecutionState:
        """The state of the whole, as Flink derives it."""
        return aggregate_state(self.state_counts(), self.vertex.parallelism)


@dataclass(frozen=True)
class FailureRecord:
    """A failure that the job keeps.

    Attributes:
        failure: plain ``firesteel.protocol.deployment.TaskFailure``.
        timestamp_ms: when the JobMaster heard of it.
        task_name, endpoint, taskmanager_id: where it happened; empty if nowhere in particular.
    """

    failure: Mapping[str, Any]
    timestamp_ms: int
    task_name: str = ""
    endpoint: str = ""
    taskmanager_id: str = ""


@dataclass
class FailureEntry:
    """A failure that was answered by a restart or by the end of the job, and those that came along with it.

    Attributes:
        answer: which restart answers it, and when, for people (``restart 3 in 2.5 s``); empty: none does.
    """

    root: FailureRecord
    rank: int = 0
    """Of the root; lower = rather the reason than a consequence."""
    concurrent: list[FailureRecord] = field(default_factory=list)
    answer: str = ""

    def add(self, record: FailureRecord, rank: int) -> bool:
        """A failure came along; whether it is the reason of those before."""
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
    found = better(record.failure) if record.taskmanager_id == taskmanager_id else None
    return record if found is None else replace(record, failure=found)


@dataclass
class SharedSlot:
    """What a slot will hold: the ``index``-th subtasks of all vertices of a slot-sharing group."""

    group: str
    index: int
    number: int = 0
    """Among all of the job."""
    slot: LogicalSlot | None = None
    members: list[ExecutionVertex] = field(default_factory=list)

    @property
    def executions(self) -> list[Execution]:
        return [member.current for member in self.members]


class ExecutionGraph:
    """All attempts of a job with their states, and where they run.

    Args:
        job_graph: validated.
        clock: stamps states.
        job_attempt: counts restarts of the whole job.
        salt: of the secret of its slots (`firesteel.core.secret.job_secret`); default: a new random one.
        first_attempt: of each task; attempts of former JobMasters have smaller numbers.
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
        self._first_failure: FailureEntry | None = None
        """Of those that follow each other within ``PEACE_MS``."""
        self.failures_dropped = False
        """Whether there were more than are kept."""
        self.spark_pages = ""
        """Where Spark's own pages about the job's stages are."""
        self.waiting_reason = ""
        """Why the slots do not come that the job waits for, as far as is known."""
        self._restarting_ms = 0
        self.restarts = 0
        """Of the job or parts of it, since its submission."""
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
        """Heap of the numbers of shared slots that may have something to run and have no slot."""
        self._are_unplaced = set(self._unplaced)
        for number, region in enumerate(self.regions):
            for subtask in region:
                self.tally.count(subtask.current, self._region_tallies[number])
                self._region_tallies[number].unplaced += 1

    def submitted(self, epoch_ms: int) -> None:
        """The job was submitted then; a JobMaster before this one may have run it since."""
        stamps = self.job.entered_ms
        stamps[JobStatus.INITIALIZING] = min(epoch_ms, stamps[JobStatus.INITIALIZING])

    def rescale(self, job_graph: JobGraph) -> None:
        """The same job with other parallelisms: new attempts of all subtasks, none of which has a slot.

        Every attempt before must have ended; they are forgotten.
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
        found = [slot for shared in groups.values() for slot in shared]
        for number, slot in enumerate(found):
            slot.number = number
        return found

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
        """Number of the pipelined region of an attempt."""
        return self.vertices[VertexId(execution.vertex.id)].subtasks[execution.subtask].region

    def in_regions(self, numbers: Iterable[int]) -> list[Execution]:
        """The current attempts in some regions."""
        return [subtask.current for number in numbers for subtask in self.regions[number]]

    def restart(self, subtasks: Iterable[ExecutionVertex]) -> list[Execution]:
        """New attempts of subtasks; they go where the old ones were, if those slots are still held."""
        new = []
        for subtask in subtasks:
            forgotten = subtask.attempts[0] if len(subtask.attempts) > KEPT_ATTEMPTS else None
            execution = subtask.restart()
            self._by_id[execution.id] = execution
            if forgotten is not None:
                del self._by_id[forgotten.id]
            new.append(execution)
            execution.slot = subtask.shared.slot
            if execution.slot is None:
                self._wants_slot(subtask.shared)
            self._next_attempt = max(self._next_attempt, execution.attempt + 1)
        return new

    @property
    def state(self) -> JobStatus:
        return self.job.state

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended."""
        return self.state.is_globally_terminal_state()

    @property
    def slots_needed(self) -> int:
        """How many slots the job needs."""
        return len(self.shared_slots)

    def restarting_ms(self, now: int) -> int:
        """For how long the job was RESTARTING, in all, until now (epoch ms)."""
        since = self.job.entered_ms.get(JobStatus.RESTARTING)
        open_ms = now - since if since is not None and self.state is JobStatus.RESTARTING else 0
        return self._restarting_ms + open_ms

    def move_job(self, to: JobStatus, cause: str) -> None:
        """The job goes to a state.

        Raises:
            IllegalTransitionError: there is no such move.
        """
        before = self.restarting_ms(self.clock.epoch_ms())
        self.job.move(to, cause)
        self._restarting_ms = before

    def executions(self) -> list[Execution]:
        """The current attempts of all subtasks, in topological order."""
        return [e for v in self.vertices.values() for e in v.executions()]

    def execution(self, id_: str) -> Execution | None:
        """The attempt of this id; None if the job has no such one."""
        return self._by_id.get(ExecutionId(id_))

    def next_attempt(self) -> int:
        """All attempts until now have smaller numbers."""
        return self._next_attempt

    def executions_in(self, allocation_id: str) -> list[Execution]:
        """What runs in a slot; empty if nothing was placed there."""
        shared = self._by_allocation.get(AllocationId(allocation_id))
        return list(shared.executions) if shared else []

    def all_terminal(self) -> bool:
        """Whether every attempt has ended."""
        return sum(self.tally.states[state] for state in TERMINAL_STATES) == self.tally.total

    def waits_for_commit(self) -> bool:
        """Whether all outputs have ended, and some tasks wait for what they have to be committed."""
        return self.tally.outputs_ended == self.tally.workers > self.tally.finished

    def all_run(self) -> bool:
        """Whether every attempt runs or has finished, and some run."""
        running = self.tally.states[ExecutionState.RUNNING]
        return running > 0 and running + self.tally.states[ExecutionState.FINISHED] == self.tally.total

    def shared_slot(self, execution: Execution) -> SharedSlot:
        """The slot in which an attempt is to run, with others."""
        return self.vertices[VertexId(execution.vertex.id)].subtasks[execution.subtask].shared

    def has_ended(self, region: int) -> bool:
        """Whether every attempt of a region has ended."""
        return self._region_tallies[region].live == 0

    def is_ready(self, region: int) -> bool:
        """Whether all of a region is to be deployed, and has its slots."""
        tally = self._region_tallies[region]
        return tally.created == tally.total and tally.unplaced == 0

    def place(self, slots: Iterable[LogicalSlot], most: int | None = None) -> tuple[list[LogicalSlot], set[int]]:
        """Give slots that hold nothing to shared slots that have something to run and no slot.

        Neighbours of a group go to neighbouring slots of one TaskManager.

        Args:
            slots: that may hold something.
            most: of them that are given; None = all.

        Returns:
            The slots that hold something now, and the regions that have got some.
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
        """Whether a slot holds something, or is about to."""
        return slot.allocation_id in self._by_allocation

    def _wants_slot(self, shared: SharedSlot) -> None:
        if shared.number not in self._are_unplaced:
            self._are_unplaced.add(shared.number)
            heapq.heappush(self._unplaced, shared.number)

    @staticmethod
    def _runs_something(shared: SharedSlot) -> bool:
        return any(e.state is ExecutionState.CREATED for e in shared.executions)

    def unplace(self, allocation_id: str) -> None:
        """A slot is held no longer."""
        shared = self._by_allocation.pop(AllocationId(allocation_id), None)
        if shared is not None:
            shared.slot = None
            self._wants_slot(shared)
            for member in shared.members:
                self._region_tallies[member.region].unplaced += 1
                if member.current.state is ExecutionState.CREATED:
                    member.current.slot = None

    def placed_slots(self) -> list[LogicalSlot]:
        """The slots that hold something."""
        return [shared.slot for shared in self.shared_slots if shared.slot is not None]

    def edges_touching(self, vertex_ids: Iterable[str]) -> list[JobEdge]:
        """Edges with an end in these vertices."""
        wanted = set(vertex_ids)
        return [e for e in self.job_graph.edges if e.source in wanted or e.target in wanted]

    @property
    def root_failure(self) -> FailureRecord | None:
        """What the job fails with, if it fails now."""
        return self.failures[-1].root if self.failures else None

    def explain(self, taskmanager_id: str, better: Callable[[Mapping[str, Any]], Mapping[str, Any] | None]) -> None:
        """What is kept of failures at a TaskManager gets other words.

        Args:
            taskmanager_id: where they happened.
            better: failure -> what it is called from now on; None: it stays.
        """
        for entry in self.failures:
            entry.root = _explained(entry.root, taskmanager_id, better)
            entry.concurrent = [_explained(one, taskmanager_id, better) for one in entry.concurrent]

    def record_failure(self, record: FailureRecord, rank: int, kept: int = KEPT_FAILURES) -> FailureEntry:
        """Keep a failure that begins an entry of its own.

        When there are too many, the oldest goes, but not the first of those that follow each other until now: what came
        behind it are often its consequences.
        """
        last = self.failures[-1].root.timestamp_ms if self.failures else None
        entry = FailureEntry(record, rank)
        if last is None or record.timestamp_ms - last > PEACE_MS:
            self._first_failure = entry
        self.failures.append(entry)
        if len(self.failures) > kept:
            del self.failures[1 if kept > 1 and self.failures[0] is self._first_failure else 0]
            self.failures_dropped = True
        return entry
