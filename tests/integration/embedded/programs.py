"""What the tests of whole programs share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from firesteel.common import Configuration, JobClient
from firesteel.core import process
from firesteel.core.process import ProcessId
from firesteel.datastream import StreamExecutionEnvironment
from tests.integration.processes.cluster import MARK
from tests.waiting import wait_until

RUNS = Path(tempfile.gettempdir(), "firesteel-e")
"""Where run directories of this process's clusters lie; short enough for sockets, and known to the leak check."""
PROGRAM_RUNS = Path(tempfile.gettempdir(), "firesteel-p")
"""The same for programs in processes of their own."""


ANYWHERE = pytest.mark.usefixtures("anywhere")
"""The test runs its programs on a cluster of processes, and among the long ones on the embedded cluster, too."""
_elsewhere: dict[str, str] = {}


@contextmanager
def submitted_to(settings: Mapping[str, str]) -> Iterator[None]:
    """Programs of this process go to another cluster than the embedded one; the settings say where it is."""
    _elsewhere.update(settings)
    try:
        yield
    finally:
        _elsewhere.clear()


def runs() -> Path:
    """Where run directories lie of the cluster that programs go to."""
    secret = _elsewhere.get("firesteel.security.secret-file")
    return RUNS if secret is None else Path(secret).parents[1] / "r"


def run_directories(root: Path) -> list[Path]:
    """Those that are there."""
    return [path for path in root.glob("*-*-*") if path.is_dir()]


def new_environment(parallelism: int = 1, **options: str) -> StreamExecutionEnvironment:
    """An environment whose cluster takes any free REST port; ``a_b__c=x`` sets the option ``a-b.c``.

    Within ``submitted_to`` its cluster is the one that stands there.
    """
    settings = _elsewhere or {"rest.port": "0", "firesteel.run.directory": str(RUNS)}
    configuration = Configuration.from_dict(settings)
    for name, value in options.items():
        configuration.set_string(name.replace("__", ".").replace("_", "-"), value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(parallelism)


until = wait_until


def state_of(job: JobClient) -> str:
    return job.get_job_status().result().name


def rest_of(job: Any, path: str = "") -> Any:
    """The answer of ``/jobs/<id><path>``."""
    with urlopen(f"{job.get_web_interface_url()}/jobs/{job.get_job_id()}{path}") as answer:
        return json.load(answer)


def running(job: JobClient) -> None:
    """Waits until all tasks of the job run."""

    def all_run() -> bool:
        details = rest_of(job)
        assert details["state"] not in ("FAILED", "CANCELED", "FINISHED"), details["state"]
        return all(v["tasks"]["RUNNING"] == v["parallelism"] for v in details["vertices"])

    until(all_run, "all tasks running")


def ended(job: JobClient, timeout: float = 100.0) -> str:
    """Waits for the job's end; returns its last state."""
    return str(until(lambda: (s := state_of(job)) in ("FAILED", "CANCELED", "FINISHED") and s, "the end", timeout))


def family(pid: int) -> dict[str, list[ProcessId]]:
    """Descendants of a process by kind: ``jvm``, ``daemon`` (of pyspark), ``slot``, ``other``.

    Those of a cluster of processes, which tests of this folder share, are left out, and those of the process that runs
    the examples of the documentation.
    """
    everything = {member.pid: member for member in process.descendants(pid)}
    about: dict[int, tuple[int, str]] = {}
    of_others: set[int] = set()
    for child in everything:  # parents first
        try:
            parent = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
            words = Path(f"/proc/{child}/cmdline").read_bytes().decode(errors="replace").split("\0")
            marked = f"{MARK}=".encode() in Path(f"/proc/{child}/environ").read_bytes()
        except OSError:
            continue
        if marked or parent in of_others or any(word.endswith("tests/docs/runner.py") for word in words):
            of_others.add(child)
            continue
        about[child] = parent, "firesteel.runtime.slot.daemon" if "firesteel.runtime.slot.daemon" in words else words[0]
    jvms = {child for child, (_, name) in about.items() if os.path.basename(name) == "java"}
    of_daemon = {child for child, (_, name) in about.items() if name == "firesteel.runtime.slot.daemon"}
    daemons = {child for child in of_daemon if about[child][0] not in of_daemon}
    by_kind: dict[str, list[ProcessId]] = {"jvm": [], "daemon": [], "slot": [], "other": []}
    for child, (parent, _) in about.items():
        kind = "jvm" if child in jvms else "daemon" if child in daemons else "slot" if parent in daemons else "other"
        by_kind[kind].append(everything[child])
    return by_kind


def described(processes: Iterable[ProcessId]) -> str:
    """Each with its parent and its command."""
    lines = []
    for member in processes:
        try:
            parent = Path(f"/proc/{member.pid}/stat").read_text().rpartition(")")[2].split()[1]
            words = Path(f"/proc/{member.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        lines.append(f"{member.pid}, child of {parent}: {' '.join(words)[:2000]}")
    return "\n".join(lines)


def resident(pid: int) -> int:
    """Memory of a process in bytes: what is its own, as Linux counts anonymous pages."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no RssAnon of {pid}")


def proportional(pid: int) -> int:
    """Memory of a process in bytes, shared pages divided by their users (PSS); 0 when it has gone."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


class Program:
    """A program in a process of its own.

    Args:
        folder: where it lives; the working directory too, unless ``cwd`` says otherwise.
        command: behind the interpreter's path.
    """

    def __init__(
        self, folder: Path, *command: str, stdin: str | None = None, cwd: Path | None = None, **variables: str
    ) -> None:
        environment = {**os.environ, "PYTHONPATH": "", "PYTHONUNBUFFERED": "1", **variables}
        self.popen = subprocess.Popen(
            [sys.executable, *command],
            cwd=cwd or folder,
            env=environment,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._stdin = stdin
        self.out = self.err = ""

    @property
    def pid(self) -> int:
        return self.popen.pid

    def end(self, timeout: float = 240.0) -> int:
        """Waits for its end; returns the exit code, negative for a signal."""
        try:
            out, err = self.popen.communicate(self._stdin, timeout)
        finally:
            self.popen.kill()
        self.out += out
        self.err += err
        return self.popen.returncode

    def until_said(self, text: str) -> None:
        """Waits for a line of its standard error that holds a text."""
        assert self.popen.stderr is not None
        line = ""
        while text not in line:
            line = self.popen.stderr.readline()
            self.err += line
            assert line, f"the program ended and never said {text!r}: {self.err}"

    def line(self) -> str:
        """The next line of its standard output."""
        assert self.popen.stdout is not None
        text = self.popen.stdout.readline()
        self.out += text
        assert text, f"the program ended: {self.popen.stderr.read() if self.popen.stderr else ''}"
        return text.rstrip("\n")


@contextmanager
def program(folder: Path, *command: str, **more: Any) -> Iterator[Program]:
    """A program that is killed at the end of the block if it still runs, with all that it started."""
    started = Program(folder, *command, **more)
    try:
        yield started
    finally:
        left = process.descendants(started.pid)
        started.popen.kill()
        started.popen.wait()
        for stream in (started.popen.stdin, started.popen.stdout, started.popen.stderr):
            if stream is not None:
                stream.close()
        process.wait_gone(left, timeout=100)
