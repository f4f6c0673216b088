"""Savepoints in an object store: ``s3://<bucket>/<path>/savepoint-<begin of the job's id>-<unique>/``.

The names below it are those of ``savepoints``. As in checkpoints (``object_storage``) an object ``_open`` says that
somebody still wants the savepoint; it goes when the metadata are there.
"""

from __future__ import annotations

import uuid
from contextlib import suppress

from typing_extensions import override

from firesteel.checkpoint.handles import checksum
from firesteel.checkpoint.metadata import CheckpointMetadata
from firesteel.checkpoint.object_storage import OPEN, ObjectCheckpointStorage
from firesteel.checkpoint.object_store import NoSuchObjectError
from firesteel.checkpoint.places import ObjectPlace, object_place
from firesteel.checkpoint.savepoints import HEAD, info_of, relative_to
from firesteel.checkpoint.state_files import METADATA
from firesteel.checkpoint.state_reader import StateReader
from firesteel.checkpoint.storage import StateWriter
from firesteel.config import Settings, options
from firesteel.core.errors import CheckpointStorageError


class ObjectSavepointDirectory(ObjectCheckpointStorage):
    """See ``savepoints.SavepointDirectory``.

    Args:
        place: of the savepoint.
        settings: of the job or the cluster.

    Raises:
        ConfigurationError: the settings are wrong.
    """

    name = "savepoint"

    def __init__(self, place: ObjectPlace, settings: Settings) -> None:
        self.base = self.root = place
        self._own = False
        self._threshold = settings.get(options.CHECKPOINTING_INLINE_THRESHOLD)
        self._reader = StateReader(settings)
        self._states = self._reader.store(place.scheme)
        self._client = self._states.client
        self._tried, self._late = {}, {}

    def directory(self, checkpoint_id: int) -> ObjectPlace:
        return self.root

    def make(self) -> None:
        """Mark the place as open.

        Raises:
            CheckpointStorageError: nothing can be written there, or a savepoint is there.
        """
        if self._client.size(self.root / METADATA) is not None:
            raise CheckpointStorageError(f"{self.root} is a savepoint or a checkpoint already: nothing was changed")
        self._client.put(self.root / OPEN, b"")

    def _is_open(self) -> bool:
        return self._client.size(self.root / OPEN) is not None

    @override
    def open_state_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        return self._states.writer(self.root / uuid.uuid4().hex, hint, self._threshold, self._is_open, HEAD)

    def write(self, metadata: CheckpointMetadata) -> str:
        """See ``savepoints.SavepointDirectory``."""
        self.verify(metadata.handles())
        data = relative_to(f"{self.root}/", metadata).to_bytes()
        if self._is_complete(data):
            return str(self.root)
        self.write_metadata(metadata.checkpoint_id, data)
        if not self._is_open():
            with suppress(CheckpointStorageError):  # whoever gave it up has removed its files
                self._client.delete(self.root.bucket, [(self.root / METADATA).key])
            raise CheckpointStorageError(f"{self.root}: the savepoint was given up meanwhile")
        self._client.delete(self.root.bucket, [(self.root / OPEN).key])
        return str(self.root)

    def _is_complete(self, data: bytes) -> bool:
        """Whether it was written before, and is not open any more."""
        try:
            there = self._client.get(self.root / METADATA)[0]
        except NoSuchObjectError:
            return False
        return checksum(there) == checksum(data) and not self._is_open()

    def remove(self, metadata: CheckpointMetadata) -> None:
        """See ``savepoints.SavepointDirectory``."""
        bucket, own, kept = self.root.bucket, self.root, set[str]()
        if info_of(metadata) is None:  # it may share files with others that were retained beside it
            own = self.root.parent
            for other in self._beside():
                where, data = self._states.read_metadata(other)
                kept |= CheckpointMetadata.from_bytes(data, where).files()
        self._client.delete(bucket, [(self.root / METADATA).key])
        below = f"{own}/"
        gone = [file for file in sorted(metadata.files() - kept) if file.startswith(below)]
        self._states.remove(bucket, [object_place(file, "state file").key for file in gone])
        self._states.remove(bucket, [(self.root / OPEN).key])

    def _beside(self) -> list[ObjectPlace]:
        """Metadata of other checkpoints in the same directory."""
        above = self.root.parent
        prefix = above.at(f"{above.key}/" if above.key else "")
        names = [one.key[len(prefix.key) :].rstrip("/") for one in self._client.find(prefix, "/")]
        others = [above / name / METADATA for name in names if name.startswith("chk-") and name != self.root.name]
        return [other for other in others if self._client.size(other) is not None]

    def give_up(self) -> None:
        """See ``savepoints.SavepointDirectory``."""
        bucket = self.root.bucket
        self._client.delete(bucket, [(self.root / METADATA).key])
        self._client.delete(bucket, [(self.root / OPEN).key])
        self._states.remove(bucket, [one.key for one in self._client.find(self.root.at(f"{self.root.key}/"))])
