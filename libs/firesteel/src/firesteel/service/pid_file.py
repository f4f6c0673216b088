"""Pid files, which say which process runs, and where it listens.

A pid file has three lines: the pid, the start time of the process (``firesteel.core.process``), and the base URL once
the process listens, or ``standby`` while it waits for its turn to lead. The third line tells the start scripts that the
process is up.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from firesteel.core.errors import FiresteelError
from firesteel.core.files import replace_file
from firesteel.core.process import ProcessId, is_running, myself

STANDBY = "standby"


class AlreadyRunningError(FiresteelError):
    """The process that a pid file names still runs."""


class PidFile:
    """Names this process while the context is open.

    Args:
        path: of the file; its directory is made if needed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()

    def __enter__(self) -> PidFile:
        """Write the file.

        Raises:
            AlreadyRunningError: the process that the file names runs.
            OSError: the file can't be written.
        """
        former = read_pid_file(self._path)
        if former is not None and is_running(former) and former != myself():
            raise AlreadyRunningError(f"is running already, as process {former.pid} ({self._path})")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._write()
        return self

    def listens_on(self, address: str) -> None:
        """Note that the process listens."""
        self._write(address)

    def stands_by(self) -> None:
        """Note that the process is up, and will listen as soon as it leads."""
        self._write(STANDBY)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Remove the file, unless it names another process by now."""
        if read_pid_file(self._path) == myself():
            self._path.unlink(missing_ok=True)

    def _write(self, address: str = "") -> None:
        me = myself()
        text = f"{me.pid}\n{me.start}\n" + (f"{address}\n" if address else "")
        replace_file(self._path, text.encode(), mode=0o666, durable=False)  # it means nothing after a restart


def read_pid_file(path: Path) -> ProcessId | None:
    """The process that a pid file names; None if there is no file, or it holds something else."""
    try:
        lines = path.read_text().split()
        return ProcessId(int(lines[0]), int(lines[1]))
    except (OSError, ValueError, IndexError):
        return None
