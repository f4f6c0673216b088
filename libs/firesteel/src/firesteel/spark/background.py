"""Class-data archives made in the background, so that later starts are faster and the first one is no slower.

A process of its own (`archive_maker`) makes them. It runs when nobody else wants a processor (``SCHED_IDLE``), is the
first to go when memory is short, and has a deadline. Only one at a time works on an archive, and an archive that could
not be made is not tried again for an hour. Where an archive is missing,

* the embedded fleet starts such a process when it has ended (`start_detached`): it is nobody's child, so that a program
  neither waits for it nor has to live as long;
* driver and executor of the hosted fleet have one as a child (`start_owned`), which waits until the cluster has found
  its feet, and ends with its owner.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

from firesteel.core.environment import without_secrets
from firesteel.core.errors import FleetError
from firesteel.spark.archive import Archive, archives_of, remove_unused
from firesteel.spark.java import Java
from firesteel.spark.owned_process import OwnedProcess
from firesteel.spark.worker_path import worker_environment

logger = logging.getLogger(__name__)

FIRST_DELAY = 30.0
"""Seconds that a child waits, for its owner's start to come to rest."""
_MODULE = "firesteel.spark.archive_maker"
LOG = "in-background.log"
"""File in the directory of the archives: what the last such process had to say."""


def start_detached(java: Java, group: str) -> bool:
    """Have missing archives made by a process that outlives this one; returns whether one was started.

    Takes a few milliseconds; what goes wrong is logged only, as archives cost nothing but time.
    """
    first = _first_if_wanted(java, group)
    if first is None:
        return False
    try:
        log = _log(first)
        # The shell ends at once, so nobody has to wait for what it leaves; the program's terminal is not kept.
        line = 'exec >>"$0" 2>&1 </dev/null; "$@" &'
        subprocess.run(
            ["/bin/sh", "-c", line, str(log), *_command(java, group)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            cwd="/",
            start_new_session=True,
            check=True,
            timeout=5.0,
        )
    except (OSError, subprocess.SubprocessError, RuntimeError) as error:  # RuntimeError: the interpreter is ending
        logger.debug("no class-data archive is made: %s", error)
        return False
    return True


def start_owned(java: Java, group: str, delay: float = FIRST_DELAY) -> OwnedProcess | None:
    """Have missing archives made by a child, to be ended with `end_together`; None if there is nothing to do."""
    first = _first_if_wanted(java, group)
    if first is None:
        return None
    try:
        command = [*_command(java, group), "--owned", "--delay", str(delay)]
        return OwnedProcess("The maker of archives", command, _environment(), _log(first))
    except (OSError, FleetError) as error:
        logger.debug("no class-data archive is made: %s", error)
        return None


def _first_if_wanted(java: Java, group: str) -> Archive | None:
    """The archive whose lock stands for the group; None if nothing is to be made now. Old archives are removed."""
    if not sys.platform.startswith("linux"):
        return None
    remove_unused()
    archives = list(archives_of(java, group).values())
    missing = [archive for archive in archives if not archive.is_there()]
    if not missing or archives[0].is_locked() or any(archive.has_failed() for archive in archives):
        return None
    return archives[0]


def _log(archive: Archive) -> Path:
    archive.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = archive.path.with_name(LOG)
    os.close(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    return log


def _command(java: Java, group: str) -> list[str]:
    return [sys.executable, "-P", "-m", _MODULE, group, "--java-home", str(java.executable.parent.parent)]


def _environment() -> dict[str, str]:
    """Ours, without secrets, and with firesteel on the path wherever it was found."""
    environment = without_secrets(os.environ)
    path = worker_environment((), environment).get("PYTHONPATH")
    return environment if path is None else {**environment, "PYTHONPATH": path}
