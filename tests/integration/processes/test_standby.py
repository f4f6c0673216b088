"""Stand-bys, as processes: each leader is killed while a job runs, and the one that waited takes over at once."""

from __future__ import annotations

import os
import signal
from collections import Counter
from functools import partial

import pytest

from tests.integration.processes.cluster import Cluster, ServiceProcess, running_cluster, wait_until
from tests.integration.processes.test_recovery import jobmaster_of
from tests.integration.processes.test_takeover import KEYS, RECORDS, completed, counting, restored, state
from tests.ports import free_ports

pytestmark = pytest.mark.timeout(500)
PORTS = {
    "dispatcher": "jobmanager.rpc.port",
    "resourcemanager": "firesteel.resourcemanager.port",
    "jobmaster": "firesteel.jobmaster.port",
}


class StandBys:
    """One for each coordinator of a cluster, on ports that nobody was told."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._waiting: dict[str, ServiceProcess] = {}
        for (name, option), port in zip(PORTS.items(), free_ports(len(PORTS)), strict=True):
            self._waiting[name] = cluster.launch(name, f"{option}={port}")
        for name, service in self._waiting.items():
            wait_until(partial(_waits, service), f"another {name} waits")

    def takes_over(self, name: str) -> None:
        """The leader is killed."""
        leader, waiting = self._cluster.the(name, 0), self._waiting[name]
        assert leader.is_running()
        assert "this process leads" not in waiting.log()
        leader.kill()
        waiting.wait_listening()
        assert waiting.address != leader.address


def _waits(service: ServiceProcess) -> bool:
    return "waits for its turn" in service.log()


def test_stand_bys_take_over_from_leaders_that_are_killed() -> None:
    with running_cluster(options={"restart-strategy.type": "none"}, ha=True) as cluster:
        stand_bys = StandBys(cluster)
        job, gate, out, _ = counting(cluster)

        stand_bys.takes_over("dispatcher")
        wait_until(lambda: state(cluster, job) == "RUNNING", "the next Dispatcher has found the job")
        before = completed(cluster, job)
        wait_until(lambda: completed(cluster, job) >= before + 2, "the job goes on")
        assert restored(cluster, job) == 0, "it was not started again"

        stand_bys.takes_over("resourcemanager")
        cluster.wait_slots(2)
        wait_until(lambda: cluster.rest("GET", "/overview")[1]["slots-available"] == 0, "it knows who has the slots")

        stand_bys.takes_over("jobmaster")
        jobmaster = jobmaster_of(cluster.cluster_directory)
        assert jobmaster is not None
        os.kill(jobmaster.pid, signal.SIGKILL)
        wait_until(lambda: restored(cluster, job) >= before + 2, "all three bring another JobMaster about")

        gate.touch()
        wait_until(lambda: state(cluster, job) == "FINISHED", "the job ends", 200)
        lines = Counter(line for path in out.rglob("part-*") for line in path.read_text().splitlines())
        expected = Counter(f"{n % KEYS},{n // KEYS + 1}" for n in range(RECORDS))
        assert lines == expected, f"{len(expected - lines)} results are missing, {len(lines - expected)} too many"
