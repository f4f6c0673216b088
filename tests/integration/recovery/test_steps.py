"""Slot processes of the embedded cluster die at each step of a checkpoint: nothing is lost, and nothing is doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.recovery import steps
from tests.integration.recovery.places import SLOT, Embedded
from tests.integration.recovery.stepped_sink import SteppedAtEnd
from tests.integration.recovery.trials import ANY_MOMENT, Death, Trial

pytestmark = pytest.mark.timeout(400)


@pytest.mark.long  # the same steps with state on disk: test_rocksdb; with sinks: servers/kafka, servers/minio
def test_rows_and_a_death_at_each_step_of_a_slot(here: Embedded, folder: Path) -> None:
    trial = Trial(here, folder, ["chain", "keyed", "timers", "windows"])
    trial.run([Death(step) for step in steps.IN_SLOTS], at_the_end=Death(steps.WITHIN_COMMIT))


def test_two_inputs_and_a_slot_that_dies_at_each_step_of_the_jobmaster(here: Embedded, folder: Path) -> None:
    trial = Trial(here, folder, ["joins", "connected", "broadcast", "async"], backend="rocksdb")
    trial.run([Death(step, SLOT) for step in steps.IN_JOBMASTER], at_the_end=Death(steps.BEFORE_COMMIT))


@pytest.mark.smoke
def test_rocksdb(here: Embedded, folder: Path) -> None:
    trial = Trial(here, folder, ["keyed", "timers", "windows", "joins"], backend="rocksdb")
    mine = (steps.SYNC, steps.ASYNC, steps.WRITTEN, steps.BEFORE_BARRIER)
    trial.run([*(Death(step) for step in mine), Death(ANY_MOMENT, SLOT)])


@pytest.mark.parametrize("backend", ["hashmap", "filesystem"])
def test_columns(here: Embedded, folder: Path, backend: str) -> None:
    trial = Trial(here, folder, ["aggregates", "column-windows"], backend=backend)
    mine = {"hashmap": (steps.BEFORE_BARRIER, steps.AFTER_COMMIT), "filesystem": (steps.ASYNC, steps.WRITTEN)}
    trial.run([*(Death(step) for step in mine[backend]), Death(ANY_MOMENT, SLOT)])


def test_results_for_the_client(here: Embedded, folder: Path) -> None:
    deaths = [Death(steps.SYNC), Death(steps.AFTER_METADATA, SLOT), Death(ANY_MOMENT, SLOT)]
    Trial(here, folder, ["keyed"]).collect("keyed", deaths)


# Jobs without checkpoints commit at their end, and have no restart strategy: what dies here is not theirs.


def test_a_slot_dies_at_each_step_of_a_commit(here: Embedded, folder: Path) -> None:
    deaths = [Death(step) for step in (steps.BEFORE_COMMIT, steps.WITHIN_COMMIT, steps.AFTER_COMMIT)]
    Trial(here, folder, []).commit(deaths)


def test_a_slot_dies_with_a_sink_that_knows_no_checkpoints(here: Embedded, folder: Path) -> None:
    Trial(here, folder, []).commit([Death(steps.BEFORE_COMMIT), Death(steps.AFTER_COMMIT)], SteppedAtEnd)
