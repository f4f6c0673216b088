"""What a record costs an interval join does not grow with what is kept of its key: counted, on both backends."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.testing.snapshots import RunningSnapshot
from firesteel_rocksdb.database import RocksDatabase
from tests.unit.windowing.harness import Rig
from tests.unit.windowing.test_old_interval_joins import LOWER, UPPER, rig_of

RANGE = UPPER - LOWER


def filled(backend: str, folder: Path, buffered: int) -> Rig:
    """A join that has so many records of each side of one key, a millisecond apart; the watermark stands still."""
    rig = rig_of(backend, folder, [])
    for side in (0, 1):
        rig.records([(("a", f"{side}.{time}"), time) for time in range(buffered)], side)
    return rig


def records_behind(rig: Rig, buffered: int, count: int) -> int:
    """So many more of each side; how many partners they meet."""
    pairs = 0
    for time in range(buffered, buffered + count):
        for side in (0, 1):
            pairs += len(rig.records([(("a", f"{side}.{time}"), time)], side))
    return pairs


class Counted:
    """What goes to and comes from RocksDB."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.all: Counter[str] = Counter()
        get, read, write = RocksDatabase.get, RocksDatabase.read_to, RocksDatabase.write

        def counted_get(database: RocksDatabase, key: bytes) -> bytes | None:
            data = get(database, key)
            self.all["bytes read"] += len(data or b"")
            self.all["looked up"] += 1
            return data

        def counted_read(database: RocksDatabase, start: bytes, stop: bytes, *more: Any) -> tuple[list[Any], bool]:
            entries = read(database, start, stop, *more)
            self.all["entries read"] += len(entries[0])
            self.all["bytes read"] += sum(len(data) for _, data in entries[0])
            return entries

        def counted_write(database: RocksDatabase, pairs: Any) -> int:
            self.all["entries written"] += len(pairs)
            self.all["bytes written"] += sum(len(key) + len(data or b"") for key, data in pairs)
            return write(database, pairs)

        patch.setattr(RocksDatabase, "get", counted_get)
        patch.setattr(RocksDatabase, "read_to", counted_read)
        patch.setattr(RocksDatabase, "write", counted_write)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    counts = Counted(monkeypatch)
    yield counts.all
    monkeypatch.undo()


def test_rocksdb_reads_and_writes_what_the_record_needs(counted: Counter[str], tmp_path: Path) -> None:
    costs, adds = [], 40
    for buffered in (100, 1_000):
        rig = filled("rocksdb", tmp_path / str(buffered), buffered)  # with one byte of memory, all of it is on disk
        counted.clear()
        pairs = records_behind(rig, buffered, adds // 2)
        assert pairs >= adds // 2 * (UPPER + 1)
        assert pairs * 0.9 <= counted["entries read"] <= pairs + 2 * adds, "its partners and its timers"
        assert counted["looked up"] <= 2 * adds  # the record's own time, and what the timer may be
        assert counted["entries written"] <= 3 * adds
        assert counted["bytes written"] < 150 * adds, "more than a record with its key, and its timer"
        assert counted["bytes read"] < 80 * pairs + 80 * adds
        costs.append(dict(counted))
        rig.operator.close()
    few, many = costs
    for name in few:
        assert many[name] <= few[name] * 1.1 + 20, f"{name}: {few[name]} with 100 kept, {many[name]} with 1,000"


def test_cleaning_up_reads_no_records(counted: Counter[str], tmp_path: Path) -> None:
    rig = filled("rocksdb", tmp_path, 600)
    counted.clear()
    rig.watermark(300)
    gone = 2 * 300
    assert counted["bytes read"] < 100 * gone, "the timers that are due, and no records"
    assert counted["bytes written"] < 200 * gone
    assert len(rig.operator.keyed.timeline("left-buffer")) + len(rig.operator.keyed.timeline("right-buffer")) < 700
    rig.operator.close()


def test_a_snapshot_is_cut_however_much_is_kept_of_a_key(tmp_path: Path) -> None:
    rig = filled("hashmap", tmp_path, 3_000)
    taking = RunningSnapshot(rig.operator.keyed.snapshot(0.0), range(8))
    slices = 0
    while taking.step() is None:
        slices += 1
    assert slices > 8
    rig.operator.close()


def test_a_snapshot_on_the_heap_serialises_what_is_changed_not_all_that_is_kept(tmp_path: Path) -> None:
    rig = filled("hashmap", tmp_path, 3_000)
    snapshot = rig.operator.keyed.snapshot(0.0)
    table = rig.operator.keyed.timeline("left-buffer")._table
    records_behind(rig, 3_000, 3)
    assert table.writing.saved == {}, "partners were looked at, not changed"
    rig.records([(("a", "one more"), 2_999)], 0)
    assert {place: len(pickle.loads(data)) for place, data in table.writing.saved.items()} == {("a", 2_999): 1}
    snapshot.close()
    rig.operator.close()
