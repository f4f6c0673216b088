"""The slots that a job holds."""

from __future__ import annotations

from collections import deque

from firesteel.graph.execution_graph import LogicalSlot

KEPT_RETURNED = 1000


class SlotPool:
    """Takes offered slots until it has enough, and knows which of them the job uses no more.

    Args:
        needed: how many the job needs.
    """

    def __init__(self, needed: int) -> None:
        self.needed = needed
        self.most = 0
        """Slots that are taken if that is more than ``needed``."""
        self.returned: deque[str] = deque(maxlen=KEPT_RETURNED)
        """Slots that were given back or lost while the job went on."""
        self._slots: dict[str, LogicalSlot] = {}
        self._at: dict[str, dict[str, LogicalSlot]] = {}
        """TaskManager -> allocation -> slot."""
        self._unused: dict[str, LogicalSlot] = {}
        """Slots in which no task has its place."""
        self._idle_since: dict[str, float] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, allocation_id: str) -> bool:
        return allocation_id in self._slots

    @property
    def is_full(self) -> bool:
        """Whether the job has all the slots that it needs."""
        return len(self._slots) >= self.needed

    def slots(self) -> list[LogicalSlot]:
        """All slots that the job holds."""
        return list(self._slots.values())

    def get(self, allocation_id: str) -> LogicalSlot | None:
        """The slot of an allocation, if it is held."""
        return self._slots.get(allocation_id)

    def at(self, taskmanager_id: str) -> list[LogicalSlot]:
        """The slots that the job holds at a TaskManager."""
        return list(self._at.get(taskmanager_id, {}).values())

    def taskmanagers(self) -> list[str]:
        """TaskManagers at which the job holds slots."""
        return list(self._at)

    def unused(self) -> list[LogicalSlot]:
        """Slots in which no task has its place, now."""
        return list(self._unused.values())

    def offer(self, slot: LogicalSlot) -> bool:
        """Take a slot, if it is needed; returns whether it is the job's now, or was before.

        An offer of a known allocation by another TaskManager, or from another process, is refused.
        """
        known_slot = self._slots.get(slot.allocation_id)
        if known_slot is not None:
            return known_slot.taskmanager_id == slot.taskmanager_id and known_slot.pid == slot.pid
        if self._closed or len(self._slots) >= max(self.needed, self.most):
            return False
        self._slots[slot.allocation_id] = self._unused[slot.allocation_id] = slot
        self._at.setdefault(slot.taskmanager_id, {})[slot.allocation_id] = slot
        return True

    def clear(self) -> None:
        """Note that no task has its place in any slot any more."""
        self._unused, self._idle_since = dict(self._slots), {}

    def remove(self, allocation_id: str) -> None:
        """Remove a slot that is lost, or was given back."""
        self._idle_since.pop(allocation_id, None)
        self._unused.pop(allocation_id, None)
        slot = self._slots.pop(allocation_id, None)
        if slot is not None:
            self.returned.append(allocation_id)
            there = self._at[slot.taskmanager_id]
            del there[allocation_id]
            if not there:
                del self._at[slot.taskmanager_id]

    def idle(self, allocation_id: str, now: float) -> None:
        """Note that the job is done with a slot."""
        if allocation_id in self._slots:
            self._idle_since.setdefault(allocation_id, now)

    def is_idle(self, allocation_id: str) -> bool:
        """Whether the job is done with a slot that it holds."""
        return allocation_id in self._idle_since

    def use(self, allocation_id: str) -> None:
        """Note that a task has its place in a slot, or is deployed there again."""
        self._idle_since.pop(allocation_id, None)
        self._unused.pop(allocation_id, None)

    def idle_before(self, moment: float) -> list[LogicalSlot]:
        """Slots that the job was done with by this moment."""
        return [self._slots[id_] for id_, since in self._idle_since.items() if since <= moment]

    @property
    def longest_idle(self) -> float | None:
        """Time when the first of the idle slots became idle; None = none is idle."""
        return min(self._idle_since.values(), default=None)

    def validate(self) -> None:
        """Check what must hold after every event (tests call it)."""
        at = {slot.allocation_id for slots in self._at.values() for slot in slots.values()}
        assert at == self._slots.keys(), f"slots by TaskManager are {sorted(at)}, and in all {sorted(self._slots)}"
        assert self._unused.keys() <= self._slots.keys(), "a slot is unused that is not held"
        assert self._idle_since.keys() <= self._slots.keys(), "a slot is idle that is not held"
        assert not self._unused.keys() & self._idle_since.keys(), "a slot was never used, and is idle"

    def close(self) -> list[LogicalSlot]:
        """Accept no more slots; returns those that have to be given back, and holds them no longer."""
        self._closed = True
        slots = self.slots()
        for index in (self._slots, self._at, self._unused, self._idle_since):
            index.clear()
        return slots
