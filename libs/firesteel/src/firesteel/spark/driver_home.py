"""Files of the Spark driver in the cluster's directory: who owns the fleet, and how to find the driver.

* ``resourcemanager.lock``: locked by the one process that has the fleet;
* ``driver.json``: how to find the driver (`DriverRecord`);
* ``driver-<n>/``: files of that driver: log, scratch files, and ``attached``, locked by the process attached to it;
* ``early-<n>/``: files of a driver whose ResourceManager is on standby. Its ``driver.json`` is in there, so that a
  driver without an owner can still be ended. When its ResourceManager leads, the directory stays where it is.
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
class LockedDriver:
    """A driver on whose ``attached`` we hold the lock."""

    jvm: HostedDriver
    lock: RecordLock
    record: DriverRecord
    is_early: bool = False
    """Whether its ResourceManager is still on standby: no other process can find the driver then."""


class DriverHome:
    """The cluster's directory, as the ResourceManager uses it.

    Args:
        directory: made if missing, of mode 0700.
        made_for: versions and settings that a driver depends on; a driver made for other ones is not taken over.
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
        status = self.directory.stat()
        if status.st_uid != os.geteuid():
            raise FleetError(f"The cluster's directory {self.directory} belongs to user {status.st_uid}.")
        if status.st_mode & 0o077:
            self.directory.chmod(0o700)

    def release(self) -> None:
        """Let another process have the fleet."""
        self._fence.release()

    def find(self) -> LockedDriver | None:
        """Find and lock the driver that a former ResourceManager has left; one that can't be taken over is killed."""
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
            return LockedDriver(jvm, lock, record)
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
    ) -> LockedDriver:
        """Start a new driver, after the files of former drivers were removed.

        Args:
            java: which one.
            environment: of it.
            orphan_timeout: see ``HostedDriver.start``.
            flags: more of the JVM's flags.
            early: start it for a ResourceManager on standby: it becomes the cluster's driver by ``adopt``, and other
                standbys may have drivers in the same directory.

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
            driver = LockedDriver(jvm, lock, record, early)
            self.save(driver, record)
        except OSError as error:
            text = f"The cluster's directory {self.directory} can't be used: {error.strerror or error}."
            raise FleetError(text) from error
        return driver

    def _remove_left(self, early: bool) -> None:
        """Remove directories of drivers that have ended.

        Args:
            early: leave all ``driver-*`` alone. Only the owner of the fleet knows that none of them runs.
        """
        for directory in self.directory.glob(f"{_EARLY}-*"):
            record = DriverRecord.read(directory)
            if record is not None and not HostedDriver(record.process, directory).is_running():
                shutil.rmtree(directory, ignore_errors=True)
        if not early:
            for directory in self.directory.glob("driver-*"):
                shutil.rmtree(directory, ignore_errors=True)

    def _unused_executor(self) -> int:
        former_driver = DriverRecord.read(self.directory)
        used = former_driver.next_executor if former_driver is not None else 1
        return max(used, math.ceil(time.time()) - _EPOCH)  # noqa: TID251 # makes an id

    def adopt(self, driver: LockedDriver) -> None:
        """Make a driver that was started early the driver of the cluster.

        Raises:
            OSError: the record can't be written.
        """
        record = replace(driver.record, next_executor=self._unused_executor())
        driver.is_early = False
        self.save(driver, record)

    def save(self, driver: LockedDriver, record: DriverRecord) -> None:
        """Write the record of a driver.

        Raises:
            OSError: it can't be written.
        """
        record.write(driver.jvm.directory if driver.is_early else self.directory)
        driver.record = record

    def new_executor(self, driver: LockedDriver) -> str:
        """An executor id that no driver of this cluster has used.

        The next id is on disk before this one is returned: a crash in between skips an id, and never uses one twice.

        Raises:
            OSError: the record can't be written.
        """
        number = driver.record.next_executor
        self.save(driver, replace(driver.record, next_executor=number + 1))
        return str(number)

    def forget(self, driver: LockedDriver, keep_record: bool) -> None:
        """Remove the files of a driver that has ended; its record still tells the next executor id."""
        driver.lock.release()
        if not keep_record and not driver.is_early:
            remove_record(self.directory)
        shutil.rmtree(driver.jvm.directory, ignore_errors=True)


def _differences(made_for: Mapping[str, Any], needed: Mapping[str, Any]) -> str:
    """What two drivers were made for, compared in words; values made from a secret are only named."""
    names = [name for name in (*needed, *made_for) if made_for.get(name) != needed.get(name)]
    return ", ".join(
        name if name == "secret" else f"{name} ({made_for.get(name)}, not {needed.get(name)})"
        for name in dict.fromkeys(names)
    )
