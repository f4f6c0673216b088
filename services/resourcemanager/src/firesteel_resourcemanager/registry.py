"""Who is known to the ResourceManager: TaskManagers with their slots, JobMasters, the fleet."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from firesteel.core.backoff import pause_after
from firesteel.core.errors import IllegalTransitionError
from firesteel.service.heartbeat import REGISTERS_AGAIN
from firesteel_resourcemanager.settings import ResourceManagerSettings
from firesteel_resourcemanager.slot_table import RegisteredTaskManager, SlotTable, TaskManagerSlot

FIRST_SETBACK, LONGEST_SETBACK = 1.0, 60.0
"""Seconds for which a job that has lost a slot gets no other one: it fails, or declares anew what it needs."""
REGISTRATION_SECONDS = 2.0
"""A TaskManager looks each second whether it hears nothing, and then registers."""
_EPOCHS = 10_000
"""Jobs of which is remembered who led them last."""
_ENDED_JOBS = 1000
"""Ended jobs that are remembered, so that their slots are not kept for them."""


class FleetState(Enum):
    """States of the fleet, as the core knows it."""

    STARTING = "STARTING"
    READY = "READY"
    FAILED = "FAILED"


FLEET_MOVES: Final[Mapping[FleetState, frozenset[FleetState]]] = {
    FleetState.STARTING: frozenset({FleetState.READY, FleetState.FAILED}),
    FleetState.READY: frozenset({FleetState.STARTING}),
    FleetState.FAILED: frozenset({FleetState.STARTING}),
}


class UnregisteredJobError(KeyError):
    """No JobMaster is registered for this job."""


class UnregisteredTaskManagerError(KeyError):
    """No TaskManager of this id is registered."""


class FormerJobMasterError(Exception):
    """The JobMaster leads the job no more: another one does, or did."""


class TaskManagerRefusedError(Exception):
    """A TaskManager can't register; the message says why, and what to do."""


@dataclass
class RegisteredJob:
    """A registered JobMaster, and the slots that its job needs."""

    id: str
    name: str
    address: str
    token: str
    python: Mapping[str, Any] = field(default_factory=dict)
    """The Python environment of its slots; only TaskManagers read it."""
    wanted: int = 0
    """Slots that it needs."""
    most: int = 0
    """Slots that it takes if nobody else needs them; at least ``wanted``."""
    declared: bool = False
    """Whether it has declared what it needs."""
    waiting_since: float = 0.0
    could_be_served: bool = False
    """The cluster has had as many slots as it needs, since it waits for them."""
    told: tuple[int, int] | None = None
    """Slots (needed, total) of the last ``SendNoResources`` to it."""
    told_waiting: str = ""
    """Reason of the last ``SendWaiting`` to it."""
    told_executors: bool = False
    """The job was told that no executor can be started."""
    refusals: int = 0
    """Slots in a row that their TaskManagers did not grant."""
    setbacks: int = 0
    """Slots that it has lost since it has declared what it wants."""
    not_before: float = 0.0
    """Monotonic seconds before which it gets no slots."""
    epoch: int = 0
    """Orders it among the JobMasters of the job; 0: they are in no order."""
    former_taskmanagers: frozenset[str] | None = None
    """TaskManagers at which tasks of former JobMasters may run; None: not known."""
    former: frozenset[str] = frozenset()
    """Allocations of its former JobMaster: tasks in them may still write, so it gets slots when all are freed."""


@dataclass
class RetainedSlots:
    """Slots of a job whose JobMaster is not registered."""

    until: float
    token: str
    """Token of the JobMaster that was lost; empty if that was never known here."""


