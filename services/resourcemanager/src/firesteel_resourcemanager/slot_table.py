"""The ResourceManager's view of TaskManagers and their slots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class SlotState(Enum):
    """Of one slot; FREE is the first and the last."""

    FREE = "FREE"
    REQUESTED = "REQUESTED"
    """The TaskManager was told; its answer is awaited."""
    ALLOCATED = "ALLOCATED"
    """The TaskManager holds it for the job."""
    RELEASING = "RELEASING"
    """Given back; the TaskManager has not said yet that it is free."""


@dataclass
class Slot:
    """One slot of a TaskManager."""

    taskmanager_id: str
    index: int
    state: SlotState = SlotState.FREE
    allocation_id: str = ""
    job_id: str = ""
    launched: bool = False
    """The fleet runs a process for it."""
    give_back: str = ""
    """Set while REQUESTED: release it, with this cause, as soon as the TaskManager has answered."""
    free_at: float | None = None
    """While RELEASING: when to tell the TaskManager, unless it says before that the slot is free."""
    ended: str | None = None
    """The fleet said that the slot's process is gone; the cause."""
    ended_at: float = 0.0
    revision: int = 0
    """Of the table, at the last change; a report asked for before that says nothing about this slot."""
    not_before: float = 0.0
    """Monotonic time before which the slot is not given to anyone: its TaskManager refused it a moment ago."""
    pid: int | None = None


@dataclass
class TaskManager:
    """A registered TaskManager."""

    id: str
    address: str
    slots: dict[int, Slot]
    hardware: Mapping[str, Any] = field(default_factory=dict)
    memory_configuration: Mapping[str, Any] = field(default_factory=dict)
    last_heartbeat_ms: int = 0


class SlotTable:
    """All slots, found by TaskManager and index, or by allocation."""

    def __init__(self) -> None:
        self.taskmanagers: dict[str, TaskManager] = {}
        self.revision = 0
        self._by_allocation: dict[str, Slot] = {}

    def __iter__(self) -> Iterator[Slot]:
        for taskmanager in self.taskmanagers.values():
            yield from taskmanager.slots.values()

    def total(self) -> int:
        """Slots of all TaskManagers."""
        return sum(len(t.slots) for t in self.taskmanagers.values())

    def free(self, now: float) -> list[Slot]:
        """Slots that can be given away, spread over TaskManagers: those with the most free slots first."""
        groups = [
            [s for s in t.slots.values() if s.state is SlotState.FREE and s.not_before <= now]
            for t in self.taskmanagers.values()
        ]
        picked: list[Slot] = []
        while groups := [g for g in groups if g]:
            picked.append(max(groups, key=len).pop(0))
        return picked

    def find(self, allocation_id: str) -> Slot | None:
        """The slot of an allocation that was not freed yet."""
        return self._by_allocation.get(allocation_id)

    def of_job(self, job_id: str) -> list[Slot]:
        """Slots that are tied to a job, those on their way back included."""
        return [s for s in self._by_allocation.values() if s.job_id == job_id]

    def touch(self, slot: Slot) -> None:
        """Note that a slot has just changed."""
        self.revision += 1
        slot.revision = self.revision

    def allocate(self, slot: Slot, allocation_id: str, job_id: str, state: SlotState) -> None:
        """FREE -> REQUESTED (or ALLOCATED, when learnt from a report)."""
        assert slot.state is SlotState.FREE, slot
        assert allocation_id not in self._by_allocation, slot
        slot.state, slot.allocation_id, slot.job_id = state, allocation_id, job_id
        self._by_allocation[allocation_id] = slot
        self.touch(slot)

    def clear(self, slot: Slot) -> None:
        """Any state -> FREE."""
        self._by_allocation.pop(slot.allocation_id, None)
        slot.state, slot.allocation_id, slot.job_id, slot.give_back = SlotState.FREE, "", "", ""
        slot.launched, slot.ended, slot.pid, slot.free_at = False, None, None, None
        self.touch(slot)

    def validate(self) -> None:
        """Check what must hold after every event (tests call it)."""
        held = [s for s in self if s.state is not SlotState.FREE]
        assert len({s.allocation_id for s in held}) == len(held), "an allocation names two slots"
        assert {s.allocation_id: s for s in held} == self._by_allocation, "the index is wrong"
        for slot in self:
            assert (slot.state is SlotState.FREE) == (not slot.allocation_id), slot
            assert bool(slot.allocation_id) == bool(slot.job_id), slot
