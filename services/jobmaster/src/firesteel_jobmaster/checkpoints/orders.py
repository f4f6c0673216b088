"""What tasks are told about a checkpoint, slot by slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from firesteel.graph.execution_graph import Execution
from firesteel.graph.execution_states import ExecutionState
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoints.pending import PendingCheckpoint
from firesteel_jobmaster.checkpoints.plan import by_slot

Emit = Callable[[do.Instruction], None]


def trigger(
    pending: PendingCheckpoint, executions: Sequence[Execution], options: Mapping[str, Any], emit: Emit
) -> None:
    """Have these tasks begin the checkpoint, unless they have begun it before. ``options`` travel with its barriers."""
    beginners = [e for e in executions if e.id not in pending.triggered and pending.waits_for(e)]
    pending.triggered.update(e.id for e in beginners)
    for (taskmanager, allocation), ids in by_slot(beginners).items():
        emit(do.SendTriggerCheckpoint(taskmanager, allocation, ids, pending.checkpoint_id, pending.trigger_ms, options))


def complete(pending: PendingCheckpoint, emit: Emit) -> None:
    """Tell the tasks of a complete checkpoint that still run to commit."""
    for (taskmanager, allocation), ids in by_slot(_running(pending)).items():
        emit(do.NotifyCheckpointComplete(taskmanager, allocation, ids, pending.checkpoint_id))


def aborted(pending: PendingCheckpoint, emit: Emit) -> None:
    """Tell the tasks of a checkpoint that was given up that it will not complete."""
    for (taskmanager, allocation), ids in by_slot(_running(pending)).items():
        emit(do.NotifyCheckpointAborted(taskmanager, allocation, ids, pending.checkpoint_id))


def _running(pending: PendingCheckpoint) -> list[Execution]:
    return [e for e in pending.plan.running if e.state is ExecutionState.RUNNING]
