"""Files in object stores, and on HDFS, which is used as one.

Paths are ``s3://bucket/key`` (also ``s3a://`` and ``s3p://``, as Flink names them) and ``hdfs://namenode:8020/path``.
The server, the credentials and all else are the options ``s3.*``, or those of ``HDFS_OPTIONS``, as for checkpoints.
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
    """What goes wrong is said of files, and of no checkpoint; where the configuration is wrong, nobody waits.

    Raises:
        ConfigurationError: where the store is, is not known.
        FileSystemError: anything else.
    """
    try:
        yield
    except StoreUnknownError as error:
        raise ConfigurationError(str(error)) from error.__cause__
    except CheckpointStorageError as error:
        raise FileSystemError(str(error)) from error.__cause__


class ObjectFileSystem(FileSystem):
    """Files of one scheme; a plug-in derives from it, and brings the client of its store.

    There are no folders: a path means the object of this key, and all whose keys go on behind it with a slash.
    """

    scheme: ClassVar[str]

    def __init__(self, settings: Settings) -> None:
        self._states = ObjectStates.of(settings, self.scheme)
        self._client = self._states.client

    @classmethod
    def path_of(cls, text: str, what: str) -> str:
        """``s3://bucket/key`` without a slash at its end."""
        try:
            if has_wildcard(text):  # ? stands for a character here, and begins no query
                object_place(text.replace("?", "x"), what)
                _, _, rest = text.partition("://")
                bucket, _, key = rest.partition("/")
                if has_wildcard(bucket):
                    raise ProgramError(f"{what}: {text!r}: the name of a bucket has no wildcards")
                return f"{cls.scheme}://{bucket}/{'/'.join(part for part in key.split('/') if part)}"
            return str(object_place(text, what))
        except ConfigurationError as error:
            raise ProgramError(str(error)) from error

    # -- reading

    def check(self, path: str, refused: Refused, *, may_match_nothing: bool = False) -> None:
        """Refuse a path at which there is no object.

        There are no folders that could be looked at instead: where files may come later, there may be nothing yet.
        """
        with as_files():
            if next(self._keys(path), None) is None and not may_match_nothing:
                what = "nothing matches" if has_wildcard(path) else "there is nothing at"
                raise ProgramError(f"file source: {what} {path!r} at {self._client.endpoint}")

    def find(self, path: str, refused: Refused) -> Iterator[tuple[str, int]]:
        """Objects by their keys; those that hold nothing, and those that stand for folders, too."""
        with as_files():
            for key, size in self._keys(path):
                yield f"{self.scheme}://{_bucket(path)}/{key}", size

    def _keys(self, path: str) -> Iterator[tuple[str, int]]:
        bucket, key = _bucket(path), path.partition("://")[2].partition("/")[2]
        if not has_wildcard(key):
            whole = None if not key else self._client.size(self._states.place(bucket, key))
            if whole is not None:
                yield key, whole
            below = f"{key}/" if key else ""
            for one in self._client.find(self._states.place(bucket, below)):
                if is_shown(one.key[len(below) :].split("/")):
                    yield one.key, one.size
            return
        parts = key.split("/")
        first = next(number for number, part in enumerate(parts) if has_wildcard(part))
        prefix = "/".join([*parts[:first], _literal(parts[first])])
        for one in self._client.find(self._states.place(bucket, prefix)):
            if key_matches(one.key.split("/"), parts):
                yield one.key, one.size

    def size(self, path: str) -> int:
        """Bytes of an object."""
        place = _place(path)
        with as_files():
            found = self._client.size(place)
        if found is None:
            raise FileNotFoundError(2, f"there is no such object at {self._client.endpoint}", path)
        return found

    def open(self, path: str) -> IO[bytes]:
        """A stream that fetches blocks by range requests."""
        return io.BufferedReader(_FileStream(self._states, _place(path), self.size(path)), _BUFFER)

    # -- writing

    @override
    def writer(self, base_path: str, context: WriterContext) -> RecoverableWriter:
        return ObjectWriter(self._states, _place(base_path), context)

    @override
    def committer(self, context: WriterContext) -> PartCommitter:
        return ObjectCommitter(self._states, context)

    def remove_temporary(self, path: str) -> None:
        """Abort an upload of which this is the record."""
        with as_files():
            remove_upload(self._client, object_place(path, "record of an upload"))


class _FileStream(ObjectStream):
    """The object of a file."""

    def __init__(self, states: ObjectStates, place: ObjectPlace, length: int) -> None:
        super().__init__(states.client, place, length)

    def _fetch(self, position: int, wanted: int) -> None:
        with as_files():
            super()._fetch(position, wanted)


def _bucket(path: str) -> str:
    return path.partition("://")[2].partition("/")[0]


def _place(path: str) -> ObjectPlace:
    """Of a key as it stands; names of objects that were listed may hold anything."""
    scheme, _, rest = path.partition("://")
    bucket, _, key = rest.partition("/")
    return ObjectPlace(bucket, key, scheme)


def _literal(part: str) -> str:
    """What stands in front of the first wildcard of a name."""
    for number, character in enumerate(part):
        if character in "*?[":
            return part[:number]
    return part
