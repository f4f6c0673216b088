"""Part files of sinks in object stores: uploads in parts, which are completed when a checkpoint has them.

::

    <base path>/<bucket>/part-…            exists, as a whole, when it was committed
    <base path>/_inprogress/<job and operator>/<subtask>of<parallelism>.<checkpoint>.<attempt>.<unique>
                                           record of an upload: holds the key of its object

Bytes are buffered, and uploaded in parts of ``s3.upload.min.part.size`` on threads of their own. A checkpoint holds the
id of the upload, the tags of its parts, and the bytes that are no part yet (all but the last have at least 5 MiB).
Nothing is copied, and nothing that a reader sees is ever deleted.

**An attempt never goes on with the upload of another attempt**, which may still be alive, and replace a part. It
completes the upload with the parts in the checkpoint, as a file of its own, and begins the next file with the bytes
that were no part. A part ends between two records, so both files hold whole records.

**Uploads that no checkpoint refers to are aborted.** MinIO lists uploads only for a known key, and keys have random
names. So a record is written before each upload. Its name says, as that of a hidden local file does, which attempt
began the upload after which checkpoint. No checkpoint refers to uploads that were begun after the checkpoint that the
task goes on from. The record is removed after the commit. So if an upload is gone, and its object does not exist, but
its record does, the upload was lost.
"""

from __future__ import annotations

import io
import logging
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from firesteel.checkpoint.object_states import ObjectStates, PartUpload, part_bytes
from firesteel.checkpoint.object_store import (
    NoSuchObjectError,
    NoSuchUploadError,
    ObjectStore,
    StoreAwayError,
    StoreRefusedError,
)
from firesteel.checkpoint.places import ObjectPlace, object_place
from firesteel.connectors.filesystems.file_system import (
    MakeDurable,
    PartCommitter,
    PartOutput,
    Persisted,
    RecoverableWriter,
    RecoveredPart,
)
from firesteel.connectors.hidden_files import is_orphan, owner_of
from firesteel.core.call_pool import CallPool
from firesteel.core.errors import CheckpointStorageError, FileSystemError, StateRestoreError
from firesteel.functions.sink import WriterContext
from firesteel.functions.two_phase import ALREADY_COMMITTED, COMMITTED, CommitOutcome, CommitResult

logger = logging.getLogger(__name__)

PARTS: Final = "_inprogress"
_NAME: Final = re.compile(r"(\d+)of(\d+)\.(\d+)\.(\d+)\.[0-9a-f]{32}$")
_COMMITS: Final = 8
"""Uploads that are completed at the same time."""


def remove_upload(client: ObjectStore, record: ObjectPlace) -> None:
    """Abort the upload that a record belongs to, and remove the record.

    Raises:
        CheckpointStorageError: the store does not do it.
    """
    try:
        key = client.get(record)[0].decode()
    except NoSuchObjectError:
        return
    client.abort_uploads(record.at(key))
    client.delete(record.bucket, [record.key])


class _Stream(io.RawIOBase):
    """Buffers bytes, and sends them when there are enough for a part."""

    def __init__(self, send: Callable[[], None], room: Callable[[], int]) -> None:
        self._send, self._room = send, room
        self.buffered = bytearray()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with memoryview(data).cast("B") as view:
            self.buffered += view
            self.size += len(view)
            count = len(view)
        if len(self.buffered) >= self._room():  # all bytes are sent, because parts end between two records
            self._send()
        return count

    def tell(self) -> int:
        return self.size


