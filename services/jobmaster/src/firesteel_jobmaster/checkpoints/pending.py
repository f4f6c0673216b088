"""A checkpoint under way, and requests for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any, Final, NamedTuple

from firesteel.checkpoint import savepoints
from firesteel.checkpoint.metadata import CheckpointMetadata, EnumeratorState, OperatorState
from firesteel.checkpoint.reading import CheckpointFormatError
from firesteel.checkpoint.subtask_state import OperatorSubtaskState, TaskState
from firesteel.graph.execution_graph import Execution
from firesteel.graph.job_graph import JobGraph
from firesteel_jobmaster.checkpoints.plan import CheckpointPlan
from firesteel_jobmaster.checkpoints.reasons import CheckpointFailure
from firesteel_jobmaster.split_assignments import ALL

MOST_POSITIONS: Final = 10_000
"""Splits whose positions are shown."""
LONGEST_SPLIT: Final = 300
"""Characters in the id of a split whose position is shown: a topic's name has up to 249."""


class CheckpointCause(StrEnum):
    """Why a checkpoint is taken."""

    PERIODIC = "periodic"
    MANUAL = "by hand"
    SAVEPOINT = "a savepoint"
    FINAL = "at the end of the input"


class CheckpointPhase(StrEnum):
    """How far a pending checkpoint has come."""

    PREPARING = "PREPARING"
    """The checkpoint gets its id and its place."""
    WAITING = "WAITING"
    """Barriers are on their way; tasks acknowledge."""
    COMPLETING = "COMPLETING"
    """The checkpoint's metadata are being written, and it goes into the store."""
    UNDOING = "UNDOING"
    """The checkpoint may be in the store, and must not be."""


class UnionStateError(Exception):
    """Some subtasks of an operator with union state have finished: what they had can't be given to anybody."""


@dataclass(frozen=True)
class SavepointTarget:
    """Where, and in which format, a user wants a savepoint written.

    Attributes:
        target: directory below which it is to be.
        format: ``CANONICAL`` or ``NATIVE``.
        stop: the job ends with it: ``suspend``, ``drain`` (event time ends before), or ``cancel`` (it is cancelled when
            the savepoint is complete); empty = the job goes on.
    """

    target: str
    format: str = savepoints.CANONICAL
    stop: str = ""

    @property
    def stops(self) -> bool:
        """Whether tasks stop behind its barrier."""
        return self.stop in (savepoints.SUSPEND, savepoints.DRAIN)


class SplitPosition(NamedTuple):
    """Where the reader of a source is in a split.

    Attributes:
        vertex_id, subtask: of the reader.
        split_id: of the split.
        position: from which it goes on, as the source defines it.
    """

    vertex_id: str
    subtask: int
    split_id: str
    position: Any

    @property
    def is_short(self) -> bool:
        return len(self.split_id) <= LONGEST_SPLIT and isinstance(self.position, int | None)


@dataclass
class CheckpointRequest:
    """A checkpoint that is to be taken.

    Attributes:
        cause: why it is taken.
        trigger_id: of a user's request: the id under which its result is read.
        full: the checkpoint has all state, also where checkpoints are incremental.
        savepoint: where a savepoint is to be written; None = the request is for a checkpoint.
    """

    cause: CheckpointCause
    trigger_id: str = ""
    full: bool = False
    savepoint: SavepointTarget | None = None


