"""How a job ends: its state, its failures, and the way from the first of them to the last slot given back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from firesteel.common.job_status import JobStatus
from firesteel.core.clock import Clock
from firesteel.graph.execution_graph import Execution, ExecutionGraph, FailureRecord, Slot
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_archive import archive_of, job_timestamps
from firesteel.graph.job_graph import JobGraph
from firesteel.graph.plan import job_plan
from firesteel.protocol.deployment import TaskFailure
from firesteel_jobmaster import failures
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.settings import JobMasterSettings
from firesteel_jobmaster.slot_pool import SlotPool

logger = logging.getLogger(__name__)
SLOTS_TIMER, CANCEL_TIMER, SPLITS_TIMER, REASON_TIMER, IDLE_TIMER = "slots", "cancel", "splits", "reason", "idle"
CANCEL_GRACE = 30.0
"""Seconds after ``task.cancellation.timeout`` in which a TaskManager should have killed the slot and said so."""


REASON_SECONDS = 0.2
"""A job that fails because a task lost its connection to another waits so long for what happened to that one."""


class JobLifeCycle:
    """The part of the JobMaster's core that every event may come to.

    Args:
        job_graph: validated.
        settings: of this job.
        clock: stamps states.
    """

    def __init__(self, job_graph: JobGraph, settings: JobMasterSettings, clock: Clock) -> None:
        self.graph = ExecutionGraph(job_graph, clock)
        self.pool = SlotPool(self.graph.slots_needed)
        self._settings, self._clock = settings, clock
        self._plan = job_plan(job_graph)
        self._out: list[do.Instruction] = []
        self._ending_since: float | None = None
        self._root_rank = failures.LAST_RANK
        self._reason_is_open = False
        self._archive: dict[str, Any] | None = None

    @property
    def state(self) -> JobStatus:
        """The job's state."""
        return self.graph.state

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended, or was given up by this JobMaster."""
        return self.graph.state.is_terminal_state()

    def archive(self) -> dict[str, Any]:
        """The job as plain data (contents: ``firesteel.graph.job_archive``)."""
        if self._archive is not None:
            return self._archive
        archive = archive_of(self.graph, self._plan)
        if self.is_terminal:
            self._archive = archive
        return archive

    def cancel(self, cause: str) -> list[do.Instruction]:
        """Cancel the job; nothing happens if it has ended or is being cancelled."""
        if not self.is_terminal and self.state is not JobStatus.CANCELLING:
            self._move(JobStatus.CANCELLING, cause)
            self._cancel_tasks(cause)
        return self._take()

    def suspend(self, cause: str) -> list[do.Instruction]:
        """This JobMaster stops: the slots go back at once, whatever runs in them."""
        if not self.is_terminal:
            for execution in self.graph.executions():
                if not execution.state.is_terminal:
                    execution.machine.move(ExecutionState.CANCELED, cause)
            self._move(JobStatus.SUSPENDED, cause)
            self._let_go(cause)
        return self._take()

    def adopted(self) -> list[do.Instruction]:
        """Another Dispatcher leads: it hears where the job stands."""
        if self.is_terminal and self.state is not JobStatus.SUSPENDED:
            self._out.append(do.ReportEnd())
        else:
            self._out.append(do.ReportState(self.state.name, job_timestamps(self.graph)))
        return self._take()

    def internal_error(self, error: BaseException, doing: str) -> list[do.Instruction]:
        """A bug of ours: the job fails cleanly. What the failed event had already decided is still done."""
        self._fail(failures.internal(error, doing))
        return self._take()

    def _fail(
        self,
        failure: TaskFailure | Mapping[str, Any],
        slot: Slot | None = None,
        execution: Execution | None = None,
        reported: bool = False,
    ) -> None:
        plain = failure.to_plain() if isinstance(failure, TaskFailure) else failure
        if reported and failures.may_be_a_consequence(plain):
            plain = failures.name_peers(plain, self.pool.slots())
            self._out.append(do.CheckTaskManagers())
        cause = f"{plain['error_class']}: {plain['message']}"
        if self.is_terminal:
            logger.info("ignored, the job has ended: %s", cause)
            return
        first = self.state not in (JobStatus.FAILING, JobStatus.CANCELLING)
        new_rank = failures.rank(plain, self._killing())
        as_root = first or (self.state is JobStatus.FAILING and new_rank < self._root_rank)
        if as_root:
            self._root_rank = new_rank
            self._reason_is_open = reported and failures.may_be_a_consequence(plain)
        record = FailureRecord(
            plain,
            self._clock.epoch_ms(),
            execution.task_name if execution else "",
            slot.endpoint if slot else "",
            slot.taskmanager_id if slot else "",
        )
        self.graph.record_failure(record, as_root)
        if first:
            self._move(JobStatus.FAILING, cause)
            self._cancel_tasks(f"the job fails: {cause:.200}")
        else:
            logger.info("further failure while %s: %s", self.state.name, cause)
            self._check_end()

    def _killing(self) -> bool:
        """Whether a slot that dies now was probably killed because its tasks would not end."""
        timeout = self._settings.cancellation_timeout
        return bool(timeout and self._ending_since is not None) and (
            self._clock.monotonic() - (self._ending_since or 0.0) >= timeout
        )

    def _cancel_tasks(self, cause: str) -> None:
        if self._ending_since is None:
            self._ending_since = self._clock.monotonic()
        by_slot: dict[tuple[str, str], list[str]] = {}
        for execution in self.graph.executions():
            if execution.state.is_terminal or execution.state is ExecutionState.CANCELING:
                continue
            if execution.slot is None or not execution.machine.can(ExecutionState.CANCELING):
                execution.machine.move(ExecutionState.CANCELED, cause)
                continue
            execution.machine.move(ExecutionState.CANCELING, cause)
            by_slot.setdefault((execution.slot.taskmanager_id, execution.slot.allocation_id), []).append(execution.id)
        for (taskmanager_id, allocation_id), ids in by_slot.items():
            self._out.append(do.CancelSlotTasks(taskmanager_id, allocation_id, tuple(ids)))
        if by_slot and self._settings.cancellation_timeout:
            # The TaskManager kills the slot after the timeout and says so; this is for one that does not.
            self._out.append(do.SetTimer(CANCEL_TIMER, self._settings.cancellation_timeout + CANCEL_GRACE))
        self._check_end()

    def _give_up_tasks(self) -> None:
        for execution in self.graph.executions():
            if not execution.state.is_terminal:
                execution.machine.move(ExecutionState.CANCELED, "did not end in time; its slot is released")
        self._check_end()

    def _close_reason(self) -> None:
        self._reason_is_open = False
        self._check_end()

    def _check_end(self) -> None:
        if self.is_terminal or not self.graph.all_terminal():
            return
        if self.state is JobStatus.FAILING and self._reason_is_open:
            self._out.append(do.SetTimer(REASON_TIMER, REASON_SECONDS))
            return
        if self.state is JobStatus.FAILING:
            self._move(JobStatus.FAILED, "all tasks have ended")
        elif self.state is JobStatus.CANCELLING:
            self._move(JobStatus.CANCELED, "all tasks have ended")
        else:
            self._move(JobStatus.FINISHED, "all tasks are finished")
        self._out.append(do.ReportEnd())
        self._let_go(f"job {self.state.name}")

    def _let_go(self, cause: str) -> None:
        for name in (SLOTS_TIMER, CANCEL_TIMER, SPLITS_TIMER, REASON_TIMER, IDLE_TIMER):
            self._out.append(do.ClearTimer(name))
        for slot in self.pool.close():
            self._out.append(do.ReleaseSlot(slot.taskmanager_id, slot.allocation_id, cause))
        self._out.append(do.DisconnectResourceManager())

    def _move(self, to: JobStatus, cause: str) -> None:
        self.graph.job.move(to, cause)
        self._out.append(do.ReportState(to.name, job_timestamps(self.graph)))

    def _take(self) -> list[do.Instruction]:
        out, self._out = self._out, []
        return out
