"""Reads state and metadata from wherever they are: any storage reads what any of them has written."""

from __future__ import annotations

import io
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO

from firesteel.checkpoint.handles import FileState, InlineState, StateHandle
from firesteel.checkpoint.places import is_s3, s3_place
from firesteel.checkpoint.state_files import (
    CHECKPOINT_PATH,
    open_state_file,
    read_metadata_file,
    verify_state_files,
)
from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError

if TYPE_CHECKING:
    from firesteel.checkpoint.s3_states import S3States


class StateReader:
    """See the head of this module.

    Args:
        settings: of the job; what a place needs of them is looked at when it is first read from.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def s3(self) -> S3States:
        """What is in object stores.

        Raises:
            ConfigurationError: its settings are wrong, or its client is not installed.
        """
        try:
            from firesteel.checkpoint.s3_states import S3States
        except ModuleNotFoundError as error:
            raise s3_is_missing(error) from error
        return S3States.of(self._settings)

    def open_state(self, handle: StateHandle) -> BinaryIO:
        """See ``CheckpointStorage.open_state``."""
        if isinstance(handle, InlineState):
            return io.BytesIO(handle.data)
        return self.s3.open(handle) if is_s3(handle.path) else open_state_file(handle)

    def verify(self, handles: Iterable[StateHandle]) -> None:
        """See ``CheckpointStorage.verify``."""
        far: list[FileState] = []
        near: list[FileState] = []
        for handle in handles:
            if isinstance(handle, FileState):
                (far if is_s3(handle.path) else near).append(handle)
        verify_state_files(near)
        if far:
            self.s3.verify(far)

    def read_metadata(self, location: str) -> tuple[str, bytes]:
        """See ``CheckpointStorage.read_metadata``."""
        if is_s3(location):
            return self.s3.read_metadata(s3_place(location, CHECKPOINT_PATH))
        return read_metadata_file(location)


def s3_is_missing(error: ModuleNotFoundError) -> ConfigurationError:
    """The client of object stores is not installed."""
    return ConfigurationError(
        f"paths that begin with s3:// need the package {error.name!r}, which is not installed: pip install "
        "firesteel[s3]"
    )
