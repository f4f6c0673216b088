"""Tables of many rows for each key equal a dict of lists, also after snapshots that were written while they changed."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firesteel.core.errors import StateMigrationError
from firesteel.state.backend import KeyedStateBackend, KeyedStateParameters, load_state_backend
from firesteel.state.columnar import row_contents, row_table
from firesteel.state.columnar.row_contents import consolidated, content_hashes, equal_rows
from firesteel.state.columnar.row_table import RowLife, RowTable
from firesteel.state.columnar.slot_lists import SlotLists
from firesteel.state.columnar.snapshots import OutgoingRows
from firesteel.state.columnar.text_heap import TextHeap
from firesteel.state.snapshots import Purpose, StateChunk, StateInfo
from firesteel.testing.snapshots import RunningSnapshot, SnapshotContents, take_snapshot
from firesteel_rocksdb import rows as rows_on_disk
from firesteel_rocksdb.table import OutgoingFiles
from tests.examples import examples

SCHEMA = pa.schema(
    [
        ("number", pa.int32()),
        ("text", pa.string()),
        ("amount", pa.decimal128(20, 2)),
        ("ratio", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("data", pa.binary()),
        ("yes", pa.bool_()),
        ("at", pa.timestamp("us")),
    ]
)
Content = tuple[Any, ...]
NAN = float("nan")


def groups_of(columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
    return np.array([hash(key) % 8 for key in columns[0].to_pylist()], np.int32)


def content(rng: random.Random) -> Content:
    """One of few contents, so that many rows are equal; the two last ones are equal, too."""
    number = rng.randrange(9)
    return (
        None if number == 3 else number,
        None if number == 4 else "é" * (number * 5) + str(number),
        None if number == 5 else Decimal(number) / 4,
        (0.5, None, NAN, -0.0, 1.5, 2.5, 3.5, 4.5, 5.5)[number],
        None if number == 6 else ["a", None] * number,
        b"\x00" * number,
        None if number == 2 else number % 2 == 0,
        None,
    )


def arrays(contents: Sequence[Content]) -> list[pa.Array]:
    return [pa.array([row[at] for row in contents], field.type) for at, field in enumerate(SCHEMA)]


def shown(columns: Sequence[pa.Array]) -> list[str]:
    return [repr(row).replace("-0.0", "0.0") for row in zip(*[column.to_pylist() for column in columns], strict=True)]


class TtlClock:
    """A clock that the test sets."""

    now = 1000

    def __call__(self) -> int:
        return self.now


class World:
    """A table beside its model."""

    def __init__(self, table: RowTable, seed: int) -> None:
        self.table, self.rng = table, random.Random(seed)
        self.model: dict[Any, list[Content]] = {}

    def step(self) -> None:
        """Insert some rows, delete some, and look for some that are not there."""
        rng = self.rng
        self.table.begin_batch(40)
        added = [(rng.choice((None, *range(12))), content(rng)) for _ in range(rng.randrange(40))]
        slots = self.table.slots([pa.array([key for key, _ in added], pa.int64())])
        rows = self.table.add(slots, arrays([row for _, row in added]))
        assert len(np.unique(rows)) == len(rows)
        self.table.numbers["degree"].set(rows, np.arange(len(rows)) % 3)
        for key, row in added:
            self.model.setdefault(key, []).append(row)
        removed = []
        for _ in range(rng.randrange(45)):
            keys = [key for key, contents in self.model.items() if contents]
            if keys and rng.random() < 0.9:
                key = rng.choice(keys)
                removed.append((key, self.model[key].pop(rng.randrange(len(self.model[key]))), True))
        removed += [(rng.choice((99, 98)), content(rng), False) for _ in range(2)]
        rng.shuffle(removed)
        slots = self.table.find([pa.array([key for key, _, _ in removed], pa.int64())])
        columns = arrays([row for _, row, _ in removed])
        rows = self.table.match(slots, columns)
        assert (rows >= 0).tolist() == [is_there for _, _, is_there in removed]
        matched = np.flatnonzero(rows >= 0)
        assert shown(self.table.take(rows[matched])) == shown([column.take(pa.array(matched)) for column in columns])
        self.table.drop(rows[matched])
        self.check()

    def check(self) -> None:
        check(self.table, self.model)


def check(table: RowTable, model: dict[Any, list[Content]]) -> None:
    keys = [*(None, *range(12)), 55]
    positions, rows = table.rows_of(table.find([pa.array(keys, pa.int64())]))
    contents = shown(table.take(rows))
    for position, key in enumerate(keys):
        here = [text for text, at in zip(contents, positions.tolist(), strict=True) if at == position]
        assert Counter(here) == Counter(shown(arrays(model.get(key, [])))), key
    assert table.size == len(table.all_rows())
    assert len(rows) == sum(map(len, model.values()))


def created(backend: str, folder: Path, groups: range = range(8)) -> tuple[KeyedStateBackend, RowTable]:
    parameters = KeyedStateParameters(
        key_groups=groups, key_groups_of=groups_of, max_parallelism=8, directory=str(folder)
    )
    if backend == "little":
        keyed = load_state_backend("rocksdb").create_keyed_state(replace(parameters, memory=1))
    else:
        keyed = load_state_backend(backend).create_keyed_state(parameters)
    return keyed, keyed.rows("rows", [pa.int64()], SCHEMA, ["degree"], groups_of, groups)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 1 << 30))
def test_rows_are_those_of_a_dict_of_lists(seed: int) -> None:
    world = World(RowTable("rows", [pa.int64()], SCHEMA, ["degree"]), seed)
    for _ in range(8):
        world.step()


def test_rows_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_table, "content_hashes", lambda columns: np.zeros(len(columns[0]), np.int64))
    for seed in range(4):
        world = World(RowTable("rows", [pa.int64()], SCHEMA, ["degree"]), seed)
        for _ in range(5):
            world.step()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb", "little"])
@pytest.mark.parametrize("canonical", [False, True])
def test_a_snapshot_has_the_rows_of_its_beginning_and_comes_back_on_other_subtasks(
    backend: str, canonical: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OutgoingRows, "fewest", 8)
    monkeypatch.setattr(OutgoingRows, "most", 8)
    monkeypatch.setattr(OutgoingFiles, "fewest", 2)
    monkeypatch.setattr(OutgoingFiles, "most", 2)
    monkeypatch.setattr(rows_on_disk, "_PAGE", 5)
    keyed, table = created(backend, tmp_path / "0")
    world = World(table, 5)
    for _ in range(6):
        world.step()
    model = {key: list(contents) for key, contents in world.model.items()}
    degrees = Counter(table.numbers["degree"].get(table.all_rows()).tolist())
    running = RunningSnapshot(keyed.snapshot(0.0, Purpose(1, canonical=canonical)), range(8))
    slices = 0

    def change() -> None:
        """Drop rows, whose numbers are used again, and change degrees."""
        nonlocal slices
        slices += 1
        world.step()
        rows = table.all_rows()
        table.touch(rows)
        table.numbers["degree"].values[rows] += 1

    written = running.rest(change)
    assert slices > (1 if backend == "little" else 3)  # with so little memory a batch waits for the snapshot
    keyed.close()

    restored: dict[Any, list[Content]] = {}
    restored_degrees: Counter[int] = Counter()
    for number, groups in enumerate((range(3), range(3, 8))):
        keyed, table = created(backend, tmp_path / f"after{number}", groups)
        keyed.restore([written.of(groups)])
        own = {key: contents for key, contents in model.items() if hash(key) % 8 in groups}
        check(table, own)
        restored |= own
        restored_degrees.update(table.numbers["degree"].get(table.all_rows()).tolist())
        following = World(table, 7)
        following.model = {key: list(contents) for key, contents in own.items()}
        slots = table.find([pa.array([key for key, rows in own.items() for _ in rows], pa.int64())])
        rows = table.match(slots, arrays([row for contents in own.values() for row in contents]))
        assert sorted(rows.tolist()) == table.all_rows().tolist()
        following.step()
        keyed.close()
    assert restored == model
    assert restored_degrees == degrees


def test_rows_may_lose_columns_and_get_none(tmp_path: Path) -> None:
    keyed, table = created("hashmap", tmp_path)
    World(table, 1).step()
    written = take_snapshot(keyed.snapshot(), range(8)).of(range(8))

    def restored(schema: pa.Schema, numbers: list[str]) -> RowTable:
        backend = load_state_backend("hashmap").create_keyed_state(KeyedStateParameters())
        narrower = RowTable("rows", [pa.int64()], schema, numbers)
        backend.attach(narrower)
        backend.restore([written])
        return narrower

    reordered = pa.schema(list(SCHEMA)[:0:-1])
    rows = restored(reordered, ["degree"])
    columns = dict(zip(SCHEMA.names, table.take(table.all_rows()), strict=True))
    for name, column in zip(reordered.names, rows.take(rows.all_rows()), strict=True):
        assert sorted(map(str, column.to_pylist())) == sorted(map(str, columns[name].to_pylist()))
    more = pa.schema([*SCHEMA, pa.field("more", pa.int64())])
    with pytest.raises(StateMigrationError, match=r"'more' of state 'rows' .* the rows of before do not have it"):
        restored(more, ["degree"])
    with pytest.raises(StateMigrationError, match="its values were"):
        restored(SCHEMA.set(0, pa.field(SCHEMA.names[0], pa.date32())), ["degree"])
    with pytest.raises(StateMigrationError, match="the rows of before do not have it"):
        restored(SCHEMA, ["degree", "rank"])


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 1 << 30))
def test_lists_of_slots(seed: int) -> None:
    rng = random.Random(seed)
    lists, model, free = SlotLists(), dict[int, set[int]](), list(range(300))
    for _ in range(25):
        rng.shuffle(free)
        rows = [free.pop() for _ in range(rng.randrange(min(len(free), 40)))]
        slots = [rng.choice((0, 1, 1, 7, 30)) for _ in rows]
        lists.append(np.array(slots, np.int64), np.array(rows, np.int64))
        for slot, row in zip(slots, rows, strict=True):
            model.setdefault(slot, set()).add(row)
        removed = [(slot, row) for slot, owned in model.items() for row in owned if rng.random() < 0.4]
        emptied = lists.remove(np.array([row for _, row in removed], np.int64))
        for slot, row in removed:
            model[slot].discard(row)
            free.append(row)
        assert set(emptied.tolist()) == {slot for slot, _ in removed if not model[slot]}
        positions, rows_of_slots = lists.gather(np.array([-1, *range(35)]))
        pairs = Counter(zip((positions - 1).tolist(), rows_of_slots.tolist(), strict=True))
        assert pairs == Counter((slot, row) for slot, owned in model.items() for row in owned)
    assert lists._end <= 4 * 300 + 5 * 64  # places are used again


def test_memory_of_texts_is_used_again() -> None:
    heap = TextHeap(pa.string())
    heap.block_size = 1 << 16
    heap.ensure(1000)
    rng = random.Random(1)
    model: dict[int, str] = {}
    for _ in range(200):
        rows = [row for row in rng.sample(range(1000), 100) if row not in model]
        texts = ["ü" * rng.randrange(100) for _ in rows]
        heap.set(np.array(rows), pa.array(texts, pa.string()))
        model |= dict(zip(rows, texts, strict=True))
        gone = [row for row in model if rng.random() < 0.3]
        heap.clear(np.array(gone, np.int64))
        for row in gone:
            del model[row]
        assert heap.take(np.array([*model], np.int64)).to_pylist() == [*model.values()]
    assert heap.nbytes < 16 * 1024 + 8 * (1 << 16)
    heap.clear(np.array([*model]))
    assert heap.nbytes == 16 * 1024


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from((1, -1))), min_size=1), st.booleans())
def test_changes_that_cancel_each_other(changes: list[tuple[int, int]], collide: bool) -> None:
    columns = [pa.array([None if value == 4 else float(value) for value, _ in changes], pa.float64())]
    weights = np.array([weight for _, weight in changes])
    with pytest.MonkeyPatch.context() as patch:
        if collide:
            patch.setattr(row_contents, "content_hashes", lambda columns: np.zeros(len(columns[0]), np.int64))
        stays = consolidated(columns, weights)
    positions = range(len(changes)) if stays is None else stays.tolist()
    sums: Counter[int] = Counter()
    for value, weight in changes:
        sums[value] += weight
    left = Counter(changes[position] for position in positions)
    assert left == Counter({(value, 1 if total > 0 else -1): abs(total) for value, total in sums.items() if total})


def test_contents_are_equal_as_the_model_says() -> None:
    rng = random.Random(3)
    rows = [content(rng) for _ in range(300)]
    columns = arrays(rows)
    other = rng.sample(range(300), 300)
    same = equal_rows(columns, [column.take(pa.array(other)) for column in columns])
    texts = shown(columns)
    assert same.tolist() == [texts[at] == texts[other[at]] for at in range(300)]
    hashes = content_hashes(columns)
    assert len(set(hashes.tolist())) == len(set(texts))
    assert len(set(zip(texts, hashes.tolist(), strict=True))) == len(set(texts))


@settings(max_examples=examples(4), deadline=None)
@given(st.integers(0, 1 << 30))
def test_keys_that_are_not_in_memory_have_the_rows_of_a_dict_of_lists(seed: int) -> None:
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(rows_on_disk, "_PIECE", 5)
        patch.setattr(rows_on_disk, "_PAGE", rng.choice((1, 2, 5)))
        patch.setattr(rows_on_disk, "_WINDOW", 3)
        keyed, table = created("little", Path(folder) / "0")
        world = World(table, seed)
        contents: SnapshotContents | None = None
        for number in range(1, 7):
            world.step()
            world.step()
            model = {key: list(rows) for key, rows in world.model.items()}
            running = RunningSnapshot(keyed.snapshot(0.0, Purpose(number, True, number - 1)), range(8), contents)
            contents = running.rest(lambda: world.step() if rng.random() < 0.4 else None)
            if rng.random() < 0.6:
                if rng.random() < 0.5:  # the task ends in the middle of a checkpoint
                    world.step()
                    next(keyed.snapshot(0.0, Purpose(99, True, number)))
                    world.step()
                keyed.close()
                keyed, table = created("little", Path(folder) / f"{number}")
                keyed.restore([contents.of(range(8))])
                world.table, world.model, contents = table, model, None
                assert table.highest("degree") <= 2
                world.check()
        table.begin_batch(1)
        assert table.size == 0, "all keys are on disk"
        keyed.close()


def test_rows_on_disk_lose_a_column_and_get_a_time_to_live(tmp_path: Path) -> None:
    clock = TtlClock()
    keyed, table = created("rocksdb", tmp_path / "0")
    contents = [content(random.Random(seed)) for seed in range(100)]
    table.add(table.slots([pa.array(np.arange(100) % 7, pa.int64())]), arrays(contents))
    written = [take_snapshot(keyed.snapshot(), range(8))]
    keyed.close()
    for number in range(2):  # the second time rows of both layouts are there
        parameters = KeyedStateParameters(
            key_groups=range(8), key_groups_of=groups_of, max_parallelism=8, directory=str(tmp_path / f"{number + 1}")
        )
        keyed = load_state_backend("rocksdb").create_keyed_state(parameters)
        fewer = pa.schema([SCHEMA.field("ratio"), SCHEMA.field("number")])
        table = keyed.rows("rows", [pa.int64()], fewer, ["degree"], groups_of, range(8), RowLife(100, clock))
        keyed.restore([part.of(range(8)) for part in written])
        _, rows = table.rows_of(table.find([pa.array(range(7), pa.int64())]))
        expected = Counter(repr((row[3], row[0])) for row in contents).items()
        assert Counter(shown(table.take(rows))) == {key.replace("-0.0", "0.0"): count for key, count in expected}
        columns = table.take(rows[3:6])
        table.drop(rows[:3])
        table.add(table.slots([pa.array([1, 1, 1])]), columns)
        _, rows = table.rows_of(table.find([pa.array(range(7), pa.int64())]))
        ratios, numbers = (column.to_pylist() for column in table.take(rows))
        contents = [(n, None, None, ratio) for ratio, n in zip(ratios, numbers, strict=True)]
        written = [take_snapshot(keyed.snapshot(), range(8))]
        if number:
            clock.now += 100
            table.begin_batch(1)
            assert table.rows_of(table.find([pa.array(range(7), pa.int64())]))[1].tolist() == []
        keyed.close()


@pytest.mark.parametrize("seed", range(2))
def test_checkpoints_of_changes_are_the_tables_of_their_moment(seed: int, tmp_path: Path) -> None:
    """Two tables of one operator, checkpoints that build on each other or are given up, and other parallelisms."""
    rng = random.Random(seed)
    keyed, table = created("hashmap", tmp_path)
    other = RowTable("others", [pa.int64()], SCHEMA, ["degree"], groups_of, range(8))
    keyed.attach(other)
    worlds = [World(table, seed), World(other, seed + 1)]
    for world in worlds:
        for _ in range(5):
            world.step()
    contents: dict[int, SnapshotContents] = {}
    deltas, base = 0, 0
    for number in range(1, 9):
        models = [{key: list(rows) for key, rows in world.model.items()} for world in worlds]
        purpose = Purpose(number, True, base if base in contents else None, 4.0)
        running = RunningSnapshot(keyed.snapshot(0.0, purpose), range(8), contents.get(base))
        deltas += running.snapshot.base is not None
        contents[number] = running.rest(lambda: rng.choice(worlds).step() if rng.random() < 0.3 else None)
        start = 0
        for stop in (rng.choice((3, 5, 8)), 8):
            groups = range(start, stop)
            start = stop
            if not groups:
                continue
            after, restored = created("hashmap", tmp_path, groups)
            restored_other = RowTable("others", [pa.int64()], SCHEMA, ["degree"], groups_of, groups)
            after.attach(restored_other)
            after.restore([contents[number].of(groups)])
            for model, copy in zip(models, (restored, restored_other), strict=True):
                check(copy, {key: rows for key, rows in model.items() if hash(key) % 8 in groups})
        if rng.random() < 0.7:  # else it is given up
            base = number
        rng.choice(worlds).step()
    assert deltas > 1


def test_a_checkpoint_writes_the_rows_that_changed(tmp_path: Path) -> None:
    keyed, table = created("hashmap", tmp_path)
    keys = pa.array(np.arange(2000) % 12, pa.int64())
    rows = table.add(table.slots([keys]), arrays([content(random.Random(seed)) for seed in range(2000)]))
    base = take_snapshot(keyed.snapshot(purpose=Purpose(1, True)), range(8))
    table.drop(rows[:5])
    table.touch(rows[5:8])
    table.add(table.slots([keys[:3]]), arrays([content(random.Random(seed)) for seed in range(3)]))
    changes = take_snapshot(keyed.snapshot(purpose=Purpose(2, True, 1)), range(8), base)
    # Three new rows took numbers of dropped ones.
    assert sum(chunk.count for chunk in changes.chunks[len(base.chunks) :]) == 8
    assert (
        sum(len(chunk.data) for chunk in changes.chunks[len(base.chunks) :])
        < sum(len(chunk.data) for chunk in base.chunks) / 20
    )
    canonical = take_snapshot(keyed.snapshot(purpose=Purpose(3, canonical=True)), range(8))
    assert sum(chunk.count for chunk in canonical.chunks) == 1998
    assert [info.schema for info in canonical.states] == [table.info.schema]  # as earlier versions read it


def with_life(ttl: int, clock: TtlClock) -> RowTable:
    return RowTable("rows", [pa.int64()], pa.schema([("n", pa.int64())]), ["degree"], life=RowLife(ttl, clock))


def numbers_of(table: RowTable, key: int) -> list[int]:
    _, rows = table.rows_of(table.find([pa.array([key], pa.int64())]))
    return sorted(table.take(rows)[0].to_pylist())


def add_numbers(table: RowTable, key: int, numbers: Sequence[int]) -> npt.NDArray[np.int64]:
    values = pa.array(numbers, pa.int64())
    return table.add(table.slots([pa.array([key] * len(numbers), pa.int64())]), [values])


def test_rows_expire_some_time_after_they_were_written_last() -> None:
    clock = TtlClock()
    table = with_life(100, clock)
    rows = add_numbers(table, 1, [1, 2, 3])
    add_numbers(table, 2, [7])
    clock.now = 1050
    table.begin_batch(1)
    table.touch(rows[:1])
    table.touch(rows[1:2], is_write=False)
    clock.now = 1099
    table.begin_batch(1)
    assert numbers_of(table, 1) == [1, 2, 3]
    clock.now = 1100
    assert numbers_of(table, 1) == [1, 2, 3], "the time stands still within a batch"
    gone: list[int] = []
    table.on_expiry = lambda rows: gone.extend(table.take(rows)[0].to_pylist())
    table.begin_batch(1)
    assert numbers_of(table, 1) == [1]
    assert (sorted(gone), table.expired, table.size) == ([2, 3, 7], 3, 1)
    assert table.match(table.find([pa.array([1])]), [pa.array([2])]).tolist() == [-1]


def test_clean_up_takes_a_bounded_number_of_rows_and_nobody_sees_the_others() -> None:
    clock = TtlClock()
    table = with_life(100, clock)
    for key in range(3):
        add_numbers(table, key, range(5000))
    clock.now = 1200
    table.begin_batch(10)
    assert table.expired == 1024
    assert numbers_of(table, 2) == []
    for _ in range(20):
        table.begin_batch(10)
    assert (table.expired, table.size) == (15000, 0)


@pytest.mark.parametrize(("before", "after"), [(100, 300), (300, 100), (0, 100), (100, 0)])
def test_a_time_to_live_may_change_between_two_runs(before: int, after: int) -> None:
    clock = TtlClock()

    def table_with(ttl: int) -> tuple[KeyedStateBackend, RowTable]:
        table = with_life(ttl, clock)
        if not ttl:
            table = RowTable("rows", [pa.int64()], pa.schema([("n", pa.int64())]), ["degree"])
        keyed = load_state_backend("hashmap").create_keyed_state(KeyedStateParameters())
        keyed.attach(table)
        return keyed, table

    clock.now = 1000
    keyed, table = table_with(before)
    add_numbers(table, 1, [5])
    clock.now = 1050
    written = take_snapshot(keyed.snapshot())
    keyed, table = table_with(after)
    keyed.restore([written.of(range(1))])
    # Rows that were written without a time-to-live live from the restore on.
    written_at = 1000 if before else 1050
    for clock.now, is_there in ((written_at + (after or 9999) - 1, True), (written_at + (after or 10**9), not after)):
        table.begin_batch(1)
        assert numbers_of(table, 1) == ([5] if is_there else [])


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_rows_that_earlier_versions_wrote_come_back(backend: str, tmp_path: Path) -> None:
    """Of the version whose snapshots had all rows, and no numbers of them."""
    fixture = json.loads((Path(__file__).parents[3] / "fixtures" / "row_table_whole.json").read_text())
    keyed = load_state_backend(backend).create_keyed_state(KeyedStateParameters(directory=str(tmp_path / "state")))
    table = keyed.rows("rows", [pa.int64()], SCHEMA, ["degree"])
    chunks = [StateChunk(state, group, count, bytes.fromhex(data)) for state, group, count, data in fixture["chunks"]]
    keyed.restore([SnapshotContents([StateInfo.from_json(info) for info in fixture["states"]], chunks).of(range(1))])
    check(table, {1: [content(random.Random(0)), content(random.Random(1))], None: [content(random.Random(2))]})
    assert table.numbers["degree"].get(table.all_rows()).tolist() == [0, 1, 2]
    keyed.close()
