"""The checkpoint storage ``filesystem``: a directory that all hosts see.

::

    <execution.checkpointing.dir>/<job id>/
        chk-7/_metadata        what belongs to the checkpoint
        chk-7/<unique>         state of this checkpoint only
        shared/  taskowned/    state that several checkpoints may use
"""

from __future__ import annotations

import errno
import io
import os
import re
import shutil
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from firesteel.checkpoint.handles import FileState, InlineState, RunningChecksum, StateHandle, checksum
from firesteel.checkpoint.places import is_object
from firesteel.checkpoint.state_files import METADATA, check_mounted, end_of_state, local_path, told
from firesteel.checkpoint.state_reader import StateReader
from firesteel.checkpoint.storage import CheckpointStorage, StateWriter, StorageParameters
from firesteel.config import options
from firesteel.core.errors import CheckpointNumberTakenError, CheckpointStorageError, ConfigurationError
from firesteel.core.files import sync_directory

SHARED: Final = "shared"
TASK_OWNED: Final = "taskowned"
_CHECKPOINT: Final = re.compile(r"chk-(\d+)")
_OF_A_CHECKPOINT: Final = re.compile(r"(\d+)-")
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
_ATTEMPTS: Final = 8
"""So often a directory is removed that others write into."""
_KEY: Final = options.CHECKPOINTING_DIRECTORY.key


