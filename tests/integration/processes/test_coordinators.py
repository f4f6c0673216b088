"""No running slot dies with a coordinator: each one is killed while a job runs, and comes back."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from firesteel.core import process
from firesteel.core.process import ProcessId, identify
from tests.integration.processes.cluster import Cluster, wait_until
from tests.integration.processes.doors import SLOT_SOCKET, doors_of
from tests.integration.processes.test_open_doors import ENDLESS, latest_job, records, running_tasks

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.leaks_ok(reason="services and executors that come anew end with the cluster, which looks for remains"),
]
LONGER_THAN_THE_TIMEOUT = 14.0
"""Seconds; heartbeats time out after ten."""


class Running:
    """A cluster, and the job that runs on it."""

    def __init__(self, cluster: Cluster, job: str) -> None:
        self.cluster, self.job = cluster, job
        self.slots = self.slots_now()

    def slots_now(self) -> set[ProcessId]:
        """The slot processes: each listens for its peers."""
        doors = doors_of(member.pid for member in self.cluster.processes())
        pids = {door.pid for door in doors if door.unix and SLOT_SOCKET.search(door.unix)}
        return {identity for identity in map(identify, pids) if identity is not None}

    def job_now(self) -> dict[str, Any]:
        """What the Dispatcher says about the job; nothing while it does not know."""
        try:
            status, answer = self.cluster.rest("GET", f"/jobs/{self.job}")
        except OSError:
            return {}
        return dict(answer) if status == 200 else {}

    def goes_on(self) -> None:
        """The same processes produce more records, and the Dispatcher says so."""
        wait_until(lambda: self.job_now().get("state") == "RUNNING", "the Dispatcher knows the job as running")
        seen = records(self.cluster)
        wait_until(lambda: records(self.cluster) > seen, "the job goes on")
        assert self.slots_now() == self.slots
        assert running_tasks(self.cluster) == 4

    def driver(self) -> int:
        """The pid of Spark's driver, once it is ready."""
        try:
            record = json.loads((self.cluster.cluster_directory / "driver.json").read_text())
        except (OSError, ValueError):
            return 0
        return int(record["process"]["pid"]) if record["driver_url"] else 0


@pytest.fixture
def running(cluster: Cluster) -> Running:
    """A job in both slots of the only TaskManager; each test cancels its own."""
    program = cluster.folder / "endless.py"
    program.write_text(ENDLESS)
    done = cluster.firesteel("run", "-d", "-p", "2", str(program))
    assert done.returncode == 0, done.stdout + done.stderr
    wait_until(lambda: running_tasks(cluster) == 4, "all tasks run")
    job_at_work = Running(cluster, latest_job(cluster))
    assert len(job_at_work.slots) == 2
    return job_at_work


def test_the_jobmaster_of_a_job_without_restart_strategy_is_followed_by_another_one(running: Running) -> None:
    cluster, before = running.cluster, running.slots
    (record,) = cluster.cluster_directory.glob("jobmasters/*.json")
    killed = int(json.loads(record.read_text())["process"]["pid"])
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: (now := running.slots_now()) and not now & before, "it runs in slots of its own")
    exceptions = cluster.rest("GET", f"/jobs/{running.job}/exceptions")[1]
    assert f"(process {killed})" in json.dumps(exceptions)
    assert cluster.rest("PATCH", f"/jobs/{running.job}")[0] == 202
    wait_until(lambda: running.job_now().get("state") == "CANCELED", "the job is cancelled")
    wait_until(lambda: not running.slots_now(), "its slots end")
    wait_until(lambda: cluster.rest("GET", "/overview")[1]["slots-available"] == 2, "its slots are free")


def test_coordinators_die_one_after_the_other_and_the_job_goes_on(running: Running) -> None:
    cluster = running.cluster
    driver = wait_until(running.driver, "Spark's driver is ready")

    cluster.the("resourcemanager").kill()
    running.goes_on()
    cluster.start("resourcemanager")
    cluster.wait_slots(2)
    wait_until(lambda: cluster.rest("GET", "/overview")[1]["slots-available"] == 0, "it knows who has the slots")
    assert running.driver() == driver, "the driver of Spark was found again"
    running.goes_on()

    cluster.the("dispatcher").kill()
    cluster.start("dispatcher")
    running.goes_on()

    cluster.the("jobmaster").kill()
    running.goes_on()
    cluster.start("jobmaster")
    running.goes_on()

    os.kill(driver, signal.SIGKILL)
    wait_until(lambda: running.driver() not in (0, driver), "there is a new driver of Spark")
    wait_until(lambda: len(cluster.executors()) == 2, "the TaskManager has a second executor")
    running.goes_on()

    assert cluster.rest("PATCH", f"/jobs/{running.job}")[0] == 202
    wait_until(lambda: running.job_now().get("state") == "CANCELED", "the job is cancelled")
    wait_until(lambda: not running.slots_now(), "its slots end")
    wait_until(lambda: len(cluster.executors()) == 1, "the older executor leaves with its last slot")
    short = cluster.folder / "short.py"
    short.write_text(ENDLESS.replace("lambda i: i, None", "lambda i: i, 1000"))
    done = cluster.firesteel("run", "-p", "2", str(short))
    assert done.returncode == 0, done.stdout + done.stderr + cluster.logs()


@pytest.mark.long  # services/test_frozen_leaders.py and the simulation freeze each of them in every run
def test_coordinators_and_an_executor_that_stood_still_take_no_slot_along(running: Running) -> None:
    cluster = running.cluster
    (executor,) = cluster.executors()
    log = cluster.the("taskmanager").log_file.with_name(executor_log(executor.pid))
    stood = [cluster.the("resourcemanager").pid, wait_until(running.driver, "Spark's driver is ready")]
    for pid in stood:
        os.kill(pid, signal.SIGSTOP)
    try:
        gone = process.wait_gone(list(running.slots), LONGER_THAN_THE_TIMEOUT)
        assert set(gone) == running.slots, "they needed the ResourceManager"
        running.goes_on()
    finally:
        for pid in stood:
            os.kill(pid, signal.SIGCONT)
    cluster.wait_slots(2)
    wait_until(lambda: cluster.rest("GET", "/overview")[1]["slots-available"] == 0, "it knows who has the slots")
    running.goes_on()

    # Spark's driver may have given up the executor by now, or not; if the executor stands still, it surely does.
    os.kill(executor.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: len(cluster.executors()) == 2, "the TaskManager has a second executor")
        running.goes_on()
    finally:
        os.kill(executor.pid, signal.SIGCONT)
    wait_until(lambda: "has given up this executor; 2 slots go on" in log.read_text(), "it is told to stop")
    running.goes_on()

    assert cluster.rest("PATCH", f"/jobs/{running.job}")[0] == 202
    wait_until(lambda: running.job_now().get("state") == "CANCELED", "the job is cancelled")
    wait_until(lambda: not running.slots_now(), "its slots end")
    wait_until(lambda: executor not in cluster.executors(), "the older executor leaves with its last slot")
    short = cluster.folder / "short.py"
    short.write_text(ENDLESS.replace("lambda i: i, None", "lambda i: i, 1000"))
    done = cluster.firesteel("run", "-p", "2", str(short))
    assert done.returncode == 0, done.stdout + done.stderr + cluster.logs()


def executor_log(pid: int) -> str:
    """The name of an executor's log, which is beside that of its TaskManager."""
    arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return f"executor-{socket.gethostname()}-{arguments[arguments.index('--executor-id') + 1]}.log"
