"""The contract of checkpoint storages.

A **checkpoint storage** is a plain class, found by the name in ``execution.checkpointing.storage``: ``jobmanager``,
``filesystem`` and ``s3`` are built in, others come by the entry point group ``firesteel.checkpoint_storages``. It is
made with ``StorageParameters``, once in the JobMaster and once in each slot of a job, and must not do any I/O then:
what it can tell from the settings alone (a directory is missing, or of a scheme it does not know) it raises as
``ConfigurationError``. ``firesteel.testing.check_checkpoint_storage`` holds a storage against what follows.

All methods may block, and are called on threads that may wait; one storage object may be called by several threads at
once. What can't be done for now or for lack of space or rights is a ``CheckpointStorageError``, which says what to do;
what is not there or not what was written is a ``CheckpointCorruptedError``.

**State.** A slot calls ``open_state_stream`` for each piece of state, writes, and calls ``close``, which gives the
handle, or ``abort``. Two streams never share a file, whatever their checkpoint and hint, also in two processes and
after a restart. When ``close`` has returned, the data are durable: they outlive the process and, as far as the medium
can promise it, the machine. After ``abort``, or when ``write`` or ``close`` has raised, nothing is left. Small state
may be kept in the handle itself (``InlineState``). ``open_state`` gives a stream over exactly the bytes of a handle;
it raises if the file is missing or too short. ``read_state`` gives all bytes and compares their checksum. ``verify``
looks whether what handles name is there, without reading it.

What several checkpoints may use goes through ``open_shared_stream``, if a storage has such pieces: they stay when they
are named in ``keep`` of ``dispose``, and when the job is closed as long as a checkpoint is there.

**Checkpoints.** Before a checkpoint is triggered the JobMaster calls ``prepare`` with its id. ``write_metadata``
creates the metadata: all of them or, after an error or a crash, none; it never writes over others. When it is called
again with the same bytes it succeeds again (the answer may have been lost); with other bytes it raises and changes
nothing. It returns the *location*: a text that any process and later run of the job can give to ``read_metadata``.
``persistent`` says whether locations outlive the JobMaster; where they do not, the metadata are kept by whoever wants
to recover from it.

**Removing.** ``discard`` removes all that belongs to a checkpoint that did not complete: streams that are still open
for it must fail, and never come back. ``dispose`` removes a completed one, its metadata first, so that one that is half
removed is none. ``close_job`` is called when the job has ended: it removes what is left of the job except for
checkpoints that are there, and is not called for a job that may be recovered. Each of them leaves the files that are
named in ``keep``, since checkpoints that stay need them, is harmless to repeat, and removes nothing outside of the
job's own place. ``left_behind`` names what is there of checkpoints, complete or not: what an earlier JobMaster of the
job could not remove is found by it, and then given to ``discard`` or ``dispose``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from firesteel.checkpoint.handles import InlineState, StateHandle, checksum
from firesteel.checkpoint.places import HDFS, is_object
from firesteel.config import Settings, options
from firesteel.core.errors import CheckpointCorruptedError, ConfigurationError
from firesteel.core.plugins import load

GROUP: Final = "firesteel.checkpoint_storages"


@dataclass(frozen=True)
class StorageParameters:
    """What a storage is made with.

    Attributes:
        job_id: 32 hex digits.
        settings: of the job, the cluster's below.
    """

    job_id: str
    settings: Settings = field(default_factory=Settings)


class StateWriter(ABC):
    """Writes one piece of state."""

    @abstractmethod
    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append.

        Raises:
            CheckpointStorageError: it can't be written; the writer is of no use any more.
        """

    @abstractmethod
    def close(self) -> StateHandle:
        """Make it durable.

        Raises:
            CheckpointStorageError: it can't be; nothing is left of it.
        """

    @abstractmethod
    def abort(self) -> None:
        """Leave nothing behind. Harmless after ``close``, ``abort`` and errors."""

    def __enter__(self) -> StateWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


