"""Where savepoints are: in directories that all hosts see, or in object stores."""

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
from firesteel.checkpoint.state_files import METADATA, local_path, told
from firesteel.config import Settings
from firesteel.core.errors import CheckpointCorruptedError, ConfigurationError
from firesteel.core.files import sync_directory


def savepoint_directory(path: str, settings: Settings | None = None) -> SavepointDirectory:
    """The directory that a path names, or that its ``_metadata`` are in; nothing is looked at.

    Args:
        path: of it.
        settings: of the job or the cluster: options of checkpoints, and of the object store.

    Raises:
        ConfigurationError: it is no path, or the settings are wrong.
    """
    settings = settings or Settings()
    if is_object(path):
        place = object_place(path, "savepoint path")
        return ObjectSavepointDirectory(place.parent if place.name == METADATA else place, settings)
    found = local_path(path, "savepoint path")
    return LocalSavepointDirectory(found.parent if found.name == METADATA else found, settings)


def read_target(text: str, what: str) -> str:
    """A directory for savepoints, as somebody has named it.

    Raises:
        ConfigurationError: it is no path.
    """
    return str(object_place(text, what) if is_object(text) else local_path(text, what))


def make_directory(target: str, job_id: str, settings: Settings | None = None) -> str:
    """A new directory for a savepoint of a job.

    Raises:
        CheckpointStorageError: it can't be made.
        ConfigurationError: the target is no path, or the settings of its object store are wrong.
    """
    name = f"savepoint-{job_id[:6]}-{uuid.uuid4().hex[:12]}"
    if is_object(target):
        return make_savepoint(str(object_place(target, "target directory") / name), settings)
    return make_savepoint(str(local_path(target, "target directory") / name), settings)


def make_savepoint(path: str, settings: Settings | None = None) -> str:
    """The directory of a new savepoint.

    Raises:
        CheckpointStorageError: it can't be made, or is there already.
        ConfigurationError: it is no path, or the settings of its object store are wrong.
    """
    if is_object(path):
        place = object_place(path, "savepoint path")
        ObjectSavepointDirectory(place, settings or Settings()).make()
        return str(place)
    made = local_path(path, "savepoint path")
    with told(f"the savepoint's directory {made} can't be made", savepoint=True):
        made.parent.mkdir(parents=True, exist_ok=True)
        made.mkdir()
        sync_directory(made.parent)
    return str(made)


def dispose(path: str, settings: Settings | None = None) -> None:
    """Remove a savepoint: its metadata first, so that one that is half removed is none.

    Raises:
        ConfigurationError: it is a checkpoint, or no path.
        CheckpointError: there is none, it is damaged, or it can't be removed.
    """
    metadata = read_savepoint_metadata(path, settings)
    if info_of(metadata) is None:
        raise ConfigurationError(
            f"{path} is checkpoint {metadata.checkpoint_id} of job {metadata.job_id}, and no savepoint: nothing "
            "was removed. Checkpoints go with their job; one that was retained is removed with its directory"
        )
    savepoint_directory(path, settings).remove(metadata)


def remove_directory(directory: str, settings: Settings | None = None) -> None:
    """Remove the directory of a savepoint that did not complete; see ``SavepointDirectory.give_up``."""
    savepoint_directory(directory, settings).give_up()


def remove_claimed(path: str, keep: frozenset[str], settings: Settings | None = None) -> None:
    """Remove what a job was started from with ``CLAIM``, if it is there; harmless to repeat.

    Args:
        path: of it.
        keep: files that are needed.
        settings: of the job.

    Raises:
        CheckpointError: it can't be read or removed for now.
    """
    try:
        metadata = read_savepoint_metadata(path, settings)
    except CheckpointCorruptedError:
        return
    if not keep & metadata.files():
        savepoint_directory(path, settings).remove(metadata)
