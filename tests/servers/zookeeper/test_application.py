"""Application mode on two hosts that share ZooKeeper and a directory: one JobManager leads, the other one stands by.

Hosts are folders here: each has a configuration and a cluster directory of its own, and all its processes are killed at
once, TaskManagers included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.core.process import kill
from tests.integration.processes.test_application_mode import Home
from tests.integration.processes.test_takeover import KEYS, PROGRAM, RECORDS
from tests.servers.zookeeper.server import ZooKeeper
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
_PATIENCE = 200.0
_FIRST = """
from firesteel.datastream import StreamExecutionEnvironment

def noted(value):
    with open({noted!r}, "a") as file:
        file.write(f"{{value}}\\n")
    return value

with open({main!r}, "a") as file:
    file.write("main\\n")
env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2, 3]).map(noted).print()
env.execute("first")
"""


@pytest.fixture
def hosts(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[tuple[Home, Home]]:
    """Two, of one cluster."""
    settings = zookeeper.settings(tmp_path / "payloads", "4 s", **{"high-availability.cluster-id": "of-two-hosts"})
    settings["execution.checkpointing.dir"] = str(tmp_path / "checkpoints")
    homes = Home(), Home()
    try:
        for home in homes:
            config = home.conf / "config.yaml"
            config.write_text(config.read_text() + "".join(f"{key}: {text}\n" for key, text in settings.items()))
        yield homes
    finally:
        for home in homes:
            home.close()


def test_the_jobmanager_that_stands_by_goes_on_with_the_jobs_and_runs_none_again(
    hosts: tuple[Home, Home], tmp_path: Path
) -> None:
    first_home, second_home = hosts
    gate, out, read, noted, main = (tmp_path / name for name in ("gate", "out", "read", "noted", "main"))
    program = tmp_path / "program.py"
    program.write_text(
        _FIRST.format(noted=str(noted), main=str(main)) + PROGRAM.format(gate=str(gate), out=str(out), read=str(read))
    )
    both = {"first": "FINISHED", "counts": "RUNNING"}
    started = first_home.start("--python", str(program))
    wait_until(lambda: first_home.jobs() == both, lambda: f"the second job runs: {first_home.said()}", _PATIENCE)
    (job,) = (each["jid"] for each in first_home.rest("/jobs/overview")["jobs"] if each["name"] == "counts")

    def checkpoint(home: Home, which: str = "completed") -> int:
        latest = (home.rest(f"/jobs/{job}/checkpoints") or {}).get("latest", {})
        return int((latest.get(which) or {}).get("id", 0))

    wait_until(lambda: checkpoint(first_home) >= 2, "checkpoints are complete", _PATIENCE)
    next_one = second_home.start("--python", str(program))
    wait_until(lambda: "waits for its turn" in second_home.said(), "the other JobManager stands by", _PATIENCE)
    assert main.read_text().splitlines() == ["main"], "the program runs where the leader is"

    before = checkpoint(first_home)
    for process in first_home.processes():
        kill(process)
    started.wait()
    wait_until(lambda: second_home.jobs() == both, lambda: f"the other one goes on: {second_home.said()}", _PATIENCE)
    wait_until(lambda: checkpoint(second_home, "restored") >= before, "the job goes on from a checkpoint", _PATIENCE)
    again = first_home.start("--python", str(program))
    wait_until(lambda: first_home.said().count("waits for its turn") >= 1, "the first one stands by now", _PATIENCE)
    gate.touch()
    assert next_one.wait(_PATIENCE) == 0, second_home.said()
    assert again.wait(_PATIENCE) == 0, first_home.said()
    assert noted.read_text().splitlines() == ["1", "2", "3"], "a job that had ended was run again"
    assert main.read_text().splitlines() == ["main"] * 2, "main() runs once on each host that has led a running program"
    lines = Counter(line for path in out.rglob("part-*") for line in path.read_text().splitlines())
    expected = Counter(f"{n % KEYS},{n // KEYS + 1}" for n in range(RECORDS))
    assert lines == expected, f"{len(expected - lines)} results are missing, {len(lines - expected)} too many"
