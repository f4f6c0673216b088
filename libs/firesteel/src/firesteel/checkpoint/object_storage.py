"""Checkpoints in an object store: in a bucket of S3, or in HDFS, which is used like one.

::

    s3://<bucket>/<path>/<job id>/
        chk-7/_metadata        description of the checkpoint
        chk-7/_open            mark: while it exists, state may be written for the checkpoint
        chk-7/<unique>         state of this checkpoint only
        shared/7-<unique>      state that several checkpoints may use
        <any>.upload           record: parts of this object are being uploaded

An object store has no directories whose removal would make a late write fail. Instead a writer checks for ``_open``
after it has written its object, and giving a checkpoint up removes ``_open`` before it lists the objects. So one of the
two always finds an object that is no longer needed.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Collection, Iterable
from typing import BinaryIO, Final

from firesteel.checkpoint.handles import StateHandle, checksum
from firesteel.checkpoint.object_states import upload_of
from firesteel.checkpoint.object_store import PROBE, NoSuchObjectError, ObjectExistsError, StoreRefusedError
from firesteel.checkpoint.places import ObjectPlace, is_object, object_place
from firesteel.checkpoint.state_files import METADATA
from firesteel.checkpoint.state_reader import StateReader
from firesteel.checkpoint.storage import CheckpointStorage, StateWriter, StorageParameters
from firesteel.config import options
from firesteel.core.errors import CheckpointNumberTakenError, CheckpointStorageError, ConfigurationError

OPEN: Final = "_open"
_SHARED: Final = "shared"
_CHECKPOINT: Final = re.compile(r"chk-(\d+)")
_OF_A_CHECKPOINT: Final = re.compile(r"(\d+)-")
_KEY: Final = options.CHECKPOINTING_DIRECTORY.key
_LATE: Final = 60.0
"""Seconds after which requests that a hanging server still had when their callers gave up have taken effect."""
_LOOKS: Final = 8
"""Number of checkpoints that one call of ``prepare`` cleans up again."""

logger = logging.getLogger(__name__)


class ObjectCheckpointStorage(CheckpointStorage):
    """Base of the checkpoint storages in object stores; each plug-in derives from it, and adds its store's client.

    Args:
        parameters: parameters whose settings have ``execution.checkpointing.dir`` and ``s3.*``.

    Raises:
        ConfigurationError: no directory is set, or it or another option is malformed.
    """

    def __init__(self, parameters: StorageParameters) -> None:
        settings = parameters.settings
        directory = settings.get(options.CHECKPOINTING_DIRECTORY)
        if not directory:
            raise ConfigurationError(f"the checkpoint storage {self.name!r} needs {_KEY}, as s3://bucket/directory")
        self.base = object_place(directory, _KEY)
        self._own_subdirectory = settings.get(options.CHECKPOINTING_CREATE_SUBDIRECTORY)
        self.root = self.base / parameters.job_id if self._own_subdirectory else self.base
        self._threshold = settings.get(options.CHECKPOINTING_INLINE_THRESHOLD)
        self._reader = StateReader(settings)
        self._states = self._reader.store(self.base.scheme)
        self._client = self._states.client
        self._tried: dict[int, str] = {}
        """Checkpoint -> checksum of the metadata that this object tried to write; they may exist despite an error."""
        self._late: dict[int, tuple[float, frozenset[str]]] = {}
        """Checkpoint that was given up -> when to clean up again after late writes, and which of its files stay."""

    @property
    def persistent(self) -> bool:
        return True

    def directory(self, checkpoint_id: int) -> ObjectPlace:
        return self.root / f"chk-{checkpoint_id}"

    def check(self) -> None:
        """Check that the credentials allow writing to the bucket."""
        try:
            self._client.check(self.root)
        except StoreRefusedError as error:
            raise ConfigurationError(f"{_KEY} = {self.base}: {error}") from error

    # -- slots

    def open_state_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        """Open a writer of a new object, which is created only when it is needed."""
        return self._writer(self.directory(checkpoint_id) / uuid.uuid4().hex, checkpoint_id, hint)

    def open_shared_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        """Open a writer of an object that stays while any checkpoint uses it; its name has the id of the first one."""
        return self._writer(self.root / _SHARED / f"{checkpoint_id}-{uuid.uuid4().hex}", checkpoint_id, hint)

    def _writer(self, place: ObjectPlace, checkpoint_id: int, hint: str) -> StateWriter:
        mark = self.directory(checkpoint_id) / OPEN
        return self._states.writer(place, hint, self._threshold, lambda: self._client.size(mark) is not None)

    def open_state(self, handle: StateHandle) -> BinaryIO:
        """Open a stream over the bytes of a handle."""
        return self._reader.open_state(handle)

    # -- the JobMaster

    def prepare(self, checkpoint_id: int) -> None:
        """Mark the checkpoint as open; also clean up again after earlier checkpoints that were given up."""
        metadata = self.directory(checkpoint_id) / METADATA
        if self._client.size(metadata) is not None:
            numbers = [number for number in self._checkpoints() if self._has_metadata(number)]
            raise CheckpointNumberTakenError(
                f"{metadata} is a checkpoint already, of another run: start from it with -s, or use another "
                f"directory ({_KEY})",
                max(numbers, default=checkpoint_id),
            )
        self._client.put(self.directory(checkpoint_id) / OPEN, b"")
        due = [number for number, (when, _) in self._late.items() if when <= self._client.clock.monotonic()]
        try:
            self._look_again(due[:_LOOKS])
        except CheckpointStorageError as error:
            logger.warning("remains of checkpoints that were given up can't be removed yet: %s", error)

    def _look_again(self, numbers: Iterable[int]) -> None:
        """Remove objects of given-up checkpoints that were written late, or could not be removed before."""
        for number in list(numbers):
            self._discard(number, (), self._late[number][1])
            del self._late[number]
            self._tried.pop(number, None)

    def verify(self, handles: Iterable[StateHandle]) -> None:
        """Check that all files exist and are long enough."""
        self._reader.verify(handles)

    def write_metadata(self, checkpoint_id: int, data: bytes) -> str:
        """Create the metadata, if there are none: the store itself refuses to replace an object."""
        place = self.directory(checkpoint_id) / METADATA
        self._tried[checkpoint_id] = checksum(data)
        try:
            self._client.put(place, data, new=True)
        except ObjectExistsError:
            try:
                present = self._client.get(place)[0]
            except NoSuchObjectError:
                present = None
            if present != data:  # else the first answer of this call was lost
                raise CheckpointStorageError(
                    f"{place} is there already, and holds something else: nothing was overwritten. Does another job "
                    f"or JobMaster use {_KEY} = {self.base}?"
                ) from None
        return str(place)

    def read_metadata(self, location: str) -> tuple[str, bytes]:
        """Read the metadata in an object, or in the directory with that object."""
        return self._reader.read_metadata(location)

    def left_behind(self, below: int) -> list[tuple[int, str, bytes | None]]:
        """List checkpoints with a directory or shared files; none if the directory is not the job's alone."""
        if not self._own_subdirectory:
            return []
        remains: list[tuple[int, str, bytes | None]] = []
        shared = self._client.find(self._below(_SHARED))
        numbers = {number for listed in shared if (number := self._number_of_shared(listed.key)) is not None}
        for number in sorted(numbers | set(self._checkpoints())):
            if number < below:
                metadata = self.directory(number) / METADATA
                try:
                    data = self._client.get(metadata)[0]
                except NoSuchObjectError:
                    data = None
                remains.append((number, str(metadata), data))
        return remains

    def discard(self, checkpoint_id: int, files: Collection[str] = (), keep: Collection[str] = ()) -> None:
        """Remove the mark, then all objects, unless another job's checkpoint is in the directory."""
        kept_files = frozenset(keep) | self._late.get(checkpoint_id, (0.0, frozenset[str]()))[1]
        self._late[checkpoint_id] = self._client.clock.monotonic() + _LATE, kept_files
        self._discard(checkpoint_id, files, keep)

    def _discard(self, checkpoint_id: int, files: Collection[str] = (), keep: Collection[str] = ()) -> None:
        bucket, kept_keys = self.root.bucket, self._keys(keep)
        removable = self._keys(files) - kept_keys
        directory = self.directory(checkpoint_id)
        if self._is_ours(checkpoint_id):
            self._client.delete(bucket, [(directory / METADATA).key])
            self._client.delete(bucket, [(directory / OPEN).key])  # before the listing: see the head of this module
            removable |= self._keys_below(self.root.at(f"{directory.key}/")) - kept_keys
        if self._own_subdirectory:
            shared = self.root.at(f"{(self.root / _SHARED).key}/{checkpoint_id}-")
            removable |= self._keys_below(shared) - kept_keys
        self._states.remove(bucket, removable)

    def _is_ours(self, checkpoint_id: int) -> bool:
        """Whether a checkpoint's directory has no metadata, or those that this object has written."""
        try:
            metadata = self._client.get(self.directory(checkpoint_id) / METADATA)[0]
        except NoSuchObjectError:
            return True
        return self._tried.get(checkpoint_id) == checksum(metadata)

    def dispose(self, location: str, files: Collection[str], keep: Collection[str] = ()) -> None:
        """Remove the metadata, then the files, then what is left in the directory."""
        metadata = object_place(location, "checkpoint path")
        if not self._is_below_root(metadata):
            return
        bucket, kept_keys = self.root.bucket, self._keys(keep)
        self._client.delete(bucket, [metadata.key])
        removable = self._keys(files) - kept_keys
        directory = metadata.key.rpartition("/")[0]
        checkpoint = _CHECKPOINT.fullmatch(directory.rpartition("/")[2])
        if checkpoint is not None:
            self._tried.pop(int(checkpoint[1]), None)
            removable |= self._keys_below(self.root.at(f"{directory}/")) - kept_keys
        self._states.remove(bucket, removable)

    def close_job(self, keep: Collection[str] = ()) -> None:
        """Remove the job's objects, except for checkpoints and the files that they need."""
        self._look_again(self._late)
        bucket, kept_keys = self.root.bucket, self._keys(keep)
        begin = len(self.root.key) + 1 if self.root.key else 0
        folders: dict[str, set[str]] = {}
        for key in self._keys_below(self._below()):
            folders.setdefault(key[begin:].partition("/")[0], set()).add(key)
        removable: set[str] = set()
        retains_any = False
        for name, keys in folders.items():
            if _CHECKPOINT.fullmatch(name):
                if (self.root / name / METADATA).key in keys:
                    retains_any = True
                else:
                    removable |= keys - kept_keys
                    retains_any = retains_any or bool(keys & kept_keys)
        if not retains_any:
            removable |= folders.get(_SHARED, set()) - kept_keys
            if self._own_subdirectory:
                removable |= {key for name, keys in folders.items() if name.startswith(PROBE) for key in keys}
        self._states.remove(bucket, removable)
        if self._own_subdirectory and not retains_any:
            for key, upload in self._client.uploads(self._below()):
                if self._is_below_root(self.root.at(key)):
                    self._client.abort_upload(self.root.at(key), upload)

    # -- places and keys

    def _below(self, name: str = "") -> ObjectPlace:
        place = self.root / name if name else self.root
        return place.at(f"{place.key}/" if place.key else "")

    def _is_below_root(self, place: ObjectPlace) -> bool:
        same = (place.scheme, place.bucket) == (self.root.scheme, self.root.bucket)
        return same and place.key.startswith(self._below().key)

    def _keys(self, paths: Iterable[str]) -> set[str]:
        """Keys of those files that are below the job's directory."""
        places = [object_place(path, "state file") for path in paths if is_object(path)]
        return {place.key for place in places if self._is_below_root(place)}

    def _keys_below(self, prefix: ObjectPlace) -> set[str]:
        return {listed.key for listed in self._client.find(prefix)}

    def _checkpoints(self) -> list[int]:
        below = self._below()
        names = [listed.key[len(below.key) :].rstrip("/") for listed in self._client.find(below, "/")]
        return [int(match[1]) for match in map(_CHECKPOINT.fullmatch, names) if match is not None]

    def _has_metadata(self, number: int) -> bool:
        return self._client.size(self.directory(number) / METADATA) is not None

    def _number_of_shared(self, key: str) -> int | None:
        object_key = upload_of(key) or key
        match = _OF_A_CHECKPOINT.match(object_key.rpartition("/")[2])
        return None if match is None else int(match[1])
