"""What goes of the checkpoints of a job that has ended for good, whoever sees to that: its JobMaster, or, when that one
has died meanwhile, the Dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

from firesteel.checkpoint.metadata import CheckpointMetadata
from firesteel.checkpoint.storage import CheckpointStorage
from firesteel.checkpoint.store import CompletedCheckpointStore, StoredCheckpoint
from firesteel.config import Settings, options
from firesteel.core.errors import CheckpointCorruptedError, CheckpointError, CheckpointVersionError
from firesteel.graph.key_hash import KEY_HASH_VERSION


class CleanUp(StrEnum):
    """What becomes of the checkpoints of a job that has ended."""

    REMOVE = "remove"
    """All go."""
    KEEP = "keep"
    """Those in the store stay; what is left of others goes."""
    TOUCH_NOTHING = "touch nothing"
    """All files stay, since somebody may want to look at those that are damaged."""


class CheckpointRetention(StrEnum):
    """What becomes of completed checkpoints when the job has ended; as in Flink."""

    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    """They stay if the job has failed."""
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"
    """They stay if the job has failed or was cancelled."""
    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"
    """They go."""

    def keeps(self, state: str) -> bool:
        """Whether completed checkpoints stay when the job ends in this state.

        A job that is suspended keeps them: somebody may go on with it.
        """
        if state == "SUSPENDED":
            return True
        if state == "FAILED":
            return self is not CheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return state == "CANCELED" and self is CheckpointRetention.RETAIN_ON_CANCELLATION


def clean_up_of(settings: Settings, state: str) -> CleanUp:
    """What becomes of the checkpoints of a job that ends in this state, where nothing else is known of them.

    Args:
        settings: of the job, the cluster's below.
        state: in which it ends.

    Raises:
        ConfigurationError: a value is not valid.
    """
    retention = CheckpointRetention(settings.get(options.CHECKPOINTING_RETENTION))
    return CleanUp.KEEP if retention.keeps(state) else CleanUp.REMOVE


def read_own(storage: CheckpointStorage, job_id: str, entry: StoredCheckpoint) -> CheckpointMetadata:
    """The metadata of a checkpoint in the store of a job.

    Raises:
        CheckpointCorruptedError: they are damaged, or those of another checkpoint.
        CheckpointError: they can't be read for now.
    """
    metadata = read_whole(storage, entry.location, entry.metadata)
    if metadata.checkpoint_id != entry.checkpoint_id:
        raise CheckpointCorruptedError(
            entry.location, f"it is checkpoint {metadata.checkpoint_id}, and should be {entry.checkpoint_id}"
        )
    if metadata.job_id != job_id:
        raise CheckpointCorruptedError(entry.location, f"it is of job {metadata.job_id}, and should be of job {job_id}")
    return metadata


def read_whole(storage: CheckpointStorage, location: str, kept: str | None = None) -> CheckpointMetadata:
    """The metadata at a location, or those that were kept beside it, of a checkpoint whose files are there.

    Raises:
        CheckpointError: as in ``read_own``.
        ConfigurationError: the location is none.
    """
    where, data = (location, kept.encode()) if kept is not None else storage.read_metadata(location)
    metadata = CheckpointMetadata.from_bytes(data, where)
    _check_key_hash(metadata, where)
    storage.verify(metadata.handles())
    return metadata


def _check_key_hash(metadata: CheckpointMetadata, where: str) -> None:
    """Raises:
    CheckpointVersionError: another release finds the keys of its state in other key groups than this one.
    """
    version = metadata.properties.get("key_hash", KEY_HASH_VERSION)
    keyed = [o.name for o in metadata.operators if any(subtask.keyed for subtask in o.subtasks.values())]
    if keyed and version != KEY_HASH_VERSION:
        raise CheckpointVersionError(
            where,
            f"it has state by key of operator {keyed[0]!r}, and the keys were hashed by version {version} of the table "
            f"of hashes; this Firesteel has version {KEY_HASH_VERSION}: go on with the version that wrote it",
        )


def files_of(storage: CheckpointStorage, job_id: str, entries: Iterable[StoredCheckpoint]) -> frozenset[str]:
    """The files that checkpoints in the store need; raises as ``read_own``."""
    return frozenset(file for entry in entries for file in read_own(storage, job_id, entry).files())


def close_checkpoints(
    storage: Callable[[], CheckpointStorage],
    store: CompletedCheckpointStore,
    job_id: str,
    how: CleanUp,
    first: Iterable[Callable[[], None]] = (),
) -> None:
    """Remove what is to go, as far as that can be done, and empty the store. Harmless to repeat.

    Args:
        storage: gives that of the job.
        store: of its completed checkpoints.
        job_id: of the job.
        how: what goes.
        first: steps in front of all others.

    Raises:
        CheckpointError: something could not be removed; the store still names it.
    """
    if how is CleanUp.TOUCH_NOTHING:
        store.clear()
        return
    steps = [*first]
    if how is CleanUp.KEEP:
        steps.append(lambda: storage().close_job(files_of(storage(), job_id, store.all())))
    else:
        steps += [lambda: _drop(storage(), store, job_id), lambda: storage().close_job()]
    failed: CheckpointError | None = None
    for step in steps:
        try:
            step()
        except CheckpointError as error:  # the others are to go all the same
            failed = failed or error
    if failed is not None:
        raise failed
    store.clear()  # until then it says what checkpoints that stay need


def _drop(storage: CheckpointStorage, store: CompletedCheckpointStore, job_id: str) -> None:
    """Also checkpoints that the job has never gone on from: it ended before, or they are damaged.

    Nobody goes on from any of them, so the files go first: what could not be removed is named for the next try.
    """
    for entry in store.all():
        if entry.savepoint:
            store.remove(entry.checkpoint_id)
            continue
        try:
            files = read_own(storage, job_id, entry).files()
        except CheckpointCorruptedError:
            files = frozenset()
        storage.dispose(entry.location, frozenset(files), frozenset())
        store.remove(entry.checkpoint_id)
