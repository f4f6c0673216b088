"""Class-data archives made in the background, so that later starts are faster and the first one is no slower.

A process of its own makes them. It runs when nobody else wants a processor (``SCHED_IDLE``), is the first to go when
memory is short, and has a deadline. Only one at a time works on an archive, and one that has failed is not tried again
for an hour. Where an archive is missing,

* the embedded fleet starts such a process when it has ended (`start_detached`): it is nobody's child, so that a program
  neither waits for it nor has to live as long;
* driver and executor of the hosted fleet have one as a child (`start_owned`), which waits until the cluster has found
  its feet, and ends with its owner.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from firesteel.core.environment import without_secrets
from firesteel.core.errors import FiresteelError, FleetError
from firesteel.core.machine import free_memory
from firesteel.spark.archive import GROUPS, Archive, archives_of
from firesteel.spark.java import Java, find_java
from firesteel.spark.owned_process import OwnedProcess
from firesteel.spark.worker_path import worker_environment

logger = logging.getLogger(__name__)

FIRST_DELAY = 30.0
"""Seconds that a child waits, for its owner's start to come to rest."""
DEADLINE = 300.0
"""Seconds that the making may take."""
_CLEANING = 30.0
"""Seconds that its end may take after that."""
_LEAST_MEMORY = 1 << 30
_MODULE = "firesteel.spark.background"
LOG = "in-background.log"
"""In the directory of the archives: what the last such process had to say."""


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
    """The archive whose lock stands for the group; None if nothing is to be made now."""
    if not sys.platform.startswith("linux"):
        return None
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
    kept = without_secrets(os.environ)
    path = worker_environment((), kept).get("PYTHONPATH")
    return kept if path is None else {**kept, "PYTHONPATH": path}


# -- the process itself


def _be_modest() -> None:
    """Run when nobody else wants to, and be the first to go when memory is short; so do all JVMs below."""
    os.nice(19)
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    except OSError:
        pass  # the kernel or a sandbox does not want that: nice it is


def _end_in_order(number: int, frame: object) -> None:
    """Raises in the main thread, so that everything is cleaned up; whatever that takes, it has an end."""
    for other in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(other, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
    signal.setitimer(signal.ITIMER_REAL, _CLEANING)
    raise SystemExit(f"ended by {signal.Signals(number).name}")


def _end_with_the_owner() -> None:
    while os.read(0, 1024):  # not sys.stdin: its lock would be in the way of the interpreter's end
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main(arguments: list[str] | None = None) -> int:
    """What such a process does."""
    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}", description="Makes class-data archives.")
    parser.add_argument("group", choices=sorted(GROUPS))
    parser.add_argument("--java-home", required=True)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds to wait before anything is done")
    parser.add_argument("--owned", action="store_true", help="end when the standard input ends")
    parser.add_argument("--eager", action="store_true", help="with ordinary priority")
    parsed = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, _end_in_order)
    signal.setitimer(signal.ITIMER_REAL, parsed.delay + DEADLINE)
    if parsed.owned:
        threading.Thread(target=_end_with_the_owner, name="owner", daemon=True).start()
    if not parsed.eager:
        _be_modest()
    time.sleep(parsed.delay)
    if not parsed.eager and 0 < free_memory() < _LEAST_MEMORY:
        print("There is too little memory for that now.")
        return 0
    from firesteel.spark.training import train  # Spark is imported only now

    wanted = archives_of(find_java(parsed.java_home), parsed.group)
    try:
        made = train(parsed.java_home, [parsed.group], wait=False)
        if len(made) < len(wanted) and not next(iter(wanted.values())).is_locked():
            raise FleetError("the JVM wrote none")
    except (FiresteelError, OSError) as error:
        _note_failure(parsed.java_home, parsed.group, str(error))
        return 1
    except SystemExit as ended:
        if ended.code == f"ended by {signal.SIGALRM.name}":
            _note_failure(parsed.java_home, parsed.group, f"not done within {DEADLINE:g} s")
        raise
    for archive in made:
        print(archive.path)
    return 0


def _note_failure(java_home: str, group: str, cause: str) -> None:
    print(f"No class-data archive was made: {cause}")
    for archive in archives_of(find_java(java_home), group).values():
        archive.note_failure()


if __name__ == "__main__":
    sys.exit(main())
