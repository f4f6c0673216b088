"""Does the coordinator's work with storage and store; blocks, so it has a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial

from firesteel.checkpoint import savepoint_places
from firesteel.checkpoint.closing import close_checkpoints, files_of, read_own, read_whole
from firesteel.checkpoint.metadata import CheckpointMetadata
from firesteel.checkpoint.object_store import StoreUnknownError
from firesteel.checkpoint.state_files import check_mounted
from firesteel.checkpoint.storage import CheckpointStorage
from firesteel.checkpoint.store import CompletedCheckpointStore, StoredCheckpoint
from firesteel.config import Settings
from firesteel.core.errors import (
    CheckpointCorruptedError,
    CheckpointError,
    CheckpointNumberTakenError,
    CheckpointStorageError,
    CheckpointVersionError,
    ConfigurationError,
    FencedError,
)
from firesteel_jobmaster.checkpoint_work import (
    Close,
    Complete,
    DamagedCheckpoint,
    Discard,
    Dispose,
    DisposeClaimed,
    Prepare,
    Recover,
    RecoveredCheckpoint,
    RemoveOrphans,
    Undo,
    Work,
    WorkResult,
)

logger = logging.getLogger(__name__)


class GivenUpError(Exception):
    """Nobody waits for this piece of work any more, and it must not go on."""


class AbandonableCall:
    """A piece of work on a thread, which its owner may give up: the work then ends between two steps, and a change that
    it has asked the store for is kept from taking effect before the store is asked for anything else.

    Attributes:
        checkpoint_id: id that ``Prepare`` has got; 0 = none yet.
        location: directory of a savepoint, or where ``Complete`` has written the metadata of a checkpoint.
        changes_store: the store was asked for a change, and has not answered yet.
        asked_store: the store was asked for a change at some time.
        removed: see ``WorkResult``.
    """

    def __init__(self) -> None:
        self.checkpoint_id, self.location = 0, ""
        self.changes_store = self.asked_store = self.removed = False
        self._lock = threading.Lock()
        self._given_up = self._over = False

    def go_on(self, step: Callable[[], object] = lambda: None) -> None:
        """Take a short step, during which the work can't be given up.

        Raises:
            GivenUpError: the work was given up before.
        """
        with self._lock:
            if self._given_up:
                raise GivenUpError
            step()

    def give_up(self) -> bool:
        """Give the work up; returns False if it is over, so that its answer is on its way."""
        with self._lock:
            self._given_up = not self._over
            return self._given_up

    def end(self) -> None:
        """The work is over: from now on it can't be given up."""
        with self._lock:
            self._over = True

    def asks(self) -> None:
        """The store is about to be asked for a change; called inside of ``go_on``."""
        self.changes_store = self.asked_store = True

    def given_up(self, work: Work, error: str) -> WorkResult:
        """The answer for work that was given up, in place of its own."""
        return WorkResult(
            work,
            error=error,
            hung=True,
            stored=isinstance(work, Complete) and self.asked_store,
            removed=self.removed,
            checkpoint_id=self.checkpoint_id,
            location=self.location,
        )


