"""A cluster that programs of their own processes reach over REST, as they would reach one on other hosts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from firesteel.client.embedded_cluster import EmbeddedCluster
from firesteel.config.settings import Settings
from tests import leaks
from tests.integration.embedded.conftest import nothing_left_behind
from tests.integration.embedded.programs import RUNS, program, until

__all__ = ["nothing_left_behind"]
FIRST = """
from firesteel.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
print(sorted(env.from_sequence(1, 4).map(str).execute_and_collect()))
"""


@dataclass
class Remote:
    """Where the cluster is, and how to get in.

    Attributes:
        options: of the command: where the cluster is, and the file with its token.
        archives: where it writes archives of ended jobs.
    """

    cluster: EmbeddedCluster
    address: str
    options: list[str]
    archives: Path

    def get(self, path: str) -> Any:
        """The JSON answer of a GET."""
        assert self.cluster.rest is not None
        return self.cluster.loop.run(self.cluster.rest.get(path), timeout=30)

    def jobs(self) -> dict[str, str]:
        """State of each job by its id."""
        return {job["jid"]: job["state"] for job in self.get("/jobs/overview")["jobs"]}

    def until_state(self, job_id: str, *states: str) -> str:
        """Waits until a job is in one of these states."""
        return str(until(lambda: (s := self.get(f"/jobs/{job_id}/status")["status"]) in states and s, str(states), 60))

    def cancel(self, job_id: str) -> None:
        """Cancels a job and waits for its end."""
        assert self.cluster.rest is not None
        self.cluster.loop.run(self.cluster.rest.cancel(job_id), timeout=30)
        self.until_state(job_id, "CANCELED", "FAILED", "FINISHED")


@pytest.fixture(scope="package")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    """The embedded cluster of this process, of which the programs under test know the address and the token alone."""
    before = leaks.snapshot()
    archives = tmp_path_factory.mktemp("archives")
    settings = {
        "rest.port": "0",
        "firesteel.run.directory": str(RUNS),
        "firesteel.jvm.archive-in-background": "false",
        "jobmanager.archive.fs.dir": str(archives),
    }
    cluster = EmbeddedCluster(Settings(settings), 2)
    try:
        assert cluster.rest is not None
        token = tmp_path_factory.mktemp("secrets") / "token"
        token.touch(mode=0o600)
        token.write_text(cluster.rest_token)
        address = cluster.rest.base_url.removeprefix("http://")
        remote = Remote(cluster, address, ["-m", address, "-D", f"firesteel.rest.token-file={token}"], archives)
        folder = tmp_path_factory.mktemp("first")
        (folder / "program.py").write_text(FIRST)
        threads = -1
        while threads != threading.active_count():  # whatever a cluster starts stands before the first test
            threads = threading.active_count()
            with program(folder, "-m", "firesteel", "run", *remote.options, "program.py") as run:
                assert run.end() == 0, run.err
        yield remote
    finally:
        cluster.stop()
    if left := leaks.leaks_since(before):
        pytest.fail("the cluster left behind:\n  " + "\n  ".join(left), pytrace=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where programs of a test lie."""
    return tmp_path
