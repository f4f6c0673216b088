"""Which tasks take part in a checkpoint, and where its barriers begin. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from firesteel.core.ids import VertexId
from firesteel.graph.execution_graph import Execution, ExecutionGraph
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_graph import JobVertex
from firesteel.graph.physical import POINTWISE, upstream_channels
from firesteel.graph.specs import PartitionerKind


class NotReadyError(Exception):
    """No checkpoint can be taken now; the message says why."""


@dataclass(frozen=True)
class CheckpointPlan:
    """Which tasks trigger a checkpoint, acknowledge it and commit it.

    Attributes:
        trigger: tasks that begin the checkpoint: sources, and tasks all of whose inputs have ended.
        running: tasks that acknowledge it.
        finished: tasks that had finished before.
    """

    trigger: tuple[Execution, ...]
    running: tuple[Execution, ...]
    finished: tuple[Execution, ...]


def plan_checkpoint(graph: ExecutionGraph, after_tasks_finish: bool) -> CheckpointPlan:
    """Look at the tasks as they are now.

    Args:
        graph: of the job.
        after_tasks_finish: whether there may be tasks that have finished.

    Raises:
        NotReadyError: a task neither runs nor has finished, or none runs, or some have finished and must not.
    """
    executions = graph.executions()
    finished = [e for e in executions if e.state is ExecutionState.FINISHED]
    running = [e for e in executions if e.state is ExecutionState.RUNNING]
    if len(finished) + len(running) < len(executions):
        laggard = next(e for e in executions if e.state not in (ExecutionState.FINISHED, ExecutionState.RUNNING))
        raise NotReadyError(f"not all required tasks are running: {laggard.task_name} is {laggard.state.value}")
    if not running:
        raise NotReadyError("all tasks have finished")
    if finished and not after_tasks_finish:
        raise NotReadyError(
            f"some tasks have finished, such as {finished[0].task_name}, and "
            "execution.checkpointing.checkpoints-after-tasks-finish is false"
        )
    return CheckpointPlan(heads(graph, running), tuple(running), tuple(finished))


def plan_commit(graph: ExecutionGraph) -> CheckpointPlan:
    """The last checkpoint of a job that takes none by itself: of tasks at the end of their data, to be committed.

    Enumerators of users have nothing to add, and are never asked for a snapshot.

    Raises:
        NotReadyError: a task neither waits for its commit nor has finished.
    """
    executions = [e for e in graph.executions() if e.vertex.enumerates is None]
    finished = tuple(e for e in executions if e.state is ExecutionState.FINISHED)
    waiting = tuple(e for e in executions if e.state is ExecutionState.RUNNING and e.end_of_data)
    if len(finished) + len(waiting) < len(executions):
        laggard = next(e for e in executions if e not in finished and e not in waiting)
        raise NotReadyError(f"not all tasks are at the end of their data: {laggard.task_name} is {laggard.state.value}")
    if not waiting:
        raise NotReadyError("all tasks have finished")
    return CheckpointPlan(waiting, waiting, finished)


def heads(graph: ExecutionGraph, running: Iterable[Execution]) -> tuple[Execution, ...]:
    """The tasks among ``running`` to which no barrier comes: sources, and tasks all of whose inputs have ended.

    A task that is at the end of its data has ended its outputs, though it still runs. Enumerators of users come when
    all readers of their sources have acknowledged (``enumerators_of``), or are no longer there.
    """
    running = tuple(running)
    sources = {e.vertex.id for e in running}
    heads_of: dict[str, set[int] | None] = {}
    without_barriers = []
    for execution in running:
        vertex = execution.vertex
        if vertex.enumerates in sources:
            continue
        if vertex.id not in heads_of:
            heads_of[vertex.id] = _heads_of(graph, vertex)
        subtasks = heads_of[vertex.id]
        if subtasks is None or execution.subtask in subtasks:
            without_barriers.append(execution)
    return tuple(without_barriers)


def enumerators_of(vertex_id: str, running: Iterable[Execution]) -> tuple[Execution, ...]:
    """The task among these that hands out the splits of a source, if it is not built-in."""
    return tuple(e for e in running if e.vertex.enumerates == vertex_id)


def _heads_of(graph: ExecutionGraph, vertex: JobVertex) -> set[int] | None:
    """The subtasks of a vertex all of whose inputs have ended; None = all of them."""
    heads: set[int] | None = None
    for edge in graph.job_graph.edges:
        if edge.target != vertex.id:
            continue
        source = graph.vertices[VertexId(edge.source)]
        count, ended = source.vertex.parallelism, graph.tally.ended[edge.source]
        if ended == count:
            continue
        kind = PartitionerKind(edge.partitioner)
        if not ended or kind not in POINTWISE:
            return set()
        has_ended = [subtask.current.has_ended_outputs for subtask in source.subtasks]
        of_edge = {
            subtask
            for subtask in range(vertex.parallelism)
            if all(has_ended[up] for up in upstream_channels(kind, subtask, count, vertex.parallelism))
        }
        heads = of_edge if heads is None else heads & of_edge
    return heads


def by_slot(executions: Sequence[Execution]) -> dict[tuple[str, str], tuple[str, ...]]:
    """(TaskManager, allocation) -> ids of the executions in that slot."""
    ids_by_slot: dict[tuple[str, str], list[str]] = {}
    for execution in executions:
        if execution.slot is not None:
            slot = execution.slot.taskmanager_id, str(execution.slot.allocation_id)
            ids_by_slot.setdefault(slot, []).append(str(execution.id))
    return {slot: tuple(ids) for slot, ids in ids_by_slot.items()}
