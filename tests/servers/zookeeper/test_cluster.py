"""A session cluster whose JobManager is on two hosts that share nothing but ZooKeeper and a place for payloads.

Hosts are folders here: each has a cluster directory of its own, and all processes of a host are killed at once.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from firesteel.core.process import ProcessId
from firesteel.spark.driver_record import DriverRecord
from tests.integration.processes.cluster import Cluster, ServiceProcess, running_cluster
from tests.integration.processes.test_recovery import jobmaster_of
from tests.integration.processes.test_takeover import KEYS, RECORDS, completed, counting, restored, state
from tests.ports import free_ports
from tests.servers.zookeeper.server import TICK_MS, ZooKeeper
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
SESSION = 4.0
PORTS = {
    "dispatcher": "jobmanager.rpc.port",
    "resourcemanager": "firesteel.resourcemanager.port",
    "jobmaster": "firesteel.jobmaster.port",
}


class TwoHosts:
    """A cluster, and a second host whose coordinators wait for their turn."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.other_directory = cluster, cluster.folder / "other-host"
        cluster.other_directories.append(self.other_directory)
        self.waiting: dict[str, ServiceProcess] = {}
        for (name, option), port in zip(PORTS.items(), free_ports(len(PORTS)), strict=True):
            self.waiting[name] = cluster.launch(
                name, f"{option}={port}", f"firesteel.cluster.directory={self.other_directory}"
            )
        for name, service in self.waiting.items():
            wait_until(partial(_said, service, "waits for its turn"), f"another {name} waits")

    def has_early_driver(self) -> bool:
        """Whether Spark's driver is up where nobody leads yet."""
        records = map(DriverRecord.read, self.other_directory.glob("early-*"))
        return any(record is not None and record.is_complete() for record in records)

    def lose_the_first(self) -> dict[str, float]:
        """Kill all of the first host: coordinators, the JobMaster, Spark's driver. Seconds until the others lead."""
        first = self.cluster.cluster_directory
        jobmaster = jobmaster_of(first)
        assert jobmaster is not None
        driver = ProcessId.from_plain(json.loads((first / "driver.json").read_text())["process"])
        coordinators = [self.cluster.the(name, 0) for name in PORTS]
        for process in (*[coordinator.pid for coordinator in coordinators], jobmaster.pid, driver.pid):
            os.kill(process, signal.SIGKILL)
        killed = time.monotonic()
        took: dict[str, float] = {}

        def all_lead() -> bool:
            for name, service in self.waiting.items():
                if name not in took and _said(service, "this process leads"):
                    took[name] = time.monotonic() - killed
            return len(took) == len(PORTS)

        wait_until(all_lead, lambda: f"those that waited lead: {took}")
        for service in coordinators:
            service.wait()
        return took


def _said(service: ServiceProcess, what: str) -> bool:
    assert service.is_running(), service.log()
    return what in service.log()


@contextmanager
def _cluster(zookeeper: ZooKeeper, storage: Path, name: str, **more: str) -> Iterator[Cluster]:
    settings = zookeeper.settings(storage, f"{SESSION:g} s", **{"high-availability.cluster-id": name, **more})
    nowhere = {"firesteel.resourcemanager.address": "127.0.0.1:1"}  # who leads is asked of ZooKeeper
    with running_cluster(options={"restart-strategy.type": "none", **settings, **nowhere}) as cluster:
        yield cluster


def _ends_right(cluster: Cluster, job: str, gate: Path, out: Path) -> None:
    gate.touch()
    wait_until(lambda: state(cluster, job) == "FINISHED", "the job ends", 200)
    lines = Counter(line for path in out.rglob("part-*") for line in path.read_text().splitlines())
    expected = Counter(f"{n % KEYS},{n // KEYS + 1}" for n in range(RECORDS))
    assert lines == expected, f"{len(expected - lines)} results are missing, {len(lines - expected)} too many"


