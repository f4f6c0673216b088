"""A standalone cluster whose TaskManagers are on hosts of their own, made of network namespaces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tests.integration.embedded.programs import family
from tests.integration.processes.cluster import Cluster, ServiceProcess, rest_call, wait_until
from tests.servers.network.namespaces import Network

PATIENCE = 180.0
"""Seconds after which a test gives up waiting for something that must come true: many processes start at once."""
HEARTBEAT_TIMEOUT = 16.0
AT_ONCE = 4
"""TaskManagers that start side by side; each starts a JVM."""
PROGRAM = """
import sys

from firesteel.common import WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy

name, count, rate, keys = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
env = StreamExecutionEnvironment.get_execution_environment()
source = DataGeneratorSource(lambda i: (i % keys, i), count or None, RateLimiterStrategy.per_second(rate))
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
sums = numbers.key_by(lambda pair: pair[0]).reduce(lambda one, other: (one[0], one[1] + other[1]))
if count:
    totals, seen = {}, 0
    for key, total in sums.execute_and_collect(name):
        totals[key], seen = max(total, totals.get(key, 0)), seen + 1
    print(f"totals of {seen}:", sorted(totals.items()))
else:
    sums.filter(lambda pair: pair[1] < 0).print()
    env.execute(name)
"""
"""Sums of numbers by key: so many, each second so many, over so many keys; 0 = without end, and none is shown."""


def totals(count: int, keys: int) -> str:
    """What the program prints."""
    sums = [(key, sum(range(key, count, keys))) for key in range(min(keys, count))]
    return f"totals of {count}: {sums}"


class NetworkCluster(Cluster):
    """The coordinators are on the network's first host, and each TaskManager, with one slot, on one of the others.

    A TaskManager is named after the number of its host: ``tm-0`` is on the first of ``network.hosts``.

    Args:
        network: where it runs.
    """

    def __init__(self, network: Network) -> None:
        hub = network.hub.address
        super().__init__(
            slots=1,
            options={
                "jobmanager.rpc.address": hub,
                "jobmanager.bind-host": hub,
                "firesteel.exchange.transport": "TCP",
                "taskmanager.memory.process.size": "1g",
                "taskmanager.memory.managed.size": "0 mb",
                "heartbeat.interval": "1 s",
                "heartbeat.timeout": f"{HEARTBEAT_TIMEOUT:g} s",
            },
        )
        self.network = network
        self.client_prefix = network.hub.command
        self._program = self.folder / "sums.py"
        self._program.write_text(PROGRAM)

    def start_network(self) -> None:
        """Start all services, a few at a time; all slots are registered and all executors there at the return."""
        for name in ("resourcemanager", "jobmaster", "dispatcher"):
            self.launch(name, prefix=self.network.hub.command).wait_listening()
        hosts = self.network.hosts
        for begin in range(0, len(hosts), AT_ONCE):
            for number in range(begin, min(begin + AT_ONCE, len(hosts))):
                self.start_taskmanager(number)
            there = min(begin + AT_ONCE, len(hosts))
            self.until(partial(self._are_there, there), f"{there} TaskManagers with an executor each")

    def _are_there(self, count: int) -> bool:
        return self.slots()[0] == count and len(self.executors()) == count

    def start_taskmanager(self, number: int) -> ServiceProcess:
        """Start the TaskManager of a host; it listens at the return."""
        host = self.network.hosts[number]
        service = self.launch(
            "taskmanager",
            f"taskmanager.resource-id=tm-{number}",
            f"taskmanager.host={host.address}",
            f"taskmanager.bind-host={host.address}",
            prefix=host.command,
        )
        service.wait_listening()
        return service

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """The condition's first true value."""
        return wait_until(condition, what, PATIENCE)

    def rest(self, method: str, path: str, body: Any = None, *, token: bool = True) -> tuple[int, Any]:
        """Status and JSON of a REST request, made on the host of the coordinators."""
        secret = self.secret if token else ""
        return self.network.hub.call(lambda: rest_call(self.rest_url, method, path, body, secret=secret))

    def slots(self) -> tuple[int, int]:
        """How many there are, and how many of them are free; (-1, -1) while nobody knows."""
        try:
            status, answer = self.rest("GET", "/overview")
        except OSError:
            return -1, -1
        return (answer["slots-total"], answer["slots-available"]) if status == 200 else (-1, -1)

    def run_sums(self, name: str, count: int, keys: int, rate: float, parallelism: int) -> str:
        """Run the program to its end; what it printed."""
        arguments = [str(self._program), name, str(count), str(rate), str(keys)]
        done = self.firesteel("run", "-p", str(parallelism), *arguments, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr + self.logs()
        return done.stdout

    def start_endless(self, name: str, parallelism: int = 1) -> Job:
        """Start a job that ends when it is cancelled; its tasks run at the return."""
        arguments = [str(self._program), name, "0", "1000", "100"]
        done = self.firesteel("run", "-d", "-p", str(parallelism), *arguments)
        assert done.returncode == 0, done.stdout + done.stderr + self.logs()
        return self.job(name)

    def job(self, name: str) -> Job:
        """The job of this name; its tasks run at the return."""
        (job_row,) = self.until(lambda: [job for job in self.jobs() if job["name"] == name], f"there is a job {name}")
        return Job(self, job_row["jid"])

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs that the Dispatcher knows."""
        return list(self.rest("GET", "/jobs/overview")[1]["jobs"])


class Job:
    """A job of the cluster.

    Attributes:
        taskmanagers: names of the TaskManagers that its tasks run on.
    """

    def __init__(self, cluster: NetworkCluster, job_id: str) -> None:
        self._cluster, self._id = cluster, job_id
        cluster.until(lambda: self.records() > 0 and self._all_run(), "the job runs")
        self.taskmanagers = {
            task["taskmanager-id"]
            for vertex in self._vertices()
            for task in cluster.rest("GET", f"/jobs/{job_id}/vertices/{vertex['id']}")[1]["subtasks"]
        }

    def state(self) -> str:
        """What the Dispatcher says."""
        return str(self._cluster.rest("GET", f"/jobs/{self._id}")[1]["state"])

    def records(self) -> int:
        """Records that its source has written, as far as the Dispatcher knows."""
        vertices = self._vertices()
        return int(vertices[0]["metrics"]["write-records"]) if vertices else 0

    def goes_on(self) -> None:
        """It is running and makes more records."""
        seen = self.records()
        self._cluster.until(lambda: self.records() > seen or self.state() != "RUNNING", "more records")
        assert self.state() == "RUNNING", self.cause()

    def fails(self) -> str:
        """Waits until it is FAILED; the cause."""
        self._cluster.until(lambda: self.state() in ("FAILED", "FINISHED", "CANCELED"), "the job ends")
        assert self.state() == "FAILED", self.cause()
        return self.cause()

    def cause(self) -> str:
        return json.dumps(self._cluster.rest("GET", f"/jobs/{self._id}/exceptions")[1])

    def cancel(self) -> None:
        """Cancel it, and wait until it is."""
        assert self._cluster.rest("PATCH", f"/jobs/{self._id}")[0] == 202
        self._cluster.until(lambda: self.state() == "CANCELED", "the job is cancelled")

    def _vertices(self) -> list[dict[str, Any]]:
        return list(self._cluster.rest("GET", f"/jobs/{self._id}")[1]["vertices"])

    def _all_run(self) -> bool:
        return all(vertex["tasks"]["RUNNING"] == vertex["parallelism"] for vertex in self._vertices())


@contextmanager
def network_cluster(size: int) -> Iterator[NetworkCluster]:
    """A cluster of so many TaskManagers, each on a host of its own, that is ready for jobs."""
    network = Network(size)
    try:
        cluster = NetworkCluster(network)
        try:
            cluster.start_network()
            yield cluster
        except BaseException:
            print(cluster.logs())
            raise
        finally:
            cluster.close()
    finally:
        network.close()


def has_no_slots(taskmanager: ServiceProcess) -> bool:
    """Whether no slot process runs below a TaskManager."""
    return not family(taskmanager.pid)["slot"]


__all__ = ["HEARTBEAT_TIMEOUT", "Job", "NetworkCluster", "has_no_slots", "network_cluster", "totals"]
