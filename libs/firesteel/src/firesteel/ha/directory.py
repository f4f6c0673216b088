"""High-availability services in a directory, with file locks.

Layout of ``<high-availability.storageDir>/<high-availability.cluster-id>`` (all of mode 0700)::

    leaders/<component>.lock    held by the leader's process for as long as it leads
            <component>.guard   held for the moment of a write or of a change of leaders: the epoch of the writer is
                                compared with that of the record, and nobody can change that before it has written
            <component>.json    epoch, address and token of the last leader, which others look at
    jobs/…                      see ``job_directory``; ``<firesteel.cluster.directory>/dispatcher`` by default
    checkpoints/<job id>/…      completed checkpoints and the counter of their ids

The kernel lets a lock go when its process dies, so the next leader has to wait for nothing. Hosts that share the
directory need a file system whose locks (flock) hold over all of them.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from firesteel.checkpoint.store import CompletedCheckpointStore, DirectoryCheckpointStore
from firesteel.config import Settings
from firesteel.config.recovery_options import HA_CLUSTER_ID, HA_STORAGE_DIRECTORY
from firesteel.core.errors import ConfigurationError, FencedError
from firesteel.ha.disk import Disk
from firesteel.ha.documents import DamagedEntryError, read_document, write_document
from firesteel.ha.fenced import FencedCheckpointStore
from firesteel.ha.job_directory import JobStore
from firesteel.ha.memory import MemoryServices
from firesteel.ha.retrieval import Attempts, ConfiguredLeaders, LeaderRetrieval, Listener, PolledWatches
from firesteel.ha.services import HighAvailabilityServices, Leader, Leadership, of_job

_LEADER: Final = "leader"
_JOB: Final = "job-"
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,200}")


class DirectoryServices(HighAvailabilityServices):
    """See ``HighAvailabilityServices``.

    Without ``high-availability.storageDir`` only the processes of one host see the directory: services are then looked
    for where settings say.

    Args:
        settings: of the cluster.
        cluster_directory: where the directory lies by default.
        disk: how files are written.
        shared: take ``high-availability.storageDir`` into account.

    Raises:
        ConfigurationError: there is no directory, or it can't be used.
    """

    def __init__(
        self,
        settings: Settings,
        cluster_directory: Path | None = None,
        disk: Disk | None = None,
        *,
        shared: bool = True,
    ) -> None:
        storage = settings.get(HA_STORAGE_DIRECTORY) if shared else None
        if storage is None and cluster_directory is None:
            raise ConfigurationError("high-availability.type: directory needs high-availability.storageDir")
        cluster = _checked(settings.get(HA_CLUSTER_ID).strip("/") or "default", HA_CLUSTER_ID.key)
        base = Path(storage).expanduser() if storage is not None else Path(cluster_directory or "") / "ha"
        self.directory, self._disk = base / cluster, disk or Disk()
        self._jobs = (
            self.directory / "jobs" if cluster_directory is None or storage else cluster_directory / "dispatcher"
        )
        self._leaders = self.directory / "leaders"
        self._held: list[_DirectoryLeadership] = []
        self.has_standbys = storage is not None
        self._configured: LeaderRetrieval | None = None if storage is not None else ConfiguredLeaders(settings)
        self._watches = PolledWatches(self.leader)
        try:
            self._disk.make_directory(self._leaders)
        except OSError as error:
            raise ConfigurationError(
                f"the directory {self.directory} (high-availability.storageDir) can't be used: "
                f"{error.strerror or error}"
            ) from error

    def campaign(self, component: str) -> Leadership | None:
        """See ``HighAvailabilityServices``."""
        while (handle := self._lock(component)) is not None:
            try:
                with self.guarded(component):
                    if self._is_lock_of(component, handle):
                        before = self._last(component) or Leader(0)
                        leader = Leader(1 + before.epoch, attempts=before.attempts)
                        self._write(component, leader)
                        leadership = _DirectoryLeadership(self, component, leader, handle)
                        self._held.append(leadership)
                        return leadership
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)  # it was removed between opening and locking
        return None

    def _lock(self, component: str) -> int | None:
        """The lock of a component, as long as the descriptor is open; None: somebody else has it."""
        handle = os.open(self._file(component, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        return handle

    def _is_lock_of(self, component: str, handle: int) -> bool:
        """Whether a descriptor is that of the lock that others look at."""
        try:
            return os.path.samestat(os.fstat(handle), os.stat(self._file(component, "lock")))
        except FileNotFoundError:
            return False

    def leader(self, component: str) -> Leader | None:
        """See ``HighAvailabilityServices``."""
        if self._configured is not None and not component.startswith(_JOB):
            return self._configured.leader(component)
        last = self._last(component)
        return last if last is not None and not self._is_released(component) else None

    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        """See ``HighAvailabilityServices``."""
        if self._configured is not None and not component.startswith(_JOB):
            return self._configured.watch(component, listener)
        return self._watches.add(component, listener)

    def depose(self, component: str) -> None:
        """See ``HighAvailabilityServices``. Who had the lock has one that nobody looks at any more; its epoch keeps it
        from writing."""
        with self.guarded(component):
            last = self._last(component)
            if last is not None:
                self._write(component, Leader(last.epoch + 1, attempts=last.attempts))
            self._file(component, "released").touch()
            self._file(component, "lock").unlink(missing_ok=True)

    @contextmanager
    def guarded(self, component: str) -> Iterator[None]:
        """Nobody else changes what belongs to a component meanwhile."""
        handle = os.open(self._file(component, "guard"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    @contextmanager
    def led(self, component: str, epoch: int) -> Iterator[None]:
        """A write by a leader.

        Raises:
            FencedError: it leads no more.
        """
        with self.guarded(component):
            self.check(component, epoch)
            yield

    def check(self, component: str, epoch: int) -> None:
        """Raises:
        FencedError: another one leads, or nobody.
        OSError: it can't be read for now who leads.
        """
        last = self._last(component)
        if last is None or last.epoch != epoch or self._is_released(component):
            raise FencedError(f"epoch {epoch} of {component} is over")

    def announce(self, component: str, leader: Leader) -> None:
        """The leader says where it is.

        Raises:
            FencedError: it leads no more.
        """
        with self.led(component, leader.epoch):
            last = self._last(component)
            self._write(component, replace(leader, attempts=last.attempts if last is not None else Attempts()))

    def note_attempts(self, component: str, epoch: int, attempts: Attempts) -> None:
        """See ``Leadership``."""
        with self.led(component, epoch):
            last = self._last(component)
            if last is not None and last.attempts != (noted := attempts.behind(last.attempts)):
                self._write(component, replace(last, attempts=noted))

    def job_store(self, leadership: Leadership) -> JobStore:
        """See ``HighAvailabilityServices``."""
        return JobStore(self._jobs, self._disk, lambda: self.led(leadership.component, leadership.epoch))

    def completed_checkpoints(self, job_id: str, leadership: Leadership) -> CompletedCheckpointStore:
        """See ``HighAvailabilityServices``."""
        store = DirectoryCheckpointStore(self._checkpoints_of(job_id))
        return FencedCheckpointStore(store, lambda: self.led(leadership.component, leadership.epoch))

    def remembers_job(self, job_id: str) -> bool:
        """See ``HighAvailabilityServices``."""
        return self._file(of_job(job_id), "json").exists() or self._checkpoints_of(job_id).exists()

    def forget_job(self, job_id: str) -> None:
        """See ``HighAvailabilityServices``."""
        shutil.rmtree(self._checkpoints_of(job_id), ignore_errors=True)
        for suffix in ("json", "released", "guard", "lock"):
            self._file(f"job-{job_id}", suffix).unlink(missing_ok=True)

    def close(self) -> None:
        """See ``HighAvailabilityServices``."""
        self._watches.close()
        for leadership in list(self._held):
            leadership.release()

    def released(self, leadership: _DirectoryLeadership) -> None:
        """A leadership is given back."""
        if leadership in self._held:
            self._held.remove(leadership)
        if not self._file(leadership.component, "json").exists():
            return  # it was forgotten
        with self.guarded(leadership.component):
            last = self._last(leadership.component)
            if last is not None and last.epoch == leadership.epoch:
                self._file(leadership.component, "released").touch()

    # -- inside

    def _checkpoints_of(self, job_id: str) -> Path:
        return self.directory / "checkpoints" / _checked(job_id, "a job's id")

    def _file(self, component: str, suffix: str) -> Path:
        return self._leaders / f"{_checked(component, 'a component')}.{suffix}"

    def _is_released(self, component: str) -> bool:
        return self._file(component, "released").exists()

    def _write(self, component: str, leader: Leader) -> None:
        write_document(self._disk, self._file(component, "json"), _LEADER, leader.to_plain())
        self._file(component, "released").unlink(missing_ok=True)

    def _last(self, component: str) -> Leader | None:
        path = self._file(component, "json")
        try:
            plain = read_document(path, _LEADER)
        except FileNotFoundError:
            return None
        except DamagedEntryError as error:
            raise ConfigurationError(
                f"{path} is damaged: {error}. Stop the cluster and remove the file; epochs then begin anew"
            ) from error
        where = str(plain["address"]), str(plain["token"])
        return Leader(int(plain["epoch"]), *where, Attempts.from_plain(plain.get("attempts", 0)))


class _DirectoryLeadership(Leadership):
    def __init__(self, services: DirectoryServices, component: str, leader: Leader, handle: int) -> None:
        self._services, self.component, self._handle = services, component, handle
        self.epoch, self.attempts = leader.epoch, leader.attempts

    def announce(self, address: str, token: str) -> None:
        self._services.announce(self.component, Leader(self.epoch, address, token))

    def note_attempts(self, attempts: Attempts) -> None:
        self._services.note_attempts(self.component, self.epoch, attempts)

    def check(self) -> None:
        if self._handle < 0:
            raise FencedError(f"epoch {self.epoch} of {self.component} was given back")
        self._services.check(self.component, self.epoch)

    def release(self) -> None:
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            try:
                self._services.released(self)
            finally:
                os.close(handle)


def _checked(name: str, what: str) -> str:
    if not _NAME.fullmatch(name) or name.startswith("."):
        raise ConfigurationError(f"{what} is made of letters, digits, '_', '-' and '.', not {name[:80]!r}")
    return name


def without_high_availability(settings: Settings, cluster_directory: Path | None = None) -> HighAvailabilityServices:
    """``high-availability.type: NONE``: services are where settings say, and no JobMaster follows one that is lost.

    Args:
        settings: of the cluster.
        cluster_directory: of a cluster that runs as processes: its Dispatcher still keeps jobs there, so that it can be
            started again while they run, and cleans up behind those whose JobMaster is lost. None: all in memory.
    """
    if cluster_directory is None:
        return MemoryServices(settings)
    return DirectoryServices(settings, cluster_directory, shared=False)
