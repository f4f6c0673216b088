"""Removes checkpoints of a job that has ended for good, as far as they are not to be kept.

The JobMaster does this, or the Dispatcher if the JobMaster has died meanwhile.
"""

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
    """What is done with the checkpoints of a job that has ended."""

    REMOVE = "remove"
    """All are removed."""
    KEEP = "keep"
    """Checkpoints in the store stay; remains of others are removed."""
    TOUCH_NOTHING = "touch nothing"
    """All files stay, so that damaged ones can be examined."""


class CheckpointRetention(StrEnum):
    """Whether completed checkpoints stay when the job has ended; as in Flink."""

    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    """Checkpoints stay if the job has failed."""
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"
    """Checkpoints stay if the job has failed or was cancelled."""
    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"
    """Checkpoints are always removed."""

    def keeps(self, state: str) -> bool:
        """Whether completed checkpoints stay when the job ends in this state.

        They stay when the job is suspended, because it may be resumed.
        """
        if state == "SUSPENDED":
            return True
        if state == "FAILED":
            return self is not CheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return state == "CANCELED" and self is CheckpointRetention.RETAIN_ON_CANCELLATION


def clean_up_of(settings: Settings, state: str) -> CleanUp:
    """Decide from the configuration what is done with the checkpoints of a job that ends in this state.

    Args:
        settings: configuration of the job, on top of the cluster's.
        state: the job's last state.

    Raises:
        ConfigurationError: a value is not valid.
    """
    retention = CheckpointRetention(settings.get(options.CHECKPOINTING_RETENTION))
    return CleanUp.KEEP if retention.keeps(state) else CleanUp.REMOVE


def read_own(storage: CheckpointStorage, job_id: str, entry: StoredCheckpoint) -> CheckpointMetadata:
    """Read the metadata of a checkpoint that is in the store of a job.

    Raises:
        CheckpointCorruptedError: they are damaged, or belong to another checkpoint or job.
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


def read_whole(storage: CheckpointStorage, location: str, stored: str | None = None) -> CheckpointMetadata:
    """Read metadata, and verify that all files of the checkpoint exist.

    Args:
        storage: the checkpoint storage.
        location: location of the metadata.
        stored: the metadata themselves, if the store keeps them and not the storage.

    Raises:
        CheckpointError: as for ``read_own``.
        ConfigurationError: the location is malformed.
    """
    where, data = (location, stored.encode()) if stored is not None else storage.read_metadata(location)
    metadata = CheckpointMetadata.from_bytes(data, where)
    _check_key_hash(metadata, where)
    storage.verify(metadata.handles())
    return metadata


def _check_key_hash(metadata: CheckpointMetadata, where: str) -> None:
    """Check that keys were hashed by the version of the table that this release has.

    Raises:
        CheckpointVersionError: they were not, so this release would look for them in other key groups.
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
    """The files that checkpoints in the store refer to; raises as ``read_own``."""
    return frozenset(file for entry in entries for file in read_own(storage, job_id, entry).files())


def close_checkpoints(
    storage: Callable[[], CheckpointStorage],
    store: CompletedCheckpointStore,
    job_id: str,
    how: CleanUp,
    first: Iterable[Callable[[], None]] = (),
) -> None:
    """Remove the checkpoints of a job as far as possible, and empty the store. Idempotent.

    Args:
        storage: opens the checkpoint storage of the job.
        store: store of its completed checkpoints.
        job_id: id of the job.
        how: what to remove.
        first: steps to take before all others.

    Raises:
        CheckpointError: a checkpoint could not be removed; the store still names it.
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
        except CheckpointError as error:  # go on with the other steps
            failed = failed or error
    if failed is not None:
        raise failed
    store.clear()  # only now: until everything else is done it names the files that have to stay


def _drop(storage: CheckpointStorage, store: CompletedCheckpointStore, job_id: str) -> None:
    """Remove all checkpoints in the store but savepoints, including damaged ones.

    The job never goes on from any of them, so files are removed before the entry: if that fails, the entry still names
    them for the next try.
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
