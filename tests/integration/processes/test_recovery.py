"""A job goes on whatever of it dies: a function, a slot process, its JobMaster."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from firesteel.core.process import ProcessId
from tests.integration.processes.cluster import running_cluster, wait_until
from tests.integration.processes.test_coordinators import Running
from tests.integration.processes.test_open_doors import running_tasks

pytestmark = pytest.mark.timeout(400)

PROGRAM = """
import os
from firesteel.common import Types, WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy

TRAP = {trap!r}

def step(value):
    if value % 100 == 7:
        try:
            os.unlink(TRAP)
        except FileNotFoundError:
            return value
        raise ValueError(f"the trap has snapped at {{value}}")
    return value

env = StreamExecutionEnvironment.get_execution_environment()
source = DataGeneratorSource(lambda i: i, None, RateLimiterStrategy.per_second(1_000))
stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
stream.map(step, output_type=Types.LONG()).key_by(lambda value: value % 7).map(lambda value: value).filter(
    lambda value: False
).print()
env.execute("trapped")
"""


@pytest.mark.long  # recovery/ kills all of them at each step, in every run
def test_a_job_goes_on_whatever_of_it_dies() -> None:
    options = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": 10}
    with running_cluster(options={**options, "restart-strategy.fixed-delay.delay": "100 ms"}) as cluster:
        trap, program = cluster.folder / "trap", cluster.folder / "trapped.py"
        program.write_text(PROGRAM.format(trap=str(trap)))
        done = cluster.firesteel("run", "-d", "-p", "2", str(program))
        assert done.returncode == 0, done.stdout + done.stderr
        wait_until(lambda: running_tasks(cluster) == 4, "all tasks run")
        (job,) = cluster.rest("GET", "/jobs/overview")[1]["jobs"]
        running = Running(cluster, job["jid"])
        assert len(running.slots) == 2

        trap.touch()
        wait_until(lambda: restarts(running) == 1, "the job is restarted")
        wait_until(lambda: attempts(running) == {1}, "second attempts run")
        assert running.slots_now() == running.slots, "in the same processes"
        assert "the trap has snapped at" in str(entries(running)[0]["stacktrace"])

        killed, survivor = sorted(running.slots, key=lambda process: process.pid)
        os.kill(killed.pid, signal.SIGKILL)
        wait_until(lambda: restarts(running) == 2, "the job is restarted")
        wait_until(lambda: attempts(running) == {2}, "third attempts run")
        now = running.slots_now()
        assert survivor in now, "the other process goes on"
        assert killed not in now
        assert len(now) == 2
        assert str(killed.pid) in str(entries(running)[0]["stacktrace"])

        before = jobmaster_of(cluster.cluster_directory)
        assert before is not None
        os.kill(before.pid, signal.SIGKILL)
        wait_until(lambda: jobmaster_of(cluster.cluster_directory) not in (before, None), "there is another JobMaster")
        wait_until(lambda: running_tasks(cluster) == 4, "it runs all tasks")
        wait_until(lambda: len(running.slots_now()) == 2, "in slots of its own")
        assert not running.slots_now() & now
        assert "(SIGKILL)" in str(entries(running)[0]["stacktrace"])

        assert cluster.rest("PATCH", f"/jobs/{running.job}")[0] == 202
        wait_until(lambda: running.job_now().get("state") == "CANCELED", "the job is cancelled")
        wait_until(lambda: not running.slots_now(), "its slots end")


def restarts(running: Running) -> int:
    status, answer = running.cluster.rest("GET", f"/jobs/{running.job}/metrics?get=numRestarts")
    return int(answer[0]["value"]) if status == 200 and answer else -1


def attempts(running: Running) -> set[int]:
    """Of the subtasks, once all of them run."""
    vertices = running.job_now().get("vertices", [])
    attempts: set[int] = set()
    for vertex in vertices:
        for subtask in running.cluster.rest("GET", f"/jobs/{running.job}/vertices/{vertex['id']}")[1]["subtasks"]:
            attempts.add(subtask["attempt"] if subtask["status"] == "RUNNING" else -1)
    return attempts


def entries(running: Running) -> list[dict[str, Any]]:
    answer = running.cluster.rest("GET", f"/jobs/{running.job}/exceptions")[1]
    return list(answer["exceptionHistory"]["entries"])


def jobmaster_of(directory: Path) -> ProcessId | None:
    """The process of the only JobMaster."""
    for record in directory.glob("jobmasters/*.json"):
        try:
            return ProcessId.from_plain(json.loads(record.read_text())["process"])
        except (OSError, ValueError):
            return None
    return None
