"""A hosted fleet that nothing happens to: slots where they belong, no secret to be seen, no port for strangers."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from firesteel.core import process
from firesteel.core.errors import FleetError
from firesteel.core.secret import spark_secret
from firesteel.protocol.fleet import Fleet, SlotLaunch, SlotOutcome
from firesteel.spark.driver_home import DriverHome
from firesteel.spark.executor import ExecutorProcess
from firesteel.spark.hosted import HostedFleet
from firesteel.spark.own_classes import SPARK
from tests.integration.spark.helpers import Ends, new_allocation, until
from tests.integration.spark.hosted_cluster import (
    PATIENCE,
    SECRET,
    TaskManagers,
    driver_process,
    identity,
    new_fleet,
    start_slot,
    wait_attached,
)

SPARE, CORES = 1, 2

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def managers() -> Iterator[TaskManagers]:
    managers_ = TaskManagers()
    yield managers_
    managers_.close()


@pytest.fixture(scope="module")
def directory(managers: TaskManagers) -> Path:
    return managers.run.path / "cluster"


@pytest.fixture(scope="module")
def fleet(directory: Path) -> Iterator[HostedFleet]:
    hosted_fleet = new_fleet(directory, spare_cores=SPARE)
    hosted_fleet.start()
    yield hosted_fleet
    hosted_fleet.stop()


@pytest.fixture(scope="module")
def executors(fleet: HostedFleet, managers: TaskManagers) -> list[ExecutorProcess]:
    """Two, one of them with the heap of Flink's defaults."""
    executors = [managers.host(fleet.executor_for("tm", CORES), memory_mb=memory) for memory in (512, 256)]
    wait_attached(fleet, *executors)
    return executors


@pytest.fixture
def ends(fleet: HostedFleet) -> Ends:
    return Ends(fleet)


def test_the_hosted_fleet_is_a_fleet_and_alive(fleet: HostedFleet) -> None:
    as_protocol: Fleet = fleet
    assert as_protocol.is_alive()
    assert as_protocol.slots_outlive_driver
    with pytest.raises(FleetError, match="running already"):
        fleet.start()


def test_a_provider_may_ask_the_drivers_jvm(fleet: HostedFleet, tmp_path: Path) -> None:
    assert fleet.in_jvm(lambda jvm: str(jvm.org.apache.spark.package.SPARK_VERSION())).startswith(f"{SPARK}.")
    with pytest.raises(FleetError, match=r"not answered within 0\.05 s"):
        fleet.in_jvm(lambda jvm: jvm.java.lang.Thread.sleep(2_000), seconds=0.05)
    with pytest.raises(ZeroDivisionError):
        fleet.in_jvm(lambda jvm: 1 / 0)
    with pytest.raises(FleetError, match="no JVM to ask"):
        new_fleet(tmp_path).in_jvm(lambda jvm: None)


def test_slots_run_on_the_executor_that_they_name(
    fleet: HostedFleet, managers: TaskManagers, executors: list[ExecutorProcess], ends: Ends
) -> None:
    started = [start_slot(fleet, managers, executors[number]) for number in (1, 0)]
    with pytest.raises(FleetError, match="was started before"):
        fleet.start_slot(SlotLaunch(started[0][0], "tm", executors[0].executor_id, managers.door.path))
    for allocation, caller in started:
        caller.tell("return")
        assert ends.of(allocation) == (SlotOutcome.RETURNED, "")


def test_a_slot_waits_for_its_own_executor_though_another_one_is_free(
    fleet: HostedFleet, managers: TaskManagers, executors: list[ExecutorProcess], ends: Ends
) -> None:
    started = [start_slot(fleet, managers, executors[0]) for _ in range(CORES)]
    waiting = managers.launch(executors[0])
    fleet.start_slot(waiting)
    allocation, first = started[0]
    first.tell("return")
    freed = managers.door.wait(PATIENCE)
    assert freed.about["allocation"] == waiting.allocation_id
    freed.tell("return")
    started[1][1].tell("return")
    for name in (allocation, started[1][0], waiting.allocation_id):
        assert ends.of(name)[0] is SlotOutcome.RETURNED


