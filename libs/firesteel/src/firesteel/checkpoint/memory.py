"""The checkpoint storage ``jobmanager``: state travels in messages and stays in the memory of the JobMaster."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import BinaryIO, Final

from typing_extensions import override

from firesteel.checkpoint.handles import InlineState, StateHandle
from firesteel.checkpoint.state_reader import StateReader
from firesteel.checkpoint.storage import GROUP, CheckpointStorage, StateWriter, StorageParameters, stored_in
from firesteel.config import options
from firesteel.config.values import show_memory
from firesteel.core.errors import CheckpointCorruptedError, CheckpointStorageError
from firesteel.core.plugins import load

_PREFIX: Final = "memory:"


class MemoryCheckpointStorage(CheckpointStorage):
    """The storage for small state, which travels inside the metadata of a checkpoint.

    With ``execution.checkpointing.dir`` the metadata, and so all state, are files there.

    Args:
        parameters: parameters of the job.

    Raises:
        ConfigurationError: the directory is malformed.
    """

    name = "jobmanager"

    def __init__(self, parameters: StorageParameters) -> None:
        settings = parameters.settings
        self._most = settings.get(options.CHECKPOINTING_MAX_MEMORY_STATE)
        self._reader = StateReader(settings)
        directory = settings.get(options.CHECKPOINTING_DIRECTORY)
        self._files: CheckpointStorage | None = None
        if directory:
            self._files = load(GROUP, stored_in(directory))(parameters)
        self._metadata: dict[str, bytes] = {}

    @property
    @override
    def persistent(self) -> bool:
        return self._files is not None

    @override
    def check(self) -> None:
        if self._files is not None:
            self._files.check()

    # -- slots

    @override
    def open_state_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        return _MemoryWriter(hint, self._most)

    def open_state(self, handle: StateHandle) -> BinaryIO:
        """Open a stream over the bytes of a handle, also in files, for a job that has changed its storage."""
        return self._reader.open_state(handle)

    # -- the JobMaster

    @override
    def prepare(self, checkpoint_id: int) -> None:
        if self._files is not None:
            self._files.prepare(checkpoint_id)

    @override
    def verify(self, handles: Iterable[StateHandle]) -> None:
        self._reader.verify(handles)

    @override
    def write_metadata(self, checkpoint_id: int, data: bytes) -> str:
        if self._files is not None:
            return self._files.write_metadata(checkpoint_id, data)
        location = f"{_PREFIX}{checkpoint_id}"
        if self._metadata.setdefault(location, data) != data:
            raise CheckpointStorageError(f"checkpoint {checkpoint_id} is there already, and holds something else")
        return location

    @override
    def read_metadata(self, location: str) -> tuple[str, bytes]:
        if not location.startswith(_PREFIX):
            return self._reader.read_metadata(location)
        if location not in self._metadata:
            raise CheckpointCorruptedError(location, "there is no such checkpoint in the JobMaster's memory")
        return location, self._metadata[location]

    @override
    def left_behind(self, below: int) -> list[tuple[int, str, bytes | None]]:
        return [] if self._files is None else self._files.left_behind(below)

    @override
    def discard(self, checkpoint_id: int, files: Collection[str] = (), keep: Collection[str] = ()) -> None:
        if self._files is not None:
            self._files.discard(checkpoint_id, files, keep)

    def dispose(self, location: str, files: Collection[str], keep: Collection[str] = ()) -> None:
        self._metadata.pop(location, None)
        if self._files is not None:
            self._files.dispose(location, files, keep)

    def close_job(self, keep: Collection[str] = ()) -> None:
        self._metadata.clear()
        if self._files is not None:
            self._files.close_job(keep)


class _MemoryWriter(StateWriter):
    def __init__(self, hint: str, most: int) -> None:
        self._hint, self._most = hint, most
        self._data = bytearray()
        self._closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closed:
            raise CheckpointStorageError(f"state of {self._hint!r}: its writer was closed before")
        self._data += data
        if len(self._data) > self._most:
            self.abort()
            raise CheckpointStorageError(
                f"state of {self._hint or 'an operator'!r} is larger than {show_memory(self._most)}, which is the most "
                "that the checkpoint storage 'jobmanager' holds in memory for one piece of state. Set "
                f"{options.CHECKPOINTING_DIRECTORY.key} to a directory that all hosts see, and "
                f"{options.CHECKPOINTING_STORAGE.key} to filesystem."
            )

    def close(self) -> StateHandle:
        if self._closed:
            raise CheckpointStorageError(f"state of {self._hint!r}: its writer was closed before")
        self._closed = True
        return InlineState(bytes(self._data))

    def abort(self) -> None:
        self._closed = True
        self._data = bytearray()
