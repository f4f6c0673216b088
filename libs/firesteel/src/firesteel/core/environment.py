"""Environment variables that user code must not find."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping, MutableMapping

SECRET_VARIABLE = "FIRESTEEL_SECRET"
_PREFIXES = (SECRET_VARIABLE, "FIRESTEEL_OPTION_")
"""The cluster's secret, and options of the cluster: among them may be keys of storages."""
_OF_SPARK = frozenset({"PYTHON_WORKER_FACTORY_SECRET", "PYSPARK_GATEWAY_SECRET", "_SPARK_AUTH_SECRET"})


def is_secret(name: str) -> bool:
    """Whether a variable of this name belongs to the cluster, not to the user's code."""
    return name.startswith(_PREFIXES) or name in _OF_SPARK


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process that runs user code, or from which such ones descend."""
    return {name: value for name, value in environ.items() if not is_secret(name)}


def scrub(environ: MutableMapping[str, str]) -> None:
    """Remove the cluster's secrets from an environment."""
    for name in [name for name in environ if is_secret(name)]:
        del environ[name]


def take(name: str, environ: MutableMapping[str, str]) -> str | None:
    """Remove a variable and return its value; of ``os.environ``, also from what the system shows of this process.

    Linux shows the environment with which a process was started (``/proc/<pid>/environ``, ``ps e``), whatever became of
    it; all processes of the same user can read it, and slots are some of them. So the value is overwritten in place.
    """
    value = environ.pop(name, None)
    if value is not None and environ is os.environ and sys.platform.startswith("linux"):
        _overwrite(f"{name}=".encode())
    return value


def _overwrite(beginning: bytes) -> None:
    """Put stars into the variables that begin so, in the block of memory that the process was started with.

    proc(5): fields 50 and 51 of ``stat`` are the block's addresses. The variable has left ``environ`` by now, so nobody
    else reads it there.
    """
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])
    block = ctypes.string_at(start, end - start) if start else b""
    position = 0
    for variable in block.split(b"\0"):
        if variable.startswith(beginning):
            ctypes.memset(start + position + len(beginning), ord("*"), len(variable) - len(beginning))
        position += len(variable) + 1
