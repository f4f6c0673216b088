"""Pieces of state and metadata in an object store: written in parts while they come, read in blocks.

An object is there as a whole or not at all. One that is larger than a part goes up in parts, which the server keeps
until they are put together; an empty object ``<key>.upload`` stands beside it from before the first of them, so that
whoever cleans up finds the parts of a writer that died: MinIO lists uploads to a key that one knows only.
"""

from __future__ import annotations

import errno
import io
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import BinaryIO, Final

from firesteel.checkpoint.handles import FileState, InlineState, RunningChecksum, StateHandle
from firesteel.checkpoint.object_store import (
    BeyondEndError,
    NoSuchObjectError,
    NoSuchUploadError,
    ObjectStore,
    StoreAwayError,
)
from firesteel.checkpoint.object_stores import open_store
from firesteel.checkpoint.places import ObjectPlace, object_place
from firesteel.checkpoint.state_files import METADATA, end_of_state
from firesteel.checkpoint.storage import StateWriter
from firesteel.config import Settings
from firesteel.core.call_pool import CallPool
from firesteel.core.errors import CheckpointCorruptedError, CheckpointStorageError

_UPLOAD: Final = ".upload"
_FIRST_BLOCK, _LARGEST_BLOCK = 256 << 10, 8 << 20
_GROWS_EVERY: Final = 1000
"""Parts after which they are twice as large: a store takes 10,000 of them."""
_FEW_FILES: Final = 8
"""So many are looked at one by one, and more by listing, if that is shorter."""
_LOOKERS: Final = 16


