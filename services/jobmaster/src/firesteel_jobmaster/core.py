"""The decisions of a JobMaster: events in, instructions out. No I/O, no waiting.

This module hands each event to the part that decides about it: slots (``job_slots``, ``losses``), tasks (``deploying``,
``task_reports``, ``sources``), what follows from failures (``failover``), and the end (``ending``). The parts share
``job_state``, and ask a ``layout`` how many subtasks the job has, and where.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from firesteel.checkpoint import savepoints
from firesteel.common.job_status import JobStatus
from firesteel.connectors.enumerators import create_enumerator
from firesteel.core.clock import Clock
from firesteel.core.errors import PeerUnreachableError, ProtocolError
from firesteel.graph.bounded import is_batch
from firesteel.graph.execution_graph import Execution, ExecutionGraph, FailureRecord
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_archive import CLEAN_UP, EVENTS, LOGS, archive_in_slices, job_timestamps, restart_times
from firesteel.graph.job_events import EventType
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol import messages as m
from firesteel.protocol.alignment import GroupWatermark, ReportWatermark
from firesteel.protocol.split_messages import OperatorEvents
from firesteel.protocol.stages import RunLook
from firesteel_jobmaster import failures
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.batch_layout import BatchLayout
from firesteel_jobmaster.checkpoint_work import WorkResult
from firesteel_jobmaster.checkpointed_job import CheckpointedJob
from firesteel_jobmaster.checkpoints.coordinator import TIMER as CHECKPOINT_TIMER
from firesteel_jobmaster.checkpoints.of_job import JobCheckpoints
from firesteel_jobmaster.checkpoints.pending import SavepointTarget
from firesteel_jobmaster.fixed_layout import FixedLayout
from firesteel_jobmaster.job_state import (
    CANCEL_TIMER,
    IDLE_TIMER,
    REASON_TIMER,
    RESTART_TIMER,
    SLOTS_TIMER,
    SPLITS_TIMER,
    JobState,
)
from firesteel_jobmaster.layout import JobLayout
from firesteel_jobmaster.parts import JobParts, parts_of
from firesteel_jobmaster.reactive_layout import ReactiveLayout
from firesteel_jobmaster.settings import JobMasterSettings
from firesteel_jobmaster.splits import EnumeratorFactory
from firesteel_jobmaster.stimuli import Stimuli

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")


def query(
    decide: Callable[Concatenate[JobMasterCore, P], T],
) -> Callable[Concatenate[JobMasterCore, P], tuple[T, list[do.Instruction]]]:
    """Make a method an event of the core, which returns its answer, and the instructions that follow."""

    @wraps(decide)
    def handle(core: JobMasterCore, /, *args: P.args, **kwargs: P.kwargs) -> tuple[T, list[do.Instruction]]:
        core.stimuli.record(core.graph.clock.monotonic(), decide.__name__, args)
        answer = decide(core, *args, **kwargs)
        return answer, core.settle()

    return handle


def event(
    decide: Callable[Concatenate[JobMasterCore, P], None],
) -> Callable[Concatenate[JobMasterCore, P], list[do.Instruction]]:
    """Make a method an event of the core, which returns the instructions that follow."""

    @wraps(decide)
    def handle(core: JobMasterCore, /, *args: P.args, **kwargs: P.kwargs) -> list[do.Instruction]:
        core.stimuli.record(core.graph.clock.monotonic(), decide.__name__, args)
        decide(core, *args, **kwargs)
        return core.settle()

    return handle


class JobMasterCore:
    """One job from its start to its end. Single-threaded; every event returns what to do now.

    Messages may come late, twice or never: what does not fit the current state is logged and ignored. Events raise
    ``RpcFault`` about a task that the job does not have, and ``ProtocolError`` about one that can't have said that.

    Args:
        job_graph: validated.
        settings: of this job.
        clock: stamps states.
        create: makes the enumerators of sources.
        may_recover: there may be checkpoints of an earlier JobMaster of the job.
        takeover: how many JobMasters of the job were lost before, and why the last of them was.
        first_attempt: of the tasks, if it is larger than that number; those of JobMasters before have smaller numbers.
        events: of the job's life before.
    """

    validates = False
    """Whether ``validate`` is called after each event, as tests want it."""

    def __init__(
        self,
        job_graph: JobGraph,
        settings: JobMasterSettings,
        clock: Clock,
        create: EnumeratorFactory = create_enumerator,
        may_recover: bool = False,
        takeover: tuple[int, str] = (0, ""),
        first_attempt: int = 0,
        events: Mapping[str, Any] | None = None,
    ) -> None:
        count, cause = takeover
        is_reactive = settings.reactive is not None and not is_batch(job_graph)
        if is_reactive:  # each failure restarts all tasks
            settings = replace(settings, failover_by_region=False)
        follows = count > 0 or first_attempt > 0
        self.graph = ExecutionGraph(job_graph, clock, count, first_attempt=max(count, first_attempt))
        self.graph.restarts = count
        if count:
            self.graph.restarted_ms.append(clock.epoch_ms())
            lost = failures.external(cause, PeerUnreachableError).to_plain()
            self.graph.record_failure(FailureRecord(lost, clock.epoch_ms()), failures.rank(lost))
        self._state = JobState(settings, clock, self.graph, has_deployed=follows)
        self.pool = self._state.pool
        self._job = parts_of(self._state, create)
        self.checkpoints = self._state.checkpoints = JobCheckpoints(
            CheckpointedJob(self._job), settings.checkpoints, clock, may_recover, follows=follows
        )
        self._events = self._state.events
        self._events.restore(events or {})
        if count:
            self._events.add(EventType.JOBMASTER_LOST, cause)
        self.checkpoints.coordinator.on_outcome = self._events.checkpoint_ended
        self.checkpoints.coordinator.requests.on_end = self._events.request_ended
        self._layout = self._state.layout = _layout_of(job_graph, settings, self._job)
        self._archive: dict[str, Any] | None = None
        """What people see of the job once it has ended; None before."""
        self.logs: dict[str, str] = {}
        """Where logs of the JobMaster are (``firesteel.graph.job_archive.LOGS``)."""
        self.stimuli = Stimuli()

    def settle(self) -> list[do.Instruction]:
        """Do what follows from any event; returns all instructions that were decided on."""
        self._layout.after_event()
        if self._state.declares_slots:
            self._state.declares_slots = False
            if self._state.accepts_slots:
                self._job.slots.declare()
        if self.state is JobStatus.RUNNING and self._layout.runs_in_slots and self.graph.all_run():
            self._events.all_run(self.graph.tally.total, self.checkpoints.coordinator.statistics.last_restored)
        instructions = self._state.take()
        if self.validates:
            self.validate()
        return instructions

    def validate(self) -> None:
        """Check what must hold after every event.

        Raises:
            AssertionError: it does not; the last events are in the message.
        """
        try:
            self._state.validate()
            self._job.deploying.validate()
            self._job.ending.validate()
            self._job.failover.validate()
            self._layout.validate()
        except AssertionError as error:
            raise AssertionError("\n".join((str(error), "after these events:", *self.stimuli.lines()))) from error

    # -- what others ask

    @property
    def state(self) -> JobStatus:
        return self.graph.state

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended, or was given up by this JobMaster."""
        return self.graph.state.is_terminal_state()

    @property
    def is_followed(self) -> bool:
        """Whether another JobMaster leads the job."""
        return self._job.ending.is_followed

    @property
    def is_batch(self) -> bool:
        """Whether tasks run as stages in Spark."""
        return not self._layout.runs_in_slots

    @property
    def waits_for_slots(self) -> bool:
        """Whether slots are missing to tasks that are to be deployed."""
        return self._layout.waits_for_slots

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

    def awaits_submit(self, execution_ids: Collection[str]) -> bool:
        """Whether some of these tasks were submitted, and their TaskManager has not taken them yet."""
        executions = map(self.graph.execution, execution_ids)
        return any(e is not None and e.state is ExecutionState.DEPLOYING for e in executions)

    def is_orphan(self, last_contact: float) -> bool:
        """Whether the job waits for slots, and nobody is there who could give it some.

        A job whose tasks run goes on without Dispatcher and ResourceManager, and its end waits for the next Dispatcher.

        Args:
            last_contact: monotonic seconds at which Dispatcher or ResourceManager was last reached.
        """
        silence = self._state.clock.monotonic() - last_contact
        return not self.is_terminal and not len(self.pool) and silence >= self._state.settings.orphan_timeout

    def look(self, vertices: Collection[str] | None = None) -> Generator[None, None, dict[str, Any]]:
        """What people see of the job, as plain data, in slices; see ``job_archive.archive_in_slices``."""
        archive = self._archive
        if archive is None:
            graph_archive = yield from archive_in_slices(self.graph, self._state.plan, vertices)
            archive = {**graph_archive, "checkpoints": (yield from self.checkpoints.in_slices())}
            if self.is_terminal:
                archive[LOGS] = self.logs
                archive[CLEAN_UP] = self.checkpoints.coordinator.completed.clean_up(self.state.name)
                if vertices is None:
                    self._archive = archive
        return {**archive, EVENTS: self._events.plain(), **self._layout.in_archive()}

    def job_values(self) -> dict[str, int | str]:
        """Metrics of the job: restarts and checkpoints."""
        times = restart_times(self.graph, self.graph.clock.epoch_ms())
        return {**times, **self.checkpoints.coordinator.statistics.metrics(), **self._layout.metrics()}

    # -- from its start to its end

    @event
    def start(self) -> None:
        """The job begins: it asks for its slots."""
        self.checkpoints.start()
        if not self._layout.prepare():
            return
        self._state.move(JobStatus.CREATED, "submitted")
        self._state.move(JobStatus.RUNNING, "scheduling started")
        self._state.emit(do.ConnectResourceManager())
        if (seconds := self._layout.slots_timeout) is not None:
            self._state.set_timer(SLOTS_TIMER, seconds)

    @event
    def cancel(self, cause: str, by: str = "") -> None:
        """Cancel the job; nothing happens if it has ended or is being cancelled.

        Args:
            cause: for people.
            by: who asked for it, and from which address.
        """
        self._job.ending.cancel_job(cause, by)

    @event
    def suspend(self, cause: str) -> None:
        """This JobMaster stops: the slots go back at once, whatever runs in them."""
        self._job.ending.suspend(cause)

    @event
    def adopted(self) -> None:
        """Another Dispatcher leads: report to it where the job stands."""
        if self.is_terminal and self.state is not JobStatus.SUSPENDED:
            self._state.emit(do.ReportEnd())
        else:
            self._state.emit(do.ReportJobState(self.state.name, job_timestamps(self.graph)))

    @event
    def followed(self, cause: str) -> None:
        """Another JobMaster leads the job, by the word of a service that knows."""
        if not self.is_followed:
            self._job.ending.leadership_lost(cause)

    @event
    def go_on(self) -> None:
        """The next slice of long work."""
        self._state.go_on()

    @event
    def timer_fired(self, name: str) -> None:
        """A timer that the core has set is up."""
        if name.startswith(CHECKPOINT_TIMER):
            self.checkpoints.coordinator.timer_fired(name)
        elif self.is_terminal:
            logger.debug("timer %s is late", name)
        elif self._layout.timer_fired(name):
            pass
        elif name == SLOTS_TIMER and self.waits_for_slots:
            self._job.slots.waited_too_long()
        elif name == CANCEL_TIMER:
            self._job.ending.give_up_tasks()
        elif name == REASON_TIMER:
            self._job.ending.close_reason()
        elif name == IDLE_TIMER:
            self._job.slots.return_idle()
        elif name == RESTART_TIMER:
            self._job.ending.check()
        elif name == SPLITS_TIMER:
            self._job.sources.offer()

    # -- slots

    @event
    def resourcemanager_connected(self, ends_within: float = 0.0) -> None:
        """The job is registered at the ResourceManager, perhaps again.

        Args:
            ends_within: seconds within which that says how a TaskManager has ended; 0: it does not.
        """
        self._job.ending.explained_within = ends_within
        self._job.slots.connected()

    @event
    def resourcemanager_lost(self, cause: str) -> None:
        """The ResourceManager does not know the job any more, or is silent."""
        self._job.slots.disconnected(cause)

    @query
    def offer_slots(self, offer: m.OfferSlots) -> tuple[str, ...]:
        """A TaskManager offers slots; answers which of them the job takes."""
        if not self._layout.slots_offered(offer):
            return ()
        accepted = self._job.slots.offered(offer)
        self._layout.schedule()
        return accepted

    @event
    def notify_no_resources(self, message: m.NotifyNoResources) -> None:
        """The cluster can't give the slots that the job needs."""
        self._layout.no_resources(message)

    @event
    def notify_waiting(self, message: m.NotifyWaiting) -> None:
        """The ResourceManager says why the job waits for slots."""
        self._job.slots.waiting_reason(message.reason)

    @event
    def fail_slot(self, message: m.FailSlot) -> None:
        """A slot is gone, or never came."""
        self._job.losses.fail_slot(message)

    @event
    def taskmanager_lost(self, taskmanager_id: str, cause: str, gone_for: float = 0.0) -> None:
        """A TaskManager is gone with all its slots.

        Args:
            taskmanager_id: of the TaskManager.
            cause: how that was noticed.
            gone_for: seconds since its end, at least, in which the reason may have been reported already.
        """
        self._job.losses.taskmanager_lost(taskmanager_id, cause, gone_for)

    @event
    def taskmanager_ended(self, message: m.TaskManagerEnded) -> None:
        """The ResourceManager says how a TaskManager has ended, of which the job may not know yet."""
        self._job.losses.taskmanager_ended(message.taskmanager_id, message.cause)

    # -- tasks

    @event
    def tasks_submitted(self, execution_ids: Iterable[str]) -> None:
        """A TaskManager took these tasks."""
        self._job.tasks.submitted(execution_ids)

    @event
    def submit_failed(self, allocation_id: str, execution_ids: Collection[str], cause: str) -> None:
        """A TaskManager did not take these tasks, or did not answer: as they may run then, the slot is given up."""
        self._job.losses.submit_failed(allocation_id, execution_ids, cause)

    @event
    def update_task_states(self, update: m.UpdateTaskStates) -> None:
        """Reports of a TaskManager, in their order."""
        self._job.tasks.update(update)

    @event
    def end_of_data(self, message: m.ExecutionRef) -> None:
        """A task has all its results durable and waits for the checkpoint whose completion commits them."""
        self._job.tasks.end_of_data(message.execution_id)

    @event
    def report_metrics(self, report: m.ReportMetrics) -> None:
        """Running totals of tasks."""
        self._job.tasks.update_metrics(report.tasks)

    @event
    def taskmanager_heartbeat(self, taskmanager_id: str, report: m.ExecutionReport) -> None:
        """A TaskManager lists the tasks that it runs, which makes up for reports that were lost."""
        if self._layout.runs_in_slots:
            self._job.tasks.heartbeat(taskmanager_id, report)

    # -- sources

    @query
    def request_splits(self, request: m.RequestSplits) -> m.Splits:
        """A source subtask asks for splits, perhaps again because it did not get the answer."""
        return self._job.sources.request(request)

    @event
    def splits_lost(self, execution_id: str) -> None:
        """Splits did not reach a subtask: they would never be read."""
        self._job.sources.splits_lost(execution_id)

    def report_watermark(self, report: ReportWatermark) -> GroupWatermark:
        """A source subtask reports its watermark; answers with that of its alignment group."""
        return self._job.sources.watermark(report)

    @event
    def operator_events(self, message: OperatorEvents) -> None:
        """A user's enumerator has decided something."""
        self._job.sources.operator_events(message)

    @event
    def operator_events_lost(self, execution_id: str) -> None:
        """A message to a user's enumerator is lost, without which it can't go on."""
        self._job.sources.operator_events_lost(execution_id)

    # -- checkpoints

    @event
    def acknowledge_checkpoint(self, message: m.AcknowledgeCheckpoint) -> None:
        """A task has written its state."""
        execution = self._state.task(message.execution_id)
        self.checkpoints.coordinator.acknowledge(execution, message.checkpoint_id, message.metrics, message.state)

    @event
    def decline_checkpoint(self, message: m.DeclineCheckpoint) -> None:
        """A task takes no part in a checkpoint."""
        execution = self._state.task(message.execution_id)
        self.checkpoints.coordinator.decline(execution, message.checkpoint_id, message.reason, message.failure)

    @event
    def checkpoint_not_triggered(self, execution_ids: tuple[str, ...], checkpoint_id: int) -> None:
        """A TaskManager did not take the order to begin a checkpoint."""
        self.checkpoints.coordinator.not_triggered(execution_ids, checkpoint_id)

    @event
    def trigger_checkpoint(self, message: m.TriggerJobCheckpoint) -> None:
        """A user wants a checkpoint now; its result is in the archive, under the id of the request."""
        coordinator = self.checkpoints.coordinator
        if not coordinator.requests.is_known(message.trigger_id):
            text = "a checkpoint with all state" if message.full else "a checkpoint"
            self._events.requested(EventType.CHECKPOINT_REQUESTED, message.trigger_id, text, message.by)
        coordinator.request(message.trigger_id, message.full)

    @event
    def trigger_savepoint(self, trigger_id: str, savepoint: SavepointTarget, by: str = "") -> None:
        """A user wants a savepoint, or to stop the job with one; as ``trigger_checkpoint``."""
        coordinator = self.checkpoints.coordinator
        if not coordinator.requests.is_known(trigger_id):
            type_ = EventType.STOP_REQUESTED if savepoint.stops else EventType.SAVEPOINT_REQUESTED
            text = f"a {savepoint.format.lower()} savepoint in {savepoint.target}"
            then = {savepoints.DRAIN: ", with an end of event time", savepoints.CANCEL: ", and then to cancel the job"}
            self._events.requested(type_, trigger_id, text + then.get(savepoint.stop, ""), by)
        coordinator.request_savepoint(trigger_id, savepoint)

    @event
    def checkpoint_work_done(self, result: WorkResult) -> None:
        """The storage or the store has done a piece of work, or could not."""
        self.checkpoints.coordinator.work_done(result)
        self._layout.checkpoint_work_done()

    # -- stages of a bounded job, which run in Spark

    @event
    def stages_seen(self, run_id: str, look: RunLook) -> None:
        """Spark says how far a run has come."""
        self._batch.stages_seen(run_id, look)

    @event
    def stages_ended(self, run_id: str, results: Iterable[bytes]) -> None:
        """A run is done, with these results of its tasks."""
        self._batch.stages_ended(run_id, list(results))

    @event
    def stages_failed(self, run_id: str, message: str) -> None:
        """A run has failed."""
        self._batch.stages_failed(run_id, message)

    @event
    def stages_lost(self, run_id: str) -> None:
        """Nobody knows a run any more: the driver in which it was has gone."""
        self._batch.stages_lost(run_id)

    @query
    def give(self, operator_id: str, offset: int) -> m.CollectedFromJob | None:
        """Results of a bounded job from ``offset`` on; None as long as it is not known what there is.

        Raises:
            ProtocolError: the job has no such operator.
        """
        self.collector(operator_id)
        return self._batch.give(operator_id, offset)

    @property
    def _batch(self) -> BatchLayout:
        assert isinstance(self._layout, BatchLayout)
        return self._layout


def _layout_of(job_graph: JobGraph, settings: JobMasterSettings, parts: JobParts) -> JobLayout:
    if is_batch(job_graph):
        return BatchLayout(parts)
    return FixedLayout(parts) if settings.reactive is None else ReactiveLayout(parts, settings.reactive)
