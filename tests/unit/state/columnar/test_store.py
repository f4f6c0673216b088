"""Columnar state keeps its contract, the kit finds what does not, and slices are bounded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from firesteel.core.errors import ProgramError, StateMigrationError
from firesteel.state.backend import KeyedStateParameters, load_state_backend
from firesteel.state.columnar.key_index import KeyIndex
from firesteel.state.columnar.snapshots import OutgoingRows, Rows
from firesteel.state.columnar.store import ColumnarState, lost
from firesteel.state.columnar.values import StateColumn
from firesteel.state.heap import HeapKeyedState, HeapStateBackend
from firesteel.state.snapshots import Purpose, SlicedSnapshot
from firesteel.testing.columnar_state_conformance import check_columnar_state
from firesteel.testing.snapshots import take_snapshot
from tests.examples import examples
from tests.unit.state.handles import written_state


def test_the_contract_is_kept() -> None:
    check_columnar_state(seeds=range(examples(6)))


def test_the_kit_finds_changes_that_are_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rows, "save", lambda self, positions: None)
    with pytest.raises((AssertionError, ProgramError)):
        check_columnar_state(seeds=range(10))


def test_the_kit_finds_texts_that_are_forgotten_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyIndex, "hold", lambda self: None)
    with pytest.raises((AssertionError, ProgramError)):
        check_columnar_state(seeds=range(30))


def test_the_kit_finds_key_groups_that_nobody_looks_at() -> None:
    class Greedy(ColumnarState):
        def __init__(self, name: str, key_types: Sequence[pa.DataType], groups_of: Any, key_groups: range) -> None:
            super().__init__(name, key_types, groups_of, range(1000))

    class GreedyKeyedState(HeapKeyedState):
        def columns(self, name: str, key_types: Sequence[pa.DataType], grouped: int | None = None) -> ColumnarState:
            state = Greedy(name, key_types, self._parameters.key_groups_of, self._parameters.key_groups)
            self.attach(state)
            return state

    class GreedyBackend(HeapStateBackend):
        def create_keyed_state(self, parameters: KeyedStateParameters) -> HeapKeyedState:
            return GreedyKeyedState(parameters)

    with pytest.raises(AssertionError):
        check_columnar_state(GreedyBackend(), seeds=())


def groups_of(columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
    key_groups: npt.NDArray[np.int32] = (columns[0].to_numpy() % 64).astype(np.int32)
    return key_groups


def filled(count: int) -> ColumnarState:
    state = ColumnarState("n", [pa.int64()], groups_of, range(64))
    counts = state.column("n", pa.int64())
    slots = state.slots([pa.array(range(count))])
    counts.set(slots, slots)
    return state


def test_a_slice_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by two milliseconds whenever it is looked at."""
    ticks = iter(range(10**9))
    monkeypatch.setattr(OutgoingRows, "fewest", 1000)
    state = filled(20_000)
    slices = list(SlicedSnapshot([state.outgoing()], 0.002, now=lambda: 2 * next(ticks) / 1000))
    assert len(slices) >= 20  # each chunk takes a slice of its own
    assert all(len(chunks) <= 1 for chunks in slices)
    assert sum(chunk.count for chunks in slices for chunk in chunks) == 20_000


def test_chunks_are_as_large_as_a_part_of_a_slice_allows() -> None:
    state = filled(300_000)
    counts = [chunk.count for part in SlicedSnapshot([state.outgoing()], 10.0) for chunk in part]
    assert sum(counts) == 300_000
    assert len(counts) <= 10 + 300_000 / OutgoingRows.most


def test_changed_slots_are_known() -> None:
    state = filled(10)
    assert state.changed(0) is None, "nobody looked"
    state.track_changes()
    assert state.changed(0) == 10
    first = state.mark
    list(SlicedSnapshot([state.outgoing()]))
    state.touch(np.array([3, 5, 3]))
    state.slots([pa.array([2, 11])])
    assert state.changed(first) == 3
    second = state.mark
    list(SlicedSnapshot([state.outgoing()]))
    state.release(state.slots([pa.array([4])]))
    assert (state.changed(first), state.changed(second)) == (5, 2), "a slot, and the key that was removed"
    state.forget_changes(second)
    assert state.changed(second) == 2
    state.forget_changes(second + 1)
    assert state.changed(second) == 1


def test_what_is_copied_for_a_snapshot_is_what_changes() -> None:
    state = filled(100_000)
    outgoing = state.outgoing()
    (rows,) = outgoing._rows
    state.touch(np.array([7]))
    state.touch(np.array([7, 9, 9]))
    assert [positions.tolist() for positions, _ in rows._saved] == [[7], [9]]
    outgoing.end()


def test_memory_of_a_count_is_small() -> None:
    state = filled(200_000)
    assert state.nbytes / 200_000 <= 40


