"""The way to the end: tasks are cancelled, explanations are waited for, the last slot is given back."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from firesteel.common.job_status import JobStatus
from firesteel.graph.execution_graph import Execution, FailureEntry, FailureRecord
from firesteel.graph.execution_states import ExecutionState
from firesteel_jobmaster import failures, slices
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.job_slots import JobSlots
from firesteel_jobmaster.job_state import (
    CANCEL_TIMER,
    IDLE_TIMER,
    REASON_TIMER,
    RESTART_TIMER,
    SLOTS_TIMER,
    SPLITS_TIMER,
    JobState,
)
from firesteel_jobmaster.slices import LongWork, batches

logger = logging.getLogger(__name__)
CANCEL_GRACE = 30.0
"""Seconds after ``task.cancellation.timeout`` in which a TaskManager should have killed the slot and said so."""
REASON_SECONDS = 0.2
"""Seconds for which a job that fails because a task lost its connection to another waits for what happened to that
one."""
_ENDS = {JobStatus.FAILING: JobStatus.FAILED, JobStatus.CANCELLING: JobStatus.CANCELED}


class Ending:
    """Ends tasks, for a restart or for good, and the job when all have ended."""

    def __init__(self, state: JobState, slots: JobSlots) -> None:
        self._state, self._slots = state, slots
        self._since: float | None = None
        """When the first of the tasks that are ending was cancelled; None: none is ending."""
        self._to_cancel = 0
        """Number of tasks that are to be cancelled in later slices."""
        self._failure: FailureEntry | None = None
        """The failure with which the job ends."""
        self._reason_is_open = False
        """Whether that failure may only be a consequence of another one, which was not reported yet."""
        self.is_followed = False
        """Another JobMaster leads the job."""
        self.explained_within = 0.0
        """Seconds in which the ResourceManager says how a TaskManager has ended; 0: it does not."""
        self._unexplained: dict[str, float] = {}
        """TaskManager that is gone for an unknown reason -> seconds for which a job that fails waits for the reason."""

    @property
    def is_cancelling(self) -> bool:
        """Whether some tasks that are to be cancelled are not yet."""
        return self._to_cancel > 0

    @property
    def kills(self) -> bool:
        """Whether a slot that dies now was probably killed because its tasks would not end."""
        timeout = self._state.settings.cancellation_timeout
        return bool(timeout) and self._since is not None and self._state.clock.monotonic() - self._since >= timeout

    def validate(self) -> None:
        """Check what must hold after every event (tests call it)."""
        assert self._to_cancel >= 0, f"{self._to_cancel} tasks are to be cancelled"
        assert not self._to_cancel or self._state.slices, "tasks are to be cancelled, and nobody does"
        assert self._failure is None or not self._state.is_active, "the job has failed, and goes on"

    # -- tasks

    def cancel_tasks(self, cause: str, executions: Iterable[Execution] | None = None) -> None:
        """Cancel these tasks, or all."""
        state = self._state
        if self._since is None:
            self._since = state.clock.monotonic()
        state.checkpoints.coordinator.tasks_failed(cause)
        tasks = list(state.graph.executions() if executions is None else executions)
        if len(tasks) > slices.CANCELLED_AT_ONCE:  # a TaskManager hears of all that it has to cancel at the same time
            tasks.sort(key=lambda e: e.slot.taskmanager_id if e.slot is not None else "")
        state.slices.run(self._cancel(tasks, cause), urgent=True)

    def _cancel(self, executions: Sequence[Execution], cause: str) -> LongWork:
        self._to_cancel += len(executions)
        for number, batch in enumerate(batches(executions, slices.CANCELLED_AT_ONCE)):
            if number:
                self.check()
                yield
            self._to_cancel -= len(batch)
            self._state.layout.cancel(batch, cause)
        self.check()

    def cancel_in_slots(self, executions: Iterable[Execution], cause: str) -> None:
        """Have slots cancel these tasks; those that no slot has yet end at once."""
        by_slot: dict[tuple[str, str], list[str]] = {}
        for execution in executions:
            if execution.state.is_terminal or execution.state is ExecutionState.CANCELING:
                continue
            if execution.slot is None or not execution.machine.can(ExecutionState.CANCELING):
                execution.machine.move(ExecutionState.CANCELED, cause)
                continue
            execution.machine.move(ExecutionState.CANCELING, cause)
            by_slot.setdefault((execution.slot.taskmanager_id, execution.slot.allocation_id), []).append(execution.id)
        for (taskmanager_id, allocation_id), ids in by_slot.items():
            self._state.emit(do.CancelSlotTasks(taskmanager_id, allocation_id, tuple(ids)))
        timeout = self._state.settings.cancellation_timeout
        if by_slot and timeout:
            # The TaskManager kills the slot after the timeout and says so; this is for one that does not.
            self._state.set_timer(CANCEL_TIMER, timeout + CANCEL_GRACE)

    def give_up_tasks(self) -> None:
        """Tasks have not ended in time, and nobody says that their slots were killed."""
        state = self._state
        late = [e for e in state.graph.executions() if not e.state.is_terminal]
        if state.status is JobStatus.RESTARTING:
            late = [e for e in late if e.state is ExecutionState.CANCELING]
        for execution in late:
            execution.machine.move(ExecutionState.CANCELED, "did not end in time; its slot is released")
        if state.status is JobStatus.RESTARTING:  # they may still run there
            for slot in {e.slot.allocation_id: e.slot for e in late if e.slot is not None}.values():
                if slot.allocation_id in state.pool:
                    self._slots.drop(slot, "tasks did not end in time")
        self.check()

    def all_restarted(self) -> None:
        """All that was cancelled has ended and is started again."""
        self._since = None
        self._state.clear_timers(CANCEL_TIMER)

    # -- why the job fails

    def fail_with(self, failure: FailureEntry, may_be_a_consequence: bool) -> None:
        """The job ends with this failure, unless one comes that explains it."""
        self._failure, self._reason_is_open = failure, may_be_a_consequence

    def explain_with(self, record: FailureRecord, rank: int, may_be_a_consequence: bool) -> bool:
        """Take a further failure while the job ends; returns False if the job does not end with a failure."""
        if self._failure is None:
            return False
        if self._failure.add(record, rank):
            self._reason_is_open = may_be_a_consequence
        return True

    def taskmanager_gone(self, taskmanager_id: str, gone_for: float) -> None:
        """A TaskManager is gone, or will be; the reason may still be reported.

        Args:
            taskmanager_id: of the TaskManager.
            gone_for: seconds since its end. Negative: it will end within that time.
        """
        if self.explained_within and gone_for < self.explained_within:
            self._unexplained[taskmanager_id] = self.explained_within - gone_for

    def taskmanager_explained(self, taskmanager_id: str) -> None:
        """It is known how a TaskManager has ended."""
        self._unexplained.pop(taskmanager_id, None)

    def close_reason(self) -> None:
        """End the wait for a better explanation of the failure."""
        self._reason_is_open = False
        self._unexplained.clear()
        self.check()

    def _explained_in(self) -> float:
        """Seconds in which a better explanation of the failure that ends the job may come; 0: none will."""
        root = None if self._failure is None else self._failure.root
        if root is not None and root.taskmanager_id in self._unexplained and failures.is_slot_lost(root.failure):
            return self._unexplained[root.taskmanager_id]
        return REASON_SECONDS if self._reason_is_open else 0.0

    # -- the job

    def cancel_job(self, cause: str, by: str = "") -> None:
        """Cancel the job; nothing happens if it has ended, is being cancelled, or its results are being shown."""
        state = self._state
        if not state.layout.may_cancel():
            logger.info("the job is not cancelled: its results are being shown")
        elif not state.is_terminal and state.status is not JobStatus.CANCELLING:
            state.failover.forget_restarts()
            state.move(JobStatus.CANCELLING, cause, by)
            self.cancel_tasks(cause)

    def suspend(self, cause: str) -> None:
        """This JobMaster stops: the slots go back at once, whatever runs in them."""
        state = self._state
        if state.is_terminal:
            return
        state.failover.forget_restarts()
        for execution in state.graph.executions():
            if not execution.state.is_terminal:
                execution.machine.move(ExecutionState.CANCELED, cause)
        state.move(JobStatus.SUSPENDED, cause)
        self.let_go(cause)

    def leadership_lost(self, message: str) -> None:
        """Another JobMaster leads the job."""
        self.is_followed = True
        logger.error("another JobMaster leads the job: this one stops (%s)", message)
        self.suspend(f"another JobMaster leads the job: {message}")

    def check(self, ended: Execution | None = None) -> None:
        """Do what follows when all tasks have ended, or those of a region that is to be restarted.

        Args:
            ended: the task that has ended; None: something else has changed.
        """
        state = self._state
        if state.status is JobStatus.RESTARTING:
            state.layout.restart(ended)
            return
        if state.is_terminal or not state.graph.all_terminal():
            return
        if state.status is JobStatus.FAILING and (seconds := self._explained_in()):
            state.set_timer(REASON_TIMER, seconds)
            return
        end = _ENDS.get(state.status, JobStatus.FINISHED)
        if not state.checkpoints.coordinator.may_end(end.name):
            return
        state.move(end, "all tasks are finished" if end is JobStatus.FINISHED else "all tasks have ended")
        state.emit(do.ReportEnd())
        self.let_go(f"job {end.name}")

    def let_go(self, cause: str) -> None:
        """The job has come to its end here: nothing is waited for, and all slots go back."""
        state = self._state
        state.layout.job_ended()
        state.clear_timers(SLOTS_TIMER, CANCEL_TIMER, SPLITS_TIMER, REASON_TIMER, IDLE_TIMER, RESTART_TIMER)
        last_checkpoint = state.checkpoints.coordinator.left(state.status.name)
        for slot in state.pool.close():
            state.emit(do.ReleaseSlot(slot.taskmanager_id, slot.allocation_id, cause, last_checkpoint))
        state.checkpoints.coordinator.close(state.status.name)
        state.emit(do.DisconnectResourceManager())
