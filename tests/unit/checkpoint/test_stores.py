"""Stores of completed checkpoints: the contract, and what one in a directory does when something is wrong with it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from firesteel.checkpoint.store import MemoryCheckpointStore, StoredCheckpoint
from firesteel.core.errors import CheckpointStorageError, FiresteelError
from firesteel.ha.documents import encode
from tests.checkpoint_store_kit import check_checkpoint_store
from tests.unit.ha.directories import NoSyncDisk, checkpoint_store, edit_record, kinds_of_records, records_file


def test_memory_keeps_the_contract() -> None:
    store = MemoryCheckpointStore()
    check_checkpoint_store(lambda: store)


def test_a_directory_keeps_the_contract(tmp_path: Path) -> None:
    store = checkpoint_store(tmp_path)
    check_checkpoint_store(lambda: store)
    assert kinds_of_records(tmp_path) == {"writer"}


class _Forgetful(MemoryCheckpointStore):
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
def test_the_kit_finds_broken_rules(rule: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Forgetful, "rule", rule)
    store = _Forgetful()
    with pytest.raises(AssertionError, match=message):
        check_checkpoint_store(lambda: store)


def by_hand(value: bytes) -> bytes:
    """The line of a record as people may write it."""
    return json.dumps(value.decode()).encode()


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"", "it was changed, or is no document of the cluster"),
        (by_hand(b"{}"), "it was changed, or is no document of the cluster"),
        (by_hand(encode("checkpoint", {})), "entry.checkpoint_id"),
        (by_hand(encode("checkpoint", {"checkpoint_id": 7, "location": "x"})), "an entry of another checkpoint"),
        (by_hand(encode("checkpoint", {"checkpoint_id": 2, "location": "x"})[:-1]), "does not have the checksum"),
    ],
)
def test_damaged_entries_hide_no_others(line: bytes, what: str, tmp_path: Path) -> None:
    store = checkpoint_store(tmp_path)
    store.add(StoredCheckpoint(1, "/c/chk-1"))
    store.add(StoredCheckpoint(2, "/c/chk-2"))
    edit_record(tmp_path, "checkpoint.2", lambda _: line)
    for reader in (store, checkpoint_store(tmp_path)):
        assert reader.all() == [StoredCheckpoint(1, "/c/chk-1")]
        (damage,) = reader.damaged
        assert damage.startswith("checkpoint.2: ")
        assert what in damage


def test_an_entry_of_another_version_is_waited_for(tmp_path: Path) -> None:
    """It may be the newest checkpoint, which this version can't read: to go on from an older one would lose results."""
    store = checkpoint_store(tmp_path)
    store.add(StoredCheckpoint(1, "/c/chk-1"))
    store.add(StoredCheckpoint(2, "/c/chk-2"))
    later = encode("checkpoint", {"checkpoint_id": 2, "location": "x"}, 2)
    edit_record(tmp_path, "checkpoint.2", lambda _: by_hand(later))
    with pytest.raises(FiresteelError, match="another version of Firesteel has stored the checkpoints"):
        store.all()


def test_a_damaged_counter_is_told_and_not_counted_anew_and_may_be_written_by_hand(tmp_path: Path) -> None:
    checkpoint_store(tmp_path).next_id()
    edit_record(tmp_path, "counter", lambda line: line[:-1])
    store = checkpoint_store(tmp_path)
    with pytest.raises(CheckpointStorageError, match="Write the number of the job's last checkpoint into it"):
        store.next_id()
    edit_record(tmp_path, "counter", lambda line: by_hand(b"41"))
    assert [checkpoint_store(tmp_path).next_id() for _ in range(2)] == [42, 43]


@given(data=st.data())
def test_each_bit_of_an_entry_and_of_the_counter_counts(data: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("store")
    store = checkpoint_store(directory, NoSyncDisk())
    store.next_id(8)
    entry = StoredCheckpoint(9, "/c/chk-9/_metadata", "metadata")
    store.add(entry)

    def flip(line: bytes) -> bytes:
        changed = bytearray(line)
        changed[data.draw(st.integers(0, len(line) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        assume(b"\n" not in changed)
        return bytes(changed)

    for name in ("checkpoint.9", "counter"):
        edit_record(directory, name, flip)
    assert store.all() == []
    assert "checkpoint.9" in store.damaged[0]
    with pytest.raises(FiresteelError):
        store.next_id()


@given(data=st.data())
def test_each_bit_of_the_index_counts(data: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("store")
    store = checkpoint_store(directory, NoSyncDisk())
    store.add(StoredCheckpoint(store.next_id(), "/c/chk-1/_metadata"))
    path = records_file(directory)
    content = bytearray(path.read_bytes())
    end = content.index(b"\n", content.index(b"\n") + 1)
    content[data.draw(st.integers(0, end))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    with pytest.raises(FiresteelError):
        store.all()
    with pytest.raises(FiresteelError):
        store.next_id()


def test_an_entry_that_can_not_be_read_for_now_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = checkpoint_store(tmp_path)
    store.add(StoredCheckpoint(1, "/c/chk-1"))

    def fail(*_: object, **__: object) -> bytes:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with monkeypatch.context() as broken:
        broken.setattr(Path, "open", fail)
        with pytest.raises(CheckpointStorageError, match="Stale file handle"):
            store.all()
    assert [entry.checkpoint_id for entry in store.all()] == [1]


def test_what_can_not_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = checkpoint_store(tmp_path)
    store.add(StoredCheckpoint(1, "/c/chk-1"))
    before = sorted(tmp_path.rglob("*"))

    def full(_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CheckpointStorageError, match=r"checkpoint 2 can't be stored: No space left"):
        store.add(StoredCheckpoint(2, "/c/chk-2"))
    assert store.all() == [StoredCheckpoint(1, "/c/chk-1")]
    assert sorted(tmp_path.rglob("*")) == before
