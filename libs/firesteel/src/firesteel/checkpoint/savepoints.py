"""Savepoints: snapshots that belong to the user.

::

    <directory>/savepoint-<begin of the job's id>-<unique>/
        _metadata              names the other files relative to this directory
        <unique>               a line with the version, state, a line with its length and checksum

A savepoint is whole in its directory: it may be moved or copied, builds on no checkpoint, and no job ever removes it,
unless it was started with the claim mode ``CLAIM``. In the canonical format state by key is written by state and key
group, in the form of the state backend ``hashmap``, whatever backend has it; in the native format as the backend writes
its checkpoints.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from firesteel.checkpoint.filesystem import FileSystemCheckpointStorage, StateFileWriter, end_of_state, remove_all_but
from firesteel.checkpoint.handles import FileState
from firesteel.checkpoint.metadata import SAVEPOINT, CheckpointMetadata
from firesteel.checkpoint.reading import Plain
from firesteel.checkpoint.state_files import (
    METADATA,
    local_path,
    open_state_file,
    read_metadata_file,
    told,
)
from firesteel.checkpoint.state_reader import StateReader
from firesteel.checkpoint.storage import StateWriter
from firesteel.config import Settings, options
from firesteel.core.errors import CheckpointCorruptedError, CheckpointStorageError, ConfigurationError
from firesteel.core.files import sync_directory

VERSION: Final = 1
"""Of the files of state."""
_HEAD: Final = f"FIRESTEEL-STATE {VERSION}\n".encode()
_FIRST_LINE: Final = re.compile(rb"FIRESTEEL-STATE (\d{1,9})\n")
CANONICAL, NATIVE = "CANONICAL", "NATIVE"
FORMATS: Final = (CANONICAL, NATIVE)
SUSPEND, DRAIN, CANCEL = "suspend", "drain", "cancel"
PROPERTY: Final = SAVEPOINT
OPTION: Final = "savepoint"
"""Of a barrier: the directory of the savepoint that it is of."""
FORMAT_OPTION: Final = "format"
STOP_OPTION: Final = "stop"
"""Of a barrier: nothing comes behind it; ``SUSPEND``, or ``DRAIN``: event time ends in front of it."""
_LARGEST_HEAD: Final = 64


@dataclass(frozen=True)
class SavepointInfo:
    """What the metadata of a savepoint say of it.

    Attributes:
        format: ``CANONICAL`` or ``NATIVE``.
        stop: how the job has ended with it: ``SUSPEND``, ``DRAIN``; empty: it went on.
        trigger_id: of the request.
    """

    format: str = CANONICAL
    stop: str = ""
    trigger_id: str = ""

    def to_plain(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {"format": self.format, "stop": self.stop, "trigger_id": self.trigger_id}


def info_of(metadata: CheckpointMetadata) -> SavepointInfo | None:
    """None: it is a checkpoint."""
    plain: Plain = metadata.properties.get(PROPERTY)
    if not isinstance(plain, Mapping):
        return None
    return SavepointInfo(*(str(plain.get(name, "")) for name in ("format", "stop", "trigger_id")))


def make_directory(target: str, job_id: str) -> str:
    """A new directory for a savepoint.

    Raises:
        CheckpointStorageError: it can't be made.
        ConfigurationError: the target is no path.
    """
    base = local_path(target, "target directory")
    made = base / f"savepoint-{job_id[:6]}-{uuid.uuid4().hex[:12]}"
    with told(f"the savepoint's directory {made} can't be made"):
        base.mkdir(parents=True, exist_ok=True)
        made.mkdir()
        sync_directory(base)
    return str(made)


class SavepointDirectory(FileSystemCheckpointStorage):
    """The directory of one savepoint, which is everything that it has.

    Args:
        directory: made before.
        settings: of the job.
    """

    name = "savepoint"

    def __init__(self, directory: str, settings: Settings | None = None) -> None:
        settings = settings or Settings()
        self.base = self.root = local_path(directory, "directory of the savepoint")
        self._own = False
        self._threshold = settings.get(options.CHECKPOINTING_INLINE_THRESHOLD)
        self._buffer = max(settings.get(options.CHECKPOINTING_WRITE_BUFFER), self._threshold, 1)
        self._written = set()
        self._reader = StateReader(settings)

    def directory(self, checkpoint_id: int) -> Path:
        """Always the same."""
        return self.root

    def open_state_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        """A writer of a file that says what it is, and whether it is whole."""
        return StateFileWriter(self.root / uuid.uuid4().hex, hint, self._threshold, self._buffer, head=_HEAD)

    def write(self, metadata: CheckpointMetadata) -> str:
        """Write the metadata; returns the directory.

        Raises:
            CheckpointCorruptedError: a file is missing.
            CheckpointStorageError: they can't be written, or name files elsewhere.
        """
        self.verify(metadata.handles())
        below = f"{self.root}/"
        for file in metadata.files():
            if not file.startswith(below):
                raise CheckpointStorageError(f"{file} is not below {self.root}: the savepoint would not be whole")
        relative = metadata.moved(lambda file: file.removeprefix(below))
        self.write_metadata(metadata.checkpoint_id, relative.to_bytes())
        return str(self.root)


def read_savepoint_metadata(path: str) -> CheckpointMetadata:
    """The metadata of a savepoint, or of a checkpoint, in a directory that this host sees.

    Raises:
        CheckpointError: they are not there, are damaged, or can't be read for now.
        ConfigurationError: it is no path.
    """
    where, data = read_metadata_file(path)
    return CheckpointMetadata.from_bytes(data, where)


def check_file(handle: FileState) -> None:
    """Whether a file of a savepoint is what was written, by what stands in it.

    Raises:
        CheckpointCorruptedError: it is not.
        CheckpointStorageError: it can't be read for now.
    """
    end = end_of_state(handle.length, handle.checksum)
    whole = FileState(handle.path, handle.offset + handle.length + len(end), "")
    with open_state_file(whole) as stream:
        head = stream.read(min(handle.offset, _LARGEST_HEAD))
        first = _FIRST_LINE.match(head)
        if first is None:
            raise CheckpointCorruptedError(handle.path, "its first line is damaged, or it is no state of a savepoint")
        if int(first[1]) > VERSION:
            raise CheckpointCorruptedError(
                handle.path, f"it is of version {int(first[1])}, and this Firesteel reads versions up to {VERSION}"
            )
        stream.seek(handle.offset + handle.length)
        if stream.read(len(end)) != end:
            raise CheckpointCorruptedError(handle.path, "its last line is not what was written")


def dispose(path: str) -> None:
    """Remove a savepoint: its metadata first, so that one that is half removed is none.

    Raises:
        ConfigurationError: it is a checkpoint, or no path.
        CheckpointError: there is none, it is damaged, or it can't be removed.
    """
    metadata = read_savepoint_metadata(path)
    directory = _directory_of(path)
    if info_of(metadata) is None:
        raise ConfigurationError(
            f"{directory} is checkpoint {metadata.checkpoint_id} of job {metadata.job_id}, and no savepoint: nothing "
            "was removed. Checkpoints go with their job; one that was retained is removed with its directory"
        )
    remove(str(directory), metadata)


def remove(path: str, metadata: CheckpointMetadata) -> None:
    """Remove a savepoint or a checkpoint that a job has taken over, with its files; harmless to repeat.

    Raises:
        CheckpointError: it can't be removed; or another one beside it can't be read, which may need the same files.
    """
    directory = _directory_of(path)
    own, kept = directory, set[str]()
    if info_of(metadata) is None:  # it may share files with others that were retained beside it
        own = directory.parent
        for other in own.glob(f"chk-*/{METADATA}"):
            if other.parent != directory:
                kept |= read_savepoint_metadata(str(other)).files()
    with told(f"{directory} can't be removed"):
        (directory / METADATA).unlink(missing_ok=True)
        for file in map(Path, sorted(metadata.files() - kept)):
            if own in file.parents:
                file.unlink(missing_ok=True)
        with suppress(OSError):  # somebody else has put something there
            directory.rmdir()


def remove_directory(directory: str) -> None:
    """Remove the directory of a savepoint that did not complete, also while slots write into it; harmless to repeat.

    Raises:
        CheckpointStorageError: it can't be removed.
    """
    path = local_path(directory, "directory of the savepoint")
    with told(f"what is left of the savepoint in {path} can't be removed"):
        (path / METADATA).unlink(missing_ok=True)
        remove_all_but(path, ())


def remove_claimed(path: str, keep: frozenset[str]) -> None:
    """Remove what a job was started from with ``CLAIM``, if it is there; harmless to repeat.

    Args:
        path: of it.
        keep: files that are needed.

    Raises:
        CheckpointError: it can't be read or removed for now.
    """
    try:
        metadata = read_savepoint_metadata(path)
    except CheckpointCorruptedError:
        return
    if not keep & metadata.files():
        remove(path, metadata)


def _directory_of(path: str) -> Path:
    found = local_path(path, "savepoint path")
    return found.parent if found.name == METADATA else found
