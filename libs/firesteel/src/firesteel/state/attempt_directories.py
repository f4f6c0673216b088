"""Directories of state on local disks: one for each attempt, removed when its process is gone.

The name of a directory says which process created it, by its id and start time, since ids are used again. Each process
that creates a directory removes those of processes on this host that have ended, however they ended.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import uuid
import zlib
from collections.abc import Sequence
from functools import cache
from typing import Final

from firesteel.core.errors import ConfigurationError

_NAME: Final = re.compile(r"firesteel-state-([\w.]+)-(\d+)-(\d+)-[\w-]+")


def attempt_directory(directories: Sequence[str], operator: str) -> str:
    """Create a directory in one of these.

    Raises:
        ConfigurationError: it can't be created.
    """
    token = uuid.uuid4().hex[:12]
    parent = directories[zlib.crc32(f"{operator}{token}".encode()) % len(directories)]
    try:
        os.makedirs(parent, exist_ok=True)
        remove_abandoned(parent)
        directory = os.path.join(parent, attempt_name(token))
        os.mkdir(directory)
    except OSError as error:
        raise ConfigurationError(f"state.backend.rocksdb.localdir: {parent} can't be used: {error}") from error
    return directory


def attempt_name(token: str) -> str:
    """Name of a directory of this process."""
    return f"firesteel-state-{_host()}-{os.getpid()}-{_started(os.getpid())}-{token}"


def remove_abandoned(parent: str) -> None:
    """Remove the directories of processes of this host that have ended, if the parent exists."""
    try:
        names = os.listdir(parent)
    except FileNotFoundError:
        return
    for name in names:
        named = _NAME.fullmatch(name)
        if named is not None and named[1] == _host() and _started(int(named[2])) != int(named[3]):
            shutil.rmtree(os.path.join(parent, name), ignore_errors=True)


@cache
def _host() -> str:
    return re.sub(r"[^\w.]", "_", socket.gethostname())


def _started(pid: int) -> int:
    """Start time of a process, by the clock of the system; -1 = there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        pass
    try:  # without /proc the id alone has to do
        os.kill(pid, 0)
    except ProcessLookupError:
        return -1
    except PermissionError:
        pass
    return 0
