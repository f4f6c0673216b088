"""Does the coordinator's work with storage and store; blocks, so it has a thread of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import cached_property, partial

from firesteel.checkpoint.closing import close_checkpoints, files_of, read_own, read_whole
from firesteel.checkpoint.metadata import CheckpointMetadata
from firesteel.checkpoint.storage import CheckpointStorage
from firesteel.checkpoint.store import CompletedCheckpointStore, StoredCheckpoint
from firesteel.core.errors import (
    CheckpointCorruptedError,
    CheckpointError,
    CheckpointNumberTakenError,
    CheckpointStorageError,
    ConfigurationError,
    FencedError,
)
from firesteel_jobmaster.checkpoints.work import (
    Close,
    Collect,
    Complete,
    Damaged,
    Discard,
    Dispose,
    Done,
    Prepare,
    Recover,
    Recovered,
    Undo,
    Work,
)

logger = logging.getLogger(__name__)


class CheckpointWorker:
    """Storage and store of one job.

    Args:
        job_id: of the job.
        open_storage: makes the storage of state and metadata, when it is needed for the first time.
        store: of completed checkpoints.
    """

    def __init__(
        self, job_id: str, open_storage: Callable[[], CheckpointStorage], store: CompletedCheckpointStore
    ) -> None:
        self._job_id, self._open_storage, self.store = job_id, open_storage, store

    @cached_property
    def storage(self) -> CheckpointStorage:
        """Of state and metadata."""
        return self._open_storage()

    def do(self, work: Work) -> Done:
        """One piece of work. Errors are in the answer; none is raised."""
        try:
            match work:
                case Recover(path):
                    return self._recover(work, path)
                case Prepare(_, above):
                    return self._prepare(work, self.store.next_id(above))
                case Complete(metadata):
                    return self._complete(work, metadata)
                case Undo(checkpoint_id, location, files, keep):
                    self.store.remove(checkpoint_id)
                    self.storage.dispose(location, files, keep)
                    self.storage.discard(checkpoint_id, files, keep)
                case Discard(checkpoint_id, files, keep):
                    self.storage.discard(checkpoint_id, files, keep)
                case Collect(below, since_ms):
                    self._collect(below, since_ms)
                case Dispose():
                    self._dispose(work)
                case Close():
                    self._close(work)
        except FencedError as error:
            return Done(work, error=str(error), fenced=True)
        except (CheckpointCorruptedError, ConfigurationError) as error:
            return Done(work, error=str(error), corrupted=True)
        except CheckpointError as error:
            return Done(work, error=str(error))
        except Exception as error:  # storages and stores are plug-ins
            logger.exception("checkpoint storage or store failed")
            return Done(work, error=f"{type(error).__qualname__}: {error}")
        return Done(work)

    def _prepare(self, work: Prepare, checkpoint_id: int) -> Done:
        try:
            try:
                self.storage.prepare(checkpoint_id)
            except CheckpointNumberTakenError as taken:
                logger.warning("%s; the next number that is free is used", taken)
                checkpoint_id = self.store.next_id(taken.highest)
                self.storage.prepare(checkpoint_id)
        except CheckpointError as error:
            return Done(work, error=str(error), checkpoint_id=checkpoint_id)
        return Done(work, checkpoint_id=checkpoint_id)

    def _complete(self, work: Complete, metadata: CheckpointMetadata) -> Done:
        self.storage.verify(metadata.handles())
        data = metadata.to_bytes()
        location = self.storage.write_metadata(metadata.checkpoint_id, data)
        kept = None if self.storage.persistent else data.decode()
        try:
            self.store.add(StoredCheckpoint(metadata.checkpoint_id, location, kept))
        except FencedError as error:
            return Done(work, error=str(error), fenced=True, location=location)
        except Exception as error:  # whatever it was: the checkpoint may be there
            return Done(work, error=str(error) or type(error).__qualname__, stored=True, location=location)
        return Done(work, stored=True, location=location)

    def _dispose(self, work: Dispose) -> None:
        self.store.remove(work.checkpoint_id)
        if work.files is not None:
            self.storage.dispose(work.location, work.files, work.keep)

    def _collect(self, below: int, since_ms: int) -> None:
        """Raises:
        CheckpointError: not all that is left could be removed.
        """
        entries = self.store.all()
        if self.store.damaged:
            raise CheckpointStorageError(
                f"what damaged entries of the store name is not known: {self.store.damaged[0]}"
            )
        known = {entry.checkpoint_id for entry in entries}
        keep = self._needed(entries)
        for checkpoint_id, location, data in self.storage.left_behind(below):
            if checkpoint_id in known:
                continue
            if data is None:
                logger.debug("what nobody needs of checkpoint %d is removed", checkpoint_id)
                self.storage.discard(checkpoint_id, (), keep)
                continue
            try:
                metadata = CheckpointMetadata.from_bytes(data, location)
            except CheckpointCorruptedError as error:
                logger.warning("checkpoint %d is not the job's last one, and stays: %s", checkpoint_id, error)
                continue
            if (metadata.job_id, metadata.since_ms) == (self._job_id, since_ms):
                logger.info("checkpoint %d, which nobody goes on from any more, is removed", checkpoint_id)
                self.storage.dispose(location, metadata.files(), keep)

    def _needed(self, entries: Iterable[StoredCheckpoint]) -> frozenset[str]:
        return files_of(self.storage, self._job_id, entries)

    def _close(self, work: Close) -> None:
        first = [partial(self._drop, one) for one in work.drop]
        close_checkpoints(lambda: self.storage, self.store, self._job_id, work.how, first)

    def _drop(self, work: Dispose) -> None:
        """As ``_dispose``, when nobody goes on from it any more: it is forgotten when its files are gone."""
        if work.files is not None:
            self.storage.dispose(work.location, work.files, work.keep)
        self.store.remove(work.checkpoint_id)

    def _recover(self, work: Recover, path: str | None) -> Done:
        recovered: list[Recovered] = []
        entries = self.store.all()
        damaged = [Damaged(0, reason) for reason in self.store.damaged]
        for entry in entries:
            try:
                recovered.append(Recovered(entry, read_own(self.storage, self._job_id, entry)))
            except CheckpointCorruptedError as error:
                damaged.append(Damaged(entry.checkpoint_id, str(error)))
        if not entries and not damaged and path is not None:
            try:
                recovered.append(Recovered(None, read_whole(self.storage, path)))
            except (CheckpointError, ConfigurationError) as error:
                passing = isinstance(error, CheckpointStorageError)
                return Done(work, error=str(error), corrupted=not passing, of_user=True)
        return Done(work, recovered=tuple(recovered), damaged=tuple(damaged))
