"""What paths of checkpoints mean: absolute paths and ``file:`` URIs are directories that all hosts see,
``s3://bucket/path`` is in an object store. Any storage reads what any of them has written.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO, Final

from firesteel.checkpoint.handles import FileState, InlineState, StateHandle
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

S3_SCHEMES: Final = frozenset({"s3", "s3a", "s3p"})
"""The last two are names of Flink's file systems for the same."""


def is_s3(path: str) -> bool:
    """Whether a path is in an object store."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and scheme.lower() in S3_SCHEMES


@dataclass(frozen=True)
class S3Place:
    """A place in an object store.

    Attributes:
        bucket: its name.
        key: of an object, or the begin of keys; without a slash in front or behind.
    """

    bucket: str
    key: str = ""

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}" if self.key else f"s3://{self.bucket}"

    def __truediv__(self, name: str) -> S3Place:
        return S3Place(self.bucket, f"{self.key}/{name}" if self.key else name)


def s3_place(text: str, what: str) -> S3Place:
    """The place that a URI names.

    Args:
        text: as the user wrote it, or as ``str`` of a place.
        what: named in errors.

    Raises:
        ConfigurationError: it is none.
    """
    if not is_s3(text):
        raise ConfigurationError(f"{what} = {text!r}: a path in an object store is expected, s3://bucket/directory")
    _, _, rest = text.partition("://")
    bucket, _, key = rest.partition("/")
    if "@" in bucket:  # not shown: it may be a secret
        raise ConfigurationError(
            f"{what}: a URI of an object store names no user and no secret (s3://bucket/directory); set s3.access-key "
            "and s3.secret-key, or firesteel.s3.credentials-file"
        )
    if not bucket or ":" in bucket:
        raise ConfigurationError(
            f"{what} = {text!r}: s3://bucket/directory is expected; the address of the server is the option s3.endpoint"
        )
    if "?" in key or "#" in key or "\0" in key:
        raise ConfigurationError(f"{what} = {text!r}: a path in an object store holds no ?, # or zero byte")
    parts = [part for part in key.split("/") if part]
    if any(part in (".", "..") for part in parts):
        raise ConfigurationError(f"{what} = {text!r}: a path in an object store has no . or .. in it")
    return S3Place(bucket, "/".join(parts))


class StatePlaces:
    """Reads state and metadata from wherever they are.

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
            raise ConfigurationError(
                f"paths that begin with s3:// need the package {error.name!r}, which is not installed: pip install "
                "firesteel[s3]"
            ) from error
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
