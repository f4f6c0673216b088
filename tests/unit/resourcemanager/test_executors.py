"""Executors of TaskManagers: who gets one, when slots run on it, and what happens when it is lost."""

from __future__ import annotations

import pytest

from firesteel_resourcemanager import instructions as i
from firesteel_resourcemanager.core import ResourceManagerCore
from firesteel_resourcemanager.executors import (
    ATTACH_PATIENCE,
    DETACHED_GRACE,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MOST_FAILURES,
    STEADY,
)
from firesteel_resourcemanager.registry import UnregisteredTaskManagerError
from tests.unit.resourcemanager.cores import add_job, add_taskmanager, grant, make, requests

NONE: frozenset[str] = frozenset()


def orders(out: list[i.Instruction]) -> list[i.StartExecutor]:
    return [x for x in out if isinstance(x, i.StartExecutor)]


def start(core: ResourceManagerCore, order: i.StartExecutor, name: str, now: float = 0.0) -> None:
    """The TaskManager takes an order."""
    assert core.executor_named(order.taskmanager_id, order.attempt, name)
    assert core.executor_started(order.taskmanager_id, order.attempt, now) == []
    core.validate()


def test_each_taskmanager_gets_an_executor_when_the_fleet_is_ready() -> None:
    core = make(ready=False, spare_cores=1)
    assert add_taskmanager(core, 2, "x") == []
    out = orders(core.fleet_started(NONE, 1.0))
    assert [(o.taskmanager_id, o.taskmanager_address, o.cores) for o in out] == [("x", "http://x", 7)]
    assert [o.taskmanager_id for o in orders(add_taskmanager(core, 2, "y", now=2.0))] == ["y"]
    assert core.tick(3.0) == []


def test_a_fleet_that_needs_no_executors_gets_none() -> None:
    core = make()
    add_taskmanager(core, 1)
    (request,) = requests(add_job(core, "j", 1))
    assert core.slot_granted(request.allocation_id, 0.0) == [i.LaunchSlot("tm", request.allocation_id, "")]


def test_slots_are_given_away_only_where_an_executor_is_attached() -> None:
    core = make(executors=NONE)
    (order,) = orders(add_taskmanager(core, 1))
    assert add_job(core, "j", 1) == []
    start(core, order, "1")
    assert core.executors_attached(NONE, 1.0) == []
    out = core.executors_attached(frozenset({"1"}), 2.0)
    (request,) = requests(out)
    assert core.slot_granted(request.allocation_id, 2.0) == [i.LaunchSlot("tm", request.allocation_id, "1")]
    assert not core.executors.is_waiting


def test_an_executor_may_be_attached_before_its_taskmanager_has_answered() -> None:
    core = make(executors=NONE)
    (order,) = orders(add_taskmanager(core, 1))
    assert core.executor_named("tm", order.attempt, "1")
    core.executors_attached(frozenset({"1"}), 0.5)
    assert core.executor_started("tm", order.attempt, 1.0) == []
    assert len(requests(add_job(core, "j", 1))) == 1


def test_a_new_resourcemanager_goes_on_with_the_executors_that_are_attached() -> None:
    core = make(ready=False)
    add_taskmanager(core, 1, "before", executor="3")
    assert core.fleet_started(frozenset({"3", "4"}), 0.0) == []
    assert add_taskmanager(core, 1, "after", executor="4") == []
    assert len(requests(add_job(core, "j", 2))) == 2
    assert [o.taskmanager_id for o in orders(add_taskmanager(core, 1, "stale", executor="1"))] == ["stale"]


def test_a_lost_executor_is_replaced_after_a_pause_that_grows() -> None:
    core = make(executors=NONE)
    (order,) = orders(add_taskmanager(core, 1))
    now, pauses = 0.0, []
    for number in range(8):
        start(core, order, str(number), now)
        assert core.executor_lost("tm", str(number), "killed", now) == []
        for pause in (FIRST_PAUSE * 2**n for n in range(6)):
            if new_orders := orders(core.tick(now + min(pause, LONGEST_PAUSE))):
                order = new_orders[0]
                pauses.append(min(pause, LONGEST_PAUSE))
                break
        now += pauses[-1]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_a_taskmanager_whose_executors_never_come_is_asked_again_for_ever() -> None:
    core = make(executors=NONE)
    (order,) = orders(add_taskmanager(core, 1))
    for number in range(1100):
        core.executor_failed("tm", order.attempt, "no Java was found", LONGEST_PAUSE * number)
        (order,) = orders(core.tick(LONGEST_PAUSE * (number + 1)))
    core.validate()


def test_an_executor_that_lived_long_is_replaced_at_once_as_the_first_failure() -> None:
    core = make(executors=NONE)
    (order,) = orders(add_taskmanager(core, 1))
    core.executor_failed("tm", order.attempt, "no port", 0.0)
    (order,) = orders(core.tick(FIRST_PAUSE))
    start(core, order, "1", FIRST_PAUSE)
    core.executors_attached(frozenset({"1"}), 2.0)
    core.executor_lost("tm", "1", "killed", 2.0 + STEADY)
    assert len(orders(core.tick(2.0 + STEADY + FIRST_PAUSE))) == 1


def test_the_loss_of_an_older_executor_does_not_matter() -> None:
    core = make(executors=NONE)
    (order,) = orders(add_taskmanager(core, 1))
    start(core, order, "2")
    assert core.executor_lost("tm", "1", "its last slot ended", 0.0) == []
    assert core.tick(10.0) == []


