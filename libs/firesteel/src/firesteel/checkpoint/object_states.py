"""State and metadata in an object store: written in parts while the data comes, read in blocks.

An object exists as a whole or not at all. An object that is larger than a part is uploaded in parts, which the server
keeps until the upload is completed. Before the first part an empty object ``<key>.upload`` (the record of the upload)
is written beside it, so that a clean-up finds the parts of a writer that has died: MinIO lists uploads only for a known
key.
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
"""Number of parts after which the size of parts doubles: a store takes at most 10,000 parts of an object."""
_FEW_FILES: Final = 8
"""Number of files up to which sizes are requested one by one; more are listed, if that takes fewer requests."""
_LOOKERS: Final = 16
"""Threads that request sizes, if there are more than ``_FEW_FILES``."""


class ObjectStates:
    """Reads and writes state in one object store.

    Args:
        client: client of the store.
    """

    def __init__(self, client: ObjectStore) -> None:
        self.client, self.part_size = client, client.part_size
        self.places = threading.BoundedSemaphore(client.concurrent)

    @classmethod
    def of(cls, settings: Settings, scheme: str) -> ObjectStates:
        """Make the reader for a scheme from the settings of a job; without I/O.

        Raises:
            ConfigurationError: the settings are wrong, or the client is not installed.
        """
        return cls(open_store(scheme, settings))

    def place(self, bucket: str, key: str) -> ObjectPlace:
        return ObjectPlace(bucket, key, self.client.scheme)

    def writer(
        self, place: ObjectPlace, hint: str, threshold: int, still_wanted: Callable[[], bool], head: bytes = b""
    ) -> StateWriter:
        """Open a writer of a new object.

        Args:
            place: place of the object, which nothing else uses.
            hint: what the state is, for errors.
            threshold: size in bytes below which state becomes inline.
            still_wanted: called once the object exists: whether its checkpoint was not given up meanwhile.
            head: bytes in the object in front of the state. With a head, a line with a checksum follows the state.
        """
        return _ObjectWriter(self.client, place, hint, threshold, still_wanted, self.part_size, self.places, head)

    # -- reading

    def open(self, handle: FileState) -> BinaryIO:
        """Open a seekable stream over the bytes of a handle.

        Raises:
            CheckpointCorruptedError: the object is missing, or too short.
            CheckpointStorageError: it can't be read for now.
        """
        stream = _StateStream(self.client, object_place(handle.path, "state file"), handle)
        stream.begin()
        return io.BufferedReader(stream, buffer_size=1 << 16)

    def verify(self, handles: Iterable[FileState]) -> None:
        """Check the size of each object; if a folder has many, their sizes are read from a listing.

        Raises:
            CheckpointCorruptedError: an object is missing, or too short.
            CheckpointStorageError: they can't be checked for now.
        """
        ends: dict[ObjectPlace, FileState] = {}  # of each object the handle that reaches furthest
        for handle in handles:
            place = object_place(handle.path, "state file")
            furthest = ends.get(place)
            if furthest is None or furthest.offset + furthest.length < handle.offset + handle.length:
                ends[place] = handle
        by_folder: dict[tuple[str, str], dict[str, FileState]] = {}
        for place, handle in ends.items():
            folder = place.key.rpartition("/")[0]
            by_folder.setdefault((place.bucket, folder), {})[place.key] = handle
        one_by_one: list[tuple[ObjectPlace, FileState]] = []
        for (bucket, folder), files in by_folder.items():
            unlisted = files if len(files) <= _FEW_FILES else self._verify_listed(bucket, folder, files)
            one_by_one += [(self.place(bucket, key), handle) for key, handle in unlisted.items()]
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

    def _verify_listed(self, bucket: str, folder: str, files: dict[str, FileState]) -> dict[str, FileState]:
        """Check the sizes of a folder's files by listing it; return the files that the listing did not reach.

        The listing is ended early if too many other objects stand between these files.
        """
        unlisted = dict(files)
        first, last = min(files), max(files)
        limit = 1000 + 20 * len(files)
        prefix = self.place(bucket, f"{folder}/" if folder else "")
        for count, listed in enumerate(self.client.find(prefix, after=first[:-1])):
            handle = unlisted.pop(listed.key, None)
            if handle is not None:
                _check_length(handle, listed.size)
            if not unlisted or listed.key >= last or count >= limit:
                break
        else:
            count = 0
        if unlisted and count < limit:  # the listing has passed all keys
            raise CheckpointCorruptedError(next(iter(unlisted.values())).path, self._missing())
        return unlisted

    def _verify_one(self, place: ObjectPlace, handle: FileState) -> None:
        size = self.client.size(place)
        if size is None:
            raise CheckpointCorruptedError(handle.path, self._missing())
        _check_length(handle, size)

    def _missing(self) -> str:
        return f"the object is missing at {self.client.endpoint}"

    def read_metadata(self, place: ObjectPlace) -> tuple[str, bytes]:
        """Read the metadata at a place, or in the directory at that place; returns their path and bytes.

        Raises:
            CheckpointCorruptedError: there are none.
            CheckpointStorageError: they can't be read for now.
        """
        candidates = [place] if place.key.rpartition("/")[2] == METADATA else [place / METADATA, place]
        for candidate in candidates:
            with suppress(NoSuchObjectError):
                return str(candidate), self.client.get(candidate)[0]
        reason = f"{self._no_metadata(candidates[0])} at {self.client.endpoint}"
        raise CheckpointCorruptedError(str(candidates[0]), reason)

    def _no_metadata(self, metadata: ObjectPlace) -> str:
        directory = metadata.key.rpartition("/")[0]
        below = metadata.at(f"{directory}/")
        checkpoints = [
            name
            for listed in self.client.find(below, "/")
            if (name := listed.key[len(below.key) :].rstrip("/")).startswith("chk-")
        ]
        if checkpoints:
            names = ", ".join(checkpoints)
            return f"there is no checkpoint, for it has no metadata; checkpoints in this directory: {names}"
        return "there is no checkpoint"

    # -- removing

    def remove(self, bucket: str, keys: Iterable[str]) -> None:
        """Remove objects, and the parts of uploads whose records are among them.

        Raises:
            CheckpointStorageError: not all could be removed.
        """
        removable = list(keys)
        for key in removable:
            upload_key = upload_of(key)
            if upload_key is not None:
                self.client.abort_uploads(self.place(bucket, upload_key))
        if removable:
            self.client.delete(bucket, removable)


def part_bytes(first: int, index: int) -> int:
    """Return the size of the part at an index, if the first parts have the size ``first``."""
    return first << (index // _GROWS_EVERY)


def record_of(place: ObjectPlace) -> ObjectPlace:
    """Return the place of the record of uploads to an object."""
    return place.at(f"{place.key}{_UPLOAD}")


def upload_of(key: str) -> str | None:
    """Return the key of the object to which a record of uploads belongs; None = the key is not that of a record."""
    return key.removesuffix(_UPLOAD) if key.endswith(_UPLOAD) else None


def _check_length(handle: FileState, size: int) -> None:
    needed = handle.offset + handle.length
    if size < needed:
        raise CheckpointCorruptedError(handle.path, f"it is cut off: {size} bytes are there of {needed}")


class _ObjectWriter(StateWriter):
    """Buffers small state, which becomes inline; uploads parts of larger state on other threads while more comes."""

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
        self._upload, self._alone = "", True  # id; whether no other upload to the key can exist
        self._parts: list[PartUpload] = []
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
            PartUpload(self._client, self._place, self._upload, len(self._parts) + 1, data, self._places)
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
                if self._client.size(self._place) != written:  # else the first answer was lost: it is complete
                    raise
        else:
            self._client.put(self._place, bytes(self._buffer))
            self._buffer = bytearray()
        # The object exists now. If the checkpoint was given up before that, its clean-up may have missed the object.
        if not self._still_wanted():
            with suppress(CheckpointStorageError):  # the clean-up looks again after a minute
                self._client.delete(self._place.bucket, [self._place.key])
            raise CheckpointStorageError(
                f"{self._what} can't be written to {self._place}: the checkpoint was given up meanwhile"
            )
        if self._upload:
            with suppress(CheckpointStorageError):  # the record is removed with the checkpoint
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
                if isinstance(error, StoreAwayError):  # further requests would delay the next checkpoint
                    raise
                self._drop()
            except CheckpointStorageError:
                error.add_note(f"a part of it may be left at {self._place}")
            raise CheckpointStorageError(f"{self._what}: {error}") from error
        except BaseException:
            self.abort()
            raise

    def _drop(self) -> None:
        """Remove the parts uploaded so far; what can't be removed now is removed with the checkpoint."""
        self._buffer = bytearray()
        for part in self._parts:
            part.wait()
        self._parts.clear()
        if self._recorded:
            self._client.abort_uploads(self._place)
            self._client.delete(self._place.bucket, [record_of(self._place).key])


