"""Which tasks take part in a checkpoint, and where its barriers begin. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from firesteel.graph.execution_graph import Execution, ExecutionGraph
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.physical import upstream_channels
from firesteel.graph.specs import PartitionerKind


class NotReadyError(Exception):
    """No checkpoint can be taken now; the message says why."""


@dataclass(frozen=True)
class Plan:
    """Who does what.

    Attributes:
        trigger: begin it: sources, and tasks all of whose inputs have ended.
        running: acknowledge it.
        finished: had finished before.
    """

    trigger: tuple[Execution, ...]
    running: tuple[Execution, ...]
    finished: tuple[Execution, ...]


def plan_checkpoint(graph: ExecutionGraph, after_tasks_finish: bool) -> Plan:
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
        other = next(e for e in executions if e.state not in (ExecutionState.FINISHED, ExecutionState.RUNNING))
        raise NotReadyError(f"not all required tasks are running: {other.task_name} is {other.state.value}")
    if not running:
        raise NotReadyError("all tasks have finished")
    if finished and not after_tasks_finish:
        raise NotReadyError(
            f"some tasks have finished, such as {finished[0].task_name}, and "
            "execution.checkpointing.checkpoints-after-tasks-finish is false"
        )
    return Plan(heads(graph, running), tuple(running), tuple(finished))


def plan_commit(graph: ExecutionGraph) -> Plan:
    """The last checkpoint of a job that takes none by itself: of tasks at the end of their data, to be committed.

    Enumerators of users have nothing to add, and are never asked for a snapshot.

    Raises:
        NotReadyError: a task neither waits for its commit nor has finished.
    """
    executions = [e for e in graph.executions() if e.vertex.enumerates is None]
    finished = tuple(e for e in executions if e.state is ExecutionState.FINISHED)
    waiting = tuple(e for e in executions if e.state is ExecutionState.RUNNING and e.end_of_data)
    if len(finished) + len(waiting) < len(executions):
        other = next(e for e in executions if e not in finished and e not in waiting)
        raise NotReadyError(f"not all tasks are at the end of their data: {other.task_name} is {other.state.value}")
    if not waiting:
        raise NotReadyError("all tasks have finished")
    return Plan(waiting, waiting, finished)


def heads(graph: ExecutionGraph, running: Iterable[Execution]) -> tuple[Execution, ...]:
    """Those among these tasks to which no barrier comes: sources, and tasks all of whose inputs have ended.

    A task that is at the end of its data has ended its outputs, though it still runs. Enumerators of users come when
    all readers of their sources have acknowledged (``enumerators_of``), or are no longer there.
    """
    running = tuple(running)
    sources = {e.vertex.id for e in running}
    ended = {
        (e.vertex.id, e.subtask) for e in graph.executions() if e.end_of_data or e.state is ExecutionState.FINISHED
    }
    return tuple(e for e in running if e.vertex.enumerates not in sources and _is_head(graph, e, ended))


def enumerators_of(vertex_id: str, running: Iterable[Execution]) -> tuple[Execution, ...]:
    """The task among these that hands out the splits of a source, if it is not built-in."""
    return tuple(e for e in running if e.vertex.enumerates == vertex_id)


def _is_head(graph: ExecutionGraph, execution: Execution, ended: set[tuple[str, int]]) -> bool:
    for edge in graph.job_graph.edges:
        if edge.target == execution.vertex.id:
            upstream = graph.job_graph.vertex(edge.source).parallelism
            kind = PartitionerKind(edge.partitioner)
            channels = upstream_channels(kind, execution.subtask, upstream, execution.vertex.parallelism)
            if any((edge.source, channel) not in ended for channel in channels):
                return False
    return True


def by_slot(executions: Sequence[Execution]) -> dict[tuple[str, str], tuple[str, ...]]:
    """(TaskManager, allocation) -> ids of the executions in that slot."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for execution in executions:
        if execution.slot is not None:
            where = execution.slot.taskmanager_id, str(execution.slot.allocation_id)
            found[where] = (*found.get(where, ()), str(execution.id))
    return found