class ObjectStates:
    """Reads what is in object stores, and makes writers.

    Args:
        client: of the server.
    """

    def __init__(self, client: ObjectStore) -> None:
        self.client, self.part_size = client, client.part_size
        self.places = threading.BoundedSemaphore(client.concurrent)

    @classmethod
    def of(cls, settings: Settings, scheme: str) -> ObjectStates:
        """What settings ask for; without I/O.

        Raises:
            ConfigurationError: they are wrong.
        """
        return cls(open_store(scheme, settings))

    def place(self, bucket: str, key: str) -> ObjectPlace:
        return ObjectPlace(bucket, key, self.client.scheme)

    def writer(
        self, place: ObjectPlace, hint: str, threshold: int, still_wanted: Callable[[], bool], head: bytes = b""
    ) -> StateWriter:
        """A writer of a new object.

        Args:
            place: of the object, which nobody else uses.
            hint: what it is, for people.
            threshold: what is smaller stays in its handle.
            still_wanted: asked when the object is there: whether somebody still wants it.
            head: stands in the object in front of the state; with one there is a line with a checksum behind it.
        """
        return _ObjectWriter(self.client, place, hint, threshold, still_wanted, self.part_size, self.places, head)

    # -- reading

    def open(self, handle: FileState) -> BinaryIO:
        """A seekable stream over the bytes of a handle.

        Raises:
            CheckpointCorruptedError: the object is missing, or too short.
            CheckpointStorageError: it can't be read for now.
        """
        stream = _StateStream(self.client, object_place(handle.path, "state file"), handle)
        stream.begin()
        return io.BufferedReader(stream, buffer_size=1 << 16)

    def verify(self, handles: Iterable[FileState]) -> None:
        """Look at the sizes of objects; those of many that stand together are read from a listing.

        Raises:
            CheckpointCorruptedError: one is missing, or too short.
            CheckpointStorageError: it can't be told for now.
        """
        ends: dict[ObjectPlace, FileState] = {}
        for handle in handles:
            place = object_place(handle.path, "state file")
            known = ends.get(place)
            if known is None or known.offset + known.length < handle.offset + handle.length:
                ends[place] = handle
        together: dict[tuple[str, str], dict[str, FileState]] = {}
        for place, handle in ends.items():
            folder = place.key.rpartition("/")[0]
            together.setdefault((place.bucket, folder), {})[place.key] = handle
        one_by_one: list[tuple[ObjectPlace, FileState]] = []
        for (bucket, folder), wanted in together.items():
            left = wanted if len(wanted) <= _FEW_FILES else self._verify_listed(bucket, folder, wanted)
            one_by_one += [(self.place(bucket, key), handle) for key, handle in left.items()]
        if len(one_by_one) <= _FEW_FILES:
            for place, handle in one_by_one:
                self._verify_one(place, handle)
            return
        with CallPool("objects", _LOOKERS, deadline=None) as threads:
            looks = [threads.submit(self._verify_one, place, handle) for place, handle in one_by_one]
            try:
                for look in looks:
                    look.result()
            finally:
                for look in looks:
                    look.cancel()

    def _verify_listed(self, bucket: str, folder: str, wanted: dict[str, FileState]) -> dict[str, FileState]:
        """Returns those that are still to be looked at, where too many others stand between them."""
        left = dict(wanted)
        last = max(left)
        first = min(left)
        most = 1000 + 20 * len(wanted)
        prefix = self.place(bucket, f"{folder}/" if folder else "")
        for seen, one in enumerate(self.client.find(prefix, after=first[:-1])):
            handle = left.pop(one.key, None)
            if handle is not None:
                _long_enough(handle, one.size)
            if not left or one.key >= last or seen >= most:
                break
        else:
            seen = 0
        if left and seen < most:
            raise CheckpointCorruptedError(next(iter(left.values())).path, self._missing())
        return left

    def _verify_one(self, place: ObjectPlace, handle: FileState) -> None:
        size = self.client.size(place)
        if size is None:
            raise CheckpointCorruptedError(handle.path, self._missing())
        _long_enough(handle, size)

    def _missing(self) -> str:
        return f"the object is missing at {self.client.endpoint}"

    def read_metadata(self, place: ObjectPlace) -> tuple[str, bytes]:
        """Path and bytes of the metadata that are at a place, or in the directory that it is.

        Raises:
            CheckpointCorruptedError: there are none.
            CheckpointStorageError: they can't be read for now.
        """
        tries = [place] if place.key.rpartition("/")[2] == METADATA else [place / METADATA, place]
        for one in tries:
            with suppress(NoSuchObjectError):
                return str(one), self.client.get(one)[0]
        raise CheckpointCorruptedError(str(tries[0]), f"{self._no_metadata(tries[0])} at {self.client.endpoint}")

    def _no_metadata(self, metadata: ObjectPlace) -> str:
        directory = metadata.key.rpartition("/")[0]
        below = metadata.at(f"{directory}/")
        found = [
            name
            for one in self.client.find(below, "/")
            if (name := one.key[len(below.key) :].rstrip("/")).startswith("chk-")
        ]
        if found:
            return f"there is no checkpoint, for it has no metadata; checkpoints in this directory: {', '.join(found)}"
        return "there is no checkpoint"

    # -- removing

    def remove(self, bucket: str, keys: Iterable[str]) -> None:
        """Remove objects, and the parts of uploads whose records are among them.

        Raises:
            CheckpointStorageError: not all could be removed.
        """
        gone = list(keys)
        for key in gone:
            of = upload_of(key)
            if of is not None:
                self.client.abort_uploads(self.place(bucket, of))
        if gone:
            self.client.delete(bucket, gone)


