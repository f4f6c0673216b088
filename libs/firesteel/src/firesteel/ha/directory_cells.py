"""Cells in a directory that one host or several see, with file locks.

Layout of the directory (all of mode 0700)::

    marker                              tells the directory, where several hosts share it, from an empty mount point
    leaders/<component>.lock            held by the leader's process for as long as it leads
            <component>.held-<epoch>/   the fence: whatever the leader of this epoch writes is drafted in here
            <component>.free-<epoch>/   the same folder when nobody leads: its name says who does
            <component>.json            epoch, address and token of the last leader, which others look at
    cells/<component>/<revision>/records    all records of a cell; the largest revision counts

The kernel lets a lock go when its process dies, so the next leader has to wait for nothing. Hosts that share the
directory need a file system whose locks (flock) hold over all of them.

A change of a cell writes all its records anew, into the next revision: a folder that is drafted in the fence and
renamed to its place. That one rename is the change, and three things follow from it:

* Several records change together or not at all, also where the power goes.
* A change of leaders renames the fence. So a change of a former leader comes before it, or finds its draft gone and is
  refused, wherever its process stood still: nobody waits for a leader that is frozen, and nothing is locked while
  somebody writes.
* No rename replaces a folder that holds something. So of two changes that were made of the same revision the second one
  is refused, and a call that hung does not undo what has happened since.

A cell without a revision is as an earlier version of Firesteel has left it (``earlier_directory``). Whoever leads it
next writes those records as its first revision.
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
"""Of ``<component>.json``. Version 1 kept records in other files, and does not lead where it meets this number."""
_MARKER: Final = "marker"
"""Of the shared directory, beside ``leaders``."""
_CELL: Final = "cell"
_RECORDS: Final = "records"
_HELD, _FREE = "held", "free"
"""What the fence of a component is called while somebody leads it, and while nobody does."""
_SPARE: Final = "spare-"
"""A folder of a former revision, in the fence."""
_LOST_LINE: Final = b"?"
"""In place of the line of a record that is cut off: no value of any kind of record."""


class StorageAwayError(AwayError):
    """The shared directory is not there. It is worth waiting for it."""


class DamagedCellError(OSError):
    """The records of a cell are damaged as a whole; whoever needs them waits until somebody has brought them back."""


@dataclass(frozen=True)
class _Revision:
    """What a cell holds.

    Attributes:
        number: of the revision; 0: no version 2 of this layout has written anything.
        lines: record -> its version, and its line of the file.
    """

    number: int
    lines: dict[str, tuple[int, bytes]]


class DirectoryCells(Cells):
    """See ``Cells`` and the head of this module.

    Args:
        directory: private to the cluster.
        disk: how files are written.
        jobs: where an earlier version kept jobs.
        shared: hosts share the directory, which may be away.
        memory: a file of this host that remembers whether it has seen the marker of the shared directory.

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
        """Components whose newest revision may not outlive a loss of power yet."""
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
            os.close(handle)  # it was removed, or the fence moved, between looking and taking
        return None

    def join(self) -> None:
        """This process is started by a cluster that has leaders: its directory has a marker, or is away."""
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

    def _begin(self, component: str, handle: int) -> int | None:
        """Take the fence, and say so; None: somebody else was faster, or the lock is not that of the component."""
        last, fence = self._last(component), self._fence(component)
        epoch = 1 + max(last.epoch if last is not None else 0, fence[0] if fence is not None else 0)
        held = self._folder(component, _HELD, epoch)
        if not self._move(component, fence, held):
            return None
        if not self._is_lock_of(component, handle):  # deposed meanwhile, by somebody who saw the fence before
            self._let_go(component, epoch)
            return None
        for draft in held.iterdir():  # of the leader before, which can write no more
            self._disk.remove_tree(draft)
        self._take_over(component, held)
        self._write_leader(component, Leader(epoch), held)
        return epoch

    def _take_over(self, component: str, held: Path) -> None:
        """Have the records of the leader before safe, whichever version of Firesteel it was.

        Raises:
            ConfigurationError: this version can't read them.
            OSError: that can't be done for now.
        """
        try:
            revision = self._revision(component)
            if revision.number:
                self._unsynced.add(component)  # that leader may have died between writing and making safe
            elif revision.lines:  # at once: an earlier version kept some of them in the file of the leader
                self._write(component, held, _Revision(1, revision.lines))
        except UnknownFormatError as error:
            raise ConfigurationError(f"another version of Firesteel has written {error}") from error
        except ChangedError as error:
            raise UnsureError(str(error)) from error

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
        newest = self._fence(component)
        if fence is None and newest is not None and newest[1] != to:  # the first of two that begin at the same time
            to.rmdir()
            return False
        return True

    def _fence(self, component: str) -> tuple[int, Path] | None:
        """Epoch and folder of the fence as it is called now."""
        name = re.compile(rf"{re.escape(component)}\.(?:{_HELD}|{_FREE})-(\d+)")
        fences = [(int(match[1]), self._leaders / entry) for entry in os.listdir(self._leaders)
                  if (match := name.fullmatch(entry)) is not None]  # fmt: skip
        return max(fences, default=None)

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
    def announce(self, component: str, leader: Leader) -> None:
        with self._led(component, leader.epoch) as held:
            self._write_leader(component, leader, held)

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
        # Who had the lock has one then that nobody looks at any more; its fence is gone, which keeps it from writing.
        self._last(component)  # a record that can't be read is said before anything changes
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
        with self._led(component, epoch) as held:
            before = self._revision(component)
            number, lines = before.number + 1, dict(before.lines)
            for change in changes:
                version_and_line = lines.get(change.name)
                if (None if version_and_line is None else version_and_line[0]) != change.expected:
                    raise ChangedError(f"the record {change.name} of {component} has changed")
                if isinstance(change, Put):
                    lines[checked(change.name, "a record")] = number, _line(change.value)
                elif isinstance(change, RemoveRecord):
                    del lines[change.name]
            self._write(component, held, _Revision(number, lines))

    def _write(self, component: str, held: Path, revision: _Revision) -> None:
        """Draft a revision in the fence, and rename it to its place.

        Raises:
            ChangedError: the cell has this revision already.
            UnsureError: it is written, and may not be safe, or others have written since.
            OSError: it is not written; what there was still is.
        """
        disk, folder, draft = self._disk, self._cells / component, held / uuid.uuid4().hex
        try:
            is_new = self._make_draft(held, draft)
            disk.write(draft / _RECORDS, _encode(revision))
            disk.sync(draft / _RECORDS)
            if is_new:
                disk.sync(draft)
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
        numbers = self._numbers(component)
        if max(numbers) != revision.number:
            # Others went on from this one, or it was written so late that its place was free again.
            raise UnsureError(f"others have changed the records of {component} meanwhile")
        for number in numbers:
            if number < revision.number:
                with suppress(OSError):  # the next change tries again
                    disk.rename(folder / str(number), held / f"{_SPARE}{uuid.uuid4().hex}")

    def _make_draft(self, held: Path, draft: Path) -> bool:
        """Make the folder of a draft; whether it is a new one.

        That of a former revision will do: its file is there already, which saves the sync of a folder, a third of all.
        """
        for name in os.listdir(held):
            if name.startswith(_SPARE):
                with suppress(FileNotFoundError):  # a call at the same time has taken it
                    self._disk.rename(held / name, draft)
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
        """What a cell holds now.

        Raises:
            UnknownFormatError: another version has written it.
            OSError: it is damaged as a whole, or can't be read for now.
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
                continue  # another one has followed, and the file of this one may have been written anew
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
            shutil.rmtree(fence[1], ignore_errors=True)  # first: with it goes what is drafted, and nothing comes late
            if fence[1].exists():
                break  # what is left holds nothing that anybody reads
        for path in self._earlier.paths(component):
            self._disk.remove_tree(path)
        self._last_read.pop(component, None)
        cell = self._cells / component
        with suppress(FileNotFoundError):  # at once out of sight: half a cell is never seen
            self._disk.rename(cell, trash := self._cells / f".{component}.{uuid.uuid4().hex}")
            self._disk.remove_tree(trash)
        for suffix in ("lock", "json"):  # the leader last: until then the cell is there
            self._file(component, suffix).unlink(missing_ok=True)

    @override
    def close(self) -> None:
        self._watches.close()
        for component, epoch in list(self._locks):
            self.release(component, epoch)

    # -- inside

    @contextmanager
    def _led(self, component: str, epoch: int) -> Iterator[Path]:
        """A write by a leader: gives the folder for its drafts.

        Raises:
            FencedError: it leads no more; what was renamed before it did not is written.
        """
        self.check(component, epoch)
        held = self._folder(component, _HELD, epoch)
        try:
            yield held
        except UnsureError:  # it may be written
            raise
        except Exception as error:
            if not held.is_dir():
                raise FencedError(f"epoch {epoch} of {component} has ended") from error
            raise

    def _file(self, component: str, suffix: str) -> Path:
        return self._leaders / f"{checked(component, 'a component')}.{suffix}"

    def _write_leader(self, component: str, leader: Leader, held: Path) -> None:
        content = encode(_LEADER, leader.to_plain(), LEADER_FORMAT)
        write_document(self._disk, self._file(component, "json"), content, held)

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
    """A value with its checksum, so that what is damaged is one record, and not all."""
    text = json.dumps(value.decode("utf-8", "surrogateescape")).encode()
    return f"{_checksum(text)} ".encode() + text


def _value(line: bytes) -> bytes:
    """The value in a line. A damaged line is itself the value: no reader takes it for one, and each says so.

    People may write a line anew: as JSON, without the checksum.
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
