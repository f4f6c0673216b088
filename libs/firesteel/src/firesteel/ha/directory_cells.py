"""Cells in a directory that one host or several see, with file locks.

Layout of the directory (all of mode 0700)::

    marker                              tells the directory, where several hosts share it, from an empty mount point
    leaders/<component>.lock            locked by the leader's process for as long as it leads
            <component>.held-<epoch>/   the fence: the leader of this epoch drafts all that it writes in here
            <component>.free-<epoch>/   the same folder while nobody leads: its name says so
            <component>.json            epoch, address and token of the last leader, for others to read
    cells/<component>/<revision>/records    all records of a cell; the largest revision counts

The kernel releases a lock when its process dies, so the next leader need not wait for anything. Hosts that share the
directory need a file system whose locks (flock) hold across all of them.

A change of a cell writes all its records anew, as the next revision: a folder that is drafted in the fence and renamed
to its place. That one rename is the change, and three things follow from it:

* Several records change together or not at all, even if the power fails.
* A change of leaders renames the fence. So a change by a former leader comes before that, or finds its draft gone and
  is refused, wherever its process stood still: nobody waits for a frozen leader, and nothing is locked during a write.
* No rename replaces a folder that is not empty. So of two changes based on the same revision the second one is refused,
  and a call that hung can't undo later changes.

A cell without a revision is as an earlier version of Firesteel left it (``earlier_directory``). Its next leader writes
those records as its first revision.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from firesteel.config.recovery_options import HA_STORAGE_DIRECTORY
from firesteel.core.errors import ConfigurationError, FencedError
from firesteel.core.files import replace_file
from firesteel.ha.cells import AwayError, Cells, Change, ChangedError, Put, Record, RemoveRecord, UnsureError, checked
from firesteel.ha.disk import Disk
from firesteel.ha.documents import DamagedEntryError, UnknownFormatError, decode, encode, read_document, write_document
from firesteel.ha.earlier_directory import EarlierDirectory
from firesteel.ha.retrieval import Leader, Listener, PolledWatches

_LEADER: Final = "leader"
LEADER_FORMAT: Final = 2
"""Format of ``<component>.json``. Version 1 had records in other files, and does not lead where it meets this one."""
_MARKER: Final = "marker"
"""Name of the marker in the shared directory, beside ``leaders``."""
_CELL: Final = "cell"
_RECORDS: Final = "records"
_HELD, _FREE = "held", "free"
"""States in the name of a component's fence: somebody leads it, or nobody does."""
_SPARE: Final = "spare-"
"""Prefix of the folder of a former revision, in the fence."""
_LOST_LINE: Final = b"?"
"""Replaces the line of a record that was cut off: it is no value of any kind of record."""


class StorageAwayError(AwayError):
    """The shared directory is away. Waiting for it is worthwhile."""


class DamagedCellError(OSError):
    """The records of a cell are damaged as a whole; whoever needs them waits until they are restored from a copy."""


@dataclass(frozen=True)
class _Revision:
    """The records of a cell at one revision.

    Attributes:
        number: of the revision; 0 = version 2 of this layout has not written anything yet.
        lines: by record: its version, and its line in the file.
    """

    number: int
    lines: dict[str, tuple[int, bytes]]


