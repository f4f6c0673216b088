"""A directory that one process uses at a time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from firesteel.core.errors import ConfigurationError

if sys.platform != "win32":
    import fcntl


class DirectoryLock:
    """Held from construction until ``release``, or the death of the process.

    Raises:
        ConfigurationError: another process holds it.
        OSError: the file can't be made.
    """

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(self._handle, 20).decode("ascii", "replace").strip()
            os.close(self._handle)
            raise ConfigurationError(
                f"The directory {path.parent} is in use by another Dispatcher{f' (pid {owner})' if owner else ''}: "
                "one cluster has one; set firesteel.cluster.directory to another directory for another cluster."
            ) from None
        os.truncate(self._handle, 0)
        os.write(self._handle, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Let others have it. May be called twice."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
