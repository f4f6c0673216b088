"""Slots of one embedded fleet: how they start, end, are restarted and are cancelled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.core import process
from firesteel.core.errors import FleetError
from firesteel.core.run_directory import RunDirectory
from firesteel.protocol.fleet import Fleet, SlotOutcome
from firesteel.spark.embedded import EmbeddedFleet
from tests.integration.spark.helpers import Ends, new_allocation, until
from tests.integration.spark.slots import Caller, Door, obedient

SLOTS, SPARE = 2, 1


@pytest.fixture(scope="module")
def run() -> Iterator[RunDirectory]:
    run_directory = RunDirectory.create()
    yield run_directory
    run_directory.remove()


@pytest.fixture(scope="module")
def fleet(run: RunDirectory) -> Iterator[EmbeddedFleet]:
    embedded_fleet = EmbeddedFleet(
        slots=SLOTS, spare_cores=SPARE, slot_main=obedient, run_directory=run, environment={"FROM_CLIENT": "yes"}
    )
    starter = threading.Thread(target=embedded_fleet.start)  # as the client does it: not on the main thread
    starter.start()
    starter.join()
    yield embedded_fleet
    embedded_fleet.stop()


@pytest.fixture
def ends(fleet: EmbeddedFleet) -> Ends:
    return Ends(fleet)


@pytest.fixture
def door(run: RunDirectory) -> Iterator[Door]:
    with Door(str(run.socket_path("door"))) as fleet_door:
        yield fleet_door


def start(fleet: EmbeddedFleet, door: Door) -> tuple[str, Caller]:
    allocation = new_allocation()
    fleet.start_slot(door.launch(allocation))
    caller = door.wait()
    assert caller.about["allocation"] == allocation
    return allocation, caller


def kill(caller: Caller) -> None:
    assert isinstance(caller.pid, int)
    os.kill(caller.pid, signal.SIGKILL)


@pytest.mark.smoke
def test_the_embedded_fleet_is_a_fleet_and_alive(fleet: EmbeddedFleet) -> None:
    as_protocol: Fleet = fleet
    assert as_protocol.is_alive()
    with pytest.raises(FleetError, match="running already"):
        fleet.start()
    assert fleet.is_alive()


def test_the_clients_process_is_left_as_it_was(fleet: EmbeddedFleet, run: RunDirectory) -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not [name for name in os.environ if name.startswith("PYSPARK")]


def test_no_secret_is_on_a_command_line_and_all_ports_are_on_loopback(fleet: EmbeddedFleet) -> None:
    (jvm, *_) = process.descendants(os.getpid())
    line = Path(f"/proc/{jvm.pid}/cmdline").read_bytes()
    assert b"PythonGatewayServer" in line
    assert b"secret" not in line
    listening = subprocess.run(["cat", f"/proc/{jvm.pid}/net/tcp6"], capture_output=True, text=True, check=True).stdout
    inodes = {os.readlink(f"/proc/{jvm.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{jvm.pid}/fd")}
    for row in listening.splitlines()[1:]:
        fields = row.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
            address = fields[1].partition(":")[0]
            assert address == "0000000000000000FFFF00000100007F", f"listens on {address}"


def test_a_slot_runs_in_the_clients_interpreter_path_and_directory(
    fleet: EmbeddedFleet, door: Door, ends: Ends, run: RunDirectory
) -> None:
    allocation, caller = start(fleet, door)
    environment = caller.about["environment"]
    assert isinstance(environment, dict)
    assert caller.about["python"] == sys.executable
    assert caller.about["directory"] == os.getcwd()
    assert environment["FROM_CLIENT"] == "yes"
    assert environment["FIRESTEEL_RUN_DIRECTORY"] == str(run.path)
    assert "PYTHONSAFEPATH" not in environment
    path = caller.about["path"]
    assert isinstance(path, list)
    mine = [entry for entry in dict.fromkeys(sys.path) if os.path.exists(entry) and str(run.path) not in entry]
    assert [entry for entry in path if str(run.path) not in entry] == mine
    caller.tell("return")
    assert ends.of(allocation) == (SlotOutcome.RETURNED, "")


@pytest.mark.parametrize(
    ("word", "outcome", "text"),
    [
        ("misplaced", SlotOutcome.MISPLACED, "not here"),
        ("raise", SlotOutcome.LOST, "RuntimeError: the slot went wrong"),
        ("exit", SlotOutcome.LOST, "SystemExit: 3"),
    ],
)
def test_the_outcome_is_reported_once_and_nothing_is_retried(
    fleet: EmbeddedFleet, door: Door, ends: Ends, word: str, outcome: SlotOutcome, text: str
) -> None:
    allocation, caller = start(fleet, door)
    assert fleet.ended_slots() == []
    caller.tell(word)
    shown_outcome, message = ends.of(allocation)
    assert shown_outcome is outcome
    assert text in message
    with pytest.raises(TimeoutError):
        door.wait(timeout=0.5)


def test_a_killed_worker_comes_back_as_the_next_attempt(fleet: EmbeddedFleet, door: Door, ends: Ends) -> None:
    allocation, first = start(fleet, door)
    kill(first)
    second = door.wait()
    assert (first.attempt, second.attempt) == (0, 1)
    assert second.about["allocation"] == allocation
    assert fleet.ended_slots() == []
    second.tell("return")
    assert ends.of(allocation)[0] is SlotOutcome.RETURNED


def test_all_slots_run_at_once_and_the_same_allocation_only_once(fleet: EmbeddedFleet, door: Door, ends: Ends) -> None:
    started = [start(fleet, door) for _ in range(SLOTS)]
    assert len({caller.pid for _, caller in started}) == SLOTS
    with pytest.raises(FleetError, match="was started before"):
        fleet.start_slot(door.launch(started[0][0]))
    for _, caller in started:
        caller.tell("return")
    for allocation, _ in started:
        assert ends.of(allocation)[0] is SlotOutcome.RETURNED


def test_cancel_and_kill_free_the_place_for_the_next_slot(fleet: EmbeddedFleet, door: Door, ends: Ends) -> None:
    started = [start(fleet, door) for _ in range(SLOTS + SPARE)]
    waiting = new_allocation()
    fleet.start_slot(door.launch(waiting))
    with pytest.raises(TimeoutError):
        door.wait(timeout=0.3)
    victim, caller = started.pop()
    fleet.cancel_slot(victim)
    kill(caller)
    freed = door.wait()
    assert freed.about["allocation"] == waiting
    assert ends.of(victim) == (SlotOutcome.LOST, "cancelled")
    freed.tell("return")
    for _, other in started:
        other.tell("return")
    for allocation in (waiting, *(name for name, _ in started)):
        assert ends.of(allocation)[0] is SlotOutcome.RETURNED


def test_a_slot_that_waits_for_a_place_can_be_cancelled(fleet: EmbeddedFleet, door: Door, ends: Ends) -> None:
    started = [start(fleet, door) for _ in range(SLOTS + SPARE)]
    waiting = new_allocation()
    fleet.start_slot(door.launch(waiting))
    fleet.cancel_slot(waiting)
    assert ends.of(waiting) == (SlotOutcome.LOST, "cancelled")
    for allocation, caller in started:
        caller.tell("return")
        assert ends.of(allocation)[0] is SlotOutcome.RETURNED
    fleet.cancel_slot("never-started")


def test_a_bounded_stage_leaves_the_places_of_slots_alone(
    fleet: EmbeddedFleet, door: Door, ends: Ends, run: RunDirectory
) -> None:
    from pyspark import SparkContext

    spark = SparkContext._active_spark_context
    assert spark is not None
    gate, total = run.path / "gate", 4 * (SLOTS + SPARE)
    started = run.subdir("started")

    def task(index: int) -> int:
        import time

        (started / str(index)).touch()
        while not gate.exists():
            time.sleep(0.01)
        return index

    results: list[int] = []
    stage = threading.Thread(target=lambda: results.extend(spark.parallelize(range(total), total).map(task).collect()))
    stage.start()
    try:
        until(lambda: len(list(started.iterdir())) == SPARE, "all spare places being taken")
        for _ in range(2):
            running = [start(fleet, door) for _ in range(SLOTS)]
            for _, caller in running:
                caller.tell("return")
            for allocation, _ in running:
                assert ends.of(allocation)[0] is SlotOutcome.RETURNED
        assert len(list(started.iterdir())) == SPARE, "the stage took the places of slots"
    finally:
        gate.touch()
        stage.join()
    assert sorted(results) == list(range(total))


def test_slots_start_from_many_threads_at_once(fleet: EmbeddedFleet, door: Door, ends: Ends) -> None:
    names = [new_allocation() for _ in range(SLOTS)]
    threads = [threading.Thread(target=fleet.start_slot, args=(door.launch(name),)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    callers = [door.wait() for _ in names]
    assert sorted(str(caller.about["allocation"]) for caller in callers) == names
    for caller in callers:
        caller.tell("return")
    for name in names:
        assert ends.of(name)[0] is SlotOutcome.RETURNED


def test_a_worker_that_ignores_signals_dies_with_the_daemon(fleet: EmbeddedFleet, door: Door, ends: Ends) -> None:
    allocation, caller = start(fleet, door)
    caller.tell("stubborn")
    door.wait()
    assert isinstance(caller.pid, int)
    worker = process.identify(caller.pid)
    assert worker is not None
    daemon = caller.about["parent"]
    assert isinstance(daemon, int)
    os.kill(daemon, signal.SIGKILL)
    assert process.wait_gone([worker], timeout=60.0) == []
    again = door.wait()
    assert again.attempt == 1
    assert again.about["parent"] != daemon
    again.tell("return")
    assert ends.of(allocation)[0] is SlotOutcome.RETURNED
