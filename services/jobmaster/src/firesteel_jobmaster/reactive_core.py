"""The decisions of a JobMaster in reactive mode: the job takes all slots that there are. No I/O, no waiting.

The job *waits* until it has the slots without which it can't run and no further one has come for a moment. Then its
graph is laid out for the slots that it has, and all of it goes on from the last checkpoint. It waits again when all
its tasks have ended: since one has failed (with a TaskManager that is gone, say), or since it is *rescaled* to use more
slots, which ``RescaleTiming`` decides. So each failure restarts all tasks, and no slot is given back before the job's
end.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from typing_extensions import override

from firesteel.common.job_status import JobStatus
from firesteel.core.errors import StateRestoreError
from firesteel.graph.execution_graph import Execution, LogicalSlot
from firesteel.graph.job_archive import REACTIVE
from firesteel.graph.plan import job_plan
from firesteel.protocol import messages as m
from firesteel_jobmaster import failures
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.core import CANCEL_TIMER, RESTART_TIMER, SLOTS_TIMER, JobMasterCore
from firesteel_jobmaster.reactive import NOW, ReactiveSettings, RescaleTiming, Scale
from firesteel_jobmaster.rescales import RescaleCause, RescaleHistory, RescalePhase
from firesteel_jobmaster.restarts import SLACK
from firesteel_jobmaster.splits import SplitAssigner

logger = logging.getLogger(__name__)
SETTLE_TIMER, RESCALE_TIMER = "settle", "rescale"


class ReactiveCore(JobMasterCore):
    """See the module, and ``JobMasterCore``."""

    def __init__(self, job_graph: Any, settings: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(job_graph, replace(settings, failover_by_region=False), *args, **kwargs)
        assert settings.reactive is not None
        self._reactive: ReactiveSettings = settings.reactive
        self._scale = Scale(job_graph)
        self._timing = RescaleTiming(settings.reactive, settings.checkpoints.interval)
        self._waits = True
        """No task runs or is deployed: what comes next is laid out for the slots that are there then."""
        self._came = float("-inf")
        """When the last slot came, in monotonic seconds."""
        self._stopped: set[str] = set()
        """TaskManagers of which tasks have said that they were told to stop."""
        self._looked_at = 0
        """Slots that the job had when it was looked at last whether it can use them; all are used, or of no use."""
        self._rescales = 0
        """Of a job that ran, to use more slots."""
        self._is_rescaled = False
        """One is under way."""
        self._history = RescaleHistory(settings.reactive.history, self._scale, self._clock)
        self.pool.needed, self.pool.most = self._scale.least, self._scale.most

    # -- waiting

    @property
    def waits_for_slots(self) -> bool:
        """Whether slots are missing without which the job can't run."""
        return self.accepts_slots and self._waits and len(self.pool) < self._scale.least

    def start(self) -> list[do.Instruction]:
        """The job begins: it asks for slots."""
        self.checkpoints.start()
        self._move(JobStatus.CREATED, "submitted")
        self._history.begin(RescaleCause.INITIAL_SCHEDULE, RescalePhase.WAITING)
        self._move(JobStatus.RUNNING, "scheduling started")
        self._out.append(do.ConnectResourceManager())
        if self._reactive.wait is not None:
            self._out.append(do.SetTimer(SLOTS_TIMER, self._reactive.wait))
        return self._take()

    @override
    def checkpoints_settled(self) -> None:
        if self._waits:
            self._begin_if_ready()
        else:
            super().checkpoints_settled()

    def _begin_if_ready(self) -> None:
        """Lay the job out, if it has what it needs and nothing more is about to come."""
        if not (self._waits and self.is_active and self.checkpoints.is_settled and not self._to_cancel):
            return
        for taskmanager in self._stopped:
            for slot in self.pool.at(taskmanager):
                self._drop(slot, "its TaskManager stops")
        now = self._clock.monotonic()
        due = self._restarts.next_due(now)
        if due is not None:
            self._out.append(do.SetTimer(RESTART_TIMER, max(due, SLACK)))
            return
        slots = len(self.pool)
        if slots < self._scale.least:
            return
        left = self._came + self._reactive.settle - now
        if slots < self._scale.most and left > SLACK:
            self._out.append(do.SetTimer(SETTLE_TIMER, left))
        else:
            self._begin(slots)

    def _begin(self, slots: int) -> None:
        """All tasks go on from the last checkpoint, in these slots."""
        job = self._scale.job(slots)
        self._waits = False
        self._forget_restarts()
        self._forget_deployments()
        self.graph.rescale(job)
        self._plan = job_plan(job)
        self._submitted.clear()
        self._missed.clear()
        self.pool.clear()
        self.pool.needed = self.graph.slots_needed
        self.checkpoints.coordinator.completed.rescaled(job)
        self._timing.scaled(self._clock.monotonic())
        self._looked_at = slots
        self._history.laid_out({vertex.id: vertex.parallelism for vertex in job.vertices})
        self._rescales += self._is_rescaled
        self._is_rescaled = False
        self.graph.waiting_reason = ""
        self._out += [do.ClearTimer(name) for name in (SLOTS_TIMER, SETTLE_TIMER, RESCALE_TIMER)]
        logger.info("the job is laid out for %d slots: %s", slots, self._scale.parallelism(slots))
        if self.state is JobStatus.RESTARTING:
            self._move(JobStatus.RUNNING, f"restarted {self.graph.tally.total} tasks in {slots} slots")
        try:
            point = self.checkpoints.restarting()
        except StateRestoreError as error:
            self.checkpoints.restore_failed(error)
            return
        try:
            self._splits = SplitAssigner(job, self._create)
            self._splits.begin(point)
        except Exception as error:  # enumerators are plug-ins, and look at the world outside
            self._sources_failed(error, ())
            return
        self._schedule(range(len(self.graph.regions)))

    def _forget_deployments(self) -> None:
        """What was about to be deployed is not."""
        self._to_look_at.clear()
        self._placements.clear()
        self._new_attempts.clear()
        self._deployment_pass, self._is_placing = None, False

    def _check_restart(self, ended: Execution | None) -> None:
        """When all tasks have ended the job waits for what it goes on with."""
        if not self._waits:
            if not self.graph.all_terminal() or self._to_cancel:
                return
            self._waits = True
            self._history.enter(RescalePhase.WAITING)
            self._ending_since = None
            self._out.append(do.ClearTimer(CANCEL_TIMER))
            self._declare_more()
        self._begin_if_ready()

    def _schedule(self, regions: Any = ()) -> None:
        """Deploy what has its slots; see ``JobMasterCore``."""
        if self._waits:
            self._begin_if_ready()
        else:
            super()._schedule(regions)

    def timer_fired(self, name: str) -> list[do.Instruction]:
        """A timer is up."""
        if name == SETTLE_TIMER:
            self._begin_if_ready()
        elif name == SLOTS_TIMER and self.waits_for_slots and self._reactive.wait is not None:
            present = (
                f"{len(self.pool)} of them came within {self._reactive.wait:g} s (submission.resource-wait-timeout)"
            )
            text = self._missing_slots(present, self.graph.waiting_reason)
            self._fail(failures.no_resources(text, recoverable=False))
        elif name not in (SLOTS_TIMER, RESCALE_TIMER):
            return super().timer_fired(name)
        return self._take()

    # -- slots

    def _declare_now(self) -> None:
        self._out.append(do.DeclareSlots(self._scale.least, tuple(self.pool.returned), self._scale.most))

    def _slots_needed(self) -> int:
        return self._scale.least if self._waits else self.graph.slots_needed

    def offer_slots(self, offer: m.OfferSlots) -> tuple[tuple[str, ...], list[do.Instruction]]:
        """See ``JobMasterCore``; of a TaskManager that stops, which may not have told the ResourceManager yet, none."""
        if offer.taskmanager_id in self._stopped:
            return (), self._take()
        if any(slot.allocation_id not in self.pool for slot in offer.slots):
            self._came = self._clock.monotonic()
        return super().offer_slots(offer)

    def notify_no_resources(self, message: m.NotifyNoResources) -> list[do.Instruction]:
        """There are too few slots now; more may come."""
        self.graph.waiting_reason = message.message if self.waits_for_slots else ""
        return self._take()

    def _unused_slot_lost(self, slot: LogicalSlot, executions: Sequence[Execution], cause: str) -> None:
        """A slot is lost in which nothing runs: while the job waits, there is one less."""
        if self._waits:
            logger.info("slot %s is lost; nothing runs in it: %s", failures.where_is(slot), cause)
        else:
            super()._unused_slot_lost(slot, executions, cause)

    def _task_state(
        self, execution: Execution, state: str, error: Mapping[str, Any] | None, metrics: Mapping[str, Any] | None
    ) -> None:
        if error is not None and failures.is_stopped(error) and execution.slot is not None:
            self._stopped.add(execution.slot.taskmanager_id)
        super()._task_state(execution, state, error, metrics)

    def _check_idle(self, execution: Execution) -> None:
        """The job keeps its slots: it would get them again at once."""

    # -- rescaling

    def _move(self, to: JobStatus, cause: str) -> None:
        super()._move(to, cause)
        if to is JobStatus.RESTARTING and not self._is_rescaled:
            self._history.begin(RescaleCause.RECOVERABLE_FAILOVER, RescalePhase.RESTARTING, cause)
        self._history.job_moved(to)

    def _take(self) -> list[do.Instruction]:
        if self.graph.all_run():
            self._history.all_run()
        if not self._waits and len(self.pool) != self._looked_at:
            self._look_at_slots(len(self.pool))
        else:
            self._history.is_as_before()
        return super()._take()

    def _look_at_slots(self, slots: int) -> None:
        """Rescale the job if that has to be now."""
        coordinator = self.checkpoints.coordinator
        if self.state is not JobStatus.RUNNING or not self.graph.all_run() or coordinator.is_stopping:
            return
        if self.graph.waits_for_commit():
            return
        wanted = self._scale.parallelism(slots)
        if all(vertex.parallelism == wanted[vertex.id] for vertex in self.graph.job_graph.vertices):
            self._looked_at = slots
            return
        if self._history.cause is None:
            self._history.begin(RescaleCause.NEW_RESOURCE_AVAILABLE, RescalePhase.EXECUTING)
        figures = coordinator.statistics.metrics()
        now = self._clock.monotonic()
        left = self._timing.look(
            now, slots >= self._scale.most, coordinator.completed.newest_id, int(figures["numberOfFailedCheckpoints"])
        )
        if left > NOW:
            self._out.append(do.SetTimer(RESCALE_TIMER, max(left, SLACK)))
            return
        self._rescale(slots)

    def _rescale(self, slots: int) -> None:
        used = self.graph.slots_needed
        logger.info("the job is rescaled: it uses %d slots, and has %d", used, slots)
        self._is_rescaled = True
        self._history.enter(RescalePhase.RESTARTING)
        self._move(JobStatus.RESTARTING, f"rescaled from {used} to {slots} slots")
        self._cancel_tasks(f"the job is rescaled from {used} to {slots} slots")

    # -- what others ask

    def job_values(self) -> dict[str, int | str]:
        """Metrics of the job."""
        return {**super().job_values(), "numRescales": self._rescales}

    def look(self, wanted: Collection[str] | None = None) -> Generator[None, None, dict[str, Any]]:
        """See ``JobMasterCore``; also what may become of its parallelism."""
        seen = yield from super().look(wanted)
        reactive = self._reactive
        return {
            **seen,
            REACTIVE: {
                "limits": dict(self._scale.limits),
                "rescales": self._history.plain(),
                "config": {
                    "submissionResourceWaitTimeoutInMillis": -1 if reactive.wait is None else _ms(reactive.wait),
                    "submissionResourceStabilizationTimeoutInMillis": _ms(reactive.settle),
                    "executingCooldownTimeoutInMillis": _ms(reactive.cooldown),
                    "executingResourceStabilizationTimeoutInMillis": _ms(reactive.stabilization),
                    "maximumDelayForTriggeringRescaleInMillis": _ms(
                        reactive.longest_delay(self._settings.checkpoints.interval)
                    ),
                    "rescaleOnFailedCheckpointCount": reactive.max_failures,
                },
            },
        }


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
