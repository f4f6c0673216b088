"""A slot between its allocation and its release: its process, its failures, and what its TaskManager says about it."""

from __future__ import annotations

import logging

from firesteel.protocol.fleet import SlotOutcome
from firesteel.protocol.messages import SlotStatus
from firesteel_resourcemanager.executors import Executors
from firesteel_resourcemanager.instructions import (
    AskForReport,
    CancelLaunch,
    Instruction,
    LaunchSlot,
    SendFailSlot,
    SendFreeSlot,
)
from firesteel_resourcemanager.registry import ClusterRegistry, FleetState, RegisteredJob
from firesteel_resourcemanager.slot_table import RegisteredTaskManager, SlotState, TaskManagerSlot

logger = logging.getLogger(__name__)

ENDED_GRACE = 1.0
"""Seconds between the fleet's word that a slot ended and a failure of its job: the TaskManager sees it first, and in
an orderly end its word is on the way."""
GOODBYE_GRACE = 0.15
"""Seconds after the end of a job in which its JobMaster gives the slots back by itself."""
LEFTOVER_GRACE = 3.0
"""Seconds after which a process of a slot that is free again is cancelled."""
MISPLACED_PAUSE = 0.5
"""Seconds until a slot that came to the wrong executor, or to none, is launched again; longer each time."""
LEARNT_PATIENCE = 10.0
"""Seconds in which the process of a slot has to come that another ResourceManager gave away."""
FOLLOWED = "a new JobMaster took over"
MOST_LAUNCHES = 5
"""Launches of one slot before it fails."""


