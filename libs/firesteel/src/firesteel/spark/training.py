"""Make the class-data archive for this Java and Spark: ``python -m firesteel.spark.training``.

A fleet is started once with a recording JVM, runs a slot and a small bounded stage, and ends in order; then the JVM
writes the archive. Takes 15 to 25 s on two cores, once, and about 100 MB in the user's cache directory.
"""

from __future__ import annotations

import os
import secrets
import sys
import time

from firesteel.core.errors import FiresteelError
from firesteel.core.run_directory import RunDirectory
from firesteel.protocol.fleet import SlotLaunch
from firesteel.spark.archive import Archive, archive_for
from firesteel.spark.embedded import EmbeddedFleet
from firesteel.spark.java import find_java
from firesteel.spark.slot_task import probe

_SLOT_SECONDS = 60.0
_WRITE_SECONDS = 120.0


def train(java_home: str | None = None) -> Archive | None:
    """Make the archive, unless it is there already.

    Returns:
        The archive, or None if this Java can't have one (a version before 25 without the base archive of its JDK).

    Raises:
        FleetError: the fleet could not be started.
        OSError: the cache directory can't be written.
    """
    java = find_java(java_home)
    archive = archive_for(java, "embedded")
    if archive is None or archive.is_there():
        return archive
    archive.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = archive.path.with_name(f".{secrets.token_hex(4)}-{archive.path.name}")
    run_directory = RunDirectory.create()
    fleet = EmbeddedFleet(
        slots=1,
        spare_cores=1,
        slot_main=probe,
        run_directory=run_directory,
        java_home=java_home,
        recording=archive.flags_to_make(unfinished),
    )
    try:
        fleet.start()
        _exercise(fleet)
        fleet.stop(grace=_WRITE_SECONDS)
        if not unfinished.exists():
            return None
        unfinished.chmod(0o600)
        os.replace(unfinished, archive.path)
    finally:
        fleet.stop()
        unfinished.unlink(missing_ok=True)
        run_directory.remove()
    return archive


def _exercise(fleet: EmbeddedFleet) -> None:
    """Have the JVM load what an ordinary run needs."""
    fleet.start_slot(SlotLaunch("training", "", "", ""))
    deadline = time.monotonic() + _SLOT_SECONDS
    while not fleet.ended_slots() and time.monotonic() < deadline:
        time.sleep(0.05)
    fleet.exercise()


def main() -> int:
    """The command."""
    started = time.monotonic()
    try:
        archive = train()
    except (FiresteelError, OSError) as error:
        print(f"No class-data archive was made: {error}", file=sys.stderr)
        return 1
    if archive is None:
        print("This Java can't have a class-data archive; starts work without, about two seconds slower.")
    else:
        size = archive.path.stat().st_size / 1e6
        print(f"{archive.path}: {size:.0f} MB ({time.monotonic() - started:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