@dataclass
class PendingCheckpoint:
    """A checkpoint or savepoint under way.

    Attributes:
        number: of the attempt, which has no checkpoint id at first.
        request: that the checkpoint answers.
        plan: tasks that take part.
        trigger_ms: when it was triggered (epoch).
        phase: how far it has come.
        checkpoint_id: 0 = none yet.
        triggered: ids of executions that were told to begin it.
        states: execution id -> the state that it has acknowledged.
        enumerators: vertex id -> state of the source's enumerator.
        serials: vertex id -> subtask -> serial up to which splits are in its reader's state.
        given_up: why it will not complete, though its metadata may be written; None = it was not given up.
        location: of its metadata.
        directory: of a savepoint.
    """

    number: int
    request: CheckpointRequest
    plan: CheckpointPlan
    trigger_ms: int
    phase: CheckpointPhase = CheckpointPhase.PREPARING
    checkpoint_id: int = 0
    triggered: set[str] = field(default_factory=set)
    states: dict[str, TaskState] = field(default_factory=dict)
    enumerators: dict[str, EnumeratorState] = field(default_factory=dict)
    serials: dict[str, dict[int, int]] = field(default_factory=dict)
    given_up: CheckpointFailure | None = None
    location: str = ""
    directory: str = ""
    _unacknowledged: Counter[str] = field(default_factory=Counter)
    """Vertex id -> subtasks that have not acknowledged."""

    def __post_init__(self) -> None:
        self._count()

    def planned(self, plan: CheckpointPlan) -> None:
        """Replace the plan, before any task was told to begin: tasks have changed since the first one."""
        self.plan = plan
        self._count()

    def _count(self) -> None:
        self._running = {id(execution) for execution in self.plan.running}
        self._unacknowledged = Counter(execution.vertex.id for execution in self.plan.running)

    @property
    def is_complete(self) -> bool:
        """Whether all tasks have acknowledged."""
        return len(self.states) == len(self.plan.running)

    @property
    def is_unsettled(self) -> bool:
        """Whether nobody knows if the checkpoint is in the store."""
        return self.phase in (CheckpointPhase.COMPLETING, CheckpointPhase.UNDOING)

    @property
    def savepoint(self) -> SavepointTarget | None:
        """Where the savepoint goes, if the checkpoint is one."""
        return self.request.savepoint

    @property
    def stops(self) -> bool:
        """Whether the job ends with this savepoint."""
        return self.savepoint is not None and self.savepoint.stops

    def overtaken_by(self, others: Iterable[PendingCheckpoint]) -> int:
        """Id of a later checkpoint that is on its way into the store, and that this one must not follow; 0 = none."""
        if self.savepoint is not None:
            return 0
        later = [o for o in others if o.checkpoint_id > self.checkpoint_id and o.savepoint is None]
        return max((o.checkpoint_id for o in later if o.is_unsettled), default=0)

    @property
    def is_last(self) -> bool:
        """Whether no record follows this checkpoint's barrier in any task."""
        return all(self.states[e.id].finished for e in self.plan.running if e.vertex.enumerates is None)

    def waits_for(self, execution: Execution) -> bool:
        """Whether this task has to acknowledge, and has not."""
        return execution.id not in self.states and id(execution) in self._running

    def waits_for_what(self) -> str:
        """What the checkpoint still waits for, as a sentence for people."""
        if self.phase is CheckpointPhase.PREPARING:
            return "The checkpoint storage has not answered when its place was to be made."
        missing = [e.task_name for e in self.plan.running if e.id not in self.states]
        if missing:
            return f"{len(missing)} tasks have not acknowledged it, such as {missing[0]}."
        return "The checkpoint storage, or the store, has not answered when its metadata were to be written."

    def acknowledge(self, execution: Execution, state: TaskState) -> bool:
        """A task has written its state; returns whether all subtasks of its vertex have now."""
        self.states[execution.id] = state
        self._unacknowledged[execution.vertex.id] -= 1
        return not self._unacknowledged[execution.vertex.id]

    def serials_of(self, vertex_id: str) -> dict[int, int]:
        """Up to which serial each reader of a source had got its splits."""
        of_running = {
            e.subtask: ALL if self.states[e.id].finished else self.states[e.id].splits_serial
            for e in self.plan.running
            if e.vertex.id == vertex_id
        }
        return {**of_running, **{e.subtask: ALL for e in self.plan.finished if e.vertex.id == vertex_id}}

    def positions(self) -> list[SplitPosition]:
        """Where the readers of sources are, for people: only those that are a number, such as an offset."""
        rows = (
            SplitPosition(execution.vertex.id, execution.subtask, str(split.get("id")), split.get("position"))
            for execution in self.plan.running
            if execution.vertex.source is not None
            for operator in self.states[execution.id].operators.values()
            for split in operator.splits
        )
        return list(islice((row for row in rows if row.is_short), MOST_POSITIONS))

    def files(self) -> frozenset[str]:
        """Files that acknowledgements name: all that was written for it, as far as is known."""
        return frozenset(file for state in self.states.values() for file in state.files())

    def metadata(self, job: JobGraph, properties: Mapping[str, Any]) -> CheckpointMetadata:
        """The metadata of the checkpoint, once all tasks have acknowledged.

        Raises:
            UnionStateError: a task with union state has finished, and another one of its vertex has not.
        """
        operators: list[OperatorState] = []
        running: dict[str, list[Execution]] = {}
        for execution in self.plan.running:
            running.setdefault(execution.vertex.id, []).append(execution)
        for vertex in job.vertices:
            executions = running.get(vertex.id, [])
            unfinished = [e for e in executions if not self.states[e.id].finished]
            finished = vertex.parallelism - len(unfinished)
            for operator in vertex.operators:
                subtasks: dict[int, OperatorSubtaskState] = {}
                for execution in executions:
                    state = self.states[execution.id].operators.get(operator.id)
                    if state is not None and not state.is_empty:
                        subtasks[execution.subtask] = state
                if (
                    finished
                    and unfinished
                    and any(s.operator and "union" in s.operator.kinds() for s in subtasks.values())
                ):
                    raise UnionStateError(
                        f"operator {operator.name!r} has union list state, and {finished} of its {vertex.parallelism} "
                        "subtasks have finished: their part of it would be lost. Checkpoints go on when all have."
                    )
                is_source = vertex.source is not None and vertex.source.operator_id == operator.id
                operators.append(
                    OperatorState(
                        operator.id,
                        operator.name,
                        operator.uid,
                        vertex.parallelism,
                        vertex.max_parallelism,
                        subtasks,
                        not unfinished,
                        self.enumerators.get(vertex.id) if is_source else None,
                    )
                )
        return CheckpointMetadata(self.checkpoint_id, job.job_id, self.trigger_ms, tuple(operators), dict(properties))


def check_operators(execution: Execution, state: TaskState) -> None:
    """Check that a task has written state of its own operators only.

    Raises:
        CheckpointFormatError: it names an operator that is none of the task's.
    """
    own_ids = {operator.id for operator in execution.vertex.operators}
    for id_ in state.operators:
        if id_ not in own_ids:
            raise CheckpointFormatError("task state.operators", f"{id_!r:.60} is no operator of this task")
