"""Decides when checkpoints are taken, and what becomes of them. Pure: events in, instructions out.

A checkpoint is *prepared* (it gets its id and a place), its barriers are *triggered* at the sources, all tasks
*acknowledge*, it is *completed* (metadata are written, last; then it goes into the store), and only then tasks hear of
it and commit. What was before it is removed after that. When it is given up on the way, tasks hear of that, and what
was written for it is removed.

A savepoint goes the same way, into a directory of its own. It is not in the store, no job goes on from it by itself,
and tasks do not hear that it is complete. One with which the job stops is: it is the last one, and tasks behind its
barrier stand still until it is complete, and end then; or go on when it is given up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from firesteel.checkpoint import savepoints
from firesteel.checkpoint.reading import CheckpointFormatError
from firesteel.checkpoint.restore_point import RestorePoint
from firesteel.checkpoint.subtask_state import TaskState
from firesteel.core.clock import Clock
from firesteel.core.errors import StateRestoreError
from firesteel.graph.execution_graph import Execution
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_graph import JobVertex
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoint_work import Complete, Discard, Dispose, Prepare, Recover, Undo, Work, WorkResult
from firesteel_jobmaster.checkpoints import orders, recovery
from firesteel_jobmaster.checkpoints.completed import CompletedCheckpoints
from firesteel_jobmaster.checkpoints.job import CoordinatedJob
from firesteel_jobmaster.checkpoints.pending import (
    CheckpointCause,
    CheckpointPhase,
    CheckpointRequest,
    PendingCheckpoint,
    SavepointTarget,
    UnionStateError,
    check_operators,
)
from firesteel_jobmaster.checkpoints.plan import (
    CheckpointPlan,
    NotReadyError,
    enumerators_of,
    heads,
    plan_checkpoint,
    plan_commit,
)
from firesteel_jobmaster.checkpoints.reasons import (
    NOT_READY,
    CheckpointFailure,
    CheckpointFailureReason,
    Tolerance,
    declined,
)
from firesteel_jobmaster.checkpoints.requests import CheckpointRequests
from firesteel_jobmaster.checkpoints.schedule import Schedule
from firesteel_jobmaster.checkpoints.settings import CheckpointSettings
from firesteel_jobmaster.checkpoints.statistics import CheckpointStatistics

logger = logging.getLogger(__name__)
_NOT_ALL_RUN: Final = "Some tasks start, end, or wait to be started again."
TIMER: Final = "checkpoint"
"""Timer of the next checkpoint; timers of timeouts have the number of the attempt behind a colon."""
UNDO_TIMER: Final = "checkpoint-undo"
UNDO_SECONDS: Final = 1.0
"""Seconds between two tries to take a checkpoint out of the store."""
END_TIMER: Final = "checkpoint-end"
END_SECONDS: Final = 10.0
"""Seconds for which the end of a job waits for a checkpoint that is being completed and would stay."""
SLOW_TIMER: Final = "checkpoint-slow"
"""A checkpoint has taken half of its time-out."""
LATE_TIMER: Final = "checkpoint-late"
LATE_SECONDS: Final = 10.0
"""Seconds for which late acknowledgements are gathered, so that the files they name are removed in one go."""


class CheckpointCoordinator:
    """Takes the checkpoints and savepoints of one job. Single-threaded; every method may emit instructions.

    Args:
        job: what the coordinator needs of the job.
        settings: of the job's checkpoints.
        clock: monotonic for deadlines, wall time for people.
        completed: checkpoints that the job may go on from.
    """

    def __init__(
        self, job: CoordinatedJob, settings: CheckpointSettings, clock: Clock, completed: CompletedCheckpoints
    ) -> None:
        self.settings, self.completed = settings, completed
        self.statistics = CheckpointStatistics(settings.history)
        self.on_outcome: Callable[[int, str], None] = lambda checkpoint_id, failure: None
        """Called with the id of each checkpoint that is complete, and with the cause of each failure that counts, which
        follows neither from a restart nor from a request of a user."""
        self._schedule = Schedule(settings)
        self._recovery = recovery.Recovery(completed, clock, job.emit)
        self._job, self._clock = job, clock
        self._pending: dict[int, PendingCheckpoint] = {}
        self._numbers = self._last_id = 0
        self._tolerance = Tolerance(settings.tolerable_failures)
        self._active = False
        self._stopping: str | None = None
        """Trigger id of the savepoint with which the job stops, from its beginning until it is given up."""
        self._stopped: tuple[str, int, str] | None = None
        """Trigger id, checkpoint id and location of that savepoint once it is complete."""
        self._ended_as = ""
        """Name of the state in which the job has ended; empty: it has not."""
        self._awaited = False
        """The end of the job waits for what is being completed."""
        self._late: dict[int, set[str]] = {}
        """Checkpoint that was given up -> files of late acknowledgements."""

    # -- what others ask

    @property
    def requests(self) -> CheckpointRequests:
        return self._schedule.requests

    @property
    def is_periodic(self) -> bool:
        """Whether checkpoints are taken by themselves."""
        return self.settings.interval > 0

    @property
    def commits_at_end(self) -> bool:
        """Whether all tasks wait at their end for a last checkpoint, with all their state.

        Else it has only what sinks are to commit, and those with sinks wait for it: it is the record of the commit.
        """
        return self.is_periodic and self.settings.after_tasks_finish

    def _is_record(self, request: CheckpointRequest) -> bool:
        """Whether a checkpoint only records what sinks are to commit; people do not see such a one."""
        return request.cause is CheckpointCause.FINAL and not self.commits_at_end

    def _plan(self, request: CheckpointRequest) -> CheckpointPlan:
        if self._is_record(request):
            return plan_commit(self._job.graph)
        return plan_checkpoint(self._job.graph, self.settings.after_tasks_finish)

    @property
    def is_unread(self) -> bool:
        """Whether nobody knows which checkpoints the job has: what there was could not be read before it ended."""
        return self._recovery.is_unread

    @property
    def is_settled(self) -> bool:
        """Whether it is known from which checkpoint the job would go on: none is on its way into the store."""
        return not self._recovery.is_under_way and not any(p.is_unsettled for p in self._pending.values())

    @property
    def is_stopping(self) -> bool:
        """Whether the job is being stopped with a savepoint."""
        return self._stopping is not None or self.requests.stops_next

    @property
    def pending(self) -> tuple[PendingCheckpoint, ...]:
        return tuple(self._pending.values())

    @property
    def _closed(self) -> bool:
        return bool(self._ended_as)

    # -- events: the job

    def recover(self, *, follows: bool) -> None:
        """The job begins: look for its checkpoints. Tasks must not be deployed before it is settled.

        Args:
            follows: there was a JobMaster before.
        """
        self._recovery.begin(follows=follows)

    def _recovered(self, result: WorkResult) -> None:
        if result.fenced:
            self._job.leadership_lost(result.error or "")
            return
        try:
            if self._recovery.work_done(result):
                self._take_over_stop()
                self._job.checkpoints_settled()
        except StateRestoreError as error:
            self._job.restore_failed(error)

    def _take_over_stop(self) -> None:
        """An earlier JobMaster of the job had stopped it, if its last checkpoint is such a savepoint."""
        last = self.completed.stopped
        if last is not None:
            info, checkpoint_id, location = last
            logger.info("the job was stopped with savepoint %s: it commits what that holds, and ends", location)
            self._stopped = info.trigger_id, checkpoint_id, location
            self.requests.add(info.trigger_id)

    def restored(self, point: RestorePoint) -> None:
        """Tasks go on from a checkpoint."""
        logger.info("the job goes on from checkpoint %d (%s)", point.checkpoint_id, point.location)
        savepoint = savepoints.info_of(point.metadata) is not None
        self.statistics.restored(point.checkpoint_id, self._clock.epoch_ms(), point.location, savepoint)

    def damaged(self, checkpoint_id: int, cause: str) -> bool:
        """A task could not read its state in a checkpoint; returns whether there is another one to go on from."""
        try:
            self.completed.damaged(checkpoint_id, cause)
        except StateRestoreError as error:
            self._job.restore_failed(error)
            return False
        return True

    def tasks_changed(self, execution: Execution) -> None:
        """A task runs now, or has finished."""
        if execution.state is ExecutionState.FINISHED:
            for pending in self._waiting():
                if pending.waits_for(execution):
                    text = f"{execution.task_name} has finished before its barrier came."
                    self._abort(pending, CheckpointFailure(CheckpointFailureReason.DECLINED_INPUT_END_OF_STREAM, text))
            self.outputs_ended()
        if not self._active and not self._closed and self._job.graph.all_run():
            self._active = True
            self._schedule.begin(self._clock.monotonic())
            logger.info("all tasks run: checkpoints begin")
        self._consider()

    def all_data_ended(self) -> None:
        """Every task has finished, or has made all its results durable and waits for a checkpoint."""
        if not self._closed and not any(p.request.cause is CheckpointCause.FINAL for p in self._pending.values()):
            self._schedule.want_final(self._clock.monotonic())
            self._consider()

    def tasks_failed(self, cause: str) -> None:
        """Give up the checkpoints under way: tasks have failed and will be restarted, or the job ends.

        A checkpoint that all tasks have acknowledged can still complete, and will.
        """
        self._active = self._awaited = False
        self._stopping = None
        self._schedule.interrupt()
        for timer in (TIMER, END_TIMER, SLOW_TIMER):
            self._job.emit(do.ClearTimer(timer))
        failure = CheckpointFailure(CheckpointFailureReason.JOB_FAILOVER_REGION, cause)
        for pending in list(self._pending.values()):
            if pending.phase in (CheckpointPhase.PREPARING, CheckpointPhase.WAITING) and pending.given_up is None:
                self._abort(pending, failure)
        self.requests.refuse_waiting(failure)

    def close(self, state: str) -> None:
        """The job has ended in this state."""
        if self._closed:
            return
        failure = CheckpointFailure(CheckpointFailureReason.COORDINATOR_SHUTDOWN, f"The job is {state}.")
        self.tasks_failed(failure.detail)
        if state != "SUSPENDED":  # after that, the next JobMaster finds in the store which of them are complete
            self._abort_completing(failure)
        self._ended_as = state
        self._tell_of_stop(state)
        self._recovery.stop(state)
        self._close_when_settled()

    def _tell_of_stop(self, state: str) -> None:
        if self._stopped is None:
            return
        trigger_id, checkpoint_id, location = self._stopped
        if state == "FINISHED":
            self.requests.completed(trigger_id, checkpoint_id, location)
        elif state != "SUSPENDED":
            self.requests.failed_with(
                trigger_id,
                f"A savepoint was created at {location}, but the job is {state}: it did not come to its end. The "
                "savepoint is whole; what it holds to be committed is committed by a job that is started from it.",
            )

    def may_end(self, state: str) -> bool:
        """Whether it is known which checkpoints and savepoints stay when the job ends in this state now: none of them
        is being completed. Else the job hears of it (``CoordinatedJob.checkpoint_decided``), after ``END_SECONDS`` at
        the latest.
        """
        keeps = self.settings.keeps(state)
        if not any(keeps or pending.savepoint is not None for pending in self._completing()):
            return True
        if not self._awaited:
            self._awaited = True
            self._job.emit(do.SetTimer(END_TIMER, END_SECONDS))
        return False

    def _completing(self) -> list[PendingCheckpoint]:
        return [p for p in self._pending.values() if p.phase is CheckpointPhase.COMPLETING and p.given_up is None]

    def _abort_completing(self, failure: CheckpointFailure) -> None:
        """Give up the checkpoints whose metadata are being written: they are undone when the storage has answered."""
        for pending in self._completing():
            self._abort(pending, failure)

    def left(self, state: str) -> int | None:
        """Id of the last checkpoint that the job would leave by ending in this state now; see ``completed.left``."""
        return None if self._recovery.is_under_way else self.completed.left(state)

    def _close_when_settled(self) -> None:
        if self.is_settled:
            self._discard_late()
            self.completed.close(self._ended_as)

    def request(self, trigger_id: str, full: bool = False) -> None:
        """A user wants a checkpoint now; a repeated request with the same id changes nothing."""
        self._request(CheckpointRequest(CheckpointCause.MANUAL, trigger_id, full))

    def request_savepoint(self, trigger_id: str, savepoint: SavepointTarget) -> None:
        """A user wants a savepoint, or to stop the job with one; as ``request``."""
        self._request(CheckpointRequest(CheckpointCause.SAVEPOINT, trigger_id, True, savepoint))

    def _request(self, request: CheckpointRequest) -> None:
        trigger_id = request.trigger_id
        if not self.requests.add(trigger_id):
            return
        if self._closed or not self._active or self._stopping is not None:
            waiting = self._job.graph.waiting_reason
            detail = f"The job waits for slots: {waiting}" if waiting else _NOT_ALL_RUN
            if self._closed or self._stopping is not None:
                detail = "The job has ended." if self._closed else "The job is being stopped with a savepoint."
            self.requests.failed(
                trigger_id, CheckpointFailure(CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING, detail)
            )
        elif self.requests.is_full:
            self.requests.failed(trigger_id, CheckpointFailure(CheckpointFailureReason.TOO_MANY_REQUESTS))
        else:
            self.requests.queue(request)
            self._consider()

    # -- events: time

    def timer_fired(self, name: str) -> None:
        """A timer whose name begins with ``TIMER`` is up."""
        if name == TIMER:
            self._consider()
        elif name == recovery.TIMER:
            self._recovery.again()
        elif name == LATE_TIMER:
            self._discard_late()
        elif name == SLOW_TIMER:
            self._look_for_slowness()
        elif name == END_TIMER:
            text = f"The job ends, and neither storage nor store has answered for {END_SECONDS:g} s."
            self._abort_completing(CheckpointFailure(CheckpointFailureReason.COORDINATOR_SHUTDOWN, text))
        elif name == UNDO_TIMER:
            for pending in self._pending.values():
                if pending.phase is CheckpointPhase.UNDOING:
                    self._undo(pending)
        else:
            overdue = self._pending.get(int(name.partition(":")[2]))
            if overdue is not None and overdue.given_up is None:
                text = f"It was under way for {self.settings.timeout:g} s (execution.checkpointing.timeout)."
                self._abort(
                    overdue, CheckpointFailure(CheckpointFailureReason.EXPIRED, f"{text} {overdue.waits_for_what()}")
                )

    # -- beginning

    def _consider(self) -> None:
        """Begin a checkpoint if one is due and may be taken now; else set the timer for the next look."""
        while self._active and not self._closed:
            if len(self._pending) >= self.settings.max_concurrent or self._stopping is not None:
                return  # the end of a pending checkpoint calls this again
            if self._pending and self.requests.stops_next:
                return  # a savepoint that stops the job is the last one: it begins when all others have ended
            next_request = self._schedule.next(self._clock.monotonic())
            if not isinstance(next_request, CheckpointRequest):
                if next_request is not None:
                    self._job.emit(do.SetTimer(TIMER, next_request))
                return
            self._begin(next_request)

    def _begin(self, request: CheckpointRequest) -> None:
        now = self._clock.monotonic()
        self._schedule.begun(request, now)
        try:
            plan = self._plan(request)
        except NotReadyError as error:
            logger.info("no checkpoint (%s): %s", request.cause, error)
            failure = CheckpointFailure(CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING, f"{error}.")
            self.requests.failed(request.trigger_id, failure)
            self._schedule.failed(request, now)
            return
        self._numbers += 1
        self.completed.touched()
        pending = PendingCheckpoint(self._numbers, request, plan, self._clock.epoch_ms())
        self._pending[pending.number] = pending
        savepoint = request.savepoint
        if savepoint is not None and savepoint.stop:
            self._stopping = request.trigger_id
            logger.info("the job stops with a savepoint (%s)", savepoint.stop)
        self._job.emit(do.SetTimer(f"{TIMER}:{pending.number}", self.settings.timeout))
        self._look_for_slowness()
        self._job.emit(do.SetTimer(SLOW_TIMER, self.settings.timeout / 2 + 1))  # whatever wall time does
        above = max(self._last_id, self.completed.newest_id)
        self._work(Prepare(pending.number, above, None if savepoint is None else savepoint.target))

    def _look_for_slowness(self) -> None:
        if self.statistics.look(self._clock.epoch_ms(), self.settings.timeout, self.settings.interval):
            logger.warning("%s", self.statistics.warning)

    def _prepared(self, pending: PendingCheckpoint, result: WorkResult) -> None:
        pending.checkpoint_id, pending.directory = result.checkpoint_id, result.location
        if result.error is not None:
            if result.hung:
                self.completed.not_removed(result.work, result.checkpoint_id)
            if result.checkpoint_id and not self._is_record(pending.request):
                self._begin_statistics(pending)
            self._abort(pending, CheckpointFailure(CheckpointFailureReason.IO_EXCEPTION, result.error))
            return
        try:
            pending.planned(self._plan(pending.request))
        except NotReadyError as error:
            self._abort(pending, CheckpointFailure(CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING, f"{error}."))
            return
        pending.phase = CheckpointPhase.WAITING
        if not self._is_record(pending.request):
            self._begin_statistics(pending)
        self._trigger(pending, pending.plan.trigger)

    def _begin_statistics(self, pending: PendingCheckpoint) -> None:
        self.statistics.begin(pending.checkpoint_id, pending.trigger_ms, pending.plan.running, pending.savepoint)

    def _trigger(self, pending: PendingCheckpoint, executions: Sequence[Execution]) -> None:
        options = self.settings.barrier_options()
        savepoint = pending.savepoint
        if savepoint is not None:
            options = {
                "mode": "EXACTLY_ONCE",
                savepoints.OPTION: pending.directory,
                savepoints.FORMAT_OPTION: savepoint.format,
                **({savepoints.STOP_OPTION: savepoint.stop} if savepoint.stops else {}),
            }
        elif not pending.request.full:
            options |= self.completed.base()
        orders.trigger(pending, executions, options, self._job.emit)

    def outputs_ended(self) -> None:
        """A task has ended its outputs: tasks behind it may wait for a barrier that will not come, and begin now."""
        for pending in self._waiting():
            self._trigger(pending, heads(self._job.graph, pending.plan.running))

    # -- events: tasks

    def acknowledge(self, execution: Execution, checkpoint_id: int, metrics: Mapping[str, Any], state: str) -> None:
        """A task has written its state; late and repeated messages change nothing."""
        pending = self._of_id(checkpoint_id)
        try:
            task_state = TaskState.from_bytes(state)
            check_operators(execution, task_state)
        except CheckpointFormatError as error:
            if pending is not None and pending.phase is CheckpointPhase.WAITING:
                text = f"{execution.task_name} has sent malformed state: {error}."
                self._abort(pending, CheckpointFailure(CheckpointFailureReason.TASK_FAILURE, text))
            return
        if pending is None:  # the checkpoint was given up, so nobody else knows of these files
            if not self.completed.has(checkpoint_id) and task_state.files():
                logger.info("%s is late with checkpoint %d: removed", execution.task_name, checkpoint_id)
                self._gather_late(checkpoint_id, task_state.files())
            return
        if pending.phase is not CheckpointPhase.WAITING or not pending.waits_for(execution):
            logger.debug("%s acknowledges checkpoint %d again", execution.task_name, checkpoint_id)
            return
        self.statistics.acknowledge(checkpoint_id, execution, self._clock.epoch_ms(), metrics)
        if pending.acknowledge(execution, task_state):
            self._vertex_acknowledged(pending, execution)
        if pending.given_up is None and pending.is_complete:
            newer = pending.overtaken_by(self._pending.values())
            if newer:
                self._abort(
                    pending,
                    CheckpointFailure(CheckpointFailureReason.SUBSUMED, f"Checkpoint {newer} is being completed."),
                )
            else:
                self._complete(pending)

    def _gather_late(self, checkpoint_id: int, files: Iterable[str]) -> None:
        """Files of a late acknowledgement belong to no checkpoint; one clean-up removes all such files."""
        if not self._late:
            self._job.emit(do.SetTimer(LATE_TIMER, LATE_SECONDS))
        self._late.setdefault(checkpoint_id, set()).update(files)

    def _discard_late(self) -> None:
        late, self._late = self._late, {}
        if late:
            self._job.emit(do.ClearTimer(LATE_TIMER))
        for checkpoint_id, files in late.items():
            self._work(Discard(checkpoint_id, frozenset(files)))

    def _vertex_acknowledged(self, pending: PendingCheckpoint, execution: Execution) -> None:
        vertex, graph = execution.vertex, self._job.graph.job_graph
        if vertex.enumerates is not None:
            self._keep_enumerator(pending, graph.vertex(vertex.enumerates), pending.states[execution.id].splits_serial)
        elif vertex.source is not None and vertex.source.coordinator is None:
            self._keep_enumerator(pending, vertex)
        elif vertex.source is not None:
            self._trigger(pending, enumerators_of(vertex.id, pending.plan.running))

    def _keep_enumerator(self, pending: PendingCheckpoint, vertex: JobVertex, number: int = 0) -> None:
        pending.serials[vertex.id] = pending.serials_of(vertex.id)
        try:
            state = self._job.enumerator_state(vertex.id, pending.serials[vertex.id], number)
        except Exception as error:  # enumerators are plug-ins
            logger.exception("the enumerator of %s gave no snapshot", vertex.name)
            text = f"The enumerator of {vertex.name!r} gave no snapshot: {type(error).__qualname__}: {error}."
            self._abort(pending, CheckpointFailure(CheckpointFailureReason.TASK_FAILURE, text))
        else:
            if state is not None:
                pending.enumerators[vertex.id] = state

    def decline(
        self, execution: Execution, checkpoint_id: int, reason: str, failure: Mapping[str, Any] | None = None
    ) -> None:
        """A task takes no part in a checkpoint, which is given up."""
        pending = self._of_id(checkpoint_id)
        if pending is None or pending.phase is not CheckpointPhase.WAITING or not pending.waits_for(execution):
            return
        detail = f"{execution.task_name}: {reason}"
        if failure:
            detail = f"{execution.task_name}: {failure.get('error_class')}: {failure.get('message')}"
        self._abort(pending, CheckpointFailure(declined(reason), f"{detail}."))

    def not_triggered(self, execution_ids: tuple[str, ...], checkpoint_id: int) -> None:
        """A TaskManager did not take the order to begin a checkpoint in these tasks."""
        for id_ in execution_ids:
            execution = self._job.graph.execution(id_)
            if execution is not None:
                self.decline(execution, checkpoint_id, NOT_READY)

    # -- ending

    def _complete(self, pending: PendingCheckpoint) -> None:
        graph = self._job.graph.job_graph
        for vertex in graph.vertices:  # sources all of whose readers had finished before
            if vertex.source is not None and vertex.id not in pending.serials:
                self._keep_enumerator(pending, vertex)
                if pending.given_up is not None:
                    return
        properties = self.completed.properties(pending.trigger_ms)
        savepoint = pending.savepoint
        if savepoint is not None:
            stop = savepoint.stop if savepoint.stops else ""
            info = savepoints.SavepointInfo(savepoint.format, stop, pending.request.trigger_id)
            properties[savepoints.PROPERTY] = info.to_plain()
        try:
            metadata = pending.metadata(graph, properties)
        except UnionStateError as error:
            self._abort(pending, CheckpointFailure(CheckpointFailureReason.DECLINED_TASK_CLOSING, str(error)))
            return
        pending.phase = CheckpointPhase.COMPLETING
        self._work(Complete(metadata, pending.directory, savepoint is None or savepoint.stops))

    def _completed(self, pending: PendingCheckpoint, result: WorkResult) -> None:
        pending.location = result.location
        if result.fenced:
            self._drop(pending)
            self._job.leadership_lost(result.error or "")
            return
        if result.error is not None or pending.given_up is not None:
            if pending.given_up is None:
                self._give_up(pending, CheckpointFailure(CheckpointFailureReason.FINALIZE_FAILURE, result.error or ""))
            orders.aborted(pending, self._job.emit)
            if result.stored:
                pending.phase = CheckpointPhase.UNDOING
                self._undo(pending)
            else:
                self._discard(pending, result.hung)
                self._end(pending)
            self._fail_job_if_exceeded()
            self._decided()
            return
        assert isinstance(result.work, Complete)
        self._drop(pending)
        if pending.savepoint is not None and not pending.stops:
            self._savepoint_complete(pending, pending.savepoint, result)
            self._decided()
            return
        if pending.stops:
            self._stopped = pending.request.trigger_id, pending.checkpoint_id, result.location
        self._tolerance.succeeded()
        self.on_outcome(pending.checkpoint_id, "")
        self._schedule.completed(self._active and (pending.request.cause is CheckpointCause.FINAL or pending.is_last))
        checkpoint_id = pending.checkpoint_id
        logger.info("checkpoint %d is complete (%s)", checkpoint_id, pending.request.cause)
        self.statistics.complete(checkpoint_id, self._clock.epoch_ms(), result.location, pending.positions())
        self._look_for_slowness()
        for vertex_id, serials in pending.serials.items():
            self._job.splits_are_safe(vertex_id, serials)
        for subsumed in self.completed.add(result.work.metadata, result.location):
            self.statistics.discarded(subsumed)
        for older in self._waiting():
            if older.checkpoint_id < checkpoint_id and older.savepoint is None:
                self._abort(
                    older,
                    CheckpointFailure(CheckpointFailureReason.SUBSUMED, f"Checkpoint {checkpoint_id} is complete."),
                )
        orders.complete(pending, self._job.emit)
        if not pending.stops:  # else its end is that of the job
            self.requests.completed(pending.request.trigger_id, checkpoint_id)
        self._end(pending)
        self._decided()

    def _decided(self) -> None:
        """Tell a job that waits for its end that no checkpoint is being completed any more."""
        if self._awaited and not self._closed and not self._completing():
            self._job.checkpoint_decided()

    def _savepoint_complete(self, pending: PendingCheckpoint, savepoint: SavepointTarget, result: WorkResult) -> None:
        """A savepoint is the user's: nothing is committed, and the job does not go on from it."""
        logger.info("savepoint %s is complete", result.location)
        self.statistics.complete(pending.checkpoint_id, self._clock.epoch_ms(), result.location)
        self.requests.completed(pending.request.trigger_id, pending.checkpoint_id, result.location)
        self._end(pending)
        if savepoint.stop == savepoints.CANCEL:
            self._job.cancel_job(f"cancelled with savepoint {result.location}")

    def _undo(self, pending: PendingCheckpoint) -> None:
        self._work(Undo(pending.checkpoint_id, pending.location, pending.files(), savepoint=pending.directory))

    def _undone(self, pending: PendingCheckpoint, result: WorkResult) -> None:
        if result.fenced:
            self._drop(pending)
            self._job.leadership_lost(result.error or "")
        elif result.error is not None and not result.removed:
            logger.error("checkpoint %d can't be taken back: %s", pending.checkpoint_id, result.error)
            self._job.emit(do.SetTimer(UNDO_TIMER, UNDO_SECONDS))
        else:  # the checkpoint is not in the store; files that may be left are removed later, as orphans
            if result.error is not None:
                logger.warning("files of checkpoint %d may be left: %s", pending.checkpoint_id, result.error)
                self.completed.not_removed(result.work)
            self._end(pending)

    def _discard(self, pending: PendingCheckpoint, hung: bool = False) -> None:
        """Remove what was written for a checkpoint that did not complete; a call that hung may write more later."""
        if pending.savepoint is not None and not pending.directory:
            return
        work = Discard(pending.checkpoint_id, pending.files(), savepoint=pending.directory)
        self._work(work)
        if hung:
            self.completed.not_removed(work)

    def _abort(self, pending: PendingCheckpoint, failure: CheckpointFailure) -> None:
        """Give a checkpoint up: tasks hear of it, and what was written for it is removed."""
        former_phase = pending.phase
        self._give_up(pending, failure)
        if former_phase is CheckpointPhase.WAITING:
            orders.aborted(pending, self._job.emit)
            self._discard(pending)
            self._end(pending)
        elif former_phase is CheckpointPhase.PREPARING:
            if pending.checkpoint_id:
                self._discard(pending)
            self._end(pending)
        # in other phases the checkpoint may be in the store: the answer that is on its way decides
        self._fail_job_if_exceeded()
        self._decided()

    def _give_up(self, pending: PendingCheckpoint, failure: CheckpointFailure) -> None:
        pending.given_up = failure
        name = pending.checkpoint_id or f"(attempt {pending.number})"
        record = self._is_record(pending.request)
        logger.warning("checkpoint %s did not complete: %s", name, failure)
        started = None if record else pending.checkpoint_id or None
        if started is not None or failure.reason.counts:
            self.statistics.fail(started, self._clock.epoch_ms(), str(failure))
        self.requests.failed(pending.request.trigger_id, failure)
        savepoint = pending.savepoint
        if savepoint is not None and savepoint.stop and self._stopping == pending.request.trigger_id:
            self._stopping = None
        if self._active:
            self._schedule.failed(pending.request, self._clock.monotonic())
        counts = failure.reason is CheckpointFailureReason.TASK_FAILURE if record else failure.reason.counts
        if (
            counts
            and pending.request.cause not in (CheckpointCause.MANUAL, CheckpointCause.SAVEPOINT)
            and not self._closed
        ):
            self.on_outcome(pending.checkpoint_id, str(failure))
            self._tolerance.failed(failure)  # a user who asked for one hears of its failure, and the job goes on

    def _fail_job_if_exceeded(self) -> None:
        message = self._tolerance.take_exceeded()
        if message:
            self._job.checkpoints_fail(message)

    def _drop(self, pending: PendingCheckpoint) -> None:
        self._pending.pop(pending.number, None)
        self._job.emit(do.ClearTimer(f"{TIMER}:{pending.number}"))

    def _end(self, pending: PendingCheckpoint) -> None:
        was_settled = not pending.is_unsettled
        self._drop(pending)
        self._schedule.ended(self._clock.monotonic())
        if not was_settled and self.is_settled:
            if self._closed:
                self._close_when_settled()
            else:
                self._job.checkpoints_settled()
        self._consider()

    # -- work

    def work_done(self, result: WorkResult) -> None:
        """The storage or the store has done a piece of work, or could not."""
        match result.work:
            case Recover():
                self._recovered(result)
            case Prepare(number):
                self._prepare_done(self._pending.get(number), result)
            case Complete(metadata):
                completing = self._of_id(metadata.checkpoint_id)
                if completing is not None and completing.phase is CheckpointPhase.COMPLETING:
                    self._completed(completing, result)
            case Undo(checkpoint_id):
                undone = self._of_id(checkpoint_id)
                if undone is not None and undone.phase is CheckpointPhase.UNDOING:
                    self._undone(undone, result)
            case _:
                if result.fenced:
                    self._job.leadership_lost(result.error or "")
                elif result.error is not None:
                    logger.warning("files of checkpoints may be left: %s", result.error)
                    self.completed.not_removed(result.work)
                elif isinstance(result.work, Dispose):
                    self.completed.removed(result.work)

    def _prepare_done(self, pending: PendingCheckpoint | None, result: WorkResult) -> None:
        self._last_id = max(self._last_id, result.checkpoint_id)
        if result.fenced:
            self._job.leadership_lost(result.error or "")
        elif pending is not None and pending.phase is CheckpointPhase.PREPARING:
            self._prepared(pending, result)
        elif (
            result.checkpoint_id
            and isinstance(result.work, Prepare)
            and (result.work.savepoint is None or result.location)
        ):
            # The checkpoint was given up while its place was made.
            work = Discard(result.checkpoint_id, frozenset(), savepoint=result.location)
            self._work(work)
            if result.hung:
                self.completed.not_removed(work)

    def _work(self, work: Work) -> None:
        self._job.emit(do.CheckpointWork(self.completed.sparing(work)))

    def _of_id(self, checkpoint_id: int) -> PendingCheckpoint | None:
        return next((p for p in self._pending.values() if checkpoint_id and p.checkpoint_id == checkpoint_id), None)

    def _waiting(self) -> list[PendingCheckpoint]:
        return [pending for pending in self._pending.values() if pending.phase is CheckpointPhase.WAITING]
