"""A driver that is up before its ResourceManager leads: it is the fleet's as soon as that starts, and nobody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from firesteel.core.process import is_running
from firesteel.service.remains import end_remains, has_remains
from tests.integration.spark.helpers import Ends
from tests.integration.spark.hosted_cluster import (
    TaskManagers,
    driver_process,
    new_fleet,
    start_slot,
    wait_attached,
)

pytestmark = pytest.mark.timeout(400)


def early(directory: Path) -> Path:
    """Where the record of the driver of a stand-by is."""
    (early,) = directory.glob("early-*")
    return early


def test_a_fleet_starts_with_the_driver_that_is_up_already() -> None:
    managers = TaskManagers()
    directory = managers.run.path / "cluster"
    fleet = new_fleet(directory)
    try:
        fleet.start_early()
        first = driver_process(early(directory))
        assert not fleet.is_alive(), "no slot can be started before this process leads"
        assert not (directory / "driver.json").exists(), "nobody finds it"
        fleet.start_early()
        assert driver_process(early(directory)) == first, "it is up already"

        assert has_remains(directory)
        (said,) = end_remains(directory)  # as after the death of a stand-by
        assert "driver of Spark of a stand-by" in said
        assert not is_running(first)
        fleet.start_early()
        second = driver_process(early(directory))
        assert second != first
        assert is_running(second)

        fleet.start()
        assert driver_process(directory) == second
        executor = managers.host(fleet.executor_for("tm", 1))
        wait_attached(fleet, executor)
        allocation, caller = start_slot(fleet, managers, executor)
        fleet.detach()
        assert is_running(second), "it goes on for the next one"
        next_fleet = new_fleet(directory)
        next_fleet.start()
        assert driver_process(directory) == second
        caller.tell("return")
        Ends(next_fleet).of(allocation)
        next_fleet.stop()
        assert not is_running(second)
        assert not list(directory.glob("early-*"))
    finally:
        fleet.stop()
        managers.close()


def test_the_driver_with_slots_is_taken_before_the_one_that_is_up_already() -> None:
    managers = TaskManagers()
    directory = managers.run.path / "cluster"
    leader, standby = new_fleet(directory), new_fleet(directory)
    try:
        leader.start()
        executor = managers.host(leader.executor_for("tm", 1))
        wait_attached(leader, executor)
        allocation, caller = start_slot(leader, managers, executor)
        leader.detach()
        left = driver_process(directory)
        standby.start_early()
        own = driver_process(early(directory))
        assert is_running(left)
        standby.start()
        assert driver_process(directory) == left
        assert not is_running(own), "it is not needed any more"
        caller.tell("return")
        Ends(standby).of(allocation)
    finally:
        leader.stop()
        standby.stop()
        managers.close()


@pytest.mark.parametrize("way", [pytest.param("stop", marks=pytest.mark.long), "detach"])
def test_a_service_that_stands_by_no_more_leaves_nothing(tmp_path: Path, way: str) -> None:
    fleet = new_fleet(tmp_path)
    fleet.start_early()
    own = driver_process(early(tmp_path))
    getattr(fleet, way)()
    assert not is_running(own)
    assert not list(tmp_path.glob("early-*"))
