"""Copies of state on a local disk, which a task reads that starts again on the same host (local recovery).

The checkpoint storage always has all state; a copy may be missing without harm. It is named by checksum and length of
its content, and both are compared before it is used: a damaged copy is removed and reported, and the storage is read
instead. A copy stays as long as a checkpoint of its task that is not subsumed needs it. The copies of a job are in
directories of their own, one on each disk, which are removed with the job. A task that starts removes copies of former
attempts, except for those from which it goes on.
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

from typing_extensions import override

from firesteel.checkpoint.handles import FileState, RunningChecksum, StateHandle
from firesteel.checkpoint.storage import StateWriter

logger = logging.getLogger(__name__)
_READ: Final = 1 << 20
"""Bytes that are read at a time."""
_DRAFT: Final = "draft-"


class LocalCopies:
    """The local copies of one task. Thread-safe.

    Args:
        directories: directories of the job on this host, over which pieces are distributed.
        task: name of the task's folder in each of them, the same in each attempt.
        goes_on_from: pieces from which the task goes on; other copies in its folder are removed.
        reads: whether to look for copies when state is read.
        writes: whether to make copies when state is written.
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
        restored = {name for handle in goes_on_from if (name := _name_of(handle))}
        self._needed: dict[int, set[str]] = {0: restored}
        """Names of copies by the checkpoint that needs them; 0 stands for the restored state."""
        for folder in self._folders:
            with suppress(OSError):
                for name in os.listdir(folder):
                    if name not in restored:
                        _remove(os.path.join(folder, name))

    # -- writing

    def beside(self, writer: StateWriter) -> StateWriter:
        """Wrap a writer so that it also writes a local copy."""
        return _CopyingWriter(writer, self) if self._writes else writer

    def draft(self) -> str:
        """Path for a new file, on each disk in turn.

        Raises:
            OSError: the folder can't be created.
        """
        with self._lock:
            folder = next(self._turns)
        os.makedirs(folder, exist_ok=True)
        return os.path.join(folder, f"{_DRAFT}{uuid.uuid4().hex}")

    def keep(self, handle: StateHandle, draft: str) -> None:
        """Make a draft, whose content is that of the handle, a copy; inline state needs none."""
        name = _name_of(handle)
        if name:
            os.replace(draft, os.path.join(os.path.dirname(draft), name))
        with suppress(FileNotFoundError):  # still there if draft and copy are links to one file: rename does nothing
            os.unlink(draft)

    def failed(self, error: OSError) -> None:
        """Log that a piece could not be copied."""
        logger.warning("%s: no copy of state is kept in %s: %s", self._task, ", ".join(self._directories), error)

    # -- how long copies stay

    def acknowledged(self, checkpoint_id: int, handles: Iterable[StateHandle]) -> None:
        """Note which pieces a checkpoint needs."""
        with self._lock:
            self._needed[checkpoint_id] = {name for handle in handles if (name := _name_of(handle))}

    def complete(self, checkpoint_id: int) -> None:
        """Remove copies that only earlier checkpoints need, because this one is complete."""
        self._forget(lambda number: number < checkpoint_id)

    def aborted(self, checkpoint_id: int) -> None:
        """Remove copies that only this checkpoint needs, because it was given up."""
        self._forget(lambda number: number == checkpoint_id)

    def _forget(self, selects: Callable[[int], bool]) -> None:
        """Forget checkpoints, and remove copies that no other one needs."""
        with self._lock:
            numbers = [number for number in self._needed if selects(number)]
            names = set[str]().union(*(self._needed.pop(number) for number in numbers))
            for name in names.difference(*self._needed.values()):
                for folder in self._folders:
                    _remove(os.path.join(folder, name))

    # -- reading

    def open(self, handle: StateHandle) -> BinaryIO | None:
        """Open the copy of a piece after comparing its checksum; None if there is no intact copy."""
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
                reason = "its length or checksum is wrong"
            except OSError as error:
                reason = str(error)
            stream.close()
            with suppress(OSError):
                os.unlink(path)
            logger.warning(
                "%s: the local copy %s of %s is damaged, and was removed: %s; the checkpoint storage is read instead",
                self._task, path, handle.path, reason,
            )  # fmt: skip
        return None

    def _places(self, name: str) -> list[str]:
        """Paths at which a copy may be: in the task's folder, or in that of a task that had its key groups before."""
        folders = list(self._folders)
        for directory, folder in zip(self._directories, self._folders, strict=True):
            with suppress(OSError):
                folders += sorted(entry.path for entry in os.scandir(directory) if entry.path != folder)
        return [os.path.join(folder, name) for folder in folders]


def _remove(path: str) -> None:
    with suppress(OSError):
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def _name_of(handle: StateHandle) -> str:
    """The name of the copy of a piece; empty for inline state, which needs none."""
    return f"{handle.checksum}-{handle.length}" if isinstance(handle, FileState) else ""


def _checksum_of(stream: BinaryIO) -> tuple[int, str]:
    running, length = RunningChecksum(), 0
    while data := stream.read(_READ):
        running.update(data)
        length += len(data)
    return length, running.hexdigest()


class _CopyingWriter(StateWriter):
    """Writes to the storage, and to a local file as well; errors of the local file only give up the copy."""

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
        """Use a hard link to a file as the copy, because the file contains what is about to be written."""
        try:
            self._draft = self._copies.draft()
            os.link(path, self._draft)
            self._linked = True
        except OSError:  # the file is on another disk: ``write`` copies it
            self._draft = ""

    @override
    def close(self) -> StateHandle:
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
    """Tell a writer that a local file, which never changes, contains what is about to be written."""
    if isinstance(writer, _CopyingWriter):
        writer.link(path)
