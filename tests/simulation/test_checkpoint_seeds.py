"""Checkpoints on seeded loops, clocks, networks and disks, with faults at every step of them; see ``story.py``."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from firesteel.ha.memory import MemoryServices
from firesteel.testing import check_checkpoint_storage
from firesteel_jobmaster.shell import JobMaster
from tests.simulation.ledger import Ledger
from tests.simulation.seeds import check_seeds
from tests.simulation.storage import Disk, SimulatedStorage
from tests.simulation.story import Story, StoryError
from tests.simulation.world import World

SEEDS = 30
LONG_SEEDS = 1030


def _disk() -> Disk:
    world = World(1)
    return Disk(world, Ledger(lambda: world.now, world.broken.append))


def test_the_simulated_storage_keeps_the_contract() -> None:
    disk = _disk()
    check_checkpoint_storage(lambda: SimulatedStorage(disk, "a" * 32, threshold=100))
    assert not disk.files


@pytest.mark.timeout(600)
def test_every_record_counts_once_whatever_fails_during_checkpoints() -> None:
    check_seeds(0, SEEDS, "checkpoints")


def _first_that_fails(patch: Any, *words: str) -> tuple[int, str]:
    """Runs seeds with broken code until one fails; which one, and how."""
    with patch:
        for seed in range(2 * SEEDS):
            try:
                Story(seed, "checkpoints").run()
            except StoryError as error:
                found = str(error).partition("\n")[0]
                assert any(one in found for one in words), found
                return seed, found
    raise AssertionError("no seed finds it")


@pytest.mark.timeout(600)
def test_stores_that_do_not_fence_are_found_out() -> None:
    """A JobMaster that others follow goes on for a while, and writes."""
    _first_that_fails(mock.patch.object(MemoryServices, "check", return_value=None), " leads", "still in the store")


@pytest.mark.timeout(600)
def test_a_jobmaster_that_removes_its_checkpoints_before_its_end_is_known_is_found_out() -> None:
    async def known(_: JobMaster) -> bool:
        return True

    _first_that_fails(mock.patch.object(JobMaster, "_end_is_stored", known), "to go on from", "is not safe")


@pytest.mark.long
@pytest.mark.timeout(6 * 3600)
def test_many_seeds_with_checkpoints() -> None:
    check_seeds(SEEDS, LONG_SEEDS, "checkpoints")
