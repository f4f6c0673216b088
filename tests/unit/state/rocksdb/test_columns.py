"""State in columns on RocksDB: more keys than memory holds, snapshots, restores, and bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from firesteel.core.errors import StateDatabaseError, StateMigrationError
from firesteel.state.backend import KeyedStateBackend, KeyedStateParameters, StateBackend
from firesteel.state.heap import HeapKeyedState
from firesteel.state.snapshots import Purpose
from firesteel.testing.columnar_state_conformance import check_columnar_state
from firesteel.testing.snapshots import RunningSnapshot, SnapshotContents, take_snapshot
from firesteel_rocksdb.backend import CONTENTS, RocksDBKeyedState, RocksDBStateBackend
from firesteel_rocksdb.column_rows import KeyBytes, RowLayout
from firesteel_rocksdb.columns import ChangedSlots, ColumnsOnDisk
from firesteel_rocksdb.database import RocksDatabase
from firesteel_rocksdb.settings import RocksDBSettings
from tests.examples import examples

GROUPS = 8
LITTLE = 1 << 20
"""Managed memory with which some thousand keys are in memory."""


class LittleMemory(StateBackend):
    """Keys leave memory as soon as others come."""

    def create_keyed_state(self, parameters: KeyedStateParameters) -> KeyedStateBackend:
        return RocksDBStateBackend().create_keyed_state(replace(parameters, memory=1))


def groups_of(columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = columns[0].to_numpy() % GROUPS
    return numbers


class Counts:
    """A number for each key of a backend."""

    def __init__(self, keyed: RocksDBKeyedState | HeapKeyedState) -> None:
        self.keyed = keyed
        self.state = keyed.columns("counts", [pa.int64()])
        self.count = self.state.column("count", pa.int64())

    def add(self, keys: npt.NDArray[np.int64], by: int = 1) -> None:
        """One more for each; no key twice."""
        slots = self.state.slots([pa.array(keys)])
        self.state.touch(slots)
        self.count.set(slots, self.count.get(slots) + by)

    def remove(self, keys: npt.NDArray[np.int64]) -> None:
        """Forget those that are there."""
        slots = self.state.find([pa.array(keys)])
        self.state.release(slots[slots >= 0])

    def all(self) -> dict[int, int]:
        counts: dict[int, int] = {}
        for slots in self.state.pieces():
            keys = self.state.index.keys(slots)[0].to_pylist()
            assert not counts.keys() & set(keys)
            counts.update(zip(keys, self.count.get(slots).tolist(), strict=True))
        return counts


Make = Callable[..., Counts]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    states: list[Counts] = []

    def new(own: range = range(GROUPS), memory: int = LITTLE, restored: Sequence[SnapshotContents] = ()) -> Counts:
        parameters = KeyedStateParameters(
            key_groups=own,
            key_groups_of=groups_of,
            max_parallelism=GROUPS,
            operator="counting",
            memory=memory,
            directory=str(tmp_path / f"attempt-{len(states)}"),
        )
        states.append(Counts(RocksDBKeyedState(parameters, RocksDBSettings())))
        if restored:
            states[-1].keyed.restore([contents.of(own) for contents in restored])
        return states[-1]

    yield new
    for counts in states:
        counts.keyed.close()


def disk(counts: Counts) -> ColumnsOnDisk:
    assert isinstance(counts.state, ColumnsOnDisk)
    return counts.state


def test_the_contract_is_kept_with_hardly_any_memory() -> None:
    check_columnar_state(LittleMemory(), seeds=range(examples(6)))


def test_the_kit_finds_rows_that_change_while_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChangedSlots, "save", lambda self, positions: None)
    with pytest.raises(AssertionError):
        check_columnar_state(RocksDBStateBackend(), seeds=range(6))


def test_the_kit_finds_keys_that_come_back_from_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ColumnsOnDisk, "_remember_removed", lambda self, slots: None)
    with pytest.raises(AssertionError):
        check_columnar_state(LittleMemory(), seeds=range(6))


def test_more_keys_than_memory_holds(make: Make) -> None:
    counts = make()
    keys = np.random.default_rng(7).permutation(60_000)
    for part in np.array_split(keys, 30):
        counts.add(part)
    assert disk(counts).index.capacity <= disk(counts).limit + 2 * 2000
    for part in np.array_split(keys[:30_000], 15):
        counts.add(part, 5)
    totals = counts.all()
    assert len(totals) == 60_000
    assert all(totals[key] == 6 for key in keys[:30_000].tolist())
    assert all(totals[key] == 1 for key in keys[30_000:].tolist())
    assert disk(counts).index.capacity <= disk(counts).limit + 2 * 4096


def test_what_fits_into_memory_is_never_read(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RocksDatabase, "get_many", lambda self, keys: pytest.fail("the database was asked"))
    counts = make(memory=64 << 20)
    for _ in range(3):
        counts.add(np.arange(20_000))
        take_snapshot(counts.keyed.snapshot(), range(GROUPS))
    counts.remove(np.arange(10))
    counts.add(np.arange(20_005))
    assert counts.all() == {key: (1 if key < 10 or key >= 20_000 else 4) for key in range(20_005)}


def test_keys_that_come_often_stay_in_memory(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, often = make(), np.arange(500)
    keys_read = 0
    real = RocksDatabase.get_many

    def seen(self: RocksDatabase, keys: list[bytes]) -> list[bytes | None]:
        nonlocal keys_read
        keys_read += sum(int.from_bytes(key[-8:], "big") < 500 for key in keys)
        return real(self, keys)

    monkeypatch.setattr(RocksDatabase, "get_many", seen)
    for start in range(500, 60_500, 1000):
        counts.add(often)
        counts.add(np.arange(start, start + 1000))
    assert counts.all()[499] == 60
    assert keys_read < 3 * 500


def test_a_checkpoint_costs_what_has_changed(make: Make) -> None:
    counts = make(memory=64 << 20)
    counts.add(np.arange(100_000))
    first = take_snapshot(counts.keyed.snapshot(purpose=Purpose(1, True)), range(GROUPS))
    counts.add(np.arange(0, 100_000, 1000))
    second = take_snapshot(counts.keyed.snapshot(purpose=Purpose(2, True, 1)), range(GROUPS), first)
    new = sum(len(data) for name, data in second.files.items() if name not in first.files)
    assert new < sum(map(len, first.files.values())) / 20
    assert not second.chunks
    later = make(restored=[second])
    assert later.all() == {key: 2 if key % 1000 == 0 else 1 for key in range(100_000)}


def test_much_is_written_and_removed_while_a_snapshot_is_made(make: Make) -> None:
    rng, counts, model = random.Random(3), make(), dict[int, int]()

    def change() -> None:
        keys = rng.sample(range(30_000), 1500)
        if rng.random() < 0.3:
            counts.remove(np.array(keys))
            for key in keys:
                model.pop(key, None)
        else:
            counts.add(np.array(keys))
            for key in keys:
                model[key] = model.get(key, 0) + 1

    for _ in range(5):
        for _ in range(10):
            change()
        expected = dict(model)
        running = RunningSnapshot(counts.keyed.snapshot(0.0), range(GROUPS))
        while (contents := running.step()) is None:
            if rng.random() < 0.2:
                change()
        assert make(restored=[contents]).all() == expected
        assert counts.all() == model


def test_a_snapshot_that_was_given_up_changes_nothing(make: Make) -> None:
    counts = make()
    counts.add(np.arange(20_000))
    counts.remove(np.arange(100))
    for _ in range(3):
        running = counts.keyed.snapshot(0.0)
        next(running)
        counts.add(np.arange(50, 150))
        counts.remove(np.arange(40, 60))
        running.close()
    counts.add(np.arange(20_000, 30_000))
    expected = {key: 1 for key in range(60, 30_000)} | {key: 3 for key in range(60, 100)}
    expected |= {key: 4 for key in range(100, 150)}
    assert counts.all() == expected
    assert make(restored=[take_snapshot(counts.keyed.snapshot(), range(GROUPS))]).all() == expected


@pytest.mark.parametrize("steps", [(2, 3), (3, 2), (3, 5, 1, 4, 3)])
def test_other_parallelisms(make: Make, steps: tuple[int, ...]) -> None:
    model, last, before = dict[int, int](), dict[int, int](), list[SnapshotContents]()
    for value, parallelism in enumerate(steps, 1):
        written, together = list[SnapshotContents](), dict[int, int]()
        for index in range(parallelism):
            own = range(GROUPS * index // parallelism, GROUPS * (index + 1) // parallelism)
            theirs = [contents for contents in before if set(contents.key_groups) & set(own)]
            counts = make(own, restored=theirs)
            own_counts = counts.all()
            assert not together.keys() & own_counts.keys()
            together |= own_counts
            mine = np.array([key for key in range(value * 1000, value * 3000) if key % GROUPS in own])
            counts.add(mine)
            counts.remove(mine[::7])
            for key in mine.tolist():
                model[key] = model.get(key, 0) + 1
            for key in mine[::7].tolist():
                model.pop(key, None)
            written.append(take_snapshot(counts.keyed.snapshot(), own))
        assert together == last
        last, before = dict(model), written


def test_columns_that_come_and_become_wider(make: Make) -> None:
    counts = make()
    narrow = counts.state.column("small", pa.int32())
    counts.add(np.arange(20_000))
    slots = counts.state.slots([pa.array(range(100))])
    counts.state.touch(slots)
    narrow.set(slots, np.arange(100))
    contents = take_snapshot(counts.keyed.snapshot(), range(GROUPS))
    later = make(restored=[contents])
    wide, new = later.state.column("small", pa.int64()), later.state.column("new", pa.string())
    slots = later.state.slots([pa.array(range(200))])
    assert wide.get(slots).tolist() == [*range(100), *[0] * 100]
    later.state.touch(slots)
    new.set(slots, np.array([str(key) for key in range(200)], object))
    later.add(np.arange(20_000))  # those leave memory
    again = make(restored=[take_snapshot(later.keyed.snapshot(), range(GROUPS))])
    slots = again.state.slots([pa.array([7, 150, 300])])
    assert again.state.columns["small"].get(slots).tolist() == [7, 0, 0]
    assert again.state.columns["new"].get(slots).tolist() == ["7", "150", None]
    assert again.count.get(slots).tolist() == [2, 2, 2]
    with pytest.raises(StateMigrationError, match="small"):
        make(restored=[contents]).state.column("small", pa.string())


def test_a_column_is_filled_on_disk_too(make: Make) -> None:
    counts = make()
    counts.add(np.arange(20_000))
    later = make(restored=[take_snapshot(counts.keyed.snapshot(), range(GROUPS))])
    later.state.fill(later.state.column("since", pa.int64()), 42)
    last = make(restored=[take_snapshot(later.keyed.snapshot(), range(GROUPS))])
    slots = last.state.slots([pa.array([3, 20_001])])
    assert last.state.columns["since"].get(slots).tolist() == [42, 0]


def test_state_of_hashmap_is_gone_on_with(make: Make) -> None:
    parameters = KeyedStateParameters(key_groups=range(GROUPS), key_groups_of=groups_of)
    heap = Counts(HeapKeyedState(parameters))
    heap.add(np.arange(30_000))
    contents = take_snapshot(heap.keyed.snapshot(), range(GROUPS))
    assert make(restored=[contents]).all() == dict.fromkeys(range(30_000), 1)


def test_a_savepoint_holds_rows_in_memory_and_on_disk(make: Make) -> None:
    counts = make()
    counts.add(np.arange(20_000))
    later = make(restored=[take_snapshot(counts.keyed.snapshot(), range(GROUPS))])
    later.add(np.arange(100))
    later.remove(np.arange(50))
    text = later.state.column("text", pa.string())
    later.add(np.arange(90, 30_000))
    expected = later.all()
    running = RunningSnapshot(later.keyed.snapshot(purpose=Purpose(1, canonical=True)), range(GROUPS))
    steps = 0
    while (contents := running.step()) is None:
        steps += 1
        if steps < 10:
            later.add(np.arange(0, 40_000, 7))
    assert not contents.files
    assert {chunk.key_group for chunk in contents.chunks} == set(range(GROUPS))
    heap = Counts(HeapKeyedState(KeyedStateParameters(key_groups=range(2, 5), key_groups_of=groups_of)))
    heap.keyed.restore([contents.of(range(2, 5))])
    assert heap.all() == {key: count for key, count in expected.items() if key % GROUPS in range(2, 5)}
    assert heap.state.column("text", pa.string()).get(heap.state.in_use()).tolist() == [None] * len(heap.all())
    assert make(restored=[contents]).all() == expected
    assert text.codec.data_type == pa.string()


def test_files_that_vanish_are_named(make: Make, tmp_path: Path) -> None:
    counts = make()
    for start in range(0, 50_000, 5000):
        counts.add(np.arange(start, start + 5000))
    contents = take_snapshot(counts.keyed.snapshot(), range(GROUPS))
    assert CONTENTS in contents.files
    for path in (tmp_path / "attempt-0" / "db").glob("*.sst"):
        path.write_bytes(b"")
    with pytest.raises(StateDatabaseError, match="'counting'"):
        counts.all()


def test_memory_is_divided_among_all_that_keep_something_in_it(make: Make) -> None:
    counts = make()
    counts.add(np.arange(20_000))
    alone = disk(counts).limit
    other = make()
    other.add(np.arange(20_000))
    assert disk(counts).limit == alone // 2
    other.keyed.close()
    assert disk(counts).limit == alone


@pytest.mark.parametrize(
    ("data_type", "values"),
    [
        (pa.int64(), [-(2**63), -1, 0, None, 2**63 - 1]),
        (pa.uint64(), [0, 2**64 - 1]),
        (pa.bool_(), [True, None, False]),
        (pa.float64(), [0.0, 1.5, float("inf"), None]),
        (pa.date32(), [0, None, 7]),
        (pa.timestamp("ms"), [0, -1, None]),
        (pa.string(), ["", None, "ä" * 50, "a\0b", "x"]),
        (pa.binary(), [b"", b"\0\1", None]),
        (pa.decimal128(20, 3), [Decimal("1.500"), None, Decimal(-7)]),
        (pa.large_string(), ["", "one", None]),
    ],
)
def test_keys_come_back_from_their_bytes(data_type: pa.DataType, values: list[Any]) -> None:
    column = pa.array(values, data_type)
    groups = np.zeros(len(values), np.int64)
    alone = KeyBytes([data_type])
    written = alone.encode(7, [column], groups)
    assert len(set(written)) == len(values)
    assert alone.decode(written) == [column]
    text = pa.array([None, "long " * 9] * len(values), pa.string()).slice(0, len(values))
    pair = KeyBytes([pa.string(), data_type, pa.int32()])
    numbers = pa.array(range(len(values)), pa.int32())
    assert pair.decode(pair.encode(7, [text, column, numbers], groups)) == [text, column, numbers]
    dictionary = column.dictionary_encode()
    assert alone.encode(7, [dictionary], groups) == written


def test_equal_floats_have_the_same_bytes() -> None:
    encoded = KeyBytes([pa.float64()]).encode(
        1, [pa.array([0.0, -0.0, float("nan"), -float("nan")])], np.zeros(4, np.int64)
    )
    assert encoded[0] == encoded[1]
    assert encoded[2] == encoded[3]


def test_the_bytes_of_keys_and_rows_are_those_of_format_1() -> None:
    keys = KeyBytes([pa.int64(), pa.string()])
    written = keys.encode(1, [pa.array([258, None]), pa.array(["a", None])], np.array([3, 4]))
    assert written == [
        bytes.fromhex("00000001 0003 01 0000000000000102 01 00000001 61"),
        bytes.fromhex("00000001 0004 00 0000000000000000 00"),
    ]
    assert KeyBytes([pa.int64()]).encode(1, [pa.array([-2])], np.array([3])) == [
        bytes.fromhex("00000001 0003 01 fffffffffffffffe")
    ]
    layout = RowLayout(2, [("a", pa.int64()), ("b", pa.bool_())])
    assert layout.write([np.array([258]), np.array([True])]) == [bytes.fromhex("0002 0201000000000000 01")]


def test_rows_come_back_from_their_bytes() -> None:
    layout = RowLayout(1, [("a", pa.int64()), ("t", pa.string()), ("b", pa.bool_()), ("d", pa.decimal128(9, 2))])
    columns: list[npt.NDArray[Any]] = [
        np.array([1, -2]),
        np.array(["x", None], object),
        np.array([True, False]),
        np.array([None, Decimal("1.50")], object),
    ]
    columns_read = layout.read(layout.write(columns))
    assert [column.tolist() for column in columns_read] == [column.tolist() for column in columns]