class CheckpointWorker:
    """Does work in the checkpoint storage and the store of one job.

    Args:
        job_id: of the job.
        open_storage: makes the storage of state and metadata, when it is needed for the first time.
        store: of completed checkpoints.
        settings: of the job, for savepoints.
    """

    def __init__(
        self,
        job_id: str,
        open_storage: Callable[[], CheckpointStorage],
        store: CompletedCheckpointStore,
        settings: Settings | None = None,
    ) -> None:
        self._job_id, self._open_storage, self.store = job_id, open_storage, store
        self._settings = settings or Settings()
        self._unanswered: set[AbandonableCall] = set()
        """Calls that were given up while the store had not answered them."""

    @cached_property
    def storage(self) -> CheckpointStorage:
        """The storage of state and metadata."""
        return self._open_storage()

    def do(self, work: Work, call: AbandonableCall | None = None) -> WorkResult:
        """Do a piece of work. Errors are in the answer; none is raised.

        Args:
            work: the piece.
            call: with which ``give_up`` may give the work up.
        """
        call = call or AbandonableCall()
        try:
            return self._do(work, call)
        except GivenUpError:
            self._clean_up_behind(work, call)
            return call.given_up(work, "it was given up")
        finally:
            call.end()

    def give_up(self, call: AbandonableCall) -> bool:
        """Give up a piece of work that takes too long; returns False if it is over by now."""
        given_up = call.give_up()
        if given_up and call.changes_store:
            self._unanswered.add(call)
        return given_up

    @contextmanager
    def _changing(self, call: AbandonableCall) -> Iterator[CompletedCheckpointStore]:
        """The store, for a change; earlier calls that were given up can't change it any more.

        Raises:
            CheckpointStorageError: an earlier call may still change it.
            GivenUpError: this call was given up.
        """
        call.go_on(call.asks)
        try:
            if any(earlier.changes_store for earlier in list(self._unanswered)):
                renewed = self.store.renewed()
                if renewed is None:
                    raise CheckpointStorageError(
                        "the store of completed checkpoints has not answered an earlier call yet, and may still do "
                        "what it was asked for"
                    )
                call.go_on(lambda: self._renew(renewed))
            yield self.store
        finally:
            call.changes_store = False
        call.go_on()

    def _renew(self, store: CompletedCheckpointStore) -> None:
        self.store = store
        self._unanswered.clear()

    def _clean_up_behind(self, work: Work, call: AbandonableCall) -> None:
        """Remove what work has written after it was given up: no checkpoint has its number, and none will."""
        checkpoint_id = work.metadata.checkpoint_id if isinstance(work, Complete) else call.checkpoint_id
        if checkpoint_id and not (isinstance(work, Complete) and call.asked_store):
            try:
                if not isinstance(work, Complete | Prepare) or not work.savepoint:
                    self.storage.discard(checkpoint_id)
                elif call.location:
                    self._discard(checkpoint_id, savepoint=call.location)
            except Exception as error:  # storages are plug-ins
                logger.warning("what a late call has written for checkpoint %d may be left: %s", checkpoint_id, error)

    def _do(self, work: Work, call: AbandonableCall) -> WorkResult:
        try:
            match work:
                case Recover(path):
                    return self._recover(work, path)
                case Prepare(_, above, savepoint):
                    if savepoint is not None:
                        return self._prepare_savepoint(work, savepoint, call)
                    return self._prepare(work, above, call)
                case Complete(metadata):
                    metadata.files()  # computed here once, off the event loop
                    return self._complete(work, metadata, call)
                case Undo():
                    return self._undo(work, call)
                case Discard(checkpoint_id, files, keep, savepoint):
                    self._discard(checkpoint_id, files, keep, savepoint)
                case DisposeClaimed(path, keep):
                    savepoint_places.remove_claimed(path, keep, self._settings)
                case RemoveOrphans(below, since_ms):
                    self._collect(below, since_ms)
                case Dispose():
                    self._dispose(work, call)
                case Close():
                    with self._changing(call):
                        self._close(work)
        except GivenUpError:
            raise
        except FencedError as error:
            return WorkResult(work, error=str(error), fenced=True)
        except (CheckpointCorruptedError, ConfigurationError) as error:
            return WorkResult(work, error=str(error), corrupted=True)
        except CheckpointError as error:
            return WorkResult(work, error=str(error))
        except Exception as error:  # storages and stores are plug-ins
            logger.exception("checkpoint storage or store failed")
            return WorkResult(work, error=f"{type(error).__qualname__}: {error}")
        return WorkResult(work)

    def _prepare(self, work: Prepare, above: int, call: AbandonableCall) -> WorkResult:
        checkpoint_id = self._next_id(above, call)
        try:
            try:
                self.storage.prepare(checkpoint_id)
            except CheckpointNumberTakenError as taken:
                logger.warning("%s; the next number that is free is used", taken)
                checkpoint_id = self._next_id(taken.highest, call)
                self.storage.prepare(checkpoint_id)
        except CheckpointError as error:
            call.go_on()
            return WorkResult(work, error=str(error), checkpoint_id=checkpoint_id)
        call.go_on()
        return WorkResult(work, checkpoint_id=checkpoint_id)

    def _prepare_savepoint(self, work: Prepare, target: str, call: AbandonableCall) -> WorkResult:
        checkpoint_id = self._next_id(work.above, call)
        try:
            location = call.location = savepoint_places.make_directory(target, self._job_id, self._settings)
        except (CheckpointError, ConfigurationError) as error:
            call.go_on()
            return WorkResult(work, error=str(error), checkpoint_id=checkpoint_id)
        call.go_on()
        return WorkResult(work, checkpoint_id=checkpoint_id, location=location)

    def _discard(
        self, checkpoint_id: int, files: Collection[str] = (), keep: Collection[str] = (), savepoint: str = ""
    ) -> None:
        if savepoint:  # it did not complete, so its metadata, if there are any, are of no use to anybody
            savepoint_places.remove_directory(savepoint, self._settings)
        else:
            self.storage.discard(checkpoint_id, files, keep)

    def _next_id(self, above: int, call: AbandonableCall) -> int:
        with self._changing(call) as store:
            checkpoint_id = store.next_id(above)
        call.checkpoint_id = checkpoint_id
        return checkpoint_id

    def _complete(self, work: Complete, metadata: CheckpointMetadata, call: AbandonableCall) -> WorkResult:
        if work.savepoint:
            call.location = work.savepoint
            location = savepoint_places.savepoint_directory(work.savepoint, self._settings).write(metadata)
            metadata_text = None
            if not work.stored:
                call.go_on()
                return WorkResult(work, location=location)
        else:
            self.storage.verify(metadata.handles())
            call.go_on()
            data = metadata.to_bytes()
            location = call.location = self.storage.write_metadata(metadata.checkpoint_id, data)
            metadata_text = None if self.storage.persistent else data.decode()
        try:
            with self._changing(call) as store:
                store.add(StoredCheckpoint(metadata.checkpoint_id, location, metadata_text, bool(work.savepoint)))
        except GivenUpError:
            raise
        except FencedError as error:
            return WorkResult(work, error=str(error), fenced=True, location=location)
        except Exception as error:  # whatever it was: the checkpoint may be there
            return WorkResult(work, error=str(error) or type(error).__qualname__, stored=True, location=location)
        return WorkResult(work, stored=True, location=location)

    def _undo(self, work: Undo, call: AbandonableCall) -> WorkResult:
        with self._changing(call) as store:
            store.remove(work.checkpoint_id)
        call.removed = True
        try:
            if work.savepoint:
                savepoint_places.remove_directory(work.savepoint, self._settings)
            else:
                self.storage.dispose(work.location, work.files, work.keep)
                self.storage.discard(work.checkpoint_id, work.files, work.keep)
        except Exception as error:  # storages are plug-ins
            return WorkResult(work, error=str(error) or type(error).__qualname__, removed=True)
        return WorkResult(work, removed=True)

    def _dispose(self, work: Dispose, call: AbandonableCall) -> None:
        with self._changing(call) as store:
            store.remove(work.checkpoint_id)
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
        known_ids = {entry.checkpoint_id for entry in entries}
        keep = self._needed(entries)
        for checkpoint_id, location, data in self.storage.left_behind(below):
            if checkpoint_id in known_ids:
                continue
            if data is None:
                logger.debug("what nobody needs of checkpoint %d is removed", checkpoint_id)
                self.storage.discard(checkpoint_id, (), keep)
                continue
            try:
                metadata = CheckpointMetadata.from_bytes(data, location)
            except (CheckpointCorruptedError, CheckpointVersionError) as error:
                logger.warning("checkpoint %d is not the job's last one, and stays: %s", checkpoint_id, error)
                continue
            if (metadata.job_id, metadata.since_ms) == (self._job_id, since_ms):
                logger.info("checkpoint %d, which nobody goes on from any more, is removed", checkpoint_id)
                self.storage.dispose(location, metadata.files(), keep)

    def _needed(self, entries: Iterable[StoredCheckpoint]) -> frozenset[str]:
        return files_of(self.storage, self._job_id, entries)

    def _close(self, work: Close) -> None:
        first = [partial(self._drop, disposal) for disposal in work.drop]
        close_checkpoints(lambda: self.storage, self.store, self._job_id, work.how, first)

    def _drop(self, work: Dispose) -> None:
        """Like ``_dispose``, at the end of the job: the files go first, and the store forgets the checkpoint last."""
        if work.files is not None:
            self.storage.dispose(work.location, work.files, work.keep)
        self.store.remove(work.checkpoint_id)

    def _recover(self, work: Recover, path: str | None) -> WorkResult:
        recovered: list[RecoveredCheckpoint] = []
        entries = self.store.all()
        damaged = [DamagedCheckpoint(0, reason) for reason in self.store.damaged]
        for entry in entries:
            try:
                recovered.append(RecoveredCheckpoint(entry, read_own(self.storage, self._job_id, entry)))
            except CheckpointCorruptedError as error:
                if entry.metadata is None:
                    check_mounted(entry.location)  # nothing is wrong with checkpoints whose file system is away
                damaged.append(DamagedCheckpoint(entry.checkpoint_id, str(error)))
        if not entries and not damaged and path is None:
            try:
                self.storage.check()
            except ConfigurationError as error:
                return WorkResult(work, error=str(error), corrupted=True, refused=True)
            except CheckpointStorageError as error:
                logger.warning("checkpoints can't be written for now: %s", error)
        if not entries and not damaged and path is not None:
            try:
                recovered.append(RecoveredCheckpoint(None, read_whole(self.storage, path)))
            except (CheckpointError, ConfigurationError) as error:
                passing = isinstance(error, CheckpointStorageError) and not isinstance(error, StoreUnknownError)
                is_foreign = isinstance(error, CheckpointVersionError)  # its user can name another checkpoint
                return WorkResult(work, error=str(error), corrupted=not passing, foreign=is_foreign, of_user=True)
        return WorkResult(work, recovered=tuple(recovered), damaged=tuple(damaged))
