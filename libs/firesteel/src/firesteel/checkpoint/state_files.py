"""Reads files of checkpoints from directories that this host sees, and translates errors of the operating system."""

from __future__ import annotations

import errno
import io
import os
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import unquote, urlsplit

from firesteel.checkpoint.handles import FileState, StateHandle
from firesteel.checkpoint.places import is_object
from firesteel.config import options
from firesteel.core.call_pool import CallPool
from firesteel.core.errors import CheckpointCorruptedError, CheckpointStorageError, ConfigurationError

METADATA: Final = "_metadata"
CHECKPOINT_PATH: Final = f"checkpoint path ({options.STATE_RECOVERY_PATH.key}, -s)"
_KEY: Final = options.CHECKPOINTING_DIRECTORY.key
_DIRECTORY: Final = "it is a directory, and should be a file"
_FEW_FILES: Final = 16
_LOOKERS: Final = 16
"""Threads that check files, if there are more than ``_FEW_FILES``."""
_MISSING: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})


def local_path(text: str, what: str) -> Path:
    """The directory or file that a path or ``file:`` URI names.

    Args:
        text: path, as the user wrote it.
        what: what the path is, named in errors.

    Raises:
        ConfigurationError: it has another scheme, is not absolute, or malformed.
    """
    parts = urlsplit(text)
    if parts.scheme and "://" in text and parts.scheme != "file":
        raise ConfigurationError(
            f"{what} = {text!r}: paths are of directories that are mounted on all hosts (file:///...), or of an object "
            f"store (s3://bucket/...), not of {parts.scheme}://"
        )
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise ConfigurationError(f"{what} = {text!r}: a file URI names no host (file:///directory)")
        path = Path(unquote(parts.path))
    else:
        path = Path(text)
    if "\0" in str(path):
        raise ConfigurationError(f"{what} = {text!r}: a path holds no zero byte")
    if not path.is_absolute():
        raise ConfigurationError(f"{what} = {text!r}: the path has to be absolute, since services run elsewhere")
    return path


def end_of_state(length: int, checksum: str) -> bytes:
    """The last line of a file of a savepoint, by which it can be checked without its metadata."""
    return f"\nFIRESTEEL-STATE-END {length} {checksum}\n".encode()


def open_state_file(handle: FileState) -> BinaryIO:
    """Open a seekable stream over the bytes of a handle.

    Raises:
        CheckpointCorruptedError: the file is missing, too short, or a directory.
        CheckpointStorageError: it can't be read for now.
    """
    with translated_errors(f"state file {handle.path} can't be read", missing=handle.path, of_checkpoint=True):
        raw = open(handle.path, "rb", buffering=0)  # noqa: SIM115 # the caller closes it
        size = os.fstat(raw.fileno()).st_size
    if size < handle.offset + handle.length:
        raw.close()
        raise _short(handle, size)
    return io.BufferedReader(_Window(raw, handle), buffer_size=1 << 16)


def verify_state_files(handles: Iterable[StateHandle]) -> None:
    """Check the size of each file; of many in parallel, as the file system may be on a network.

    Raises:
        CheckpointCorruptedError: a file is missing, or too short.
        CheckpointStorageError: they can't be checked for now.
    """
    ends: dict[str, FileState] = {}  # of each file the handle that reaches furthest
    for handle in handles:
        if isinstance(handle, FileState):
            furthest = ends.get(handle.path)
            if furthest is None or furthest.offset + furthest.length < handle.offset + handle.length:
                ends[handle.path] = handle
    if len(ends) <= _FEW_FILES:
        for handle in ends.values():
            _verify(handle)
        return
    with CallPool("state files", _LOOKERS, deadline=None) as threads:
        looks = [threads.submit(_verify, handle) for handle in ends.values()]
        try:
            for look in looks:
                look.result()
        finally:
            for look in looks:
                look.cancel()


def _verify(handle: FileState) -> None:
    """Check that a file exists, and is long enough for a handle."""
    with translated_errors(f"state file {handle.path} can't be looked at", missing=handle.path, of_checkpoint=True):
        status = os.stat(handle.path)
    if stat.S_ISDIR(status.st_mode):
        raise CheckpointCorruptedError(handle.path, _DIRECTORY)
    if status.st_size < handle.offset + handle.length:
        raise _short(handle, status.st_size)


def read_metadata_file(location: str) -> tuple[str, bytes]:
    """Read the metadata in a file, or in a directory with that file; returns the path of the file, and its bytes.

    Raises:
        ConfigurationError: the location is malformed.
        CheckpointCorruptedError: there are none.
        CheckpointStorageError: they can't be read for now.
    """
    path = local_path(location, CHECKPOINT_PATH)
    with translated_errors(f"{path} can't be read", missing=str(path)):
        if path.is_dir():
            path = path / METADATA
        try:
            return str(path), path.read_bytes()
        except FileNotFoundError:
            raise CheckpointCorruptedError(str(path), f"{_no_metadata(path)}{_looked()}") from None


