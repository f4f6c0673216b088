"""Savepoints in an object store: ``s3://<bucket>/<path>/savepoint-<begin of the job's id>-<unique>/``.

The files in it have the names of ``savepoints``. As in checkpoints (``object_storage``) an object ``_open`` marks a
savepoint that was not given up; it is removed once the metadata are written.
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
    """A savepoint in an object store.

    Args:
        place: place of the savepoint.
        settings: configuration of the job or the cluster.

    Raises:
        ConfigurationError: the settings are wrong.
    """

    name = "savepoint"

    def __init__(self, place: ObjectPlace, settings: Settings) -> None:
        self.base = self.root = place
        self._own_subdirectory = False
        self._threshold = settings.get(options.CHECKPOINTING_INLINE_THRESHOLD)
        self._reader = StateReader(settings)
        self._states = self._reader.store(place.scheme)
        self._client = self._states.client
        self._tried, self._late = {}, {}

    def directory(self, checkpoint_id: int) -> ObjectPlace:
        return self.root

    def make(self) -> None:
        """Mark the savepoint as open.

        Raises:
            CheckpointStorageError: nothing can be written there, or there is a savepoint already.
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
        """Write the metadata, then remove the mark (``SavepointDirectory.write``)."""
        self.verify(metadata.handles())
        data = relative_to(f"{self.root}/", metadata).to_bytes()
        if self._is_complete(data):
            return str(self.root)
        self.write_metadata(metadata.checkpoint_id, data)
        if not self._is_open():
            with suppress(CheckpointStorageError):  # the files were removed when it was given up
                self._client.delete(self.root.bucket, [(self.root / METADATA).key])
            raise CheckpointStorageError(f"{self.root}: the savepoint was given up meanwhile")
        self._client.delete(self.root.bucket, [(self.root / OPEN).key])
        return str(self.root)

    def _is_complete(self, data: bytes) -> bool:
        """Whether an earlier call has written these metadata, and has removed the mark."""
        try:
            present = self._client.get(self.root / METADATA)[0]
        except NoSuchObjectError:
            return False
        return checksum(present) == checksum(data) and not self._is_open()

    def remove(self, metadata: CheckpointMetadata) -> None:
        """Remove the metadata, then the files (``SavepointDirectory.remove``)."""
        bucket, directory, shared_files = self.root.bucket, self.root, set[str]()
        if info_of(metadata) is None:
            # A retained checkpoint may share files with others that were retained beside it.
            directory = self.root.parent
            for neighbour in self._beside():
                path, data = self._states.read_metadata(neighbour)
                shared_files |= CheckpointMetadata.from_bytes(data, path).files()
        self._client.delete(bucket, [(self.root / METADATA).key])
        removable = [file for file in sorted(metadata.files() - shared_files) if file.startswith(f"{directory}/")]
        self._states.remove(bucket, [object_place(file, "state file").key for file in removable])
        self._states.remove(bucket, [(self.root / OPEN).key])

    def _beside(self) -> list[ObjectPlace]:
        """Metadata of other checkpoints in the same directory."""
        above = self.root.parent
        prefix = above.at(f"{above.key}/" if above.key else "")
        names = [listed.key[len(prefix.key) :].rstrip("/") for listed in self._client.find(prefix, "/")]
        neighbours = [above / name / METADATA for name in names if name.startswith("chk-") and name != self.root.name]
        return [metadata for metadata in neighbours if self._client.size(metadata) is not None]

    def give_up(self) -> None:
        """Remove metadata and mark, then all objects (``SavepointDirectory.give_up``)."""
        bucket = self.root.bucket
        self._client.delete(bucket, [(self.root / METADATA).key])
        self._client.delete(bucket, [(self.root / OPEN).key])
        self._states.remove(bucket, self._keys_below(self.root.at(f"{self.root.key}/")))
