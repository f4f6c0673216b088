"""``./dev bench cluster``: a standalone cluster of four processes, started by its scripts for each run.

Measured: the start of the processes to the first record of a job, later jobs, memory at rest with two slots in use,
and how long it takes until the death of a TaskManager is noticed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import measure

from tools import demo_processes

HEARTBEAT_TIMEOUT = 10.0
_MARK = "FIRESTEEL_BENCH_CLUSTER"


class Cluster:
    """A cluster in a folder of its own; ``started`` is the time just before its first process.

    Args:
        options: more settings.
    """

    def __init__(self, options: dict[str, str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="firesteel-bench-"))
        mark = uuid.uuid4().hex
        self._mark = f"{_MARK}={mark}".encode()
        self.environment = os.environ | {
            "FIRESTEEL_CONF_DIR": str(self.folder / "conf"),
            "FIRESTEEL_LOG_DIR": str(self.folder / "log"),
            "FIRESTEEL_PID_DIR": str(self.folder / "run"),
            "FIRESTEEL_PYTHON": sys.executable,
        }
        demo_processes.configure(self.folder)
        config = self.folder / "conf" / "config.yaml"
        options = {"taskmanager.numberOfTaskSlots": "2", "heartbeat.interval": "2 s", **options}
        options["heartbeat.timeout"] = f"{HEARTBEAT_TIMEOUT:g} s"
        kept = [line for line in config.read_text().splitlines() if line.partition(":")[0] not in options]
        config.write_text("\n".join([*kept, *(f"{key}: {value}" for key, value in options.items())]) + "\n")
        port = next(line.split()[1] for line in kept if line.startswith("rest.port:"))
        self.rest = f"http://127.0.0.1:{port}"
        self.client_options = {"execution.target": "remote", "rest.address": "127.0.0.1", "rest.port": port}
        self.started = time.monotonic()
        self._script("start-cluster.sh", {_MARK: mark})

    def _script(self, name: str, more: dict[str, str]) -> None:
        subprocess.run(
            [demo_processes.SCRIPTS / name], env=self.environment | more, check=True, stdout=subprocess.DEVNULL
        )

    def processes(self) -> dict[int, str]:
        """Process id -> command line of all that the scripts have started, directly or not."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self._mark in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
        for root in list(found):
            for pid in measure.tree(root):
                found.setdefault(pid, "")
        return found

    def get(self, path: str) -> Any:
        """Answer of the REST API."""
        with urllib.request.urlopen(self.rest + path, timeout=30) as answer:
            return json.load(answer)

    def taskmanager(self) -> int:
        """Its process."""
        return int(next((self.folder / "run").glob("*taskmanager*.pid")).read_text().split()[0])

    def close(self) -> None:
        """Stop everything and remove the folder."""
        self._script("stop-cluster.sh", {})
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def running(options: dict[str, str]) -> Iterator[Cluster]:
    """A cluster, stopped at the end."""
    cluster = Cluster(options)
    try:
        yield cluster
    finally:
        cluster.close()


def run(options: dict[str, str]) -> dict[str, float]:
    """All figures of one run; seconds and MB."""
    with running(options) as cluster:
        result = _starts(cluster)
        result["slot_start_s"] = _slot_start(cluster)
        with _endless_job(cluster) as job:
            time.sleep(8)
            processes = cluster.processes()
            result["rest_pss_mb"] = round(measure.pss_mb(list(processes)))
            result["processes"] = len(processes)
            result["killed_noticed_s"] = _until_failed(cluster, job, signal.SIGKILL)
    with running(options) as cluster, _endless_job(cluster) as job:
        result["frozen_noticed_s"] = _until_failed(cluster, job, signal.SIGSTOP)
        os.kill(cluster.taskmanager(), signal.SIGCONT)
    return result


def _starts(cluster: Cluster) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as out:
        child = time.monotonic()
        waits = json.loads(_child(cluster, "start", out).splitlines()[-1])
    return {"cold_s": round(child - cluster.started + waits["cold_s"], 2), "next_job_s": waits["next_job_s"]}


def _slot_start(cluster: Cluster) -> float:
    """From the request for a slot to the JobMaster's yes: the median of all slots in the TaskManager's log."""
    moves: dict[str, dict[str, datetime]] = {}
    for log in (cluster.folder / "log").glob("*taskmanager*.log"):
        for found in re.finditer(
            r"^(.{23}) .* \(allocation (\w+), .*: \w+ -> (ALLOCATED|ACTIVE) ", log.read_text(), re.M
        ):
            moves.setdefault(found[2], {})[found[3]] = datetime.fromisoformat(found[1].replace(",", "."))
    waits = [(move["ACTIVE"] - move["ALLOCATED"]).total_seconds() for move in moves.values() if len(move) == 2]
    return round(statistics.median(waits), 3)


def _command(cluster: Cluster, what: str, out: str) -> list[str]:
    options = [f"-D{key}={value}" for key, value in cluster.client_options.items()]
    return [sys.executable, "-m", "benchmarks", what, "--child", out, "--count", "1000000", *options]


def _child(cluster: Cluster, what: str, out: str) -> str:
    command = _command(cluster, what, out)
    return subprocess.run(command, env=cluster.environment, check=True, stdout=subprocess.PIPE, text=True).stdout


@contextmanager
def _endless_job(cluster: Cluster) -> Iterator[str]:
    """A job with two slots and one record a second; gives its id once it runs."""
    with tempfile.TemporaryDirectory() as out:
        job = _child(cluster, "endless", out).split()[-1]
        _wait(lambda: next(Path(out).glob("*.jsonl"), None), "the first record of the job")
        yield job


def _until_failed(cluster: Cluster, job: str, number: signal.Signals) -> float:
    began = time.monotonic()
    os.kill(cluster.taskmanager(), number)
    _wait(lambda: cluster.get(f"/jobs/{job}")["state"] == "FAILED", "the end of the job")
    return round(time.monotonic() - began, 2)


def _wait(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"gave up waiting for {what}")
        time.sleep(0.02)
