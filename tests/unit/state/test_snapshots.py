"""Snapshots in slices: how much a slice does, and that tables are plain again afterwards."""

from __future__ import annotations

import gc
import itertools
import pickle
import weakref
from collections import OrderedDict
from typing import Any

import pytest

from firesteel.common.typeinfo import Types
from firesteel.common.types import Row
from firesteel.core.errors import SerializationError
from firesteel.functions.state import ListStateDescriptor, ValueStateDescriptor
from firesteel.state.heap import HeapKeyedState
from firesteel.state.heap_snapshot import OutgoingTable, decode
from firesteel.state.snapshots import SEVERAL, Block, Outgoing, SlicedSnapshot, StateInfo
from firesteel.state.tables import HeapTable, TtlTable, drain
from tests.unit.state.handles import handle


class Ticking:
    """Half a millisecond passes with each look."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 0.0005
        return self.seconds


def nothing() -> None: ...


def snapshot_of(table: Any, now: Any) -> SlicedSnapshot:
    return SlicedSnapshot([OutgoingTable(StateInfo("s", "table", {}), table, nothing)], 0.002, now=now)


@pytest.mark.parametrize(("value", "most"), [(1, 12), ([1], 12)], ids=["scalars", "objects"])
def test_a_slice_ends_when_its_time_is_over(value: Any, most: int) -> None:
    table = HeapTable()
    table.update((key, value) for key in range(1000))
    clock = Ticking()
    values: dict[int, Any] = {}
    slices = 0
    for part in snapshot_of(table, clock):
        start = clock.seconds
        slices += 1
        assert sum(chunk.count for chunk in part) <= most
        for chunk in part:
            entries = dict(decode(chunk.data))
            assert len(entries) == chunk.count
            assert chunk.key_group == SEVERAL
            values.update(entries)
        assert clock.seconds == start
    assert values == dict.fromkeys(range(1000), value)
    assert slices > 1000 // most
    assert type(table) is HeapTable


class Costly(Outgoing):
    """A store whose blocks take a time of their own, whatever is in them, and each of their entries some more."""

    states = (StateInfo("s", "table", {}),)
    fewest, most, share, joined = 64, 2048, 0.25, False

    def __init__(self, entries: int, block_seconds: float, entry_seconds: float) -> None:
        self.left, self.block_seconds, self.entry_seconds, self.clock = entries, block_seconds, entry_seconds, 0.0
        self.sizes: list[int] = []

    def next_block(self, entries: int) -> Block | None:
        size = min(entries, self.left)
        self.left -= size
        self.clock += self.block_seconds + size * self.entry_seconds
        self.sizes += [size] if size else []
        return Block(size, b"") if size else None

    def end(self) -> None:
        """Nothing is to be put back."""


@pytest.mark.parametrize(
    ("block_seconds", "entry_seconds", "least"),
    [(0.0007, 1e-6, 64), (0.0001, 1e-6, 64), (0.0001, 0.001, 1)],
    ids=["blocks are slow", "nothing is slow", "entries are slow"],
)
def test_blocks_get_smaller_only_where_that_makes_them_faster(
    block_seconds: float, entry_seconds: float, least: int
) -> None:
    store = Costly(10_000, block_seconds, entry_seconds)
    assert sum(chunk.count for part in SlicedSnapshot([store], now=lambda: store.clock) for chunk in part) == 10_000
    assert min(store.sizes[:-1]) == least


def test_putting_changes_back_is_cut_in_slices_too() -> None:
    table = HeapTable()
    table.update((key, [key]) for key in range(1000))
    clock = Ticking()
    running = snapshot_of(table, clock)
    for key in range(1000):
        table[key] = [key, "changed"]
    left = [1000]
    while next(running, None) is not None:
        left.append(0 if table.writing is None else len(table.writing.changes))
    assert max(before - after for before, after in itertools.pairwise(left)) <= 256
    assert len(set(left)) > 3
    assert table == {key: [key, "changed"] for key in range(1000)}


def test_a_snapshot_that_was_given_up_costs_accesses_a_little() -> None:
    table = TtlTable()
    for key in range(100):
        table[key] = [key]
    running = snapshot_of(table, Ticking())
    for key in range(100):
        table[key] = [-key]
    running.close()
    assert next(running, None) is None
    before = table.writing
    assert before is not None
    for key in range(10):
        table[key] = [key]
    assert 60 <= len(before.changes) < 100
    assert drain(table, 1000)
    assert type(table) is TtlTable
    assert dict(table) == {key: [key] if key < 10 else [-key] for key in range(100)}
    assert isinstance(pickle.loads(pickle.dumps(OrderedDict(table))), OrderedDict)


def test_a_table_that_is_written_out_is_a_mapping_as_any_other() -> None:
    table = HeapTable()
    table.update({1: [1], 2: 2, 3: 3})
    bound = table.get
    running = snapshot_of(table, Ticking())
    table[4] = 4
    del table[3]
    assert table.pop(2) == 2
    assert table.pop(2, "gone") == "gone"
    assert table.setdefault(5, []) == []
    assert table.setdefault(1, "other") == [1]
    assert (sorted(table), len(table), bool(table)) == ([1, 4, 5], 3, True)
    assert dict(table.items()) == {1: [1], 4: 4, 5: []}
    assert 3 not in table
    with pytest.raises(KeyError):
        table[3]
    with pytest.raises(KeyError):
        del table[3]
    with pytest.raises(KeyError):
        table.pop(3)
    late = table.get
    values = {key: value for part in running for chunk in part for key, value in decode(chunk.data)}
    assert values == {1: [1], 2: 2, 3: 3}
    assert late(4) == bound(4) == 4, "a method that was bound meanwhile goes on working"
    table.clear()
    assert not table


def test_states_read_plain_tables_again_after_a_snapshot() -> None:
    keyed = HeapKeyedState()
    state = keyed.get_state(ValueStateDescriptor("n", Types.LONG()))
    keyed.key = "a"
    state.update(1)
    plain = state._get
    running = keyed.snapshot()
    assert state._get is not plain
    state.update(2)
    for _ in running:
        pass
    assert state._get == plain
    assert type(keyed._parts["n", "plain"].table) is HeapTable
    assert state.value() == 2


def test_what_can_not_be_serialised_is_named_and_does_not_hurt_the_program() -> None:
    keyed = HeapKeyedState()
    state = keyed.get_list_state(ListStateDescriptor("things", Types.PICKLED_BYTE_ARRAY()))
    keyed.key = "here"
    state.add(letter for letter in "x")
    running = keyed.snapshot()
    assert len(list(state.get())) == 1, "the access itself goes on"
    state.add(2)
    with pytest.raises(SerializationError, match="state 'things' of key 'here' can't be serialised"):
        list(running)
    assert len(list(state.get())) == 2
    state.clear()
    assert list(keyed.snapshot()) == []


def test_functions_of_the_program_itself_are_serialised() -> None:
    keyed = HeapKeyedState()
    state = keyed.get_state(ValueStateDescriptor("f", Types.PICKLED_BYTE_ARRAY()))
    keyed.key = 1
    state.update(lambda x: x + 1)
    running = keyed.snapshot()
    chunks = [chunk for part in running for chunk in part]
    later = HeapKeyedState()
    later.restore([handle(running.states, chunks)])
    later.key = 1
    function: Any = later.get_state(ValueStateDescriptor("f", Types.PICKLED_BYTE_ARRAY())).value()
    assert function(1) == 2


def test_rows_are_written_together_as_keys_and_as_values() -> None:
    table = HeapTable()
    table.update((Row(id=number), Row(number, "x")) for number in range(1000))
    chunks = [chunk for part in snapshot_of(table, lambda: 0.0) for chunk in part]
    assert dict(entry for chunk in chunks for entry in decode(chunk.data)) == table
    data = b"".join(chunk.data for chunk in chunks)
    assert b"_remake_all" in data
    assert b"_remake\x94" not in data, "a row was written alone"


class Thing: ...


@pytest.mark.parametrize("whole", [True, False], ids=["taken", "given up"])
def test_a_snapshot_that_is_over_keeps_no_table_that_is_dropped_then(whole: bool) -> None:
    keyed = HeapKeyedState()
    keyed.table("pane").update((key, Thing()) for key in range(100))
    pane = weakref.ref(keyed.table("pane")[99])
    running = keyed.snapshot(0.0)
    next(running)
    for _ in running if whole else ():
        pass
    running.close()
    keyed.drop_table("pane")
    gc.collect()
    assert pane() is None


def test_a_value_whose_own_code_raises_stop_iteration_ends_no_snapshot() -> None:
    class Stopping(OutgoingTable):
        def next_block(self, entries: int) -> Any:
            return next(iter(()))

    snapshot = SlicedSnapshot([Stopping(StateInfo("s", "table", {}), HeapTable(), nothing)])
    with pytest.raises(RuntimeError, match="a value in state raised StopIteration"):
        list(snapshot)
    assert snapshot.closed