class CheckpointStorage(ABC):
    """A plug-in; see the head of this module.

    Args:
        parameters: of the job.
    """

    name: str

    @abstractmethod
    def __init__(self, parameters: StorageParameters) -> None: ...

    @property
    @abstractmethod
    def persistent(self) -> bool:
        """Whether metadata outlive the JobMaster."""

    def check(self) -> None:  # noqa: B027 # most have nothing to look at
        """See whether checkpoints can be written with these settings, before a job starts that has none.

        Raises:
            ConfigurationError: they can't, until somebody changes something.
            CheckpointStorageError: not for now, or it can't be told.
        """

    # -- slots

    @abstractmethod
    def open_state_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        """A writer of a piece of state.

        Args:
            checkpoint_id: that it belongs to.
            hint: what it is, for errors and people: the name of the operator, say.

        Raises:
            CheckpointStorageError: nothing can be written.
        """

    def open_shared_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter | None:
        """The same, for a piece that later checkpoints may use too; None = the storage has none such: it is all whole.

        Args:
            checkpoint_id: that it is written for; the stream fails once that one was discarded.
            hint: as above.

        Raises:
            CheckpointStorageError: nothing can be written.
        """
        return None

    @abstractmethod
    def open_state(self, handle: StateHandle) -> BinaryIO:
        """A seekable stream over the bytes of a handle; whoever reads to the end compares the checksum.

        Raises:
            CheckpointCorruptedError: the file is missing, or too short.
            CheckpointStorageError: it can't be read for now.
        """

    def read_state(self, handle: StateHandle) -> bytes:
        """All bytes of a handle.

        Raises:
            CheckpointCorruptedError: the file is missing, too short or changed.
            CheckpointStorageError: it can't be read for now.
        """
        if isinstance(handle, InlineState):
            return handle.data
        with self.open_state(handle) as stream:
            data = stream.read()
        if len(data) != handle.length or checksum(data) != handle.checksum:
            raise CheckpointCorruptedError(handle.path, "its checksum is wrong: it was changed after it was written")
        return data

    # -- the JobMaster

    @abstractmethod
    def prepare(self, checkpoint_id: int) -> None:
        """Make room for a checkpoint.

        Raises:
            CheckpointNumberTakenError: there is a checkpoint with this id, of another run say.
            CheckpointStorageError: nothing can be written.
        """

    @abstractmethod
    def verify(self, handles: Iterable[StateHandle]) -> None:
        """Look whether all files are there, and as long as they have to be.

        Raises:
            CheckpointCorruptedError: one is missing, or too short.
            CheckpointStorageError: it can't be told for now.
        """

    @abstractmethod
    def write_metadata(self, checkpoint_id: int, data: bytes) -> str:
        """Create the metadata of a checkpoint, whose location is returned.

        Raises:
            CheckpointStorageError: they can't be written, or there are others.
        """

    @abstractmethod
    def read_metadata(self, location: str) -> tuple[str, bytes]:
        """The metadata at a location.

        Args:
            location: from ``write_metadata``, or what a user has written: a checkpoint's directory will do.

        Returns:
            path of the metadata, for errors, and their bytes.

        Raises:
            CheckpointCorruptedError: there are none.
            CheckpointStorageError: they can't be read for now.
        """

    @abstractmethod
    def left_behind(self, below: int) -> list[tuple[int, str, bytes | None]]:
        """What is there of the job's checkpoints.

        A storage that can't look, or whose place is not the job's alone, gives nothing.

        Args:
            below: ids have to be smaller.

        Returns:
            id, location, and metadata if there are any, of each.

        Raises:
            CheckpointStorageError: it can't be told for now.
        """

    @abstractmethod
    def discard(self, checkpoint_id: int, files: Collection[str] = (), keep: Collection[str] = ()) -> None:
        """Remove a checkpoint that did not complete, with these files of it, but for those that others need.

        Where a checkpoint stands that is complete, it is somebody else's: only these files go.
        """

    @abstractmethod
    def dispose(self, location: str, files: Collection[str], keep: Collection[str] = ()) -> None:
        """Remove a completed checkpoint with its files, but for those that others need."""

    @abstractmethod
    def close_job(self, keep: Collection[str] = ()) -> None:
        """The job has ended; checkpoints that stay need these files."""


def storage_name(settings: Settings) -> str:
    """The name of the storage that settings ask for: as Flink, ``filesystem`` if there is a directory; ``s3`` or
    ``hdfs`` if that is there, which is a file system to Flink."""
    directory = settings.get(options.CHECKPOINTING_DIRECTORY)
    named = settings.get(options.CHECKPOINTING_STORAGE) or ("filesystem" if directory else "jobmanager")
    return stored_in(directory) if named == "filesystem" and directory and is_object(directory) else named


def stored_in(directory: str) -> str:
    """The name of the storage for a directory, by its scheme alone."""
    if not is_object(directory):
        return "filesystem"
    return HDFS if directory.lower().startswith(f"{HDFS}:") else "s3"


def load_checkpoint_storage(parameters: StorageParameters) -> CheckpointStorage:
    """The storage of a job.

    Raises:
        ConfigurationError: there is none of that name (the message lists those that are known), or its settings are
            wrong.
    """
    name = storage_name(parameters.settings)
    try:
        made: type[CheckpointStorage] = load(GROUP, name)
    except ConfigurationError as error:
        raise ConfigurationError(f"{options.CHECKPOINTING_STORAGE.key} = {name!r}: {error}") from error
    return made(parameters)
