"""State is dealt out so that none is lost and none comes twice."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.checkpoint.assign import OperatorRestore, TaskRestore, assign
from firesteel.checkpoint.chunks import read_chunks, write_chunks
from firesteel.checkpoint.handles import InlineState
from firesteel.checkpoint.metadata import OperatorState
from firesteel.checkpoint.subtask_state import Committables, KeyedState, OperatorListState, OperatorSubtaskState
from firesteel.common.typeinfo import Types
from firesteel.core.errors import StateRestoreError
from firesteel.functions.state import ListStateDescriptor, MapStateDescriptor
from firesteel.graph.key_groups import key_group_range
from firesteel.state.operator_state import HeapOperatorState, OperatorSnapshot
from firesteel.state.snapshots import StateChunk, StateInfo
from tests.unit.checkpoint import made

GROUPS = 16


def _keyed(index: int, parallelism: int) -> KeyedState:
    first, last = key_group_range(index, parallelism, GROUPS)
    data = write_chunks((0, group, 1, b"%d" % group) for group in range(first, last + 1))
    return KeyedState(({"name": "s"},), (first, last), (InlineState(data),))


@given(st.integers(1, GROUPS), st.integers(1, GROUPS))
def test_each_key_group_goes_to_its_owner_once(before: int, after: int) -> None:
    subtasks = {index: OperatorSubtaskState({"state": _keyed(index, before)}) for index in range(before)}
    restores = assign(OperatorState("o", "Count", None, before, GROUPS, subtasks), after, GROUPS)
    for index, restore in enumerate(restores):
        first, last = key_group_range(index, after, GROUPS)
        key_groups = [
            chunk.key_group
            for part in restore.keyed["state"]
            for handle in part.handles
            if isinstance(handle, InlineState)
            for chunk in read_chunks(io.BytesIO(handle.data), "inline", range(first, last + 1))
        ]
        assert key_groups == list(range(first, last + 1))
        if before == after:
            assert restore.keyed["state"] == (_keyed(index, before),)


@given(st.lists(st.lists(st.integers(), max_size=4), min_size=1, max_size=5), st.integers(1, 6))
def test_splits_and_committables_are_dealt_out_once(former: list[list[int]], after: int) -> None:
    subtasks = {
        index: OperatorSubtaskState(
            splits=tuple({"id": number} for number in numbers),
            committables=tuple(Committables(number, 1, ()) for number, _ in enumerate(numbers)),
        )
        for index, numbers in enumerate(former)
        if numbers
    }
    restores = assign(OperatorState("o", "Source", None, len(former), GROUPS, subtasks), after, GROUPS)
    dealt = [[split["id"] for split in restore.splits] for restore in restores]
    assert sorted(n for part in dealt for n in part) == sorted(n for part in former for n in part)
    assert sum(len(restore.committables) for restore in restores) == sum(map(len, former))
    if len(former) == after:
        assert dealt == former
    else:
        assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


def _store() -> HeapOperatorState:
    return HeapOperatorState("op")


def _written(split: list[int], union: list[int], shared: int, kinds: set[str]) -> OperatorSnapshot:
    store = _store()
    if "split" in kinds:
        store.get_list_state(ListStateDescriptor("l", Types.LONG())).update(split)
    if "union" in kinds:
        store.get_union_list_state(ListStateDescriptor("u", Types.LONG())).update(union)
    if "broadcast" in kinds:
        store.get_broadcast_state(MapStateDescriptor("b", Types.LONG(), Types.LONG())).put(1, shared)
    snapshot = store.snapshot()
    return OperatorSnapshot(snapshot.states, [chunk for chunks in snapshot for chunk in chunks])


def _contents(snapshots: list[OperatorSnapshot], subtask: int, parallelism: int) -> Any:
    store = _store()
    store.restore(snapshots, subtask, parallelism)
    return (
        list(store.get_list_state(ListStateDescriptor("l", Types.LONG())).get()),
        list(store.get_union_list_state(ListStateDescriptor("u", Types.LONG())).get()),
        dict(store.get_broadcast_state(MapStateDescriptor("b", Types.LONG(), Types.LONG())).items()),
    )


def _plain(snapshot: OperatorSnapshot) -> OperatorListState:
    data = write_chunks((c.state, c.key_group, c.count, c.data) for c in snapshot.chunks)
    return OperatorListState(tuple(info.to_json() for info in snapshot.states), (InlineState(data),))


def _read(state: OperatorListState) -> OperatorSnapshot:
    chunks = [
        StateChunk(*chunk)
        for handle in state.handles
        if isinstance(handle, InlineState)
        for chunk in read_chunks(io.BytesIO(handle.data), "inline")
    ]
    return OperatorSnapshot([StateInfo.from_json(dict(info)) for info in state.states], chunks)


lists = st.lists(st.integers(0, 99), max_size=3)


@given(
    st.lists(st.none() | st.tuples(lists, lists), min_size=1, max_size=4),
    st.integers(1, 5),
    st.sets(st.sampled_from(["split", "union", "broadcast"])),
)
def test_leaving_out_what_a_subtask_does_not_need_changes_nothing(former: Any, after: int, kinds: set[str]) -> None:
    written = [None if part is None else _written(part[0], part[1], 5, kinds) for part in former]
    subtasks = {i: OperatorSubtaskState(operator=_plain(w)) for i, w in enumerate(written) if w is not None}
    restores = assign(OperatorState("o", "Op", None, len(former), GROUPS, subtasks), after, GROUPS)
    everything = [w for w in written if w is not None]
    for index, restore in enumerate(restores):
        expected = _contents(everything, index, after)
        place = (0, 1) if restore.alone else (index, after)
        assert _contents([_read(state) for state in restore.operator], *place) == expected
        if "broadcast" in kinds and everything:
            assert expected[2] == {1: 5}


def test_a_subtask_that_needs_nothing_of_what_others_wrote_gets_nothing() -> None:
    subtasks = {0: OperatorSubtaskState(operator=_plain(_written([1], [], 5, {"split"})))}
    subtasks[1] = OperatorSubtaskState(operator=OperatorListState(()))
    restores = assign(OperatorState("o", "Op", None, 2, GROUPS, subtasks), 2, GROUPS)
    assert [restore.is_empty for restore in restores] == [False, True]
    assert [len(restore.operator) for restore in restores] == [1, 1], "what all get grows with the square of them"


def test_keyed_state_needs_the_same_maximum_parallelism() -> None:
    state = made.some_metadata().operators[0]
    with pytest.raises(StateRestoreError, match=r"'Count' .* maximum parallelism of 128, and the job has 256"):
        assign(state, 2, 256)
    without = OperatorState("o", "Map", None, 2, 128, {0: OperatorSubtaskState(splits=({"id": "a"},))})
    assert assign(without, 2, 256)[0].splits


def test_restores_come_back_from_plain_data() -> None:
    restores = assign(made.some_metadata().operators[0], 2, 128)
    task = TaskRestore(7, True, {"ab": restores[0], "cd": OperatorRestore()})
    assert TaskRestore.from_plain(task.to_plain()) == task
    assert restores[1] == OperatorRestore(operator=restores[1].operator, alone=restores[1].alone)
    assert not restores[0].is_empty
    assert OperatorRestore().is_empty