def test_the_host_of_the_jobmanager_is_lost(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    with _cluster(zookeeper, tmp_path / "payloads", "lost-host") as cluster:
        hosts = TwoHosts(cluster)
        job, gate, out, _ = counting(cluster)
        wait_until(hosts.has_early_driver, "the ResourceManager that waits has a driver of Spark")
        before, began = completed(cluster, job), time.monotonic()
        took = hosts.lose_the_first()
        print("seconds from the kill to the next leader:", {name: round(value, 1) for name, value in took.items()})
        assert max(took.values()) <= SESSION + 1 + TICK_MS / 1000, took
        hosts.waiting["dispatcher"].wait_listening()
        wait_until(lambda: state(cluster, job) == "RUNNING", "the next Dispatcher has found the job")
        wait_until(lambda: restored(cluster, job) >= before, "the job goes on from a checkpoint", 200)
        wait_until(lambda: completed(cluster, job) > restored(cluster, job), "it takes further ones")
        print(f"the first checkpoint of the next JobMaster: {time.monotonic() - began:.1f} s after the kill")
        assert re.search(r"the driver with pid \d+ was up already", hosts.waiting["resourcemanager"].log())
        _ends_right(cluster, job, gate, out)
        wait_until(lambda: not list(tmp_path.glob("payloads/**/job/*")), "the graph of the job goes with it")


def test_leaders_are_killed_one_by_one_while_zookeeper_loses_its_own(
    three_zookeepers: ZooKeeper, tmp_path: Path
) -> None:
    with _cluster(three_zookeepers, tmp_path / "payloads", "three") as cluster:
        hosts = TwoHosts(cluster)
        job, gate, out, _ = counting(cluster)
        three_zookeepers.leader().kill()
        killed = time.monotonic()
        cluster.the("dispatcher", 0).kill()
        next_one = hosts.waiting["dispatcher"]
        wait_until(partial(_said, next_one, "this process leads"), "the next Dispatcher leads")
        print(
            f"the next Dispatcher leads {time.monotonic() - killed:.1f} s after it and ZooKeeper's leader were killed"
        )
        next_one.wait_listening()
        wait_until(lambda: state(cluster, job) == "RUNNING", "it has found the job")
        before = completed(cluster, job)
        wait_until(lambda: completed(cluster, job) >= before + 2, "the job goes on")
        assert restored(cluster, job) == 0, "it was not started again"
        cluster.the("jobmaster", 0).kill()
        hosts.waiting["jobmaster"].wait_listening()
        jobmaster = jobmaster_of(cluster.cluster_directory)
        assert jobmaster is not None
        os.kill(jobmaster.pid, signal.SIGKILL)
        killed = time.monotonic()
        wait_until(lambda: restored(cluster, job) >= before, "a JobMaster of the other host goes on", 200)
        wait_until(lambda: completed(cluster, job) > restored(cluster, job), "it takes further checkpoints")
        print(f"the first checkpoint of the next JobMaster: {time.monotonic() - killed:.1f} s after one was killed")
        assert jobmaster_of(hosts.other_directory) is not None
        _ends_right(cluster, job, gate, out)


def test_a_leader_without_zookeeper_ends_and_stands_by_again_when_it_is_started(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    """All servers of ZooKeeper stand still for longer than a session; nothing of a job is lost."""
    with _cluster(zookeeper, tmp_path / "payloads", "away") as cluster:
        job, gate, out, _ = counting(cluster)
        before = completed(cluster, job)
        server = zookeeper.servers[0]
        server.signal(signal.SIGSTOP)
        try:
            for name in PORTS:
                cluster.the(name).wait(60)
        finally:
            server.signal(signal.SIGCONT)
        assert re.search(r"leads .* no more", cluster.the("dispatcher").log())
        for service in [cluster.launch(name) for name in PORTS]:
            service.wait_listening()
        wait_until(lambda: state(cluster, job) == "RUNNING", "the job runs", 200)
        wait_until(lambda: completed(cluster, job) > before, "it takes checkpoints", 200)
        _ends_right(cluster, job, gate, out)
