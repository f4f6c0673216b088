"""Clusters on a YARN of the tests: the command, what YARN says, and the processes of containers."""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from firesteel.core.process import ProcessId, identify, kill, wait_gone
from tests.integration.processes.cluster import BIN
from tests.integration.processes.test_takeover import KEYS, PROGRAM, RECORDS
from tests.servers.hadoop.server import Hadoop
from tests.waiting import wait_until

PATIENCE = 400.0
"""Seconds for what waits for JVMs in containers."""
_BETWEEN_LOOKS = 0.25
PROPERTIES: dict[str, dict[str, object]] = {
    "core-site": {"fs.defaultFS": "file:///"},
    # where the machine is busy a node must not be lost by chance
    "yarn-site": {"yarn.nm.liveness-monitor.expiry-interval-ms": 30000,
                  "yarn.am.liveness-monitor.expiry-interval-ms": 600000},
}  # fmt: skip
"""A YARN without HDFS: containers get their files from this machine's disk."""
MANY = 30_000
"""Records of a job that counts: enough for ten minutes."""
MASTER = "firesteel_yarn.application_master"


def wait_for(condition: Callable[[], Any], what: str | Callable[[], str]) -> Any:
    """As ``wait_until``, with more patience and fewer looks: each asks servers that share a few cores with the rest."""

    def seldom() -> Any:
        time.sleep(_BETWEEN_LOOKS)
        return condition()

    return wait_until(seldom, what, PATIENCE)


