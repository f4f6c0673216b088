"""The ResourceManager's decisions: events in, instructions out; no input or output, no clock of its own.

This module says what each event means. The decisions are made by area: who gets which slots (``slot_manager``), what
becomes of a single slot (``slot_life``), executors of the fleet (``executors``), TaskManagers that the ResourceManager
starts itself (``workers``). All of them look at the same ``registry``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from firesteel.core.ids import AllocationIds, new_allocation_id
from firesteel.protocol import slot_shortage
from firesteel.protocol.fleet import SlotOutcome
from firesteel.protocol.messages import RegisterTaskManager, SlotStatus
from firesteel.protocol.stages import Places
from firesteel_resourcemanager.executor import Executor
from firesteel_resourcemanager.executors import Executors
from firesteel_resourcemanager.instructions import (
    CancelLaunch,
    Instruction,
    SendWaiting,
    StartFleet,
    TellTaskManagerEnded,
)
from firesteel_resourcemanager.registry import (
    ClusterRegistry,
    FleetState,
    FormerJobMasterError,
    RegisteredJob,
    TaskManagerRefusedError,
)
from firesteel_resourcemanager.settings import ResourceManagerSettings
from firesteel_resourcemanager.slot_life import FOLLOWED, SlotLife
from firesteel_resourcemanager.slot_manager import SlotManager
from firesteel_resourcemanager.slot_table import RegisteredTaskManager, SlotState
from firesteel_resourcemanager.workers import Workers, WorkerState

logger = logging.getLogger(__name__)

REFUSED_PAUSE = 1.0
"""Seconds for which a slot that its TaskManager refused is not asked for again."""
MOST_REFUSALS = 5
"""Refusals in a row after which a job is told."""


class ResourceManagerCore:
    """TaskManager registry, slot table and slot manager.

    Every event method takes ``now`` (monotonic seconds) where time matters, and returns what has to be done, in order.

    Args:
        settings: timeouts and bounds.
        now: monotonic seconds.
        allocation_ids: makes allocation ids; default: in a row.
        worker_ids: makes ids of workers.
        active: whether the driver can start workers.
        slots_outlive_driver: whether slots go on when the fleet is lost.
    """

    def __init__(
        self,
        settings: ResourceManagerSettings,
        now: float,
        allocation_ids: Callable[[], str] | None = None,
        *,
        worker_ids: Callable[[], str] = new_allocation_id,
        active: bool = False,
        slots_outlive_driver: bool = False,
    ) -> None:
        self._settings, self._outlive = settings, slots_outlive_driver
        self.registry = ClusterRegistry(settings, now)
        self.table = self.registry.table
        self.executors = Executors(self.table.taskmanagers, settings.spare_cores)
        self.workers = Workers(self.registry, worker_ids, active)
        self._life = SlotLife(self.registry, self.executors)
        self._manager = SlotManager(self.registry, self.executors, self.workers, allocation_ids or AllocationIds())

    @property
    def jobs(self) -> dict[str, RegisteredJob]:
        return self.registry.jobs

    def job(self, job_id: str) -> RegisteredJob:
        """A registered job.

        Raises:
            UnregisteredJobError: its JobMaster did not register.
        """
        return self.registry.job(job_id)

    def stage_places(self, job_id: str) -> Places | None:
        """Where tasks of a bounded job may be: as many on the executor of a TaskManager as the job has slots there.

        None: the fleet has no executors.
        """
        if not self.executors.are_needed:
            return None
        places: dict[str, tuple[int, int]] = {}
        for slot in self.table.of_job(job_id):
            taskmanager = self.table.owner(slot)
            executor = self.executors.id_of(taskmanager)
            if executor and slot.counts:
                cores, slots = places.get(executor, (0, len(taskmanager.slots)))
                places[executor] = cores + 1, slots
        return places

    # -- TaskManagers

    def register_taskmanager(self, message: RegisterTaskManager, now: float, now_ms: int) -> list[Instruction]:
        """A TaskManager presents itself, perhaps again. One that had its address before is gone.

        Raises:
            TaskManagerRefusedError: it is being stopped, or the cluster would have too many slots.
        """
        known = self.table.taskmanagers.get(message.taskmanager_id)
        former_taskmanagers = [
            former
            for former in self.table.taskmanagers.values()
            if former.address == message.address and former.id != message.taskmanager_id
        ]
        self._check_wanted(
            message, sum(len(former.slots) for former in (known, *former_taskmanagers) if former is not None)
        )
        out: list[Instruction] = []
        for former in former_taskmanagers:
            cause = f"TaskManager {message.taskmanager_id} has its address now"
            out += self._forget(former, cause, now) + self.workers.stop(former.id, cause, now)
        if known is not None and known.address != message.address:
            out += self._forget(known, "it was started anew", now)
            known = None
        if known is not None:  # its next report says how it is; this one may be older than what it has granted since
            known.hardware, known.memory_configuration = message.hardware, message.memory_configuration
            return out + self._settle(now)
        taskmanager = RegisteredTaskManager(
            message.taskmanager_id, message.address, {}, Executor(message.executor_id), message.hardware,
            message.memory_configuration, now_ms,
        )  # fmt: skip
        self.table.add(taskmanager)
        logger.info("TaskManager %s registered with %d slots at %s", taskmanager.id, message.slots, taskmanager.address)
        self.table.grow(taskmanager, message.slots)
        self.executors.registered(taskmanager, now)
        self.workers.registered(taskmanager, now)
        return out + self._reconcile(taskmanager, message.slot_report, self.table.revision, now) + self._settle(now)

    def _check_wanted(self, message: RegisterTaskManager, had: int) -> None:
        if self.workers.state(message.taskmanager_id) is WorkerState.STOPPING:
            raise TaskManagerRefusedError(f"TaskManager {message.taskmanager_id} is being stopped")
        total = self.table.total() - had + message.slots
        if message.slots > had and total > self._settings.max_slots:
            raise TaskManagerRefusedError(
                f"TaskManager {message.taskmanager_id} with {message.slots} slots is not accepted: the cluster would "
                f"have {total}, and slotmanager.number-of-slots.max is {self._settings.max_slots}"
            )

    def set_slots(self, taskmanager_id: str, slots: int, now: float) -> list[Instruction]:
        """A TaskManager has more slots now; a smaller number than before is ignored."""
        self.table.grow(self.registry.taskmanager(taskmanager_id), slots)
        return self._settle(now)

    def taskmanager_gone(self, taskmanager_id: str, cause: str, now: float, orderly: bool = False) -> list[Instruction]:
        """Forget a TaskManager and its slots; JobMasters notice by their own heartbeats.

        How a worker has ended they hear as soon as that is known (``worker_ended``).
        """
        taskmanager = self.table.taskmanagers.get(taskmanager_id)
        if taskmanager is None:
            return []
        out = self._forget(taskmanager, cause, now, orderly)
        return out + self.workers.stop(taskmanager_id, cause, now) + self._settle(now)

    def _forget(
        self, taskmanager: RegisteredTaskManager, cause: str, now: float, orderly: bool = False
    ) -> list[Instruction]:
        self.workers.lost(taskmanager.id, _jobs_at(taskmanager))
        if orderly:
            logger.info("TaskManager %s has left: %s", taskmanager.id, cause)
        else:
            logger.warning("TaskManager %s is lost: %s", taskmanager.id, cause)
        out: list[Instruction] = []
        for slot in taskmanager.slots.values():
            if slot.state is not SlotState.FREE:
                out.append(CancelLaunch(slot.allocation_id))
                slot.launched = False
                self._life.lost(slot, now)
                self.table.clear(slot)
        self.table.remove(taskmanager)
        return out

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
        return self._reconcile(taskmanager, report, as_of, now) + self._settle(now)

    def _reconcile(
        self, taskmanager: RegisteredTaskManager, report: Iterable[SlotStatus], as_of: int, now: float
    ) -> list[Instruction]:
        out: list[Instruction] = []
        for status in report:
            if status.slot_index not in taskmanager.slots:
                self.table.grow(taskmanager, status.slot_index + 1)
            slot = taskmanager.slots[status.slot_index]
            if slot.revision <= as_of and slot.state is not SlotState.REQUESTED:
                out += self._life.reconcile(taskmanager, slot, status, now)
        return out

    def slot_available(self, taskmanager_id: str, slot_index: int, allocation_id: str, now: float) -> list[Instruction]:
        """A TaskManager freed a slot."""
        slot = self.table.find(allocation_id)
        if slot is None or (slot.taskmanager_id, slot.index) != (taskmanager_id, slot_index):
            return []
        if slot.state is SlotState.REQUESTED:  # freed before its own answer to the request came here
            self.table.give_back(slot, slot.give_back or "the TaskManager freed it")
            return []
        self._life.lost(slot, now)
        self._life.clear(slot, now)
        return self._settle(now)

    def slot_granted(self, allocation_id: str, now: float) -> list[Instruction]:
        """The TaskManager holds the slot for the job."""
        slot = self.table.find(allocation_id)
        if slot is None or slot.state is not SlotState.REQUESTED:
            return []
        job = self.jobs.get(slot.job_id)
        give_back = slot.give_back or ("" if job is not None else "the job is gone")
        self.table.give_back(slot, "")
        self.table.move(slot, SlotState.ALLOCATED)
        if job is not None:
            job.refusals = 0
        if give_back:
            return [*self._life.release(slot, give_back), *self._settle(now)]
        return self._life.launch(slot)

    def slot_refused(self, allocation_id: str, cause: str, now: float) -> list[Instruction]:
        """The TaskManager did not give the slot, or did not answer."""
        slot = self.table.find(allocation_id)
        if slot is None or slot.state is not SlotState.REQUESTED:
            return []
        logger.warning("slot %d of %s was not granted: %s", slot.index, slot.taskmanager_id, cause)
        slot.not_before = now + REFUSED_PAUSE
        self.table.give_back(slot, "")
        self.table.move(slot, SlotState.ALLOCATED)  # it may have arrived all the same
        out: list[Instruction] = []
        job = self.jobs.get(slot.job_id)
        if job is not None:
            job.refusals += 1
            if job.refusals == MOST_REFUSALS:
                refusal = slot_shortage.slots_are_refused(slot.taskmanager_id, cause)
                out.append(self._manager.no_slots(job, refusal))
        return [*out, *self._life.release(slot, "the request was not answered"), *self._settle(now)]

    # -- JobMasters

    def check_sender(self, job_id: str, token: str) -> None:
        """Check that a message comes from the JobMaster that is registered for a job; one without a token passes.

        Raises:
            UnregisteredJobError: no JobMaster is registered.
            FormerJobMasterError: another JobMaster is registered.
        """
        if token not in ("", self.job(job_id).token):
            raise FormerJobMasterError(f"another JobMaster leads job {job_id}")

    def is_followed(self, job_id: str, token: str) -> bool:
        """Whether another JobMaster of a job is registered, or was the last one that was."""
        job, retained = self.registry.jobs.get(job_id), self.registry.kept.get(job_id)
        last_token = job.token if job is not None else retained.token if retained is not None else ""
        return bool(last_token and token) and token != last_token

    def register_jobmaster(
        self,
        job_id: str,
        name: str,
        address: str,
        token: str,
        now: float,
        python: Mapping[str, Any] | None = None,
        epoch: int = 0,
        former_taskmanagers: Collection[str] | None = None,
    ) -> list[Instruction]:
        """A JobMaster presents itself, perhaps again.

        Args:
            job_id, name: of the job.
            address, token: of the JobMaster.
            now: monotonic seconds.
            python: what its slots need, for TaskManagers to read.
            epoch: orders it among the JobMasters of the job; 0: it does not.
            former_taskmanagers: where tasks of the JobMasters before may run; None: not known.

        Raises:
            FormerJobMasterError: a later one has registered.
        """
        self.registry.claim(job_id, epoch)
        job = self.jobs.get(job_id)
        if job is not None and job.token == token:
            job.address, job.name = address, name
            return []
        retained = self.registry.revived(job_id)
        was_other = job is not None or (retained is not None and retained.token not in ("", token))
        self.jobs[job_id] = RegisteredJob(job_id, name, address, token, dict(python or {}), epoch=epoch)
        if former_taskmanagers is not None:
            self.jobs[job_id].former_taskmanagers = frozenset(former_taskmanagers)
        out: list[Instruction] = []
        slots = self.table.of_job(job_id)
        for slot in slots:
            if slot.epoch < epoch or (was_other and not epoch):
                out += self._life.release(slot, FOLLOWED)
        going = [slot for slot in slots if slot.state is SlotState.RELEASING or slot.give_back]
        self.jobs[job_id].former = frozenset(slot.allocation_id for slot in going)
        return out + self._settle(now)

    def declare_requirements(
        self, job_id: str, count: int, now: float, returned: Collection[str] = (), most: int = 0
    ) -> list[Instruction]:
        """A job needs ``count`` slots now, including those that it has; it is done with the returned ones.

        If nobody else needs them, the job takes up to ``most`` slots in all.
        """
        job = self.job(job_id)
        own_slots = self.registry.held(job)
        if count != job.wanted or not job.declared:
            job.told, job.refusals = None, 0
            if count > len(own_slots):
                job.waiting_since = now
        job.wanted, job.most, job.declared, job.told_executors = count, max(count, most), True, False
        job.setbacks, job.not_before = 0, 0.0
        if count == 0:
            out = self._life.release_all(own_slots, "the job gave it back")
        else:  # it says which ones it is done with, and may use any other that it can have got to know
            out = self._life.release_all(
                [s for s in own_slots if s.allocation_id in returned], "the job is done with it"
            )
            out += self._life.trim(job)
        if count > len(own_slots) and self.registry.fleet is FleetState.FAILED:
            self.registry.move_fleet(FleetState.STARTING)
            out.append(StartFleet())
        return out + self._settle(now)

    def jobmaster_gone(self, job_id: str, cause: str, now: float) -> list[Instruction]:
        """The job ended; its JobMaster tells the TaskManagers to free its slots, and this makes sure of it."""
        job = self.jobs.pop(job_id, None)
        self.registry.ended(job_id)
        out: list[Instruction] = []
        for slot in self.table.of_job(job_id):
            out += self._life.release_soon(slot, cause, now)
        if job is not None:
            logger.info("JobMaster of job %s (%s) left: %s", job_id, job.name, cause)
        return out + self._settle(now)

    def jobmaster_lost(self, job_id: str, cause: str, now: float) -> list[Instruction]:
        """A JobMaster is silent: it gets no more slots, and those it has are kept for a while."""
        job = self.jobs.pop(job_id, None)
        if job is None:
            return []
        logger.warning("JobMaster of job %s (%s) is lost: %s", job_id, job.name, cause)
        out: list[Instruction] = []
        if self.table.of_job(job_id):
            self.registry.keep(job_id, now, job.token)
        for slot in self.table.of_job(job_id):
            if slot.state is SlotState.REQUESTED:
                out += self._life.release(slot, cause)
        return out + self._settle(now)

    # -- fleet

    def start(self, now: float) -> list[Instruction]:
        """The service leads; it may have waited long for that."""
        self.registry.started = now
        return [StartFleet()]

    def fleet_started(self, attached: frozenset[str] | None, now: float) -> list[Instruction]:
        """Slots can be launched; ``attached`` are the executors that are there, None: the fleet needs none."""
        self.registry.move_fleet(FleetState.READY)
        self.executors.fleet_started(attached, now)
        return self._life.launch_waiting() + self._settle(now)

    def fleet_failed(self, message: str) -> list[Instruction]:
        """The fleet could not be started: jobs that wait fail with the reason; the next declaration tries again."""
        logger.error("the fleet could not be started: %s", message)
        self.registry.move_fleet(FleetState.FAILED)
        out: list[Instruction] = []
        for job in self.jobs.values():
            idle = [s for s in self.registry.held(job) if not s.launched]
            if self.registry.missing(job) or idle:
                out.append(self._manager.no_slots(job, slot_shortage.no_slot_starts(message)))
                for slot in idle:
                    out += self._life.release(slot, message)
        return out

    def fleet_lost(self, message: str, now: float) -> list[Instruction]:
        """The fleet died, and a new one is started. What ran in it fails, unless it goes on without it."""
        if self.registry.fleet is not FleetState.READY:
            return []
        logger.error("the fleet is lost and is started anew: %s", message)
        self.registry.move_fleet(FleetState.STARTING)
        self.executors.fleet_lost(now)
        return [*self._life.fleet_lost(message, now, self._outlive), StartFleet()]

    def launch_failed(self, allocation_id: str, message: str, now: float) -> list[Instruction]:
        """The fleet refused to start a slot, though it runs."""
        slot = self.table.find(allocation_id)
        if slot is None:
            return []
        return [*self._life.launch_failed(slot, message, now), *self._settle(now)]

    def launch_postponed(self, allocation_id: str) -> list[Instruction]:
        """The fleet had died before it could start a slot: the next fleet will."""
        slot = self.table.find(allocation_id)
        if slot is not None:
            self._life.launch_postponed(slot)
        return []

    def slot_ended(self, allocation_id: str, outcome: SlotOutcome, message: str, now: float) -> list[Instruction]:
        """The process of a slot is gone for good, by the fleet's word; or it came to the wrong place."""
        self._life.forget_leftover(allocation_id)
        slot = self.table.find(allocation_id)
        if slot is None:
            return []
        failed = self._life.ended(slot, outcome, message, now)
        return [*failed, *self._settle(now)] if failed else []

    # -- executors

    def executor_named(self, taskmanager_id: str, attempt: int, executor_id: str) -> bool:
        """The fleet has given an executor its id; returns whether the TaskManager still has to start it."""
        return self.executors.named(taskmanager_id, attempt, executor_id)

    def executor_started(self, taskmanager_id: str, attempt: int, now: float) -> list[Instruction]:
        """A TaskManager starts its executor."""
        self.executors.started(taskmanager_id, attempt, now)
        return []

    def executor_failed(self, taskmanager_id: str, attempt: int, cause: str, now: float) -> list[Instruction]:
        """The fleet gave no executor, or the TaskManager did not take the order."""
        self.executors.failed(taskmanager_id, attempt, cause, now)
        return self._settle(now)

    def executor_lost(self, taskmanager_id: str, executor_id: str, cause: str, now: float) -> list[Instruction]:
        """An executor of a TaskManager has ended.

        Raises:
            UnregisteredTaskManagerError: it has to register first.
        """
        self.executors.lost(self.registry.taskmanager(taskmanager_id).id, executor_id, cause, now)
        return self._settle(now)

    def executors_attached(self, attached: frozenset[str], now: float) -> list[Instruction]:
        """The fleet says which executors it has."""
        usable = self.executors.listed(attached, now)
        out: list[Instruction] = self._life.launch_waiting() if usable else []
        return out + self._settle(now) if usable else self.executors.advance(now)

    # -- workers

    def workers_recovered(self, worker_ids: Iterable[str], now: float) -> list[Instruction]:
        """The driver is ready, and found these workers of a former ResourceManager."""
        self.workers.recovered(worker_ids, now)
        return self._settle(now)

    def workers_wait(self, reasons: Mapping[str, str], now: float) -> list[Instruction]:
        """Workers do not run yet, for these reasons."""
        self.workers.wait(reasons)
        return self._settle(now)

    def worker_failed(self, worker_id: str, cause: str, now: float) -> list[Instruction]:
        """The driver could not start a worker."""
        self.workers.failed(worker_id, cause, now)
        return self._settle(now)

    def worker_ended(self, worker_id: str, cause: str, now: float) -> list[Instruction]:
        """A worker is gone, and its TaskManager with it: jobs that had slots there hear how it has ended."""
        jobs = self.workers.ended(worker_id, cause, now)
        taskmanager = self.table.taskmanagers.get(worker_id)
        if taskmanager is not None:
            jobs |= _jobs_at(taskmanager)
        affected_jobs = [job for job_id in sorted(jobs) if (job := self.registry.jobs.get(job_id)) is not None]
        notices = [TellTaskManagerEnded(job.address, job.token, worker_id, cause) for job in affected_jobs]
        gone = self.taskmanager_gone(worker_id, cause, now)
        return [*notices, *(gone or self._settle(now))]

    # -- time

    def tick(self, now: float) -> list[Instruction]:
        out = self._life.tick(now)
        for job_id, retained in list(self.registry.kept.items()):
            slots = self.table.of_job(job_id)
            if slots and now < retained.until:
                continue
            del self.registry.kept[job_id]
            for slot in slots:
                out += self._life.release(slot, "its JobMaster did not come back (resourcemanager.job.timeout)")
        for worker_id in self.workers.idle(now):
            out += self.workers.stop(worker_id, "nobody uses it (resourcemanager.taskmanager-timeout)", now)
            taskmanager = self.table.taskmanagers.get(worker_id)
            if taskmanager is not None:
                out += self._forget(taskmanager, "it is stopped", now, orderly=True)
        return out + self._settle(now)

    @property
    def fleet_is_ready(self) -> bool:
        """Whether slots can be launched, as far as is known."""
        return self.registry.fleet is FleetState.READY

    @property
    def is_watching(self) -> bool:
        """Whether the fleet should be asked often which slots ended, and ``tick`` be called as often."""
        return self._life.is_watching or self.executors.is_waiting

    def validate(self) -> None:
        """Check what must hold after every event (tests call it)."""
        self.registry.validate()
        self.executors.validate()
        self.workers.validate()

    # -- inside

    def _settle(self, now: float) -> list[Instruction]:
        """What follows from any event: slots are given away, executors and workers are asked for."""
        out = [*self._manager.schedule(now), *self.executors.advance(now), *self.workers.plan(now)]
        return [*out, *self._tell_why(now)]

    def _tell_why(self, now: float) -> list[Instruction]:
        """Jobs that wait for slots hear why."""
        out = list[Instruction]()
        for job in self.registry.jobs.values():
            reason = self._manager.why_waiting(job, now)
            if reason != job.told_waiting:
                job.told_waiting = reason
                out.append(SendWaiting(job.address, job.token, reason))
        return out


def _jobs_at(taskmanager: RegisteredTaskManager) -> frozenset[str]:
    """Jobs that have slots at a TaskManager, or were given some last."""
    jobs = (slot.job_id for slot in taskmanager.slots.values() if slot.state is not SlotState.FREE)
    return frozenset((*taskmanager.last_jobs, *jobs))