class ClusterRegistry:
    """The state that all parts of the core share."""

    def __init__(self, settings: ResourceManagerSettings, now: float) -> None:
        self.settings, self.started = settings, now
        self.table = SlotTable()
        self.jobs: dict[str, RegisteredJob] = {}
        self.kept: dict[str, RetainedSlots] = {}
        """Job -> its slots, for jobs without a registered JobMaster."""
        self.fleet = FleetState.STARTING
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._epochs: OrderedDict[str, int] = OrderedDict()
        """Job -> epoch of the JobMaster that registered last."""

    def move_fleet(self, to: FleetState) -> None:
        """The fleet goes to a state.

        Raises:
            IllegalTransitionError: there is no such move.
        """
        if to not in FLEET_MOVES[self.fleet]:
            raise IllegalTransitionError(f"fleet: no move {self.fleet.name} -> {to.name}")
        self.fleet = to

    def job(self, job_id: str) -> RegisteredJob:
        """A registered job.

        Raises:
            UnregisteredJobError: its JobMaster did not register.
        """
        job = self.jobs.get(job_id)
        if job is None:
            raise UnregisteredJobError(f"no JobMaster is registered for job {job_id}")
        return job

    def taskmanager(self, taskmanager_id: str) -> RegisteredTaskManager:
        """A registered TaskManager.

        Raises:
            UnregisteredTaskManagerError: it did not register.
        """
        taskmanager = self.table.taskmanagers.get(taskmanager_id)
        if taskmanager is None:
            raise UnregisteredTaskManagerError(f"no TaskManager {taskmanager_id!r} is registered")
        return taskmanager

    def held(self, job: RegisteredJob) -> list[TaskManagerSlot]:
        """Slots that count for a job's requirements."""
        return [s for s in self.table.of_job(job.id) if s.counts]

    @property
    def complete_at(self) -> float:
        """Monotonic seconds by which every TaskManager has registered that can reach this ResourceManager."""
        return self.started + REGISTERS_AGAIN * self.settings.heartbeat_interval + REGISTRATION_SECONDS

    def may_have_former_slots(self, job: RegisteredJob, now: float) -> bool:
        """Whether slots of the JobMaster before it are not freed yet: on TaskManagers that are there, or that have not
        registered here yet. One that can't be reached for longer frees them by itself: it hears of no JobMaster."""
        return self.former_slots(job) > 0 or (job.epoch > 1 and now < self.complete_at and not self._has_former(job))

    def _has_former(self, job: RegisteredJob) -> bool:
        """Whether all TaskManagers have registered where tasks of the JobMaster before may run."""
        return job.former_taskmanagers is not None and job.former_taskmanagers <= self.table.taskmanagers.keys()

    def former_slots(self, job: RegisteredJob) -> int:
        """How many slots of the JobMaster before it are known and not freed yet."""
        return sum(self.table.find(allocation) is not None for allocation in job.former)

    def is_taken_over(self, job: RegisteredJob) -> bool:
        """Whether a JobMaster goes on with a job that another one has led, and has none of its slots yet."""
        return (job.epoch > 1 or bool(job.former)) and self.missing(job) == job.wanted

    def missing(self, job: RegisteredJob) -> int:
        """How many slots a job wants and does not have."""
        return max(0, job.wanted - self.table.counting(job.id))

    def room(self, job: RegisteredJob) -> int:
        """How many slots a job would take beside those that it has."""
        return max(0, job.most - self.table.counting(job.id))

    def set_back(self, job: RegisteredJob, now: float) -> None:
        """A job has lost a slot that it wanted: a moment without another one, longer each time until it declares."""
        job.setbacks += 1
        job.not_before = now + pause_after(job.setbacks, FIRST_SETBACK, LONGEST_SETBACK)

    def keep(self, job_id: str, now: float, token: str = "") -> bool:
        """Keep the slots of a job until its JobMaster registers (again); False if the job has ended."""
        if job_id in self._ended:
            return False
        self.kept.setdefault(job_id, RetainedSlots(now + self.settings.job_timeout, token))
        return True

    def ended(self, job_id: str) -> None:
        """Remember that a job has ended."""
        self.kept.pop(job_id, None)
        self._ended[job_id] = None
        self._ended.move_to_end(job_id)
        while len(self._ended) > _ENDED_JOBS:
            self._ended.popitem(last=False)

    def claim(self, job_id: str, epoch: int) -> None:
        """Note that a JobMaster of this epoch leads a job.

        Raises:
            FormerJobMasterError: a JobMaster of a later epoch has registered before.
        """
        latest = self._epochs.get(job_id, 0)
        if epoch < latest:
            raise FormerJobMasterError(f"epoch {epoch} of job {job_id} is over: a JobMaster of epoch {latest} leads it")
        self._epochs[job_id] = epoch
        self._epochs.move_to_end(job_id)
        while len(self._epochs) > _EPOCHS:
            self._epochs.popitem(last=False)

    def revived(self, job_id: str) -> RetainedSlots | None:
        """A JobMaster of this job registers; returns the slots that were kept for it."""
        self._ended.pop(job_id, None)
        return self.kept.pop(job_id, None)

    def validate(self) -> None:
        """Check what must hold after every event (tests call it)."""
        self.table.validate()
        assert not self.kept.keys() & self.jobs.keys(), "slots are kept for a registered job"
        assert not self.kept.keys() & self._ended.keys(), "slots are kept for a job that has ended"
        for slot in self.table:
            assert not slot.counts or slot.job_id in self.jobs or slot.job_id in self.kept, f"{slot} is nobody's"
