"""Several installations on one host: each has its own jobs, and `firesteel` finds the one that runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.client.rest_client import RestClient
from firesteel.core.secret import rest_token
from tests.integration.processes.cluster import BIN
from tests.integration.services.cluster_peers import SECRET
from tests.integration.services.dispatcher_world import BLOB, JOB, SHA, graph
from tests.ports import free_ports


class Installations:
    """Configuration directories below one directory for temporary files; of each only the Dispatcher runs."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="i", dir="/tmp"))
        self._running: list[subprocess.Popen[str]] = []
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("FIRESTEEL_OPTION_")}
        inherited.pop("FIRESTEEL_CONF_DIR", None)
        self.environment = {**inherited, "TMPDIR": str(self.folder), "FIRESTEEL_SECRET": SECRET}

    def make(self, name: str, rest: int, rpc: int) -> Path:
        conf = self.folder / name
        conf.mkdir()
        (conf / "config.yaml").write_text(f"rest.port: {rest}\njobmanager.rpc.port: {rpc}\n")
        return conf

    def start(self, conf: Path, *options: str) -> tuple[subprocess.Popen[str], str]:
        """A Dispatcher that listens, and what it says of its directory."""
        process = subprocess.Popen(
            [sys.executable, "-m", "firesteel_dispatcher", "--config-dir", conf, "--log-file", conf / "log", *options],
            env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._running.append(process)
        assert process.stdout is not None
        first = process.stdout.readline()
        assert "listens on" in first, first
        return process, process.stdout.readline().strip()

    def stop(self, process: subprocess.Popen[str]) -> None:
        process.terminate()
        assert process.wait(60) == 0

    def firesteel(self, *words: str) -> tuple[int, str]:
        """Exit code and all that was said."""
        done = subprocess.run(
            [BIN / "firesteel", *words], env=self.environment, text=True, cwd="/", timeout=100,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout

    def end(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        shutil.rmtree(self.folder)


@pytest.fixture
def installations() -> Iterator[Installations]:
    several = Installations()
    try:
        yield several
    finally:
        several.end()


def ask(rest: int, submit: bool = False) -> list[Any]:
    """The ids of the jobs of a cluster, after the one of these tests was submitted."""

    async def do() -> list[Any]:
        client = RestClient(f"http://127.0.0.1:{rest}", rest_token(SECRET))
        try:
            if submit:
                await client.submit(graph(), {SHA: BLOB})
            return [job["id"] for job in (await client.get("/jobs"))["jobs"]]
        finally:
            await client.close()

    return asyncio.run(do())


@pytest.mark.long  # two clusters stand beside each other in the other test, too
def test_a_second_copy_has_jobs_of_its_own(installations: Installations) -> None:
    rest, rpc = free_ports(2)
    first, second = (installations.make(name, rest, rpc) for name in ("one", "two"))
    process, said = installations.start(first)
    assert said.startswith(f"firesteel.cluster.directory is {installations.folder}/")
    assert ask(rest, submit=True) == [JOB]
    installations.stop(process)
    process, other = installations.start(second)
    assert other != said
    assert ask(rest) == []
    installations.stop(process)
    (installations.folder / "link").symlink_to(first)
    process, again = installations.start(installations.folder / "link")
    assert again == said
    assert ask(rest) == [JOB]
    installations.stop(process)
    shared = f"firesteel.cluster.directory={said.removeprefix('firesteel.cluster.directory is ')}"
    installations.start(second, "-D", shared)
    assert ask(rest) == [JOB], "a directory that is named is the one"


def test_the_command_finds_the_cluster_that_runs(installations: Installations) -> None:
    rests, rpcs = free_ports(2), free_ports(2)
    first_conf, second_conf = (installations.make(name, 1, rpc) for name, rpc in zip(("one", "two"), rpcs, strict=True))
    code, said = installations.firesteel("list", "-m", f"127.0.0.1:{rests[0]}")
    assert (code, "Using the cluster" in said) == (1, False)
    first, _ = installations.start(first_conf, "-D", f"rest.port={rests[0]}")
    assert ask(rests[0], submit=True) == [JOB]
    code, said = installations.firesteel("list")
    assert f"Using the cluster that runs on this host: --config-dir {first_conf}" in said
    assert (code, JOB in said) == (0, True), said
    second, _ = installations.start(second_conf, "-D", f"rest.port={rests[1]}")
    code, said = installations.firesteel("list")
    assert code == 2
    assert "several clusters run on this host" in said
    assert all(
        f"-m 127.0.0.1:{rest} ({conf})" in said for rest, conf in zip(rests, (first_conf, second_conf), strict=True)
    ), said
    code, said = installations.firesteel("list", "-m", f"localhost:{rests[1]}")
    assert f"--config-dir {second_conf}" in said
    assert (code, JOB in said) == (0, False), said
    code, said = installations.firesteel("list", "--config-dir", str(first_conf), "-m", f"localhost:{rests[0]}")
    assert (code, "Using the cluster" in said) == (0, False)
    second.kill()
    second.wait()
    assert f"--config-dir {first_conf}" in installations.firesteel("cancel", JOB)[1]
    assert ask(rests[0]) == [JOB]
    installations.stop(first)
    assert list(installations.folder.glob("firesteel-*/running-cluster-*")) == []
