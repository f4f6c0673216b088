"""What is decided for thousands of tasks at once is decided in slices, and anything may happen between two of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, pairwise

import pytest

from firesteel.core.state_machine import StateMachine
from firesteel.graph.execution_states import ExecutionState
from firesteel.protocol import messages as m
from firesteel.protocol.deployment import TaskFailure
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.slices import (
    CANCELLED_AT_ONCE,
    DEPLOYED_AT_ONCE,
    PLACED_AT_ONCE,
    SCHEDULED_AT_ONCE,
    LongWork,
    Slices,
)
from tests.unit.jobmaster.jobs import Driver, failure, job, tasks_of, vertex
from tests.unit.jobmaster.test_reactive import Reactive
from tests.unit.jobmaster.test_restarts import fire, settings

SLOTS = 1200
TASKS = 2 * SLOTS
assert CANCELLED_AT_ONCE < TASKS
assert 3 * DEPLOYED_AT_ONCE < SLOTS


@pytest.fixture
def offered() -> Driver:
    """A job that has just got its slots."""
    d = started("REBALANCE", SLOTS)
    d.offer(*range(SLOTS))
    return d


def started(partitioner: str, parallelism: int) -> Driver:
    """A job that waits for its slots."""
    vertices = (replace(vertex(number, parallelism), max_parallelism=32768) for number in (1, 2))
    d = Driver(job(*vertices, partitioner=partitioner), settings(attempts=9, delay=0.0))
    d.core.validates = parallelism <= FEW  # it looks at all tasks after each report of one of them
    d.start()
    return d


def slices(d: Driver) -> Iterator[list[do.Instruction]]:
    """Those of the events that follow, until nothing is left."""
    while go_on := d.seen(do.GoOn):
        assert len(go_on) == 1
        d.all.remove(go_on[0])
        yield d.did(d.core.go_on())


def deployed(d: Driver) -> list[str]:
    """Ids of all tasks that were submitted, also of those that are asked for from now on."""
    for instructions in slices(d):
        assert sum(isinstance(instruction, do.SubmitSlot) for instruction in instructions) <= DEPLOYED_AT_ONCE
        cancelled = [
            i
            for instruction in instructions
            if isinstance(instruction, do.CancelSlotTasks)
            for i in instruction.execution_ids
        ]
        assert len(cancelled) <= CANCELLED_AT_ONCE
    return [id_ for submit in d.seen(do.SubmitSlot) for id_ in tasks_of(submit)]


def until_some_are_deployed(d: Driver) -> None:
    for _ in slices(d):
        if d.seen(do.SubmitSlot):
            return


def test_placing_and_scheduling_are_no_single_event(monkeypatch: pytest.MonkeyPatch) -> None:
    moves: list[ExecutionState] = []
    move = StateMachine.move

    def counted(machine: StateMachine[ExecutionState], to: ExecutionState, cause: str) -> None:
        moves.append(to)
        move(machine, to, cause)

    monkeypatch.setattr(StateMachine, "move", counted)
    d = started("REBALANCE", SLOTS)
    moves.clear()
    d.offer(*range(SLOTS))
    events = 0
    placed = [sum(shared.slot is not None for shared in d.core.graph.shared_slots)]
    for _ in slices(d):
        assert len(moves) <= max(SCHEDULED_AT_ONCE, 2 * DEPLOYED_AT_ONCE)
        moves.clear()
        placed.append(sum(shared.slot is not None for shared in d.core.graph.shared_slots))
        events += 1
    assert max(after - before for before, after in pairwise([0, *placed])) == PLACED_AT_ONCE
    assert events >= TASKS // SCHEDULED_AT_ONCE + SLOTS // DEPLOYED_AT_ONCE


FEW = 8


@pytest.mark.parametrize("partitioner", ["REBALANCE", "FORWARD"])
def test_a_slot_may_be_lost_in_any_slice(partitioner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PLACED_AT_ONCE", "SCHEDULED_AT_ONCE", "CANCELLED_AT_ONCE", "RESTARTED_AT_ONCE"):
        monkeypatch.setattr(f"firesteel_jobmaster.slices.{name}", 3)
    monkeypatch.setattr("firesteel_jobmaster.slices.DEPLOYED_AT_ONCE", 2)
    moments = len(list(slices(offered_few(partitioner))))
    assert moments > 2 * FEW // 3 + FEW // 2
    for moment in range(moments + 1):
        for lost in (0, 1, 2, 3, FEW - 1):
            d = offered_few(partitioner)
            for _ in islice(slices(d), moment):
                pass
            before = len(d.seen(do.SubmitSlot))
            d.did(d.core.fail_slot(m.FailSlot("tm", f"tm-{lost}", "it was killed")))
            if lost % 2:
                d.offer(FEW)  # and what has ended is started again, before all slices are done
                for _ in slices(d):
                    d.finish_cancelled()
                    fire(d, 1.0)
            _until_rest(d)
            d.offer(FEW)
            _until_rest(d)
            assert {d.state(id_) for id_ in d.ids()} == {"DEPLOYING"}, (moment, lost)
            assert d.core.state.name == "RUNNING"
            submits = d.seen(do.SubmitSlot)
            ids = [id_ for submit in submits for id_ in tasks_of(submit)]
            assert len(set(ids)) == len(ids)
            assert set(d.ids()) <= set(ids)
            assert f"tm-{lost}" not in {submit.allocation_id for submit in submits[before:]}
            for submit in submits:
                for id_ in set(tasks_of(submit)) & set(d.ids()):
                    execution = d.core.graph.execution(id_)
                    assert execution is not None
                    assert execution.slot is not None
                    assert execution.slot.allocation_id == submit.allocation_id


def offered_few(partitioner: str) -> Driver:
    d = started(partitioner, FEW)
    d.offer(*range(FEW))
    return d


@pytest.mark.parametrize("partitioner", ["REBALANCE", "FORWARD"])
@pytest.mark.parametrize("event", ["slot lost", "task failed", "all fail", "cancelled", "suspended", "job failed"])
def test_anything_may_happen_while_a_job_is_started_again(
    partitioner: str, event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PLACED_AT_ONCE", "SCHEDULED_AT_ONCE", "CANCELLED_AT_ONCE", "RESTARTED_AT_ONCE", "DEPLOYED_AT_ONCE"):
        monkeypatch.setattr(f"firesteel_jobmaster.slices.{name}", 3)
    ends = {"cancelled": "CANCELED", "suspended": "SUSPENDED", "job failed": "FAILED"}
    moment, is_over = 0, False
    while not is_over:
        d = offered_few(partitioner)
        _until_rest(d)
        d.did(d.core.taskmanager_lost("tm", "it was killed"))
        d.offer(*range(FEW), tm="other")
        is_over = len(list(islice(slices(d), moment))) < moment
        moment += 1
        if event == "slot lost":
            d.did(d.core.fail_slot(m.FailSlot("other", "other-5", "it was killed")))
        elif event == "task failed":
            bad = next((id_ for id_ in d.ids() if d.state(id_) == "DEPLOYING"), d.ids()[0])
            d.report(bad, "FAILED", failure(), tm="other")
        elif event == "cancelled":
            d.did(d.core.cancel("enough"))
        elif event == "suspended":
            d.did(d.core.suspend("it stops"))
        else:
            d.core._job.failover.fail(TaskFailure("user", "E", "no", "no", recoverable=event == "all fail"))
            d.did(d.core.resourcemanager_connected())
        _until_rest(d, tm="other")
        d.offer(FEW, tm="other")
        _until_rest(d, tm="other")
        assert d.core.state.name == ends.get(event, "RUNNING"), moment
        states = {d.state(id_) for id_ in d.ids()}
        if event in ends:
            assert states <= {"CANCELED", "FAILED"}, moment
        else:
            assert states == {"DEPLOYING"}, moment
    assert moment > 2 * (2 * FEW // 3)


def _until_rest(d: Driver, tm: str = "tm") -> None:
    """What was cancelled ends, and is started again."""
    for _ in range(3):
        for _ in slices(d):
            pass
        d.finish_cancelled(tm)
        fire(d, 1.0)
    for _ in slices(d):
        pass


def test_a_large_job_is_deployed_cancelled_and_started_again_in_slices(offered: Driver) -> None:
    d = offered
    assert sorted(deployed(d)) == sorted(d.ids())
    assert {submit.deployment.placement.id for submit in d.seen(do.SubmitSlot)} == {
        d.seen(do.SubmitSlot)[0].deployment.placement.id
    }
    first, *others = d.ids()
    d.all.clear()
    d.report(first, "FAILED", failure())
    assert not deployed(d)
    assert sorted(i for instruction in d.seen(do.CancelSlotTasks) for i in instruction.execution_ids) == sorted(others)
    d.finish_cancelled()
    fire(d, 0.0)
    assert sorted(deployed(d)) == sorted(d.ids())
    assert {id_.rpartition("_")[2] for id_ in d.ids()} == {"1"}
    assert d.core.state.name == "RUNNING"


def test_a_slot_that_is_lost_between_two_slices_is_not_deployed_into(offered: Driver) -> None:
    d = offered
    until_some_are_deployed(d)
    begun = {id_ for submit in d.seen(do.SubmitSlot) for id_ in tasks_of(submit)}
    assert 0 < len(begun) < TASKS
    last = f"tm-{SLOTS - 1}"
    d.did(d.core.fail_slot(m.FailSlot("tm", last, "it was killed")))
    assert d.core.state.name == "RESTARTING"
    assert set(deployed(d)) == begun, "nothing of a job that is about to be restarted"
    assert {i for instruction in d.seen(do.CancelSlotTasks) for i in instruction.execution_ids} == begun
    d.all.clear()
    d.finish_cancelled()
    fire(d, 0.0)
    assert not deployed(d), "a slot is missing"
    d.offer(SLOTS)
    assert sorted(deployed(d)) == sorted(d.ids())
    assert last not in {submit.allocation_id for submit in d.seen(do.SubmitSlot)}


def test_a_job_that_is_cancelled_between_two_slices_deploys_nothing_more(offered: Driver) -> None:
    d = offered
    until_some_are_deployed(d)
    begun = len(d.seen(do.SubmitSlot))
    d.did(d.core.cancel("enough"))
    deployed(d)
    assert len(d.seen(do.SubmitSlot)) == begun
    d.finish_cancelled()
    assert d.core.state.name == "CANCELED"
    assert len(d.seen(do.ReportEnd)) == 1


def test_long_work_goes_on_in_turn_and_what_is_urgent_comes_first() -> None:
    done: list[str] = []

    def work(name: str, count: int, starts: str = "") -> LongWork:
        for number in range(count):
            if number:
                yield
            done.append(f"{name}{number}")
            if starts:
                todo.run(work(starts, 2), urgent=True)

    todo = Slices()
    todo.run(work("a", 1))
    assert not todo, "it was done in its first slice"
    todo.run(work("b", 3))
    todo.run(work("c", 2))
    todo.run(work("d", 2, starts="e"), urgent=True)
    assert done == ["a0", "b0", "c0", "d0", "e0"]
    while todo:
        todo.go_on()
    assert done[5:] == ["d1", "e0", "e1", "e1", "b1", "b2", "c1"]


def test_a_reactive_job_may_begin_anew_while_it_is_being_deployed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slot was given up between two slices, and there is no pause before the restart."""
    for name in ("PLACED_AT_ONCE", "SCHEDULED_AT_ONCE", "CANCELLED_AT_ONCE"):
        monkeypatch.setattr(f"firesteel_jobmaster.slices.{name}", 3)
    monkeypatch.setattr("firesteel_jobmaster.slices.DEPLOYED_AT_ONCE", 2)
    for moment in range(12):
        d = Reactive(pause=0.0)
        d.start()
        d.offer(*range(FEW))
        d.fire("settle", 2.0)
        for _ in islice(slices(d), moment):
            pass
        d.did(d.core.fail_slot(m.FailSlot("tm", "tm-1", "it was killed")))
        d.clock.advance(2.0)
        for _ in range(3):
            for _ in slices(d):
                pass
            for id_ in [id_ for id_ in d.ids() if d.state(id_) == "CANCELING"]:
                d.report(id_, "CANCELED")
        assert {d.state(id_) for id_ in d.ids()} == {"DEPLOYING"}, moment
        assert d.core.state.name == "RUNNING"
        last = {id_: submit.allocation_id for submit in d.seen(do.SubmitSlot) for id_ in tasks_of(submit)}
        assert set(d.ids()) <= set(last)
        assert "tm-1" not in {last[id_] for id_ in d.ids()}
