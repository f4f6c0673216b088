"""The layout of reactive mode: the job takes all slots that there are.

The job *waits* until it has the slots without which it can't run and no further one has come for a moment. Then its
graph is laid out for the slots that it has, and all of it goes on from the last checkpoint. It waits again when all
its tasks have ended: since one has failed (with a TaskManager that is gone, say), or since it is *rescaled* to use more
slots, which ``RescaleTiming`` decides. So each failure restarts all tasks, and no slot is given back before the job's
end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from typing_extensions import override

from firesteel.common.job_status import JobStatus
from firesteel.core.errors import StateRestoreError
from firesteel.graph.execution_graph import Execution
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_archive import REACTIVE
from firesteel.graph.plan import job_plan
from firesteel.protocol import messages as m
from firesteel.protocol import slot_shortage
from firesteel_jobmaster import failures
from firesteel_jobmaster.job_state import RESTART_TIMER, SLOTS_TIMER
from firesteel_jobmaster.layout import JobLayout, SlotTasks
from firesteel_jobmaster.parts import JobParts
from firesteel_jobmaster.reactive import NOW, ReactiveSettings, RescaleTiming, Scale
from firesteel_jobmaster.rescales import RescaleCause, RescaleHistory, RescalePhase
from firesteel_jobmaster.restarts import SLACK

logger = logging.getLogger(__name__)
SETTLE_TIMER, RESCALE_TIMER = "settle", "rescale"


class ReactiveLayout(JobLayout):
    """Lays out as many subtasks as there are slots, anew after each failure and for each rescale."""

    returns_idle_slots = False  # the job would get them again at once

    def __init__(self, parts: JobParts, settings: ReactiveSettings) -> None:
        self._job, self._state, self._settings = parts, parts.state, settings
        graph, clock = parts.state.graph.job_graph, parts.state.clock
        self._interval = parts.state.settings.checkpoints.interval
        self._scale = Scale(graph)
        self._timing = RescaleTiming(settings, self._interval)
        self._history = RescaleHistory(settings.history, self._scale, clock)
        self._waits = True
        """No task runs or is deployed: the job waits for slots, and is then laid out for those it has."""
        self._last_slot = float("-inf")
        """When the last slot came, in monotonic seconds."""
        self._stopped: set[str] = set()
        """TaskManagers that were told to stop, as their tasks have reported."""
        self._slots_considered = 0
        """Slots that the job had when its parallelism was decided last; each of them is used, or of no use."""
        self._rescales = 0
        """Rescales of the job while it ran, to use more slots."""
        self._is_rescaled = False
        """A rescale is under way."""
        parts.state.pool.needed, parts.state.pool.most = self._scale.least, self._scale.most

    # -- slots

    @property
    @override
    def waits_for_slots(self) -> bool:
        return self._state.accepts_slots and self._waits and len(self._state.pool) < self._scale.least

    @property
    @override
    def is_laid_out(self) -> bool:
        return not self._waits

    @property
    @override
    def slots_timeout(self) -> float | None:
        return self._settings.wait

    @override
    def slots_needed(self) -> int:
        return self._scale.least if self._waits else self._state.graph.slots_needed

    @override
    def slots_declared(self) -> tuple[int, int]:
        return self._scale.least, self._scale.most

    @override
    def slots_offered(self, offer: m.OfferSlots) -> bool:
        if offer.taskmanager_id in self._stopped:  # it may not have told the ResourceManager yet
            return False
        if any(slot.allocation_id not in self._state.pool for slot in offer.slots):
            self._last_slot = self._state.clock.monotonic()
        return True

    @override
    def no_resources(self, message: m.NotifyNoResources) -> None:
        self._state.graph.waiting_reason = message.message if self.waits_for_slots else ""

    @override
    def task_failed(self, execution: Execution, error: Mapping[str, Any]) -> None:
        if failures.is_stopped(error) and execution.slot is not None:
            self._stopped.add(execution.slot.taskmanager_id)

    # -- waiting

    @override
    def prepare(self) -> bool:
        return True

    @override
    def settled(self) -> None:
        if self._waits:
            self._begin_if_ready()
        elif self._state.is_active:
            self._job.deploying.schedule_all()

    @override
    def schedule(self, regions: Iterable[int] = ()) -> None:
        if self._waits:
            self._begin_if_ready()
        else:
            self._job.deploying.schedule(regions)

    @override
    def restart(self, ended: Execution | None) -> None:
        """When all tasks have ended, the job waits for what it goes on with."""
        if not self._waits:
            if not self._state.graph.all_terminal() or self._job.ending.is_cancelling:
                return
            self._waits = True
            self._history.enter(RescalePhase.WAITING)
            self._job.ending.all_restarted()
            self._job.slots.declare_if_changed()
        self._begin_if_ready()

    @override
    def timer_fired(self, name: str) -> bool:
        if name == SETTLE_TIMER:
            self._begin_if_ready()
        elif name == SLOTS_TIMER and self.waits_for_slots and self._settings.wait is not None:
            present = slot_shortage.came_in_time(
                len(self._state.pool), self._settings.wait, "submission.resource-wait-timeout"
            )
            shortage = self._job.slots.shortage(present, self._state.graph.waiting_reason, recoverable=False)
            self._state.failover.fail(shortage)
        return name in (SETTLE_TIMER, SLOTS_TIMER, RESCALE_TIMER)

    def _begin_if_ready(self) -> None:
        """Lay the job out, if it has the slots that it needs and no further one is about to come."""
        state, pool = self._state, self._state.pool
        if not (self._waits and state.is_active and state.checkpoints.is_settled) or self._job.ending.is_cancelling:
            return
        for taskmanager in self._stopped:
            for slot in pool.at(taskmanager):
                self._job.slots.drop(slot, "its TaskManager stops")
        now = state.clock.monotonic()
        due = state.restarts.next_due(now)
        if due is not None:
            state.set_timer(RESTART_TIMER, max(due, SLACK))
            return
        if len(pool) < self._scale.least:
            return
        unsettled_for = self._last_slot + self._settings.settle - now
        if len(pool) < self._scale.most and unsettled_for > SLACK:
            state.set_timer(SETTLE_TIMER, unsettled_for)
        else:
            self._begin(len(pool))

    def _begin(self, slots: int) -> None:
        """Lay the job out for its slots, and have all tasks go on from the last checkpoint."""
        job, state = self._job, self._state
        job_graph = self._scale.job(slots)
        # Nothing of the graph before may go on: neither restarts, nor deployments, nor reports that are waited for.
        self._waits = False
        job.failover.forget_restarts()
        job.deploying.forget()
        job.tasks.all_replaced()
        state.graph.rescale(job_graph)
        state.plan = job_plan(job_graph)
        state.pool.clear()
        state.pool.needed = state.graph.slots_needed
        state.checkpoints.coordinator.completed.rescaled(job_graph)
        self._timing.scaled(state.clock.monotonic())
        self._slots_considered = slots
        self._history.laid_out({vertex.id: vertex.parallelism for vertex in job_graph.vertices})
        self._rescales += self._is_rescaled
        self._is_rescaled = False
        state.graph.waiting_reason = ""
        state.clear_timers(SLOTS_TIMER, SETTLE_TIMER, RESCALE_TIMER)
        logger.info("the job is laid out for %d slots: %s", slots, self._scale.parallelism(slots))
        if state.status is JobStatus.RESTARTING:
            state.move(JobStatus.RUNNING, f"restarted {state.graph.tally.total} tasks in {slots} slots")
        try:
            point = state.checkpoints.restarting()
        except StateRestoreError as error:
            state.failover.fail(failures.of_the_user(error))
            return
        if job.sources.begin_anew(point):
            job.deploying.schedule_all()

    @override
    def submit(self, by_slot: Sequence[SlotTasks]) -> Iterable[None]:
        return self._job.deploying.submit_to_slots(by_slot)

    @override
    def cancel(self, executions: Iterable[Execution], cause: str) -> None:
        self._job.ending.cancel_in_slots(executions, cause)

    # -- rescaling

    @override
    def job_moved(self, to: JobStatus, cause: str) -> None:
        if to is JobStatus.RESTARTING and not self._is_rescaled:
            self._history.begin(RescaleCause.RECOVERABLE_FAILOVER, RescalePhase.RESTARTING, cause)
        self._history.job_moved(to)
        if to is JobStatus.CREATED:
            self._history.begin(RescaleCause.INITIAL_SCHEDULE, RescalePhase.WAITING)

    @override
    def after_event(self) -> None:
        if self._state.graph.all_run():
            self._history.all_run()
        if not self._waits and len(self._state.pool) != self._slots_considered:
            self._consider(len(self._state.pool))
        else:
            self._history.is_as_before()

    def _consider(self, slots: int) -> None:
        """Rescale the job if it can use these slots, and the time for it has come."""
        state, coordinator = self._state, self._state.checkpoints.coordinator
        if state.status is not JobStatus.RUNNING or not state.graph.all_run() or coordinator.is_stopping:
            return
        if state.graph.waits_for_commit():
            return
        parallelism = self._scale.parallelism(slots)
        if all(vertex.parallelism == parallelism[vertex.id] for vertex in state.graph.job_graph.vertices):
            self._slots_considered = slots
            return
        if self._history.cause is None:
            self._history.begin(RescaleCause.NEW_RESOURCE_AVAILABLE, RescalePhase.EXECUTING)
        failed_checkpoints = int(coordinator.statistics.metrics()["numberOfFailedCheckpoints"])
        due = self._timing.look(
            state.clock.monotonic(), slots >= self._scale.most, coordinator.completed.newest_id, failed_checkpoints
        )
        if due > NOW:
            state.set_timer(RESCALE_TIMER, max(due, SLACK))
        else:
            self._rescale(slots)

    def _rescale(self, slots: int) -> None:
        used = self._state.graph.slots_needed
        logger.info("the job is rescaled: it uses %d slots, and has %d", used, slots)
        self._is_rescaled = True
        self._history.enter(RescalePhase.RESTARTING)
        self._state.events.rescaling(f"rescaled from {used} to {slots} slots")
        self._state.move(JobStatus.RESTARTING, f"rescaled from {used} to {slots} slots")
        self._job.ending.cancel_tasks(f"the job is rescaled from {used} to {slots} slots")

    @override
    def validate(self) -> None:
        if self._waits:
            tally = self._state.graph.tally
            live = [e.id for e in self._state.graph.executions() if not e.state.is_terminal]
            assert not live or tally.states[ExecutionState.CREATED] == tally.total, f"it waits while {live} run"

    # -- what others ask

    @override
    def metrics(self) -> dict[str, int]:
        return {"numRescales": self._rescales}

    @override
    def in_archive(self) -> dict[str, Any]:
        """Limits of the job's parallelism, its rescales, and the settings of reactive mode."""
        settings = self._settings
        return {
            REACTIVE: {
                "limits": dict(self._scale.limits),
                "rescales": self._history.plain(),
                "config": {
                    "submissionResourceWaitTimeoutInMillis": -1 if settings.wait is None else _ms(settings.wait),
                    "submissionResourceStabilizationTimeoutInMillis": _ms(settings.settle),
                    "executingCooldownTimeoutInMillis": _ms(settings.cooldown),
                    "executingResourceStabilizationTimeoutInMillis": _ms(settings.stabilization),
                    "maximumDelayForTriggeringRescaleInMillis": _ms(settings.longest_delay(self._interval)),
                    "rescaleOnFailedCheckpointCount": settings.max_failures,
                },
            },
        }


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