def part_bytes(first: int, before: int) -> int:
    """Size of a part behind so many others, of which the first ones have this size."""
    return first << (before // _GROWS_EVERY)


def record_of(place: ObjectPlace) -> ObjectPlace:
    """Of uploads to a key."""
    return place.at(f"{place.key}{_UPLOAD}")


def upload_of(key: str) -> str | None:
    """The key of the object that a record is of; None = it is none."""
    return key.removesuffix(_UPLOAD) if key.endswith(_UPLOAD) else None


def _long_enough(handle: FileState, size: int) -> None:
    needed = handle.offset + handle.length
    if size < needed:
        raise CheckpointCorruptedError(handle.path, f"it is cut off: {size} bytes are there of {needed}")


class _ObjectWriter(StateWriter):
    """Gathers small state; of what is larger, parts go up on threads of their own while more comes."""

    def __init__(
        self,
        client: ObjectStore,
        place: ObjectPlace,
        hint: str,
        threshold: int,
        still_wanted: Callable[[], bool],
        part_size: int,
        places: threading.BoundedSemaphore,
        head: bytes = b"",
    ) -> None:
        self._client, self._place, self._threshold = client, place, threshold
        self._head = head
        self._what = f"state of {hint!r}" if hint else "state"
        self._still_wanted, self._part_size, self._places = still_wanted, part_size, places
        self._buffer = bytearray(head)
        self._recorded = False
        self._upload, self._alone = "", True
        self._parts: list[PartOnItsWay] = []
        self._closed = False
        self._length = 0
        self._checksum = RunningChecksum()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._check()
        with memoryview(data).cast("B") as view:
            self._checksum.update(view)
            self._length += len(view)
            self._append(view)

    def _append(self, view: bytes | memoryview) -> None:
        position = 0
        while position < len(view):
            size = part_bytes(self._part_size, len(self._parts))
            piece = view[position : position + size - len(self._buffer)]
            self._buffer += piece
            position += len(piece)
            if len(self._buffer) >= size:
                self._leaving_nothing(self._send)

    def close(self) -> StateHandle:
        self._check()
        if not self._upload and self._length < self._threshold:
            self._closed = True
            return InlineState(bytes(self._buffer[len(self._head) :]))
        digest = self._checksum.hexdigest()
        if self._head:
            self._append(end_of_state(self._length, digest))
        self._leaving_nothing(self._finish)
        self._closed = True
        return FileState(str(self._place), self._length, digest, len(self._head))

    def abort(self) -> None:
        if not self._closed:
            self._closed = True
            self._drop()

    def _check(self) -> None:
        if self._closed:
            raise CheckpointStorageError(f"{self._what}: its writer was closed before")

    def _send(self) -> None:
        for part in self._parts:
            part.raise_if_failed()
        if not self._upload:
            self._recorded = True
            self._client.put(record_of(self._place), b"")
            self._upload, self._alone = self._client.begin_upload(self._place)
        data = bytes(self._buffer)
        self._buffer = bytearray()
        self._parts.append(
            PartOnItsWay(self._client, self._place, self._upload, len(self._parts) + 1, data, self._places)
        )

    def _finish(self) -> None:
        if self._upload:
            if self._buffer:
                self._send()
            tags = [part.tag() for part in self._parts]
            try:
                self._client.complete_upload(self._place, self._upload, tags)
            except NoSuchUploadError:
                written = self._length + len(self._head)
                if self._head:
                    written += len(end_of_state(self._length, self._checksum.hexdigest()))
                if self._client.size(self._place) != written:  # else it was done, and the answer was lost
                    raise
        else:
            self._client.put(self._place, bytes(self._buffer))
            self._buffer = bytearray()
        if not self._still_wanted():
            with suppress(CheckpointStorageError):  # whoever did not want it any more looks again
                self._client.delete(self._place.bucket, [self._place.key])
            raise CheckpointStorageError(
                f"{self._what} can't be written to {self._place}: the checkpoint was given up meanwhile"
            )
        if self._upload:
            with suppress(CheckpointStorageError):  # it goes with the checkpoint
                if not self._alone:
                    self._client.abort_uploads(self._place)
                self._client.delete(self._place.bucket, [record_of(self._place).key])

    def _leaving_nothing(self, action: Callable[[], None]) -> None:
        try:
            action()
        except NoSuchUploadError:
            self._closed = True
            self._drop()
            raise CheckpointStorageError(
                f"{self._what} can't be written to {self._place}: the upload was ended, perhaps because the checkpoint "
                "was given up meanwhile"
            ) from None
        except CheckpointStorageError as error:
            self._closed = True
            try:
                if isinstance(error, StoreAwayError):  # to ask it for more would keep the next checkpoint waiting
                    raise
                self._drop()
            except CheckpointStorageError:
                error.add_note(f"a part of it may be left at {self._place}")
            raise CheckpointStorageError(f"{self._what}: {error}") from error
        except BaseException:
            self.abort()
            raise

    def _drop(self) -> None:
        """Remove what is there; what can't be, goes with the checkpoint."""
        self._buffer = bytearray()
        for part in self._parts:
            part.wait()
        self._parts.clear()
        if self._recorded:
            self._client.abort_uploads(self._place)
            self._client.delete(self._place.bucket, [record_of(self._place).key])


class PartOnItsWay:
    """A thread that uploads a part; waits until fewer than the most go up at once.

    Args:
        client: of the server.
        place: of the object.
        upload: its id.
        number: of the part, from 1.
        data: of the part.
        places: as many as may go up at once.
    """

    def __init__(
        self,
        client: ObjectStore,
        place: ObjectPlace,
        upload: str,
        number: int,
        data: bytes,
        places: threading.BoundedSemaphore,
    ) -> None:
        self._tag = ""
        self._error: BaseException | None = None
        places.acquire()

        def run() -> None:
            nonlocal data
            try:
                self._tag = client.upload_part(place, upload, number, data)
            except BaseException as error:  # raised where the writer is
                self._error = error
            finally:
                data = b""
                places.release()

        self._thread = threading.Thread(target=run, name=f"firesteel-upload-{number}", daemon=True)
        self._thread.start()

    def raise_if_failed(self) -> None:
        """Raises: what the upload has raised."""
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        """Until it is over."""
        self._thread.join()

    def tag(self) -> str:
        """Its tag, when it is there.

        Raises:
            NoSuchUploadError, CheckpointStorageError: it could not be uploaded.
        """
        self.wait()
        self.raise_if_failed()
        return self._tag


class ObjectStream(io.RawIOBase):
    """Some bytes of an object as a file. A block is read at once; blocks grow while they follow each other.

    Args:
        client: of the server.
        place: of the object.
        length: how many bytes.
        offset: where they begin.
    """

    def __init__(self, client: ObjectStore, place: ObjectPlace, length: int, offset: int = 0) -> None:
        self._client, self._place, self._length, self._offset = client, place, length, offset
        self._position = 0
        self._start, self._block, self._size = 0, b"", _FIRST_BLOCK

    def _gone(self) -> Exception:
        """What is raised when the object is missing."""
        return FileNotFoundError(errno.ENOENT, f"the object is missing at {self._client.endpoint}", str(self._place))

    def _look(self, size: int) -> None:
        """Raise if an object of this size has not all of the bytes."""
        if size < self._offset + self._length:
            raise CheckpointStorageError(
                f"{self._place} can't be read: it is shorter than it was, {size} bytes are there of "
                f"{self._offset + self._length}"
            )

    def _fetch(self, position: int, wanted: int) -> None:
        follows = bool(self._block) and position == self._start + len(self._block)
        self._size = min(self._size * 2, _LARGEST_BLOCK) if follows else _FIRST_BLOCK
        length = min(max(self._size, min(wanted, _LARGEST_BLOCK)), self._length - position)
        self._block = b""
        try:
            data, whole = self._client.get(self._place, self._offset + position, length)
        except NoSuchObjectError:
            raise self._gone() from None
        except BeyondEndError:
            self._look(self._client.size(self._place) or 0)
            raise CheckpointStorageError(f"{self._place} can't be read: the server says that it ends before") from None
        self._look(whole)
        if len(data) != length:
            raise CheckpointStorageError(
                f"{self._place} can't be read: {len(data)} bytes have come instead of {length}"
            )
        self._start, self._block = position, data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Nothing is fetched by it."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._length}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # a writable buffer, in typeshed's words
        """What is at hand; if that is nothing a block is fetched, or all that is asked for, up to the largest block."""
        room = min(len(buffer), max(0, self._length - self._position))
        if not room:
            return 0
        if not self._start <= self._position < self._start + len(self._block):
            self._fetch(self._position, room)
        begin = self._position - self._start
        piece = self._block[begin : begin + room]
        memoryview(buffer)[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def close(self) -> None:
        self._block = b""
        super().close()


class _StateStream(ObjectStream):
    """Bytes of a handle."""

    def __init__(self, client: ObjectStore, place: ObjectPlace, handle: FileState) -> None:
        super().__init__(client, place, handle.length, handle.offset)
        self._handle = handle

    def begin(self) -> None:
        """Read the first block.

        Raises:
            CheckpointCorruptedError: the object is missing, or too short.
        """
        if self._handle.length:
            self._fetch(0, 0)
            return
        size = self._client.size(self._place)
        if size is None:
            raise self._gone()
        _long_enough(self._handle, size)

    def _look(self, size: int) -> None:
        _long_enough(self._handle, size)

    def _gone(self) -> CheckpointCorruptedError:
        return CheckpointCorruptedError(self._handle.path, f"the object is missing at {self._client.endpoint}")
