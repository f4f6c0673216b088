"""The ExecutionGraph: the JobGraph spread out into subtasks and their attempts, with states. Pure."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from firesteel.common.job_status import JobStatus
from firesteel.core.clock import Clock
from firesteel.core.ids import AllocationId, ExecutionId, VertexId, execution_id
from firesteel.core.state_machine import StateMachine
from firesteel.functions.metrics import USER_METRICS
from firesteel.graph.execution_states import (
    EXECUTION_MOVES,
    JOB_MOVES,
    ExecutionState,
    aggregate_state,
    progress_between,
)
from firesteel.graph.job_graph import JobEdge, JobGraph, JobVertex

KEPT_FAILURES = 16
"""Flink's ``web.exception-history-size``."""
MOST_USER_METRICS = 30_000
"""Values that are kept of a task's report: those of as many distributions as a task may have."""


@dataclass(frozen=True)
class Slot:
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


class Execution:
    """One attempt of one subtask.

    Attributes:
        id: ``<vertex>_<subtask>_<attempt>``.
        vertex: the JobVertex.
        subtask, attempt: from 0.
        machine: its state.
        slot: where it runs; None until it is placed.
        metrics: the running totals that were reported last.
        user_metrics: those of user functions, by ``<operator>.<group>.<name>``.
        metrics_complete: they are final.
        end_of_data: all its results are durable, it waits for the commit.
    """

    def __init__(self, vertex: JobVertex, subtask: int, attempt: int, clock: Clock) -> None:
        self.id: ExecutionId = execution_id(VertexId(vertex.id), subtask, attempt)
        self.vertex, self.subtask, self.attempt = vertex, subtask, attempt
        self.machine = StateMachine(self.task_name, ExecutionState.CREATED, EXECUTION_MOVES, clock)
        self.slot: Slot | None = None
        self.metrics: dict[str, float] = {}
        self.user_metrics: dict[str, float | str] = {}
        self.metrics_complete = False
        self.end_of_data = False

    @property
    def state(self) -> ExecutionState:
        """Its current state."""
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
        of_functions = metrics.get(USER_METRICS)
        if isinstance(of_functions, Mapping):
            self.user_metrics = {
                str(name): value
                for name, value in islice(of_functions.items(), MOST_USER_METRICS)
                if isinstance(value, int | float | str) and not isinstance(value, bool)
            }
        self.metrics_complete = self.metrics_complete or final


class ExecutionVertex:
    """One subtask and its attempts; the last one is current."""

    def __init__(self, vertex: JobVertex, subtask: int, clock: Clock) -> None:
        self.vertex, self.subtask = vertex, subtask
        self.attempts = [Execution(vertex, subtask, 0, clock)]

    @property
    def current(self) -> Execution:
        """The current attempt."""
        return self.attempts[-1]


class ExecutionJobVertex:
    """A vertex with all its subtasks."""

    def __init__(self, vertex: JobVertex, clock: Clock) -> None:
        self.vertex = vertex
        self.subtasks = [ExecutionVertex(vertex, i, clock) for i in range(vertex.parallelism)]

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
class SharedSlot:
    """What a slot will hold: the ``index``-th subtasks of all vertices of a slot-sharing group."""

    group: str
    index: int
    slot: Slot | None = None
    executions: list[Execution] = field(default_factory=list)


class ExecutionGraph:
    """All attempts of a job with their states, and where they run.

    Args:
        job_graph: validated.
        clock: stamps states.
        job_attempt: counts restarts of the whole job.
        secret: of the handshake between its slots; default: a new random one.
    """

    def __init__(self, job_graph: JobGraph, clock: Clock, job_attempt: int = 0, secret: str | None = None) -> None:
        self.job_graph, self.clock, self.job_attempt = job_graph, clock, job_attempt
        self.secret = secret if secret is not None else secrets.token_hex(32)
        name = f"Job {job_graph.name} ({job_graph.job_id})"
        self.job: StateMachine[JobStatus] = StateMachine(name, JobStatus.INITIALIZING, JOB_MOVES, clock)
        self.vertices = {VertexId(v.id): ExecutionJobVertex(v, clock) for v in job_graph.vertices}
        self.failures: list[FailureRecord] = []
        self.root_failure: FailureRecord | None = None
        self.shared_slots = self._share_slots()
        self._by_id = {e.id: e for v in self.vertices.values() for e in v.executions()}
        self._by_allocation: dict[AllocationId, SharedSlot] = {}

    def _share_slots(self) -> list[SharedSlot]:
        groups: dict[str, list[SharedSlot]] = {}
        for job_vertex in self.vertices.values():
            shared = groups.setdefault(job_vertex.vertex.slot_sharing_group, [])
            for execution in job_vertex.executions():
                if execution.subtask == len(shared):
                    shared.append(SharedSlot(job_vertex.vertex.slot_sharing_group, execution.subtask))
                shared[execution.subtask].executions.append(execution)
        return [slot for shared in groups.values() for slot in shared]

    @property
    def state(self) -> JobStatus:
        """The job's state."""
        return self.job.state

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended."""
        return self.state.is_globally_terminal_state()

    @property
    def slots_needed(self) -> int:
        """How many slots the job needs."""
        return len(self.shared_slots)

    def executions(self) -> list[Execution]:
        """The current attempts of all subtasks, in topological order."""
        return [e for v in self.vertices.values() for e in v.executions()]

    def execution(self, id_: str) -> Execution | None:
        """The attempt of this id; None if the job has no such one."""
        return self._by_id.get(ExecutionId(id_))

    def executions_in(self, allocation_id: str) -> list[Execution]:
        """What runs in a slot; empty if nothing was placed there."""
        shared = self._by_allocation.get(AllocationId(allocation_id))
        return list(shared.executions) if shared else []

    def executions_at(self, taskmanager_id: str) -> list[Execution]:
        """What runs at a TaskManager."""
        return [e for e in self.executions() if e.slot is not None and e.slot.taskmanager_id == taskmanager_id]

    def all_terminal(self) -> bool:
        """Whether every attempt has ended."""
        return all(e.state.is_terminal for e in self.executions())

    def place(self, slots: Iterable[Slot]) -> None:
        """Give every shared slot a slot: neighbours of a group go to neighbouring slots of one TaskManager.

        Raises:
            ValueError: there are fewer slots than needed, or slots were placed before.
        """
        ordered = sorted(slots, key=lambda s: (s.taskmanager_id, s.slot_index))
        if len(ordered) < len(self.shared_slots) or self._by_allocation:
            raise ValueError(f"{len(ordered)} slots for {len(self.shared_slots)} shared slots")
        for shared, slot in zip(self.shared_slots, ordered, strict=False):
            shared.slot = slot
            self._by_allocation[slot.allocation_id] = shared
            for execution in shared.executions:
                execution.slot = slot

    def placed_slots(self) -> list[Slot]:
        """The slots that hold something."""
        return [shared.slot for shared in self.shared_slots if shared.slot is not None]

    def edges_touching(self, vertex_ids: Iterable[str]) -> list[JobEdge]:
        """Edges with an end in these vertices."""
        wanted = set(vertex_ids)
        return [e for e in self.job_graph.edges if e.source in wanted or e.target in wanted]

    def record_failure(self, record: FailureRecord, as_root: bool) -> None:
        """Keep a failure; ``as_root``: it is what the job fails with."""
        if as_root:
            self.root_failure = record
        if len(self.failures) < KEPT_FAILURES or as_root:
            self.failures.append(record)
        if len(self.failures) > KEPT_FAILURES:
            del self.failures[0]
