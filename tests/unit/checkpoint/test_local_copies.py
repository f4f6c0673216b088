"""Copies of state on a local disk: used when they are good, and as long as they are needed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from firesteel.checkpoint.filesystem import DirectoryCheckpointStorage
from firesteel.checkpoint.handles import FileState, InlineState, StateHandle
from firesteel.checkpoint.local_copies import LocalCopies, link_copy
from firesteel.checkpoint.storage import StateWriter, StorageParameters
from firesteel.config import Settings
from firesteel.core.errors import CheckpointStorageError


@pytest.fixture
def storage(tmp_path: Path) -> DirectoryCheckpointStorage:
    settings = {
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "execution.checkpointing.data-inline-threshold": "0",
    }
    storage_ = DirectoryCheckpointStorage(StorageParameters("0" * 32, Settings(settings, "job")))
    storage_.prepare(1)
    return storage_


def write(copies: LocalCopies, storage: DirectoryCheckpointStorage, data: bytes) -> StateHandle:
    with copies.beside(storage.open_state_stream(1)) as writer:
        writer.write(data[:3])
        writer.write(data[3:])
        return writer.close()


def content_of(copies: LocalCopies, handle: StateHandle) -> bytes | None:
    stream = copies.open(handle)
    if stream is None:
        return None
    with stream:
        return stream.read()


def files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "local").rglob("*") if path.is_file()]


def test_a_copy_is_read_by_the_task_and_by_others_of_the_job(
    storage: DirectoryCheckpointStorage, tmp_path: Path
) -> None:
    copies = LocalCopies([str(tmp_path / "local")], "v-0")
    handle = write(copies, storage, b"some state")
    assert isinstance(handle, FileState)
    assert content_of(copies, handle) == b"some state"
    assert content_of(LocalCopies([str(tmp_path / "local")], "v-1"), handle) == b"some state"
    assert content_of(LocalCopies([str(tmp_path / "local")], "v-0", [handle], reads=False), handle) is None
    assert content_of(LocalCopies([str(tmp_path / "elsewhere")], "v-0"), handle) is None
    assert content_of(copies, InlineState(b"some state")) is None


@pytest.mark.parametrize("damage", [b"some stat", b"some statf", b"some state and more", b""])
def test_a_copy_that_is_damaged_is_not_used(
    storage: DirectoryCheckpointStorage, tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    copies = LocalCopies([str(tmp_path / "local")], "v-0")
    handle = write(copies, storage, b"some state")
    (path,) = files(tmp_path)
    path.write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        assert content_of(copies, handle) is None
    assert str(path) in caplog.text
    assert not path.exists()
    assert storage.read_state(handle) == b"some state"


def test_copies_stay_as_long_as_a_checkpoint_needs_them(storage: DirectoryCheckpointStorage, tmp_path: Path) -> None:
    copies = LocalCopies([str(tmp_path / "local")], "v-0")
    first, second, third, four = (write(copies, storage, data) for data in (b"one", b"two", b"three", b"four"))
    copies.acknowledged(1, [first, second])
    copies.acknowledged(2, [second, third])
    copies.acknowledged(3, [four])
    copies.complete(1)
    assert all(content_of(copies, handle) for handle in (first, second, third, four))
    copies.aborted(3)
    assert content_of(copies, four) is None
    copies.complete(2)
    assert [content_of(copies, handle) for handle in (first, second, third)] == [None, b"two", b"three"]
    again = LocalCopies([str(tmp_path / "local")], "v-0", [third])
    assert [content_of(again, handle) for handle in (second, third)] == [None, b"three"]
    again.acknowledged(4, [write(again, storage, b"five")])
    again.complete(4)
    assert content_of(again, third) is None
    assert len(files(tmp_path)) == 1


def test_what_attempts_before_have_left_is_removed(storage: DirectoryCheckpointStorage, tmp_path: Path) -> None:
    copies = LocalCopies([str(tmp_path / "local")], "v-0")
    writer = copies.beside(storage.open_state_stream(1))
    writer.write(b"x" * 10)
    write(copies, storage, b"never acknowledged")
    assert len(files(tmp_path)) == 2
    LocalCopies([str(tmp_path / "local")], "v-1")
    assert len(files(tmp_path)) == 2
    LocalCopies([str(tmp_path / "local")], "v-0")
    assert files(tmp_path) == []
    writer.abort()


class Broken(StateWriter):
    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def close(self) -> StateHandle:
        raise CheckpointStorageError("away")

    def abort(self) -> None: ...


def test_what_is_not_stored_has_no_copy(tmp_path: Path) -> None:
    with LocalCopies([str(tmp_path / "local")], "v-0").beside(Broken()) as writer:
        writer.write(b"some")
        with pytest.raises(CheckpointStorageError):
            writer.close()
    assert files(tmp_path) == []


def test_a_local_disk_that_takes_nothing_costs_the_copy_only(
    storage: DirectoryCheckpointStorage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "local").touch()
    copies = LocalCopies([str(tmp_path / "local")], "v-0")
    with caplog.at_level(logging.WARNING):
        handle = write(copies, storage, b"some state")
    assert "no copy of state" in caplog.text
    assert content_of(copies, handle) is None
    assert storage.read_state(handle) == b"some state"


def test_a_file_that_never_changes_is_linked(storage: DirectoryCheckpointStorage, tmp_path: Path) -> None:
    copies, path = LocalCopies([str(tmp_path / "local")], "v-0"), tmp_path / "table.sst"
    path.write_bytes(b"entries")
    with copies.beside(storage.open_state_stream(1)) as writer:
        link_copy(writer, str(path))
        writer.write(path.read_bytes())
        handle = writer.close()
    assert path.stat().st_nlink == 2
    assert content_of(copies, handle) == b"entries"


def test_a_file_that_is_written_for_two_checkpoints_is_linked_once(
    storage: DirectoryCheckpointStorage, tmp_path: Path
) -> None:
    copies, path = LocalCopies([str(tmp_path / "local")], "v-0"), tmp_path / "table.sst"
    path.write_bytes(b"entries")
    for checkpoint_id in (1, 2):
        with copies.beside(storage.open_state_stream(1)) as writer:
            link_copy(writer, str(path))
            writer.write(path.read_bytes())
            copies.acknowledged(checkpoint_id, [writer.close()])
    copies.acknowledged(3, [])
    copies.complete(3)
    assert files(tmp_path) == []
    assert path.stat().st_nlink == 1, "or the disk space would not come back"


def test_copies_are_spread_over_disks(storage: DirectoryCheckpointStorage, tmp_path: Path) -> None:
    disks = [str(tmp_path / "local" / name) for name in ("a", "b")]
    copies = LocalCopies(disks, "v-0")
    handles = [write(copies, storage, b"piece %d" % number) for number in range(4)]
    assert [len(list(Path(disk, "v-0").iterdir())) for disk in disks] == [2, 2]
    for reader in (copies, LocalCopies(disks, "v-1"), LocalCopies(disks[::-1], "v-0", handles)):
        assert [content_of(reader, handle) for handle in handles] == [b"piece %d" % number for number in range(4)]
    copies.acknowledged(1, handles)
    copies.acknowledged(2, handles[2:])
    copies.complete(2)
    assert [content_of(copies, handle) is None for handle in handles] == [True, True, False, False]
    LocalCopies(disks, "v-0", handles[3:])
    assert len(files(tmp_path)) == 1
