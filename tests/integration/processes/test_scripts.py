"""The scripts that start and stop a standalone cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import urllib.request
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.core.process import ProcessId, identify, is_running, kill, wait_gone
from tests.integration.processes.cluster import BIN, PATIENCE, free_ports, wait_until
from tests.integration.processes.test_open_doors import ENDLESS

pytestmark = pytest.mark.timeout(400)
ROOT = Path(__file__).resolve().parents[3]
SERVICES = ("dispatcher", "jobmaster", "resourcemanager")
FAKE_SSH = """#!/bin/sh
# Runs the command here, in a shell of its own, as sshd would do it on another host.
[ "$1" = -n ] && shift
host=$1
shift
echo "$host: $*" >>"$FAKE_SSH_LOG"
cd /
exec sh -c "$*"
"""


class Home:
    """An installation in a directory whose name has a space, with ports of its own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="s"))
        self.home = self.folder / "a home"
        shutil.copytree(
            ROOT / "deploy" / "standalone", self.home, ignore=shutil.ignore_patterns("log", "run", "cluster-secret")
        )
        self.conf, self.pids, self.logs = self.home / "conf", self.home / "run", self.home / "log"
        self.mark = f"FIRESTEEL_TEST_SCRIPTS={uuid.uuid4().hex}"
        self.rpc, resourcemanager, jobmaster, self.rest = free_ports(4)
        (self.conf / "config.yaml").write_text(
            f"jobmanager.rpc.port: {self.rpc}\n"
            f"firesteel.resourcemanager.port: {resourcemanager}\n"
            f"firesteel.jobmaster.port: {jobmaster}\n"
            f"rest.port: {self.rest}\n"
            f"firesteel.cluster.directory: {self.folder / 'cluster'}\n"
            f"firesteel.run.directory: {self.folder / 'r'}\n"
            "taskmanager.memory.process.size: 1728m\n"
            "firesteel.jvm.archive-in-background: false\n"
        )
        fakes = self.folder / "fakes"
        fakes.mkdir()
        (fakes / "ssh").write_text(FAKE_SSH)
        (fakes / "ssh").chmod(0o700)
        self.ssh_log = self.folder / "ssh.log"
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("FIRESTEEL_")}
        name, _, value = self.mark.partition("=")
        self.environment = inherited | {
            name: value,
            "FAKE_SSH_LOG": str(self.ssh_log),
            "FIRESTEEL_PYTHON": sys.executable,
            "PATH": f"{fakes}{os.pathsep}{os.environ['PATH']}",
            **{key: os.environ[key] for key in ("FIRESTEEL_TEST_SESSION",) if key in os.environ},
        }

    def run(self, script: str, *arguments: str, holding: Path | None = None) -> tuple[int, list[str]]:
        """Exit code, and all that was said.

        Args:
            script: of the installation.
            arguments: of it.
            holding: a file that its caller has open, as ``flock`` has one.
        """
        holder: list[str | Path] = [] if holding is None else ["sh", "-c", 'exec 9>"$0"; exec "$@"', holding]
        done = subprocess.run(
            [*holder, self.home / "bin" / script, *arguments], env=self.environment, cwd="/", text=True, timeout=150,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout.splitlines()

    def pid_files(self) -> dict[str, ProcessId]:
        """Processes that run, by the ends of the names of their pid files."""
        by_service = {}
        for file in self.pids.glob("*.pid"):
            pid, start, *_ = file.read_text().split()
            by_service["-".join(file.stem.split("-")[-2:])] = ProcessId(int(pid), int(start))
        return by_service

    def processes(self) -> list[ProcessId]:
        """All that descend from the scripts."""
        identities = []
        for entry in Path("/proc").iterdir():
            try:
                ours = entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            identity = identify(int(entry.name)) if ours else None
            if identity is not None:
                identities.append(identity)
        return identities

    def get(self, path: str) -> Any:
        """An answer of the REST API; None while there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.rest}{path}", timeout=PATIENCE) as answer:
                return json.load(answer)
        except OSError:
            return None

    def state(self, job: str) -> str:
        """The state of a job, as far as the Dispatcher knows it."""
        answer = self.get(f"/jobs/{job}") or {}
        return str(answer.get("state", ""))

    def start_endless(self) -> str:
        """Submit a job without end; its id, when it runs."""
        program = self.folder / "endless.py"
        program.write_text(ENDLESS)
        done = subprocess.run(
            [BIN / "firesteel", "run", "-d", "--config-dir", self.conf, program], env=self.environment, text=True,
            timeout=150, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout

        def runs() -> str:
            jobs = (self.get("/jobs/overview") or {"jobs": []})["jobs"]
            return next((job["jid"] for job in jobs if job["tasks"]["running"] == job["tasks"]["total"] > 0), "")

        return str(wait_until(runs, "the job runs"))

    def left(self) -> list[object]:
        """What is still there though the cluster was stopped."""
        runs = [path for path in (self.folder / "r").glob("*") if path.is_dir()]
        return [*wait_gone(self.processes(), 10), *self.pids.glob("*"), *runs]


@pytest.fixture
def home() -> Iterator[Home]:
    yield from installed()


@pytest.fixture
def second() -> Iterator[Home]:
    """An installation on what stands for another host."""
    yield from installed()


def installed() -> Iterator[Home]:
    """One that leaves nothing behind."""
    script_home = Home()
    try:
        yield script_home
    except BaseException:
        raise
    finally:
        for process in script_home.processes():
            kill(process)
        wait_gone(script_home.processes(), 10)
        shutil.rmtree(script_home.folder)


def here() -> str:
    return socket.gethostname()


@pytest.mark.smoke
def test_a_cluster_is_started_and_its_jobs_go_on_without_a_jobmanager_and_after_a_stop(home: Home) -> None:
    (home.conf / "workers").write_text("localhost\nnode2 # elsewhere\n")
    options = ("-D", "taskmanager.numberOfTaskSlots=1", "-D", "restart-strategy.type=none")
    code, said = home.run("start-cluster.sh", *options)
    assert code == 0, said
    assert said == [
        f"Made a cluster secret: {home.conf}/cluster-secret.",
        "Starting cluster.",
        *[f"Starting {name} on host {here()}." for name in ("resourcemanager", "jobmaster", "dispatcher")],
        f"firesteel.cluster.directory is {home.folder / 'cluster'}",
        f"Starting taskmanager on host {here()}.",
        f"1 TaskManager(s) are already running on host {here()}.",
        f"Starting taskmanager on host {here()}.",
    ]
    assert stat.S_IMODE((home.conf / "cluster-secret").stat().st_mode) == 0o600
    secret = (home.conf / "cluster-secret").read_text()
    assert len(secret) == 64
    assert all(line.startswith("node2: ") and secret not in line for line in home.ssh_log.read_text().splitlines())
    running = home.pid_files()
    assert sorted(running) == ["dispatcher-0", "jobmaster-0", "resourcemanager-0", "taskmanager-0", "taskmanager-1"]
    assert all(is_running(process) for process in running.values())
    with urllib.request.urlopen(f"http://127.0.0.1:{home.rest}/health", timeout=PATIENCE) as answer:
        assert answer.status == 200
    for file in home.logs.rglob("*"):
        assert file.is_dir() or secret not in file.read_text(), f"{file.name} holds the secret"

    code, said = home.run("start-cluster.sh")
    assert code == 1
    pid = running["resourcemanager-0"].pid
    assert f"The resourcemanager is running already, as process {pid} on host {here()}." in said
    assert said[-1] == (
        f"jobmanager.sh: the JobManager is running already on host {here()}; jobmanager.sh stop-all ends it."
    )
    assert home.pid_files() == running

    os.kill(running["jobmaster-0"].pid, signal.SIGKILL)
    assert not wait_gone([running["jobmaster-0"]], PATIENCE)
    code, said = home.run("jobmanager.sh", "start")
    assert code == 0, said
    assert [line for line in said if line.startswith("Starting ")] == [f"Starting jobmaster on host {here()}."]
    again = home.pid_files()
    assert again.pop("jobmaster-0") != running.pop("jobmaster-0")
    assert again == running
    running = home.pid_files()

    assert home.run("taskmanager.sh", "stop") == (
        0,
        [f"Stopping taskmanager (process {running['taskmanager-1'].pid}) on host {here()}."],
    )
    assert sorted(home.pid_files())[-1] == "taskmanager-0"

    job = home.start_endless()
    before = home.pid_files()
    goes_on = "Jobs that run go on; jobmanager.sh start goes on with them, and stop-cluster.sh ends what is left."
    code, said = home.run("jobmanager.sh", "stop", "dispatcher")
    stopped = f"Stopping dispatcher (process {before['dispatcher-0'].pid}) on host {here()}."
    assert (code, said) == (0, [stopped, goes_on])
    assert home.run("jobmanager.sh", "stop", "dispatcher") == (
        0,
        [f"There is no dispatcher to stop on host {here()}."],
    )
    assert home.run("jobmanager.sh", "stop", "taskmanager")[0] == 1
    code, said = home.run("jobmanager.sh", "stop")
    assert code == 0
    assert [line.split()[1] for line in said[:-1]] == ["jobmaster", "resourcemanager"], said
    assert said[-1] == goes_on
    left = {process for process in home.processes() if process not in before.values()}
    (record,) = (home.folder / "cluster" / "jobmasters").glob("*.json")
    jobmaster = ProcessId.from_plain(json.loads(record.read_text())["process"])
    assert jobmaster in left

    code, said = home.run("jobmanager.sh", "start")
    assert code == 0, said
    wait_until(lambda: home.state(job) == "RUNNING", "the next Dispatcher knows the job")
    wait_until(lambda: (home.get("/overview") or {}).get("slots-total"), "the TaskManager has registered")
    assert home.get(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"] == []
    assert left <= set(home.processes()), "driver, executor, slots and JobMaster are the same"
    assert home.pid_files()["taskmanager-0"] == before["taskmanager-0"]

    code, said = home.run("jobmanager.sh", "stop")
    assert code == 0, said
    code, said = home.run("stop-cluster.sh")
    assert code == 0, said
    assert f"Ended the JobMaster (process {jobmaster.pid}), which was left alone." in said
    assert not home.left()
    assert (home.conf / "cluster-secret").read_text() == secret

    code, said = home.run("start-cluster.sh", *options)
    assert code == 0, said
    wait_until(lambda: home.state(job) == "RUNNING", "the job goes on")
    code, said = home.run("stop-cluster.sh")
    assert code == 0, said
    services = [line.split()[1] for line in said if line.startswith("Stopping ")]
    assert services == ["dispatcher", "jobmaster", "resourcemanager", "taskmanager", "taskmanager"], said
    assert not home.left()


def kill_all(processes: Iterable[ProcessId]) -> None:
    """SIGKILL to all, one right after the other."""
    processes = list(processes)
    for process in processes:
        kill(process)
    assert not wait_gone(processes, PATIENCE)


NONE = ("-D", "high-availability.type=NONE")


def test_after_kill_9_of_everything_with_a_job_the_next_start_or_a_stop_cleans_up(home: Home) -> None:
    # without high availability the job is not started again, which would take its slots
    code, said = home.run("start-cluster.sh", *NONE)
    assert code == 0, said
    first = home.start_endless()
    kill_all(home.processes())

    code, said = home.run("start-cluster.sh", *NONE)
    assert code == 0, said
    wait_until(lambda: home.state(first) == "FAILED", "the job that ran is known as failed")
    assert home.get(f"/jobs/{first}/exceptions")["exceptionHistory"]["entries"], "with the process that was lost first"
    owners = {int(path.name.partition("-")[0], 16) for path in (home.folder / "r").glob("*-*-*")}
    assert owners <= {process.pid for process in home.processes()}, "run directories of the dead are removed"

    home.start_endless()
    running = home.pid_files()
    kill_all(running.values())
    code, said = home.run("stop-cluster.sh")
    assert code == 0, said
    for name, process in running.items():
        service = name.rpartition("-")[0]
        assert f"The {service} (process {process.pid}) is not running any more on host {here()}." in said
    assert any(line.startswith("Ended the driver of Spark") for line in said), said
    assert any(line.startswith("Ended the JobMaster") for line in said), said
    assert not home.left()


def test_where_nothing_runs_there_is_nothing_to_stop(home: Home) -> None:
    assert home.run("stop-cluster.sh") == (
        0,
        [f"There is no JobManager to stop on host {here()}.", f"There is no TaskManager to stop on host {here()}."],
    )


def test_a_history_server_is_started_and_stopped(home: Home) -> None:
    archives, (port,) = home.folder / "archives", free_ports(1)
    code, said = home.run("historyserver.sh", "start", "-D", f"historyserver.web.port={port}")
    assert code == 1
    assert any("historyserver.archive.fs.dir is not set" in line for line in said), said
    assert (
        said[-1] == f"historyserver.sh: the history server did not start on host {here()}; the logs are in {home.logs}."
    )
    with (home.conf / "config.yaml").open("a") as file:
        file.write(f"historyserver.archive.fs.dir: {archives}\nhistoryserver.web.port: {port}\n")
    code, said = home.run("historyserver.sh", "start", holding=home.folder / "lock")
    assert (code, said[-1]) == (0, f"Starting historyserver on host {here()}."), said
    (process,) = home.pid_files().values()
    assert home.folder / "lock" not in [link.readlink() for link in Path(f"/proc/{process.pid}/fd").iterdir()]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/jobs/overview", timeout=PATIENCE) as answer:
        assert json.load(answer) == {"jobs": []}
    assert home.run("historyserver.sh", "start") == (
        0, [f"The historyserver (process {process.pid}) is already running on host {here()}."],
    )  # fmt: skip
    code, said = home.run("historyserver.sh", "stop")
    assert (code, said) == (0, [f"Stopping historyserver (process {process.pid}) on host {here()}."])
    assert home.run("historyserver.sh", "stop") == (0, [f"There is no history server to stop on host {here()}."])
    code, said = home.run("historyserver.sh")
    assert code != 0
    assert "start|start-foreground|stop" in said[-1]
    assert not home.left()


@pytest.mark.parametrize("kind", [pytest.param("rpc", marks=pytest.mark.long), "rest"])
def test_a_taken_port_is_one_sentence_and_nothing_stays_behind(home: Home, kind: str) -> None:
    port = getattr(home, kind)
    with socket.create_server(("127.0.0.1", port)):
        code, said = home.run("start-cluster.sh", "-D", "rest.prot=8085")
    assert code == 1
    *before, refusal, warning, last = said
    assert not any(line.startswith("warning: ") for line in before), "each warning is shown once"
    assert warning.startswith("warning: ")
    assert "rest.prot" in warning
    assert "did you mean rest.port" in warning
    intro = "firesteel-dispatcher: " + ("the REST API does not start: " if kind == "rest" else "")
    assert refusal.startswith(f"{intro}dispatcher can't listen on 127.0.0.1:{port}: Address already in use: process ")
    assert f"process {os.getpid()} (" in refusal
    assert [last] == [
        f"jobmanager.sh: the JobManager did not start on host {here()}; the logs are in {home.logs}.",
    ]
    assert not home.left()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda conf: (conf / "config.yaml").unlink(), "there is no {conf}/config.yaml"),
        (lambda conf: (conf / "workers").write_text("# none\n"), "{conf}/workers names no host."),
        (lambda conf: (conf / "masters").write_text("a\nb\n"), "{conf}/masters names several hosts"),
        (lambda conf: (conf / "masters").unlink(), "there is no {conf}/masters"),
        (lambda conf: (conf / "config.yaml").write_text("rest.port: many\n"), "rest.port = 'many'"),
    ],
)
def test_a_wrong_configuration_is_told_in_words(home: Home, change: object, text: str) -> None:
    assert callable(change)
    change(home.conf)
    code, said = home.run("start-cluster.sh")
    assert code != 0
    assert any(text.format(conf=home.conf) in line for line in said), said
    assert not home.left()


def third_lines(home: Home) -> dict[str, str]:
    """What the pid files say of each service: where it listens, or that it stands by."""
    return {file.stem.split("-")[-2]: file.read_text().splitlines()[2] for file in home.pids.glob("*.pid")}


@pytest.mark.long  # as test_standby.py, by the scripts
def test_a_jobmanager_stands_by_and_takes_over(home: Home, second: Home) -> None:
    shared = ["-D", "high-availability.type=directory", "-D", f"high-availability.storageDir={home.folder / 'ha'}"]
    code, said = home.run("jobmanager.sh", "start", *shared)
    assert code == 0, said
    first = home.pid_files()
    shutil.copy(home.conf / "cluster-secret", second.conf / "cluster-secret")
    elsewhere = ["-D", "jobmanager.rpc.address=192.0.2.1", "-D", "jobmanager.bind-host=0.0.0.0"]
    code, said = second.run("jobmanager.sh", "start", *shared, *elsewhere)
    assert code == 1, said
    refusal = "jobmanager.rpc.address = 192.0.2.1 is not this host"
    assert sum(refusal in line for line in said) == len(SERVICES), "others would look for it elsewhere"

    code, said = second.run("jobmanager.sh", "start", *shared)
    assert code == 0, said
    assert [line for line in said if "stands by" in line] == [
        f"The {name} on host {here()} stands by: another one leads."
        for name in ("resourcemanager", "jobmaster", "dispatcher")
    ]
    assert third_lines(second) == dict.fromkeys(SERVICES, "standby")
    assert all(line.startswith("http://") for line in third_lines(home).values())
    for process in first.values():
        os.kill(process.pid, signal.SIGKILL)
    assert not wait_gone(list(first.values()), 10)
    wait_until(
        lambda: all(line.startswith("http://127.0.0.1:") for line in third_lines(second).values()), "all three lead"
    )
    wait_until(lambda: second.get("/overview"), "the next Dispatcher finds the next ResourceManager")
    for place in (second, home):
        code, said = place.run("jobmanager.sh", "stop-all")
        assert code == 0, said
    assert not second.left()
    assert not home.left()
