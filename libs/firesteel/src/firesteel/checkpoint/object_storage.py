"""Checkpoints in an object store: a bucket that speaks S3, or HDFS, which is used as one.

::

    s3://<bucket>/<path>/<job id>/
        chk-7/_metadata        what belongs to the checkpoint
        chk-7/_open            until this goes, state may be written for the checkpoint
        chk-7/<unique>         state of this checkpoint only
        shared/7-<unique>      state that several checkpoints may use
        <any>.upload           parts of this one are going up

There are no directories in an object store: whoever has written state looks whether ``_open`` is still there, and
whoever gives a checkpoint up removes it before all else. So either of them finds what is of no use.
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
"""Seconds after which everything has come that was on its way to a server that hung when nobody waited any more."""
_LOOKS: Final = 8
"""Checkpoints at once that were given up and are looked at again."""

logger = logging.getLogger(__name__)


class ObjectCheckpointStorage(CheckpointStorage):
    """Keeps checkpoints under the names above; a plug-in derives from it, and brings the client of its store.

    Args:
        parameters: their settings have ``execution.checkpointing.dir`` and ``s3.*``.

    Raises:
        ConfigurationError: the directory or an option is wrong.
    """

    def __init__(self, parameters: StorageParameters) -> None:
        settings = parameters.settings
        directory = settings.get(options.CHECKPOINTING_DIRECTORY)
        if not directory:
            raise ConfigurationError(f"the checkpoint storage {self.name!r} needs {_KEY}, as s3://bucket/directory")
        self.base = object_place(directory, _KEY)
        self._own = settings.get(options.CHECKPOINTING_CREATE_SUBDIRECTORY)
        self.root = self.base / parameters.job_id if self._own else self.base
        self._threshold = settings.get(options.CHECKPOINTING_INLINE_THRESHOLD)
        self._reader = StateReader(settings)
        self._states = self._reader.store(self.base.scheme)
        self._client = self._states.client
        self._tried: dict[int, str] = {}
        """Checksums of metadata that this object has tried to write and not removed: they may come later."""
        self._late: dict[int, tuple[float, frozenset[str]]] = {}
        """Checkpoints that were given up: when to look for what has come late, and which files of them stay."""

    @property
    def persistent(self) -> bool:
        return True

    def directory(self, checkpoint_id: int) -> ObjectPlace:
        return self.root / f"chk-{checkpoint_id}"

    def check(self) -> None:
        """See whether bucket and credentials are good for writing."""
        try:
            self._client.check(self.root)
        except StoreRefusedError as error:
            raise ConfigurationError(f"{_KEY} = {self.base}: {error}") from error

    # -- slots

    def open_state_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        """A writer of an object of its own."""
        return self._writer(self.directory(checkpoint_id) / uuid.uuid4().hex, checkpoint_id, hint)

    def open_shared_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        """A writer of an object that stays with any checkpoint that uses it."""
        return self._writer(self.root / _SHARED / f"{checkpoint_id}-{uuid.uuid4().hex}", checkpoint_id, hint)

    def _writer(self, place: ObjectPlace, checkpoint_id: int, hint: str) -> StateWriter:
        mark = self.directory(checkpoint_id) / OPEN
        return self._states.writer(place, hint, self._threshold, lambda: self._client.size(mark) is not None)

    def open_state(self, handle: StateHandle) -> BinaryIO:
        """A stream over the bytes of a handle."""
        return self._reader.open_state(handle)

    # -- the JobMaster

    def prepare(self, checkpoint_id: int) -> None:
        """Mark the place as open; look again for what has come late for earlier checkpoints."""
        metadata = self.directory(checkpoint_id) / METADATA
        if self._client.size(metadata) is not None:
            taken = [number for number in self._checkpoints() if self._has_metadata(number)]
            raise CheckpointNumberTakenError(
                f"{metadata} is a checkpoint already, of another run: start from it with -s, or use another "
                f"directory ({_KEY})",
                max(taken, default=checkpoint_id),
            )
        self._client.put(self.directory(checkpoint_id) / OPEN, b"")
        due = [number for number, (when, _) in self._late.items() if when <= self._client.clock.monotonic()]
        try:
            self._look_again(due[:_LOOKS])
        except CheckpointStorageError as error:
            logger.warning("what may be left of checkpoints that were given up is not removed yet: %s", error)

    def _look_again(self, numbers: Iterable[int]) -> None:
        """Remove what has come late for checkpoints that were given up, or could not be removed then."""
        for number in list(numbers):
            self._discard(number, (), self._late[number][1])
            del self._late[number]
            self._tried.pop(number, None)

    def verify(self, handles: Iterable[StateHandle]) -> None:
        """Look at the sizes of objects."""
        self._reader.verify(handles)

    def write_metadata(self, checkpoint_id: int, data: bytes) -> str:
        """Put the object if there is none."""
        place = self.directory(checkpoint_id) / METADATA
        self._tried[checkpoint_id] = checksum(data)
        try:
            self._client.put(place, data, new=True)
        except ObjectExistsError:
            try:
                there = self._client.get(place)[0]
            except NoSuchObjectError:
                there = None
            if there != data:
                raise CheckpointStorageError(
                    f"{place} is there already, and holds something else: nothing was overwritten. Does another job "
                    f"or JobMaster use {_KEY} = {self.base}?"
                ) from None
        return str(place)

    def read_metadata(self, location: str) -> tuple[str, bytes]:
        """Of an object, or of the directory with it."""
        return self._reader.read_metadata(location)

    def left_behind(self, below: int) -> list[tuple[int, str, bytes | None]]:
        """Directories and shared files of checkpoints; none where the directory is not the job's alone."""
        if not self._own:
            return []
        found: dict[int, tuple[int, str, bytes | None]] = {}
        shared = self._client.find(self._below(_SHARED))
        numbers = {number for one in shared if (number := self._number_of_shared(one.key)) is not None}
        for number in sorted(numbers | set(self._checkpoints())):
            if number < below:
                metadata = self.directory(number) / METADATA
                try:
                    data = self._client.get(metadata)[0]
                except NoSuchObjectError:
                    data = None
                found[number] = (number, str(metadata), data)
        return list(found.values())

    def discard(self, checkpoint_id: int, files: Collection[str] = (), keep: Collection[str] = ()) -> None:
        """Remove the mark, then the rest, unless somebody else's checkpoint is there."""
        kept = frozenset(keep) | self._late.get(checkpoint_id, (0.0, frozenset[str]()))[1]
        self._late[checkpoint_id] = self._client.clock.monotonic() + _LATE, kept
        self._discard(checkpoint_id, files, keep)

    def _discard(self, checkpoint_id: int, files: Collection[str] = (), keep: Collection[str] = ()) -> None:
        bucket, kept = self.root.bucket, self._keys(keep)
        gone = self._keys(files) - kept
        directory = self.directory(checkpoint_id)
        if self._is_ours(checkpoint_id):
            self._client.delete(bucket, [(directory / METADATA).key])
            self._client.delete(bucket, [(directory / OPEN).key])
            gone |= {one.key for one in self._client.find(self.root.at(f"{directory.key}/"))} - kept
        if self._own:
            shared = self.root.at(f"{(self.root / _SHARED).key}/{checkpoint_id}-")
            gone |= {one.key for one in self._client.find(shared)} - kept
        self._states.remove(bucket, gone)

    def _is_ours(self, checkpoint_id: int) -> bool:
        """Whether no metadata, or those of this object, are at the place of a checkpoint."""
        try:
            there = self._client.get(self.directory(checkpoint_id) / METADATA)[0]
        except NoSuchObjectError:
            return True
        return self._tried.get(checkpoint_id) == checksum(there)

    def dispose(self, location: str, files: Collection[str], keep: Collection[str] = ()) -> None:
        """Remove the metadata, then the files, then what is left in the directory."""
        metadata = object_place(location, "checkpoint path")
        if not self._is_below_root(metadata):
            return
        bucket, kept = self.root.bucket, self._keys(keep)
        self._client.delete(bucket, [metadata.key])
        gone = self._keys(files) - kept
        directory = metadata.key.rpartition("/")[0]
        found = _CHECKPOINT.fullmatch(directory.rpartition("/")[2])
        if found is not None:
            self._tried.pop(int(found[1]), None)
            gone |= {one.key for one in self._client.find(self.root.at(f"{directory}/"))} - kept
        self._states.remove(bucket, gone)

    def close_job(self, keep: Collection[str] = ()) -> None:
        """Remove what is below the job's place, but for checkpoints and what they need."""
        self._look_again(self._late)
        bucket, kept = self.root.bucket, self._keys(keep)
        begin = len(self.root.key) + 1 if self.root.key else 0
        folders: dict[str, set[str]] = {}
        for one in self._client.find(self._below()):
            folders.setdefault(one.key[begin:].partition("/")[0], set()).add(one.key)
        gone: set[str] = set()
        stays = False
        for name, keys in folders.items():
            if _CHECKPOINT.fullmatch(name):
                if (self.root / name / METADATA).key in keys:
                    stays = True
                else:
                    gone |= keys - kept
                    stays = stays or bool(keys & kept)
        if not stays:
            gone |= folders.get(_SHARED, set()) - kept
            if self._own:
                gone |= {key for name, keys in folders.items() if name.startswith(PROBE) for key in keys}
        self._states.remove(bucket, gone)
        if self._own and not stays:
            for key, upload in self._client.uploads(self._below()):
                if self._is_below_root(self.root.at(key)):
                    self._client.abort_upload(self.root.at(key), upload)

    # -- what is where

    def _below(self, name: str = "") -> ObjectPlace:
        place = self.root / name if name else self.root
        return place.at(f"{place.key}/" if place.key else "")

    def _is_below_root(self, place: ObjectPlace) -> bool:
        same = (place.scheme, place.bucket) == (self.root.scheme, self.root.bucket)
        return same and place.key.startswith(self._below().key)

    def _keys(self, paths: Iterable[str]) -> set[str]:
        """Of files that are below the job's own place."""
        places = [object_place(path, "state file") for path in paths if is_object(path)]
        return {place.key for place in places if self._is_below_root(place)}

    def _checkpoints(self) -> list[int]:
        below = self._below()
        names = [one.key[len(below.key) :].rstrip("/") for one in self._client.find(below, "/")]
        return [int(found[1]) for found in map(_CHECKPOINT.fullmatch, names) if found is not None]

    def _has_metadata(self, number: int) -> bool:
        return self._client.size(self.directory(number) / METADATA) is not None

    def _number_of_shared(self, key: str) -> int | None:
        upload = upload_of(key)
        found = _OF_A_CHECKPOINT.match((upload or key).rpartition("/")[2])
        return None if found is None else int(found[1])
