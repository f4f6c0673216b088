"""What is decided for thousands of tasks at once is decided in slices, and anything may happen between two of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.core import CANCELLED_AT_ONCE, DEPLOYED_AT_ONCE
from tests.unit.jobmaster.jobs import Driver, failure, job, tasks_of, vertex
from tests.unit.jobmaster.test_restarts import fire, settings

SLOTS = 1200
TASKS = 2 * SLOTS
assert CANCELLED_AT_ONCE < TASKS
assert 3 * DEPLOYED_AT_ONCE < SLOTS


@pytest.fixture
def offered() -> Driver:
    """A job that has just got its slots."""
    vertices = (replace(vertex(number, SLOTS), max_parallelism=32768) for number in (1, 2))
    d = Driver(job(*vertices), settings(delay=0.0))
    d.start()
    d.offer(*range(SLOTS))
    return d


def slices(d: Driver) -> Iterator[list[do.Instruction]]:
    """Those of the events that follow, until nothing is left."""
    while asked := d.seen(do.GoOn):
        assert len(asked) == 1
        d.all.remove(asked[0])
        yield d.did(d.core.go_on())


def deployed(d: Driver) -> list[str]:
    """Ids of all tasks that were submitted, also of those that are asked for from now on."""
    for instructions in slices(d):
        assert sum(isinstance(one, do.SubmitSlot) for one in instructions) <= DEPLOYED_AT_ONCE
        cancelled = [i for one in instructions if isinstance(one, do.CancelSlotTasks) for i in one.execution_ids]
        assert len(cancelled) <= CANCELLED_AT_ONCE
    return [id_ for submit in d.seen(do.SubmitSlot) for id_ in tasks_of(submit)]


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
    assert sorted(i for one in d.seen(do.CancelSlotTasks) for i in one.execution_ids) == sorted(others)
    d.finish_cancelled()
    fire(d, 0.0)
    assert sorted(deployed(d)) == sorted(d.ids())
    assert {id_.rpartition("_")[2] for id_ in d.ids()} == {"1"}
    assert d.core.state.name == "RUNNING"


def test_a_slot_that_is_lost_between_two_slices_is_not_deployed_into(offered: Driver) -> None:
    d = offered
    next(slices(d))
    begun = {id_ for submit in d.seen(do.SubmitSlot) for id_ in tasks_of(submit)}
    assert 0 < len(begun) < TASKS
    last = f"tm-{SLOTS - 1}"
    d.did(d.core.fail_slot("tm", last, "it was killed"))
    assert d.core.state.name == "RESTARTING"
    assert set(deployed(d)) == begun, "nothing of a job that is about to be restarted"
    assert {i for one in d.seen(do.CancelSlotTasks) for i in one.execution_ids} == begun
    d.all.clear()
    d.finish_cancelled()
    fire(d, 0.0)
    assert not deployed(d), "a slot is missing"
    d.offer(SLOTS)
    assert sorted(deployed(d)) == sorted(d.ids())
    assert last not in {submit.allocation_id for submit in d.seen(do.SubmitSlot)}


def test_a_job_that_is_cancelled_between_two_slices_deploys_nothing_more(offered: Driver) -> None:
    d = offered
    next(slices(d))
    begun = len(d.seen(do.SubmitSlot))
    d.did(d.core.cancel("enough"))
    deployed(d)
    assert len(d.seen(do.SubmitSlot)) == begun
    d.finish_cancelled()
    assert d.core.state.name == "CANCELED"
    assert len(d.seen(do.ReportEnd)) == 1