@pytest.mark.parametrize("order", [1, -1])
def test_subtasks_may_differ_in_the_type_of_a_column(order: int) -> None:
    """Only one has asked for it since it is wider."""
    written = []
    for key, data_type in ((1, pa.int32()), (2, pa.int64())):
        before, state = columns_of_64_groups()
        state.column("n", data_type).set(state.slots([pa.array([key])]), np.array([key]))
        written.append(written_state(before.snapshot()))
    keyed, restored = columns_of_64_groups()
    keyed.restore(written[::order])
    column = restored.column("n", pa.int64())
    assert column.get(restored.slots([pa.array([1, 2])])).tolist() == [1, 2]

    keyed, states = columns_of_64_groups()
    states.column("n", pa.int32())
    with pytest.raises(StateMigrationError, match="its values were int64, and are to be int32"):
        keyed.restore(written[1:])


def field(data_type: pa.DataType, nullable: bool = True, name: str = "x") -> pa.Field:
    return pa.field(name, data_type, nullable)


INT, LONG, NO = pa.int32(), pa.int64(), False
NULLS = "it could be null, and can't be any more"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (pa.struct([field(INT, NO)]), pa.struct([field(LONG)]), None),
        (pa.struct([field(INT)]), pa.struct([field(LONG, NO)]), ("v.x", NULLS)),
        (pa.struct([field(LONG)]), pa.struct([field(INT)]), ("v.x", "its values were int64, and are to be int32")),
        (pa.struct([field(INT)]), pa.struct([field(INT, name="y")]), ("v", "its values were struct<x: int32>, and")),
        (pa.list_(field(INT, NO)), pa.list_(field(LONG)), None),
        (pa.list_(field(INT)), pa.list_(field(INT, NO)), ("v[]", NULLS)),
        (pa.list_(INT, 2), pa.list_(INT, 3), ("v", "its values were fixed_size_list")),
        (pa.map_(pa.string(), field(INT, NO)), pa.map_(pa.string(), field(LONG)), None),
        (pa.map_(pa.string(), field(INT)), pa.map_(pa.string(), field(INT, NO)), ("v[value]", NULLS)),
        (pa.map_(INT, INT), pa.map_(LONG, INT), ("v", "its values were map<int32, int32")),
        (pa.list_(pa.struct([field(INT)])), pa.list_(pa.struct([field(INT, NO)])), ("v[].x", NULLS)),
    ],
    ids=str,
)
def test_nulls_and_numbers_in_nested_values(
    old: pa.DataType, new: pa.DataType, expected: tuple[str, str] | None
) -> None:
    loss = lost(old, new, "v")
    assert (loss is None) == (expected is None)
    if loss is not None and expected is not None:
        assert loss[0] == expected[0]
        assert loss[1].startswith(expected[1])


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_values_that_could_not_be_null_may_be_so_now(backend: str, tmp_path: Path) -> None:
    def opened(number: int, x: pa.Field) -> tuple[Any, ColumnarState, StateColumn]:
        parameters = KeyedStateParameters(
            key_groups_of=groups_of, key_groups=range(64), directory=str(tmp_path / str(number))
        )
        keyed = load_state_backend(backend).create_keyed_state(parameters)
        state = keyed.columns("n", [pa.int64()])
        return keyed, state, state.column("n", pa.struct([x]))

    before, state, column = opened(1, field(INT, NO))
    keys = [pa.array([1, 2])]
    slots = state.slots(keys)
    state.touch(slots)
    column.set(slots, column.codec.numbers(pa.array([{"x": 5}, {"x": 6}], pa.struct([field(INT, NO)]))))
    written = take_snapshot(before.snapshot(purpose=Purpose(1)), range(64)).of(range(64))
    before.close()
    after, state, column = opened(2, field(LONG))
    after.restore([written])
    assert column.get(state.slots(keys)).tolist() == [{"x": 5}, {"x": 6}]
    after.close()
    strict, state, column = opened(3, field(LONG, NO))
    strict.restore([written])
    assert column.get(state.slots(keys)).tolist() == [{"x": 5}, {"x": 6}]
    again = take_snapshot(strict.snapshot(purpose=Purpose(2)), range(64)).of(range(64))
    strict.close()
    shown = next(info for info in again.states if info.kind == "columns").schema
    assert shown["columns"] == {"n": "struct<x: int64 not null>"}
    refusing, state, column = opened(4, field(LONG, NO))
    nullable = opened(5, field(LONG))
    nullable[0].restore([again])
    with pytest.raises(StateMigrationError, match="it could be null, and can't be any more") as error:
        refusing.restore([take_snapshot(nullable[0].snapshot(purpose=Purpose(3)), range(64)).of(range(64))])
    assert error.value.field == "n.x"
    nullable[0].close()
    refusing.close()


def columns_of_64_groups() -> tuple[HeapKeyedState, ColumnarState]:
    keyed = HeapKeyedState(KeyedStateParameters(key_groups_of=groups_of, key_groups=range(64)))
    return keyed, keyed.columns("n", [pa.int64()])
