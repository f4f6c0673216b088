"""Stores of completed checkpoints: the contract, and what a directory does when something is wrong with it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.checkpoint.store import DirectoryCheckpointStore, MemoryCheckpointStore, StoredCheckpoint, _encode
from firesteel.core.errors import CheckpointStorageError, FiresteelError
from tests.checkpoint_store_kit import check_checkpoint_store


def test_memory_keeps_the_contract() -> None:
    store = MemoryCheckpointStore()
    check_checkpoint_store(lambda: store)


def test_a_directory_keeps_the_contract(tmp_path: Path) -> None:
    check_checkpoint_store(lambda: DirectoryCheckpointStore(tmp_path / "job"))
    assert list(tmp_path.iterdir()) == []


class _Forgetful(DirectoryCheckpointStore):
    rule = ""

    def next_id(self, above: int = 0) -> int:
        return super().next_id(0 if self.rule == "above" else above)

    def add(self, checkpoint: StoredCheckpoint) -> None:
        if self.rule == "overwrites":
            self.remove(checkpoint.checkpoint_id)
        super().add(checkpoint)

    def all(self) -> list[StoredCheckpoint]:
        return super().all()[::-1] if self.rule == "order" else super().all()

    def clear(self) -> None:
        if self.rule == "counter":
            for checkpoint in self.all():
                self.remove(checkpoint.checkpoint_id)
        else:
            super().clear()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("above", "is not above the number"),
        ("overwrites", "of one id does not raise"),
        ("order", "in the order of ids"),
        ("counter", "leaves the counter"),
    ],
)
def test_the_kit_finds_broken_rules(rule: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Forgetful, "rule", rule)
    with pytest.raises(AssertionError, match=message):
        check_checkpoint_store(lambda: _Forgetful(tmp_path / "job"))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "the file is empty"),
        (b"{}", "its first line is damaged, or it is no file of this kind"),
        (_encode([]), "an object is expected"),
        (_encode({"checkpoint_id": 7, "location": "x"}), "an entry of another checkpoint"),
        (_encode({"checkpoint_id": 2, "location": "x"})[:-1], "its checksum is wrong"),
    ],
)
def test_damaged_entries_hide_no_others(content: bytes, what: str, tmp_path: Path) -> None:
    store = DirectoryCheckpointStore(tmp_path)
    store.add(StoredCheckpoint(1, "/c/chk-1"))
    (tmp_path / "chk-2.json").write_bytes(content)
    (tmp_path / ".chk-3.json.draft").write_text("of a process that was killed")
    assert store.all() == [StoredCheckpoint(1, "/c/chk-1")]
    (damage,) = store.damaged
    assert str(tmp_path / "chk-2.json") in damage
    assert what in damage


def test_an_entry_of_another_version_is_waited_for(tmp_path: Path) -> None:
    """It may be the newest checkpoint, which this version can't read: to go on from an older one would lose results."""
    store = DirectoryCheckpointStore(tmp_path)
    store.add(StoredCheckpoint(1, "/c/chk-1"))
    (tmp_path / "chk-2.json").write_bytes(_encode({"checkpoint_id": 2, "location": "x"}).replace(b"S 1", b"S 2"))
    with pytest.raises(FiresteelError, match="of version 2"):
        store.all()


def test_a_damaged_counter_is_told_and_not_counted_anew(tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("x")
    with pytest.raises(CheckpointStorageError, match="Write the number of the job's last checkpoint into it"):
        DirectoryCheckpointStore(tmp_path).next_id()
    assert (tmp_path / "counter").read_text() == "x"


def test_a_counter_may_be_written_by_hand(tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("41\n")
    assert [DirectoryCheckpointStore(tmp_path).next_id() for _ in range(2)] == [42, 43]


@given(data=st.data())
def test_each_bit_of_an_entry_and_of_the_counter_counts(data: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("store")
    store = DirectoryCheckpointStore(directory)
    store.next_id(8)
    store.add(StoredCheckpoint(9, "/c/chk-9/_metadata", "metadata"))
    for name in ("chk-9.json", "counter"):
        content = bytearray((directory / name).read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        (directory / name).write_bytes(content)
    version = (directory / "chk-9.json").read_bytes().split(b" ")[1]
    if version.isdigit() and version != b"1":  # the bit was one of the version
        with pytest.raises(FiresteelError, match="of version"):
            store.all()
    else:
        assert store.all() == []
        assert "chk-9.json" in store.damaged[0]
    with pytest.raises(FiresteelError):
        store.next_id()


def test_an_entry_that_can_not_be_read_for_now_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DirectoryCheckpointStore(tmp_path)
    store.add(StoredCheckpoint(1, "/c/chk-1"))

    def fail(self: Path) -> bytes:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with monkeypatch.context() as broken:
        broken.setattr(Path, "read_bytes", fail)
        with pytest.raises(CheckpointStorageError, match="Stale file handle"):
            store.all()
    assert [entry.checkpoint_id for entry in store.all()] == [1]


def test_what_can_not_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DirectoryCheckpointStore(tmp_path)
    store.add(StoredCheckpoint(1, "/c/chk-1"))

    def full(_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CheckpointStorageError, match=r"checkpoint 2 can't be written .*No space left"):
        store.add(StoredCheckpoint(2, "/c/chk-2"))
    assert store.all() == [StoredCheckpoint(1, "/c/chk-1")]
    assert [path.name for path in tmp_path.iterdir()] == ["chk-1.json"]
