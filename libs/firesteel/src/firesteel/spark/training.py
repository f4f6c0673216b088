"""Make the class-data archives for this Java and Spark: ``firesteel warm-up``.

Each fleet is started once with JVMs that record, runs a slot and a small bounded stage, and ends in order; then the
JVMs write the archives. Takes about a minute on two cores, once, and about 100 MB for each of three archives in the
user's cache directory.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from firesteel.core.errors import FiresteelError, FleetError
from firesteel.core.run_directory import RunDirectory
from firesteel.protocol.fleet import SlotLaunch
from firesteel.spark.archive import GROUPS, Archive, Role, archives_of
from firesteel.spark.embedded import EmbeddedFleet
from firesteel.spark.executor import ExecutorProcess
from firesteel.spark.hosted import HostedFleet
from firesteel.spark.java import find_java
from firesteel.spark.slot_task import probe

_WAIT_SECONDS = 180.0
_WRITE_SECONDS = 120.0
_ORPHAN_SECONDS = 2.0
"""After which the driver ends when this process was killed."""


def train(java_home: str | None = None, groups: Iterable[str] = tuple(GROUPS), *, wait: bool = True) -> list[Archive]:
    """Make the archives that are not there already.

    Args:
        java_home: the Java to use; by default `firesteel.spark.java.find_java` looks for one.
        groups: which (`firesteel.spark.archive.GROUPS`).
        wait: for another process that is making them, instead of leaving them to it.

    Returns:
        All archives; none if this Java can't have one (a version before 25 without the base archive of its JDK).

    Raises:
        FleetError: a fleet could not be started.
        OSError: the cache directory can't be written.
    """
    java = find_java(java_home)
    archives: list[Archive] = []
    for group in groups:
        group_archives = archives_of(java, group)
        # the first archive's lock stands for the whole group: its roles are recorded together, by one fleet
        for first in list(group_archives.values())[:1]:
            with first.lock(wait) as ours:
                missing = {role: archive for role, archive in group_archives.items() if not archive.is_there()}
                if ours and missing:
                    with _unfinished(missing) as files:
                        (_train_embedded if group == "embedded" else _train_hosted)(java_home, missing, files)
        archives += [archive for archive in group_archives.values() if archive.is_there()]
    return archives


@contextmanager
def _unfinished(archives: Mapping[Role, Archive]) -> Iterator[dict[Role, Path]]:
    """Temporary files for the JVMs to write; each that was written replaces its archive atomically at the end."""
    files: dict[Role, Path] = {}
    for role, archive in archives.items():
        for abandoned_file in archive.path.parent.glob(f".*-{archive.path.name}"):
            abandoned_file.unlink(missing_ok=True)  # its process was killed: we hold the lock, so nobody writes it now
        files[role] = archive.path.with_name(f".{secrets.token_hex(4)}-{archive.path.name}")
    try:
        yield files
        for role, archive in archives.items():
            if files[role].exists():
                files[role].chmod(0o600)
                os.replace(files[role], archive.path)
                archive.note_success()
    finally:
        for file in files.values():
            file.unlink(missing_ok=True)


def _train_embedded(java_home: str | None, archives: Mapping[Role, Archive], files: Mapping[Role, Path]) -> None:
    run_directory = RunDirectory.create()
    fleet = EmbeddedFleet(
        slots=1,
        spare_cores=1,
        slot_main=probe,
        run_directory=run_directory,
        java_home=java_home,
        recording=archives["embedded"].flags_to_make(files["embedded"]),
    )
    try:
        fleet.start()
        _exercise(fleet, "")
        fleet.stop(grace=_WRITE_SECONDS)
    finally:
        fleet.stop()
        run_directory.remove()


def _train_hosted(java_home: str | None, archives: Mapping[Role, Archive], files: Mapping[Role, Path]) -> None:
    run_directory, secret = RunDirectory.create(), secrets.token_hex(32)
    flags = {role: archives[role].flags_to_make(files[role]) if role in archives else () for role in GROUPS["hosted"]}
    fleet = HostedFleet(
        slot_main=probe,
        cluster_directory=run_directory.subdir("cluster"),
        secret=secret,
        java_home=java_home,
        archive=False,
        orphan_timeout=_ORPHAN_SECONDS,
        recording=flags["driver"],
    )
    executor: ExecutorProcess | None = None
    try:
        fleet.start()
        spec = fleet.executor_for("training", 2)
        assert spec is not None
        executor = ExecutorProcess(
            spec,
            secret=secret,
            run_directory=run_directory,
            java_home=java_home,
            archive=False,
            recording=flags["executor"],
        )
        attached = executor
        if not _until(lambda: bool(fleet.attached_executors()) or not attached.is_running(), _WAIT_SECONDS):
            raise FleetError(f"The executor did not reach the driver:\n{executor.log_tail()}")
        _exercise(fleet, executor.executor_id)
        fleet.stop(grace=_WRITE_SECONDS)
        _until(lambda: not attached.is_running(), _WRITE_SECONDS)
    finally:
        fleet.stop()
        if executor is not None:
            executor.stop()
        run_directory.remove()


def _exercise(fleet: EmbeddedFleet | HostedFleet, executor_id: str) -> None:
    """Have the JVMs load what an ordinary run needs."""
    fleet.start_slot(SlotLaunch("training", "", executor_id, ""))
    if not _until(lambda: bool(fleet.ended_slots()), _WAIT_SECONDS):
        raise FleetError("The slot of the training run did not end.")
    fleet.exercise()


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def main() -> int:
    started = time.monotonic()
    try:
        archives = train()
    except (FiresteelError, OSError) as error:
        print(f"No class-data archive was made: {error}", file=sys.stderr)
        return 1
    if not archives:
        print("This Java can't have class-data archives; starts work without, about two seconds slower.")
        return 0
    for archive in archives:
        print(f"{archive.path}: {archive.path.stat().st_size / 1e6:.0f} MB")
    print(f"{time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
