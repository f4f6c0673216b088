"""Objects in state whose classes have changed since they were written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from typing import Any

import pytest

from firesteel.common import Types
from firesteel.core.errors import StateMigrationError
from firesteel.functions.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from firesteel.state.heap import HeapKeyedState
from firesteel.state.operator_state import HeapOperatorState, OperatorSnapshot
from firesteel.state.pickled_values import complete
from tests.unit.state.handles import written_state

ANY = Types.PICKLED_BYTE_ARRAY()
HERE = sys.modules[__name__]


def become(cls: type[Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class ``Order`` of this module from now on."""
    cls.__module__, cls.__qualname__, cls.__name__ = __name__, "Order", "Order"
    monkeypatch.setattr(HERE, "Order", cls, raising=False)
    return cls


@dataclass
class First:
    number: int


@dataclass
class WithDefaults:
    number: int
    note: str = "none"
    tags: list[str] = field(default_factory=list)


@dataclass
class WithoutDefault:
    number: int
    note: str


@dataclass
class SeesToIt:
    number: int
    note: str

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"note": f"it was {state['number']}", **state})


class Refuses:
    def __setstate__(self, state: dict[str, Any]) -> None:
        raise ValueError("not these")


def restored(monkeypatch: pytest.MonkeyPatch, first: type[Any], then: type[Any] | None) -> HeapKeyedState:
    """State with an object of a class, which is another one now."""
    cls = become(first, monkeypatch)
    before = HeapKeyedState()
    before.key = 1
    before.get_state(ValueStateDescriptor("value", ANY)).update(cls(5))
    before.get_list_state(ListStateDescriptor("list", ANY)).update([cls(6)])
    before.get_map_state(MapStateDescriptor("map", Types.STRING(), ANY)).put("a", cls(7))
    written = written_state(before.snapshot())
    if then is None:
        monkeypatch.delattr(HERE, "Order")
    else:
        become(then, monkeypatch)
    after = HeapKeyedState()
    after.restore([written])
    after.key = 1
    return after


def objects(state: HeapKeyedState) -> list[Any]:
    value = state.get_state(ValueStateDescriptor("value", ANY)).value()
    (element,) = state.get_list_state(ListStateDescriptor("list", ANY)).get()
    return [value, element, state.get_map_state(MapStateDescriptor("map", Types.STRING(), ANY)).get("a")]


def test_fields_that_were_added_get_their_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = objects(restored(monkeypatch, First, WithDefaults))
    assert [vars(note) for note in notes] == [{"number": n, "note": "none", "tags": []} for n in (5, 6, 7)]
    assert len({id(note.tags) for note in notes}) == 3


def test_slots_too(monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_dataclass("Order", [("number", int)], slots=True, frozen=True)
    then = make_dataclass("Order", [("number", int), ("note", str, "none")], slots=True, frozen=True)
    assert [(note.number, note.note) for note in objects(restored(monkeypatch, first, then))] == [
        (5, "none"), (6, "none"), (7, "none"),
    ]  # fmt: skip


@pytest.mark.parametrize("slots", [True, False])
def test_fields_that_the_class_leaves_empty_stay_empty(slots: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_dataclass("Order", [("number", int), ("later", str, field(init=False))], slots=slots)
    for note in objects(restored(monkeypatch, first, first)):
        assert note.number in (5, 6, 7)
        assert not hasattr(note, "later")


def test_a_class_with_setstate_sees_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [note.note for note in objects(restored(monkeypatch, First, SeesToIt))] == [
        "it was 5",
        "it was 6",
        "it was 7",
    ]


def test_a_field_without_default_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    state = restored(monkeypatch, First, WithoutDefault)
    with pytest.raises(StateMigrationError, match=r"field 'note' of state 'value' .* Order has a field that was not"):
        objects(state)


@pytest.mark.parametrize(("then", "why"), [(None, "keep them there"), (Refuses, "ValueError: not these")])
def test_a_class_that_is_gone_or_refuses_is_named(
    then: type[Any] | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StateMigrationError, match=f"state '(value|list|map)' can't be read .*{why}"):
        restored(monkeypatch, First, then)


def test_lists_of_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    def went_on(then: type[Any] | None) -> Callable[[], Any]:
        cls = become(First, monkeypatch)
        before = HeapOperatorState()
        before.get_list_state(ListStateDescriptor("all", ANY)).update([cls(1)])
        snapshot = before.snapshot()
        chunks = [chunk for some in snapshot for chunk in some]
        written = OperatorSnapshot(list(snapshot.states), chunks)
        monkeypatch.delattr(HERE, "Order") if then is None else become(then, monkeypatch)
        after = HeapOperatorState()
        after.restore([written], 0, 1)
        return lambda: list(after.get_list_state(ListStateDescriptor("all", ANY)).get())

    (note,) = went_on(WithDefaults)()
    assert note.note == "none"
    with pytest.raises(StateMigrationError, match="field 'note' of state 'all'"):
        went_on(WithoutDefault)()
    with pytest.raises(StateMigrationError, match=r"state 'all'.*keep them there"):
        went_on(None)


def test_values_that_hold_themselves_or_are_very_deep_are_completed_too() -> None:
    old: Any = First(1)
    endless: list[Any] = [old]
    endless.append({"all": endless})
    deep: Any = old
    for _ in range(10_000):
        deep = [deep]
    old.__class__ = WithDefaults
    complete("s", [endless, deep])
    assert (old.number, old.note, old.tags) == (1, "none", [])