class PartUpload:
    """A part that a thread of its own uploads; its constructor waits until fewer than the maximum are uploading.

    Args:
        client: client of the store.
        place: place of the object.
        upload: id of the upload.
        number: number of the part, from 1.
        data: content of the part.
        places: semaphore that bounds the number of parts uploading at once.
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
            except BaseException as error:  # raised on the writer's thread
                self._error = error
            finally:
                data = b""
                places.release()

        self._thread = threading.Thread(target=run, name=f"firesteel-upload-{number}", daemon=True)
        self._thread.start()

    def raise_if_failed(self) -> None:
        """Raise the error of the upload, if it has failed so far."""
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        """Wait for the end of the upload, whether it succeeds or fails."""
        self._thread.join()

    def tag(self) -> str:
        """Wait for the end of the upload, and return the part's tag.

        Raises:
            NoSuchUploadError, CheckpointStorageError: the part could not be uploaded.
        """
        self.wait()
        self.raise_if_failed()
        return self._tag


class ObjectStream(io.RawIOBase):
    """A range of an object as a file. It is read in blocks, which grow while the reads are sequential.

    Args:
        client: client of the store.
        place: place of the object.
        length: number of bytes.
        offset: position of the first byte in the object.
    """

    def __init__(self, client: ObjectStore, place: ObjectPlace, length: int, offset: int = 0) -> None:
        self._client, self._place, self._length, self._offset = client, place, length, offset
        self._position = 0
        self._start, self._block, self._size = 0, b"", _FIRST_BLOCK

    def _gone(self) -> Exception:
        """The error to raise if the object is missing."""
        return FileNotFoundError(errno.ENOENT, f"the object is missing at {self._client.endpoint}", str(self._place))

    def _check_size(self, size: int) -> None:
        """Raise if an object of this size does not contain the whole range."""
        if size < self._offset + self._length:
            raise CheckpointStorageError(
                f"{self._place} can't be read: it has become shorter: only {size} of {self._offset + self._length} "
                "bytes are there"
            )

    def _fetch(self, position: int, requested: int) -> None:
        follows = bool(self._block) and position == self._start + len(self._block)
        self._size = min(self._size * 2, _LARGEST_BLOCK) if follows else _FIRST_BLOCK
        length = min(max(self._size, min(requested, _LARGEST_BLOCK)), self._length - position)
        self._block = b""
        try:
            data, whole = self._client.get(self._place, self._offset + position, length)
        except NoSuchObjectError:
            raise self._gone() from None
        except BeyondEndError:
            self._check_size(self._client.size(self._place) or 0)
            raise CheckpointStorageError(f"{self._place} can't be read: the server says that it is shorter") from None
        self._check_size(whole)
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
        """Set the position; nothing is fetched before the next read."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._length}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # a writable buffer, in typeshed's words
        """Read from the current block; at its end fetch the next one, which is larger if the caller reads more."""
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
    """The bytes of a handle, which must be intact: errors are those of a damaged checkpoint."""

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
        _check_length(self._handle, size)

    def _check_size(self, size: int) -> None:
        _check_length(self._handle, size)

    def _gone(self) -> CheckpointCorruptedError:
        return CheckpointCorruptedError(self._handle.path, f"the object is missing at {self._client.endpoint}")
