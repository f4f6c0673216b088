"""Checkpoint storages: the contract, and what each kind of trouble with files ends as."""

from __future__ import annotations

import errno
import io
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from firesteel.checkpoint import filesystem
from firesteel.checkpoint.filesystem import DirectoryCheckpointStorage
from firesteel.checkpoint.handles import FileState, InlineState
from firesteel.checkpoint.memory import MemoryCheckpointStorage
from firesteel.checkpoint.savepoint_places import make_directory, savepoint_directory
from firesteel.checkpoint.storage import CheckpointStorage, StorageParameters, load_checkpoint_storage
from firesteel.config import Settings
from firesteel.core.errors import (
    CheckpointCorruptedError,
    CheckpointNumberTakenError,
    CheckpointStorageError,
    ConfigurationError,
)
from firesteel.testing import check_checkpoint_storage

JOB = "ab" * 16
LARGE = b"x" * 100_000


def storage_of(directory: Path | str, **more: Any) -> CheckpointStorage:
    settings = {"execution.checkpointing.dir": str(directory), **{k.replace("__", "."): v for k, v in more.items()}}
    return load_checkpoint_storage(StorageParameters(JOB, Settings(settings)))


def written(storage: CheckpointStorage, data: bytes, checkpoint_id: int = 1) -> FileState | InlineState:
    with storage.open_state_stream(checkpoint_id, "Count") as writer:
        writer.write(data)
        return writer.close()


def tree(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


# -- the contract


def test_a_directory_keeps_the_contract(tmp_path: Path) -> None:
    check_checkpoint_storage(lambda: storage_of(tmp_path / "checkpoints"))
    assert tree(tmp_path / "checkpoints") == []


def test_a_directory_that_is_the_jobs_alone_keeps_the_contract(tmp_path: Path) -> None:
    more = {"execution.checkpointing.dir": f"file://{tmp_path}", "execution.checkpointing.create-subdir": "false"}
    check_checkpoint_storage(lambda: load_checkpoint_storage(StorageParameters(JOB, Settings(more))))
    assert tree(tmp_path) == []


def test_memory_keeps_the_contract() -> None:
    storage = load_checkpoint_storage(StorageParameters(JOB))
    assert isinstance(storage, MemoryCheckpointStorage)
    assert not storage.persistent
    check_checkpoint_storage(lambda: storage)


def test_memory_with_a_directory_for_metadata_keeps_the_contract(tmp_path: Path) -> None:
    def make() -> CheckpointStorage:
        return storage_of(tmp_path, **{"execution.checkpointing.storage": "jobmanager"})

    assert isinstance(make(), MemoryCheckpointStorage)
    assert make().persistent
    check_checkpoint_storage(make)
    assert tree(tmp_path) == []


def test_a_checkpoint_of_another_job_is_not_removed_with_one_that_failed(tmp_path: Path) -> None:
    storage = storage_of(tmp_path, **{"execution.checkpointing.create-subdir": "false"})
    storage.prepare(5)
    storage.prepare(7)
    ours = written(storage, LARGE, 5)
    other = tmp_path / "chk-5" / "_metadata"
    other.write_bytes(b"of another job")
    (tmp_path / "chk-7" / "_metadata").write_bytes(b"of another job")
    with pytest.raises(CheckpointStorageError, match="nothing was overwritten"):
        storage.write_metadata(5, b"ours")
    storage.discard(5, [ours.path] if isinstance(ours, FileState) else [])
    assert tree(tmp_path / "chk-5") == ["_metadata"]
    with pytest.raises(CheckpointNumberTakenError, match="is a checkpoint already, of another run") as caught:
        storage.prepare(5)
    assert caught.value.highest == 7
    assert other.read_bytes() == b"of another job"


def test_metadata_that_are_not_safe_are_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = storage_of(tmp_path)
    storage.prepare(1)

    def failing(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(filesystem, "sync_directory", failing)
        with pytest.raises(CheckpointStorageError, match="can't be written"):
            storage.write_metadata(1, b"ours")
    storage.discard(1)
    assert not (tmp_path / JOB / "chk-1").exists()


class _Careless(DirectoryCheckpointStorage):
    """Breaks one rule after the other."""

    rule = ""

    def write_metadata(self, checkpoint_id: int, data: bytes) -> str:
        if self.rule == "overwrites":
            (self.directory(checkpoint_id) / "_metadata").unlink(missing_ok=True)
        return super().write_metadata(checkpoint_id, data)

    def read_state(self, handle: Any) -> bytes:
        if self.rule == "unchecked" and isinstance(handle, FileState):
            with self.open_state(handle) as stream:
                return stream.read()
        return super().read_state(handle)

    def dispose(self, location: str, files: Any, keep: Any = ()) -> None:
        super().dispose(location, files, () if self.rule == "greedy" else keep)

    def verify(self, handles: Any) -> None:
        if self.rule != "trusting":
            super().verify(handles)

    def discard(self, checkpoint_id: int, files: Any = (), keep: Any = ()) -> None:
        if self.rule != "hoarding":
            super().discard(checkpoint_id, files, () if self.rule == "careless" else keep)

    def left_behind(self, below: int) -> Any:
        leftovers = super().left_behind(below)
        return [leftover for leftover in leftovers if leftover[2] is not None] if self.rule == "blind" else leftovers


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("overwrites", "write_metadata.. over others: CheckpointStorageError is to be"),
        ("unchecked", "state that was changed: CheckpointCorruptedError is to be"),
        ("trusting", "verify.. of too short state: CheckpointCorruptedError is to be"),
        ("hoarding", "state of a discarded checkpoint: CheckpointError is to be"),
        ("greedy", "dispose.. removes files that are to be kept: .*the file is missing"),
        ("careless", "discard.. removes a file that is to be kept: .*the file is missing"),
        ("blind", "left_behind.. does not name what has no metadata"),
    ],
)
def test_the_kit_finds_broken_rules(rule: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Careless, "rule", rule)
    parameters = StorageParameters(JOB, Settings({"execution.checkpointing.dir": str(tmp_path)}))
    with pytest.raises(AssertionError, match=message):
        check_checkpoint_storage(lambda: _Careless(parameters))