def _no_metadata(path: Path) -> str:
    if path.name != METADATA or not path.parent.is_dir():
        return f"there is no such file or directory{_mount_hint(path.parent)}"
    checkpoints = sorted(entry.parent.name for entry in path.parent.glob(f"chk-*/{METADATA}"))
    hint = f"; checkpoints in this directory: {', '.join(checkpoints)}" if checkpoints else ""
    return f"there is no checkpoint, for it has no metadata{hint}"


def _mount_hint(directory: Path) -> str:
    """Advice for errors about a missing file whose directory is missing or empty as well."""
    try:
        if next(directory.iterdir(), None) is not None:
            return ""
        condition = "is empty"
    except OSError:
        condition = "is not there either"
    return f"; {directory} {condition}: is its file system mounted?"


def _short(handle: FileState, size: int) -> CheckpointCorruptedError:
    needed = handle.offset + handle.length
    return CheckpointCorruptedError(handle.path, f"it is cut off: {size} bytes are there of {needed}")


class _Window(io.RawIOBase):
    """A part of a file, as a file of its own."""

    def __init__(self, raw: io.FileIO, handle: FileState) -> None:
        self._raw, self._handle, self._position = raw, handle, 0
        raw.seek(handle.offset)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._handle.length}[whence]
        self._position = max(0, start + offset)
        self._raw.seek(self._handle.offset + self._position)
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # a writable buffer, in typeshed's words
        room = min(len(buffer), max(0, self._handle.length - self._position))
        with translated_errors(f"state file {self._handle.path} can't be read"):
            count = self._raw.readinto(memoryview(buffer)[:room]) or 0
        if room and not count:
            raise _short(self._handle, self._handle.offset + self._position)
        self._position += count
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


@contextmanager
def translated_errors(
    what: str, missing: str = "", *, savepoint: bool = False, of_checkpoint: bool = False
) -> Iterator[None]:
    """Translate errors of the operating system into errors that say what to do.

    Args:
        what: text that says what could not be done.
        missing: path of a file that has to exist; if it does not, a checkpoint is corrupted.
        savepoint: whether it was for a savepoint, whose directory the user has chosen.
        of_checkpoint: whether the file belongs to a completed checkpoint, so that ``check_mounted`` applies.

    Raises:
        CheckpointCorruptedError: the file is missing, or a directory.
        CheckpointStorageError: any other error.
    """
    try:
        yield
    except OSError as error:
        if missing and error.errno in _MISSING:
            if of_checkpoint:
                check_mounted(missing)
            raise CheckpointCorruptedError(missing, f"the file is missing{_looked()}") from error
        if missing and error.errno == errno.EISDIR:
            raise CheckpointCorruptedError(missing, _DIRECTORY) from error
        raise CheckpointStorageError(
            f"{what}, on {socket.gethostname()}: {error.strerror or error}"
            f"{_advice(error, reading=bool(missing), savepoint=savepoint)}"
        ) from error


def check_mounted(file: str) -> None:
    """Tell whether a file of a checkpoint was removed, or its file system is not mounted.

    A checkpoint is a directory within that of its job, or within one with others, which exists and is not empty as long
    as there is any checkpoint. The mount point of a file system that is not mounted is missing or empty.

    Args:
        file: metadata or state of a checkpoint that a store of checkpoints names; objects in a store are ignored.

    Raises:
        CheckpointStorageError: the file system is not mounted, which may be temporary.
    """
    if is_object(file):
        return
    directory = local_path(file, CHECKPOINT_PATH).parent.parent
    try:
        if next(directory.iterdir(), None) is not None:
            return
        condition = "is empty"
    except (FileNotFoundError, NotADirectoryError):
        condition = "is not there"
    except OSError as error:
        condition = f"can't be read ({error.strerror or error})"
    raise CheckpointStorageError(
        f"{directory}, with all checkpoints in it, {condition} on {socket.gethostname()}: is its file system mounted?"
    )


def _looked() -> str:
    return f" (looked for on {socket.gethostname()})"


def _advice(error: OSError, *, reading: bool, savepoint: bool) -> str:
    elsewhere = "take the savepoint into another directory" if savepoint else f"set {_KEY} to another directory"
    match error.errno:
        case errno.EACCES | errno.EPERM if reading:
            return ". Let the cluster's user read it"
        case errno.ENOSPC | errno.EDQUOT:
            return f". Make room, keep fewer checkpoints, or {elsewhere}"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f". Let the cluster's user write there, or {elsewhere}"
        case errno.ENOENT:
            directory = "the directory of a savepoint" if savepoint else _KEY
            return f". {directory} has to be one that all hosts see; or the checkpoint was given up meanwhile"
    return ""
