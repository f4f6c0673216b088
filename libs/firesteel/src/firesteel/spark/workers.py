"""Spark's Python workers: the daemon that forks them, its environment, and one that is made ready beforehand."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from firesteel.core.run_directory import RunDirectory
from firesteel.spark.jvm import RUN_DIRECTORY_VARIABLE, child_environment
from firesteel.spark.owned_process import OwnedProcess
from firesteel.spark.slot_task import SlotTask
from firesteel.spark.worker_path import PATH_VARIABLE, worker_environment

PYTHON = "firesteel-python"
"""What the hosted driver calls the workers' interpreter: each TaskManager puts one of that name on its `PATH`."""
DAEMON_MODULE = "firesteel.runtime.slot.daemon"
_PREPARED_VARIABLE = "FIRESTEEL_PREPARED_DAEMON"  # read by firesteel.runtime.slot.prepared_daemon
_PRELOAD_VARIABLE = "FIRESTEEL_PRELOAD"  # read by firesteel.runtime.slot.daemon


def workers_environment(
    run_directory: RunDirectory,
    *,
    python: str,
    preload: Sequence[str],
    prepared: Path,
    more: Mapping[str, str],
) -> dict[str, str]:
    """The environment of a JVM whose workers run slots.

    Args:
        run_directory: where they find sockets; nothing is imported from there.
        python: their interpreter; another one than ours has a search path of its own.
        preload: modules that the daemon imports before it forks.
        prepared: the Unix socket of the prepared daemon.
        more: variables that come on top.
    """
    path = worker_environment(sys.path, os.environ, leave_out=[str(run_directory.path)])
    if python != sys.executable:
        del path[PATH_VARIABLE]
    ours = {
        **path,
        RUN_DIRECTORY_VARIABLE: str(run_directory.path),
        _PRELOAD_VARIABLE: ",".join(dict.fromkeys((*preload, SlotTask.__module__))),
        _PREPARED_VARIABLE: str(prepared),
    }
    return child_environment(os.environ, {**ours, **more})


def prepare_daemon(python: str, environment: Mapping[str, str], log: Path) -> OwnedProcess:
    """Have a worker daemon load what it needs while the JVM starts; Spark finds it by a variable.

    Raises:
        FleetError: the interpreter can't be started.
    """
    variables = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "YES", **environment}
    command = [python, "-m", DAEMON_MODULE, "--prepare", environment[_PREPARED_VARIABLE]]
    return OwnedProcess("The worker daemon", command, variables, log)


def put_on_path(directory: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """Make `PYTHON` in this directory, so that workers run our own interpreter; the ``PATH`` that begins with it."""
    script = directory / PYTHON
    if not script.exists():
        unfinished = script.with_suffix(".new")
        unfinished.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
        unfinished.chmod(0o700)
        unfinished.replace(script)
    if not os.access(script, os.X_OK):
        directory = _linked_environment(directory / "linked")
    return {"PATH": os.pathsep.join([str(directory), inherited.get("PATH") or os.defpath])}


def _linked_environment(root: Path) -> Path:
    """Make `PYTHON` where no script can be run (the file system is mounted with ``noexec``); the directory it is in.

    A link runs all the same, as its target is elsewhere. But an interpreter looks for its packages beside the name by
    which it was called, so this is a virtual environment with the packages and settings of ours.
    """
    directory = root / "bin"
    directory.mkdir(parents=True, exist_ok=True)
    links = {directory / PYTHON: os.path.realpath(sys.executable)}
    if sys.prefix != sys.base_prefix:
        shutil.copyfile(Path(sys.prefix, "pyvenv.cfg"), root / "pyvenv.cfg")
        links |= {root / name: os.path.join(sys.prefix, name) for name in ("lib", "lib64")}
    for link, target in links.items():
        if not link.is_symlink():
            link.symlink_to(target)
    return directory
