"""Savepoints: snapshots that belong to the user.

::

    <directory>/savepoint-<begin of the job's id>-<unique>/
        _metadata              names the other files relative to this directory
        <unique>               a line with the version, state, a line with its length and checksum

The directory is one that all hosts see, or the begin of keys in an object store (``s3_savepoints``).
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
from typing import Any, Final, Protocol

from typing_extensions import override

from firesteel.checkpoint.filesystem import DirectoryCheckpointStorage, StateFileWriter, remove_all_but
from firesteel.checkpoint.handles import FileState
from firesteel.checkpoint.metadata import SAVEPOINT, CheckpointMetadata
from firesteel.checkpoint.reading import Plain
from firesteel.checkpoint.state_files import METADATA, end_of_state, told
from firesteel.checkpoint.state_reader import StateReader
from firesteel.checkpoint.storage import StateWriter
from firesteel.config import Settings, options
from firesteel.core.errors import CheckpointCorruptedError, CheckpointStorageError, CheckpointVersionError

VERSION: Final = 1
"""Of the files of state."""
HEAD: Final = f"FIRESTEEL-STATE {VERSION}\n".encode()
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
        return {"format": self.format, "stop": self.stop, "trigger_id": self.trigger_id}


def info_of(metadata: CheckpointMetadata) -> SavepointInfo | None:
    """None: it is a checkpoint."""
    plain: Plain = metadata.properties.get(PROPERTY)
    if not isinstance(plain, Mapping):
        return None
    return SavepointInfo(*(str(plain.get(name, "")) for name in ("format", "stop", "trigger_id")))


class SavepointDirectory(Protocol):
    """The directory of one savepoint, wherever it is."""

    def open_state_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        """A writer of a file that says what it is, and whether it is whole."""

    def write(self, metadata: CheckpointMetadata) -> str:
        """Write the metadata, which completes it; returns the directory. The same may be written again.

        Raises:
            CheckpointCorruptedError: a file is missing.
            CheckpointStorageError: they can't be written, or name files elsewhere.
        """

    def remove(self, metadata: CheckpointMetadata) -> None:
        """Remove what is there with its files, the metadata first; of a checkpoint, but for what others beside it need.

        Raises:
            CheckpointError: it can't be removed; or another checkpoint beside it can't be read.
        """

    def give_up(self) -> None:
        """Remove one that did not complete, also while slots write into it; harmless to repeat.

        Raises:
            CheckpointStorageError: it can't be removed.
        """


class LocalSavepointDirectory(DirectoryCheckpointStorage):
    """A directory that all hosts see.

    Args:
        directory: made before.
        settings: of the job.
    """

    name = "savepoint"

    def __init__(self, directory: Path, settings: Settings) -> None:
        self.base = self.root = directory
        self._own = False
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
        """See ``SavepointDirectory``."""
        self.verify(metadata.handles())
        self.write_metadata(metadata.checkpoint_id, relative_to(f"{self.root}/", metadata).to_bytes())
        return str(self.root)

    def remove(self, metadata: CheckpointMetadata) -> None:
        """See ``SavepointDirectory``."""
        own, kept = self.root, set[str]()
        if info_of(metadata) is None:  # it may share files with others that were retained beside it
            own = self.root.parent
            for other in own.glob(f"chk-*/{METADATA}"):
                if other.parent != self.root:
                    kept |= CheckpointMetadata.from_bytes(self.read_metadata(str(other))[1], str(other)).files()
        with told(f"{self.root} can't be removed"):
            (self.root / METADATA).unlink(missing_ok=True)
            for file in map(Path, sorted(metadata.files() - kept)):
                if own in file.parents:
                    file.unlink(missing_ok=True)
            with suppress(OSError):  # somebody else has put something there
                self.root.rmdir()

    def give_up(self) -> None:
        """See ``SavepointDirectory``."""
        with told(f"what is left of the savepoint in {self.root} can't be removed"):
            (self.root / METADATA).unlink(missing_ok=True)
            remove_all_but(self.root, ())


def relative_to(below: str, metadata: CheckpointMetadata) -> CheckpointMetadata:
    """The same, which name their files relative to a directory.

    Args:
        below: the directory, with a slash at its end.
        metadata: of the savepoint.

    Raises:
        CheckpointStorageError: they name files elsewhere.
    """
    for file in metadata.files():
        if not file.startswith(below):
            raise CheckpointStorageError(f"{file} is not below {below}: the savepoint would not be whole")
    return metadata.moved(lambda file: file.removeprefix(below))


def read_savepoint_metadata(path: str, settings: Settings | None = None) -> CheckpointMetadata:
    """The metadata of a savepoint, or of a checkpoint, in a directory that this host sees or in an object store.

    Raises:
        CheckpointError: they are not there, are damaged, or can't be read for now.
        ConfigurationError: it is no path, or the settings of its object store are wrong.
    """
    where, data = StateReader(settings or Settings()).read_metadata(path)
    return CheckpointMetadata.from_bytes(data, where)


def check_file(handle: FileState, reader: StateReader) -> None:
    """Whether a file of a savepoint is what was written, by what stands in it.

    Raises:
        CheckpointCorruptedError: it is not.
        CheckpointStorageError: it can't be read for now.
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