def test_a_slot_for_an_executor_that_is_not_there_is_misplaced_at_once(
    fleet: HostedFleet, managers: TaskManagers, executors: list[ExecutorProcess], ends: Ends
) -> None:
    launch = SlotLaunch(new_allocation(), "tm", "7", managers.door.path)
    fleet.start_slot(launch)
    outcome, message = ends.of(launch.allocation_id)
    assert outcome is SlotOutcome.MISPLACED
    assert "executor 7 is not attached" in message
    with pytest.raises(FleetError, match="names no executor"):
        fleet.start_slot(replace(launch, executor_id=""))


def test_a_slot_that_raises_is_lost_and_not_tried_again(
    fleet: HostedFleet, managers: TaskManagers, executors: list[ExecutorProcess], ends: Ends
) -> None:
    allocation, caller = start_slot(fleet, managers, executors[0])
    caller.tell("raise")
    outcome, message = ends.of(allocation)
    assert outcome is SlotOutcome.LOST
    assert "the slot went wrong" in message
    with pytest.raises(TimeoutError):
        managers.door.wait(timeout=0.5)


def test_workers_that_die_again_and_again_end_the_slot(
    fleet: HostedFleet, managers: TaskManagers, executors: list[ExecutorProcess], ends: Ends
) -> None:
    launch = managers.launch(executors[1])
    fleet.start_slot(launch)

    def killed_again() -> bool:
        try:
            process.kill(identity(managers.door.wait(timeout=0.2)))
        except TimeoutError:
            pass
        return ends.has(launch.allocation_id)

    until(killed_again, "the end of the slot", PATIENCE)
    assert ends.seen[launch.allocation_id][0] in (SlotOutcome.LOST, SlotOutcome.MISPLACED)


def test_cancel_and_kill_free_the_core(
    fleet: HostedFleet, managers: TaskManagers, executors: list[ExecutorProcess], ends: Ends
) -> None:
    started = [start_slot(fleet, managers, executors[1]) for _ in range(CORES)]
    victim, caller = started.pop()
    fleet.cancel_slot(victim)
    process.kill(identity(caller))
    assert ends.of(victim) == (SlotOutcome.LOST, "cancelled")
    started.append(start_slot(fleet, managers, executors[1]))
    for allocation, other in started:
        other.tell("return")
        assert ends.of(allocation)[0] is SlotOutcome.RETURNED


def test_a_bounded_stage_leaves_the_cores_of_slots_alone(
    fleet: HostedFleet, managers: TaskManagers, executors: list[ExecutorProcess], ends: Ends
) -> None:
    from pyspark import SparkContext

    spark = SparkContext._active_spark_context
    assert spark is not None
    started, gate, total = managers.run.subdir("started"), managers.run.path / "gate", 12

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
        until(lambda: len(list(started.iterdir())) == SPARE * len(executors), "all spare cores being taken", PATIENCE)
        for executor in executors:
            allocation, caller = start_slot(fleet, managers, executor)
            caller.tell("return")
            assert ends.of(allocation)[0] is SlotOutcome.RETURNED
        assert len(list(started.iterdir())) == SPARE * len(executors), "the stage took the cores of slots"
    finally:
        gate.touch()
        stage.join()
    assert sorted(results) == list(range(total))


