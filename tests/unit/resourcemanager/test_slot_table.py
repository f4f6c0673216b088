from __future__ import annotations

import random

from firesteel_resourcemanager.executor import Executor
from firesteel_resourcemanager.slot_table import RegisteredTaskManager, SlotState, SlotTable, TaskManagerSlot


def table(*counts: int) -> SlotTable:
    made = SlotTable()
    for number, count in enumerate(counts):
        taskmanager = RegisteredTaskManager(f"tm{number}", f"http://tm{number}", {}, Executor(""))
        made.add(taskmanager)
        made.grow(taskmanager, count)
    return made


def one_by_one(made: SlotTable) -> list[TaskManagerSlot]:
    """As it is meant: each time one of the TaskManager that has most left, the first of several."""
    groups = [[s for s in t.slots.values() if s.state is SlotState.FREE] for t in made.taskmanagers.values()]
    picked = []
    while groups := [group for group in groups if group]:
        picked.append(max(groups, key=len).pop(0))
    return picked


def test_free_slots_come_from_the_taskmanagers_that_have_most_left() -> None:
    rng = random.Random(1)
    for _ in range(50):
        made = table(*(rng.randint(0, 6) for _ in range(rng.randint(1, 6))))
        for number, slot in enumerate(list(made)):
            if rng.random() < 0.4:
                made.allocate(slot, f"a{number}", "job", SlotState.ALLOCATED)
        made.validate()
        assert made.free(0.0) == one_by_one(made)
        assert made.total_free() == len(made.free(0.0))


def test_only_slots_that_wait_are_looked_at_when_time_passes() -> None:
    made = table(3)
    first, second, _ = made
    for name, slot in (("a", first), ("b", second)):
        made.allocate(slot, name, "job", SlotState.REQUESTED)
        made.move(slot, SlotState.ALLOCATED)
    assert made.counting("job") == 2
    first.launched = True
    made.watch(first)
    assert made.watched() == [first]
    first.pid = 7
    assert made.watched() == []
    made.move(first, SlotState.RELEASING)
    assert made.counting("job") == 1
    made.clear(first)
    made.clear(second)
    assert (made.counting("job"), made.of_job("job"), made.total_free()) == (0, [], 3)
    made.validate()
