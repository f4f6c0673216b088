"""Jobs that compete for slots while things break, with messages in any order: everyone is served, nobody shares."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firesteel_resourcemanager.registry import FleetState
from tests.examples import examples
from tests.unit.resourcemanager.world import World

STEPS = 6000


def settle(world: World) -> None:
    """Until all jobs have ended and all slots are free again."""
    for _ in range(STEPS):
        if world.is_settled and not world.mail:
            return
        world.step()
    raise AssertionError(f"not settled: {world.jobs}, {list(world.core.table)}, {world.core.jobs}")


@pytest.mark.parametrize("executors", [False, True], ids=["embedded", "hosted"])
@pytest.mark.parametrize("active", [False, True], ids=["passive", "active"])
@given(data=st.data())
@settings(max_examples=examples(25))
def test_jobs_that_compete_always_resolve(executors: bool, active: bool, data: st.DataObject) -> None:
    random = data.draw(st.randoms(use_true_random=False))
    world = World(random.randrange, data.draw(st.integers(0, 12)), executors=executors, active=active)
    total = 12
    if not active:
        counts = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
        total = sum(counts)
        for number, count in enumerate(counts):
            world.start_taskmanager(f"tm{number}", count)
    sizes = data.draw(st.lists(st.integers(1, total), min_size=1, max_size=5))
    for number, size in enumerate(sizes):
        world.submit(f"j{number}", size)
        for _ in range(data.draw(st.integers(0, 6))):
            world.step()
    settle(world)
    world.pass_time()  # what was kept for jobs that have ended meanwhile goes with the next tick
    settle(world)
    assert world.done == {f"j{n}" for n in range(len(sizes))}
    assert world.core.registry.fleet is FleetState.READY
    assert not world.core.registry.kept
    if active:  # and in the end all workers have gone
        for _ in range(20):
            world.pass_time()
            while world.mail:
                world.step()
        assert not world.workers
        assert world.core.table.total() == 0