class DirectoryCheckpointStorage(CheckpointStorage):
    """See the head of this module.

    Args:
        parameters: their settings have ``execution.checkpointing.dir``.

    Raises:
        ConfigurationError: there is no directory, or it can't be one.
    """

    name = "filesystem"

    def __init__(self, parameters: StorageParameters) -> None:
        settings = parameters.settings
        directory = settings.get(options.CHECKPOINTING_DIRECTORY)
        if not directory:
            raise ConfigurationError(
                f"the checkpoint storage 'filesystem' needs {_KEY}, a directory that all hosts of the cluster see"
            )
        self.base = local_path(directory, _KEY)
        self._reader = StateReader(settings)
        self._own = settings.get(options.CHECKPOINTING_CREATE_SUBDIRECTORY)
        self.root = self.base / parameters.job_id if self._own else self.base
        self._threshold = settings.get(options.CHECKPOINTING_INLINE_THRESHOLD)
        self._buffer = max(settings.get(options.CHECKPOINTING_WRITE_BUFFER), self._threshold, 1)
        self._seen = False
        """The job's directory has been there."""
        self._written: set[Path] = set()
        """Metadata that this object has written and not removed: others in the directory may be somebody else's."""

    @property
    def persistent(self) -> bool:
        return True

    def directory(self, checkpoint_id: int) -> Path:
        return self.root / f"chk-{checkpoint_id}"

    # -- slots

    def open_state_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        """A writer of a file of its own, which is not made before it is needed."""
        return StateFileWriter(self.directory(checkpoint_id) / uuid.uuid4().hex, hint, self._threshold, self._buffer)

    def open_shared_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        """A writer of a file that stays with any checkpoint that uses it; its name says for which one it was made."""
        path = self.root / SHARED / f"{checkpoint_id}-{uuid.uuid4().hex}"
        return StateFileWriter(path, hint, self._threshold, self._buffer, self.directory(checkpoint_id))

    def open_state(self, handle: StateHandle) -> BinaryIO:
        """A stream over the bytes of a handle."""
        return self._reader.open_state(handle)

    # -- the JobMaster

    def prepare(self, checkpoint_id: int) -> None:
        metadata = self.directory(checkpoint_id) / METADATA
        with told(f"{self.root} can't be read"):
            if metadata.exists():
                taken = [number for number, directory in self._checkpoints() if (directory / METADATA).exists()]
                raise CheckpointNumberTakenError(
                    f"{metadata} is a checkpoint already, of another run: start from it with -s, or use another "
                    f"directory ({_KEY})",
                    max(taken, default=checkpoint_id),
                )
        if self._seen:
            check_mounted(str(metadata))  # nothing is written into a mount point, which may be the job's own directory
        with told(f"no directory for checkpoint {checkpoint_id} can be made below {self.root}"):
            for directory in (self.root / SHARED, self.root / TASK_OWNED, self.directory(checkpoint_id)):
                directory.mkdir(parents=True, exist_ok=True)
        self._seen = True

    def verify(self, handles: Iterable[StateHandle]) -> None:
        """Look at the size of each file."""
        self._reader.verify(handles)

    def write_metadata(self, checkpoint_id: int, data: bytes) -> str:
        """Write a file under another name and link it to its own."""
        directory = self.directory(checkpoint_id)
        final = directory / METADATA
        what = f"the metadata of checkpoint {checkpoint_id} can't be written to {directory}"
        with told(what):
            draft = directory / f".{METADATA}.inprogress.{uuid.uuid4().hex}"
            try:
                _write_new(draft, data)
                try:
                    os.link(draft, final)
                except FileExistsError:
                    if final.read_bytes() != data:
                        raise CheckpointStorageError(
                            f"{final} is there already, and holds something else: nothing was overwritten. Does "
                            f"another job or JobMaster use {_KEY} = {self.base}?"
                        ) from None
                except OSError as error:
                    if error.errno not in _NO_LINKS:
                        raise
                    _create(final, data)
                self._written.add(final)
            finally:
                with suppress(OSError):  # it goes with the directory
                    draft.unlink(missing_ok=True)
            try:
                sync_directory(directory)
                if final.read_bytes() != data:
                    raise CheckpointStorageError(
                        f"{final} does not hold what was written to it: the storage loses data"
                    )
            except (OSError, CheckpointStorageError):
                with suppress(OSError):  # it is ours, and no checkpoint
                    final.unlink(missing_ok=True)
                raise
        return str(final)

    def read_metadata(self, location: str) -> tuple[str, bytes]:
        """Of a file, or of the directory with it."""
        found = self._reader.read_metadata(location)
        with told(f"{self.root} can't be read"):
            self._seen = self._seen or bool(_entries(self.root))
        return found

    def left_behind(self, below: int) -> list[tuple[int, str, bytes | None]]:
        """Directories and shared files of checkpoints; none where the directory is not the job's alone."""
        if not self._own:
            return []
        found: dict[int, tuple[int, str, bytes | None]] = {}
        with told(f"{self.root} can't be read"):
            for number, _ in self._shared():
                found[number] = (number, str(self.directory(number) / METADATA), None)
            for number, directory in self._checkpoints():
                metadata = directory / METADATA
                found[number] = (number, str(metadata), metadata.read_bytes() if metadata.exists() else None)
        return [entry for number, entry in sorted(found.items()) if number < below]

    def discard(self, checkpoint_id: int, files: Collection[str] = (), keep: Collection[str] = ()) -> None:
        """Remove the directory, unless somebody else's checkpoint is in it; streams that are open find it gone."""
        kept = {str(path) for path in keep}
        self._remove(files, kept)
        directory = self.directory(checkpoint_id)
        metadata = directory / METADATA
        with told(f"what is left of checkpoint {checkpoint_id} can't be removed from {directory}"):
            if metadata in self._written or not metadata.exists():
                remove_all_but(directory, kept)
                self._written.discard(metadata)
            for number, file in self._shared() if self._own else ():
                if number == checkpoint_id and str(file) not in kept:
                    file.unlink(missing_ok=True)

    def dispose(self, location: str, files: Collection[str], keep: Collection[str] = ()) -> None:
        """Remove the metadata, then the files, then what is left in the directory."""
        if is_object(location):
            return
        metadata = local_path(location, "checkpoint path")
        if self.root not in metadata.parents:
            return
        with told(f"the checkpoint at {metadata.parent} can't be removed"):
            metadata.unlink(missing_ok=True)
            self._written.discard(metadata)
        kept = {str(path) for path in keep}
        self._remove(files, kept)
        if _CHECKPOINT.fullmatch(metadata.parent.name):
            with told(f"the checkpoint at {metadata.parent} can't be removed"):
                remove_all_but(metadata.parent, kept)

    def _remove(self, files: Iterable[str], kept: Collection[str]) -> None:
        for file in files:
            path = Path(os.path.normpath(file))
            if file not in kept and str(path) not in kept and self.root in path.parents:
                with told(f"state file {path} can't be removed"):
                    path.unlink(missing_ok=True)
                    if _CHECKPOINT.fullmatch(path.parent.name):
                        _remove_if_empty(path.parent)

    def close_job(self, keep: Collection[str] = ()) -> None:
        """Remove the job's directory, but for checkpoints and what they need."""
        kept = {str(path) for path in keep}
        with told(f"{self.root} can't be removed"):
            left = [directory for _, directory in self._checkpoints()]
            for directory in left:
                if not (directory / METADATA).exists():
                    remove_all_but(directory, kept)
            if any(directory.exists() for directory in left):
                return
            for name in (SHARED, TASK_OWNED):
                remove_all_but(self.root / name, kept)
            if self._own:
                _remove_if_empty(self.root)

    def _shared(self) -> list[tuple[int, Path]]:
        """Shared files, with the checkpoints that they were written for."""
        named = [(_OF_A_CHECKPOINT.match(entry.name), entry) for entry in _entries(self.root / SHARED)]
        return [(int(name[1]), entry) for name, entry in named if name is not None]

    def _checkpoints(self) -> list[tuple[int, Path]]:
        named = [(_CHECKPOINT.fullmatch(entry.name), entry) for entry in _entries(self.root)]
        return sorted((int(name[1]), entry) for name, entry in named if name is not None)


