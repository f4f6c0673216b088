"""The process that makes class-data archives in the background; `background` starts it."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path

from firesteel.core.errors import FiresteelError, FleetError
from firesteel.core.machine import free_memory
from firesteel.spark.archive import GROUPS, archives_of
from firesteel.spark.java import find_java

DEADLINE = 300.0
"""Seconds that the making may take."""
_CLEANING = 30.0
"""Seconds that its end may take after that."""
_LEAST_MEMORY = 1 << 30


def _be_modest() -> None:
    """Run when nobody else wants to, and be the first to go when memory is short; so do all JVMs below."""
    os.nice(19)
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    except OSError:
        pass  # the kernel or a sandbox does not want that: nice it is


def _end_in_order(number: int, frame: object) -> None:
    """Signal handler: raise in the main thread, so that ``finally`` blocks run, for ``_CLEANING`` s at most."""
    for repeated in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(repeated, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
    signal.setitimer(signal.ITIMER_REAL, _CLEANING)
    raise SystemExit(f"ended by {signal.Signals(number).name}")


def _end_with_the_owner() -> None:
    while os.read(0, 1024):  # not sys.stdin: its lock would be in the way of the interpreter's end
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main(arguments: list[str] | None = None) -> int:
    """Make the archives of one group; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m firesteel.spark.archive_maker", description="Makes class-data archives."
    )
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

    expected_archives = archives_of(find_java(parsed.java_home), parsed.group)
    try:
        archives = train(parsed.java_home, [parsed.group], wait=False)
        if len(archives) < len(expected_archives) and not next(iter(expected_archives.values())).is_locked():
            raise FleetError("the JVM wrote none")
    except (FiresteelError, OSError) as error:
        _note_failure(parsed.java_home, parsed.group, str(error))
        return 1
    except SystemExit as ended:
        if ended.code == f"ended by {signal.SIGALRM.name}":
            _note_failure(parsed.java_home, parsed.group, f"not done within {DEADLINE:g} s")
        raise
    for archive in archives:
        print(archive.path)
    return 0


def _note_failure(java_home: str, group: str, cause: str) -> None:
    print(f"No class-data archive was made: {cause}")
    for archive in archives_of(find_java(java_home), group).values():
        archive.note_failure()


if __name__ == "__main__":
    sys.exit(main())
