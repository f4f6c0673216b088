"""The checkpoint storage ``filesystem``: a directory that all hosts see.

::

    <execution.checkpointing.dir>/<job id>/
        chk-7/_metadata        description of the checkpoint
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

from typing_extensions import override

from firesteel.checkpoint.handles import FileState, InlineState, RunningChecksum, StateHandle, checksum
from firesteel.checkpoint.places import is_object
from firesteel.checkpoint.state_files import METADATA, check_mounted, end_of_state, local_path, translated_errors
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
"""Attempts to remove a directory into which others still write."""
_KEY: Final = options.CHECKPOINTING_DIRECTORY.key


class DirectoryCheckpointStorage(CheckpointStorage):
    """The checkpoint storage ``filesystem``.

    Args:
        parameters: parameters whose settings have ``execution.checkpointing.dir``.

    Raises:
        ConfigurationError: no directory is set, or it is malformed.
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
        self._own_subdirectory = settings.get(options.CHECKPOINTING_CREATE_SUBDIRECTORY)
        self.root = self.base / parameters.job_id if self._own_subdirectory else self.base
        self._threshold = settings.get(options.CHECKPOINTING_INLINE_THRESHOLD)
        self._buffer = max(settings.get(options.CHECKPOINTING_WRITE_BUFFER), self._threshold, 1)
        self._seen = False
        """Whether the job's directory has existed before, so that it is a fault if it is missing."""
        self._written: set[Path] = set()
        """Metadata that this object has written and not removed. Others in the directory may belong to another job."""

    @property
    def persistent(self) -> bool:
        return True

    def directory(self, checkpoint_id: int) -> Path:
        return self.root / f"chk-{checkpoint_id}"

    # -- slots

    def open_state_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        """Open a writer of a new file, which is created only when it is needed."""
        return StateFileWriter(self.directory(checkpoint_id) / uuid.uuid4().hex, hint, self._threshold, self._buffer)

    def open_shared_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        """Open a writer of a file that stays while any checkpoint uses it; its name has the id of the first one."""
        path = self.root / SHARED / f"{checkpoint_id}-{uuid.uuid4().hex}"
        return StateFileWriter(path, hint, self._threshold, self._buffer, self.directory(checkpoint_id))

    @override
    def open_state(self, handle: StateHandle) -> BinaryIO:
        return self._reader.open_state(handle)

    # -- the JobMaster

    def prepare(self, checkpoint_id: int) -> None:
        metadata = self.directory(checkpoint_id) / METADATA
        with translated_errors(f"{self.root} can't be read"):
            if metadata.exists():
                numbers = [number for number, directory in self._checkpoints() if (directory / METADATA).exists()]
                raise CheckpointNumberTakenError(
                    f"{metadata} is a checkpoint already, of another run: start from it with -s, or use another "
                    f"directory ({_KEY})",
                    max(numbers, default=checkpoint_id),
                )
        if self._seen:
            # Without its file system the mount point would be filled, which may be the job's own directory.
            check_mounted(str(metadata))
        with translated_errors(f"no directory for checkpoint {checkpoint_id} can be made below {self.root}"):
            for directory in (self.root / SHARED, self.root / TASK_OWNED, self.directory(checkpoint_id)):
                directory.mkdir(parents=True, exist_ok=True)
        self._seen = True

    @override
    def verify(self, handles: Iterable[StateHandle]) -> None:
        self._reader.verify(handles)

    def write_metadata(self, checkpoint_id: int, data: bytes) -> str:
        """Create the metadata atomically: write a draft, then link it to its final name, which must be free."""
        directory = self.directory(checkpoint_id)
        final = directory / METADATA
        what = f"the metadata of checkpoint {checkpoint_id} can't be written to {directory}"
        with translated_errors(what):
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
                with suppress(OSError):  # a draft that stays is removed with the directory
                    draft.unlink(missing_ok=True)
            try:
                sync_directory(directory)
                if final.read_bytes() != data:
                    raise CheckpointStorageError(
                        f"{final} does not hold what was written to it: the storage loses data"
                    )
            except (OSError, CheckpointStorageError):
                with suppress(OSError):  # this call has created it, and no store names it yet
                    final.unlink(missing_ok=True)
                raise
        return str(final)

    def read_metadata(self, location: str) -> tuple[str, bytes]:
        """Read the metadata in a file, or in a directory with that file."""
        metadata = self._reader.read_metadata(location)
        with translated_errors(f"{self.root} can't be read"):
            self._seen = self._seen or bool(_entries(self.root))
        return metadata

    @override
    def left_behind(self, below: int) -> list[tuple[int, str, bytes | None]]:
        if not self._own_subdirectory:
            return []
        remains: dict[int, tuple[int, str, bytes | None]] = {}
        with translated_errors(f"{self.root} can't be read"):
            for number, _ in self._shared():
                remains[number] = (number, str(self.directory(number) / METADATA), None)
            for number, directory in self._checkpoints():
                metadata = directory / METADATA
                remains[number] = (number, str(metadata), metadata.read_bytes() if metadata.exists() else None)
        return [entry for number, entry in sorted(remains.items()) if number < below]

    def discard(self, checkpoint_id: int, files: Collection[str] = (), keep: Collection[str] = ()) -> None:
        """Remove the directory, unless another job's checkpoint is in it. Open streams fail when they miss it."""
        kept_files = {str(path) for path in keep}
        self._remove(files, kept_files)
        directory = self.directory(checkpoint_id)
        metadata = directory / METADATA
        with translated_errors(f"what is left of checkpoint {checkpoint_id} can't be removed from {directory}"):
            if metadata in self._written or not metadata.exists():
                remove_all_but(directory, kept_files)
                self._written.discard(metadata)
            for number, file in self._shared() if self._own_subdirectory else ():
                if number == checkpoint_id and str(file) not in kept_files:
                    file.unlink(missing_ok=True)

    def dispose(self, location: str, files: Collection[str], keep: Collection[str] = ()) -> None:
        """Remove the metadata, then the files, then what is left in the directory."""
        if is_object(location):
            return
        metadata = local_path(location, "checkpoint path")
        if self.root not in metadata.parents:
            return
        with translated_errors(f"the checkpoint at {metadata.parent} can't be removed"):
            metadata.unlink(missing_ok=True)
            self._written.discard(metadata)
        kept_files = {str(path) for path in keep}
        self._remove(files, kept_files)
        if _CHECKPOINT.fullmatch(metadata.parent.name):
            with translated_errors(f"the checkpoint at {metadata.parent} can't be removed"):
                remove_all_but(metadata.parent, kept_files)

    def _remove(self, files: Iterable[str], kept_files: Collection[str]) -> None:
        for file in files:
            path = Path(os.path.normpath(file))
            if file not in kept_files and str(path) not in kept_files and self.root in path.parents:
                with translated_errors(f"state file {path} can't be removed"):
                    path.unlink(missing_ok=True)
                    if _CHECKPOINT.fullmatch(path.parent.name):
                        _remove_if_empty(path.parent)

    def close_job(self, keep: Collection[str] = ()) -> None:
        """Remove the job's directory, but for checkpoints and what they need."""
        kept_files = {str(path) for path in keep}
        with translated_errors(f"{self.root} can't be removed"):
            directories = [directory for _, directory in self._checkpoints()]
            for directory in directories:
                if not (directory / METADATA).exists():
                    remove_all_but(directory, kept_files)
            if any(directory.exists() for directory in directories):
                return
            for name in (SHARED, TASK_OWNED):
                remove_all_but(self.root / name, kept_files)
            if self._own_subdirectory:
                _remove_if_empty(self.root)

    def _shared(self) -> list[tuple[int, Path]]:
        """Shared files, with the checkpoints that they were written for."""
        named = [(_OF_A_CHECKPOINT.match(entry.name), entry) for entry in _entries(self.root / SHARED)]
        return [(int(name[1]), entry) for name, entry in named if name is not None]

    def _checkpoints(self) -> list[tuple[int, Path]]:
        named = [(_CHECKPOINT.fullmatch(entry.name), entry) for entry in _entries(self.root)]
        return sorted((int(name[1]), entry) for name, entry in named if name is not None)


