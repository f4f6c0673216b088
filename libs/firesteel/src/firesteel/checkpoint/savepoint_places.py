"""Creates, opens and removes savepoints by their paths: in directories that all hosts see, or in object stores."""

from __future__ import annotations

import uuid

from firesteel.checkpoint.object_savepoints import ObjectSavepointDirectory
from firesteel.checkpoint.places import is_object, object_place
from firesteel.checkpoint.savepoints import (
    LocalSavepointDirectory,
    SavepointDirectory,
    info_of,
    read_savepoint_metadata,
)
from firesteel.checkpoint.state_files import METADATA, local_path, translated_errors
from firesteel.config import Settings
from firesteel.core.errors import CheckpointCorruptedError, ConfigurationError
from firesteel.core.files import sync_directory


def savepoint_directory(path: str, settings: Settings | None = None) -> SavepointDirectory:
    """The savepoint directory that a path, or the path of its ``_metadata``, names; without I/O.

    Args:
        path: path of the savepoint.
        settings: configuration of the job or the cluster: options of checkpoints, and of the object store.

    Raises:
        ConfigurationError: the path is malformed, or the settings are wrong.
    """
    settings = settings or Settings()
    if is_object(path):
        place = object_place(path, "savepoint path")
        return ObjectSavepointDirectory(place.parent if place.name == METADATA else place, settings)
    local = local_path(path, "savepoint path")
    return LocalSavepointDirectory(local.parent if local.name == METADATA else local, settings)


def read_target(text: str, what: str) -> str:
    """Normalise the path of a directory for savepoints that a user has given.

    Raises:
        ConfigurationError: the path is malformed.
    """
    return str(object_place(text, what) if is_object(text) else local_path(text, what))


def make_directory(target: str, job_id: str, settings: Settings | None = None) -> str:
    """Create a directory with a unique name for a savepoint of a job; returns its path.

    Raises:
        CheckpointStorageError: it can't be created.
        ConfigurationError: the target is malformed, or the settings of its object store are wrong.
    """
    name = f"savepoint-{job_id[:6]}-{uuid.uuid4().hex[:12]}"
    if is_object(target):
        return make_savepoint(str(object_place(target, "target directory") / name), settings)
    return make_savepoint(str(local_path(target, "target directory") / name), settings)


def make_savepoint(path: str, settings: Settings | None = None) -> str:
    """Create the directory of a savepoint; returns its path.

    Raises:
        CheckpointStorageError: it can't be created, or exists already.
        ConfigurationError: the path is malformed, or the settings of its object store are wrong.
    """
    if is_object(path):
        place = object_place(path, "savepoint path")
        ObjectSavepointDirectory(place, settings or Settings()).make()
        return str(place)
    directory = local_path(path, "savepoint path")
    with translated_errors(f"the savepoint's directory {directory} can't be made", savepoint=True):
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir()
        sync_directory(directory.parent)
    return str(directory)


def dispose(path: str, settings: Settings | None = None) -> None:
    """Remove a savepoint: its metadata first, so that a savepoint that is removed in part is none any more.

    Raises:
        ConfigurationError: it is a checkpoint, or the path is malformed.
        CheckpointError: there is no savepoint, it is damaged, or it can't be removed.
    """
    metadata = read_savepoint_metadata(path, settings)
    if info_of(metadata) is None:
        raise ConfigurationError(
            f"{path} is checkpoint {metadata.checkpoint_id} of job {metadata.job_id}, and no savepoint: nothing "
            "was removed. Checkpoints go with their job; one that was retained is removed with its directory"
        )
    savepoint_directory(path, settings).remove(metadata)


def remove_directory(directory: str, settings: Settings | None = None) -> None:
    """Remove the directory of a savepoint that did not complete (``SavepointDirectory.give_up``)."""
    savepoint_directory(directory, settings).give_up()


def remove_claimed(path: str, keep: frozenset[str], settings: Settings | None = None) -> None:
    """Remove the savepoint or checkpoint that a job has claimed (``CLAIM``), if it still exists. Idempotent.

    Args:
        path: path of the savepoint or checkpoint.
        keep: files that later checkpoints need; if it has one of them, nothing is removed.
        settings: configuration of the job.

    Raises:
        CheckpointError: it can't be read or removed for now.
    """
    try:
        metadata = read_savepoint_metadata(path, settings)
    except CheckpointCorruptedError:
        return
    if not keep & metadata.files():
        savepoint_directory(path, settings).remove(metadata)
