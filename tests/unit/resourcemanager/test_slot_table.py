from __future__ import annotations

import random

from firesteel_resourcemanager.executor import Executor
from firesteel_resourcemanager.slot_table import RegisteredTaskManager, SlotState, SlotTable, TaskManagerSlot


def table(*counts: int) -> SlotTable:
    slots = SlotTable()
    for number, count in enumerate(counts):
        taskmanager = RegisteredTaskManager(f"tm{number}", f"http://tm{number}", {}, Executor(""))
        slots.add(taskmanager)
        slots.grow(taskmanager, count)
    return slots


def one_by_one(slots: SlotTable) -> list[TaskManagerSlot]:
    """As it is meant: each time one of the TaskManager that has most left, the first of several."""
    groups = [[s for s in t.slots.values() if s.state is SlotState.FREE] for t in slots.taskmanagers.values()]
    picked = []
    while groups := [group for group in groups if group]:
        picked.append(max(groups, key=len).pop(0))
    return picked


def test_free_slots_come_from_the_taskmanagers_that_have_most_left() -> None:
    rng = random.Random(1)
    for _ in range(50):
        slots = table(*(rng.randint(0, 6) for _ in range(rng.randint(1, 6))))
        for number, slot in enumerate(list(slots)):
            if rng.random() < 0.4:
                slots.allocate(slot, f"a{number}", "job", SlotState.ALLOCATED)
        slots.validate()
        assert slots.free(0.0) == one_by_one(slots)
        assert slots.total_free() == len(slots.free(0.0))


def test_only_slots_that_wait_are_looked_at_when_time_passes() -> None:
    slots = table(3)
    first, second, _ = slots
    for name, slot in (("a", first), ("b", second)):
        slots.allocate(slot, name, "job", SlotState.REQUESTED)
        slots.move(slot, SlotState.ALLOCATED)
    assert slots.counting("job") == 2
    first.launched = True
    slots.watch(first)
    assert slots.watched() == [first]
    first.pid = 7
    assert slots.watched() == []
    slots.move(first, SlotState.RELEASING)
    assert slots.counting("job") == 1
    slots.clear(first)
    slots.clear(second)
    assert (slots.counting("job"), slots.of_job("job"), slots.total_free()) == (0, [], 3)
    slots.validate()