class YarnClient:
    """The command ``firesteel`` of a user of this YARN, and all that it has started.

    Args:
        yarn: runs.

    Attributes:
        folder: for files of the test.
        command: ``firesteel``.
    """

    def __init__(self, yarn: Hadoop) -> None:
        self.yarn = yarn
        self.folder = Path(tempfile.mkdtemp(prefix="y"))
        self.staging = self.folder / "staging"
        self.staging.mkdir()
        self.settings = {
            "yarn.python.executable": sys.executable,
            "yarn.staging-directory": f"file://{self.staging}",
            "firesteel.run.directory": str(self.folder / "r"),
            "firesteel.jvm.archive-in-background": "false",
            "jobmanager.memory.process.size": "1200m",
            "taskmanager.memory.process.size": "1400m",
            "heartbeat.interval": "1 s",
            "heartbeat.timeout": "30 s",
        }
        self.applications: list[str] = []
        self.command = [str(BIN / "firesteel")]

    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("FIRESTEEL_OPTION_")}
        return inherited | {"HADOOP_CONF_DIR": str(self.yarn.conf), "no_proxy": "*"}

    def firesteel(self, *words: str, more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run it, with settings behind the verb."""
        verb, *rest = words
        command = [*self.command, verb, *self.definitions(more), *rest]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.environment(), cwd=self.folder, timeout=2 * PATIENCE,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        for application_id in re.findall(r"application_\d+_\d+", done.stdout + done.stderr):
            if application_id not in self.applications:
                self.applications.append(application_id)
        return done

    def definitions(self, more: Mapping[str, str] | None = None) -> list[str]:
        """Settings as words of the command."""
        return [f"-D{key}={value}" for key, value in {**self.settings, **(more or {})}.items()]

    def session(self, **more: str) -> Application:
        """A session cluster that runs."""
        done = self.firesteel("yarn-session", "-d", "--json", more=more)
        assert done.returncode == 0, done.stdout + done.stderr + self.logs()
        return Application(self, json.loads(done.stdout)["application"])

    def logs(self) -> str:
        """The ends of all logs of containers."""
        logs = sorted(self.yarn.folder.glob("nodemanager-*/logs/application_*/container_*/*"))
        texts = [(path, path.read_text(errors="replace")[-3000:]) for path in logs if path.suffix in (".log", ".err")]
        return "".join(f"\n--- {path.parent.name}/{path.name}\n{text}" for path, text in texts if text)

    def close(self) -> None:
        """Nothing of it is left, containers' processes included."""
        for application in self.applications:
            with suppress(OSError):
                if Application(self, application).report()["state"] not in ("FINISHED", "FAILED", "KILLED"):
                    self._kill(application)
        for process in wait_gone(self.processes(), 20):
            kill(process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _kill(self, application: str) -> None:
        request = urllib.request.Request(
            f"{self.yarn.resourcemanager_url}/ws/v1/cluster/apps/{application}/state?user.name={_user()}",
            json.dumps({"state": "KILLED"}).encode(), {"Content-Type": "application/json"}, method="PUT",
        )  # fmt: skip
        with suppress(OSError), _opener().open(request, timeout=10):
            pass
        wait_for(
            lambda: Application(self, application).report()["state"] in ("FINISHED", "FAILED", "KILLED"),
            f"{application} has ended",
        )

    def processes(self) -> list[ProcessId]:
        """Those of containers of this YARN."""
        return [container for pid in self.yarn.containers() if (container := identify(pid)) is not None]


class Application:
    """An application on YARN."""

    def __init__(self, client: YarnClient, application: str) -> None:
        self.client, self.id = client, application

    def report(self) -> dict[str, Any]:
        """What YARN's REST API says."""
        return dict(self.client.yarn.get(f"/ws/v1/cluster/apps/{self.id}")["app"])

    def named(self) -> dict[str, str]:
        """Settings by which the command finds it."""
        return {"yarn.application.id": self.id}

    def firesteel(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A verb of the command, for this cluster."""
        return self.client.firesteel(*words, more=self.named())

    def rest(self, path: str) -> Any:
        """JSON of the cluster's REST API, through YARN's proxy; None: it does not answer."""
        try:
            return self.client.yarn.get(f"/proxy/{self.id}{path}")
        except (OSError, ValueError):
            return None

    def page(self) -> str:
        """The dashboard, as YARN's proxy shows it."""
        url = f"{self.client.yarn.resourcemanager_url}/proxy/{self.id}/"
        with _opener().open(url, timeout=30) as answer:
            return str(answer.read().decode())

    def process(self, *words: str) -> ProcessId | None:
        """The process of a container whose command line has these words."""
        for process in self.client.processes():
            with suppress(OSError):
                line = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
                if all(word in line for word in words) and self.id.partition("_")[2] in _container(process.pid):
                    return process
        return None

    def containers(self) -> list[str]:
        """Those that run, by what YARN's ResourceManager says."""
        attempts = self.client.yarn.get(f"/ws/v1/cluster/apps/{self.id}/appattempts")["appAttempts"]["appAttempt"]
        return [str(attempt["containerId"]) for attempt in attempts]

    def attempt(self) -> int:
        """Number of the attempt."""
        return len(self.containers())

    def state(self, job: str) -> str:
        return str((self.rest(f"/jobs/{job}") or {}).get("state", ""))

    def checkpoint(self, job: str, which: str = "completed") -> int:
        """Id of the latest completed (or restored) checkpoint of a job."""
        checkpoint = (self.rest(f"/jobs/{job}/checkpoints") or {}).get("latest", {}).get(which) or {}
        return int(checkpoint.get("id", 0))

    def wait_ended(self) -> dict[str, Any]:
        """What YARN says when it has ended."""

        def ended() -> bool:
            return self.report()["state"] in ("FINISHED", "FAILED", "KILLED")

        wait_for(ended, lambda: f"{self.id} ends: {self.client.logs()}")
        return self.report()


class Counting:
    """A job that counts, exactly once, until it is told to end; see ``tests.integration.processes.test_takeover``.

    Args:
        folder: for its files.
    """

    def __init__(self, folder: Path) -> None:
        self.gate, self.out, self.read = (folder / name for name in ("gate", "out", "read"))
        self.program = folder / "counts.py"
        text = PROGRAM.format(gate=str(self.gate), out=str(self.out), read=str(self.read))
        assert f"{RECORDS} - 1" in text
        self.program.write_text(text.replace(f"{RECORDS} - 1", f"{MANY} - 1"))
        self.settings = {
            "execution.checkpointing.dir": str(folder / "checkpoints"),
            "firesteel.batch.max-records": "10",  # each takes 20 ms, and a barrier waits for a whole batch
        }
        self.job = ""

    def run(self, application: Application, parallelism: int = 1) -> None:
        """Submit it, and wait for two checkpoints."""
        done = application.client.firesteel(
            *("run", "-d", "-t", "yarn-session", "-p", str(parallelism), str(self.program)),
            more={**application.named(), **self.settings},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (self.job,) = re.findall(r"JobID ([0-9a-f]{32})", done.stdout + done.stderr)
        wait_for(
            lambda: application.checkpoint(self.job) >= 2,
            lambda: f"checkpoints are complete: {application.client.logs()}",
        )

    def lines(self) -> int:
        """How many records were read so far, by all attempts."""
        return len(self.read.read_text().splitlines()) if self.read.exists() else 0

    def ends_right(self, application: Application) -> None:
        """It ends, and each record counts once."""
        self.gate.touch()
        wait_for(
            lambda: application.state(self.job) == "FINISHED", lambda: f"the job ends: {application.client.logs()}"
        )
        self.is_exact()

    def is_exact(self) -> None:
        """Each record counts once."""
        lines = Counter(line for path in self.out.rglob("part-*") for line in path.read_text().splitlines())
        expected = Counter(f"{n % KEYS},{n // KEYS + 1}" for n in range(MANY))
        assert lines == expected, f"{len(expected - lines)} results are missing, {len(lines - expected)} too many"


def _container(pid: int) -> str:
    environment = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return next((variable for variable in environment if variable.startswith("CONTAINER_ID=")), "")


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _user() -> str:
    return getpass.getuser()
