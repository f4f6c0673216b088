"""The contract of checkpoint storages.

A **checkpoint storage** is a plain class, found by the name in ``execution.checkpointing.storage``: ``jobmanager``,
``filesystem`` and ``s3`` are built in, others come from the entry point group ``firesteel.checkpoint_storages``. It is
made with ``StorageParameters``, once in the JobMaster and once in each slot of a job. The constructor must not do any
I/O; it raises ``ConfigurationError`` for faults that the settings alone show (no directory is set, or it has an unknown
scheme). ``firesteel.testing.check_checkpoint_storage`` tests a storage against this contract.

All methods may block, and are called on threads that may wait; several threads may call one storage object at once. If
something can't be done for now, or for lack of space or rights, they raise ``CheckpointStorageError``, which says what
to do; if files are missing or were changed, ``CheckpointCorruptedError``.

**State.** For each piece of state a slot calls ``open_state_stream``, writes, and calls ``close``, which returns the
handle, or ``abort``. Two streams never share a file, whatever their checkpoint and hint are, not even in two processes
or after a restart. When ``close`` has returned, the data are durable: they outlive the process and, as far as the
medium can promise it, the machine. After ``abort``, or after an error of ``write`` or ``close``, nothing is left. Small
state may be contained in the handle itself (``InlineState``). ``open_state`` opens a stream over exactly the bytes of a
handle; it raises if the file is missing or too short. ``read_state`` reads all bytes and compares their checksum.
``verify`` checks that the files of handles exist and are long enough, without reading them.

State that several checkpoints may use is written with ``open_shared_stream``, if the storage supports that: its files
stay while they are in ``keep`` of ``dispose``, and after ``close_job`` as long as the job has a checkpoint.

**Checkpoints.** Before the JobMaster triggers a checkpoint, it calls ``prepare`` with the id. ``write_metadata``
creates the metadata: all of them or, after an error or a crash, none; it never replaces others. If it is called again
with the same bytes, it succeeds again (the first answer may have been lost); with other bytes it raises and changes
nothing. It returns the *location*: a text that any process and any later run of the job can pass to ``read_metadata``.
``persistent`` says whether locations outlive the JobMaster; if they do not, the store of completed checkpoints keeps
the metadata themselves.

**Removing.** ``discard`` removes everything of a checkpoint that did not complete: streams that are still open for it
must fail, and must not leave a file later. ``dispose`` removes a completed checkpoint, its metadata first, so that a
checkpoint that was removed in part does not count as one. ``close_job`` is called when the job has ended: it removes
everything of the job except for its checkpoints; it is not called for a job that may be recovered. These methods leave
the files in ``keep``, which other checkpoints need, are harmless to repeat, and remove nothing outside of the job's own
directory. ``left_behind`` lists checkpoints, complete or not: so the JobMaster finds what an earlier JobMaster of the
job could not remove, and passes it to ``discard`` or ``dispose``.
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
    """Parameters of a storage's constructor.

    Attributes:
        job_id: id of the job, 32 hex digits.
        settings: configuration of the job, on top of the cluster's.
    """

    job_id: str
    settings: Settings = field(default_factory=Settings)


class StateWriter(ABC):
    """Writes one piece of state."""

    @abstractmethod
    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append data.

        Raises:
            CheckpointStorageError: the data can't be written; the writer can't be used any more.
        """

    @abstractmethod
    def close(self) -> StateHandle:
        """Make the data durable, and return their handle.

        Raises:
            CheckpointStorageError: the data can't be made durable; nothing is left of them.
        """

    @abstractmethod
    def abort(self) -> None:
        """Remove everything written so far. Has no effect after ``close``, ``abort`` and errors."""

    def __enter__(self) -> StateWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


