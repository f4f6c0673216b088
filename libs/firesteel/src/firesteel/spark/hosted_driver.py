"""The driver JVM of the hosted fleet: it outlives the process that started it, and ends when nobody is attached."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from firesteel.core import process
from firesteel.core.errors import FleetError
from firesteel.core.process import ProcessId
from firesteel.spark.driver import INFO_VARIABLE, GatewayAddress, wait_for_gateway
from firesteel.spark.java import Java
from firesteel.spark.jvm import command_line

ATTACHED = "attached"
"""Name of the file in the driver's directory on which the attached process holds a lock (`RecordLock`)."""
_KILLED_SECONDS = 5.0

_children: dict[int, ProcessId] = {}
"""Drivers that this process started and has not waited for, by pid."""
_MAIN = "firesteel.spark.SlotsDriver"


class HostedDriver:
    """A driver JVM, started by this process or by a former ResourceManager.

    Args:
        identity: of the process.
        directory: its own; logs and scratch files.
    """

    def __init__(self, identity: ProcessId, directory: Path) -> None:
        self.identity, self.directory = identity, directory
        self._status: int | None = None
        """Wait status of a child that has ended."""

    @classmethod
    def start(
        cls,
        java: Java,
        directory: Path,
        environment: Mapping[str, str],
        orphan_timeout: float,
        flags: tuple[str, ...] = (),
    ) -> HostedDriver:
        """Start a driver; `wait_ready` waits until it can be used.

        Args:
            java: which one.
            directory: for the driver alone, mode 0700; `ATTACHED` in it is locked by us.
            environment: all of its environment but what it adds.
            orphan_timeout: seconds after which it ends when nobody is attached.
            flags: more of the JVM's flags.

        Raises:
            FleetError: it can't be started.
        """
        arguments = [str(directory / ATTACHED), str(max(1, round(orphan_timeout * 1000)))]
        command = command_line(java, _MAIN, scratch=directory, flags=flags, arguments=arguments)
        try:
            with (directory / "driver.log").open("ab") as log:
                popen = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**environment, INFO_VARIABLE: str(directory / "gateway")},
                    start_new_session=True,
                )
        except OSError as error:
            raise FleetError(f"Java could not be started: {error}.") from error
        popen.returncode = 0  # it may outlive us, and we look at it as any process does
        identity = process.identify(popen.pid) or ProcessId(popen.pid, 0)
        _children[popen.pid] = identity
        return cls(identity, directory)

    @property
    def log(self) -> Path:
        return self.directory / "driver.log"

    def wait_ready(self) -> GatewayAddress:
        """Wait until py4j listens.

        Raises:
            FleetError: the JVM ended, or was not ready in time; with the end of its log.
        """
        return wait_for_gateway(self, self.directory / "gateway")

    def is_running(self) -> bool:
        self._wait_for_child()
        return self._status is None and process.is_running(self.identity)

    def _wait_for_child(self) -> bool:
        """Note the end of a driver that is our child; returns whether it still runs as our child."""
        if self._status is not None or _children.get(self.identity.pid) != self.identity:
            return False
        try:
            pid, status = os.waitpid(self.identity.pid, os.WNOHANG)
        except ChildProcessError:
            pid, status = self.identity.pid, 0
        if pid:
            self._status = status
            del _children[pid]
        return not pid

    def exit_reason(self) -> str:
        """How the driver ended, in words; known only if it was our child."""
        if self.is_running():
            return "still running"
        if self._status is None:
            return "its exit code is not known"
        code = os.waitstatus_to_exitcode(self._status)
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"

    def end(self, grace: float) -> None:
        """Ask the driver to end in order; kill it after ``grace`` seconds, or at once if that is 0."""
        if grace > 0 and self.is_running():
            process.ask_to_end(self.identity)
            process.wait_gone([self.identity], grace)
        self.kill()
        deadline = time.monotonic() + _KILLED_SECONDS
        while (self._wait_for_child() or self.is_running()) and time.monotonic() < deadline:
            time.sleep(0.01)

    def kill(self) -> None:
        """Send SIGKILL; slots go on, as executors outlive the driver."""
        if self.is_running():
            process.kill(self.identity)
