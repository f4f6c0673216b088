"""A child process that does not outlive us: it watches its standard input, of which we alone hold the other end."""

from __future__ import annotations

import os
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from firesteel.core import process
from firesteel.core.errors import FleetError

_END_SECONDS = 2.0

_owned: weakref.WeakSet[OwnedProcess] = weakref.WeakSet()


class OwnedProcess:
    """A process that ends with this one, in a process group of its own: Ctrl-C is for the client alone."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Start it; what it writes is appended to ``log``.

        Raises:
            FleetError: it can't be started.
        """
        self.log = log
        try:
            with log.open("ab") as output:
                self.popen = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    bufsize=0,
                    process_group=0,
                )
        except OSError as error:
            raise FleetError(f"{name} could not be started: {error}.") from error
        _owned.add(self)

    @property
    def pid(self) -> int:
        return self.popen.pid

    def is_running(self) -> bool:
        return self.popen.poll() is None

    def exit_reason(self) -> str:
        """How it ended, in words, e.g. ``killed by signal 9``."""
        code = self.popen.poll()
        if code is None:
            return "still running"
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"

    def release(self) -> None:
        """Close our end of its standard input: without another holder it ends by itself."""
        if self.popen.stdin is not None:
            self.popen.stdin.close()

    def family(self) -> list[process.ProcessId]:
        """The process's descendants, if it runs."""
        return process.descendants(self.pid) if self.is_running() else []

    def end(self, grace: float) -> None:
        """Have it end by itself within ``grace`` seconds, else kill it."""
        self.release()
        try:
            self.popen.wait(grace)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


def _close_pipes_in_child() -> None:
    """A forked child must not keep them alive beyond our death."""
    for owned in list(_owned):
        owned.release()


def end_together(jvm: OwnedProcess, daemon: OwnedProcess | None, grace: float) -> None:
    """End a JVM and the daemon that forks its workers, and whatever of their descendants is left after that.

    Args:
        jvm: gets ``grace`` seconds to end by itself.
        daemon: the prepared one; it sees the end of its input, and sends SIGHUP to its workers.
        grace: in seconds.
    """
    family = jvm.family() + (daemon.family() if daemon is not None else [])
    jvm.end(grace)
    if daemon is not None:
        daemon.end(_END_SECONDS)
    for straggler in process.wait_gone(family, _END_SECONDS):
        process.kill(straggler)
    process.wait_gone(family, _END_SECONDS)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_pipes_in_child)
