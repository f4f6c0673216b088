"""Copies of state on a local disk: a task that starts again on the same host reads these (local recovery).

The checkpoint storage has everything, as always; a copy is an addition that may be missing, and costs nothing when it
is. It is named by the checksum and length of what is in it, and both are compared before it is used: one that was
damaged is removed and reported, and the storage is read. A copy stays as long as a checkpoint of its task that is not
subsumed needs it. Those of a job are in directories of its own, one on each disk for them, which go with the job; a
task that starts there removes what attempts before it have left, but for what it goes on from.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import cycle
from typing import BinaryIO, Final

from firesteel.checkpoint.handles import FileState, RunningChecksum, StateHandle
from firesteel.checkpoint.storage import StateWriter

logger = logging.getLogger(__name__)
_READ: Final = 1 << 20
"""Bytes that are read at a time."""
_DRAFT: Final = "draft-"


class LocalCopies:
    """Those of one task; thread-safe.

    Args:
        directories: of the job, on this host; pieces are spread over them.
        task: names the own folder in each, the same in each attempt.
        goes_on_from: pieces that the task was given; other copies in its folder are removed.
        reads: look for copies as state is read.
        writes: make copies as state is written.
    """

    def __init__(
        self,
        directories: Sequence[str],
        task: str,
        goes_on_from: Iterable[StateHandle] = (),
        *,
        reads: bool = True,
        writes: bool = True,
    ) -> None:
        self._directories = directories
        self._folders = [os.path.join(directory, task) for directory in directories]
        self._turns = cycle(self._folders)
        self._task, self._reads, self._writes = task, reads, writes
        self._lock = threading.Lock()
        first = {name for handle in goes_on_from if (name := _name_of(handle))}
        self._needed: dict[int, set[str]] = {0: first}
        """By checkpoint; what the task goes on from is of none."""
        for folder in self._folders:
            with suppress(OSError):
                for name in os.listdir(folder):
                    if name not in first:
                        _remove(os.path.join(folder, name))

    # -- writing

    def beside(self, writer: StateWriter) -> StateWriter:
        """A writer that makes a copy of what it writes."""
        return _CopyingWriter(writer, self) if self._writes else writer

    def draft(self) -> str:
        """Path of a new file, on each disk in turn.

        Raises:
            OSError: there can't be one.
        """
        with self._lock:
            folder = next(self._turns)
        os.makedirs(folder, exist_ok=True)
        return os.path.join(folder, f"{_DRAFT}{uuid.uuid4().hex}")

    def keep(self, handle: StateHandle, draft: str) -> None:
        """A file holds what a handle names: it is a copy from now on."""
        name = _name_of(handle)
        if name:
            os.replace(draft, os.path.join(os.path.dirname(draft), name))
        else:
            os.unlink(draft)

    def failed(self, error: OSError) -> None:
        """There is no copy of a piece."""
        logger.warning("%s: no copy of state is kept in %s: %s", self._task, ", ".join(self._directories), error)

    # -- how long copies stay

    def acknowledged(self, checkpoint_id: int, handles: Iterable[StateHandle]) -> None:
        """A checkpoint consists of these."""
        with self._lock:
            self._needed[checkpoint_id] = {name for handle in handles if (name := _name_of(handle))}

    def complete(self, checkpoint_id: int) -> None:
        """A checkpoint is complete, and no earlier one will be needed."""
        self._forget(lambda number: number < checkpoint_id)

    def aborted(self, checkpoint_id: int) -> None:
        """A checkpoint will not be complete."""
        self._forget(lambda number: number == checkpoint_id)

    def _forget(self, which: Callable[[int], bool]) -> None:
        with self._lock:
            numbers = [number for number in self._needed if which(number)]
            gone = set[str]().union(*(self._needed.pop(number) for number in numbers))
            for name in gone.difference(*self._needed.values()):
                for folder in self._folders:
                    _remove(os.path.join(folder, name))

    # -- reading

    def open(self, handle: StateHandle) -> BinaryIO | None:
        """The copy of a piece, whose checksum was compared; None if there is none that is good."""
        name = _name_of(handle)
        if not self._reads or not name:
            return None
        assert isinstance(handle, FileState)
        for path in self._places(name):
            try:
                stream = open(path, "rb")  # noqa: SIM115 # it is returned
            except OSError:
                continue
            try:
                if _checksum_of(stream) == (handle.length, handle.checksum):
                    stream.seek(0)
                    return stream
                why = "it is not what was written"
            except OSError as error:
                why = str(error)
            stream.close()
            with suppress(OSError):
                os.unlink(path)
            logger.warning(
                "%s: the local copy %s of %s is no good, and was removed: %s; the checkpoint storage is read instead",
                self._task, path, handle.path, why,
            )  # fmt: skip
        return None

    def _places(self, name: str) -> list[str]:
        """Where a copy may be: with the task, or with another one of the job that had its key groups before."""
        folders = list(self._folders)
        for directory, own in zip(self._directories, self._folders, strict=True):
            with suppress(OSError):
                folders += sorted(entry.path for entry in os.scandir(directory) if entry.path != own)
        return [os.path.join(folder, name) for folder in folders]


def _remove(path: str) -> None:
    with suppress(OSError):
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def _name_of(handle: StateHandle) -> str:
    """The name of a copy; none for what travels with its handle."""
    return f"{handle.checksum}-{handle.length}" if isinstance(handle, FileState) else ""


def _checksum_of(stream: BinaryIO) -> tuple[int, str]:
    found, length = RunningChecksum(), 0
    while data := stream.read(_READ):
        found.update(data)
        length += len(data)
    return length, found.hexdigest()


class _CopyingWriter(StateWriter):
    """Writes to the storage, and to a local file as well; only the storage's errors are errors."""

    def __init__(self, writer: StateWriter, copies: LocalCopies) -> None:
        self._writer, self._copies = writer, copies
        self._draft = ""
        self._file: BinaryIO | None = None
        self._linked = self._given_up = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._writer.write(data)
        if self._linked or self._given_up:
            return
        try:
            if self._file is None:
                self._draft = self._copies.draft()
                self._file = open(self._draft, "xb")  # noqa: SIM115 # closed with the writer
            self._file.write(data)
        except OSError as error:
            self._give_up(error)

    def link(self, path: str) -> None:
        """What will be written is in a file that never changes: the copy is another name of that."""
        try:
            self._draft = self._copies.draft()
            os.link(path, self._draft)
            self._linked = True
        except OSError:  # on another disk: it is copied
            self._draft = ""

    def close(self) -> StateHandle:
        """Make it durable in the storage."""
        handle = self._writer.close()
        try:
            if self._file is not None:
                self._file.close()
            if self._draft and not self._given_up:
                self._copies.keep(handle, self._draft)
                self._draft = ""
        except OSError as error:
            self._give_up(error)
        return handle

    def abort(self) -> None:
        self._writer.abort()
        self._drop()

    def _give_up(self, error: OSError) -> None:
        self._given_up = True
        self._copies.failed(error)
        self._drop()

    def _drop(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        if self._draft:
            with suppress(OSError):
                os.unlink(self._draft)
            self._draft = ""


def link_copy(writer: StateWriter, path: str) -> None:
    """The file with what is about to be written is never changed: a copy need not be written once more."""
    if isinstance(writer, _CopyingWriter):
        writer.link(path)
