"""High-availability services in a directory, with file locks.

Layout of ``<high-availability.storageDir>/<high-availability.cluster-id>`` (all of mode 0700)::

    marker                              tells the directory, where several hosts share it, from an empty mount point
    leaders/<component>.lock            held by the leader's process for as long as it leads
            <component>.held-<epoch>/   the fence: whatever the leader of this epoch writes is drafted in here
            <component>.free-<epoch>/   the same folder when nobody leads: its name says who does
            job-<job id>.end            how a job has ended, from its JobMaster
            <component>.json            epoch, address and token of the last leader, which others look at
    jobs/…                              see ``job_directory``; ``<firesteel.cluster.directory>/dispatcher`` by default
    checkpoints/<job id>/…              completed checkpoints and the counter of their ids

The kernel lets a lock go when its process dies, so the next leader has to wait for nothing. Hosts that share the
directory need a file system whose locks (flock) hold over all of them.

A write is a rename out of the fence, and a removal one into it; a change of leaders renames the fence. So each write
comes before the change, or finds its folder gone and is refused, wherever its process stood still: nobody waits for a
leader that is frozen, and nothing is held while somebody writes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from typing_extensions import override

from firesteel.checkpoint.store import CompletedCheckpointStore, DirectoryCheckpointStore
from firesteel.config import Settings
from firesteel.config.recovery_options import HA_CLUSTER_ID, HA_STORAGE_DIRECTORY
from firesteel.core.errors import ConfigurationError, FencedError
from firesteel.core.files import replace_file
from firesteel.ha.cells import AwayError
from firesteel.ha.disk import Disk
from firesteel.ha.documents import DamagedEntryError, UnknownFormatError, encode, read_document, write_document
from firesteel.ha.job_directory import DirectoryJobStore
from firesteel.ha.jobs import JobStore, RecordedEnd
from firesteel.ha.memory import MemoryServices
from firesteel.ha.retrieval import Attempts, ConfiguredLeaders, LeaderRetrieval, Listener, PolledWatches
from firesteel.ha.services import HighAvailabilityServices, Leader, Leadership, of_job

_LEADER: Final = "leader"
_END: Final = "end"
_MARKER: Final = "marker"
"""Of the shared directory, beside ``leaders``."""
_MEMORY: Final = "ha-storage"
"""In the cluster's directory of each host: which shared directory it has seen marked."""
_JOB: Final = "job-"
_HELD, _FREE = "held", "free"
"""What the fence of a component is called while somebody leads it, and while nobody does."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,200}")


class StorageAwayError(AwayError):
    """The shared directory is not there. It is worth waiting for it."""


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
        self._joins = False
        self.has_standbys = storage is not None
        self._configured: LeaderRetrieval | None = None if storage is not None else ConfiguredLeaders(settings)
        self._watches = PolledWatches(self.leader)
        self._memory = None if storage is None or cluster_directory is None else cluster_directory / _MEMORY
        try:
            if not self._was_marked():
                self._disk.make_directory(self._leaders)
        except OSError as error:
            raise ConfigurationError(
                f"the directory {self.directory} (high-availability.storageDir) can't be used: "
                f"{error.strerror or error}"
            ) from error

    def campaign(self, component: str) -> Leadership | None:
        """See ``HighAvailabilityServices``.

        Raises:
            StorageAwayError: the shared directory is not there, as where its file system is not mounted.
        """
        if self.has_standbys:
            self._find_storage()
        while (handle := self._lock(component)) is not None:
            try:
                if self._is_lock_of(component, handle) and (leader := self._begin(component, handle)) is not None:
                    leadership = _DirectoryLeadership(self, component, leader, handle)
                    self._held.append(leadership)
                    return leadership
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)  # it was removed, or the fence moved, between looking and taking
        return None

    @override
    def join(self) -> None:
        self._joins = True

    def _find_storage(self) -> None:
        """See whether the shared directory is there: its marker tells it from an empty mount point.

        It is marked by the first coordinator that leads. Each host remembers in its own directory that it has seen the
        marker; a process that joins a cluster expects it in any case.

        Raises:
            StorageAwayError: it is away.
        """
        marker = self.directory / _MARKER
        if not marker.exists():
            if self._joins or self._was_marked():
                raise StorageAwayError(
                    f"{self.directory} does not hold the marker of this cluster ({_MARKER}): is the file system of "
                    f"{HA_STORAGE_DIRECTORY.key} mounted on this host, and is it the same place as before?"
                )
            self._disk.make_directory(self._leaders)
            replace_file(marker, encode(_MARKER, {}))  # under a name of its own: coordinators begin side by side
        if self._memory is not None and not self._was_marked():
            self._disk.make_directory(self._memory.parent)
            replace_file(self._memory, encode(_MARKER, {"directory": str(self.directory)}))
        self._disk.make_directory(self._leaders)

    def _was_marked(self) -> bool:
        """Whether this host has seen the marker of the shared directory before."""
        if self._memory is None:
            return False
        try:
            return read_document(self._memory, _MARKER).get("directory") == str(self.directory)
        except (FileNotFoundError, NotADirectoryError, DamagedEntryError):
            return False

    def _begin(self, component: str, handle: int) -> Leader | None:
        """Take the fence, and say so; None: somebody else was faster, or the lock is not that of the component."""
        before, fence = self._last(component), self._fence(component)
        epoch = 1 + max(before.epoch if before is not None else 0, fence[0] if fence is not None else 0)
        held = self._folder(component, _HELD, epoch)
        if not self._move(component, fence, held):
            return None
        if not self._is_lock_of(component, handle):  # deposed meanwhile, by somebody who saw the fence before
            self._let_go(component, epoch)
            return None
        before = self._last(component)  # again: the leader before may have written until its fence was taken
        leader = Leader(epoch, attempts=before.attempts if before is not None else Attempts())
        for draft in held.iterdir():
            self._disk.remove_tree(draft)
        self._write(component, leader, held)
        return leader

    def _move(self, component: str, fence: tuple[int, Path] | None, to: Path) -> bool:
        """Give the fence another name; whether it was this call that did."""
        try:
            if fence is not None:
                os.rename(fence[1], to)
            else:
                to.mkdir(mode=0o700)
        except (FileNotFoundError, FileExistsError):
            return False
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            return False
        self._disk.sync(self._leaders)
        found = self._fence(component)
        if fence is None and found is not None and found[1] != to:  # the first of two that begin at the same time
            to.rmdir()
            return False
        return True

    def _fence(self, component: str) -> tuple[int, Path] | None:
        """Epoch and folder of the fence as it is called now."""
        name = re.compile(rf"{re.escape(component)}\.(?:{_HELD}|{_FREE})-(\d+)")
        found = [(int(match[1]), self._leaders / entry) for entry in os.listdir(self._leaders)
                 if (match := name.fullmatch(entry)) is not None]  # fmt: skip
        return max(found, default=None)

    def _folder(self, component: str, state: str, epoch: int) -> Path:
        return self._file(component, f"{state}-{epoch}")

    def _let_go(self, component: str, epoch: int) -> None:
        """Nobody leads any more, if it was this epoch."""
        with suppress(FileNotFoundError):
            os.rename(self._folder(component, _HELD, epoch), self._folder(component, _FREE, epoch))
            self._disk.sync(self._leaders)

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

    @override
    def leader(self, component: str) -> Leader | None:
        if self._configured is not None and not component.startswith(_JOB):
            return self._configured.leader(component)
        last = self._last(component)
        return last if last is not None and self._folder(component, _HELD, last.epoch).is_dir() else None

    @override
    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        if self._configured is not None and not component.startswith(_JOB):
            return self._configured.watch(component, listener)
        return self._watches.add(component, listener)

    def depose(self, component: str) -> None:
        """See ``HighAvailabilityServices``. Who had the lock has one that nobody looks at any more; its fence is gone,
        which keeps it from writing."""
        self._last(component)  # a record that can't be read is said before anything changes
        while (fence := self._fence(component)) is not None and f".{_HELD}-" in fence[1].name:
            self._let_go(component, fence[0])
        self._file(component, "lock").unlink(missing_ok=True)

    @contextmanager
    def led(self, component: str, epoch: int) -> Iterator[Path]:
        """A write by a leader: gives the folder for its drafts.

        Raises:
            FencedError: it leads no more; what was renamed before it did not is written.
        """
        self.check(component, epoch)
        held = self._folder(component, _HELD, epoch)
        try:
            yield held
        except Exception as error:
            if not held.is_dir():
                raise FencedError(f"epoch {epoch} of {component} has ended") from error
            raise

    def check(self, component: str, epoch: int) -> None:
        """Raises:
        FencedError: another one leads, or nobody.
        OSError: it can't be read for now who leads.
        """
        try:
            os.stat(self._folder(component, _HELD, epoch))
        except FileNotFoundError:
            raise FencedError(f"epoch {epoch} of {component} is over") from None

    def announce(self, component: str, leader: Leader) -> None:
        """The leader says where it is.

        Raises:
            FencedError: it leads no more.
        """
        with self.led(component, leader.epoch) as held:
            last = self._last(component)
            self._write(component, replace(leader, attempts=last.attempts if last is not None else Attempts()), held)

    def note_attempts(self, component: str, epoch: int, attempts: Attempts) -> None:
        """See ``Leadership``."""
        with self.led(component, epoch) as held:
            last = self._last(component)
            if last is not None and last.attempts != (noted := attempts.behind(last.attempts)):
                self._write(component, replace(last, attempts=noted), held)

    @override
    def job_store(self, leadership: Leadership) -> JobStore:
        return DirectoryJobStore(self._jobs, self._disk, lambda: self.led(leadership.component, leadership.epoch))

    @override
    def completed_checkpoints(self, job_id: str, leadership: Leadership) -> CompletedCheckpointStore:
        store = DirectoryCheckpointStore(
            self._checkpoints_of(job_id), lambda: self.led(leadership.component, leadership.epoch)
        )
        store.open()
        return store

    @override
    def record_end(self, leadership: Leadership, end: RecordedEnd) -> None:
        with self.led(leadership.component, leadership.epoch) as held:
            write_document(self._disk, self._file(leadership.component, _END), _END, end.to_plain(), held)

    @override
    def recorded_end(self, job_id: str) -> RecordedEnd | None:
        try:
            return RecordedEnd.from_plain(read_document(self._file(of_job(job_id), _END), _END))
        except FileNotFoundError:
            return None

    @override
    def remembers_job(self, job_id: str) -> bool:
        return self._file(of_job(job_id), "json").exists() or self._checkpoints_of(job_id).exists()

    @override
    def forget_job(self, job_id: str) -> None:
        shutil.rmtree(self._checkpoints_of(job_id), ignore_errors=True)
        component = of_job(job_id)
        while (fence := self._fence(component)) is not None:
            shutil.rmtree(fence[1], ignore_errors=True)
            if fence[1].exists():
                break  # what is left holds nothing that anybody reads
        for suffix in ("lock", _END, "json"):  # the record last: until then the job is remembered
            self._file(component, suffix).unlink(missing_ok=True)

    @override
    def close(self) -> None:
        self._watches.close()
        for leadership in list(self._held):
            leadership.release()

    def released(self, leadership: _DirectoryLeadership) -> None:
        """A leadership is given back."""
        if leadership in self._held:
            self._held.remove(leadership)
        self._let_go(leadership.component, leadership.epoch)

    # -- inside

    def _checkpoints_of(self, job_id: str) -> Path:
        return self.directory / "checkpoints" / _checked(job_id, "a job's id")

    def _file(self, component: str, suffix: str) -> Path:
        return self._leaders / f"{_checked(component, 'a component')}.{suffix}"

    def _write(self, component: str, leader: Leader, held: Path) -> None:
        write_document(self._disk, self._file(component, "json"), _LEADER, leader.to_plain(), held)

    def _last(self, component: str) -> Leader | None:
        path = self._file(component, "json")
        try:
            plain = read_document(path, _LEADER)
        except FileNotFoundError:
            return None
        except UnknownFormatError as error:
            raise ConfigurationError(f"another version of Firesteel has written {path}: {error}") from error
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
