"""Checkpoints on seeded loops, clocks, networks and disks, with faults at every step of them; see ``story.py``."""

from __future__ import annotations

import pytest

from firesteel.testing import check_checkpoint_storage
from tests.simulation.ledger import Ledger
from tests.simulation.seeds import check_seeds
from tests.simulation.storage import Disk, SimulatedStorage
from tests.simulation.world import World

SEEDS = 30
LONG_SEEDS = 1030
TELLING = (49,)
"""Seeds beyond these that have found faults: 49, a JobMaster that was given up ended its job all the same."""


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
    for seed in TELLING:
        check_seeds(seed, seed + 1, "checkpoints")


@pytest.mark.long
@pytest.mark.timeout(6 * 3600)
def test_many_seeds_with_checkpoints() -> None:
    check_seeds(SEEDS, LONG_SEEDS, "checkpoints")
