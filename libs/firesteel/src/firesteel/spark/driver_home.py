"""The cluster's directory, as far as the driver is concerned: who has the fleet, which driver there is, its files.

* ``resourcemanager.lock``: locked by the one process that has the fleet;
* ``driver.json``: how to find the driver (`DriverRecord`);
* ``driver-<n>/``: of that driver; its log, scratch files, and ``attached``, on which whoever is attached holds a lock;
* ``early-<n>/``: the same of a driver whose ResourceManager stands by; its ``driver.json`` is in there, for those who
  end what is left alone. Once it leads, it is the driver of the cluster, and stays where it is.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from firesteel.core.errors import FleetError
from firesteel.core.secret import new_salt
from firesteel.spark.driver_record import DriverRecord, remove_record
from firesteel.spark.hosted_driver import ATTACHED, HostedDriver
from firesteel.spark.java import Java
from firesteel.spark.record_lock import RecordLock

logger = logging.getLogger(__name__)

_EARLY = "early"
_EPOCH = 1_735_689_600
"""2025-01-01. A driver's first executor id is the number of seconds since then, so that no id is used twice even when
the cluster's directory was lost; Spark wants ids below 2^31."""


@dataclass
class HeldDriver:
    """A driver on whose ``attached`` we hold the lock."""

    jvm: HostedDriver
    lock: RecordLock
    record: DriverRecord
    is_early: bool = False
    """Its ResourceManager stands by: nobody can find it."""


class DriverHome:
    """One cluster's directory.

    Args:
        directory: made if missing, of mode 0700.
        made_for: versions and settings on which a driver depends; one that was made for others is not taken over.
    """

    def __init__(self, directory: Path, made_for: Mapping[str, Any]) -> None:
        self.directory, self._made_for = directory, dict(made_for)
        self._fence = RecordLock(directory / "resourcemanager.lock")

    def claim(self) -> None:
        """Become the one process that has the fleet.

        Raises:
            FleetError: another one is, or the directory can't be used.
        """
        try:
            self._make_directory()
            ours = self._fence.acquire()
        except OSError as error:
            text = f"The cluster's directory {self.directory} can't be used: {error.strerror or error}."
            raise FleetError(text) from error
        if not ours:
            raise FleetError(
                f"The cluster's directory {self.directory} belongs to a ResourceManager that runs already "
                f"({self._fence.holder()}): stop that one first, or give this one a directory of its own "
                "(firesteel.cluster.directory)."
            )

    def _make_directory(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self.directory.stat()
        if found.st_uid != os.geteuid():
            raise FleetError(f"The cluster's directory {self.directory} belongs to user {found.st_uid}.")
        if found.st_mode & 0o077:
            self.directory.chmod(0o700)

    def release(self) -> None:
        """Let another process have the fleet."""
        self._fence.release()

    def find(self) -> HeldDriver | None:
        """The driver that a former ResourceManager has left; one that can't be taken over is killed."""
        record = DriverRecord.read(self.directory)
        if record is None:
            return None
        jvm = HostedDriver(record.process, Path(record.directory))
        if not jvm.is_running():
            logger.info("the driver of the ResourceManager before (pid %d) has ended", record.pid)
            return None
        lock = RecordLock(jvm.directory / ATTACHED)
        if not record.is_complete():
            problem = "its start did not get to the end"
        elif record.made_for != self._made_for:
            problem = f"it was made with another {_differences(record.made_for, self._made_for)}"
        elif not jvm.directory.is_dir() or not lock.acquire():
            problem = "it is ending"
        else:
            return HeldDriver(jvm, lock, record)
        logger.warning("the driver with pid %d can't be taken over: %s; its slots go on", record.pid, problem)
        jvm.end(grace=0.0)
        return None

    def has_driver(self) -> bool:
        """Whether the driver that a former ResourceManager has left runs."""
        record = DriverRecord.read(self.directory)
        return record is not None and HostedDriver(record.process, Path(record.directory)).is_running()

    def launch(
        self,
        java: Java,
        environment: Mapping[str, str],
        orphan_timeout: float,
        flags: tuple[str, ...],
        *,
        early: bool = False,
    ) -> HeldDriver:
        """Start a new driver; what is left of those before is removed.

        Args:
            java: which one.
            environment: of it.
            orphan_timeout: see ``HostedDriver.start``.
            flags: more of the JVM's flags.
            early: it is not yet that of the cluster (``adopt``), and others may have theirs here.

        Raises:
            FleetError: it can't be started.
        """
        directory = self.directory / f"{_EARLY if early else 'driver'}-{secrets.token_hex(4)}"
        try:
            self._make_directory()
            self._remove_left(early)
            directory.mkdir(mode=0o700)
            lock = RecordLock(directory / ATTACHED)
            lock.acquire()
            try:
                jvm = HostedDriver.start(java, directory, environment, orphan_timeout, flags)
            except FleetError:
                lock.release()
                raise
            record = DriverRecord(
                jvm.identity,
                str(directory),
                self._made_for,
                spark_salt=new_salt(),
                next_executor=self._unused_executor(),
            )
            held = HeldDriver(jvm, lock, record, early)
            self.save(held, record)
        except OSError as error:
            text = f"The cluster's directory {self.directory} can't be used: {error.strerror or error}."
            raise FleetError(text) from error
        return held

    def _remove_left(self, early: bool) -> None:
        """Of drivers that have ended; whoever starts that of the cluster knows that there is no other one."""
        for left in self.directory.glob(f"{_EARLY}-*"):
            record = DriverRecord.read(left)
            if record is not None and not HostedDriver(record.process, left).is_running():
                shutil.rmtree(left, ignore_errors=True)
        if not early:
            for left in self.directory.glob("driver-*"):
                shutil.rmtree(left, ignore_errors=True)

    def _unused_executor(self) -> int:
        before = DriverRecord.read(self.directory)
        used = before.next_executor if before is not None else 1
        return max(used, math.ceil(time.time()) - _EPOCH)  # noqa: TID251 # makes an id

    def adopt(self, held: HeldDriver) -> None:
        """Make one that was started early that of the cluster.

        Raises:
            OSError: it can't be written down.
        """
        record = replace(held.record, next_executor=self._unused_executor())
        held.is_early = False
        self.save(held, record)

    def save(self, held: HeldDriver, record: DriverRecord) -> None:
        """Write down what is known of a driver now.

        Raises:
            OSError: that did not work.
        """
        record.write(held.jvm.directory if held.is_early else self.directory)
        held.record = record

    def new_executor(self, held: HeldDriver) -> str:
        """An executor id that no driver of this cluster has used.

        Raises:
            OSError: it can't be written down.
        """
        number = held.record.next_executor
        self.save(held, replace(held.record, next_executor=number + 1))
        return str(number)

    def forget(self, held: HeldDriver, keep_record: bool) -> None:
        """Remove the files of a driver that has ended; its record still tells the next executor id."""
        held.lock.release()
        if not keep_record and not held.is_early:
            remove_record(self.directory)
        shutil.rmtree(held.jvm.directory, ignore_errors=True)


def _differences(made_for: Mapping[str, Any], needed: Mapping[str, Any]) -> str:
    """In words; what is made from a secret is only named."""
    names = [name for name in (*needed, *made_for) if made_for.get(name) != needed.get(name)]
    return ", ".join(
        name if name == "secret" else f"{name} ({made_for.get(name)}, not {needed.get(name)})"
        for name in dict.fromkeys(names)
    )
