"""Decides which job gets which slots.

Slots are given to a job all at once, or not at all (a job that held a part of its slots could wait for ever for another
one that does the same). Jobs are served in the order in which they asked. The first that waits holds back the others,
so that a stream of small jobs can't starve a big one; it does so only while it can be served at all (the cluster has as
many slots as it needs), and for half of ``slot.request.timeout``: a streaming job may hold its slots for ever, and what
is held back has to get its own slots before its own time is up. A job that another JobMaster goes on with comes before
all others: the slots that are being freed for it are not for those who wait.

What is left when all have what they want goes to jobs that take whatever there is (reactive mode).
"""

from __future__ import annotations

from collections.abc import Callable

from firesteel.protocol import slot_shortage
from firesteel_resourcemanager.executors import Executors
from firesteel_resourcemanager.instructions import Instruction, SendFailSlot, SendNoResources, SendRequestSlot
from firesteel_resourcemanager.registry import ClusterRegistry, FleetState, RegisteredJob
from firesteel_resourcemanager.slot_table import SlotState, TaskManagerSlot
from firesteel_resourcemanager.workers import Workers

HOLDING_BACK = 0.5
"""The part of ``slot.request.timeout`` for which a job that waits holds back those behind it."""
TELL_AFTER = 5.0
"""Seconds for which a job waits before it is told that there are too few slots: more may be on their way."""


class SlotManager:
    """Gives slots to jobs.

    Args:
        registry: TaskManagers and jobs.
        executors: on which slots run.
        workers: TaskManagers that may still come.
        new_id: makes allocation ids.
    """

    def __init__(
        self, registry: ClusterRegistry, executors: Executors, workers: Workers, new_id: Callable[[], str]
    ) -> None:
        self._registry, self._executors, self._workers, self._new_id = registry, executors, workers, new_id

    def schedule(self, now: float) -> list[Instruction]:
        """Give slots to the jobs that wait, in their order, as far as there are some."""
        registry, out = self._registry, list[Instruction]()
        total = registry.table.total()
        free: list[TaskManagerSlot] | None = None
        waiting = [j for j in registry.jobs.values() if registry.missing(j) or (j.former and not j.declared)]
        reserved = 0
        for job in sorted(waiting, key=lambda j: (not registry.is_taken_over(j), j.waiting_since)):
            if not job.declared:
                # It is about to declare how many it needs: those of its former slots that are free already stay for it.
                reserved += len(job.former) - registry.former_slots(job)
                continue
            if job.wanted > total + self._workers.potential():  # it can't be served, and so holds back nobody
                if not job.could_be_served:  # else it has lost TaskManagers, and waits for slot.request.timeout
                    out += self._too_small(job, now)
                continue
            job.could_be_served = True
            if job.wanted > total or registry.fleet is not FleetState.READY or now < job.not_before:
                continue
            missing = registry.missing(job)
            if registry.may_have_former_slots(job, now):
                # Its former slots are about to be freed for it: only the others that it needs have to stay free.
                reserved += max(0, missing - registry.former_slots(job))
                continue
            # All slots of the job or none: else two jobs could hold half of theirs each, for ever.
            if free is None and missing <= registry.table.total_free() - reserved:
                free = [s for s in registry.table.free(now) if self._executors.is_usable(registry.table.owner(s))]
            if free is not None and missing <= len(free) - reserved:
                out += [self._request(slot, job) for slot in free[:missing]]
                free = free[missing:]
                continue
            out += self._no_executors(job)
            # The first job that waits holds back those behind it, for some time.
            if now < job.waiting_since + HOLDING_BACK * registry.settings.slot_request_timeout:
                break
        else:
            out += self._rest(now, reserved)
        return out

    def _rest(self, now: float, reserved: int) -> list[Instruction]:
        """Give free slots to jobs that take more than they need, leaving as many as are ``reserved``."""
        registry, out = self._registry, list[Instruction]()
        if registry.fleet is not FleetState.READY:
            return out
        for job in registry.jobs.values():
            if not job.declared or not registry.room(job) or registry.missing(job) or now < job.not_before:
                continue
            free = [s for s in registry.table.free(now) if self._executors.is_usable(registry.table.owner(s))]
            out += [self._request(slot, job) for slot in free[: max(0, min(registry.room(job), len(free) - reserved))]]
        return out

    def why_waiting(self, job: RegisteredJob, now: float) -> str:
        """Why a job still waits for slots, in words for people; empty: it does not, or they may be on their way."""
        registry = self._registry
        missing = registry.missing(job) if job.declared else 0
        if not missing:
            return ""
        if self._workers.is_active and (trouble := self._workers.trouble(now)):
            return trouble
        if now < job.waiting_since + TELL_AFTER or self._workers.potential():
            return ""
        total = registry.table.total()
        if job.wanted > total:
            return slot_shortage.more_are_needed(job.wanted, total)
        free = registry.table.total_free()
        return slot_shortage.too_few_are_free(missing, free, total) if missing > free else ""

    def no_slots(self, job: RegisteredJob, cause: str) -> SendFailSlot:
        """Tell a job that it waits in vain for slots; the message names none of them."""
        return SendFailSlot(job.address, job.token, next(iter(self._registry.table.taskmanagers), "(none)"), "", cause)

    def _request(self, slot: TaskManagerSlot, job: RegisteredJob) -> SendRequestSlot:
        self._registry.table.allocate(slot, self._new_id(), job.id, SlotState.REQUESTED, job.epoch)
        taskmanager = self._registry.table.owner(slot)
        return SendRequestSlot(
            taskmanager.id,
            taskmanager.address,
            slot.index,
            slot.allocation_id,
            job.id,
            job.address,
            job.token,
            job.python,
            job.epoch,
        )

    def _too_small(self, job: RegisteredJob, now: float) -> list[Instruction]:
        registry = self._registry
        settings, total = registry.settings, registry.table.total()
        most = total + self._workers.potential()
        patience = 0.0 if self._workers.is_active else settings.start_up_time if total else settings.empty_start_up_time
        if job.told == (job.wanted, most) or now < registry.started + patience:
            return []
        job.told = (job.wanted, most)
        if self._workers.is_active:
            message = slot_shortage.no_more_are_started(settings.max_slots)
        elif total:
            message = slot_shortage.larger_taskmanagers_are_needed(job.wanted)
        else:
            message = slot_shortage.NO_TASKMANAGER
        return [SendNoResources(job.address, job.token, job.wanted, most, message)]

    def _no_executors(self, job: RegisteredJob) -> list[Instruction]:
        failing = self._executors.failing()
        if failing is None or job.told_executors:
            return []
        job.told_executors = True
        taskmanager_id, cause = failing
        text = slot_shortage.no_executor_starts(taskmanager_id, cause)
        return [SendFailSlot(job.address, job.token, taskmanager_id, "", text)]
