"""Slots and TaskManagers that are lost, and what that means for the tasks in them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from firesteel.common.job_status import JobStatus
from firesteel.graph.execution_graph import Execution, LogicalSlot
from firesteel.graph.execution_states import ExecutionState
from firesteel.protocol import messages as m
from firesteel.protocol.deployment import TaskFailure
from firesteel_jobmaster import failures
from firesteel_jobmaster.ending import Ending
from firesteel_jobmaster.job_slots import JobSlots
from firesteel_jobmaster.job_state import JobState

logger = logging.getLogger(__name__)
MISSED_SLOTS = 2
"""Slots that may fail to come to a job that has not begun (no process in time, its executor has ended): others are
asked for. One more may have its reason in the job's settings."""


class SlotLosses:
    """Turns the loss of slots into failures of the tasks in them."""

    def __init__(self, state: JobState, slots: JobSlots, ending: Ending) -> None:
        self._state, self._slots, self._ending = state, slots, ending
        self._missed_slots = 0
        """Slots that did not come to a job that has not begun."""

    def fail_slot(self, message: m.FailSlot) -> None:
        """A slot is gone, or never came."""
        state, allocation_id, cause = self._state, message.allocation_id, message.cause
        slot = state.pool.get(allocation_id)
        may_come = state.has_deployed or (self._missed_slots < MISSED_SLOTS and not message.in_vain)
        if slot is not None and slot.taskmanager_id == message.taskmanager_id:
            self.slots_lost([slot], cause)
        elif slot is not None or not state.layout.waits_for_slots or not message.taskmanager_id:
            logger.info("loss of slot %s is ignored: the job does not hold it (%s)", allocation_id, cause)
        elif allocation_id and may_come:
            logger.info("slot %s did not come: %s", allocation_id, cause)
            self._missed_slots += not state.has_deployed
            self._slots.declare()
        else:
            failure = failures.slot_lost(f"of TaskManager {message.taskmanager_id}", cause, None)
            state.failover.fail(failure, failed=state.new_tasks())

    def taskmanager_lost(self, taskmanager_id: str, cause: str, gone_for: float) -> None:
        """A TaskManager is gone with all its slots, for ``gone_for`` seconds at least."""
        self._slots.taskmanager_lost(taskmanager_id)
        slots = self._state.pool.at(taskmanager_id)
        if slots:
            self._ending.taskmanager_gone(taskmanager_id, gone_for)
        self.slots_lost(slots, cause)

    def taskmanager_ended(self, taskmanager_id: str, cause: str) -> None:
        """Explain failures by how a TaskManager has ended, which is known now, and lose its slots if that is news."""
        state = self._state
        if state.is_terminal:
            return
        self._ending.taskmanager_explained(taskmanager_id)
        state.graph.explain(taskmanager_id, lambda failure: failures.slot_lost_since(failure, cause))
        if state.graph.failures:
            state.events.restart_explained(failures.cause_text(state.graph.failures[-1].root.failure))
        self.slots_lost(state.pool.at(taskmanager_id), cause)
        self._ending.check()

    def submit_failed(self, allocation_id: str, execution_ids: Collection[str], cause: str) -> None:
        """A TaskManager did not take these tasks, or did not answer: as they may run then, the slot is given up."""
        named = map(self._state.graph.execution, execution_ids)
        executions = [e for e in named if e is not None and not e.state.is_terminal]
        slot = self._state.pool.get(allocation_id)
        if slot is not None and executions:
            self._slots.drop(slot, f"its tasks could not be submitted: {cause}")
            self.end_in_slot(executions, failures.submit_failed(failures.where_is(slot), cause, executions[0]), slot)

    def slots_lost(self, slots: Sequence[LogicalSlot], cause: str) -> None:
        """Slots are gone at the same time: one failure."""
        lost_tasks: list[Execution] = []
        for slot in slots:
            executions = self._state.graph.executions_in(slot.allocation_id)
            if not self._state.layout.runs_in_slots and self._state.has_deployed:  # what runs, runs on
                logger.info("slot %s is lost, nothing runs in it: %s", failures.where_is(slot), cause)
                self._slots.drop(slot, f"lost: {cause}")
                continue
            # Tell its TaskManager too: if that is not gone itself, nothing of the slot may stay behind.
            self._slots.drop(slot, f"lost: {cause}")
            live = [e for e in executions if e.state is not ExecutionState.CREATED and not e.state.is_terminal]
            if not live:
                self._unused_slot_lost(slot, executions, cause)
            lost_tasks += live
        if lost_tasks and (slot_of := lost_tasks[0].slot) is not None:
            first = next((e for e in lost_tasks if not e.state.is_terminal), None)
            failure = failures.slot_lost(failures.where_is(slot_of), cause, first)
            self.end_in_slot(lost_tasks, failure, slot_of)

    def _unused_slot_lost(self, slot: LogicalSlot, executions: Sequence[Execution], cause: str) -> None:
        """A slot is lost in which nothing runs, or nothing any more."""
        state = self._state
        failure = failures.slot_lost(failures.where_is(slot), cause, None)
        if not state.layout.is_laid_out:
            logger.info("slot %s is lost; nothing runs in it: %s", failures.where_is(slot), cause)
        elif not state.has_deployed:
            state.failover.fail(failure, slot)
        elif executions and (
            state.status is JobStatus.FAILING or all(state.graph.region_of(e) in state.restarts for e in executions)
        ):  # what was reported before may only be a consequence
            state.failover.fail(failure, slot, executions[0], failed=executions)
        else:
            logger.info("slot %s is lost; nothing runs in it: %s", failures.where_is(slot), cause)

    def end_in_slot(self, executions: Sequence[Execution], failure: TaskFailure, slot: LogicalSlot) -> None:
        """End tasks with their slot."""
        live = [e for e in executions if not e.state.is_terminal]
        if not live:
            logger.info("all tasks of slot %s had ended before: %s", failures.where_is(slot), failure.message)
            return
        for execution in live:
            is_cancelled = execution.state is ExecutionState.CANCELING
            end = ExecutionState.CANCELED if is_cancelled else ExecutionState.FAILED
            execution.machine.move(end, failure.message)
        self._state.failover.fail(failure, slot, live[0], failed=live)
        self._state.declares_slots = True
