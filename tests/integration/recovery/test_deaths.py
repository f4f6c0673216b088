"""Whoever dies of a cluster of processes, wherever a checkpoint stands: nothing is lost, and nothing is doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.processes.cluster import wait_until
from tests.integration.recovery import steps
from tests.integration.recovery.places import EXECUTOR, JOBMASTER, SLOT, TASKMANAGER, Processes
from tests.integration.recovery.stepped_storage import FOLDER
from tests.integration.recovery.trials import ANY_MOMENT, Death, Trial

pytestmark = pytest.mark.timeout(600)


def test_rows(there: Processes, folder: Path) -> None:
    deaths = [
        Death(steps.BEFORE_METADATA, JOBMASTER),
        Death(steps.SYNC, TASKMANAGER),
        Death(steps.WRITTEN, EXECUTOR),
        Death(steps.WITHIN_COMMIT, JOBMASTER),
    ]
    trial = Trial(there, folder, ["chain", "keyed", "timers", "windows", "async"])
    trial.run(deaths, at_the_end=Death(steps.AFTER_METADATA, JOBMASTER))


@pytest.mark.long  # at each step: test_steps.py
def test_two_inputs_and_columns(there: Processes, folder: Path) -> None:
    deaths = [
        Death(steps.ACKNOWLEDGED, JOBMASTER),
        Death(steps.ASYNC, SLOT),
        Death(steps.REMOVING, JOBMASTER),
    ]
    programs = ["joins", "connected", "broadcast", "aggregates", "column-windows"]
    trial = Trial(there, folder, programs, backend="filesystem")
    trial.run(deaths, at_the_end=Death(steps.BEFORE_COMMIT, TASKMANAGER))


def test_results_for_the_client(there: Processes, folder: Path) -> None:
    deaths = [Death(ANY_MOMENT, JOBMASTER), Death(steps.AFTER_METADATA, SLOT)]
    Trial(there, folder, ["windows"]).collect("windows", deaths)


def test_a_jobmaster_that_has_not_cleaned_up_yet(there: Processes, folder: Path) -> None:
    Trial(there, folder, ["keyed"]).run([], at_the_end=Death(steps.CLOSING))
    leaders = [path for path in there.cluster.folder.rglob("leaders") if path.is_dir()]
    assert len(leaders) == 1
    wait_until(lambda: not list((folder / FOLDER).iterdir()), "the directory of the job's checkpoints is removed")
    wait_until(lambda: not list(leaders[0].glob("job-*")), "the job is forgotten")
    assert "no JobMaster has cleaned up behind" in there.cluster.the("dispatcher").log()


# Jobs without checkpoints commit at their end, and have no restart strategy: what dies here is not theirs.


def test_other_processes_die_around_the_point_of_no_return(there: Processes, folder: Path) -> None:
    deaths = [Death(steps.BEFORE_METADATA, JOBMASTER), Death(steps.WITHIN_COMMIT), Death(steps.AFTER_COMMIT, JOBMASTER)]
    Trial(there, folder, []).commit(deaths)


@pytest.mark.long
def test_other_processes_die_at_each_other_step(there: Processes, folder: Path) -> None:
    deaths = [
        Death(steps.ACKNOWLEDGED, JOBMASTER),
        Death(steps.AFTER_METADATA, JOBMASTER),
        Death(steps.BEFORE_COMMIT, JOBMASTER),
        Death(steps.AFTER_COMMIT),
    ]
    Trial(there, folder, []).commit(deaths)
