"""Reads state and metadata from files and object stores alike, so that any storage reads what any other has written."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable
from typing import BinaryIO

from firesteel.checkpoint.handles import FileState, InlineState, StateHandle
from firesteel.checkpoint.object_states import ObjectStates
from firesteel.checkpoint.places import is_object, object_place
from firesteel.checkpoint.state_files import (
    CHECKPOINT_PATH,
    open_state_file,
    read_metadata_file,
    verify_state_files,
)
from firesteel.config import Settings


class StateReader:
    """Reads state and metadata by their paths.

    Args:
        settings: configuration of the job; that of an object store is checked when it is first read from.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stores: dict[str, ObjectStates] = {}
        self._making = threading.Lock()

    def store(self, scheme: str) -> ObjectStates:
        """The reader of object stores with this scheme.

        Raises:
            ConfigurationError: its settings are wrong, or its client is not installed.
        """
        with self._making:
            if scheme not in self._stores:
                self._stores[scheme] = ObjectStates.of(self._settings, scheme)
            return self._stores[scheme]

    def open_state(self, handle: StateHandle) -> BinaryIO:
        """Open a stream over the bytes of a handle (``CheckpointStorage.open_state``)."""
        if isinstance(handle, InlineState):
            return io.BytesIO(handle.data)
        if not is_object(handle.path):
            return open_state_file(handle)
        return self.store(object_place(handle.path, "state file").scheme).open(handle)

    def verify(self, handles: Iterable[StateHandle]) -> None:
        """Check that all files exist and are long enough (``CheckpointStorage.verify``)."""
        objects: dict[str, list[FileState]] = {}  # by scheme
        local: list[FileState] = []
        for handle in handles:
            if isinstance(handle, FileState):
                if is_object(handle.path):
                    objects.setdefault(object_place(handle.path, "state file").scheme, []).append(handle)
                else:
                    local.append(handle)
        verify_state_files(local)
        for scheme, object_handles in objects.items():
            self.store(scheme).verify(object_handles)

    def read_metadata(self, location: str) -> tuple[str, bytes]:
        """Read metadata at a location (``CheckpointStorage.read_metadata``)."""
        if is_object(location):
            place = object_place(location, CHECKPOINT_PATH)
            return self.store(place.scheme).read_metadata(place)
        return read_metadata_file(location)
