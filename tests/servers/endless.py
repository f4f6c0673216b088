"""A running job of a cluster of containers: numbers without end, or so many, through both slots."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.servers.compose_cluster import ComposeCluster, Container, until

PROGRAM = """
import sys

from firesteel.common import WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy

env = StreamExecutionEnvironment.get_execution_environment()
count = int(sys.argv[1]) if sys.argv[1:] else None
source = DataGeneratorSource(lambda i: i, count, RateLimiterStrategy.per_second(1_000))
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
numbers.key_by(lambda i: i % 100).filter(lambda i: i < 0).print()
env.execute("numbers")
"""


class Endless:
    """The job, in all slots of the only TaskManager.

    Attributes:
        cluster: where it runs.
        taskmanager: that has its slots.
        job: its id.
        slots: its processes.
    """

    def __init__(self, cluster: ComposeCluster) -> None:
        self.cluster = cluster
        self.taskmanager: Container = cluster.the("taskmanager")
        done = _run(cluster, "-d")
        assert done.returncode == 0, done.stdout + done.stderr
        (self.job,) = [job["jid"] for job in cluster.ask("/jobs/overview")["jobs"] if job["end-time"] < 0]
        until(lambda: self.tasks_running() == 4 and self.records(), "the job runs")
        self.slots = self.taskmanager.slots()
        assert len(self.slots) == 2

    def now(self) -> dict[str, Any]:
        """What the Dispatcher says about the job; nothing while it does not answer."""
        return self.cluster.ask(f"/jobs/{self.job}")

    def tasks_running(self) -> int:
        """Tasks in state RUNNING."""
        vertices = self.now().get("vertices", [])
        return sum(int(vertex["tasks"]["RUNNING"]) for vertex in vertices)

    def records(self) -> int:
        """Records that the source has written, as far as the Dispatcher knows."""
        vertices = self.now().get("vertices")
        return int(vertices[0]["metrics"]["write-records"]) if vertices else 0

    def goes_on(self) -> None:
        """The same processes write more records, and the Dispatcher says so."""
        until(lambda: self.now().get("state") == "RUNNING" and self.tasks_running() == 4, "the job is known as running")
        seen = self.records()
        until(lambda: self.records() > seen, "more records")
        assert self.taskmanager.slots() == self.slots

    def begins_anew(self, *words: str) -> None:
        """All tasks run again, in other processes, and the cause has these words."""
        until(
            lambda: self.tasks_running() == 4 and not self.taskmanager.slots() & self.slots, "other slots run the job"
        )
        until(lambda: self.records() > 0, "records")
        self._cause(words)

    def fails(self, *words: str) -> None:
        """The job is FAILED, and its cause has these words."""
        until(lambda: self.now().get("state") in ("FAILED", "FINISHED", "CANCELED"), "the job ends")
        self._cause(words)
        assert self.now()["state"] == "FAILED"

    def _cause(self, words: Sequence[str]) -> None:
        cause = json.dumps(self.cluster.ask(f"/jobs/{self.job}/exceptions"))
        for word in words:
            assert word in cause, cause
        print(f"the cause: {cause}")


def run_another(cluster: ComposeCluster) -> None:
    """A job over all slots runs to its end."""
    done = _run(cluster, "", "2000")
    assert done.returncode == 0, done.stdout + done.stderr


def _run(cluster: ComposeCluster, option: str, *arguments: str) -> Any:
    file = cluster.folder / "numbers.py"
    file.write_text(PROGRAM)
    return cluster.firesteel("run", *filter(None, [option]), "-p", "2", str(file), *arguments)