class ObjectOutput(PartOutput):
    """A part file that is an upload. The upload begins when there are enough bytes for its first part.

    Args:
        writer: writer of the subtask.
        place: place of the object.
    """

    stream: Any

    def __init__(self, writer: ObjectWriter, place: ObjectPlace) -> None:
        self._writer, self._place = writer, place
        self.path = str(place)
        self.stream = _Stream(self._send, lambda: part_bytes(writer.states.part_size, len(self._parts)))
        self._record: ObjectPlace | None = None
        self._upload, self._alone = "", True
        self._parts: list[PartUpload] = []

    def _send(self) -> None:
        client, buffered = self._writer.states.client, self.stream.buffered
        try:
            for part in self._parts:
                part.raise_if_failed()
            if not self._upload:
                self._record = self._writer.recorded(self._place)
                if self.kept:
                    self._keep_record()
                self._upload, self._alone = client.begin_upload(self._place)
            number, data = len(self._parts) + 1, bytes(buffered)
            buffered.clear()
            self._parts.append(PartUpload(client, self._place, self._upload, number, data, self._writer.states.places))
        except (NoSuchUploadError, CheckpointStorageError) as error:
            raise self._failed(error) from None

    def _tags(self) -> list[str]:
        try:
            return [part.tag() for part in self._parts]
        except (NoSuchUploadError, CheckpointStorageError) as error:
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> FileSystemError:
        if isinstance(error, NoSuchUploadError):
            return FileSystemError(
                f"file sink: the upload of {self._place} was ended by somebody: aborted by hand, or by a rule of the "
                "bucket that removes unfinished uploads"
            )
        return FileSystemError(f"file sink: {error}")

    def _plain(self, tags: Sequence[str], size: int) -> dict[str, Any]:
        """The committable of these parts."""
        assert self._record is not None
        plain = {"uri": self.path, "upload": self._upload, "parts": list(tags), "size": size}
        return plain | {"record": str(self._record)} | ({} if self._alone else {"alone": False})

    def persist(self, make_durable: MakeDurable) -> Persisted:
        """Wait for the parts; returns the upload, and the bytes that are no part yet."""
        tail = bytes(self.stream.buffered)
        if not self._upload:
            return Persisted({"uri": self.path}, tail)
        return Persisted(self._plain(self._tags(), self.stream.size - len(tail)), tail)

    def close(self, make_durable: MakeDurable) -> None:
        """Send the remaining bytes as the last part."""
        if self.stream.buffered:
            self._send()

    def committable(self) -> dict[str, Any] | None:
        """Wait for the parts; returns the upload, or None if nothing was written."""
        return self._plain(self._tags(), self.stream.size) if self._upload else None

    def keep(self) -> None:
        """Leave the upload to the checkpoints of the job, which remove it when they do not need it."""
        if not self.kept:
            self.kept = True
            self._keep_record()

    def _keep_record(self) -> None:
        if self._record is not None:
            self._writer.context.keep_temporary_file(str(self._record))

    def discard(self) -> None:
        """Wait for parts that are on their way."""
        self.stream.buffered.clear()
        for part in self._parts:
            part.wait()

    def abort(self) -> None:
        """Abort the upload; if the server is away, a later attempt or the TaskManager does it."""
        self.discard()
        if self._record is not None and self._writer.removes(self._record):
            self._writer.context.forget_temporary_file(str(self._record))
            self._record = None


class ObjectWriter(RecoverableWriter):
    """Writes part files as uploads.

    Args:
        states: connection to the server.
        base: base path of the sink.
        context: context of the subtask.
    """

    def __init__(self, states: ObjectStates, base: ObjectPlace, context: WriterContext) -> None:
        self.states, self._base, self.context = states, base, context
        self._records = base / PARTS / owner_of(context)
        self._away = False

    def begin(self, folder: str, name: str) -> PartOutput:
        """Make a part; the server is asked only when there are enough bytes for a part of the upload."""
        parts = [part for part in folder.split("/") if part]
        place = self._base
        for part in (*parts, name):
            place = place / part
        return ObjectOutput(self, place)

    def recorded(self, place: ObjectPlace) -> ObjectPlace:
        """Write the record of an upload that is about to begin.

        Raises:
            CheckpointStorageError: the record can't be written.
        """
        context = self.context
        subtask = f"{context.subtask_index}of{context.parallelism}"
        record = self._records / f"{subtask}.{context.checkpoint_id}.{context.attempt}.{uuid.uuid4().hex}"
        context.register_temporary_file(str(record))
        self.states.client.put(record, place.key.encode())
        return record

    def removes(self, record: ObjectPlace) -> bool:
        """Try to abort an upload; returns whether it is aborted."""
        if self._away:
            return False
        try:
            remove_upload(self.states.client, record)
        except CheckpointStorageError as error:
            self._away = isinstance(error, StoreAwayError)
            logger.warning("file sink: an upload that is not needed is left at %s for now: %s", record, error)
            return False
        return True

    def recover(self, folder: str, new_name: Callable[[], str], persisted: Persisted) -> RecoveredPart:
        """Complete the upload of the former part, and begin another part with the bytes that were not uploaded."""
        plain = persisted.plain
        committable = None
        if plain.get("upload"):
            place = object_place(plain["uri"], "part of a file sink")
            try:
                visible_size = self.states.client.size(place)
            except CheckpointStorageError as error:
                raise FileSystemError(f"file sink: {error}") from None
            if visible_size is not None:
                raise StateRestoreError(
                    f"file sink: {place} was not finished at the checkpoint, and is visible: a later checkpoint has "
                    "shown it. Start from the last one"
                )
            if owner_of(self.context) in plain["record"]:
                self.context.keep_temporary_file(plain["record"])
            committable = plain
        if not persisted.tail:
            return RecoveredPart(None, committable)
        output = self.begin(folder, new_name())
        output.stream.write(persisted.tail)
        return RecoveredPart(output, committable)

    def remove_orphans(self) -> None:
        """Abort uploads that former attempts began after the checkpoint that the task goes on from."""
        if self.context.attempt == 0:
            return
        client = self.states.client
        try:
            for record in client.find(self._records / ""):
                origin = _NAME.search(record.key)
                if origin is not None and is_orphan(self.context, *map(int, origin.groups())):
                    remove_upload(client, self._records.at(record.key))
        except CheckpointStorageError as error:
            raise FileSystemError(f"file sink: uploads of former attempts can't be removed: {error}") from None


