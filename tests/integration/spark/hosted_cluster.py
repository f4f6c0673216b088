"""A hosted cluster for tests: this process is the TaskManagers, and the ResourceManager too or a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from firesteel.core import process
from firesteel.core.process import ProcessId
from firesteel.core.run_directory import RunDirectory
from firesteel.protocol.fleet import SlotLaunch
from firesteel.protocol.messages import ExecutorSpec
from firesteel.spark.executor import ExecutorProcess
from firesteel.spark.hosted import HostedFleet
from tests.integration.spark.helpers import new_allocation, until
from tests.integration.spark.slots import Caller, Door, obedient

ROOT = Path(__file__).parents[3]
PATIENCE = 100.0
SECRET = "the secret of a cluster for tests"


def new_fleet(directory: Path, **more: Any) -> HostedFleet:
    """A fleet whose slots are obedient."""
    return HostedFleet(slot_main=obedient, cluster_directory=directory, **{"secret": SECRET, **more})


class TaskManagers:
    """Executors, and the door at which their slots call in."""

    def __init__(self) -> None:
        self.run = RunDirectory.create()
        self.door = Door(str(self.run.socket_path("door")))
        self.executors: list[ExecutorProcess] = []

    def host(self, spec: ExecutorSpec | None, **more: Any) -> ExecutorProcess:
        """Start an executor; it need not have reached the driver yet."""
        assert spec is not None
        executor = ExecutorProcess(
            spec, run_directory=self.run, preload=(obedient.__module__,), **{"secret": SECRET, **more}
        )
        self.executors.append(executor)
        return executor

    def launch(self, executor: ExecutorProcess | TaskManager) -> SlotLaunch:
        """What starts a slot there."""
        return SlotLaunch(new_allocation(), "tm", executor.executor_id, self.door.path)

    def close(self) -> None:
        for executor in self.executors:
            executor.stop(grace=0.0)
        self.door.close()
        self.run.remove()


def wait_attached(fleet: HostedFleet, *executors: ExecutorProcess) -> None:
    """Wait until the driver knows these executors."""

    def attached() -> bool:
        for executor in executors:
            assert executor.is_running(), f"executor {executor.executor_id}: {executor.log_tail()}"
        known = fleet.attached_executors()
        return known is not None and {executor.executor_id for executor in executors} <= known

    until(attached, "executors at the driver", PATIENCE)


def wait_known(fleet: HostedFleet, *executor_ids: str) -> None:
    """Wait until the driver knows these executors and no others."""
    expected = frozenset(executor_ids)
    until(lambda: fleet.attached_executors() == expected, f"the driver knowing {executor_ids} only", PATIENCE)


def wait_ended(executor: ExecutorProcess) -> None:
    """Wait until an executor has ended by itself."""
    until(lambda: not executor.is_running(), f"the end of executor {executor.executor_id}", PATIENCE)


def start_slot(
    fleet: HostedFleet, managers: TaskManagers, executor: ExecutorProcess | TaskManager
) -> tuple[str, Caller]:
    """Start a slot and let it call in."""
    launch = managers.launch(executor)
    fleet.start_slot(launch)
    caller = managers.door.wait(PATIENCE)
    assert caller.about["allocation"] == launch.allocation_id
    environment = caller.about["environment"]
    assert isinstance(environment, dict)
    assert environment["SPARK_EXECUTOR_ID"] == executor.executor_id
    return launch.allocation_id, caller


def identity(caller: Caller) -> ProcessId:
    """The process of a slot."""
    assert isinstance(caller.pid, int)
    identity = process.identify(caller.pid)
    assert identity is not None, "the slot has gone"
    return identity


def driver_process(directory: Path) -> ProcessId:
    """The driver that the cluster's directory names."""
    record = json.loads((directory / "driver.json").read_text())
    return ProcessId.from_plain(record["process"])


class ResourceManager:
    """A process of its own that has the fleet and does what it is told, until it is killed."""

    def __init__(self, directory: Path, executors: int, **more: Any) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", __name__, "resourcemanager", str(directory), str(executors), json.dumps(more)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.specs = [ExecutorSpec(**self._answer()) for _ in range(executors)]

    def _answer(self) -> dict[str, Any]:
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line, "the ResourceManager has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def start_slot(self, launch: SlotLaunch) -> None:
        """Have it start a slot."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps(vars(launch)) + "\n")
        self.popen.stdin.flush()
        assert self._answer() == {"started": launch.allocation_id}

    def kill(self) -> None:
        self.popen.kill()
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.popen.stdin.close()
        self.popen.stdout.close()
        self.popen.wait()


class TaskManager:
    """A process of its own with one executor."""

    def __init__(self, spec: ExecutorSpec | None) -> None:
        assert spec is not None
        self.popen = subprocess.Popen(
            [sys.executable, "-m", __name__, "taskmanager", json.dumps(vars(spec))],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line, "the TaskManager has ended"
        about = json.loads(line)
        self.executor_id, self.run = spec.executor_id, Path(about["run"])
        self.executor = ProcessId(about["pid"], about["start"])

    def kill(self) -> None:
        self.popen.kill()
        assert self.popen.stdout is not None
        self.popen.stdout.close()
        self.popen.wait()


def be_resourcemanager(directory: str, count: str, more: str) -> None:
    """Start the fleet, print the specs of executors, then start slots."""
    fleet = new_fleet(Path(directory), **json.loads(more))
    fleet.start()
    executors = []
    for _ in range(int(count)):
        spec = fleet.executor_for("tm", 2)
        assert spec is not None
        executors.append(spec.executor_id)
        print(json.dumps(vars(spec)), flush=True)
    for line in sys.stdin:
        launch = SlotLaunch(**json.loads(line))
        wait_known(fleet, *executors)
        fleet.start_slot(launch)
        print(json.dumps({"started": launch.allocation_id}), flush=True)
    os._exit(3)


def be_taskmanager(spec: str) -> None:
    """Start an executor, print who it is, and wait."""
    run = RunDirectory.create()
    order = ExecutorSpec(**json.loads(spec))
    executor = ExecutorProcess(order, secret=SECRET, run_directory=run, preload=(obedient.__module__,))
    identity = process.identify(executor.pid)
    assert identity is not None
    print(json.dumps({"run": str(run.path), "pid": identity.pid, "start": identity.start}), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    if sys.argv[1] == "resourcemanager":
        be_resourcemanager(*sys.argv[2:])
    else:
        be_taskmanager(*sys.argv[2:])
