"""What follows from a failure: a restart of what it touches, or the end of the job."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from firesteel.common.job_status import JobStatus
from firesteel.graph.execution_graph import Execution, ExecutionVertex, FailureEntry, FailureRecord, LogicalSlot
from firesteel.protocol.deployment import TaskFailure
from firesteel_jobmaster import failures, slices
from firesteel_jobmaster.ending import Ending
from firesteel_jobmaster.job_slots import JobSlots
from firesteel_jobmaster.job_state import RESTART_TIMER, SLOTS_TIMER, JobState
from firesteel_jobmaster.restarts import SLACK
from firesteel_jobmaster.slices import LongWork
from firesteel_jobmaster.sources import JobSources
from firesteel_jobmaster.task_reports import TaskReports

logger = logging.getLogger(__name__)
COMMIT_PAUSE = 1.0
"""Seconds until a job commits once more that has lost a slot meanwhile; no strategy limits that."""
STOPPING_SECONDS = 5.0
"""Seconds in which a TaskManager that was told to stop should have ended."""


class Failover:
    """Answers failures as the job's restart strategy says; new attempts begin when the old ones have ended.

    All parts report failures to it, as the ``job_state.FailureHandler``.
    """

    def __init__(
        self, state: JobState, slots: JobSlots, ending: Ending, sources: JobSources, tasks: TaskReports
    ) -> None:
        self._state, self._slots, self._ending = state, slots, ending
        self._sources, self._tasks = sources, tasks
        self._restarts = state.restarts
        self._to_renew: deque[ExecutionVertex] = deque()
        """Subtasks whose attempts have ended, and that get new ones."""
        self._new_attempts: list[Execution] = []
        """Attempts that are deployed when all that start with them exist, and their checkpoint is known."""
        self._warned_of = ""
        """The cause of the last failure that was answered by a restart."""

    def validate(self) -> None:
        """Check what must hold after every event (tests call it)."""
        assert not self._to_renew or self._restarts.is_renewing, "subtasks are to be started again, and nobody does"
        if self._state.is_active and self._state.checkpoints.is_settled and not self._restarts.is_renewing:
            assert not self._new_attempts, f"new attempts wait for nothing: {[e.id for e in self._new_attempts]}"

    # -- failures

    def fail(
        self,
        failure: TaskFailure | Mapping[str, Any],
        slot: LogicalSlot | None = None,
        execution: Execution | None = None,
        reported: bool = False,
        failed: Sequence[Execution] = (),
    ) -> None:
        """Answer a failure; see ``FailureHandler``."""
        state, ending = self._state, self._ending
        plain = failure.to_plain() if isinstance(failure, TaskFailure) else failure
        may_be_a_consequence = reported and failures.may_be_a_consequence(plain)
        if may_be_a_consequence:
            plain = failures.name_peers(plain, state.pool.get)
            state.checks_taskmanagers = True
        cause = f"{plain['error_class']}: {plain['message']}"
        if state.is_terminal:
            logger.info("ignored, the job has ended: %s", cause)
            return
        record = FailureRecord(
            plain,
            state.clock.epoch_ms(),
            execution.task_name if execution else "",
            slot.endpoint if slot else "",
            slot.taskmanager_id if slot else "",
        )
        if slot is not None and failures.is_stopped(plain):
            ending.taskmanager_gone(slot.taskmanager_id, -STOPPING_SECONDS)
        rank = failures.rank(plain, ending.kills)
        if state.status in (JobStatus.FAILING, JobStatus.CANCELLING):
            logger.info("further failure while %s: %s", state.status.name, record.failure["message"])
            if not ending.explain_with(record, rank, may_be_a_consequence):
                state.graph.record_failure(record, rank, state.settings.kept_failures)
            ending.check()
        elif not self._restart_after(record, rank, failed or ([execution] if execution else ())):
            entry = state.graph.record_failure(record, rank, state.settings.kept_failures)
            ending.fail_with(entry, may_be_a_consequence)
            self.forget_restarts()
            state.move(JobStatus.FAILING, cause)
            ending.cancel_tasks(f"the job fails: {cause:.200}")

    def _restart_after(self, record: FailureRecord, rank: int, failed: Sequence[Execution]) -> bool:
        """Cancel the tasks that a failure touches, and have them restarted; returns False if the job fails instead."""
        state, restarts = self._state, self._restarts
        is_foreign = failures.is_of_another_release(record.failure)
        is_refused = is_foreign and not state.checkpoints.waits_for_releases
        if not state.is_active or is_refused or not record.failure.get("recoverable", True):
            return False
        now = state.clock.monotonic()
        regions = restarts.touched(failed)
        entry = restarts.entry(regions)
        if entry is not None:  # its regions all wait for a restart: the failure is a consequence, or explains more
            if entry.add(record, rank):
                self._warn_of_restart(entry)
                state.events.restart_explained(failures.cause_text(entry.root.failure))
        else:
            pause = 0.0
            if is_foreign or failures.is_state_away(record.failure):  # the host is to blame, or the cluster's release
                pause = restarts.storage_failed(now)
            elif restarts.failed(now):
                pass
            elif failures.is_of_infrastructure(record.failure) and state.checkpoints.is_committing:
                logger.warning("some results may be shown: the job goes on committing, though %s", restarts.strategy)
                state.graph.count_restart()
                pause = COMMIT_PAUSE
            else:
                logger.info("the job is not restarted: %s", restarts.strategy)
                return False
            entry = state.graph.record_failure(record, rank, state.settings.kept_failures)
            pause = restarts.begin(regions, entry, now, pause)
            entry.answer = f"restart {state.graph.restarts} in {pause:.3g} s"
            self._warn_of_restart(entry)
            state.events.restarting(failures.cause_text(entry.root.failure), entry.answer)
            self._slots.declare_if_changed()
        # Regions that are being renewed get all their new attempts first, so that the cancelling below reaches them.
        while self._to_renew:
            self._renew_some()
        cause = f"{record.failure['error_class']}: {record.failure['message']:.200}"
        if state.status is JobStatus.RUNNING:
            state.move(JobStatus.RESTARTING, cause)
        self._ending.cancel_tasks(f"restart after {cause}", state.graph.in_regions(regions))
        return True

    def _warn_of_restart(self, entry: FailureEntry) -> None:
        """Log why the job is restarted; a cause that comes again is logged without its traceback."""
        cause = failures.cause_text(entry.root.failure)
        stack = "" if cause == self._warned_of else f"\n{entry.root.failure.get('traceback') or ''}".rstrip()
        self._warned_of = cause
        graph = self._state.graph.job_graph
        logger.warning("job %r (%s) failed: %s; %s%s", graph.name, graph.job_id, cause, entry.answer, stack)

    # -- restarts

    def restart_ended(self, ended: Execution | None) -> None:
        """Start again regions that have ended and waited long enough: that of a task that ended now, or any (None)."""
        state, now = self._state, self._state.clock.monotonic()
        if ended is not None:
            ready = self._restarts.take_ready(now, (state.graph.region_of(ended),))
        else:
            ready = self._restarts.take_ready(now)
            due = self._restarts.next_due(now)
            if due is not None:
                state.set_timer(RESTART_TIMER, max(due, SLACK))
        if not ready:
            return
        self._restarts.being_renewed.update(ready)
        self._to_renew.extend(subtask for region in ready for subtask in state.graph.regions[region])
        if not self._restarts.is_renewing:
            state.slices.run(self._renew())

    def forget_restarts(self) -> None:
        """Nothing is started again any more."""
        self._restarts.clear()
        self._to_renew.clear()
        self._new_attempts.clear()

    def _renew(self) -> LongWork:
        """Make new attempts of all subtasks that are started again, in slices; then deploy them together."""
        self._restarts.is_renewing = True
        while self._to_renew:
            self._renew_some()
            if self._to_renew or len(self._new_attempts) > slices.RESTARTED_AT_ONCE:
                yield
        self._restarts.is_renewing = False
        self.start_new_attempts()

    def _renew_some(self) -> None:
        """Make new attempts of the next subtasks that are started again; with the last of them the job runs again."""
        state = self._state
        count = min(len(self._to_renew), slices.RESTARTED_AT_ONCE)
        self._new_attempts += state.graph.restart([self._to_renew.popleft() for _ in range(count)])
        if self._to_renew:
            return
        self._restarts.being_renewed.clear()
        if not self._restarts:
            self._ending.all_restarted()
            state.move(JobStatus.RUNNING, f"restarted {len(self._new_attempts)} tasks")

    def start_new_attempts(self) -> bool:
        """Deploy the new attempts, whose sources go on from the checkpoint; returns whether there were some."""
        state = self._state
        if not state.checkpoints.is_settled or self._restarts.is_renewing:
            return False
        executions = [e for e in self._new_attempts if not e.state.is_terminal]
        self._new_attempts = []
        if not executions or not state.is_active:
            return bool(executions)
        self._tasks.replaced(executions)
        if not self._sources.restart(executions):
            return True
        self._slots.declare()
        if state.layout.waits_for_slots:
            state.set_timer(SLOTS_TIMER, state.settings.slot_request_timeout)
        state.layout.schedule({state.graph.region_of(execution) for execution in executions})
        return True
