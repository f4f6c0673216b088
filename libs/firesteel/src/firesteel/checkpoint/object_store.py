"""The contract of object stores: stores of whole objects under keys, with uploads of large objects in parts.

Checkpoints, savepoints, payloads of high availability, archives and the file sink use this contract, whatever the store
is: one with the protocol S3 (``firesteel-s3``), or HDFS, which is used like one (``firesteel-hdfs``). An object exists
as a whole or not at all. If several clients write the same key at once, one of the objects remains; a write may demand
that the object is new. Folders exist while there are objects in them.

A request may have taken effect although its answer was lost. Such requests are harmless to repeat, or the caller looks
at what the store contains then.
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
"""Prefix of the names of objects that ``check`` writes to test the rights."""


class StoreRefusedError(CheckpointStorageError):
    """The store has refused a request, and will refuse it again until configuration or rights are changed."""


class StoreUnknownError(StoreRefusedError):
    """The address of the store is not known: the configuration has to contain it."""


class StoreAwayError(CheckpointStorageError):
    """The store does not answer. The request may take effect nevertheless, perhaps later."""


class NoSuchObjectError(Exception):
    """There is no object with this key."""


class ObjectExistsError(Exception):
    """There is an object with this key already, and the write demanded a new one."""


class NoSuchUploadError(Exception):
    """The upload has ended: it was completed or aborted."""


class BeyondEndError(Exception):
    """The object ends before the requested bytes."""


@dataclass(frozen=True)
class Listed:
    """An object in a listing, or, with a delimiter, the common prefix of several (its key ends with a slash).

    Attributes:
        key: the whole key.
        size: size in bytes.
    """

    key: str
    size: int


class ObjectStore(ABC):
    """A client of an object store, with the rights of one user. Thread-safe; the constructor does no I/O.

    Attributes:
        scheme: scheme of the store's places.
        endpoint: address of the server, for messages.
        clock: measures how long a request has been retried.
        part_size: size in bytes of the first parts of a large object.
        concurrent: number of parts that a slot uploads at once.
    """

    scheme: ClassVar[str]
    endpoint: str
    clock: Clock
    part_size: int
    concurrent: int

    @abstractmethod
    def check(self, place: ObjectPlace) -> None:
        """Check that objects can be listed, written and removed at a place; makes few attempts.

        Raises:
            StoreRefusedError: they can't, until configuration or rights are changed.
            CheckpointStorageError: they can't for now, or that is not known.
        """

    @abstractmethod
    def put(self, place: ObjectPlace, data: bytes, *, new: bool = False) -> None:
        """Write an object, all of it or nothing.

        Args:
            place: place of the object.
            data: the whole content.
            new: whether an existing object is to stay as it is, with an error.

        Raises:
            ObjectExistsError: the object exists; perhaps by this very call, whose first answer was lost.
            CheckpointStorageError: the object can't be written.
        """

    @abstractmethod
    def get(self, place: ObjectPlace, start: int = 0, length: int | None = None) -> tuple[bytes, int]:
        """Return a range of an object, and the size of the whole object.

        Raises:
            NoSuchObjectError: there is no such object.
            BeyondEndError: the object ends before the range.
            CheckpointStorageError: the object can't be read.
        """

    @abstractmethod
    def size(self, place: ObjectPlace) -> int | None:
        """Return the size of an object in bytes; None = there is no such object.

        Raises:
            CheckpointStorageError: the size can't be found out.
        """

    @abstractmethod
    def find(self, place: ObjectPlace, delimiter: str = "", after: str = "") -> Iterator[Listed]:
        """List the objects whose keys begin with that of the place, in the order of their keys within each page.

        Args:
            place: bucket and prefix; a prefix need not end with a slash.
            delimiter: ``/``: keys are cut off behind the next slash, and listed once; empty = keys are listed whole.
            after: key after which the listing begins.

        Raises:
            CheckpointStorageError: the listing fails.
        """

    @abstractmethod
    def delete(self, bucket: str, keys: Collection[str]) -> None:
        """Remove objects; keys without an object are ignored.

        Raises:
            CheckpointStorageError: not all could be removed.
        """

    # -- uploads in parts

    @abstractmethod
    def begin_upload(self, place: ObjectPlace) -> tuple[str, bool]:
        """Begin an upload in parts.

        Returns:
            The id of the upload, and whether it is the only one that this call has begun: if an answer was lost, there
            may be another one.
        """

    @abstractmethod
    def upload_part(self, place: ObjectPlace, upload: str, number: int, data: bytes) -> str:
        """Upload a part and return its tag; from then on the part is durable.

        Raises:
            NoSuchUploadError: the upload has ended.
            CheckpointStorageError: the part can't be written.
        """

    @abstractmethod
    def complete_upload(self, place: ObjectPlace, upload: str, tags: Sequence[str]) -> None:
        """Make the object from the first parts of the upload, which have these tags.

        Raises:
            NoSuchUploadError: the upload has ended; perhaps by this very call, whose first answer was lost.
            CheckpointStorageError: the upload can't be completed.
        """

    @abstractmethod
    def abort_uploads(self, place: ObjectPlace) -> None:
        """Abort all uploads to a key, and remove their parts.

        Raises:
            CheckpointStorageError: they can't be aborted.
        """

    @abstractmethod
    def abort_upload(self, place: ObjectPlace, upload: str) -> None:
        """Abort an upload, and remove its parts; an upload that has ended is ignored.

        Raises:
            CheckpointStorageError: it can't be aborted.
        """

    @abstractmethod
    def uploads(self, place: ObjectPlace) -> list[tuple[str, str]]:
        """Return keys and ids of the uploads below a place that have not ended, as far as the store can list them."""
