"""What slots say about the job's tasks, and what follows when they say nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from firesteel.common.job_status import JobStatus
from firesteel.core.errors import ProtocolError
from firesteel.core.ids import VertexId, execution_id
from firesteel.graph.execution_graph import Execution, LogicalSlot
from firesteel.graph.execution_states import ExecutionState
from firesteel.protocol import messages as m
from firesteel_jobmaster import failures
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.ending import Ending
from firesteel_jobmaster.job_slots import JobSlots
from firesteel_jobmaster.job_state import JobState
from firesteel_jobmaster.losses import SlotLosses
from firesteel_jobmaster.sources import JobSources

logger = logging.getLogger(__name__)
MISSED_INTERVALS = 0.9
"""Heartbeat intervals after which a task is lost that its TaskManager has not listed: two regular heartbeats in a row.
Others may come in between, and what became of the task may still be on its way."""


class TaskReports:
    """Brings reports of TaskManagers into the graph, and to the parts that wait for them."""

    def __init__(
        self, state: JobState, slots: JobSlots, ending: Ending, losses: SlotLosses, sources: JobSources
    ) -> None:
        self._state, self._slots, self._ending = state, slots, ending
        self._losses, self._sources = losses, sources
        self._submitted: set[str] = set()
        """Tasks that their TaskManager has taken, so that it lists them until they have ended."""
        self._missed: dict[str, float] = {}
        """Task -> since when its TaskManager does not list it."""

    def submitted(self, execution_ids: Iterable[str]) -> None:
        """A TaskManager took these tasks."""
        self._submitted.update(execution_ids)

    def replaced(self, executions: Iterable[Execution]) -> None:
        """Await reports of new attempts, and none any more of those that they replace."""
        for execution in executions:
            former_id = execution_id(VertexId(execution.vertex.id), execution.subtask, execution.attempt - 1)
            self._submitted.discard(former_id)
            self._missed.pop(former_id, None)

    def all_replaced(self) -> None:
        """The graph has other tasks now."""
        self._submitted.clear()
        self._missed.clear()

    # -- states

    def update(self, update: m.UpdateTaskStates) -> None:
        """Take the reports of a TaskManager, in their order."""
        sender = update.taskmanager_id
        for u in update.updates:
            execution = self._state.graph.execution(u.execution_id)
            if execution is None or execution.slot is None or execution.slot.taskmanager_id != sender:
                logger.warning("state %s of %s is ignored: %s does not run it", u.state, u.execution_id, sender)
            else:
                self._reported(execution, u.state, u.error, u.metrics)

    def _reported(
        self, execution: Execution, state: str, error: Mapping[str, Any] | None, metrics: Mapping[str, Any] | None
    ) -> None:
        if error is not None:
            self._state.layout.task_failed(execution, error)
        try:
            reported = ExecutionState(state)
        except ValueError:
            logger.warning("unknown state %r of %s is ignored", state, execution.task_name)
            return
        if metrics is not None:
            execution.update_metrics(metrics, final=reported.is_terminal)
        former_state = execution.state
        if not execution.report(reported, "reported by its slot"):
            logger.debug("%s: report %s changes nothing in %s", execution.task_name, state, former_state.value)
            return
        checkpoints, fail = self._state.checkpoints, self._state.failover.fail
        if reported in (ExecutionState.RUNNING, ExecutionState.FINISHED):
            checkpoints.task_reported(execution)
            self._sources.task_reported(execution)
        if reported is ExecutionState.FAILED:
            is_damaged = error is not None and checkpoints.failure_reported(execution, error)
            failed = self._state.graph.executions() if is_damaged else ()
            fail(failures.from_report(error, execution), execution.slot, execution, reported=True, failed=failed)
        elif reported is ExecutionState.CANCELED and former_state is not ExecutionState.CANCELING:
            text = "The task ended as CANCELED although nobody cancelled it."
            fail(failures.external(text, RuntimeError, execution), execution.slot, execution)
        elif reported.is_terminal:
            self._slots.check_idle(execution)
            self._check_commit()
            self._ending.check(execution)

    def end_of_data(self, execution_id: str) -> None:
        """A task has all its results durable and waits for the checkpoint whose completion commits them.

        Raises:
            RpcFault: this job has no such task.
            ProtocolError: it has nothing to commit.
        """
        execution = self._state.task(execution_id)
        checkpoints = self._state.checkpoints
        if not execution.vertex.needs_commit and not checkpoints.commits_at_end:
            raise ProtocolError("end_of_data", f"{execution.task_name} has nothing to commit")
        if self._state.is_active and not execution.state.is_terminal:
            if execution.report(ExecutionState.RUNNING, "is at the end of its data"):
                checkpoints.task_reported(execution)
            execution.end_of_data = True
            checkpoints.coordinator.outputs_ended()
            self._check_commit()

    def _check_commit(self) -> None:
        """Once all results are durable, have the last checkpoint taken, whose completion commits them."""
        if self._state.status is JobStatus.RUNNING and self._state.graph.waits_for_commit():
            self._state.checkpoints.coordinator.all_data_ended()

    def update_metrics(self, tasks: Mapping[str, Mapping[str, Any]]) -> None:
        """Take running totals of tasks."""
        for id_, metrics in tasks.items():
            execution = self._state.graph.execution(id_)
            if execution is not None:
                execution.update_metrics(metrics)

    # -- heartbeats

    def heartbeat(self, taskmanager_id: str, report: m.ExecutionReport) -> None:
        """Take a TaskManager's list of the tasks that it runs, which makes up for reports that were lost."""
        self.update_metrics(report.metrics)
        state, now = self._state, self._state.clock.monotonic()
        slots = state.pool.at(taskmanager_id)
        for slot, execution in [(s, e) for s in slots for e in state.graph.executions_in(s.allocation_id)]:
            reported = report.executions.get(execution.id)
            if execution.slot is not slot:
                continue
            if execution.state.is_terminal:
                self._cancel_stray(execution, slot, reported)
                continue
            if execution.id not in self._submitted:
                continue
            if reported is not None and reported != ExecutionState.FAILED.value:
                self._missed.pop(execution.id, None)
                self._reported(execution, reported, None, None)
                continue
            # The task is gone, or it has failed and the reason is on its way: the next heartbeats decide.
            since = self._missed.setdefault(execution.id, now)
            if now - since >= MISSED_INTERVALS * state.settings.heartbeat_interval:
                cause = f"TaskManager {taskmanager_id} does not run {execution.task_name} any more"
                tasks = state.graph.executions_in(slot.allocation_id)
                if slot.allocation_id in state.pool:
                    self._slots.drop(slot, cause)
                failure = failures.slot_lost(failures.where_is(slot), cause, execution)
                self._losses.end_in_slot(tasks, failure, slot)

    def _cancel_stray(self, execution: Execution, slot: LogicalSlot, reported: str | None) -> None:
        """Cancel a task that the job has given up, and that runs all the same (its submit was not answered, say)."""
        if (
            execution.state is not ExecutionState.FINISHED
            and reported in (ExecutionState.INITIALIZING.value, ExecutionState.RUNNING.value)
            and slot.allocation_id in self._state.pool
        ):
            logger.warning("%s runs although it was given up: it is cancelled", execution.task_name)
            self._state.emit(do.CancelSlotTasks(slot.taskmanager_id, slot.allocation_id, (execution.id,)))