class StateFileWriter(StateWriter):
    """Gathers small state, and writes what is larger to a file that it makes.

    Args:
        head: stands in the file in front of the state; with one there is a line with a checksum behind it.
    """

    def __init__(
        self, path: Path, hint: str, threshold: int, buffer: int, owner: Path | None = None, head: bytes = b""
    ) -> None:
        self._owner = owner or path.parent  # without this directory the checkpoint was given up
        self._head = head
        self._path, self._threshold, self._limit = path, threshold, buffer
        self._what = f"state of {hint!r}" if hint else "state"
        self._buffer = bytearray()
        self._file: io.FileIO | None = None
        self._made = False
        self._closed = False
        self._length = 0
        self._checksum = RunningChecksum()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._check()
        if len(self._buffer) + len(data) <= self._limit:
            self._buffer += data
            return
        self._flush()
        self._append(data)

    def close(self) -> StateHandle:
        self._check()
        if self._file is None and len(self._buffer) < self._threshold:
            self._closed = True
            return InlineState(bytes(self._buffer))
        self._flush()
        assert self._file is not None
        with self._leaving_nothing():
            if self._head:
                self._write(self._file, end_of_state(self._length, self._checksum.hexdigest()))
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None
            sync_directory(self._path.parent)
            if self._owner != self._path.parent:
                os.stat(self._owner)
        self._closed = True
        return FileState(str(self._path), self._length, self._checksum.hexdigest(), len(self._head))

    def abort(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._buffer = bytearray()
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._made:
            with told(f"{self._path} can't be removed"):
                self._path.unlink(missing_ok=True)

    def _check(self) -> None:
        if self._closed:
            raise CheckpointStorageError(f"{self._what}: its writer was closed before")

    def _flush(self) -> None:
        data, self._buffer = self._buffer, bytearray()
        self._append(data)

    def _append(self, data: bytes | bytearray | memoryview) -> None:
        with self._leaving_nothing(), memoryview(data).cast("B") as view:
            if self._file is None:
                self._file = io.FileIO(self._path, "xb")
                self._made = True
                self._write(self._file, self._head)
            self._write(self._file, view)
            self._checksum.update(view)
            self._length += len(view)

    @staticmethod
    def _write(file: io.FileIO, data: bytes | memoryview) -> None:
        written = 0
        while written < len(data):
            written += file.write(data[written:]) or 0

    @contextmanager
    def _leaving_nothing(self) -> Iterator[None]:
        try:
            with told(f"{self._what} can't be written to {self._path.parent}", savepoint=bool(self._head)):
                yield
        except CheckpointStorageError as error:
            try:
                self.abort()
            except CheckpointStorageError:
                error.add_note(f"a part of it may be left in {self._path}")
            raise


def _write_new(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _create(path: Path, data: bytes) -> None:
    """Create a file where there are no links: what a crash cuts off is found by its checksum."""
    try:
        _write_new(path, data)
    except FileExistsError:
        if checksum(path.read_bytes()) != checksum(data):
            raise CheckpointStorageError(
                f"{path} is there already, and holds something else: nothing was overwritten"
            ) from None
    except OSError:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise


def _entries(directory: Path) -> list[Path]:
    """What is in a directory; nothing if it is not there, or not any more."""
    try:
        return list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def remove_all_but(directory: Path, kept: Collection[str]) -> None:
    """Remove a directory, also while others write into it or remove it; if files in it are kept, the others."""
    if any(Path(path).parent == directory for path in kept):
        for entry in _entries(directory):
            if str(entry) not in kept:
                entry.unlink(missing_ok=True)
        return
    for attempt in range(_ATTEMPTS):
        if not directory.exists():
            return
        try:
            shutil.rmtree(directory)
        except FileNotFoundError:
            pass  # somebody else has removed something of it: again, for what may be left
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or attempt == _ATTEMPTS - 1:
                raise


def _remove_if_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:  # somebody keeps something else there
            raise