def everyone(directory: Path) -> dict[int, str]:
    """Pids of driver, executors, their daemons and workers: command line and environment, as others see them."""
    pids = [driver_process(directory).pid, *(child.pid for child in process.descendants(os.getpid()))]
    seen = {}
    for pid in pids:
        try:
            read = [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
        except OSError:
            continue  # it has just ended
        seen[pid] = b"\0".join(read).decode(errors="replace")
    return seen


def test_no_secret_can_be_seen(
    fleet: HostedFleet, managers: TaskManagers, executors: list[ExecutorProcess], directory: Path
) -> None:
    _, caller = start_slot(fleet, managers, executors[0])
    record = directory / "driver.json"
    plain = json.loads(record.read_text())
    secrets = [plain["gateway_secret"], spark_secret(SECRET, plain["spark_salt"]), SECRET]
    assert all(len(secret) >= 30 for secret in secrets)
    seen = everyone(directory)
    assert len(seen) >= 1 + 2 + 2 + 1, "driver, executors, daemons, worker"
    assert caller.pid in seen
    for text in seen.values():
        assert not any(secret in text for secret in secrets)
        assert "AUTH_SECRET" not in text
    assert not [secret for secret in secrets if secret in json.dumps(caller.about)]
    assert not list(managers.run.path.glob("e*/arguments")), "the secret's file is there after the executor attached"
    for log in (*managers.run.path.glob("*.log"), *directory.glob("*/driver.log")):
        assert not any(secret in log.read_text() for secret in secrets)
    assert secrets[1] not in json.dumps(vars(fleet.executor_for("tm", 1)))
    for path in (record, *directory.rglob("attached"), directory / "resourcemanager.lock"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for path in (directory, *directory.glob("driver-*"), *managers.run.path.glob("w*")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    caller.tell("return")


def listening(pid: int) -> list[str]:
    """Addresses (hexadecimal, as in proc(5)) of the TCP sockets at which a process listens."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(os.readlink(descriptor))
        except OSError:
            continue
    rows = [row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/{pid}/net/{name}").read_text().split("\n")]
    return [
        row[1].partition(":")[0] for row in rows if len(row) > 9 and row[3] == "0A" and f"socket:[{row[9]}]" in sockets
    ]


def test_everybody_listens_on_loopback_only(
    fleet: HostedFleet, managers: TaskManagers, executors: list[ExecutorProcess], directory: Path
) -> None:
    _, caller = start_slot(fleet, managers, executors[0])
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    listeners = {pid: listening(pid) for pid in everyone(directory)}
    assert len(listeners[driver_process(directory).pid]) >= 2, "RPC and py4j"
    for executor in executors:
        assert len(listeners[executor.pid]) == 1, "blocks; workers come by Unix sockets"
    for pid, addresses in listeners.items():
        assert set(addresses) <= loopback, f"process {pid} listens on {addresses}"
    assert not listeners[int(str(caller.pid))]
    assert not listeners[int(str(caller.about["parent"]))]
    caller.tell("return")


@pytest.mark.parametrize(
    "what", ["wrong secret", *(pytest.param(fault, marks=pytest.mark.long) for fault in ("wrong salt", "duplicate id"))]
)
def test_strangers_are_refused(
    fleet: HostedFleet, managers: TaskManagers, executors: list[ExecutorProcess], what: str
) -> None:
    spec = fleet.executor_for("tm", CORES)
    assert spec is not None
    if what == "wrong salt":
        spec = replace(spec, spark_salt="0" * 64)
    elif what == "duplicate id":
        spec = replace(spec, executor_id=executors[0].executor_id)
    before = fleet.attached_executors()
    stranger = managers.host(spec, secret="of another cluster" if what == "wrong secret" else SECRET)
    until(lambda: not stranger.is_running(), "the stranger's end", PATIENCE)
    assert stranger.exit_reason() == "exit code 1"
    if what == "duplicate id":
        assert "Duplicate executor ID" in stranger.log.read_text()
    stranger.stop()
    assert fleet.attached_executors() == before
    allocation, caller = start_slot(fleet, managers, executors[0])
    caller.tell("return")
    assert Ends(fleet).of(allocation)[0] is SlotOutcome.RETURNED


def test_a_second_resourcemanager_is_refused_with_the_name_of_the_first(fleet: HostedFleet, directory: Path) -> None:
    with pytest.raises(FleetError, match=rf"runs already \(process {os.getpid()}\)"):
        DriverHome(directory, {}).claim()
    claim = f"from firesteel.spark.driver_home import *; DriverHome(Path({str(directory)!r}), {{}}).claim()"
    second = subprocess.run([sys.executable, "-c", claim], capture_output=True, text=True, check=False)
    assert f"FleetError: The cluster's directory {directory} belongs to a ResourceManager" in second.stderr
    assert f"runs already (process {os.getpid()})" in second.stderr
    assert fleet.is_alive()


def entries(managers: TaskManagers) -> list[str]:
    """What is in the run directory, without logs."""
    return sorted(path.name for path in managers.run.path.iterdir() if path.suffix != ".log")


def test_an_executor_ends_in_order(fleet: HostedFleet, managers: TaskManagers) -> None:
    before = entries(managers)
    executor = managers.host(fleet.executor_for("tm", 1))
    assert entries(managers) != before
    wait_attached(fleet, executor)
    _, caller = start_slot(fleet, managers, executor)
    slot = identity(caller)
    executor.stop()
    assert executor.exit_reason() == "exit code 0"
    assert process.wait_gone([slot], PATIENCE) == []
    until(lambda: executor.executor_id not in (fleet.attached_executors() or ()), "the driver's notice", PATIENCE)
    assert entries(managers) == before
