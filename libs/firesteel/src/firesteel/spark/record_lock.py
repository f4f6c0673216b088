"""A lock on a file that falls with its process, and that Java's ``FileLock`` sees too."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

_PATIENCE_SECONDS = 1.0
"""How long ``acquire`` tries: a driver looks at the lock by taking it for a moment."""

_guard = threading.Lock()
_locked_paths: set[str] = set()
"""Locked files. Such locks belong to the whole process: a second holder in it has to be refused here."""


class RecordLock:
    """An exclusive lock on a file, by POSIX record locks, which forked children do not inherit.

    No other code of this process may open the file: closing any handle of it would release the lock.

    Args:
        path: made if missing, mode 0600; holds the pid of the holder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = -1

    def acquire(self, patience: float = _PATIENCE_SECONDS) -> bool:
        """Take the lock, trying for ``patience`` seconds.

        Returns:
            Whether we have it.

        Raises:
            OSError: the file can't be made.
        """
        name = os.path.realpath(self.path)
        deadline = time.monotonic() + patience
        while not self._try(name):
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        return True

    def _try(self, name: str) -> bool:
        with _guard:
            if name in _locked_paths:
                return False
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(handle, 0)
                os.write(handle, f"{os.getpid()}\n".encode())
            except OSError:
                os.close(handle)
                return False
            self._handle = handle
            _locked_paths.add(name)
            return True

    def release(self) -> None:
        """Release the lock; does nothing if we do not have it."""
        with _guard:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1
                _locked_paths.discard(os.path.realpath(self.path))

    def holder(self) -> str:
        """The process that has the lock, in words for a message."""
        with _guard:
            if os.path.realpath(self.path) in _locked_paths:
                return f"process {os.getpid()}"  # to read the file would lose the lock
            try:
                return f"process {int(self.path.read_text())}"
            except (OSError, ValueError):
                return "an unknown process"