class DirectoryCells(Cells):
    """Cells in a directory; the head of this module has its layout.

    Args:
        directory: private to the cluster.
        disk: writes files.
        jobs: directory in which an earlier version stored jobs.
        shared: several hosts share the directory, which may be away.
        memory: a file of this host that remembers whether the marker of the shared directory was ever seen.

    Raises:
        ConfigurationError: the directory can't be used.
    """

    def __init__(
        self, directory: Path, disk: Disk, jobs: Path, *, shared: bool = False, memory: Path | None = None
    ) -> None:
        self.directory, self._disk, self._shared, self._memory = directory, disk, shared, memory
        self._leaders, self._cells = directory / "leaders", directory / "cells"
        self._earlier = EarlierDirectory(directory, jobs)
        self._locks: dict[tuple[str, int], int] = {}
        """Component and epoch -> descriptor of the lock that this object holds."""
        self._unsynced: set[str] = set()
        """Components whose newest revision may not survive a loss of power yet."""
        self._last_read: dict[str, tuple[tuple[int, ...], _Revision]] = {}
        self._joins = False
        self._watches = PolledWatches(self.leader)
        try:
            if not self._was_marked():
                self._disk.make_directory(self._leaders)
        except OSError as error:
            raise ConfigurationError(
                f"the directory {directory} (high-availability.storageDir) can't be used: {error.strerror or error}"
            ) from error

    # -- who leads

    @override
    def campaign(self, component: str) -> int | None:
        if self._shared:
            self._find_storage()
        while (handle := self._lock(component)) is not None:
            try:
                if self._is_lock_of(component, handle) and (epoch := self._begin(component, handle)) is not None:
                    self._locks[component, epoch] = handle
                    return epoch
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)  # the lock was removed, or the fence moved, while it was taken
        return None

    def join(self) -> None:
        """Note that this process belongs to a cluster that has leaders: its directory has a marker, or is away."""
        self._joins = True

    def _find_storage(self) -> None:
        """Check that the shared directory is there: its marker tells it from an empty mount point.

        The first coordinator that leads writes the marker. Each host remembers in its own directory that it has seen
        it; a process that joins a cluster expects it in any case.

        Raises:
            StorageAwayError: the directory is away.
        """
        marker = self.directory / _MARKER
        # First this host's memory: a coordinator that begins at the same time writes the marker, then the memory.
        expects_marker = self._joins or self._was_marked()
        if not marker.exists():
            if expects_marker:
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

    def _begin(self, component: str, handle: int) -> int | None:
        """Take the fence for a new epoch; None = another process was faster, or the lock is not the current one."""
        last, fence = self._last(component), self._fence(component)
        epoch = 1 + max(last.epoch if last is not None else 0, fence[0] if fence is not None else 0)
        fence_folder = self._folder(component, _HELD, epoch)
        # The rename decides who leads: of two processes that saw the same fence one finds it gone.
        if not self._move(component, fence, fence_folder):
            return None
        if not self._is_lock_of(component, handle):  # deposed meanwhile, by a process that saw the former fence
            self._let_go(component, epoch)
            return None
        for draft in fence_folder.iterdir():  # of the former leader, which can't write any more
            self._disk.remove_tree(draft)
        self._take_over(component, fence_folder)
        self._write_leader(component, Leader(epoch), fence_folder)
        return epoch

    def _take_over(self, component: str, fence_folder: Path) -> None:
        """Make the records of the former leader safe, whichever version of Firesteel it was.

        Raises:
            ConfigurationError: this version can't read them.
            OSError: they can't be made safe for now.
        """
        try:
            revision = self._revision(component)
            if revision.number:
                self._unsynced.add(component)  # that leader may have died between writing and syncing
            elif revision.lines:  # at once: an earlier version stored some of them in the file of the leader
                self._write(component, fence_folder, _Revision(1, revision.lines))
        except UnknownFormatError as error:
            raise ConfigurationError(f"another version of Firesteel has written {error}") from error
        except ChangedError as error:
            raise UnsureError(str(error)) from error

    def _move(self, component: str, fence: tuple[int, Path] | None, to: Path) -> bool:
        """Rename the fence; False = another process did, or it was taken meanwhile."""
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
        newest = self._fence(component)
        if fence is None and newest is not None and newest[1] != to:  # two processes created it at the same time
            to.rmdir()
            return False
        return True

    def _fence(self, component: str) -> tuple[int, Path] | None:
        """Epoch and folder of the fence under its current name."""
        name = re.compile(rf"{re.escape(component)}\.(?:{_HELD}|{_FREE})-(\d+)")
        fences = [(int(match[1]), self._leaders / entry) for entry in os.listdir(self._leaders)
                  if (match := name.fullmatch(entry)) is not None]  # fmt: skip
        return max(fences, default=None)

    def _folder(self, component: str, state: str, epoch: int) -> Path:
        return self._file(component, f"{state}-{epoch}")

    def _let_go(self, component: str, epoch: int) -> None:
        """Mark the fence as free, if this epoch has it."""
        with suppress(FileNotFoundError):
            os.rename(self._folder(component, _HELD, epoch), self._folder(component, _FREE, epoch))
            self._disk.sync(self._leaders)

    def _lock(self, component: str) -> int | None:
        """Lock a component for as long as the descriptor is open; None = another process has the lock."""
        handle = os.open(self._file(component, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        return handle

    def _is_lock_of(self, component: str, handle: int) -> bool:
        """Whether a descriptor is the component's current lock."""
        try:
            return os.path.samestat(os.fstat(handle), os.stat(self._file(component, "lock")))
        except FileNotFoundError:
            return False

    @override
    def announce(self, component: str, leader: Leader) -> None:
        with self._led(component, leader.epoch) as fence_folder:
            self._write_leader(component, leader, fence_folder)

    @override
    def check(self, component: str, epoch: int) -> None:
        try:
            os.stat(self._folder(component, _HELD, epoch))
        except FileNotFoundError:
            raise FencedError(f"epoch {epoch} of {component} is over") from None
        if component in self._unsynced:
            self._disk.sync(self._cells / component)
            self._unsynced.discard(component)

    @override
    def release(self, component: str, epoch: int) -> None:
        handle = self._locks.pop((component, epoch), None)
        if handle is not None:
            try:
                self._let_go(component, epoch)
            finally:
                os.close(handle)

    @override
    def depose(self, component: str) -> None:
        # The former leader's lock is a file that is no longer used; its fence is gone, so that it can't write.
        self._last(component)  # an unreadable record is reported before anything changes
        while (fence := self._fence(component)) is not None and f".{_HELD}-" in fence[1].name:
            self._let_go(component, fence[0])
        self._file(component, "lock").unlink(missing_ok=True)

    @override
    def leader(self, component: str) -> Leader | None:
        last = self._last(component)
        return last if last is not None and self._folder(component, _HELD, last.epoch).is_dir() else None

    @override
    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        return self._watches.add(component, listener)

    # -- records

    @override
    def names(self, component: str) -> list[str]:
        return sorted(self._revision(component).lines)

    @override
    def read(self, component: str, name: str) -> Record | None:
        version_and_line = self._revision(component).lines.get(name)
        return None if version_and_line is None else Record(_value(version_and_line[1]), version_and_line[0])

    @override
    def change(self, component: str, epoch: int, changes: Sequence[Change]) -> None:
        with self._led(component, epoch) as fence_folder:
            current = self._revision(component)
            number, lines = current.number + 1, dict(current.lines)
            for change in changes:
                version_and_line = lines.get(change.name)
                if (None if version_and_line is None else version_and_line[0]) != change.expected:
                    raise ChangedError(f"the record {change.name} of {component} has changed")
                if isinstance(change, Put):
                    lines[checked(change.name, "a record")] = number, _line(change.value)
                elif isinstance(change, RemoveRecord):
                    del lines[change.name]
            self._write(component, fence_folder, _Revision(number, lines))

    def _write(self, component: str, fence_folder: Path, revision: _Revision) -> None:
        """Draft a revision in the fence, and rename it to its place.

        Raises:
            ChangedError: the cell has this revision already.
            UnsureError: it is written, but may not be safe, or others have written since.
            OSError: it is not written; the former revision still counts.
        """
        disk, folder, draft = self._disk, self._cells / component, fence_folder / uuid.uuid4().hex
        try:
            is_new = self._make_draft(fence_folder, draft)
            disk.write(draft / _RECORDS, _encode(revision))
            disk.sync(draft / _RECORDS)
            if is_new:
                disk.sync(draft)
            # The folder of a first revision has to survive a loss of power as well.
            if not folder.is_dir():
                disk.make_directory(folder)
                disk.sync(self._cells)
                disk.sync(self.directory)
            disk.rename(draft, folder / str(revision.number))
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise ChangedError(f"somebody else has changed the records of {component}") from error
            raise
        self._unsynced.add(component)
        try:
            disk.sync(folder)
        except OSError as error:  # ``check`` tries again
            raise UnsureError(error.errno, f"{folder} can't be made safe: {error.strerror or error}") from error
        self._unsynced.discard(component)
        # The write may have been slow: later revisions tell whether it still counts.
        numbers = self._numbers(component)
        if max(numbers) != revision.number:
            # Others continued from this revision, or it came so late that its place was free again.
            raise UnsureError(f"others have changed the records of {component} meanwhile")
        for number in numbers:
            if number < revision.number:
                with suppress(OSError):  # the next change tries again
                    disk.rename(folder / str(number), fence_folder / f"{_SPARE}{uuid.uuid4().hex}")

    def _make_draft(self, fence_folder: Path, draft: Path) -> bool:
        """Create the folder of a draft; False = it is that of a former revision.

        Such a folder has its file already, which saves the sync of the folder, a third of the time of a change.
        """
        for name in os.listdir(fence_folder):
            if name.startswith(_SPARE):
                with suppress(FileNotFoundError):  # a concurrent call has taken it
                    self._disk.rename(fence_folder / name, draft)
                    return False
        draft.mkdir(mode=0o700)
        return True

    def _numbers(self, component: str) -> list[int]:
        """Revisions of a cell; all but the last one are being removed."""
        try:
            return [int(name) for name in os.listdir(self._cells / checked(component, "a component")) if name.isdigit()]
        except FileNotFoundError:
            return []

    def _revision(self, component: str) -> _Revision:
        """Current records of a cell.

        Raises:
            UnknownFormatError: another version has written them.
            OSError: they are damaged as a whole, or can't be read for now.
        """
        while (number := max(self._numbers(component), default=0)) > 0:
            path, content = self._cells / component / str(number) / _RECORDS, None
            try:
                with path.open("rb") as file:
                    status = os.fstat(file.fileno())
                    stamp = status.st_ino, status.st_mtime_ns, status.st_size
                    last_stamp, last = self._last_read.get(component, (None, None))
                    if last is not None and last_stamp == stamp and last.number == number:
                        return last
                    content = file.read()
            except FileNotFoundError:
                pass
            if max(self._numbers(component), default=0) != number:
                continue  # a new revision came, and the file of this one may have been reused
            if content is None:
                raise DamagedCellError(f"{path} is missing. Bring it back from a copy")
            try:
                revision = _decode(content)
            except UnknownFormatError as error:
                raise UnknownFormatError(f"{path}: {error}") from error
            except (DamagedEntryError, ValueError, TypeError, KeyError) as error:
                raise DamagedCellError(f"{path} is damaged: {error}. Bring it back from a copy") from error
            self._last_read[component] = stamp, revision
            return revision
        earlier = self._earlier.records(component)
        return _Revision(0, {name: (0, _line(value)) for name, value in earlier.items()})

    @override
    def exists(self, component: str) -> bool:
        paths = self._file(component, "json"), self._cells / component, *self._earlier.paths(component)
        return any(path.exists() for path in paths)

    @override
    def forget(self, component: str) -> None:
        while (fence := self._fence(component)) is not None:
            shutil.rmtree(fence[1], ignore_errors=True)  # first: it has the drafts, so no change can come late
            if fence[1].exists():
                break  # nobody reads what is left
        for path in self._earlier.paths(component):
            self._disk.remove_tree(path)
        self._last_read.pop(component, None)
        cell = self._cells / component
        with suppress(FileNotFoundError):  # renamed first, so that half a cell is never seen
            self._disk.rename(cell, trash := self._cells / f".{component}.{uuid.uuid4().hex}")
            self._disk.remove_tree(trash)
        for suffix in ("lock", "json"):  # the leader's file last: until then the cell exists
            self._file(component, suffix).unlink(missing_ok=True)

    @override
    def close(self) -> None:
        self._watches.close()
        for component, epoch in list(self._locks):
            self.release(component, epoch)

    # -- inside

    @contextmanager
    def _led(self, component: str, epoch: int) -> Iterator[Path]:
        """Folder for the drafts of a write by this leader.

        Raises:
            FencedError: it leads no more; changes that were renamed to their place before that are written.
        """
        self.check(component, epoch)
        fence_folder = self._folder(component, _HELD, epoch)
        try:
            yield fence_folder
        except UnsureError:
            raise
        except Exception as error:
            if not fence_folder.is_dir():
                raise FencedError(f"epoch {epoch} of {component} has ended") from error
            raise

    def _file(self, component: str, suffix: str) -> Path:
        return self._leaders / f"{checked(component, 'a component')}.{suffix}"

    def _write_leader(self, component: str, leader: Leader, fence_folder: Path) -> None:
        content = encode(_LEADER, leader.to_plain(), LEADER_FORMAT)
        write_document(self._disk, self._file(component, "json"), content, fence_folder)

    def _last(self, component: str) -> Leader | None:
        path = self._file(component, "json")
        try:
            plain = read_document(path, _LEADER, LEADER_FORMAT)
        except FileNotFoundError:
            return None
        except UnknownFormatError as error:
            raise ConfigurationError(f"another version of Firesteel has written {path}: {error}") from error
        except DamagedEntryError as error:
            raise ConfigurationError(
                f"{path} is damaged: {error}. Stop the cluster and remove the file; epochs then begin anew"
            ) from error
        return Leader(int(plain["epoch"]), str(plain["address"]), str(plain["token"]))


# -- the file of a revision: a document with the names and versions of the records, then a line for each value


def _encode(revision: _Revision) -> bytes:
    index: dict[str, Any] = {
        "revision": revision.number,
        "records": [[name, version] for name, (version, _) in revision.lines.items()],
    }
    return b"\n".join([encode(_CELL, index), *(line for _, line in revision.lines.values()), b""])


def _decode(content: bytes) -> _Revision:
    header, body, *lines = content.split(b"\n")
    index = decode(_CELL, header + b"\n" + body)
    missing = [_LOST_LINE] * len(index["records"])
    return _Revision(
        int(index["revision"]),
        {
            str(name): (int(version), line)
            for (name, version), line in zip(index["records"], lines + missing, strict=False)
        },
    )


def _line(value: bytes) -> bytes:
    """A value with its checksum, so that damage concerns one record and not all."""
    text = json.dumps(value.decode("utf-8", "surrogateescape")).encode()
    return f"{_checksum(text)} ".encode() + text


def _value(line: bytes) -> bytes:
    """Value in a line. A damaged line is returned as it is: no reader can decode it, and each reports that.

    People may rewrite a line: as JSON, without the checksum.
    """
    checksum, _, text = (b"", b"", line) if line.startswith(b'"') else line.partition(b" ")
    if checksum and checksum.decode("utf-8", "replace") != _checksum(text):
        return line
    try:
        return str(json.loads(text)).encode("utf-8", "surrogateescape")
    except ValueError:
        return line


def _checksum(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]
