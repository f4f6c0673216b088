"""What tasks are told about a checkpoint, slot by slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from firesteel.graph.execution_graph import Execution
from firesteel.graph.execution_states import ExecutionState
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoints.pending import Pending
from firesteel_jobmaster.checkpoints.plan import by_slot

Emit = Callable[[do.Instruction], None]


def trigger(pending: Pending, executions: Sequence[Execution], options: Mapping[str, Any], emit: Emit) -> None:
    """These tasks begin it, those of them that have not begun it yet. ``options`` travel with its barriers."""
    new = [e for e in executions if e.id not in pending.triggered and pending.waits_for(e)]
    pending.triggered.update(e.id for e in new)
    for (taskmanager, allocation), ids in by_slot(new).items():
        emit(do.SendTriggerCheckpoint(taskmanager, allocation, ids, pending.checkpoint_id, pending.trigger_ms, options))


def complete(pending: Pending, emit: Emit) -> None:
    """It is complete: those of its tasks that still run commit."""
    for (taskmanager, allocation), ids in by_slot(_running(pending)).items():
        emit(do.NotifyCheckpointComplete(taskmanager, allocation, ids, pending.checkpoint_id))


def aborted(pending: Pending, emit: Emit) -> None:
    """It will not complete: those of its tasks that still run hear of that."""
    for (taskmanager, allocation), ids in by_slot(_running(pending)).items():
        emit(do.NotifyCheckpointAborted(taskmanager, allocation, ids, pending.checkpoint_id))


def _running(pending: Pending) -> list[Execution]:
    return [e for e in pending.plan.running if e.state is ExecutionState.RUNNING]