# -- what goes where


def test_the_layout_of_the_directory_is_flinks(tmp_path: Path) -> None:
    storage = storage_of(tmp_path)
    storage.prepare(7)
    first, second = written(storage, LARGE, 7), written(storage, LARGE, 7)
    location = storage.write_metadata(7, b"{}")
    assert isinstance(first, FileState)
    assert isinstance(second, FileState)
    names = {f"chk-7/{Path(handle.path).name}" for handle in (first, second)}
    assert location == str(tmp_path / JOB / "chk-7" / "_metadata")
    assert set(tree(tmp_path / JOB)) == {"chk-7", "chk-7/_metadata", "shared", "taskowned", *names}
    assert len(names) == 2


@pytest.mark.parametrize(("size", "inline"), [(0, True), (99, True), (100, False), (50_000, False)])
def test_small_state_stays_in_its_handle(size: int, inline: bool, tmp_path: Path) -> None:
    storage = storage_of(tmp_path, **{"execution.checkpointing.data-inline-threshold": "100"})
    storage.prepare(1)
    handle = written(storage, b"y" * size)
    assert isinstance(handle, InlineState) is inline
    assert storage.read_state(handle) == b"y" * size


def test_memory_takes_five_mebibytes_and_says_what_to_set() -> None:
    storage = load_checkpoint_storage(StorageParameters(JOB))
    assert written(storage, b"z" * (5 << 20)).size == 5 << 20
    with pytest.raises(CheckpointStorageError, match=r"'Count' is larger than 5 mb, .* execution\.checkpointing\.dir"):
        written(storage, b"z" * ((5 << 20) + 1))
    smaller = Settings({"firesteel.checkpointing.jobmanager.max-state-size": "10 bytes"})
    with pytest.raises(CheckpointStorageError, match="larger than 10 bytes"):
        written(load_checkpoint_storage(StorageParameters(JOB, smaller)), b"z" * 11)


def test_a_location_is_the_file_its_directory_or_a_uri(tmp_path: Path) -> None:
    storage = storage_of(tmp_path)
    storage.prepare(3)
    location = storage.write_metadata(3, b"m")
    for text in (location, str(Path(location).parent), f"file://{location}", f"file:{Path(location).parent}/"):
        assert storage_of(tmp_path / "other").read_metadata(text) == (location, b"m")
    with pytest.raises(CheckpointCorruptedError, match="it has no metadata; checkpoints in this directory: chk-3"):
        storage.read_metadata(str(tmp_path / JOB))
    with pytest.raises(CheckpointCorruptedError, match="there is no such file or directory"):
        storage.read_metadata(str(tmp_path / "nothing" / "chk-1"))


