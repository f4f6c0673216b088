"""Savepoints: snapshots that belong to the user.

::

    <directory>/savepoint-<begin of the job's id>-<unique>/
        _metadata              names the other files relative to this directory
        <unique>               a line with the version, state, a line with its length and checksum

The directory is one that all hosts see, or a prefix of keys in an object store (``s3_savepoints``). A savepoint is
self-contained: it may be moved or copied, it builds on no checkpoint, and no job removes it, except a job that was
started from it with the claim mode ``CLAIM``. In the canonical format keyed state is written by state and key group, in
the form of the state backend ``hashmap``, whatever the backend is; in the native format as the backend writes its
checkpoints.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from typing_extensions import override

from firesteel.checkpoint.filesystem import DirectoryCheckpointStorage, StateFileWriter, remove_all_but
from firesteel.checkpoint.handles import FileState
from firesteel.checkpoint.metadata import SAVEPOINT, CheckpointMetadata
from firesteel.checkpoint.reading import Plain
from firesteel.checkpoint.state_files import METADATA, end_of_state, translated_errors
from firesteel.checkpoint.state_reader import StateReader
from firesteel.checkpoint.storage import StateWriter
from firesteel.config import Settings, options
from firesteel.core.errors import CheckpointCorruptedError, CheckpointStorageError, CheckpointVersionError

VERSION: Final = 1
"""Version of the files of state."""
HEAD: Final = f"FIRESTEEL-STATE {VERSION}\n".encode()
_FIRST_LINE: Final = re.compile(rb"FIRESTEEL-STATE (\d{1,9})\n")
CANONICAL, NATIVE = "CANONICAL", "NATIVE"
FORMATS: Final = (CANONICAL, NATIVE)
SUSPEND, DRAIN, CANCEL = "suspend", "drain", "cancel"
PROPERTY: Final = SAVEPOINT
OPTION: Final = "savepoint"
"""Option of a barrier: the directory of its savepoint."""
FORMAT_OPTION: Final = "format"
"""Option of a barrier: the format of its savepoint."""
STOP_OPTION: Final = "stop"
"""Option of a barrier behind which the job stops: ``SUSPEND``, or ``DRAIN`` if event time ends in front of it."""
_LARGEST_HEAD: Final = 64


@dataclass(frozen=True)
class SavepointInfo:
    """The properties of a savepoint, in its metadata.

    Attributes:
        format: ``CANONICAL`` or ``NATIVE``.
        stop: how the job has stopped with it, ``SUSPEND`` or ``DRAIN``; empty if the job went on.
        trigger_id: id of the request.
    """

    format: str = CANONICAL
    stop: str = ""
    trigger_id: str = ""

    def to_plain(self) -> dict[str, Any]:
        return {"format": self.format, "stop": self.stop, "trigger_id": self.trigger_id}


def info_of(metadata: CheckpointMetadata) -> SavepointInfo | None:
    """The properties of a savepoint; None if the metadata are those of a checkpoint."""
    plain: Plain = metadata.properties.get(PROPERTY)
    if not isinstance(plain, Mapping):
        return None
    return SavepointInfo(*(str(plain.get(name, "")) for name in ("format", "stop", "trigger_id")))


class SavepointDirectory(Protocol):
    """The directory of one savepoint, wherever it is."""

    def open_state_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        """Open a writer of a file with a version in front of the state, and a checksum behind it."""

    def write(self, metadata: CheckpointMetadata) -> str:
        """Write the metadata, which completes the savepoint; returns its directory. Idempotent for the same metadata.

        Raises:
            CheckpointCorruptedError: a file is missing.
            CheckpointStorageError: they can't be written, or name files elsewhere.
        """

    def remove(self, metadata: CheckpointMetadata) -> None:
        """Remove the savepoint with its files, the metadata first; of a checkpoint, only files that no other one needs.

        Raises:
            CheckpointError: it can't be removed; or another checkpoint beside it can't be read.
        """

    def give_up(self) -> None:
        """Remove a savepoint that did not complete, even while slots write into it. Idempotent.

        Raises:
            CheckpointStorageError: it can't be removed.
        """


class LocalSavepointDirectory(DirectoryCheckpointStorage):
    """A savepoint in a directory that all hosts see.

    Args:
        directory: the directory, which exists.
        settings: configuration of the job.
    """

    name = "savepoint"

    def __init__(self, directory: Path, settings: Settings) -> None:
        self.base = self.root = directory
        self._own_subdirectory = False
        self._threshold = settings.get(options.CHECKPOINTING_INLINE_THRESHOLD)
        self._buffer = max(settings.get(options.CHECKPOINTING_WRITE_BUFFER), self._threshold, 1)
        self._written = set()
        self._reader = StateReader(settings)

    def directory(self, checkpoint_id: int) -> Path:
        return self.root

    @override
    def open_state_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        return StateFileWriter(self.root / uuid.uuid4().hex, hint, self._threshold, self._buffer, head=HEAD)

    def write(self, metadata: CheckpointMetadata) -> str:
        self.verify(metadata.handles())
        self.write_metadata(metadata.checkpoint_id, relative_to(f"{self.root}/", metadata).to_bytes())
        return str(self.root)

    def remove(self, metadata: CheckpointMetadata) -> None:
        removable, shared_files = self.root, set[str]()
        if info_of(metadata) is None:
            # A retained checkpoint may share files with others that were retained beside it.
            removable = self.root.parent
            for other in removable.glob(f"chk-*/{METADATA}"):
                if other.parent != self.root:
                    shared_files |= CheckpointMetadata.from_bytes(self.read_metadata(str(other))[1], str(other)).files()
        with translated_errors(f"{self.root} can't be removed"):
            (self.root / METADATA).unlink(missing_ok=True)
            for file in map(Path, sorted(metadata.files() - shared_files)):
                if removable in file.parents:
                    file.unlink(missing_ok=True)
            with suppress(OSError):  # the user has put other files there
                self.root.rmdir()

    def give_up(self) -> None:
        with translated_errors(f"what is left of the savepoint in {self.root} can't be removed"):
            (self.root / METADATA).unlink(missing_ok=True)
            remove_all_but(self.root, ())


def relative_to(below: str, metadata: CheckpointMetadata) -> CheckpointMetadata:
    """A copy of metadata that names files relative to a directory.

    Args:
        below: the directory, with a slash at its end.
        metadata: metadata of the savepoint.

    Raises:
        CheckpointStorageError: a file is not in that directory.
    """
    for file in metadata.files():
        if not file.startswith(below):
            raise CheckpointStorageError(f"{file} is not below {below}: the savepoint would not be whole")
    return metadata.moved(lambda file: file.removeprefix(below))


def read_savepoint_metadata(path: str, settings: Settings | None = None) -> CheckpointMetadata:
    """Read the metadata of a savepoint or checkpoint, in a directory that this host sees or in an object store.

    Raises:
        CheckpointError: there are none, they are damaged, or they can't be read for now.
        ConfigurationError: the path is malformed, or the settings of its object store are wrong.
    """
    where, data = StateReader(settings or Settings()).read_metadata(path)
    return CheckpointMetadata.from_bytes(data, where)


def check_file(handle: FileState, reader: StateReader) -> None:
    """Check the first and last lines of a file of a savepoint.

    Raises:
        CheckpointCorruptedError: they are not those that were written.
        CheckpointStorageError: the file can't be read for now.
    """
    end = end_of_state(handle.length, handle.checksum)
    whole = FileState(handle.path, handle.offset + handle.length + len(end), "")
    with reader.open_state(whole) as stream:
        head = stream.read(min(handle.offset, _LARGEST_HEAD))
        first = _FIRST_LINE.match(head)
        if first is None:
            raise CheckpointCorruptedError(handle.path, "its first line is damaged, or it is no state of a savepoint")
        if int(first[1]) > VERSION:
            raise CheckpointVersionError(
                handle.path,
                f"it is of version {int(first[1])}, and this Firesteel reads versions up to {VERSION}: go on with the "
                "version that wrote it, or a later one",
            )
        stream.seek(handle.offset + handle.length)
        if stream.read(len(end)) != end:
            raise CheckpointCorruptedError(handle.path, "its last line is not what was written")
