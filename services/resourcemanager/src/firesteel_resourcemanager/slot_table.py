"""The ResourceManager's view of TaskManagers and their slots."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from firesteel.core.errors import IllegalTransitionError
from firesteel_resourcemanager.executor import Executor


class SlotState(Enum):
    """Life of one slot, as the ResourceManager sees it; FREE is the first state and the last."""

    FREE = "FREE"
    REQUESTED = "REQUESTED"
    """The TaskManager was told; its answer is awaited."""
    ALLOCATED = "ALLOCATED"
    """The TaskManager holds it for the job."""
    RELEASING = "RELEASING"
    """Given back; the TaskManager has not said yet that it is free."""


MOVES: Final[Mapping[SlotState, frozenset[SlotState]]] = {
    SlotState.FREE: frozenset({SlotState.REQUESTED, SlotState.ALLOCATED}),
    SlotState.REQUESTED: frozenset({SlotState.ALLOCATED, SlotState.FREE}),
    SlotState.ALLOCATED: frozenset({SlotState.RELEASING, SlotState.FREE}),
    SlotState.RELEASING: frozenset({SlotState.FREE}),
}
"""FREE -> ALLOCATED: learnt from a report."""


@dataclass
class TaskManagerSlot:
    """One slot of a TaskManager."""

    taskmanager_id: str
    index: int
    state: SlotState = SlotState.FREE
    allocation_id: str = ""
    job_id: str = ""
    epoch: int = 0
    """Epoch of the JobMaster that it was given to; 0: the job's JobMasters have none."""
    launched: bool = False
    """The fleet was asked to start its process, which may run."""
    launches: int = 0
    """How often a fleet was asked."""
    unsure: bool = False
    """Whether its process will come is not known: the next report tells if it has to be launched again."""
    ask_at: float | None = None
    """Time to ask for that report while unsure, if slots can be launched by then."""
    give_back: str = ""
    """Set while REQUESTED: release it, with this cause, as soon as the TaskManager has answered."""
    free_at: float | None = None
    """Time to tell the TaskManager while RELEASING, unless it says before that the slot is free."""
    ended: str | None = None
    """The fleet said that the slot's process is gone; the cause."""
    ended_at: float = 0.0
    revision: int = 0
    """Revision of the table at the last change of the slot; a report asked for before that does not count for it."""
    not_before: float = 0.0
    """Monotonic time before which the slot is not given to anyone: its TaskManager refused it a moment ago."""
    pid: int | None = None
    """Pid of its process, if its TaskManager has reported one."""
    active: bool = False
    """The TaskManager says that the JobMaster has accepted the slot."""

    @property
    def counts(self) -> bool:
        """Whether it counts for its job's requirements."""
        return self.state is SlotState.ALLOCATED or (self.state is SlotState.REQUESTED and not self.give_back)

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for the fleet, for time or for a report."""
        waits = self.free_at is not None or self.ended is not None or self.unsure
        return waits or (self.launched and self.pid is None)


LAST_JOBS: Final = 64


@dataclass
class RegisteredTaskManager:
    """A registered TaskManager, with its slots and its executor."""

    id: str
    address: str
    slots: dict[int, TaskManagerSlot]
    executor: Executor
    hardware: Mapping[str, Any] = field(default_factory=dict)
    memory_configuration: Mapping[str, Any] = field(default_factory=dict)
    last_heartbeat_ms: int = 0

    held: int = 0
    """How many of its slots are not free."""
    last_jobs: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_JOBS))
    """Jobs that were given slots last: a TaskManager that stops frees its slots before it leaves."""

    @property
    def is_idle(self) -> bool:
        """Whether no job has a slot of this TaskManager."""
        return self.held == 0


class SlotTable:
    """All slots, found by TaskManager and index, by allocation, or by job.

    What every event asks for is counted or kept in an index, so that it costs nothing to have many slots.
    """

    def __init__(self) -> None:
        self.taskmanagers: dict[str, RegisteredTaskManager] = {}
        self.revision = 0
        self._total = 0
        self._by_allocation: dict[str, TaskManagerSlot] = {}
        self._of_jobs: dict[str, dict[str, TaskManagerSlot]] = {}
        self._counting: Counter[str] = Counter()
        """How many slots count for each job's requirements."""
        self._watched: dict[str, TaskManagerSlot] = {}
        """Allocation -> slot, for slots that may wait for something."""

    def __iter__(self) -> Iterator[TaskManagerSlot]:
        for taskmanager in self.taskmanagers.values():
            yield from taskmanager.slots.values()

    def add(self, taskmanager: RegisteredTaskManager) -> None:
        """A TaskManager has registered."""
        self.taskmanagers[taskmanager.id] = taskmanager
        self._total += len(taskmanager.slots)

    def grow(self, taskmanager: RegisteredTaskManager, slots: int) -> None:
        """A TaskManager has at least so many slots."""
        before = len(taskmanager.slots)
        for index in range(slots):
            taskmanager.slots.setdefault(index, TaskManagerSlot(taskmanager.id, index))
        self._total += len(taskmanager.slots) - before

    def remove(self, taskmanager: RegisteredTaskManager) -> None:
        """A TaskManager is gone; its slots are free."""
        del self.taskmanagers[taskmanager.id]
        self._total -= len(taskmanager.slots)

    def total(self) -> int:
        """Slots of all TaskManagers."""
        return self._total

    def total_free(self) -> int:
        """Number of free slots, some of which may not be given away for now."""
        return self._total - len(self._by_allocation)

    def free(self, now: float) -> list[TaskManagerSlot]:
        """Slots that can be given away, spread over TaskManagers: a slot of the one with the most free slots first."""
        ranked: list[tuple[int, int, TaskManagerSlot]] = []
        for number, taskmanager in enumerate(self.taskmanagers.values()):
            if taskmanager.held == len(taskmanager.slots):
                continue
            free = [s for s in taskmanager.slots.values() if s.state is SlotState.FREE and s.not_before <= now]
            ranked += [(index - len(free), number, slot) for index, slot in enumerate(free)]
        ranked.sort(key=lambda rank: rank[:2])  # by the free slots that the TaskManager has left then, most first
        return [slot for _, _, slot in ranked]

    def watched(self) -> list[TaskManagerSlot]:
        """Slots that wait for something: the fleet, time or a report."""
        waiting = {allocation: slot for allocation, slot in self._watched.items() if slot.is_waiting}
        self._watched = waiting
        return list(waiting.values())

    def watch(self, slot: TaskManagerSlot) -> None:
        """A slot may wait for something from now on."""
        if slot.allocation_id:
            self._watched[slot.allocation_id] = slot

    def find(self, allocation_id: str) -> TaskManagerSlot | None:
        """The slot of an allocation that was not freed yet."""
        return self._by_allocation.get(allocation_id)

    def of_job(self, job_id: str) -> list[TaskManagerSlot]:
        """Slots that are tied to a job, those on their way back included."""
        return list(self._of_jobs.get(job_id, {}).values())

    def counting(self, job_id: str) -> int:
        """How many slots count for a job's requirements."""
        return self._counting[job_id]

    def give_back(self, slot: TaskManagerSlot, cause: str) -> None:
        """A requested slot is to be released when its TaskManager has answered; empty: it is not."""
        counted = slot.counts
        slot.give_back = cause
        self._count(slot, counted)

    def _count(self, slot: TaskManagerSlot, counted: bool) -> None:
        self._counting[slot.job_id] += slot.counts - counted

    def owner(self, slot: TaskManagerSlot) -> RegisteredTaskManager:
        """The TaskManager of a slot of the table."""
        return self.taskmanagers[slot.taskmanager_id]

    def touch(self, slot: TaskManagerSlot) -> None:
        """Note that a slot has just changed."""
        self.revision += 1
        slot.revision = self.revision

    def move(self, slot: TaskManagerSlot, to: SlotState) -> None:
        """Go to a state.

        Raises:
            IllegalTransitionError: there is no such move.
        """
        if to not in MOVES[slot.state]:
            raise IllegalTransitionError(
                f"slot {slot.index} of {slot.taskmanager_id} (allocation {slot.allocation_id}): no move "
                f"{slot.state.name} -> {to.name}"
            )
        self._go(slot, to)

    def _go(self, slot: TaskManagerSlot, to: SlotState) -> None:
        counted = slot.counts
        self.taskmanagers[slot.taskmanager_id].held += (to is not SlotState.FREE) - (slot.state is not SlotState.FREE)
        slot.state = to
        if slot.job_id:
            self._count(slot, counted)
        self.touch(slot)

    def allocate(
        self, slot: TaskManagerSlot, allocation_id: str, job_id: str, state: SlotState, epoch: int = 0
    ) -> None:
        """FREE -> REQUESTED (or ALLOCATED, when learnt from a report)."""
        assert allocation_id not in self._by_allocation, slot
        self.move(slot, state)
        slot.allocation_id, slot.job_id, slot.epoch = allocation_id, job_id, epoch
        self._by_allocation[allocation_id] = slot
        self._of_jobs.setdefault(job_id, {})[allocation_id] = slot
        self.owner(slot).last_jobs.append(job_id)
        self._count(slot, counted=False)

    def clear(self, slot: TaskManagerSlot) -> None:
        """Any other state -> FREE."""
        self.move(slot, SlotState.FREE)
        self._by_allocation.pop(slot.allocation_id)
        self._watched.pop(slot.allocation_id, None)
        of_job = self._of_jobs[slot.job_id]
        del of_job[slot.allocation_id]
        if not of_job:
            del self._of_jobs[slot.job_id], self._counting[slot.job_id]
        slot.allocation_id, slot.job_id, slot.epoch, slot.give_back = "", "", 0, ""
        slot.launched, slot.launches, slot.unsure, slot.ask_at = False, 0, False, None
        slot.ended, slot.pid, slot.free_at, slot.active = None, None, None, False

    def validate(self) -> None:
        """Check what must hold after every event (tests call it)."""
        taken_slots = [s for s in self if s.state is not SlotState.FREE]
        assert len({s.allocation_id for s in taken_slots}) == len(taken_slots), "an allocation names two slots"
        assert {s.allocation_id: s for s in taken_slots} == self._by_allocation, "the index is wrong"
        assert self._total == sum(len(t.slots) for t in self.taskmanagers.values()), "the total is wrong"
        for taskmanager in self.taskmanagers.values():
            count = sum(s.state is not SlotState.FREE for s in taskmanager.slots.values())
            assert taskmanager.held == count, f"{taskmanager.id}: {taskmanager.held} of {count}"
        for job_id in {s.job_id for s in taken_slots} | self._of_jobs.keys():
            of_job = {s.allocation_id: s for s in taken_slots if s.job_id == job_id}
            assert self._of_jobs.get(job_id, {}) == of_job, f"the index of job {job_id} is wrong"
            assert self._counting[job_id] == sum(s.counts for s in of_job.values()), (
                f"the count of job {job_id} is wrong"
            )
        for slot in taken_slots:
            assert slot.allocation_id in self._watched or not slot.is_waiting, f"nobody watches {slot}"
        for slot in self:
            assert (slot.state is SlotState.FREE) == (not slot.allocation_id), slot
            assert bool(slot.allocation_id) == bool(slot.job_id), slot
            assert slot.allocation_id or not (slot.launched or slot.unsure or slot.active or slot.pid), slot
            assert slot.ask_at is None or slot.unsure, slot
            assert not slot.give_back or slot.state is SlotState.REQUESTED, slot
            assert slot.free_at is None or slot.state is SlotState.RELEASING, slot