class CheckpointStorage(ABC):
    """Storage of a job's checkpoints; the contract is at the head of this module.

    Args:
        parameters: parameters of the job.
    """

    name: str

    @abstractmethod
    def __init__(self, parameters: StorageParameters) -> None: ...

    @property
    @abstractmethod
    def persistent(self) -> bool:
        """Whether the metadata outlive the JobMaster."""

    def check(self) -> None:  # noqa: B027 # most have nothing to look at
        """Check that checkpoints can be written with these settings. Called before a job starts without a checkpoint.

        Raises:
            ConfigurationError: they can't, until the configuration or rights are changed.
            CheckpointStorageError: they can't for now, or that is not known.
        """

    # -- slots

    @abstractmethod
    def open_state_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        """Open a writer for a piece of state.

        Args:
            checkpoint_id: id of the checkpoint to which it belongs.
            hint: what the state is, for errors, such as the name of the operator.

        Raises:
            CheckpointStorageError: nothing can be written.
        """

    def open_shared_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter | None:
        """Open a writer for a piece of state that later checkpoints may use too; None = the storage can't share state.

        Args:
            checkpoint_id: id of the checkpoint for which it is written; the stream fails if that is discarded.
            hint: what the state is, for errors.

        Raises:
            CheckpointStorageError: nothing can be written.
        """
        return None

    @abstractmethod
    def open_state(self, handle: StateHandle) -> BinaryIO:
        """Open a seekable stream over the bytes of a handle; a caller that reads it to its end compares the checksum.

        Raises:
            CheckpointCorruptedError: the file is missing, or too short.
            CheckpointStorageError: it can't be read for now.
        """

    def read_state(self, handle: StateHandle) -> bytes:
        """Return all bytes of a handle, after comparing their checksum.

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
        """Prepare the storage for a checkpoint.

        Raises:
            CheckpointNumberTakenError: there is a checkpoint with this id already, perhaps of another run.
            CheckpointStorageError: nothing can be written.
        """

    @abstractmethod
    def verify(self, handles: Iterable[StateHandle]) -> None:
        """Check that all files exist and are long enough.

        Raises:
            CheckpointCorruptedError: a file is missing, or too short.
            CheckpointStorageError: they can't be checked for now.
        """

    @abstractmethod
    def write_metadata(self, checkpoint_id: int, data: bytes) -> str:
        """Create the metadata of a checkpoint, and return their location.

        Raises:
            CheckpointStorageError: they can't be written, or there are other ones.
        """

    @abstractmethod
    def read_metadata(self, location: str) -> tuple[str, bytes]:
        """Read the metadata at a location.

        Args:
            location: location from ``write_metadata``, or from a user, who may also name the checkpoint's directory.

        Returns:
            Path of the metadata, for errors, and their bytes.

        Raises:
            CheckpointCorruptedError: there are none.
            CheckpointStorageError: they can't be read for now.
        """

    @abstractmethod
    def left_behind(self, below: int) -> list[tuple[int, str, bytes | None]]:
        """List the job's checkpoints in the storage, complete or not.

        The list is empty if the storage can't be listed, or its directory is not the job's alone.

        Args:
            below: only checkpoints with smaller ids are listed.

        Returns:
            Id, location, and metadata (None = it has none) of each checkpoint.

        Raises:
            CheckpointStorageError: they can't be listed for now.
        """

    @abstractmethod
    def discard(self, checkpoint_id: int, files: Collection[str] = (), keep: Collection[str] = ()) -> None:
        """Remove a checkpoint that did not complete, with these files of it, except for those that others need.

        If there is a complete checkpoint with this id, it belongs to another run: only these files are removed.
        """

    @abstractmethod
    def dispose(self, location: str, files: Collection[str], keep: Collection[str] = ()) -> None:
        """Remove a completed checkpoint with its files, except for those that others need."""

    @abstractmethod
    def close_job(self, keep: Collection[str] = ()) -> None:
        """Remove the remains of a job that has ended, except for its checkpoints and the files in ``keep``."""


def storage_name(settings: Settings) -> str:
    """Return the name of the storage in the settings; as in Flink, the default is ``filesystem`` with a directory.

    A directory in an object store is a file system to Flink, but has the storage ``s3`` or ``hdfs`` here.
    """
    directory = settings.get(options.CHECKPOINTING_DIRECTORY)
    name = settings.get(options.CHECKPOINTING_STORAGE) or ("filesystem" if directory else "jobmanager")
    return stored_in(directory) if name == "filesystem" and directory and is_object(directory) else name


def stored_in(directory: str) -> str:
    """Return the name of the storage for a directory, by its scheme alone."""
    if not is_object(directory):
        return "filesystem"
    return HDFS if directory.lower().startswith(f"{HDFS}:") else "s3"


def load_checkpoint_storage(parameters: StorageParameters) -> CheckpointStorage:
    """Make the checkpoint storage of a job.

    Raises:
        ConfigurationError: there is no storage with that name (the message lists the known ones), or its settings are
            wrong.
    """
    name = storage_name(parameters.settings)
    try:
        storage_class: type[CheckpointStorage] = load(GROUP, name)
    except ConfigurationError as error:
        raise ConfigurationError(f"{options.CHECKPOINTING_STORAGE.key} = {name!r}: {error}") from error
    return storage_class(parameters)