# -- what is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"execution.checkpointing.storage": "filesystem"}, "'filesystem' needs execution.checkpointing.dir"),
        ({"execution.checkpointing.storage": "nowhere"}, "called 'nowhere'; known: filesystem, hdfs, jobmanager"),
        (
            {"execution.checkpointing.dir": "ftp://name/x"},
            r"or of an object store \(s3://bucket/...\), not of ftp://",
        ),
        ({"execution.checkpointing.dir": "relative/x"}, "the path has to be absolute"),
        ({"execution.checkpointing.dir": "file://host/x"}, "a file URI names no host"),
        ({"execution.checkpointing.storage": "jobmanager", "execution.checkpointing.dir": "ftp:///x"}, "ftp://"),
    ],
)
def test_wrong_settings_are_refused_at_once(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_checkpoint_storage(StorageParameters(JOB, Settings(settings)))


def test_old_names_of_keys_hold() -> None:
    settings = Settings(
        {
            "state.checkpoints.dir": "/c",
            "state.checkpoint-storage": "filesystem",
            "state.storage.fs.memory-threshold": "1 kb",
            "state.checkpoints.create-subdir": "false",
        }
    )
    storage = load_checkpoint_storage(StorageParameters(JOB, settings))
    assert isinstance(storage, DirectoryCheckpointStorage)
    assert storage.root == Path("/c")


# -- trouble


class _Full(io.FileIO):
    """A disk that is full after some bytes; what fitted was written."""

    room = 50_000

    def write(self, data: Any) -> int:
        fits = min(len(data), _Full.room)
        if not fits:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        _Full.room -= fits
        return super().write(memoryview(data)[:fits])


def test_a_full_disk_leaves_nothing_and_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.checkpoint.filesystem.io.FileIO", _Full)
    storage = storage_of(tmp_path)
    storage.prepare(1)
    with pytest.raises(CheckpointStorageError, match=r"'Count' can't be written to .*No space left .*Make room"):
        written(storage, LARGE)
    assert tree(tmp_path / JOB / "chk-1") == []


def _failing(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(f"firesteel.checkpoint.filesystem.os.{name}", fail)


def test_state_that_is_not_durable_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = storage_of(tmp_path)
    storage.prepare(1)
    with monkeypatch.context() as broken:
        _failing(broken, "fsync", errno.EIO)
        with pytest.raises(CheckpointStorageError, match="Input/output error"):
            written(storage, LARGE)
        with pytest.raises(CheckpointStorageError, match="metadata of checkpoint 1"):
            storage.write_metadata(1, b"m")
    assert tree(tmp_path / JOB / "chk-1") == []


def test_a_read_only_directory_is_told_before_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(CheckpointStorageError, match=r"Read-only file system.*Let the cluster's user write there"):
        storage_of(tmp_path).prepare(1)


def test_where_a_savepoint_can_not_go_another_directory_is_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not another option for checkpoints."""

    def refuse(self: Path, *_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as read_only:
        read_only.setattr(Path, "mkdir", refuse)
        with pytest.raises(CheckpointStorageError, match="into another directory"):
            make_directory(str(tmp_path), JOB)
    directory = Path(make_directory(str(tmp_path / "savepoints"), JOB))
    writer = savepoint_directory(str(directory), Settings()).open_state_stream(1)
    directory.rmdir()
    with pytest.raises(CheckpointStorageError, match="the directory of a savepoint has to be one that all hosts see"):
        writer.write(bytes(1 << 20))


def test_a_directory_that_this_host_does_not_see_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointStorageError, match=r"execution\.checkpointing\.dir has to be one that all hosts see"):
        written(storage_of(tmp_path), LARGE)


@pytest.mark.parametrize("own", ["true", "false"], ids=["below-the-mount", "at-the-mount"])
def test_a_file_system_that_is_not_mounted_damages_no_checkpoint_and_gets_none(tmp_path: Path, own: str) -> None:
    """An empty mount point says nothing about the files; one file that is missing beside others does."""
    mount, away = tmp_path / "mount", tmp_path / "away"
    storage = storage_of(mount, **{"execution.checkpointing.create-subdir": own})
    storage.prepare(1)
    state, other = (written(storage, data) for data in (LARGE, LARGE + b"y"))
    assert isinstance(other, FileState)
    mount.rename(away)
    mount.mkdir()
    for use in (lambda: storage.open_state(state), lambda: storage.verify([state]), lambda: storage.prepare(2)):
        with pytest.raises(CheckpointStorageError, match="is its file system mounted"):
            use()
    assert list(mount.iterdir()) == []
    mount.rmdir()
    away.rename(mount)
    Path(other.path).unlink()
    storage.verify([state])
    storage.prepare(2)
    for use in (lambda: storage.open_state(other), lambda: storage.verify([other])):
        with pytest.raises(CheckpointCorruptedError, match="the file is missing"):
            use()


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP])
def test_metadata_are_created_once_where_there_are_no_links(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _failing(monkeypatch, "link", number)
    check_checkpoint_storage(lambda: storage_of(tmp_path))


def test_other_metadata_are_never_overwritten(tmp_path: Path) -> None:
    storage = storage_of(tmp_path)
    storage.prepare(1)
    location = storage.write_metadata(1, b"mine")
    with pytest.raises(CheckpointStorageError, match=r"holds something else: nothing was overwritten\. Does another"):
        storage_of(tmp_path).write_metadata(1, b"theirs")
    assert Path(location).read_bytes() == b"mine"
    assert tree(tmp_path / JOB / "chk-1") == ["_metadata"]


def test_a_storage_that_loses_what_was_written_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = storage_of(tmp_path)
    storage.prepare(1)

    def lie(path: Path, data: bytes) -> None:
        path.write_bytes(data[:-1])

    monkeypatch.setattr(filesystem, "_write_new", lie)
    with pytest.raises(CheckpointStorageError, match="the storage loses data"):
        storage.write_metadata(1, b"metadata")


def test_state_that_was_cut_off_or_changed_is_found(tmp_path: Path) -> None:
    storage = storage_of(tmp_path)
    storage.prepare(1)
    handle = written(storage, LARGE)
    assert isinstance(handle, FileState)
    path = Path(handle.path)
    path.write_bytes(b"y" + LARGE[1:])
    storage.verify([handle])
    with pytest.raises(CheckpointCorruptedError, match="its checksum is wrong"):
        storage.read_state(handle)
    path.write_bytes(LARGE[:-1])
    for read in (lambda: storage.verify([handle]), lambda: storage.open_state(handle)):
        with pytest.raises(CheckpointCorruptedError, match="it is cut off: 99999 bytes are there of 100000"):
            read()


def test_nothing_outside_of_the_jobs_place_is_removed(tmp_path: Path) -> None:
    storage = storage_of(tmp_path / "mine")
    storage.prepare(1)
    other = storage_of(tmp_path / "theirs")
    other.prepare(1)
    handle = written(other, LARGE)
    assert isinstance(handle, FileState)
    location = other.write_metadata(1, b"m")
    outside = f"{tmp_path}/mine/{JOB}/chk-1/../../../theirs/{JOB}/chk-1/{Path(handle.path).name}"
    storage.discard(1, [handle.path, outside])
    storage.dispose(location, [handle.path, outside])
    storage.close_job()
    other.verify([handle])
    assert Path(location).exists()


def test_the_end_of_a_job_leaves_checkpoints_and_the_files_of_others(tmp_path: Path) -> None:
    storage = storage_of(tmp_path)
    for number in (1, 2):
        storage.prepare(number)
    storage.write_metadata(2, b"m")
    storage.close_job()
    assert tree(tmp_path / JOB) == ["chk-2", "chk-2/_metadata", "shared", "taskowned"]
    (tmp_path / JOB / "notes.txt").touch()
    storage.dispose(str(tmp_path / JOB / "chk-2" / "_metadata"), ())
    storage.close_job()
    assert tree(tmp_path / JOB) == ["notes.txt"]


REMOVALS = {
    "discard": lambda storage, location, file: storage.discard(2, [file]),
    "dispose": lambda storage, location, file: storage.dispose(location, [file]),
    "close_job": lambda storage, location, file: storage.close_job(),
    "close_job, keeping": lambda storage, location, file: storage.close_job([file]),
}


@pytest.mark.parametrize("what", REMOVALS)
def test_two_remove_the_same_at_the_same_time(what: str, tmp_path: Path) -> None:
    """Whichever call to the system the other one comes in front of: nothing is an error, and nothing is left."""
    names = ("unlink", "rmdir", "scandir", "listdir", "open", "stat", "lstat")
    originals = {name: getattr(os, name) for name in names}
    number, reached = 0, True
    while reached:
        storage = storage_of(tmp_path / str(number))
        storage.prepare(1)
        written(storage, LARGE, 1)
        location = storage.write_metadata(1, b"of the first one")
        storage.prepare(2)
        file = written(storage, LARGE, 2)
        assert isinstance(file, FileState)
        calls, reached = 0, False

        def other_first(name: str, number: int = number) -> Any:
            def call(*arguments: Any, **named: Any) -> Any:
                nonlocal calls, reached
                calls += 1
                if calls == number + 1:
                    reached = True
                    shutil.rmtree(tmp_path / str(number))
                return originals[name](*arguments, **named)

            return call

        with pytest.MonkeyPatch.context() as patched:
            for name in names:
                patched.setattr(os, name, other_first(name))
            REMOVALS[what](storage, location, file.path)
        if reached:
            assert tree(tmp_path / str(number)) == []
        number += 1
    assert number > 5
