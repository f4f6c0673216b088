"""How a job fails, and how it goes on or ends: its state, its failures, restarts, and the way to the last slot given
back."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from firesteel.common.job_status import JobStatus
from firesteel.core.clock import Clock
from firesteel.core.errors import PeerUnreachableError
from firesteel.graph.execution_graph import Execution, ExecutionGraph, FailureEntry, FailureRecord, Slot
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_archive import CLEAN_UP, archive_of, job_timestamps
from firesteel.graph.job_graph import JobGraph
from firesteel.graph.plan import job_plan
from firesteel.protocol.deployment import TaskFailure
from firesteel_jobmaster import failures
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoints.of_job import JobCheckpoints
from firesteel_jobmaster.restarts import SLACK, Restarts
from firesteel_jobmaster.settings import JobMasterSettings
from firesteel_jobmaster.slot_pool import SlotPool

logger = logging.getLogger(__name__)
SLOTS_TIMER, CANCEL_TIMER, SPLITS_TIMER, REASON_TIMER, IDLE_TIMER = "slots", "cancel", "splits", "reason", "idle"
RESTART_TIMER = "restart"
CANCEL_GRACE = 30.0
"""Seconds after ``task.cancellation.timeout`` in which a TaskManager should have killed the slot and said so."""
COMMIT_PAUSE = 1.0
"""Seconds until a job commits once more that has lost a slot meanwhile; no strategy limits that."""
REASON_SECONDS = 0.2
"""A job that fails because a task lost its connection to another waits so long for what happened to that one."""


class JobLifeCycle(ABC):
    """The part of the JobMaster's core that every event may come to.

    Attributes:
        checkpoints: of the job.

    Args:
        job_graph: validated.
        settings: of this job.
        clock: stamps states.
        takeover: how many JobMasters of the job were lost before, and why the last of them was.
        first_attempt: of the tasks, if it is larger than that number.
    """

    checkpoints: JobCheckpoints

    def __init__(
        self,
        job_graph: JobGraph,
        settings: JobMasterSettings,
        clock: Clock,
        takeover: tuple[int, str] = (0, ""),
        first_attempt: int = 0,
    ) -> None:
        count, cause = takeover
        self.graph = ExecutionGraph(job_graph, clock, count, first_attempt=max(count, first_attempt))
        self.graph.restarts = count
        if count:
            lost = failures.external(cause, PeerUnreachableError).to_plain()
            self.graph.record_failure(FailureRecord(lost, clock.epoch_ms()), failures.rank(lost))
        self.pool = SlotPool(self.graph.slots_needed)
        self._settings, self._clock = settings, clock
        self._plan = job_plan(job_graph)
        self._out: list[do.Instruction] = []
        self._ending_since: float | None = None
        self._restarts = Restarts(self.graph, settings.new_restart_strategy(), settings.failover_by_region)
        self._ending: FailureEntry | None = None
        """The failure with which the job ends."""
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

    @property
    def is_active(self) -> bool:
        """Whether tasks of the job run, or will run again."""
        return self.state in (JobStatus.RUNNING, JobStatus.RESTARTING)

    @abstractmethod
    def _start_again(self, executions: Sequence[Execution]) -> None:
        """These new attempts are to be deployed."""

    @abstractmethod
    def _declare_more(self) -> None:
        """Tasks will be deployed again whose slots may have been given back."""

    @abstractmethod
    def _abandon_slot(self, slot: Slot, cause: str) -> None:
        """Tasks in a slot may never end: it can't be used again."""

    def emit(self, instruction: do.Instruction) -> None:
        """Have the shell do this."""
        self._out.append(instruction)

    def archive(self) -> dict[str, Any]:
        """The job as plain data (contents: ``firesteel.graph.job_archive``)."""
        if self._archive is not None:
            return self._archive
        archive = {**archive_of(self.graph, self._plan), "checkpoints": self.checkpoints.to_plain()}
        if self.is_terminal:
            archive[CLEAN_UP] = self.checkpoints.coordinator.completed.clean_up(self.state.name)
            self._archive = archive
        return archive

    def cancel(self, cause: str) -> list[do.Instruction]:
        """Cancel the job; nothing happens if it has ended or is being cancelled."""
        if not self.is_terminal and self.state is not JobStatus.CANCELLING:
            self._restarts.clear()
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

    def is_orphan(self, heard: float) -> bool:
        """Whether this JobMaster waits for slots, and nobody is there who could give it some.

        One whose tasks run goes on without Dispatcher and ResourceManager, and an end is kept for the next Dispatcher.

        Args:
            heard: when one of both was last reached, in monotonic seconds.
        """
        return (
            not self.is_terminal
            and not self.pool.slots()
            and self._clock.monotonic() - heard >= self._settings.orphan_timeout
        )

    def _fail(
        self,
        failure: TaskFailure | Mapping[str, Any],
        slot: Slot | None = None,
        execution: Execution | None = None,
        reported: bool = False,
        failed: Sequence[Execution] = (),
    ) -> None:
        """Something failed: what it touches is restarted, or the job ends.

        Args:
            failure: what it was.
            slot, execution: where it happened, for people.
            reported: by a slot, which may only have seen a consequence.
            failed: the attempts that it touches, if ``execution`` is not all of them; none of both: all.
        """
        plain = failure.to_plain() if isinstance(failure, TaskFailure) else failure
        if reported and failures.may_be_a_consequence(plain):
            plain = failures.name_peers(plain, self.pool.slots())
            self._out.append(do.CheckTaskManagers())
        cause = f"{plain['error_class']}: {plain['message']}"
        if self.is_terminal:
            logger.info("ignored, the job has ended: %s", cause)
            return
        record = FailureRecord(
            plain,
            self._clock.epoch_ms(),
            execution.task_name if execution else "",
            slot.endpoint if slot else "",
            slot.taskmanager_id if slot else "",
        )
        rank = failures.rank(plain, self._killing())
        if self.state in (JobStatus.FAILING, JobStatus.CANCELLING):
            self._fail_further(record, rank, reported)
        elif not self._restart_after(record, rank, failed or ([execution] if execution else ())):
            self._ending = self.graph.record_failure(record, rank, self._settings.kept_failures)
            self._reason_is_open = reported and failures.may_be_a_consequence(plain)
            self._restarts.clear()
            self._move(JobStatus.FAILING, cause)
            self._cancel_tasks(f"the job fails: {cause:.200}")

    def _fail_further(self, record: FailureRecord, rank: int, reported: bool) -> None:
        logger.info("further failure while %s: %s", self.state.name, record.failure["message"])
        if self._ending is None:
            self.graph.record_failure(record, rank, self._settings.kept_failures)
        elif self._ending.add(record, rank):
            self._reason_is_open = reported and failures.may_be_a_consequence(record.failure)
        self._check_end()

    # Restarts

    def _restart_after(self, record: FailureRecord, rank: int, failed: Sequence[Execution]) -> bool:
        """Whether a failure is answered by a restart; if so, what it touches is cancelled."""
        if not self.is_active or not record.failure.get("recoverable", True):
            return False
        now = self._clock.monotonic()
        regions = self._restarts.touched(failed)
        entry = self._restarts.entry(regions)
        if entry is not None:
            entry.add(record, rank)
        elif self._restarts.failed(now):
            entry = self.graph.record_failure(record, rank, self._settings.kept_failures)
            self._restarts.begin(regions, entry, now)
            self._declare_more()
        elif failures.is_of_infrastructure(record.failure) and self.checkpoints.is_committing:
            logger.warning("some results may be shown: the job goes on committing, though %s", self._restarts.strategy)
            entry = self.graph.record_failure(record, rank, self._settings.kept_failures)
            self.graph.restarts += 1
            self._restarts.begin(regions, entry, now, COMMIT_PAUSE)
            self._declare_more()
        else:
            logger.info("the job is not restarted: %s", self._restarts.strategy)
            return False
        cause = f"{record.failure['error_class']}: {record.failure['message']:.200}"
        if self.state is JobStatus.RUNNING:
            self._move(JobStatus.RESTARTING, cause)
        self._cancel_tasks(f"restart after {cause}", self.graph.in_regions(regions))
        return True

    def _check_restart(self) -> None:
        """Start again what has ended and waited long enough."""
        now = self._clock.monotonic()
        ready = self._restarts.take_ready(now)
        due = self._restarts.next_due(now)
        if due is not None:
            self._out.append(do.SetTimer(RESTART_TIMER, max(due, SLACK)))
        if not ready:
            return
        again = [execution for region in ready for execution in self.graph.restart(region)]
        if not self._restarts:
            self._ending_since = None
            self._out.append(do.ClearTimer(CANCEL_TIMER))
            self._move(JobStatus.RUNNING, f"restarted {len(again)} tasks")
        self._start_again(again)

    def _killing(self) -> bool:
        """Whether a slot that dies now was probably killed because its tasks would not end."""
        timeout = self._settings.cancellation_timeout
        return bool(timeout and self._ending_since is not None) and (
            self._clock.monotonic() - (self._ending_since or 0.0) >= timeout
        )

    def _cancel_tasks(self, cause: str, executions: Iterable[Execution] | None = None) -> None:
        if self._ending_since is None:
            self._ending_since = self._clock.monotonic()
        self.checkpoints.coordinator.tasks_failed(cause)
        by_slot: dict[tuple[str, str], list[str]] = {}
        for execution in self.graph.executions() if executions is None else executions:
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
        cause = "did not end in time; its slot is released"
        late = [e for e in self.graph.executions() if not e.state.is_terminal]
        if self.state is JobStatus.RESTARTING:
            late = [e for e in late if e.state is ExecutionState.CANCELING]
        for execution in late:
            execution.machine.move(ExecutionState.CANCELED, cause)
        if self.state is JobStatus.RESTARTING:  # they may still run there
            for slot in {e.slot.allocation_id: e.slot for e in late if e.slot is not None}.values():
                self._abandon_slot(slot, "tasks did not end in time")
        self._check_end()

    def _close_reason(self) -> None:
        self._reason_is_open = False
        self._check_end()

    def _check_end(self) -> None:
        if self.state is JobStatus.RESTARTING:
            self._check_restart()
            return
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
        for name in (SLOTS_TIMER, CANCEL_TIMER, SPLITS_TIMER, REASON_TIMER, IDLE_TIMER, RESTART_TIMER):
            self._out.append(do.ClearTimer(name))
        last = self.checkpoints.coordinator.left(self.state.name)
        for slot in self.pool.close():
            self._out.append(do.ReleaseSlot(slot.taskmanager_id, slot.allocation_id, cause, last))
        self.checkpoints.coordinator.close(self.state.name)
        self._out.append(do.DisconnectResourceManager())

    def _move(self, to: JobStatus, cause: str) -> None:
        self.graph.move_job(to, cause)
        self._out.append(do.ReportState(to.name, job_timestamps(self.graph)))

    def _take(self) -> list[do.Instruction]:
        out, self._out = self._out, []
        return out
