"""The decisions of a JobMaster: events in, instructions out. No I/O, no waiting."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from firesteel.common.job_status import JobStatus
from firesteel.connectors.enumerators import create_enumerator
from firesteel.core.clock import Clock
from firesteel.core.errors import GraphError, ProgramError, ProtocolError, RpcError
from firesteel.core.ids import VertexId
from firesteel.graph.execution_graph import Execution, Slot
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol import messages as m
from firesteel.protocol.alignment import GroupWatermark, ReportWatermark
from firesteel.protocol.deployment import TaskFailure
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.protocol.split_messages import OperatorEvents
from firesteel_jobmaster import failures
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.alignment import AlignmentGroups
from firesteel_jobmaster.checkpoints.coordinator import TIMER as CHECKPOINT_TIMER
from firesteel_jobmaster.checkpoints.of_job import JobCheckpoints
from firesteel_jobmaster.checkpoints.work import Done
from firesteel_jobmaster.life_cycle import (
    CANCEL_TIMER,
    IDLE_TIMER,
    REASON_TIMER,
    RESTART_TIMER,
    SLOTS_TIMER,
    SPLITS_TIMER,
)
from firesteel_jobmaster.scheduling import JobScheduling
from firesteel_jobmaster.settings import JobMasterSettings
from firesteel_jobmaster.splits import EnumeratorFactory, SplitAssigner

logger = logging.getLogger(__name__)
MISSED_INTERVALS = 0.9
"""A task that its TaskManager has not listed for so many heartbeat intervals is lost: two regular heartbeats in a row.
Others may come in between, and what became of the task may still be on its way."""


class JobMasterCore(JobScheduling):
    """One job from its start to its end. Single-threaded; every method returns what to do now.

    Messages may come late, twice or never: what does not fit the current state is logged and ignored.

    Args:
        job_graph: validated.
        settings: of this job.
        clock: stamps states.
        create: makes the enumerators of sources.
        may_recover: there may be checkpoints of an earlier JobMaster of the job.
        takeover: how many JobMasters of the job were lost before, and why the last of them was.
        first_attempt: of the tasks; those of JobMasters before have smaller numbers.
    """

    def __init__(
        self,
        job_graph: JobGraph,
        settings: JobMasterSettings,
        clock: Clock,
        create: EnumeratorFactory = create_enumerator,
        may_recover: bool = False,
        takeover: tuple[int, str] = (0, ""),
        first_attempt: int = 0,
    ) -> None:
        super().__init__(job_graph, settings, clock, takeover, first_attempt)
        self.checkpoints = JobCheckpoints(self, settings.checkpoints, clock, lambda: self._splits, may_recover)
        self._start_when_settled: list[Execution] = []
        self._create = create
        self._splits: SplitAssigner | None = None
        self._alignment = AlignmentGroups(self._is_live)
        self._missed: dict[str, float] = {}
        """Tasks that their TaskManager did not list, and since when."""
        self.is_followed = False
        """Another JobMaster leads the job."""

    # What others ask

    def collector(self, operator_id: str) -> Execution:
        """The task that holds the results of a collect operator.

        Raises:
            ProtocolError: the job has no such operator.
        """
        for job_vertex in self.graph.vertices.values():
            if job_vertex.vertex.collects == operator_id:
                return job_vertex.executions()[0]
        raise ProtocolError("collect", f"the job has no collect operator {operator_id!r}")

    # Start and restart

    def start(self) -> list[do.Instruction]:
        """The job begins: it asks for its slots."""
        self.checkpoints.start()
        try:
            self._splits = SplitAssigner(self.graph.job_graph, self._create)
            if self.checkpoints.is_settled:
                self._splits.begin(None)
        except Exception as error:  # enumerators are plug-ins, and look at the world outside
            self._sources_failed(error, ())
            return self._take()
        self._move(JobStatus.CREATED, "submitted")
        self._move(JobStatus.RUNNING, "scheduling started")
        self._out.append(do.ConnectResourceManager())
        self._out.append(do.SetTimer(SLOTS_TIMER, self._settings.slot_request_timeout))
        return self._take()

    def _sources_failed(self, error: Exception, executions: Sequence[Execution]) -> None:
        """Enumerators of sources raised: what the program says is wrong, or they can't look."""
        if isinstance(error, GraphError):
            failure = failures.internal(error, "making the split enumerators")
        elif isinstance(error, ProgramError):
            failure = failures.of_the_user(error)
        elif isinstance(error, OSError):
            failure = failures.external(str(error), OSError)
        else:
            failure = failures.internal(error, "looking for splits", recoverable=True)
        self._fail(failure, execution=executions[0] if len(executions) == 1 else None, failed=executions)

    def _start_again(self, executions: Sequence[Execution]) -> None:
        """See ``JobLifeCycle``: sources begin anew, or go on from the checkpoint."""
        if not self.checkpoints.is_settled:
            self._start_when_settled += executions
            return
        self._submitted = {id_ for id_ in self._submitted if self._is_live(id_)}
        self._missed = {id_: since for id_, since in self._missed.items() if self._is_live(id_)}
        try:
            if self._splits is not None:
                self._splits.restart(executions, self.checkpoints.restarting())
        except Exception as error:  # enumerators are plug-ins, and look at the world outside
            self._sources_failed(error, executions)
            return
        self._declare()
        self._schedule()
        if self.waits_for_slots:
            self._out.append(do.SetTimer(SLOTS_TIMER, self._settings.slot_request_timeout))

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
        if reported in (ExecutionState.RUNNING, ExecutionState.FINISHED):
            self.checkpoints.task_reported(execution)
            self._enumerators_hear(execution)
        if reported is ExecutionState.FAILED:
            damaged = error is not None and self.checkpoints.failure_reported(execution, error)
            failed = self.graph.executions() if damaged else ()
            self._fail(failures.from_report(error, execution), execution.slot, execution, reported=True, failed=failed)
        elif reported is ExecutionState.CANCELED and before is not ExecutionState.CANCELING:
            text = "The task ended as CANCELED although nobody cancelled it."
            self._fail(failures.external(text, RuntimeError, execution), execution.slot, execution)
        elif reported.is_terminal:
            self._check_idle(execution)
            self._check_commit()
            self._check_end()

    def request_splits(self, request: m.RequestSplits) -> tuple[m.Splits, list[do.Instruction]]:
        """A source subtask asks for work, perhaps again because it did not get the answer.

        Raises:
            RpcFault: this job has no such task.
            ProtocolError: it is not a source.
        """
        execution = self._known(request.execution_id)
        if self._splits is None or not self._splits.has(execution.vertex.id):
            raise ProtocolError("request_splits", f"{execution.task_name} is not a source")
        if not self.is_active or execution.state.is_terminal:
            return m.Splits((), False), self._take()
        try:
            given = self._splits.answer(execution, request.number, request.taken)
        except Exception as error:  # the enumerator is a plug-in
            self._sources_failed(error, [execution])
            return m.Splits((), False), self._take()
        if not given.serial and self._splits.someone_waits:
            self._out.append(do.SetTimer(SPLITS_TIMER, self._settings.splits_interval))
        self._send_operator_events(self._splits)
        return given, self._take()

    # Enumerators of users, which run in tasks of their own

    def _enumerators_hear(self, execution: Execution) -> None:
        """A task runs, or has finished."""
        link = None if self._splits is None else self._splits.link(execution.vertex)
        if self._splits is None or link is None:
            return
        if execution.vertex.enumerates is not None:
            link.enumerator_runs(execution)
        elif execution.state is ExecutionState.FINISHED:
            readers = self.graph.vertices[VertexId(execution.vertex.id)].executions()
            if all(reader.state is ExecutionState.FINISHED for reader in readers):
                link.readers_ended()
        elif not self.checkpoints.has_finished(execution):
            link.reader_runs(execution)
        self._send_operator_events(self._splits)

    def _send_operator_events(self, splits: SplitAssigner) -> None:
        for execution, number, events in splits.take_events():
            slot = execution.slot
            if slot is not None and not execution.state.is_terminal:
                told = do.SendOperatorEvents(slot.taskmanager_id, slot.allocation_id, execution.id, number, events)
                self._out.append(told)

    def operator_events(self, message: OperatorEvents) -> list[do.Instruction]:
        """A user's enumerator has decided something.

        Raises:
            RpcFault: this job has no such task.
            ProtocolError: it runs no enumerator.
        """
        execution = self._known(message.execution_id)
        link = None if self._splits is None else self._splits.link(execution.vertex)
        if link is None or execution.vertex.enumerates is None:
            raise ProtocolError("send_operator_events", f"{execution.task_name} runs no enumerator")
        if not self.is_active or execution.state.is_terminal:
            return self._take()
        try:
            given = link.received(execution, message.number, message.events)
        except ProtocolError as error:
            self._fail(failures.internal(error, "handing out splits", recoverable=True), execution.slot, execution)
            return self._take()
        self._push(given)
        return self._take()

    def operator_events_lost(self, execution_id: str) -> list[do.Instruction]:
        """A user's enumerator did not hear of something: it can't go on."""
        execution = self._known(execution_id)
        if self.is_active and not execution.state.is_terminal:
            text = f"{execution.task_name} did not hear of its readers: its TaskManager did not take it."
            self._fail(failures.external(text, RpcError, execution), execution.slot, execution)
        return self._take()

    def _push(self, found: Iterable[tuple[Execution, m.Splits]]) -> None:
        for execution, given in found:
            if execution.slot is not None:
                slot = execution.slot
                self._out.append(do.PushSplits(slot.taskmanager_id, slot.allocation_id, execution.id, given))

    def report_watermark(self, report: ReportWatermark) -> GroupWatermark:
        """A source subtask has come so far: how far has its alignment group?"""
        self._known(report.execution_id)
        return GroupWatermark(self._alignment.report(report.group, report.execution_id, report.watermark))

    def _is_live(self, execution_id: str) -> bool:
        execution = self.graph.execution(execution_id)
        return execution is not None and not execution.state.is_terminal

    def splits_lost(self, execution_id: str) -> list[do.Instruction]:
        """Splits did not reach a subtask: they would never be read."""
        execution = self._known(execution_id)
        if self.is_active and not execution.state.is_terminal:
            text = f"Splits did not reach {execution.task_name}: its TaskManager did not take them."
            self._fail(failures.external(text, RpcError, execution), execution.slot, execution)
        return self._take()

    def end_of_data(self, execution_id: str) -> list[do.Instruction]:
        """A task has all its results durable and waits for the checkpoint whose completion commits them.

        Raises:
            RpcFault: this job has no such task.
            ProtocolError: it has nothing to commit.
        """
        execution = self._known(execution_id)
        if not execution.vertex.needs_commit and not self.checkpoints.commits_at_end:
            raise ProtocolError("end_of_data", f"{execution.task_name} has nothing to commit")
        if self.is_active and not execution.state.is_terminal:
            if execution.report(ExecutionState.RUNNING, "is at the end of its data"):
                self.checkpoints.task_reported(execution)
            execution.end_of_data = True
            self.checkpoints.coordinator.outputs_ended()
            self._check_commit()
        return self._take()

    def _check_commit(self) -> None:
        """All results are durable: what is to be committed is stored, and its being stored commits it."""
        if self.state is not JobStatus.RUNNING:
            return
        executions = [e for e in self.graph.executions() if e.vertex.enumerates is None]
        left = [e for e in executions if e.state is not ExecutionState.FINISHED]
        if left and all(e.end_of_data for e in left):
            self.checkpoints.coordinator.all_data_ended()

    # Checkpoints

    def acknowledge_checkpoint(self, message: m.AcknowledgeCheckpoint) -> list[do.Instruction]:
        """A task has written its state.

        Raises:
            RpcFault: this job has no such task.
        """
        execution = self._known(message.execution_id)
        self.checkpoints.coordinator.acknowledge(execution, message.checkpoint_id, message.metrics, message.state)
        return self._take()

    def decline_checkpoint(self, message: m.DeclineCheckpoint) -> list[do.Instruction]:
        """A task does not take part.

        Raises:
            RpcFault: this job has no such task.
        """
        execution = self._known(message.execution_id)
        self.checkpoints.coordinator.decline(execution, message.checkpoint_id, message.reason, message.failure)
        return self._take()

    def checkpoint_not_triggered(self, execution_ids: tuple[str, ...], checkpoint_id: int) -> list[do.Instruction]:
        """A TaskManager did not take the order to begin a checkpoint."""
        self.checkpoints.coordinator.not_triggered(execution_ids, checkpoint_id)
        return self._take()

    def trigger_checkpoint(self, trigger_id: str, full: bool = False) -> list[do.Instruction]:
        """Somebody wants a checkpoint now; what becomes of it is in the archive, under this id."""
        self.checkpoints.coordinator.request(trigger_id, full)
        return self._take()

    def checkpoint_work_done(self, done: Done) -> list[do.Instruction]:
        """Storage and store have done something, or could not."""
        self.checkpoints.coordinator.done(done)
        return self._take()

    def checkpoints_settled(self) -> None:
        """See ``checkpoints.of_job.Core``: what has waited for that is deployed."""
        if not self.is_active:
            return
        again = [e for e in self._start_when_settled if self._is_live(e.id)]
        self._start_when_settled = []
        point = self.checkpoints.restore_point()
        if again:
            self._start_again(again)
        elif self._splits is not None and not self._has_begun:
            try:
                self._splits.begin(point)
            except Exception as error:  # as in ``start``
                self._sources_failed(error, ())
                return
            if point is not None:
                self.checkpoints.restarting()
        self._schedule()

    def fail_job(self, failure: TaskFailure) -> None:
        """See ``checkpoints.of_job.Core``."""
        self._fail(failure)

    def leadership_lost(self, message: str) -> None:
        """See ``checkpoints.of_job.Core``."""
        self.is_followed = True
        logger.error("another JobMaster leads the job: this one stops (%s)", message)
        out = self.suspend(f"another JobMaster leads the job: {message}")
        self._out = out + self._out

    def followed(self, cause: str) -> list[do.Instruction]:
        """Another JobMaster leads the job, as those say who know."""
        if not self.is_followed:
            self.leadership_lost(cause)
        return self._take()

    # Totals

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
        now = self._clock.monotonic()
        for execution in self.graph.executions_at(taskmanager_id):
            slot, reported = execution.slot, report.executions.get(execution.id)
            if slot is None:
                continue
            if execution.state.is_terminal:
                self._cancel_stray(execution, slot, reported)
                continue
            if execution.id not in self._submitted:
                continue
            if reported is not None and reported != ExecutionState.FAILED.value:
                self._missed.pop(execution.id, None)
                self._task_state(execution, reported, None, None)
                continue
            since = self._missed.setdefault(execution.id, now)  # gone, or failed and the reason is on its way
            if now - since >= MISSED_INTERVALS * self._settings.heartbeat_interval:
                cause = f"TaskManager {taskmanager_id} does not run {execution.task_name} any more"
                inside = self.graph.executions_in(slot.allocation_id)
                if slot.allocation_id in self.pool:
                    self._drop(slot, cause)
                self._end_in_slot(inside, failures.slot_lost(failures.where_is(slot), cause, execution), slot)
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
        if name.startswith(CHECKPOINT_TIMER):
            self.checkpoints.coordinator.timer_fired(name)
        elif self.is_terminal:
            logger.debug("timer %s is late", name)
        elif name == SLOTS_TIMER and self.waits_for_slots:
            seconds = self._settings.slot_request_timeout
            if self.pool.is_full and not self.checkpoints.is_settled:  # the job waits for its storage, not for slots
                self._out.append(do.SetTimer(SLOTS_TIMER, seconds))
                return self._take()
            present = f"{len(self.pool)} of them came within {seconds:g} s (slot.request.timeout)"
            detail = "" if self._connected else "The ResourceManager does not answer."
            self._fail(failures.no_resources(self._missing_slots(present, detail)), failed=self._waiting())
        elif name == CANCEL_TIMER:
            self._give_up_tasks()
        elif name == REASON_TIMER:
            self._close_reason()
        elif name == IDLE_TIMER:
            self._return_idle_slots()
        elif name == RESTART_TIMER:
            self._check_end()
        elif name == SPLITS_TIMER and self._splits is not None and self.is_active:
            self._offer_splits(self._splits)
        return self._take()

    def _offer_splits(self, assigner: SplitAssigner) -> None:
        try:
            found = assigner.retry()
        except Exception as error:  # the enumerator is a plug-in
            self._sources_failed(error, ())
            return
        self._push(found)
        if assigner.someone_waits:
            self._out.append(do.SetTimer(SPLITS_TIMER, self._settings.splits_interval))
