"""Checkpoints on seeded loops, clocks, networks and disks, with faults at every step of them; see ``story.py``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from firesteel.ha.memory import MemoryCells
from firesteel.testing import check_checkpoint_storage
from firesteel_jobmaster import shell
from firesteel_jobmaster.checkpoint_work import Complete, WorkResult
from firesteel_jobmaster.checkpoints.worker import CheckpointWorker
from firesteel_jobmaster.dispatcher import DispatcherReporter
from tests.examples import examples
from tests.simulation.ledger import Ledger
from tests.simulation.seeds import check_seeds, first_that_fails, fresh_seeds
from tests.simulation.storage import Disk, SimulatedStorage
from tests.simulation.world import World

SEEDS = examples(8)
HANG_SEEDS = 3
TRIED = 100
"""Seeds among which one finds broken code."""
LONG_SEEDS = 1000
SAVEPOINT_SEEDS = 3


def _disk() -> Disk:
    world = World(1)
    return Disk(world, Ledger(lambda: world.now, world.broken.append))


def test_the_simulated_storage_keeps_the_contract() -> None:
    disk = _disk()
    check_checkpoint_storage(lambda: SimulatedStorage(disk, "a" * 32, threshold=100))
    assert not disk.files


@pytest.mark.timeout(600)
def test_every_record_counts_once_whatever_fails_during_checkpoints() -> None:
    check_seeds(range(SEEDS), "checkpoints")


@pytest.mark.smoke
@pytest.mark.timeout(600)
def test_every_record_counts_once_in_jobs_that_are_stopped_and_go_on() -> None:
    """Users take savepoints, stop jobs with them, start others from them, and remove them."""
    check_seeds(range(SAVEPOINT_SEEDS), "savepoints")


@pytest.mark.timeout(600)
def test_a_stop_that_the_next_jobmaster_does_not_know_of_is_found_out() -> None:
    complete = CheckpointWorker._complete

    def unknown(worker: CheckpointWorker, work: Complete, *more: Any) -> WorkResult:
        return complete(worker, replace(work, stored=work.stored and not work.savepoint), *more)

    patch = mock.patch.object(CheckpointWorker, "_complete", unknown)
    _found(patch, "savepoints", "which never was complete", first=3)


@pytest.mark.timeout(600)
def test_a_storage_that_hangs_parks_no_job() -> None:
    check_seeds(range(HANG_SEEDS), "hangs")


def test_a_restart_while_a_job_commits_is_still_allowed_when_it_has_ended() -> None:
    check_seeds([500016], "hangs")


def _found(patch: Any, kind: str, *words: str, first: int = 0) -> None:
    """A seed, from the first one on that is known to, finds broken code, and says so in one of these ways."""
    with patch:
        _, failure = first_that_fails(range(first, first + TRIED), kind)
    assert any(word in failure for word in words), failure


@pytest.mark.timeout(600)
def test_calls_of_the_storage_that_nobody_gives_up_are_found_out() -> None:
    patch = mock.patch.object(shell, "call_seconds", return_value=1e9)
    _found(
        patch,
        "hangs",
        "for ever",
        "has completed no checkpoint",
        "has not shown what it prepared",
        "nothing of it",
        first=3,
    )


@pytest.mark.timeout(600)
def test_stores_that_do_not_fence_are_found_out() -> None:
    """A JobMaster that others follow goes on for a while, and writes."""
    patch = mock.patch.object(MemoryCells, "check", return_value=None)
    _found(patch, "checkpoints", " leads", "is CANCELED", "still in the store", first=6)


@pytest.mark.timeout(600)
def test_a_jobmaster_that_removes_its_checkpoints_before_its_end_is_known_is_found_out() -> None:
    async def known(_: DispatcherReporter) -> bool:
        return True

    _found(
        mock.patch.object(DispatcherReporter, "end_is_stored", known),
        "checkpoints",
        "to go on from",
        "is not safe",
        "is removed",
        first=6,
    )


@pytest.mark.long
@pytest.mark.timeout(6 * 3600)
def test_many_seeds_with_checkpoints() -> None:
    check_seeds(fresh_seeds(LONG_SEEDS), "checkpoints")
    check_seeds(fresh_seeds(LONG_SEEDS // 2), "savepoints")
    check_seeds(fresh_seeds(LONG_SEEDS // 4), "hangs")
