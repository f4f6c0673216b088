"""Files in object stores, and on HDFS, which is used as one.

Paths are ``s3://bucket/key`` (also ``s3a://`` and ``s3p://``, as in Flink) and ``hdfs://namenode:8020/path``. The
options ``s3.*``, or those of ``HDFS_OPTIONS``, set server and credentials, as for checkpoints.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, ClassVar, Final

from typing_extensions import override

from firesteel.checkpoint.object_states import ObjectStates, ObjectStream
from firesteel.checkpoint.object_store import StoreUnknownError
from firesteel.checkpoint.places import ObjectPlace, object_place
from firesteel.config import Settings
from firesteel.connectors.file_patterns import has_wildcard, is_shown, key_matches
from firesteel.connectors.filesystems.file_system import FileSystem, PartCommitter, RecoverableWriter, Refused
from firesteel.connectors.filesystems.object_parts import ObjectCommitter, ObjectWriter, remove_upload
from firesteel.core.errors import CheckpointStorageError, ConfigurationError, FileSystemError, ProgramError
from firesteel.functions.sink import WriterContext

_BUFFER: Final = 1 << 16


@contextmanager
def as_files() -> Iterator[None]:
    """Translate errors of checkpoint storages to those of file systems.

    Raises:
        ConfigurationError: the configuration does not say where the store is, so waiting does not help.
        FileSystemError: any other error of the store.
    """
    try:
        yield
    except StoreUnknownError as error:
        raise ConfigurationError(str(error)) from error.__cause__
    except CheckpointStorageError as error:
        raise FileSystemError(str(error)) from error.__cause__


class ObjectFileSystem(FileSystem):
    """Files of one scheme. A plug-in derives from this class, and brings the client of its store.

    There are no folders: a path stands for the object with this key, and for all objects whose keys continue it with a
    slash.
    """

    scheme: ClassVar[str]

    def __init__(self, settings: Settings) -> None:
        self._states = ObjectStates.of(settings, self.scheme)
        self._client = self._states.client

    @classmethod
    def path_of(cls, text: str, what: str) -> str:
        """Normalize ``s3://bucket/key``, without a slash at the end."""
        try:
            if has_wildcard(text):  # ? is a wildcard here, and does not begin a query
                object_place(text.replace("?", "x"), what)
                _, _, location = text.partition("://")
                bucket, _, key = location.partition("/")
                if has_wildcard(bucket):
                    raise ProgramError(f"{what}: {text!r}: the name of a bucket has no wildcards")
                return f"{cls.scheme}://{bucket}/{'/'.join(part for part in key.split('/') if part)}"
            return str(object_place(text, what))
        except ConfigurationError as error:
            raise ProgramError(str(error)) from error

    # -- reading

    def check(self, path: str, refused: Refused, *, may_match_nothing: bool = False) -> None:
        """Refuse a path at which there is no object.

        There are no folders to look at instead. So if files may come later, a path without an object is accepted.
        """
        with as_files():
            if next(self._keys(path), None) is None and not may_match_nothing:
                problem = "nothing matches" if has_wildcard(path) else "there is nothing at"
                raise ProgramError(f"file source: {problem} {path!r} at {self._client.endpoint}")

    def find(self, path: str, refused: Refused) -> Iterator[tuple[str, int]]:
        """List objects in the order of their keys, also empty ones and those that stand for folders."""
        with as_files():
            for key, size in self._keys(path):
                yield f"{self.scheme}://{_bucket(path)}/{key}", size

    def _keys(self, path: str) -> Iterator[tuple[str, int]]:
        """Keys and sizes of the objects that a path or pattern stands for."""
        bucket, key = _bucket(path), path.partition("://")[2].partition("/")[2]
        if not has_wildcard(key):
            size = None if not key else self._client.size(self._states.place(bucket, key))
            if size is not None:
                yield key, size
            below = f"{key}/" if key else ""
            for entry in self._client.find(self._states.place(bucket, below)):
                if is_shown(entry.key[len(below) :].split("/")):
                    yield entry.key, entry.size
            return
        parts = key.split("/")
        first = next(number for number, part in enumerate(parts) if has_wildcard(part))
        prefix = "/".join([*parts[:first], _literal(parts[first])])
        for entry in self._client.find(self._states.place(bucket, prefix)):
            if key_matches(entry.key.split("/"), parts):
                yield entry.key, entry.size

    @override
    def size(self, path: str) -> int:
        place = _place(path)
        with as_files():
            size = self._client.size(place)
        if size is None:
            raise FileNotFoundError(2, f"there is no such object at {self._client.endpoint}", path)
        return size

    def open(self, path: str) -> IO[bytes]:
        """Open a stream that fetches blocks by range requests."""
        return io.BufferedReader(_FileStream(self._states, _place(path), self.size(path)), _BUFFER)

    # -- writing

    @override
    def writer(self, base_path: str, context: WriterContext) -> RecoverableWriter:
        return ObjectWriter(self._states, _place(base_path), context)

    @override
    def committer(self, context: WriterContext) -> PartCommitter:
        return ObjectCommitter(self._states, context)

    def remove_temporary(self, path: str) -> None:
        """Abort the upload that a record belongs to, and remove the record."""
        with as_files():
            remove_upload(self._client, object_place(path, "record of an upload"))


class _FileStream(ObjectStream):
    """An object that is read as a file, with errors of file systems."""

    def __init__(self, states: ObjectStates, place: ObjectPlace, length: int) -> None:
        super().__init__(states.client, place, length)

    def _fetch(self, position: int, requested: int) -> None:
        with as_files():
            super()._fetch(position, requested)


def _bucket(path: str) -> str:
    return path.partition("://")[2].partition("/")[0]


def _place(path: str) -> ObjectPlace:
    """The object of a path, whose key is taken as it is: keys that were listed may hold any character."""
    scheme, _, location = path.partition("://")
    bucket, _, key = location.partition("/")
    return ObjectPlace(bucket, key, scheme)


def _literal(part: str) -> str:
    """The part of a name before its first wildcard."""
    for number, character in enumerate(part):
        if character in "*?[":
            return part[:number]
    return part
