"""The decisions of a JobMaster: events in, instructions out. No I/O, no waiting."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from firesteel.common.job_status import JobStatus
from firesteel.connectors.enumerators import create_enumerator
from firesteel.core.clock import Clock
from firesteel.core.errors import GraphError, ProgramError, ProtocolError, RpcError
from firesteel.core.ids import AllocationId
from firesteel.graph.execution_graph import Execution, Slot
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol import messages as m
from firesteel.protocol.deployment import TaskFailure
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel_jobmaster import failures
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.deployments import deployment_of
from firesteel_jobmaster.life_cycle import (
    CANCEL_TIMER,
    IDLE_TIMER,
    REASON_TIMER,
    SLOTS_TIMER,
    SPLITS_TIMER,
    JobLifeCycle,
)
from firesteel_jobmaster.settings import JobMasterSettings
from firesteel_jobmaster.splits import EnumeratorFactory, SplitAssigner

logger = logging.getLogger(__name__)
TIMER_SLACK = 0.01
"""Seconds by which a timer may be early."""
MISSED_REPORTS = 2
"""A task that its TaskManager does not list in so many heartbeats in a row is lost."""


class JobMasterCore(JobLifeCycle):
    """One job from its start to its end. Single-threaded; every method returns what to do now.

    Messages may come late, twice or never: what does not fit the current state is logged and ignored.

    Args:
        job_graph: validated.
        settings: of this job.
        clock: stamps states.
        create: makes the enumerators of sources.
    """

    def __init__(
        self,
        job_graph: JobGraph,
        settings: JobMasterSettings,
        clock: Clock,
        create: EnumeratorFactory = create_enumerator,
    ) -> None:
        super().__init__(job_graph, settings, clock)
        self._create = create
        self._splits: SplitAssigner | None = None
        self._deployed = self._committing = self._connected = False
        self._submitted: set[str] = set()
        self._watched: set[str] = set()
        self._missed: Counter[str] = Counter()

    # What others ask

    @property
    def waits_for_slots(self) -> bool:
        """Whether slots are missing."""
        return self.state in (JobStatus.CREATED, JobStatus.RUNNING) and not self._deployed

    def collector(self, operator_id: str) -> Execution:
        """The task that holds the results of a collect operator.

        Raises:
            ProtocolError: the job has no such operator.
        """
        for job_vertex in self.graph.vertices.values():
            if job_vertex.vertex.collects == operator_id:
                return job_vertex.executions()[0]
        raise ProtocolError("collect", f"the job has no collect operator {operator_id!r}")

    def holds_slot_of(self, execution: Execution) -> bool:
        """Whether the job still has the slot in which a task ran."""
        return execution.slot is not None and execution.slot.allocation_id in self.pool

    def allocations_at(self, taskmanager_id: str) -> tuple[str, ...]:
        """The slots that the job holds at a TaskManager."""
        return tuple(s.allocation_id for s in self.pool.at(taskmanager_id))

    # Start and slots

    def start(self) -> list[do.Instruction]:
        """The job begins: it asks for its slots."""
        try:
            self._splits = SplitAssigner(self.graph.job_graph, self._create)
        except GraphError as error:
            self._fail(failures.internal(error, "making the split enumerators"))
            return self._take()
        except ProgramError as error:
            self._fail(failures.of_the_user(error))
            return self._take()
        except OSError as error:
            self._fail(failures.external(str(error), OSError))
            return self._take()
        self._move(JobStatus.CREATED, "submitted")
        self._move(JobStatus.RUNNING, "scheduling started")
        self._out.append(do.ConnectResourceManager())
        self._out.append(do.SetTimer(SLOTS_TIMER, self._settings.slot_request_timeout))
        return self._take()

    def resourcemanager_connected(self) -> list[do.Instruction]:
        """The job is registered (again)."""
        self._connected = True
        if not self.is_terminal:
            self._declare()
        return self._take()

    def _declare(self) -> None:
        self._out.append(do.DeclareSlots(self.pool.needed, tuple(self.pool.returned)))

    def resourcemanager_lost(self, cause: str) -> list[do.Instruction]:
        """It does not know this job any more, or is silent."""
        self._connected = False
        if not self.is_terminal:
            logger.warning("the ResourceManager is lost (%s): registering again", cause)
            self._out.append(do.ConnectResourceManager())
        return self._take()

    def offer_slots(self, offer: m.OfferSlots) -> tuple[tuple[str, ...], list[do.Instruction]]:
        """Slots of a TaskManager; answers which of them the job takes."""
        accepted: list[str] = []
        for s in offer.slots:
            slot = Slot(
                AllocationId(s.allocation_id),
                offer.taskmanager_id,
                offer.taskmanager_address,
                s.slot_index,
                s.data_address,
                s.pid,
            )
            known = s.allocation_id in self.pool
            if (known or self.waits_for_slots) and self.pool.offer(slot):
                accepted.append(s.allocation_id)
            else:
                logger.info("slot %s is not needed (job %s)", failures.where_is(slot), self.state.name)
        if accepted and offer.taskmanager_id not in self._watched:
            self._watched.add(offer.taskmanager_id)
            self._out.append(do.WatchTaskManager(offer.taskmanager_id, offer.taskmanager_address))
        if self.waits_for_slots and self.pool.is_full:
            self._deploy()
        return tuple(accepted), self._take()

    def _deploy(self) -> None:
        self._deployed = True
        self._out.append(do.ClearTimer(SLOTS_TIMER))
        self.graph.place(self.pool.slots())
        for execution in self.graph.executions():
            execution.machine.move(ExecutionState.SCHEDULED, "all slots are there")
            execution.machine.move(ExecutionState.DEPLOYING, "submitted to its slot")
        for slot in self.graph.placed_slots():
            deployment = deployment_of(self.graph, slot.allocation_id, self._settings.for_slots)
            self._out.append(do.SubmitSlot(slot.taskmanager_id, slot.allocation_id, deployment))

    def tasks_submitted(self, allocation_id: str) -> list[do.Instruction]:
        """The TaskManager took the tasks of a slot."""
        self._submitted.add(allocation_id)
        return self._take()

    def submit_failed(self, allocation_id: str, cause: str) -> list[do.Instruction]:
        """The TaskManager did not take the tasks of a slot, or did not answer."""
        slot = self.pool.get(allocation_id)
        if slot is not None:
            executions = self.graph.executions_in(allocation_id)
            self._end_in_slot(
                executions, failures.submit_failed(failures.where_is(slot), cause, _first(executions)), slot
            )
        return self._take()

    def fail_slot(self, taskmanager_id: str, allocation_id: str, cause: str) -> list[do.Instruction]:
        """A slot is gone, or never came."""
        slot = self.pool.get(allocation_id)
        if slot is not None and slot.taskmanager_id == taskmanager_id:
            self._slot_lost(slot, cause)
        elif slot is None and self.waits_for_slots and taskmanager_id:
            self._fail(failures.slot_lost(f"of TaskManager {taskmanager_id}", cause, None))
        else:
            logger.info("loss of slot %s is ignored: the job does not hold it (%s)", allocation_id, cause)
        return self._take()

    def taskmanager_lost(self, taskmanager_id: str, cause: str) -> list[do.Instruction]:
        """A TaskManager is gone with all its slots."""
        self._watched.discard(taskmanager_id)
        for slot in self.pool.at(taskmanager_id):
            self._slot_lost(slot, cause)
        return self._take()

    def _slot_lost(self, slot: Slot, cause: str) -> None:
        if self.pool.is_idle(slot.allocation_id):
            self._give_back(slot)
        self.pool.remove(slot.allocation_id)
        # Tell its TaskManager too: if that is not gone itself, nothing of the slot may stay behind.
        self._out.append(do.ReleaseSlot(slot.taskmanager_id, slot.allocation_id, f"lost: {cause}"))
        executions = self.graph.executions_in(slot.allocation_id)
        if not executions:  # lost before it was used
            self._fail(failures.slot_lost(failures.where_is(slot), cause, None), slot)
            return
        self._end_in_slot(
            executions, failures.slot_lost(failures.where_is(slot), cause, _first(executions)), slot, lost=True
        )

    def _end_in_slot(
        self, executions: Sequence[Execution], failure: TaskFailure, slot: Slot, lost: bool = False
    ) -> None:
        running = [e for e in executions if not e.state.is_terminal]
        if not running:
            logger.info("all tasks of slot %s had ended before: %s", failures.where_is(slot), failure.message)
            if lost and self.state is JobStatus.FAILING:
                self._fail(failure, slot, executions[0])
            return
        for execution in running:
            canceling = execution.state is ExecutionState.CANCELING
            execution.machine.move(ExecutionState.CANCELED if canceling else ExecutionState.FAILED, failure.message)
        self._fail(failure, slot, running[0])

    def notify_no_resources(self, message: m.NotifyNoResources) -> list[do.Instruction]:
        """The cluster can't give what the job needs."""
        if self.waits_for_slots and not self.pool.is_full:
            text = self._missing_slots(f"the cluster has {message.total} in all", message.message)
            self._fail(failures.no_resources(text))
        else:
            logger.info("ignored, the job has its slots: %s", message.message)
        return self._take()

    def _missing_slots(self, present: str, detail: str = "") -> str:
        groups = Counter(shared.group for shared in self.graph.shared_slots)
        parts = ", ".join(f"{count} for group {name!r}" for name, count in groups.items())
        text = (
            f"Job {self.graph.job_graph.name!r} needs {self.pool.needed} slots ({parts}) and {present}. "
            "Lower its parallelism, put operators into fewer slot sharing groups, wait for other jobs to end, "
            "or give the cluster more slots (taskmanager.numberOfTaskSlots, more TaskManagers)."
        )
        return f"{text} {detail}".strip()

    # Tasks

    def update_task_states(self, update: m.UpdateTaskStates) -> list[do.Instruction]:
        """Reports of a TaskManager, in their order."""
        sender = update.taskmanager_id
        for u in update.updates:
            execution = self.graph.execution(u.execution_id)
            if execution is None or execution.slot is None or execution.slot.taskmanager_id != sender:
                logger.warning("state %s of %s is ignored: %s does not run it", u.state, u.execution_id, sender)
            else:
                self._task_state(execution, u.state, u.error, u.metrics)
        return self._take()

    def _task_state(
        self, execution: Execution, state: str, error: Mapping[str, Any] | None, metrics: Mapping[str, Any] | None
    ) -> None:
        try:
            reported = ExecutionState(state)
        except ValueError:
            logger.warning("unknown state %r of %s is ignored", state, execution.task_name)
            return
        if metrics is not None:
            execution.update_metrics(metrics, final=reported.is_terminal)
        before = execution.state
        if not execution.report(reported, "reported by its slot"):
            logger.debug("%s: report %s changes nothing in %s", execution.task_name, state, before.value)
            return
        if reported is ExecutionState.FAILED:
            self._fail(failures.from_report(error, execution), execution.slot, execution, reported=True)
        elif reported is ExecutionState.CANCELED and before is not ExecutionState.CANCELING:
            text = "The task ended as CANCELED although nobody cancelled it."
            self._fail(failures.external(text, RuntimeError, execution), execution.slot, execution)
        elif reported.is_terminal:
            self._check_idle(execution)
            self._check_commit()
            self._check_end()

    def _check_idle(self, execution: Execution) -> None:
        slot = execution.slot
        if self.state is not JobStatus.RUNNING or slot is None or self.graph.all_terminal():
            return
        if not all(e.state is ExecutionState.FINISHED for e in self.graph.executions_in(slot.allocation_id)):
            return
        if self.pool.longest_idle is None:
            self._out.append(do.SetTimer(IDLE_TIMER, self._settings.slot_idle_timeout))
        self.pool.idle(slot.allocation_id, self._clock.monotonic())

    def _give_back(self, slot: Slot) -> None:
        self.pool.give_back(slot.allocation_id)
        if self._connected:
            self._declare()

    def _return_idle_slots(self) -> None:
        timeout, now = self._settings.slot_idle_timeout, self._clock.monotonic()
        idle = self.pool.idle_before(now - timeout + TIMER_SLACK)
        for slot in idle:
            self._give_back(slot)
            cause = f"all its tasks have finished, and it was not used for {timeout:g} s (slot.idle.timeout)"
            self._out.append(do.ReleaseSlot(slot.taskmanager_id, slot.allocation_id, cause))
            if not self.pool.at(slot.taskmanager_id):
                self._watched.discard(slot.taskmanager_id)
                self._out.append(do.ForgetTaskManager(slot.taskmanager_id))
        since = self.pool.longest_idle
        if since is not None:
            self._out.append(do.SetTimer(IDLE_TIMER, max(since + timeout - now, TIMER_SLACK)))

    def request_splits(self, request: m.RequestSplits) -> tuple[m.Splits, list[do.Instruction]]:
        """A source subtask asks for work, perhaps again because it did not get the answer.

        Raises:
            RpcFault: this job has no such task.
            ProtocolError: it is not a source.
        """
        execution = self._known(request.execution_id)
        if self._splits is None or not self._splits.has(execution.vertex.id):
            raise ProtocolError("request_splits", f"{execution.task_name} is not a source")
        if self.state is not JobStatus.RUNNING or execution.state.is_terminal:
            return m.Splits((), False), self._take()
        try:
            given = self._splits.answer(execution, request.number)
        except Exception as error:  # the enumerator is a plug-in
            self._fail(failures.internal(error, f"looking for splits for {execution.task_name}"))
            return m.Splits((), False), self._take()
        if not given.serial:
            self._out.append(do.SetTimer(SPLITS_TIMER, self._settings.splits_interval))
        return given, self._take()

    def splits_lost(self, execution_id: str) -> list[do.Instruction]:
        """Splits did not reach a subtask: they would never be read."""
        execution = self._known(execution_id)
        if self.state is JobStatus.RUNNING and not execution.state.is_terminal:
            text = f"Splits did not reach {execution.task_name}: its TaskManager did not take them."
            self._fail(failures.external(text, RpcError, execution), execution.slot, execution)
        return self._take()

    def end_of_data(self, execution_id: str) -> list[do.Instruction]:
        """A task has all its results durable and waits for the commit.

        Raises:
            RpcFault: this job has no such task.
            ProtocolError: it has nothing to commit.
        """
        execution = self._known(execution_id)
        if not execution.vertex.needs_commit:
            raise ProtocolError("end_of_data", f"{execution.task_name} has nothing to commit")
        if self.state is JobStatus.RUNNING and not execution.state.is_terminal:
            execution.report(ExecutionState.RUNNING, "is at the end of its data")
            execution.end_of_data = True
            if self._committing:  # said again: the commit may have been lost
                self._commit(execution)
            else:
                self._check_commit()
        return self._take()

    def _check_commit(self) -> None:
        if self.state is not JobStatus.RUNNING or self._committing:
            return
        executions = self.graph.executions()
        if all(e.end_of_data or e.state is ExecutionState.FINISHED for e in executions):
            self._committing = True
            for execution in executions:
                if execution.end_of_data and not execution.state.is_terminal:
                    self._commit(execution)

    def _commit(self, execution: Execution) -> None:
        if execution.slot is not None:
            slot = execution.slot
            self._out.append(do.CommitInSlot(slot.taskmanager_id, slot.allocation_id, execution.id))

    def report_metrics(self, report: m.ReportMetrics) -> list[do.Instruction]:
        """Running totals of tasks."""
        self._metrics(report.tasks)
        return self._take()

    def _metrics(self, tasks: Mapping[str, Mapping[str, Any]]) -> None:
        for execution_id, metrics in tasks.items():
            execution = self.graph.execution(execution_id)
            if execution is not None:
                execution.update_metrics(metrics)

    def taskmanager_heartbeat(self, taskmanager_id: str, report: m.ExecutionReport) -> list[do.Instruction]:
        """What a TaskManager says it runs: makes up for reports that were lost."""
        self._metrics(report.metrics)
        for execution in self.graph.executions_at(taskmanager_id):
            slot, reported = execution.slot, report.executions.get(execution.id)
            if slot is None:
                continue
            if execution.state.is_terminal:
                self._cancel_stray(execution, slot, reported)
                continue
            if slot.allocation_id not in self._submitted:
                continue
            if reported is not None and reported != ExecutionState.FAILED.value:
                self._missed.pop(execution.id, None)
                self._task_state(execution, reported, None, None)
                continue
            self._missed[execution.id] += 1  # gone, or failed and the reason is on its way
            if self._missed[execution.id] >= MISSED_REPORTS:
                cause = f"TaskManager {taskmanager_id} does not run {execution.task_name} any more"
                self._end_in_slot([execution], failures.slot_lost(failures.where_is(slot), cause, execution), slot)
        return self._take()

    def _cancel_stray(self, execution: Execution, slot: Slot, reported: str | None) -> None:
        """A task that the job has given up, and that runs all the same (its submit was not answered, say)."""
        if (
            execution.state is not ExecutionState.FINISHED
            and reported in (ExecutionState.INITIALIZING.value, ExecutionState.RUNNING.value)
            and slot.allocation_id in self.pool
        ):
            logger.warning("%s runs although it was given up: it is cancelled", execution.task_name)
            self._out.append(do.CancelSlotTasks(slot.taskmanager_id, slot.allocation_id, (execution.id,)))

    def _known(self, execution_id: str) -> Execution:
        execution = self.graph.execution(execution_id)
        if execution is None:
            job_id = self.graph.job_graph.job_id
            raise RpcFault(RpcCode.UNKNOWN_EXECUTION, f"job {job_id} has no task {execution_id!r}")
        return execution

    def timer_fired(self, name: str) -> list[do.Instruction]:
        """A timer is up."""
        if self.is_terminal:
            logger.debug("timer %s is late", name)
        elif name == SLOTS_TIMER and self.waits_for_slots:
            seconds = self._settings.slot_request_timeout
            present = f"{len(self.pool)} of them came within {seconds:g} s (slot.request.timeout)"
            detail = "" if self._connected else "The ResourceManager does not answer."
            self._fail(failures.no_resources(self._missing_slots(present, detail)))
        elif name == CANCEL_TIMER:
            self._give_up_tasks()
        elif name == REASON_TIMER:
            self._close_reason()
        elif name == IDLE_TIMER:
            self._return_idle_slots()
        elif name == SPLITS_TIMER and self._splits is not None and self.state is JobStatus.RUNNING:
            self._offer_splits(self._splits)
        return self._take()

    def _offer_splits(self, assigner: SplitAssigner) -> None:
        try:
            found = assigner.retry()
        except Exception as error:  # the enumerator is a plug-in
            self._fail(failures.internal(error, "looking for splits"))
            return
        for execution, given in found:
            if execution.slot is not None:
                slot = execution.slot
                self._out.append(do.PushSplits(slot.taskmanager_id, slot.allocation_id, execution.id, given))
        if assigner.someone_waits:
            self._out.append(do.SetTimer(SPLITS_TIMER, self._settings.splits_interval))


def _first(executions: Sequence[Execution]) -> Execution | None:
    return next((e for e in executions if not e.state.is_terminal), None)