class SlotLife:
    """Decides about single slots.

    Args:
        registry: TaskManagers and jobs.
        executors: on which slots run.
    """

    def __init__(self, registry: ClusterRegistry, executors: Executors) -> None:
        self._registry, self._executors = registry, executors
        self._table = registry.table
        self._leftovers: dict[str, float] = {}
        """Allocation -> when to cancel its process, which should be ending by itself."""

    @property
    def is_watching(self) -> bool:
        """Whether the fleet should be asked often which slots ended, and ``tick`` be called as often."""
        return bool(self._leftovers or self._table.watched())

    # -- launching

    def launch(self, slot: TaskManagerSlot) -> list[Instruction]:
        """Have a process started for an allocated slot, now or as soon as one can be."""
        if not self._can_launch(slot):
            return []
        slot.launched, slot.launches = True, slot.launches + 1
        self._table.watch(slot)
        executor = self._executors.id_of(self._table.owner(slot))
        return [LaunchSlot(slot.taskmanager_id, slot.allocation_id, executor)]

    def launch_waiting(self) -> list[Instruction]:
        """The fleet or an executor is ready: launch what waits for it."""
        out: list[Instruction] = []
        for slot in self._table:
            if slot.state is SlotState.ALLOCATED and not slot.launched and slot.ended is None:
                out += self.launch(slot)
        return out

    def launch_postponed(self, slot: TaskManagerSlot) -> None:
        """The fleet was gone before it could start a process: the next one will."""
        if slot.launched and slot.state is SlotState.ALLOCATED and slot.pid is None:
            slot.launched, slot.launches = False, slot.launches - 1

    def launch_failed(self, slot: TaskManagerSlot, message: str, now: float) -> list[Instruction]:
        """The fleet refused to start a process. It may have come all the same if this was not the first launch."""
        if slot.state is not SlotState.ALLOCATED or slot.pid is not None:
            return []
        if slot.launches > 1:
            self._doubt(slot, now + MISPLACED_PAUSE * slot.launches)
            return []
        slot.launched = False
        return self.fail(slot, message, now)

    def _can_launch(self, slot: TaskManagerSlot) -> bool:
        return self._registry.fleet is FleetState.READY and self._executors.is_usable(self._table.owner(slot))

    def fleet_lost(self, message: str, now: float, outlive: bool) -> list[Instruction]:
        """The fleet is gone: its slots with it, or they go on and only their TaskManagers know of them."""
        self._leftovers.clear()
        out: list[Instruction] = []
        for slot in list(self._table):
            if outlive:
                if slot.launched and slot.pid is None and slot.state is SlotState.ALLOCATED and slot.ended is None:
                    self._doubt(slot, now)
            elif slot.launched or slot.ended is not None:
                slot.launched = False
                out += self.fail(slot, message, now)
        return out

    def ended(self, slot: TaskManagerSlot, outcome: SlotOutcome, message: str, now: float) -> list[Instruction]:
        """The fleet has no process for a slot any more."""
        if slot.state is not SlotState.ALLOCATED or slot.ended is not None:
            slot.launched = False
        elif outcome is SlotOutcome.MISPLACED:  # a copy of a process that lives is misplaced, too: ask first
            self._doubt(slot, now + MISPLACED_PAUSE * slot.launches)
        elif outcome is SlotOutcome.UNREGISTERED and slot.pid is None:  # nobody else will tell why
            slot.launched = False
            return self.fail(slot, f"the slot's process could not register with its TaskManager: {message}", now)
        else:
            slot.launched = False
            slot.ended, slot.ended_at = _ending(outcome, message), now
            self._table.watch(slot)
        return []

    def forget_leftover(self, allocation_id: str) -> None:
        """The process of a freed slot has ended."""
        self._leftovers.pop(allocation_id, None)

    def _doubt(self, slot: TaskManagerSlot, ask_at: float) -> None:
        slot.unsure, slot.ask_at = True, ask_at
        self._table.watch(slot)
        self._table.touch(slot)

    # -- giving up

    def fail(self, slot: TaskManagerSlot, cause: str, now: float) -> list[Instruction]:
        """The slot of a job is no good: the job is told, and the slot is freed."""
        out: list[Instruction] = []
        job = self._registry.jobs.get(slot.job_id)
        if job is not None and slot.state is SlotState.ALLOCATED:
            out.append(SendFailSlot(job.address, job.token, slot.taskmanager_id, slot.allocation_id, cause))
            self._registry.set_back(job, now)
        return out + self.release(slot, cause)

    def release(self, slot: TaskManagerSlot, cause: str) -> list[Instruction]:
        """Have the TaskManager free a slot, once it has answered what it was asked before."""
        if slot.state is SlotState.REQUESTED:
            self._table.give_back(slot, slot.give_back or cause)
        elif slot.state is SlotState.ALLOCATED:
            self._table.move(slot, SlotState.RELEASING)
            return [self._free(slot, cause)]
        return []

    def release_soon(self, slot: TaskManagerSlot, cause: str, now: float) -> list[Instruction]:
        """The job gives its slots back itself, but for those that it forgets."""
        if slot.state is not SlotState.ALLOCATED:
            return self.release(slot, cause)
        self._table.move(slot, SlotState.RELEASING)
        slot.free_at = now + GOODBYE_GRACE
        self._table.watch(slot)
        return []

    def trim(self, job: RegisteredJob) -> list[Instruction]:
        """Give back what a job has too much, as long as it can't have got to know it: it may be using everything else.

        A job turns away by itself what it is offered and does not need.
        """
        slots = self._registry.held(job)
        surplus = max(0, len(slots) - job.most) if job.declared else 0
        unknown = sorted((s for s in slots if not s.launched), key=lambda s: s.state is SlotState.ALLOCATED)
        return self.release_all(unknown[:surplus], "it is not needed")

    def release_all(self, slots: list[TaskManagerSlot], cause: str) -> list[Instruction]:
        """Have these slots freed."""
        return [instruction for slot in slots for instruction in self.release(slot, cause)]

    def clear(self, slot: TaskManagerSlot, now: float) -> None:
        """The TaskManager says that a slot is free; a process that was launched and has not ended is given up soon."""
        if slot.launched:
            self._leftovers[slot.allocation_id] = now + LEFTOVER_GRACE
        self._table.clear(slot)

    def lost(self, slot: TaskManagerSlot, now: float) -> None:
        """The TaskManager freed a slot, perhaps although its job wants it."""
        job = self._registry.jobs.get(slot.job_id)
        if slot.state is SlotState.ALLOCATED and job is not None and self._table.counting(job.id) <= job.most:
            self._registry.set_back(job, now)

    def tick(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        for slot in self._table.watched():
            if slot.ended is not None and slot.state is SlotState.ALLOCATED and now >= slot.ended_at + ENDED_GRACE:
                out += self.fail(slot, slot.ended, now)
            if slot.free_at is not None and now >= slot.free_at:
                slot.free_at = None
                out.append(self._free(slot, "the job ended"))
            if slot.ask_at is not None and now >= slot.ask_at and self._can_launch(slot):
                slot.ask_at = None
                out.append(AskForReport(slot.taskmanager_id))
        for allocation, deadline in list(self._leftovers.items()):
            if now >= deadline:
                del self._leftovers[allocation]
                out.append(CancelLaunch(allocation))
        return out

    def _free(self, slot: TaskManagerSlot, cause: str) -> SendFreeSlot:
        taskmanager = self._table.owner(slot)
        return SendFreeSlot(taskmanager.id, taskmanager.address, slot.allocation_id, cause)

    # -- reports

    def reconcile(
        self, taskmanager: RegisteredTaskManager, slot: TaskManagerSlot, status: SlotStatus, now: float
    ) -> list[Instruction]:
        """Bring a slot in line with what its TaskManager says; the report is newer than what is known here."""
        if slot.state is not SlotState.FREE and slot.allocation_id != status.allocation_id:
            self.lost(slot, now)
            self.clear(slot, now)  # reported as free, or as another's: what we thought of it is over
        if not status.allocation_id or not status.job_id or status.state == SlotState.FREE.value:
            return []
        if slot.state is SlotState.FREE:
            return self._learn(slot, status, now)
        slot.pid, slot.active = status.pid, status.state == "ACTIVE"
        self._table.watch(slot)
        if status.state == SlotState.RELEASING.value:
            if slot.state is SlotState.ALLOCATED:
                self.lost(slot, now)
                self._table.move(slot, SlotState.RELEASING)
                slot.unsure, slot.ask_at = False, None
        elif slot.state is SlotState.RELEASING:
            return [SendFreeSlot(taskmanager.id, taskmanager.address, slot.allocation_id, "it was given back")]
        elif slot.unsure:
            return self._resolve(slot, now)
        return []

    def _resolve(self, slot: TaskManagerSlot, now: float) -> list[Instruction]:
        """A report says whether the process of a slot has come."""
        if slot.pid is not None:
            slot.unsure, slot.ask_at = False, None
            return []
        if slot.ask_at is not None or not self._can_launch(slot):
            return []
        slot.unsure = False
        if slot.launches == 0:
            return self.release(slot, "whoever was to start its process is gone")
        if slot.launches >= MOST_LAUNCHES:
            return self.fail(slot, f"it did not come to its executor in {slot.launches} launches", now)
        return self.launch(slot)

    def _learn(self, slot: TaskManagerSlot, status: SlotStatus, now: float) -> list[Instruction]:
        """A TaskManager has a slot in use that is free here: another ResourceManager gave it away, or it came back."""
        assert status.allocation_id is not None
        assert status.job_id is not None
        if self._table.find(status.allocation_id) is not None:
            return []
        self._table.allocate(slot, status.allocation_id, status.job_id, SlotState.ALLOCATED, status.jobmaster_epoch)
        slot.pid, slot.active, slot.launched = status.pid, status.state == "ACTIVE", True
        self._table.watch(slot)
        job = self._registry.jobs.get(status.job_id)
        is_former = job is not None and slot.epoch < job.epoch
        if job is not None and is_former:
            job.former |= {slot.allocation_id}
        if status.state == SlotState.RELEASING.value:
            self._table.move(slot, SlotState.RELEASING)
            return []
        if is_former:
            return self.release(slot, FOLLOWED)
        if slot.pid is None:  # whoever gave it away may have had its process launched, or not
            self._doubt(slot, now + LEARNT_PATIENCE)
        if job is not None:
            return self.trim(job)
        return [] if self._registry.keep(status.job_id, now) else self.release(slot, "the job has ended")


def _ending(outcome: SlotOutcome, message: str) -> str:
    returned = outcome in (SlotOutcome.RETURNED, SlotOutcome.UNREGISTERED)
    text = "the slot's process ended before its job did" if returned else "the slot's Spark task was lost"
    return f"{text}: {message}" if message else text
