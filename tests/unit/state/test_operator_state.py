"""Operator state: lists dealt out and lists in union, broadcast state, and what other parallelisms find of them."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firesteel.common.time import Time
from firesteel.common.typeinfo import Types
from firesteel.common.types import Row
from firesteel.core.errors import ProgramError, SerializationError, StateMigrationError, TypeMismatchError
from firesteel.functions.state import ListStateDescriptor, MapStateDescriptor, StateTtlConfig
from firesteel.state import tables
from firesteel.state.operator_state import HeapOperatorState, OperatorSnapshot

DEALT = ListStateDescriptor("dealt", Types.PICKLED_BYTE_ARRAY())
ALL = ListStateDescriptor("all", Types.INT())
RULES = MapStateDescriptor("rules", Types.STRING(), Types.PICKLED_BYTE_ARRAY())


def written(state: HeapOperatorState) -> OperatorSnapshot:
    snapshot = state.snapshot()
    return OperatorSnapshot(snapshot.states, [chunk for part in snapshot for chunk in part])


def test_lists_and_broadcast_state() -> None:
    store = HeapOperatorState("op")
    state = store.get_list_state(ListStateDescriptor("n", Types.SHORT()))
    state.add(1)
    state.add_all([2, 43878])
    assert list(state.get()) == [1, 2, -21658]
    state.update([5])
    assert list(store.get_list_state(ListStateDescriptor("n", Types.SHORT())).get()) == [5]
    state.clear()
    assert list(state) == []
    with pytest.raises(TypeMismatchError, match="state n"):
        state.add("x")
    rules = store.get_broadcast_state(MapStateDescriptor("rules", Types.STRING(), Types.INT()))
    rules["a"] = 1
    rules.put_all({"b": 2, "c": 3})
    del rules["c"]
    assert (dict(rules.items()), "a" in rules, rules["none"], rules.is_empty()) == ({"a": 1, "b": 2}, True, None, False)
    assert (list(rules), list(rules.keys()), list(rules.values())) == (["a", "b"], ["a", "b"], [1, 2])
    with pytest.raises(TypeMismatchError, match=r"state rules\[value\]"):
        rules.put("d", "x")
    assert store.get_registered_state_names() == {"n"}
    assert store.get_registered_broadcast_state_names() == {"rules"}
    rules.clear()
    assert rules.is_empty()


def test_the_side_that_is_not_broadcast_can_only_read() -> None:
    store = HeapOperatorState("op")
    store.get_broadcast_state(RULES).put("a", [1])
    seen: Any = store.read_only(RULES)
    assert (seen.get("a"), seen.contains("b"), list(seen.items())) == ([1], False, [("a", [1])])
    for change in (lambda: seen.put("a", 2), lambda: seen.put_all({}), lambda: seen.remove("a"), seen.clear):
        with pytest.raises(ProgramError, match="process_broadcast_element"):
            change()
    assert not hasattr(seen, "other")


def test_a_name_stands_for_one_state() -> None:
    store = HeapOperatorState("op")
    store.get_list_state(ALL)
    with pytest.raises(ProgramError, match=r"'op': split state 'all' .* as union state"):
        store.get_union_list_state(ALL)
    with pytest.raises(ProgramError, match="asked for as"):
        store.get_list_state(ListStateDescriptor("all", Types.STRING()))
    mortal = ListStateDescriptor("mortal", Types.INT())
    mortal.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
    with pytest.raises(ProgramError, match="can't have a time-to-live"):
        store.get_list_state(mortal)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.integers(0, 99), max_size=6), min_size=1, max_size=4), st.integers(1, 5))
def test_state_comes_back_with_any_parallelism(lists: list[list[int]], parallelism: int) -> None:
    snapshots = []
    for number, elements in enumerate(lists):
        store = HeapOperatorState("op")
        store.get_list_state(DEALT).update([[element] for element in elements])
        store.get_union_list_state(ALL).update(elements)
        store.get_broadcast_state(RULES).put("x", [7])
        running = store.snapshot(0.0)
        chunks = list(next(running, []))
        for values in store.get_list_state(DEALT).get():
            values.append("changed in place")
        store.get_list_state(DEALT).add("later")
        store.get_broadcast_state(RULES).put("x", number)
        chunks += [chunk for part in running for chunk in part]
        snapshots.append(OperatorSnapshot(running.states, chunks))
    dealt = []
    for subtask in range(parallelism):
        store = HeapOperatorState("op")
        store.restore(snapshots, subtask, parallelism)
        mine = [element[0] for element in store.get_list_state(DEALT).get()]
        dealt.append(mine)
        assert list(store.get_union_list_state(ALL).get()) == [element for part in lists for element in part]
        assert dict(store.get_broadcast_state(RULES).items()) == {"x": [7]}
    everything = [element for part in lists for element in part]
    assert sorted(element for part in dealt for element in part) == sorted(everything)
    if parallelism == len(lists):
        assert dealt == lists
    else:
        assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


def test_types_are_compared_after_a_restore() -> None:
    store = HeapOperatorState("op")
    store.get_list_state(ListStateDescriptor("n", Types.INT())).add(1)
    store.get_broadcast_state(MapStateDescriptor("m", Types.STRING(), Types.INT())).put("a", 1)
    snapshot = written(store)
    later = HeapOperatorState("op")
    later.restore([snapshot], 0, 1)
    assert list(later.get_list_state(ListStateDescriptor("n", Types.DOUBLE())).get()) == [1.0]
    assert later.get_broadcast_state(MapStateDescriptor("m", Types.STRING(), Types.DOUBLE())).get("a") == 1.0
    last = HeapOperatorState("op")
    last.restore([snapshot], 0, 1)
    with pytest.raises(StateMigrationError, match="state 'n'"):
        last.get_list_state(ListStateDescriptor("n", Types.STRING()))
    with pytest.raises(StateMigrationError, match="was broadcast state and is split state"):
        last.get_list_state(ListStateDescriptor("m", Types.INT()))


HELD: dict[str, tuple[Any, Any, Any]] = {
    "object": (Types.PICKLED_BYTE_ARRAY(), {"a": 1}, lambda value: value.update(a=2)),
    "map": (Types.MAP(Types.STRING(), Types.INT()), {"a": 1}, lambda value: value.update(a=2)),
    "list": (Types.LIST(Types.INT()), [1], lambda value: value.append(2)),
    "array": (Types.PRIMITIVE_ARRAY(Types.LONG()), [1], lambda value: value.append(2)),
    "row": (Types.ROW_NAMED(["a"], [Types.INT()]), Row(a=1), lambda value: value.__setitem__("a", 2)),
    "inside a tuple": (Types.TUPLE([Types.INT(), Types.LIST(Types.INT())]), (1, [1]), lambda value: value[1].append(2)),
}


@pytest.mark.parametrize("got", [False, True], ids=["kept", "got again"])
@pytest.mark.parametrize("mode", ["get_list_state", "get_union_list_state", "get_broadcast_state"])
@pytest.mark.parametrize("type_name", HELD)
def test_what_was_put_may_be_changed_behind_the_barrier(type_name: str, mode: str, got: bool) -> None:
    """``snapshot_state`` puts the very object that the function goes on changing."""
    type_info, value, change = HELD[type_name]
    value = copy.deepcopy(value)
    before = copy.deepcopy(value)
    broadcast = mode == "get_broadcast_state"
    descriptor: Any = (
        MapStateDescriptor("s", Types.STRING(), type_info) if broadcast else ListStateDescriptor("s", type_info)
    )
    store = HeapOperatorState("op")
    state: Any = getattr(store, mode)(descriptor)
    if broadcast:
        state.put("k", value)
    else:
        state.update([value])
    snapshot = store.snapshot()
    change(value)
    if got:
        assert (state.get("k") if broadcast else state.get()[0]) is value
    chunks = [chunk for part in snapshot for chunk in part]
    later = HeapOperatorState("op")
    later.restore([OperatorSnapshot(snapshot.states, chunks)], 0, 1)
    restored: Any = getattr(later, mode)(descriptor)
    assert (restored.get("k") if broadcast else restored.get()[0]) == before
    assert (state.get("k") if broadcast else state.get()[0]) is value, "and the function has its own"


def test_an_object_that_can_not_be_serialised_makes_the_snapshot_fail() -> None:
    store = HeapOperatorState("op")
    store.get_list_state(DEALT).add(threading.Lock())
    snapshot = store.snapshot()
    with pytest.raises(SerializationError, match=r"state 'dealt' of key 0 can't be serialised"):
        next(snapshot)


def test_the_moment_of_a_snapshot_costs_nothing_for_what_nobody_can_change(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[Any] = []
    frozen = tables.is_frozen

    def noted(value: Any) -> bool:
        looked_at.append(value)
        return frozen(value)

    monkeypatch.setattr(tables, "is_frozen", noted)
    store = HeapOperatorState("op")
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    store.get_list_state(ListStateDescriptor("pairs", pair)).add_all([("a", 1), ("b", 2)])
    store.get_list_state(ALL).add_all(range(100))
    store.get_list_state(DEALT).add_all([1, "a", 2.0])
    store.snapshot()
    assert looked_at == []


def in_writing(**rules: Any) -> tuple[Any, Any]:
    """Broadcast state of which a snapshot is being written."""
    store = HeapOperatorState("op")
    state = store.get_broadcast_state(RULES)
    state.put_all(rules)
    return state, store.snapshot(0.0)


@pytest.mark.parametrize("what", ["items", "keys", "values"])
def test_a_snapshot_may_end_in_the_middle_of_an_iteration(what: str) -> None:
    state, snapshot = in_writing(a=1, b=[2], c=3)
    state.put("d", 4)
    state.remove("a")
    seen = []
    for entry in getattr(state, what)():
        seen.append(entry)
        list(snapshot)
    assert seen == {"items": [("b", [2]), ("c", 3), ("d", 4)], "keys": ["b", "c", "d"], "values": [[2], 3, 4]}[what]
    assert dict(state.items()) == {"b": [2], "c": 3, "d": 4}


def test_values_may_be_replaced_in_an_iteration_behind_a_snapshot() -> None:
    state, snapshot = in_writing(**{str(number): number for number in range(20)})
    for number in range(20):
        state.put(f"new {number}", number)
    snapshot.close()
    for key, value in state.items():
        state.put(key, value + 1)
    assert sorted(state.values()) == sorted([*range(1, 21), *range(1, 21)])


def test_the_length_of_a_list_is_known_while_it_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HeapOperatorState("op")
    state = store.get_list_state(DEALT)
    state.add_all([1, 2])
    running = store.snapshot(0.0)
    with monkeypatch.context() as patch:
        patch.setattr(tables._Guarded, "__len__", lambda self: pytest.fail("it walks over all changes"))
        for number in range(3, 10):
            store.get_list_state(DEALT).add(number)
        assert state.get() == list(range(1, 10))
        running.close()
        state.add(10)
        store.get_list_state(DEALT).add_all([11])
        assert state.get() == list(range(1, 12))
    state.update([5])
    state.add(6)
    assert store.get_list_state(DEALT).get() == [5, 6]


def test_whether_there_is_broadcast_state_is_known_while_it_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    state, snapshot = in_writing(a=1)
    monkeypatch.setattr(tables._Guarded, "__len__", lambda self: pytest.fail("it walks over all changes"))
    assert not state.is_empty()
    state.remove("a")
    assert state.is_empty()
    state.put("b", 1)
    assert not state.is_empty()
    list(snapshot)


@pytest.mark.parametrize("declared", [False, True])
def test_only_some_subtasks_have_asked_for_a_state_since_its_type_is_another(declared: bool) -> None:
    def lists(of: Any) -> list[ListStateDescriptor]:
        return [ListStateDescriptor("dealt", of), ListStateDescriptor("all", of)]

    snapshots = []
    for of, values in ((Types.INT(), [1, 2]), (Types.DOUBLE(), [3.5])):
        store = HeapOperatorState("op")
        dealt, union = lists(of)
        store.get_list_state(dealt).update(values)
        store.get_union_list_state(union).update(values)
        store.get_broadcast_state(MapStateDescriptor("m", Types.STRING(), of)).put("a", values[-1])
        snapshots.append(written(store))
    store = HeapOperatorState("op")
    store.restore(snapshots, 0, 1)
    if not declared:  # it is written as it was
        again = written(store)
        store = HeapOperatorState("op")
        store.restore([again], 0, 1)
    dealt, union = lists(Types.DOUBLE())
    assert store.get_list_state(dealt).get() == [1.0, 2.0, 3.5]
    state = store.get_union_list_state(union)
    state.add(4.0)
    assert state.get() == [1.0, 2.0, 3.5, 4.0]
    assert store.get_broadcast_state(MapStateDescriptor("m", Types.STRING(), Types.DOUBLE())).get("a") == 2.0


def test_keys_of_broadcast_state_that_become_one_are_refused() -> None:
    store = HeapOperatorState("op")
    pair = Types.TUPLE([Types.INT(), Types.INT()])
    store.get_broadcast_state(MapStateDescriptor("m", pair, Types.INT())).put_all({(1, 1): 1, (1, 2): 2})
    later = HeapOperatorState("op")
    later.restore([written(store)], 0, 1)
    with pytest.raises(StateMigrationError, match=r"field '\[key\]' of state 'm' .*: removed, which makes several"):
        later.get_broadcast_state(MapStateDescriptor("m", Types.TUPLE([Types.INT()]), Types.INT()))