class StateFileWriter(StateWriter):
    """Buffers small state, which becomes inline, and writes larger state to a file.

    Args:
        path: path of the file.
        hint: what the state is, for errors.
        threshold: bytes below which state becomes inline.
        buffer: bytes that are buffered before they are written.
        owner: directory of the checkpoint; if it is missing, the checkpoint was given up.
        head: bytes in the file in front of the state. With a head, a line with a checksum follows the state.
    """

    def __init__(
        self, path: Path, hint: str, threshold: int, buffer: int, owner: Path | None = None, head: bytes = b""
    ) -> None:
        self._owner = owner or path.parent
        self._head = head
        self._path, self._threshold, self._limit = path, threshold, buffer
        self._what = f"state of {hint!r}" if hint else "state"
        self._buffer = bytearray()
        self._file: io.FileIO | None = None
        self._created = False
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
                os.stat(self._owner)  # fails if the checkpoint was given up meanwhile
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
        if self._created:
            with translated_errors(f"{self._path} can't be removed"):
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
                self._created = True
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
        """Remove the file if the block fails, as the contract demands."""
        try:
            with translated_errors(f"{self._what} can't be written to {self._path.parent}", savepoint=bool(self._head)):
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
    """Create a file on a file system without links; if a crash cuts it off, its checksum is wrong."""
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
    """The entries of a directory; none if it does not exist, or not any more."""
    try:
        return list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def remove_all_but(directory: Path, kept_files: Collection[str]) -> None:
    """Remove a directory, even while others write into it or remove it; if it holds kept files, all but those."""
    if any(Path(path).parent == directory for path in kept_files):
        for entry in _entries(directory):
            if str(entry) not in kept_files:
                entry.unlink(missing_ok=True)
        return
    for attempt in range(_ATTEMPTS):
        if not directory.exists():
            return
        try:
            shutil.rmtree(directory)
        except FileNotFoundError:
            pass  # another process has removed a part of it: try again
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or attempt == _ATTEMPTS - 1:
                raise


def _remove_if_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:  # other files are in it
            raise