class ObjectCommitter(PartCommitter):
    """Completes uploads.

    A committable has ``uri``; ``upload``, the id; ``parts``, their tags; ``size`` of all parts; ``record``; and
    ``alone``, which is false if a request without an answer may have begun another upload to the same key.

    Args:
        states: connection to the server.
        context: context of the subtask.
    """

    def __init__(self, states: ObjectStates, context: WriterContext) -> None:
        self._client, self._context = states.client, context

    def commit(self, committables: Sequence[Mapping[str, Any]], *, again: bool) -> list[CommitResult]:
        """Complete uploads, several at the same time, since each waits for the server."""
        if len(committables) == 1:
            results = [self._commit(committables[0], again=again)]
        else:
            with CallPool("firesteel-commit", _COMMITS, deadline=None) as threads:
                results = list(threads.map(lambda plain: self._commit(plain, again=again), committables))
        for plain, result in zip(committables, results, strict=True):
            if result.outcome in (CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED):
                self._context.forget_temporary_file(plain["record"])
        return results

    def _commit(self, plain: Mapping[str, Any], *, again: bool) -> CommitResult:
        place = object_place(plain["uri"], "part of a file sink")
        record = object_place(plain["record"], "record of an upload")
        try:
            try:
                self._client.complete_upload(place, plain["upload"], plain["parts"])
                result = COMMITTED
            except NoSuchUploadError:
                result = self._without_upload(place, record, int(plain["size"]), again=again)
                if result is not ALREADY_COMMITTED:
                    return result
            self._tidy(place, record, alone=plain.get("alone", True))
        except (CheckpointStorageError, NoSuchObjectError) as error:
            return CommitResult(CommitOutcome.UNKNOWN, str(error) or f"{place} could not be completed")
        return result

    def _without_upload(self, place: ObjectPlace, record: ObjectPlace, size: int, *, again: bool) -> CommitResult:
        """Result for an upload that is gone: it was completed before, or is lost."""
        visible_size = self._client.size(place)
        if visible_size == size:
            return ALREADY_COMMITTED
        if visible_size is not None:
            reason = f"{place} is visible with {visible_size} bytes instead of {size}: somebody else has written it"
            return CommitResult(CommitOutcome.FAILED, reason)
        if again and self._client.size(record) is None:
            logger.warning(
                "part file %s is gone, and so is the record of its upload: it was committed before the restart, and "
                "somebody has taken it away",
                place,
            )
            return ALREADY_COMMITTED
        reason = (
            f"the upload of {place} ({size} bytes) was ended before it could be completed, and there is no such "
            "object: it was aborted by hand, or by a rule of the bucket that removes unfinished uploads before the job "
            "came to commit them. What it held is lost"
        )
        return CommitResult(CommitOutcome.FAILED, reason)

    def _tidy(self, place: ObjectPlace, record: ObjectPlace, *, alone: bool) -> None:
        """Remove the record, and other uploads to the same key."""
        try:
            if not alone:
                self._client.abort_uploads(place)
            self._client.delete(record.bucket, [record.key])
        except StoreRefusedError as error:
            logger.warning("file sink: %s is visible, and the record of its upload stays: %s", place, error)
