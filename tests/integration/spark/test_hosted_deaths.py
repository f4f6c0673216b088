"""Each part of a hosted fleet dies or freezes, and the slots of the others go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from firesteel.core import process
from firesteel.core.errors import FleetError
from firesteel.core.run_directory import RunDirectory
from firesteel.protocol.fleet import SlotOutcome
from firesteel.spark import hosted
from firesteel.spark.executor import ExecutorProcess
from firesteel.spark.hosted import HostedFleet
from tests.integration.spark.helpers import Ends, until
from tests.integration.spark.hosted_cluster import (
    PATIENCE,
    ResourceManager,
    TaskManager,
    TaskManagers,
    driver_process,
    identity,
    new_fleet,
    start_slot,
    wait_attached,
    wait_ended,
    wait_known,
)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def managers() -> Iterator[TaskManagers]:
    managers_ = TaskManagers()
    yield managers_
    managers_.close()


@pytest.fixture
def directory(managers: TaskManagers) -> Path:
    return managers.run.path / "cluster"


@pytest.fixture
def fleet(directory: Path) -> Iterator[HostedFleet]:
    hosted_fleet = new_fleet(directory)
    yield hosted_fleet
    hosted_fleet.stop()


def wait_said(executor: ExecutorProcess, text: str) -> None:
    """Wait until an executor has said something, or has ended."""
    until(lambda: text in executor.log.read_text() or not executor.is_running(), text, PATIENCE)


@pytest.mark.long  # each of these deaths is one of ``processes/test_coordinators.py``, too
def test_resourcemanager_driver_and_executor_die_one_after_the_other(
    managers: TaskManagers, directory: Path, fleet: HostedFleet
) -> None:
    # The ResourceManager is killed: the driver and the slots do not notice, and the next one takes them over.
    before = ResourceManager(directory, executors=2)
    executors = [managers.host(spec) for spec in before.specs]
    launches = [managers.launch(executor) for executor in executors]
    callers = {}
    for launch in launches:
        before.start_slot(launch)
        caller = managers.door.wait(PATIENCE)
        callers[caller.about["allocation"]] = caller
    processes = [identity(caller) for caller in callers.values()]
    driver = driver_process(directory)
    before.kill()
    assert process.is_running(driver)

    fleet.start()
    assert driver_process(directory) == driver
    assert fleet.attached_executors() == frozenset(executor.executor_id for executor in executors)
    with pytest.raises(FleetError, match="was started before"):
        fleet.start_slot(launches[0])
    assert all(process.is_running(one) for one in processes)
    ends = Ends(fleet)
    callers[launches[0].allocation_id].tell("return")
    assert ends.of(launches[0].allocation_id) == (SlotOutcome.RETURNED, "")
    fleet.cancel_slot(launches[1].allocation_id)
    process.kill(identity(callers[launches[1].allocation_id]))
    assert ends.of(launches[1].allocation_id)[0] is SlotOutcome.LOST
    running = [start_slot(fleet, managers, executor) for executor in executors]
    processes = [identity(caller) for _, caller in running]
    third = fleet.executor_for("tm", 1)
    assert third is not None
    assert int(third.executor_id) > max(int(executor.executor_id) for executor in executors)

    # The driver is killed: slots go on, a new driver gets second executors, and the old ones leave with their slots.
    process.kill(driver)
    until(lambda: not fleet.is_alive(), "the fleet's notice", PATIENCE)
    assert fleet.ended_slots() == []
    with pytest.raises(FleetError, match="not running"):
        fleet.start_slot(managers.launch(executors[0]))
    with pytest.raises(FleetError, match="not running"):
        fleet.executor_for("tm", 1)
    fleet.stop()
    fleet.start()
    assert driver_process(directory) != driver
    assert fleet.ended_slots() == []
    second = managers.host(fleet.executor_for("tm", 2))
    assert int(second.executor_id) > int(third.executor_id), "an id was used twice"
    wait_attached(fleet, second)
    assert fleet.attached_executors() == frozenset([second.executor_id])
    allocation, caller = start_slot(fleet, managers, second)
    for executor, (_, old) in zip(executors, running, strict=True):
        assert executor.is_running()
        assert process.is_running(identity(old))
        old.tell("return")
        wait_ended(executor)
        assert executor.exit_reason() == "exit code 0"
        executor.stop()
    assert process.wait_gone(processes, PATIENCE) == []

    # An executor is killed: its slots die with it, and are not run elsewhere.
    other = managers.host(fleet.executor_for("tm", 2))
    wait_attached(fleet, other)
    slot = identity(caller)
    os.kill(second.pid, signal.SIGKILL)
    assert process.wait_gone([slot], PATIENCE) == []
    ends = Ends(fleet)
    outcome, message = ends.of(allocation)
    assert outcome is SlotOutcome.MISPLACED
    assert message == f"it runs on executor {other.executor_id} and belongs to {second.executor_id}"
    wait_known(fleet, other.executor_id)
    assert second.exit_reason() == "killed by signal 9"
    second.stop()

    # A ResourceManager may leave the driver, and come back; with other settings it needs another driver.
    driver = driver_process(directory)
    allocation, caller = start_slot(fleet, managers, other)
    fleet.detach()
    assert not fleet.is_alive()
    assert fleet.attached_executors() == frozenset()
    fleet.start()
    assert driver_process(directory) == driver
    fleet.detach()
    changed = new_fleet(directory, spare_cores=3)
    changed.start()
    try:
        assert driver_process(directory) != driver
        assert not process.is_running(driver)
        caller.tell("return")
        wait_ended(other)
        assert changed.ended_slots() == []

        # A TaskManager is killed: its executor and its slots go with it; the next one cleans up after it.
        manager = TaskManager(changed.executor_for("tm", 1))
        wait_known(changed, manager.executor_id)
        allocation, caller = start_slot(changed, managers, manager)
        left = [identity(caller), manager.executor, *process.descendants(manager.popen.pid)]
        manager.kill()
        assert process.wait_gone(left, PATIENCE) == []
        wait_known(changed)
        changed.cancel_slot(allocation)  # Spark would start it again on the next executor that comes
        assert Ends(changed).of(allocation) == (SlotOutcome.LOST, "cancelled")
        RunDirectory.create().remove()
        assert not manager.run.exists()

        # An orderly end takes the executors along and leaves no file of the driver.
        last = managers.host(changed.executor_for("tm", 1))
        wait_attached(changed, last)
        allocation, caller = start_slot(changed, managers, last)
        left = [identity(caller), driver_process(directory)]
    finally:
        changed.stop()
    assert changed.ended_slots() == [(allocation, SlotOutcome.LOST, "the fleet was stopped")]
    assert process.wait_gone(left, PATIENCE) == []
    wait_ended(last)
    assert [path.name for path in directory.iterdir()] == ["resourcemanager.lock"]


@pytest.mark.long  # a frozen executor: services/test_taskmanager_spark.py
def test_a_frozen_executor_is_given_up_and_then_a_frozen_driver(
    managers: TaskManagers, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = new_fleet(directory, heartbeat_timeout=10.0)
    fleet.start()
    try:
        frozen, other = (managers.host(fleet.executor_for("tm", 2)) for _ in range(2))
        wait_attached(fleet, frozen, other)
        allocation, caller = start_slot(fleet, managers, frozen)
        slot = identity(caller)
        os.kill(frozen.pid, signal.SIGSTOP)
        wait_known(fleet, other.executor_id)
        assert Ends(fleet).of(allocation)[0] is SlotOutcome.MISPLACED  # the second copy has given up
        assert process.is_running(slot), "the slot itself does not need its executor to answer"
        os.kill(frozen.pid, signal.SIGCONT)
        for why in ("has given up this executor", "does not know this executor any more"):
            wait_said(frozen, f"The driver {why}; 1 slots go on.")
        assert frozen.is_running(), frozen.log_tail()
        assert process.is_running(slot)
        caller.tell("return")
        wait_ended(frozen)
        assert frozen.exit_reason() == "exit code 0"
        assert process.wait_gone([slot], PATIENCE) == []

        allocation, caller = start_slot(fleet, managers, other)
        slot, driver = identity(caller), driver_process(directory)
        monkeypatch.setattr(hosted, "ANSWER_SECONDS", 0.5)
        os.kill(driver.pid, signal.SIGSTOP)
        until(lambda: not fleet.attached_executors() and not fleet.is_alive(), "the driver being killed", PATIENCE)
        assert process.wait_gone([driver], PATIENCE) == []
        assert process.is_running(slot)
    finally:
        monkeypatch.undo()
        fleet.stop()


@pytest.mark.long  # processes/test_coordinators.py and the simulation
def test_slots_go_on_when_the_driver_stood_still_for_longer_than_the_timeout(
    managers: TaskManagers, directory: Path
) -> None:
    fleet = new_fleet(directory, heartbeat_timeout=10.0)
    fleet.start()
    try:
        executor = managers.host(fleet.executor_for("tm", 2))
        wait_attached(fleet, executor)
        allocation, caller = start_slot(fleet, managers, executor)
        slot, driver = identity(caller), driver_process(directory)
        os.kill(driver.pid, signal.SIGSTOP)
        assert process.wait_gone([slot], timeout=14.0) == [slot]
        os.kill(driver.pid, signal.SIGCONT)
        second = managers.host(fleet.executor_for("tm", 2))
        wait_attached(fleet, second)
        name, other = start_slot(fleet, managers, second)
        assert process.is_running(slot), executor.log_tail()
        caller.tell("return")
        assert process.wait_gone([slot], PATIENCE) == []
        other.tell("return")
        ends = Ends(fleet)
        assert ends.of(name)[0] is SlotOutcome.RETURNED
        # Whether it looks at its watch first, or at the heartbeats that have come meanwhile, is a matter of chance:
        # if it has given up the executor, a second copy of the slot has found itself on the wrong one.
        assert ends.of(allocation)[0] in (SlotOutcome.RETURNED, SlotOutcome.MISPLACED)
    finally:
        fleet.stop()


def test_a_driver_that_nobody_attaches_to_ends_and_slots_go_on(
    managers: TaskManagers, directory: Path, fleet: HostedFleet
) -> None:
    before = ResourceManager(directory, executors=1, orphan_timeout=1.0)
    executor = managers.host(before.specs[0])
    launch = managers.launch(executor)
    before.start_slot(launch)
    caller = managers.door.wait(PATIENCE)
    slot, driver = identity(caller), driver_process(directory)
    assert process.wait_gone([driver], timeout=2.5) == [driver], "it ended though somebody was attached"
    before.kill()
    assert process.wait_gone([driver], PATIENCE) == []
    assert process.is_running(slot)
    assert executor.is_running()
    left = next(directory.glob("driver-*"))
    fleet.start()
    assert driver_process(directory) != driver
    assert not left.exists()
    assert fleet.attached_executors() == frozenset()
    caller.tell("return")
    wait_ended(executor)


def test_a_driver_that_has_nothing_for_a_successor_ends_with_its_resourcemanager(managers: TaskManagers) -> None:
    directory = managers.run.path / "alone"
    fleet = new_fleet(directory)
    fleet.start()
    driver = driver_process(directory)
    fleet.detach()
    assert process.wait_gone([driver], PATIENCE) == []
    assert [path.name for path in directory.iterdir()] == ["resourcemanager.lock"]

    with ThreadPoolExecutor(1) as threads:
        starting = threads.submit(fleet.start)
        until(lambda: (directory / "driver.json").exists(), "a driver being started", PATIENCE)
        driver = driver_process(directory)
        fleet.detach()
        with pytest.raises(FleetError, match="stopped while it started"):
            starting.result(PATIENCE)
    assert process.wait_gone([driver], PATIENCE) == []
    assert not list(directory.glob("driver-*"))
