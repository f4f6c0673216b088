"""A whole standalone cluster for tests: the console scripts as processes, in a directory of its own."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from firesteel.core.process import ProcessId, identify, is_running, kill, wait_gone
from firesteel.core.run_directory import RunDirectory
from firesteel.core.secret import rest_token
from firesteel.service.pid_file import STANDBY
from firesteel.service.remains import end_remains
from tests.leaks import NO_ARCHIVES
from tests.ports import free_ports
from tests.waiting import PATIENCE, NotInTimeError, wait_until

BIN = Path(sys.executable).parent
COORDINATORS = ("dispatcher", "jobmaster", "resourcemanager")
MARK = "FIRESTEEL_TEST_CLUSTER"


def rest_call(
    url: str, method: str, path: str, body: Any = None, *, secret: str = "", token: str = ""
) -> tuple[int, Any]:
    """Status and JSON of a REST request; with a token if one, or the cluster's secret, is given.

    Raises:
        OSError: nobody answers.
    """
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, method=method)
    if data is not None:
        request.add_header("Content-Type", "application/json")
    if token or secret:
        request.add_header("Authorization", f"Bearer {token or rest_token(secret)}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"null")


class ServiceProcess:
    """One service, started by its console script.

    Args:
        prefix: words in front of the command, of a program that becomes the service.

    Attributes:
        name: of the service.
        address: base URL of its internal port.
    """

    def __init__(
        self, name: str, arguments: list[str], folder: Path, environment: Mapping[str, str], prefix: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.log_file, self._out_file = folder / f"{folder.name}.log", folder / f"{folder.name}.out"
        self._pid_file = folder / "pid"
        folder.mkdir()
        command = [*prefix, str(BIN / f"firesteel-{name}"), *arguments, "--pid-file", str(self._pid_file)]
        with self._out_file.open("wb") as out:
            self._popen = subprocess.Popen(
                [*command, "--log-file", str(self.log_file)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True,
            )  # fmt: skip
        identity = identify(self._popen.pid)
        assert identity is not None
        self.process: ProcessId = identity
        self.address = ""

    @property
    def pid(self) -> int:
        return self._popen.pid

    def wait_listening(self) -> None:
        """Until its internal port is open."""

        def address() -> str:
            assert self._popen.poll() is None, f"{self.name} ended with {self._popen.returncode}:\n{self.log()}"
            lines = self._pid_file.read_text().splitlines() if self._pid_file.exists() else []
            return lines[2] if len(lines) > 2 and lines[2] != STANDBY else ""

        self.address = wait_until(address, f"{self.name} listens")

    def log(self) -> str:
        """What it has logged and printed."""
        files = (self._out_file, self.log_file)
        return "".join(file.read_text(errors="replace") for file in files if file.exists())

    def signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self._popen.poll() is None:
            self._popen.send_signal(number)

    def wait(self, seconds: float = PATIENCE) -> int:
        """Its exit code, when it has ended."""
        return self._popen.wait(seconds)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._popen.poll() is None


class Cluster:
    """Starts and stops services; after ``close`` nothing is left, or an ``AssertionError`` tells what is.

    Args:
        slots: of each TaskManager.
        options: for config.yaml, on top of what the tests need.
        variables: for the environment of all processes.
        secret_in_environment: give the secret by variable, not by file.
        ha: services find one another in a directory.

    Attributes:
        client_prefix: words in front of the command ``firesteel``.
        other_directories: cluster directories of further hosts.
    """

    client_prefix: Sequence[str] = ()

    def __init__(
        self,
        *,
        slots: int = 2,
        options: Mapping[str, object] | None = None,
        variables: Mapping[str, str] | None = None,
        secret_in_environment: bool = False,
        ha: bool = False,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="c"))
        self.config_dir = self.folder / "conf"
        self.cluster_directory = self.folder / "cluster"
        self.other_directories: list[Path] = []
        self.run_root = self.folder / "r"
        self.secret = secrets.token_hex(32)
        self.services: list[ServiceProcess] = []
        self._mark = uuid.uuid4().hex
        self._slots = slots
        rpc, resourcemanager, jobmaster, rest = free_ports(4)
        self.rest_url = f"http://127.0.0.1:{rest}"
        settings: dict[str, object] = {
            "jobmanager.rpc.port": rpc,
            "firesteel.resourcemanager.port": resourcemanager,
            "firesteel.jobmaster.port": jobmaster,
            "rest.port": rest,
            "firesteel.cluster.directory": self.cluster_directory,
            "firesteel.run.directory": self.run_root,
            "taskmanager.numberOfTaskSlots": slots,
            "taskmanager.memory.process.size": "1728m",
            "firesteel.jvm.archive-in-background": "false",
            "heartbeat.interval": "1 s",
            "heartbeat.timeout": "10 s",
            **(options or {}),
        }
        if ha:
            settings |= {"high-availability.type": "directory", "high-availability.storageDir": self.folder / "ha"}
            settings |= {"firesteel.resourcemanager.address": "127.0.0.1:1"}  # nobody may go there
        self.config_dir.mkdir()
        (self.config_dir / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
        self._variables = dict(variables or {})
        if secret_in_environment:
            self._variables["FIRESTEEL_SECRET"] = self.secret
        else:
            secret_file = self.config_dir / "cluster-secret"
            secret_file.touch(mode=0o600)
            secret_file.write_text(self.secret)

    def environment(self) -> dict[str, str]:
        """For processes of this cluster and programs that it runs."""
        everything = os.environ.items()
        variables = {k: v for k, v in everything if k == NO_ARCHIVES or not k.startswith("FIRESTEEL_OPTION_")}
        return variables | {MARK: self._mark, "FIRESTEEL_CONF_DIR": str(self.config_dir)} | self._variables

    def launch(self, name: str, *definitions: str, prefix: Sequence[str] = ()) -> ServiceProcess:
        """Start a service, without waiting; ``prefix`` as in ``ServiceProcess``."""
        number = sum(service.name == name for service in self.services)
        arguments = [part for definition in definitions for part in ("-D", definition)]
        folder = self.folder / f"{name}-{number}"
        service = ServiceProcess(name, arguments, folder, self.environment(), prefix)
        self.services.append(service)
        return service

    def start(self, name: str, *definitions: str) -> ServiceProcess:
        """Start a service; it listens when this returns."""
        service = self.launch(name, *definitions)
        service.wait_listening()
        return service

    def start_all(self, taskmanagers: int = 1) -> None:
        """Start all services; slots are registered and executors started when this returns."""
        names = ["resourcemanager", "jobmaster", "dispatcher", *["taskmanager"] * taskmanagers]
        for service in [self.launch(name) for name in names]:
            service.wait_listening()
        self.wait_slots(taskmanagers * self._slots)
        wait_until(lambda: len(self.executors()) >= taskmanagers, "every TaskManager has an executor")

    def the(self, name: str, index: int = -1) -> ServiceProcess:
        """One of the services of a name, by default the one that was started last."""
        return [service for service in self.services if service.name == name][index]

    def wait_slots(self, count: int) -> None:
        """Until so many slots are registered."""

        def registered() -> bool:
            for service in self.services:
                assert service.is_running() or service.log(), f"{service.name} ended"
            try:
                status, answer = self.rest("GET", "/overview")
            except OSError:
                return False
            return status == 200 and answer["slots-total"] >= count

        try:
            wait_until(registered, f"{count} slots are registered")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def rest(self, method: str, path: str, body: Any = None, *, token: bool = True) -> tuple[int, Any]:
        """Status and JSON of a REST request.

        Raises:
            OSError: nobody answers.
        """
        return rest_call(self.rest_url, method, path, body, secret=self.secret if token else "")

    def firesteel(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run the command ``firesteel`` for this cluster."""
        command = [*self.client_prefix, str(BIN / "firesteel"), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=self.environment(), stdin=subprocess.DEVNULL
        )

    def processes(self) -> list[ProcessId]:
        """All processes of the cluster: those that inherited its mark, and those below its services."""
        mark = f"{MARK}={self._mark}".encode()
        identities = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    marked = mark in (entry / "environ").read_bytes().split(b"\0")
                except OSError:
                    continue
                identity = identify(int(entry.name)) if marked else None
                if identity is not None:
                    identities.append(identity)
        return identities

    def executors(self) -> list[ProcessId]:
        """The JVMs of Spark's executors."""
        return [process for process in self.processes() if ".SlotsExecutor" in _arguments(process.pid)]

    def logs(self) -> str:
        """The logs of all services."""
        return "".join(f"----- {service.name} ({service.pid})\n{service.log()}\n" for service in self.services)

    def stop(self) -> None:
        """End the cluster as ``stop-cluster.sh`` does: the coordinators hand over, and what they have left is ended."""
        for name in COORDINATORS:
            self._stop(name)
        for directory in (self.cluster_directory, *self.other_directories):
            if directory.exists():
                end_remains(directory)
        self._stop("taskmanager")

    def _stop(self, name: str) -> None:
        """All services of a name."""
        named = [service for service in self.services if service.name == name]
        for service in named:
            service.signal(signal.SIGTERM)
        for service in named:
            service.wait()

    def close(self) -> None:
        """Stop what runs, and check that nothing is left.

        Raises:
            AssertionError: processes or files are left; they are removed all the same.
        """
        left: list[str] = []
        try:
            self.stop()
            left = [f"process {process.pid}: {command(process.pid)}" for process in wait_gone(self.processes(), 10)]
            if self.run_root.exists():

                def removed() -> bool:  # the next start removes those of killed owners, who may be ending
                    RunDirectory.create(self.run_root).remove()
                    return not any(path.is_dir() for path in self.run_root.iterdir())

                with suppress(NotInTimeError):
                    wait_until(removed, "no run directory is left", 10)
                left += [f"run directory {path}" for path in self.run_root.iterdir() if path.is_dir()]
        finally:
            for process in self.processes():
                kill(process)
            wait_gone(self.processes(), 10)
            logs = self.logs()
            shutil.rmtree(self.folder, ignore_errors=True)
        assert not left, "the cluster left behind:\n  " + "\n  ".join(left) + "\n" + logs


def command(pid: int) -> str:
    """The command line of a process, shortened."""
    return _arguments(pid)[:300] or "(gone)"


def _arguments(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


@contextmanager
def running_cluster(taskmanagers: int = 1, **arguments: Any) -> Iterator[Cluster]:
    """A cluster (``Cluster(**arguments)``) that is ready for jobs; closed at the end."""
    cluster = Cluster(**arguments)
    try:
        cluster.start_all(taskmanagers)
        yield cluster
    except BaseException:
        print(cluster.logs())
        raise
    finally:
        cluster.close()


__all__ = ["PATIENCE", "Cluster", "ServiceProcess", "free_ports", "is_running", "running_cluster", "wait_until"]