def test_a_lost_executor_of_an_unknown_taskmanager_is_refused() -> None:
    with pytest.raises(UnregisteredTaskManagerError):
        make(executors=NONE).executor_lost("tm", "1", "killed", 0.0)


def test_a_loss_that_overtakes_the_answer_to_the_order_counts() -> None:
    core = make(executors=NONE)
    (order,) = orders(add_taskmanager(core, 1))
    assert core.executor_named("tm", order.attempt, "1")
    core.executor_lost("tm", "1", "no memory", 0.0)
    assert core.executor_started("tm", order.attempt, 0.1) == []
    assert len(orders(core.tick(FIRST_PAUSE))) == 1


def test_an_executor_that_never_reaches_the_driver_is_given_up() -> None:
    core = make(executors=NONE)
    (order,) = orders(add_taskmanager(core, 1))
    start(core, order, "1")
    assert core.tick(ATTACH_PATIENCE - 0.1) == []
    core.tick(ATTACH_PATIENCE)
    (again,) = orders(core.tick(ATTACH_PATIENCE + FIRST_PAUSE))
    assert not core.executor_named("tm", order.attempt, "1")
    assert core.executor_named("tm", again.attempt, "2")


def test_an_executor_may_be_missing_in_the_drivers_list_for_a_moment_but_takes_no_slots_then() -> None:
    core = make(executors=NONE)
    (order,) = orders(add_taskmanager(core, 1))
    start(core, order, "1")
    core.executors_attached(frozenset({"1"}), 1.0)
    core.executors_attached(NONE, 2.0)
    assert add_job(core, "j", 1, now=2.5) == []
    assert len(requests(core.executors_attached(frozenset({"1"}), 3.0))) == 1
    core.executors_attached(NONE, 4.0)
    core.executors_attached(NONE, 4.0 + DETACHED_GRACE)
    assert len(orders(core.tick(4.0 + DETACHED_GRACE + FIRST_PAUSE))) == 1


def test_a_granted_slot_waits_for_the_next_executor() -> None:
    core = make(executors=NONE)
    (order,) = orders(add_taskmanager(core, 1))
    start(core, order, "1")
    core.executors_attached(frozenset({"1"}), 0.0)
    (request,) = requests(add_job(core, "j", 1))
    core.executor_lost("tm", "1", "killed", 0.0)
    assert core.slot_granted(request.allocation_id, 0.1) == []
    (order,) = orders(core.tick(FIRST_PAUSE))
    start(core, order, "2", FIRST_PAUSE)
    assert core.executors_attached(frozenset({"2"}), 2.0) == [i.LaunchSlot("tm", request.allocation_id, "2")]


def test_each_new_driver_means_a_new_executor_and_orders_of_the_old_one_are_void() -> None:
    core = make(executors=NONE, outlive=True)
    (old,) = orders(add_taskmanager(core, 1))
    core.fleet_lost("killed", 0.0)
    assert not core.executor_named("tm", old.attempt, "1")
    (new,) = orders(core.fleet_started(NONE, 1.0))
    assert not core.executor_named("tm", old.attempt, "1")
    start(core, new, "2", 1.0)


def test_jobs_are_told_when_executors_fail_everywhere_again_and_again() -> None:
    core = make(executors=NONE)
    (order,) = orders(add_taskmanager(core, 1))
    add_job(core, "j", 1)
    now, instructions = 0.0, list[i.Instruction]()
    for _ in range(MOST_FAILURES + 2):
        instructions += core.executor_failed("tm", order.attempt, "no Java was found", now)
        now += LONGEST_PAUSE
        out = core.tick(now)
        (order,) = orders(out)
        instructions += out
    (failed,) = (x for x in instructions if isinstance(x, i.SendFailSlot))
    assert failed.cause == "TaskManager tm can't start a Spark executor: no Java was found"


def test_a_taskmanager_with_an_executor_serves_while_another_has_none() -> None:
    core = make(executors=frozenset({"1"}))
    add_taskmanager(core, 1, "good", executor="1")
    (order,) = orders(add_taskmanager(core, 1, "bad"))
    for number in range(MOST_FAILURES):
        core.executor_failed("bad", order.attempt, "no Java was found", LONGEST_PAUSE * number)
        (order,) = orders(core.tick(LONGEST_PAUSE * (number + 1)))
    assert [r.taskmanager_id for r in requests(add_job(core, "j", 1))] == ["good"]
    assert grant(core, add_job(core, "k", 2)) == []


def test_stages_may_take_as_many_cores_of_an_executor_as_their_job_has_slots_there() -> None:
    core = make(executors=frozenset({"1", "2"}))
    add_taskmanager(core, 2, "x", executor="1")
    add_taskmanager(core, 2, "y", executor="2")
    grant(core, add_job(core, "stream", 1))
    granted = grant(core, add_job(core, "batch", 2))
    where = {core.table.owner(slot).executor.id for slot in core.table.of_job("batch")}
    assert core.stage_places("batch") == {executor: (2 // len(where), 2) for executor in where}
    lost = core.table.find(granted[0])
    assert lost is not None
    core.taskmanager_gone(core.table.owner(lost).id, "killed", 1.0)
    left = core.stage_places("batch")
    assert left is not None
    assert sum(cores for cores, _ in left.values()) == len(core.table.of_job("batch"))
    assert core.stage_places("nobody") == {}
    assert make().stage_places("batch") is None, "there are no executors"
