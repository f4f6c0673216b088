"""The ResourceManager's decisions: events in, instructions out; no input or output, no clock of its own.

Slots are given to a job all at once, or not at all (a job that held a part of its slots could wait for ever for another
one that does the same). Jobs are served in the order in which they asked. The first that waits holds back the others,
so that a stream of small jobs can't starve a big one; it does so only while it can be served at all (the cluster has as
many slots as it needs) and no longer than ``slot.request.timeout``, since a streaming job may hold its slots for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from firesteel.core.ids import new_allocation_id
from firesteel.protocol.fleet import SlotOutcome
from firesteel.protocol.messages import SlotStatus
from firesteel_resourcemanager.instructions import (
    CancelLaunch,
    FailSlot,
    FreeSlot,
    Instruction,
    LaunchSlot,
    NotifyNoResources,
    RequestSlot,
    StartFleet,
)
from firesteel_resourcemanager.settings import ResourceManagerSettings
from firesteel_resourcemanager.slot_table import Slot, SlotState, SlotTable, TaskManager

logger = logging.getLogger(__name__)

ENDED_GRACE = 1.0
"""Seconds between the fleet's word that a slot ended and a failure of its job: the TaskManager sees it first, and in
an orderly end its word is on the way."""
GOODBYE_GRACE = 0.15
"""Seconds after the end of a job in which its JobMaster gives the slots back by itself."""
LEFTOVER_GRACE = 3.0
"""Seconds after which a process of a slot that is free again is cancelled."""
REFUSED_PAUSE = 1.0
"""Seconds for which a slot that its TaskManager refused is not asked for again."""
MOST_REFUSALS = 5
"""Refusals in a row after which a job is told."""


class FleetState(Enum):
    """Of the fleet, as the core knows it."""

    STARTING = "STARTING"
    READY = "READY"
    FAILED = "FAILED"


class UnknownJobError(KeyError):
    """No JobMaster is registered for this job."""


class UnknownTaskManagerError(KeyError):
    """No TaskManager of this id is registered."""


@dataclass
class Job:
    """A registered JobMaster."""

    id: str
    name: str
    address: str
    token: str
    wanted: int = 0
    waiting_since: float = 0.0
    told: tuple[int, int] | None = None
    """The (needed, total) that it was told are not enough."""
    refusals: int = 0


class ResourceManagerCore:
    """TaskManager registry, slot table and slot manager.

    Every event method takes ``now`` (monotonic seconds) where time matters, and returns what has to be done, in order.
    """

    def __init__(
        self, settings: ResourceManagerSettings, now: float, allocation_ids: Callable[[], str] = new_allocation_id
    ) -> None:
        self._settings, self._started, self._new_id = settings, now, allocation_ids
        self.table = SlotTable()
        self.jobs: dict[str, Job] = {}
        self.fleet = FleetState.STARTING
        self._fleet_message = ""
        self._leftovers: dict[str, float] = {}
        """Allocation -> when to cancel its process, which should be ending by itself."""

    # -- TaskManagers

    def register_taskmanager(
        self,
        taskmanager_id: str,
        address: str,
        slots: int,
        hardware: Mapping[str, Any],
        memory_configuration: Mapping[str, Any],
        now: float,
        now_ms: int,
    ) -> list[Instruction]:
        """A TaskManager presents itself, perhaps again."""
        out: list[Instruction] = []
        known = self.table.taskmanagers.get(taskmanager_id)
        if known is not None and known.address != address:
            out += self.taskmanager_gone(taskmanager_id, "it was started anew", now)
            known = None
        if known is None:
            known = TaskManager(taskmanager_id, address, {}, dict(hardware), dict(memory_configuration), now_ms)
            self.table.taskmanagers[taskmanager_id] = known
            logger.info("TaskManager %s registered with %d slots at %s", taskmanager_id, slots, address)
        self._grow(known, slots)
        return out + self._schedule(now)

    def set_slots(self, taskmanager_id: str, slots: int, now: float) -> list[Instruction]:
        """A TaskManager has more slots now; fewer than before is ignored."""
        self._grow(self._taskmanager(taskmanager_id), slots)
        return self._schedule(now)

    def taskmanager_gone(self, taskmanager_id: str, cause: str, now: float, orderly: bool = False) -> list[Instruction]:
        """Forget a TaskManager and its slots; JobMasters notice by their own heartbeats."""
        taskmanager = self.table.taskmanagers.get(taskmanager_id)
        if taskmanager is None:
            return []
        logger.log(logging.INFO if orderly else logging.WARNING, "TaskManager %s is gone: %s", taskmanager_id, cause)
        out: list[Instruction] = []
        for slot in taskmanager.slots.values():
            if slot.state is not SlotState.FREE:
                out.append(CancelLaunch(slot.allocation_id))
                slot.launched = False
                self.table.clear(slot)
        del self.table.taskmanagers[taskmanager_id]
        return out + self._schedule(now)

    def slot_report(
        self, taskmanager_id: str, report: Iterable[SlotStatus], as_of: int, now: float, now_ms: int
    ) -> list[Instruction]:
        """The answer to a heartbeat.

        Args:
            taskmanager_id: who answered.
            report: state of all its slots.
            as_of: revision of the table when the heartbeat was sent: the report is silent about later changes.
            now: monotonic seconds.
            now_ms: epoch.
        """
        taskmanager = self.table.taskmanagers.get(taskmanager_id)
        if taskmanager is None:
            return []
        taskmanager.last_heartbeat_ms = now_ms
        out: list[Instruction] = []
        for status in report:
            if status.slot_index not in taskmanager.slots:
                self._grow(taskmanager, status.slot_index + 1)
            slot = taskmanager.slots[status.slot_index]
            slot.pid = status.pid
            if slot.revision <= as_of and slot.state is not SlotState.REQUESTED:
                out += self._reconcile(taskmanager, slot, status, now)
        return out + self._schedule(now)

    def slot_available(self, taskmanager_id: str, slot_index: int, allocation_id: str, now: float) -> list[Instruction]:
        """A TaskManager freed a slot."""
        slot = self.table.find(allocation_id)
        if slot is None or (slot.taskmanager_id, slot.index) != (taskmanager_id, slot_index):
            return []
        if slot.state is SlotState.REQUESTED:  # freed before its own answer to the request came here
            slot.give_back = slot.give_back or "the TaskManager freed it"
            return []
        self._clear(slot, now)
        return self._schedule(now)

    def slot_granted(self, allocation_id: str, now: float) -> list[Instruction]:
        """The TaskManager holds the slot for the job."""
        slot = self.table.find(allocation_id)
        if slot is None or slot.state is not SlotState.REQUESTED:
            return []
        slot.state = SlotState.ALLOCATED
        self.table.touch(slot)
        job = self.jobs.get(slot.job_id)
        if job is not None:
            job.refusals = 0
        if slot.give_back or job is None:
            return [*self._release(slot, slot.give_back or "the job is gone"), *self._schedule(now)]
        return self._launch(slot)

    def slot_refused(self, allocation_id: str, cause: str, now: float) -> list[Instruction]:
        """The TaskManager did not give the slot, or did not answer."""
        slot = self.table.find(allocation_id)
        if slot is None or slot.state is not SlotState.REQUESTED:
            return []
        logger.warning("slot %d of %s was not granted: %s", slot.index, slot.taskmanager_id, cause)
        slot.not_before = now + REFUSED_PAUSE
        slot.state = SlotState.ALLOCATED  # it may have arrived all the same
        out: list[Instruction] = []
        job = self.jobs.get(slot.job_id)
        if job is not None:
            job.refusals += 1
            if job.refusals == MOST_REFUSALS:
                out.append(self._no_slots(job, f"TaskManager {slot.taskmanager_id} refuses its slots: {cause}"))
        return [*out, *self._release(slot, "the request was not answered"), *self._schedule(now)]

    # -- JobMasters

    def register_jobmaster(self, job_id: str, name: str, address: str, token: str, now: float) -> list[Instruction]:
        """A JobMaster presents itself, perhaps again."""
        job = self.jobs.get(job_id)
        if job is not None and job.token == token:
            job.address, job.name = address, name
            return []
        out = self.jobmaster_gone(job_id, "a new JobMaster took over", now) if job is not None else []
        self.jobs[job_id] = Job(job_id, name, address, token)
        return out

    def declare_requirements(self, job_id: str, count: int, now: float) -> list[Instruction]:
        """So many slots are wanted by a job now, those included that it has."""
        job = self.job(job_id)
        held = self._held(job)
        if count != job.wanted:
            job.told, job.refusals = None, 0
            if count > len(held):
                job.waiting_since = now
        job.wanted = count
        out: list[Instruction] = []
        surplus = sorted(held, key=lambda s: (s.launched, s.state is SlotState.ALLOCATED))[: max(0, len(held) - count)]
        for slot in surplus:
            out += self._release(slot, "the job gave it back")
        if count > len(held) and self.fleet is FleetState.FAILED:
            self.fleet = FleetState.STARTING
            out.append(StartFleet())
        return out + self._schedule(now)

    def jobmaster_gone(self, job_id: str, cause: str, now: float, orderly: bool = False) -> list[Instruction]:
        """The job ended, or its JobMaster is lost: all its slots go back.

        Args:
            job_id: of the job.
            cause: for the log.
            now: monotonic seconds.
            orderly: the JobMaster said goodbye, and tells the TaskManagers to free its slots.
        """
        job = self.jobs.pop(job_id, None)
        out: list[Instruction] = []
        for slot in self.table.of_job(job_id):
            if orderly and slot.state is SlotState.ALLOCATED:
                slot.state, slot.free_at = SlotState.RELEASING, now + GOODBYE_GRACE
                self.table.touch(slot)
            else:
                out += self._release(slot, cause)
        if job is not None:
            logger.info("JobMaster of job %s (%s) left: %s", job_id, job.name, cause)
        return out + self._schedule(now)

    def job(self, job_id: str) -> Job:
        """A registered job.

        Raises:
            UnknownJobError: its JobMaster did not register.
        """
        job = self.jobs.get(job_id)
        if job is None:
            raise UnknownJobError(f"no JobMaster is registered for job {job_id}")
        return job

    # -- fleet

    def start(self) -> list[Instruction]:
        """The service starts."""
        return [StartFleet()]

    def fleet_started(self, now: float) -> list[Instruction]:
        """Slots can be launched."""
        self.fleet, self._fleet_message = FleetState.READY, ""
        out: list[Instruction] = []
        for slot in list(self.table):
            if slot.state is SlotState.ALLOCATED and not slot.launched and slot.ended is None:
                out += self._launch(slot)
        return out + self._schedule(now)

    def fleet_failed(self, message: str, now: float) -> list[Instruction]:
        """The fleet could not be started: jobs that wait fail with the reason; the next declaration tries again."""
        logger.error("the fleet could not be started: %s", message)
        self.fleet, self._fleet_message = FleetState.FAILED, message
        out: list[Instruction] = []
        for job in self.jobs.values():
            idle = [s for s in self._held(job) if not s.launched]
            if job.wanted > len(self._held(job)) or idle:
                out.append(self._no_slots(job, f"slots can't be started: {message}"))
                for slot in idle:
                    out += self._release(slot, message)
        return out

    def fleet_lost(self, message: str, now: float) -> list[Instruction]:
        """The fleet died with all that ran in it: those slots fail, and a new one is started."""
        if self.fleet is not FleetState.READY:
            return []
        logger.error("the fleet is lost and is started anew: %s", message)
        self.fleet = FleetState.STARTING
        self._leftovers.clear()
        out: list[Instruction] = []
        for slot in list(self.table):
            if slot.launched or slot.ended is not None:
                slot.launched = False
                out += self._fail(slot, message)
        return [*out, StartFleet()]

    def launch_failed(self, allocation_id: str, message: str, now: float) -> list[Instruction]:
        """The fleet refused to start a slot, though it runs."""
        slot = self.table.find(allocation_id)
        if slot is None:
            return []
        slot.launched = False
        return [*self._fail(slot, message), *self._schedule(now)]

    def launch_postponed(self, allocation_id: str) -> list[Instruction]:
        """The fleet had died before it could start a slot: the next one will."""
        slot = self.table.find(allocation_id)
        if slot is not None:
            slot.launched = False
        return []

    def slot_ended(self, allocation_id: str, outcome: SlotOutcome, message: str, now: float) -> list[Instruction]:
        """The process of a slot is gone for good, by the fleet's word."""
        self._leftovers.pop(allocation_id, None)
        slot = self.table.find(allocation_id)
        if slot is None:
            return []
        slot.launched = False
        if slot.state is SlotState.ALLOCATED and slot.ended is None:
            slot.ended, slot.ended_at = _ending(outcome, message), now
        return []

    def launch_unwanted(self, allocation_id: str) -> list[Instruction]:
        """A TaskManager says that the process of an allocation must not be started (again)."""
        return [CancelLaunch(allocation_id)]

    def tick(self, now: float) -> list[Instruction]:
        """Time has passed."""
        out: list[Instruction] = []
        for slot in list(self.table):
            if slot.ended is not None and slot.state is SlotState.ALLOCATED and now >= slot.ended_at + ENDED_GRACE:
                out += self._fail(slot, slot.ended)
            if slot.free_at is not None and now >= slot.free_at:
                slot.free_at = None
                address = self.table.taskmanagers[slot.taskmanager_id].address
                out.append(FreeSlot(slot.taskmanager_id, address, slot.allocation_id, "the job ended"))
        for allocation, deadline in list(self._leftovers.items()):
            if now >= deadline:
                del self._leftovers[allocation]
                out.append(CancelLaunch(allocation))
        return out + self._schedule(now)

    @property
    def fleet_is_ready(self) -> bool:
        """Whether slots can be launched, as far as is known."""
        return self.fleet is FleetState.READY

    @property
    def is_watching(self) -> bool:
        """Whether the fleet should be asked often which slots ended, and ``tick`` be called as often."""
        return bool(self._leftovers) or any(s.launched or s.free_at is not None for s in self.table)

    # -- inside

    def _schedule(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        total = self.table.total()
        free = self.table.free(now)
        waiting = [j for j in self.jobs.values() if j.wanted > len(self._held(j))]
        for job in sorted(waiting, key=lambda j: j.waiting_since):
            if job.wanted > total:
                out += self._too_small(job, total, now)
                continue
            if self.fleet is not FleetState.READY:
                continue
            missing = job.wanted - len(self._held(job))
            if missing <= len(free):
                for slot in free[:missing]:
                    out.append(self._request(slot, job))
                free = free[missing:]
            elif now < job.waiting_since + self._settings.slot_request_timeout:
                break
        return out

    def _request(self, slot: Slot, job: Job) -> RequestSlot:
        self.table.allocate(slot, self._new_id(), job.id, SlotState.REQUESTED)
        taskmanager = self.table.taskmanagers[slot.taskmanager_id]
        return RequestSlot(
            taskmanager.id, taskmanager.address, slot.index, slot.allocation_id, job.id, job.address, job.token
        )

    def _too_small(self, job: Job, total: int, now: float) -> list[Instruction]:
        patience = self._settings.start_up_time if total else self._settings.slot_request_timeout
        if job.told == (job.wanted, total) or now < self._started + patience:
            return []
        job.told = (job.wanted, total)
        message = (
            f"Set taskmanager.numberOfTaskSlots to {job.wanted} or more, or lower the parallelism."
            if total
            else "No TaskManager has registered: start one."
        )
        return [NotifyNoResources(job.address, job.token, job.wanted, total, message)]

    def _no_slots(self, job: Job, cause: str) -> FailSlot:
        """The job waits in vain, though there are slots; it holds none yet that could be named."""
        return FailSlot(job.address, job.token, next(iter(self.table.taskmanagers), "(none)"), "", cause)

    def _held(self, job: Job) -> list[Slot]:
        return [
            s
            for s in self.table.of_job(job.id)
            if s.state is SlotState.ALLOCATED or (s.state is SlotState.REQUESTED and not s.give_back)
        ]

    def _launch(self, slot: Slot) -> list[Instruction]:
        if self.fleet is not FleetState.READY:
            return []
        slot.launched = True
        return [LaunchSlot(slot.taskmanager_id, slot.allocation_id)]

    def _fail(self, slot: Slot, cause: str) -> list[Instruction]:
        out: list[Instruction] = []
        job = self.jobs.get(slot.job_id)
        if job is not None and slot.state is SlotState.ALLOCATED:
            out.append(FailSlot(job.address, job.token, slot.taskmanager_id, slot.allocation_id, cause))
        return out + self._release(slot, cause)

    def _release(self, slot: Slot, cause: str) -> list[Instruction]:
        if slot.state is SlotState.REQUESTED:
            slot.give_back = slot.give_back or cause
        elif slot.state is SlotState.ALLOCATED:
            slot.state = SlotState.RELEASING
            self.table.touch(slot)
            address = self.table.taskmanagers[slot.taskmanager_id].address
            return [FreeSlot(slot.taskmanager_id, address, slot.allocation_id, cause)]
        return []

    def _clear(self, slot: Slot, now: float) -> None:
        if slot.launched:
            self._leftovers[slot.allocation_id] = now + LEFTOVER_GRACE
        self.table.clear(slot)

    def _reconcile(self, taskmanager: TaskManager, slot: Slot, status: SlotStatus, now: float) -> list[Instruction]:
        """Bring a slot in line with what its TaskManager says."""
        if slot.state is not SlotState.FREE and slot.allocation_id != status.allocation_id:
            self._clear(slot, now)  # reported as free, or as another's: what we thought of it is over
        if not status.allocation_id or not status.job_id or status.state == SlotState.FREE.value:
            return []
        if slot.state is SlotState.FREE:
            if self.table.find(status.allocation_id) is not None:
                return []
            self.table.allocate(slot, status.allocation_id, status.job_id, SlotState.ALLOCATED)
            job = self.jobs.get(status.job_id)
            if status.state != SlotState.RELEASING.value and job is not None and job.wanted >= len(self._held(job)):
                return []  # a slot of a job that wants it
            return self._release(slot, "the job does not want it")
        if status.state == SlotState.RELEASING.value:
            slot.state = SlotState.RELEASING
            self.table.touch(slot)
        elif slot.state is SlotState.RELEASING:
            return [FreeSlot(taskmanager.id, taskmanager.address, slot.allocation_id, "it was given back")]
        return []

    def _grow(self, taskmanager: TaskManager, slots: int) -> None:
        for index in range(slots):
            taskmanager.slots.setdefault(index, Slot(taskmanager.id, index))

    def _taskmanager(self, taskmanager_id: str) -> TaskManager:
        taskmanager = self.table.taskmanagers.get(taskmanager_id)
        if taskmanager is None:
            raise UnknownTaskManagerError(f"no TaskManager {taskmanager_id!r} is registered")
        return taskmanager


def _ending(outcome: SlotOutcome, message: str) -> str:
    detail = f": {message}" if message else ""
    return {
        SlotOutcome.RETURNED: "the slot's process ended before its job did",
        SlotOutcome.MISPLACED: "the slot started on another executor than it was meant for",
        SlotOutcome.LOST: "the slot's Spark task was lost",
    }[outcome] + detail
