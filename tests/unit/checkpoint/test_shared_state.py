"""Pieces of state that several checkpoints use, in a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from firesteel.checkpoint.handles import FileState
from firesteel.checkpoint.storage import CheckpointStorage, StorageParameters, load_checkpoint_storage
from firesteel.config import Settings
from firesteel.core.errors import CheckpointStorageError

JOB = "ab" * 16
LARGE = b"x" * 100_000


def storage_of(directory: Path) -> CheckpointStorage:
    return load_checkpoint_storage(StorageParameters(JOB, Settings({"execution.checkpointing.dir": str(directory)})))


def shared(storage: CheckpointStorage, checkpoint_id: int) -> FileState:
    writer = storage.open_shared_stream(checkpoint_id, "Count")
    assert writer is not None
    writer.write(LARGE)
    handle = writer.close()
    assert isinstance(handle, FileState)
    return handle


def test_shared_files_stay_as_long_as_they_are_named(tmp_path: Path) -> None:
    storage = storage_of(tmp_path)
    storage.prepare(1)
    base = shared(storage, 1)
    first = storage.write_metadata(1, b"one")
    storage.prepare(2)
    delta = shared(storage, 2)
    second = storage.write_metadata(2, b"two")
    storage.dispose(first, [base.path], keep=[base.path, delta.path])
    storage.verify([base, delta])
    assert storage.read_state(base) == LARGE
    storage.close_job()
    assert storage.read_state(base) == LARGE, "a checkpoint that is kept needs it"
    storage.dispose(second, [base.path, delta.path])
    assert list((tmp_path / JOB / "shared").iterdir()) == []


def test_none_is_left_of_a_checkpoint_that_was_given_up(tmp_path: Path) -> None:
    storage = storage_of(tmp_path)
    storage.prepare(1)
    open_still = storage.open_shared_stream(1)
    assert open_still is not None
    open_still.write(LARGE)
    storage.discard(1, [shared(storage, 1).path])
    with pytest.raises(CheckpointStorageError):
        open_still.close()
    assert list((tmp_path / JOB / "shared").iterdir()) == []


def test_memory_has_none() -> None:
    assert load_checkpoint_storage(StorageParameters(JOB)).open_shared_stream(1) is None
