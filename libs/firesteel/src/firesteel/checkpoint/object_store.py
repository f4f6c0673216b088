"""The contract of object stores: what holds whole objects under keys, and puts large ones together from parts.

Checkpoints, savepoints, payloads of high availability, archives and the file sink stand on it, once for all stores:
those that speak S3 (``firesteel-s3``), and HDFS, which is used as one (``firesteel-hdfs``). An object is there as a
whole or not at all; what several write at once under one key is one of them; a new one can be asked for. Folders come
and go with what is in them.

Requests that could have been done although nobody heard the answer are harmless to repeat, or the caller looks what
there is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from firesteel.checkpoint.places import ObjectPlace
from firesteel.core.clock import Clock
from firesteel.core.errors import CheckpointStorageError

PROBE: Final = "_probe-"
"""Begin of the names of objects by which is tried whether objects can be written."""


class StoreRefusedError(CheckpointStorageError):
    """The store has said no, and will say so again until somebody changes something."""


class StoreUnknownError(StoreRefusedError):
    """Where the store is, is not known here: the configuration has to say it."""


class StoreAwayError(CheckpointStorageError):
    """Nobody answers there. What was asked for may be done all the same, and later."""


class NoSuchObjectError(Exception):
    """There is no object of this key."""


class ObjectExistsError(Exception):
    """There is one already, and it should have been new."""


class NoSuchUploadError(Exception):
    """The upload was ended: it was completed, or aborted."""


class BeyondEndError(Exception):
    """The object has no bytes where some were asked for."""


@dataclass(frozen=True)
class Listed:
    """An object of a listing, or, with a delimiter, what several of them begin with (its key ends with a slash).

    Attributes:
        key: whole.
        size: bytes.
    """

    key: str
    size: int


class ObjectStore(ABC):
    """A client, with the rights of one user. May be used by several threads at once; made without I/O.

    Attributes:
        scheme: of its places.
        extra: that installs what it needs.
        endpoint: of the server, for people.
        clock: tells how long a request has been tried.
        part_size: bytes of the first parts of what is large.
        concurrent: parts that a slot uploads at once.
    """

    scheme: ClassVar[str]
    endpoint: str
    clock: Clock
    part_size: int
    concurrent: int

    @abstractmethod
    def check(self, place: ObjectPlace) -> None:
        """See whether objects can be listed, written and removed at a place; makes few attempts.

        Raises:
            StoreRefusedError: they can't, until somebody changes something.
            CheckpointStorageError: not for now, or it can't be told.
        """

    @abstractmethod
    def put(self, place: ObjectPlace, data: bytes, *, new: bool = False) -> None:
        """Write an object, all of it or nothing.

        Args:
            place: of the object.
            data: all bytes.
            new: it must not be there: then it stays as it is.

        Raises:
            ObjectExistsError: it is there; perhaps by this very call, whose first answer was lost.
            CheckpointStorageError: it can't be written.
        """

    @abstractmethod
    def get(self, place: ObjectPlace, start: int = 0, length: int | None = None) -> tuple[bytes, int]:
        """Bytes of an object, and how many it has in all.

        Raises:
            NoSuchObjectError: it is not there.
            BeyondEndError: none of the bytes are.
            CheckpointStorageError: it can't be read.
        """

    @abstractmethod
    def size(self, place: ObjectPlace) -> int | None:
        """Bytes of an object; None = it is not there.

        Raises:
            CheckpointStorageError: it can't be told.
        """

    @abstractmethod
    def find(self, place: ObjectPlace, delimiter: str = "", after: str = "") -> Iterator[Listed]:
        """Objects whose keys begin with that of the place, in the order of their keys within each page.

        Args:
            place: where; its key is a prefix as it stands.
            delimiter: keys are cut off behind its next occurrence, and given once; ``/`` or nothing.
            after: key behind which the listing begins.

        Raises:
            CheckpointStorageError: it can't be told.
        """

    @abstractmethod
    def delete(self, bucket: str, keys: Collection[str]) -> None:
        """Remove objects; those that are not there are none.

        Raises:
            CheckpointStorageError: not all could be removed.
        """

    # -- uploads in parts

    @abstractmethod
    def begin_upload(self, place: ObjectPlace) -> tuple[str, bool]:
        """Begin an upload in parts; returns its id, and whether no other one can have been begun by this call, of which
        nobody has heard."""

    @abstractmethod
    def upload_part(self, place: ObjectPlace, upload: str, number: int, data: bytes) -> str:
        """Upload a part; returns its tag. What has a tag is durable.

        Raises:
            NoSuchUploadError: somebody has ended the upload.
            CheckpointStorageError: it can't be written.
        """

    @abstractmethod
    def complete_upload(self, place: ObjectPlace, upload: str, tags: Sequence[str]) -> None:
        """Make an object of the parts with these tags, the first ones of the upload.

        Raises:
            NoSuchUploadError: the upload was ended; perhaps by this very call, whose first answer was lost.
            CheckpointStorageError: it can't be done.
        """

    @abstractmethod
    def abort_uploads(self, place: ObjectPlace) -> None:
        """Forget the parts of all uploads to a key.

        Raises:
            CheckpointStorageError: it can't be done.
        """

    @abstractmethod
    def abort_upload(self, place: ObjectPlace, upload: str) -> None:
        """Forget the parts; an upload that was ended is forgotten.

        Raises:
            CheckpointStorageError: it can't be done.
        """

    @abstractmethod
    def uploads(self, place: ObjectPlace) -> list[tuple[str, str]]:
        """Keys and ids of uploads that were begun and not ended, as far as the store can tell."""
