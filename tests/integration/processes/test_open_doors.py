"""No open door: every listening socket of every process of a cluster that runs a job is shouted at by a stranger."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.core.process import ProcessId
from tests.integration.processes.cluster import Cluster, command, running_cluster, wait_until
from tests.integration.processes.doors import Door, doors_of, missiles, throw_all

pytestmark = pytest.mark.timeout(400)
ENDLESS = """
from firesteel.common import WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy

env = StreamExecutionEnvironment.get_execution_environment()
source = DataGeneratorSource(lambda i: i, None, RateLimiterStrategy.per_second(1_000))
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
numbers.key_by(lambda i: i % 100).filter(lambda i: i < 0).print()
env.execute("endless")
"""
LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
SERVICES = ("dispatcher", "resourcemanager", "jobmaster", "taskmanager")


@pytest.fixture(scope="module")
def busy() -> Iterator[Cluster]:
    """A cluster that runs a job in two slots which exchange records."""
    with running_cluster() as cluster:
        program = cluster.folder / "endless.py"
        program.write_text(ENDLESS)
        done = cluster.firesteel("run", "-d", "-p", "2", str(program))
        assert done.returncode == 0, done.stdout + done.stderr + cluster.logs()
        wait_until(lambda: running_tasks(cluster) == 4, "all tasks run")
        yield cluster


def running_tasks(cluster: Cluster) -> int:
    """Tasks of the job that run; all of them after it failed would be none."""
    jobs = cluster.rest("GET", "/jobs/overview")[1]["jobs"]
    return sum(job["tasks"]["running"] for job in jobs)


def latest_job(cluster: Cluster) -> str:
    """The id of the job that was started last."""
    jobs = cluster.rest("GET", "/jobs/overview")[1]["jobs"]
    return str(max(jobs, key=lambda job: int(job["start-time"]))["jid"])


def records(cluster: Cluster) -> int:
    """Records that the source of the latest job has written so far."""
    vertices = cluster.rest("GET", f"/jobs/{latest_job(cluster)}")[1]["vertices"]
    return int(vertices[0]["metrics"]["write-records"])


def test_strangers_get_nowhere(busy: Cluster) -> None:
    before = set(busy.processes())
    doors = doors_of(process.pid for process in before)
    names = {process.pid: command(process.pid) for process in before}
    listed = "\n".join(f"{door.tcp or door.unix}: {names[door.pid]}" for door in doors)
    assert len([door for door in doors if door.tcp]) >= 6, listed  # five of HTTP, and Spark's driver
    assert len([door for door in doors if door.unix]) >= 3, listed  # the TaskManager's, and one of each slot
    for door in doors:
        assert door.tcp is None or door.tcp[0] in LOOPBACK, f"not on loopback: {listed}"
        if door.unix is not None and not door.unix.startswith("\0"):
            assert_private(Path(door.unix))

    canary = busy.folder / "canary"
    answers = throw_all(doors, missiles(canary))

    assert not canary.exists(), "a stranger's pickle was loaded"
    assert_same(before, busy, names)
    seen = records(busy)
    wait_until(lambda: records(busy) > seen, "the job goes on")
    assert running_tasks(busy) == 4
    http = [door for door in doors if answers[door, "other site"].startswith("HTTP/")]
    assert len(http) == 6, f"two of the Dispatcher, one of each other service and of the JobMaster:\n{listed}"
    for door in http:
        for name in missiles(canary):
            answer = answers[door, name]
            assert not re.match(r"HTTP/1\.1 [25]", answer), f"{name} was answered {answer!r} at {door.tcp}"
    refusals_are_logged_once(busy)
    doors_are_open_to_friends(busy, doors)


def assert_private(path: Path) -> None:
    """Nobody else can reach a Unix socket."""
    folder = path.parent
    modes = [parent.stat().st_mode & 0o077 for parent in (folder, *folder.parents)]
    assert 0 in modes, f"{path} can be reached by others"


def assert_same(before: set[ProcessId], cluster: Cluster, names: dict[int, str]) -> None:
    """Every process is the one that it was."""
    gone = before - set(cluster.processes())
    assert not gone, "died: " + "\n".join(names[process.pid] for process in gone) + cluster.logs()


def refusals_are_logged_once(cluster: Cluster) -> None:
    """Each service names the stranger, and no kind of refusal twice (but for the 10th time, the 100th, ...)."""
    for service in SERVICES:
        log = cluster.the(service).log()
        lines = [line for line in log.splitlines() if " refused " in line]
        kinds = Counter(refusal_of(line) for line in lines)
        assert any("no HTTP request" in line for line in lines), f"{service} does not say whom it refused:\n{log}"
        assert any("not signed" in line for line in lines), f"{service} does not say whom it refused:\n{log}"
        assert max(kinds.values()) == 1, f"{service}: {kinds}"
        assert "Traceback" not in log, log


def refusal_of(line: str) -> str:
    """Who refused whom for what kind of reason: without the time, and what differs from one request to the next."""
    door, _, rest = line.partition(" refused ")
    return f"{door.rpartition(': ')[2]} refused " + re.sub(r"'[^']*'|[0-9]+", "_", rest)


def doors_are_open_to_friends(cluster: Cluster, doors: list[Door]) -> None:
    """After all that, the cluster still takes and ends jobs."""
    (job,) = cluster.rest("GET", "/jobs/overview")[1]["jobs"]
    assert cluster.rest("PATCH", f"/jobs/{job['jid']}")[0] == 202
    wait_until(lambda: cluster.rest("GET", f"/jobs/{job['jid']}")[1]["state"] == "CANCELED", "the job is cancelled")
    program = cluster.folder / "short.py"
    program.write_text(ENDLESS.replace("lambda i: i, None", "lambda i: i, 1000"))
    done = cluster.firesteel("run", "-p", "2", str(program))
    assert done.returncode == 0, done.stdout + done.stderr + cluster.logs()
