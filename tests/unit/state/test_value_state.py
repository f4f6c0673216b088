"""Keyed state on the heap."""

from __future__ import annotations

import pytest

from firesteel.common.typeinfo import Types
from firesteel.core.errors import ProgramError, TypeMismatchError
from firesteel.functions.state import ValueStateDescriptor
from firesteel.state.heap import HeapKeyedState


def test_each_key_has_its_own_value_and_equal_keys_share_one() -> None:
    keyed = HeapKeyedState()
    state = keyed.get_state(ValueStateDescriptor("n", Types.LONG()))
    keyed.key = 1
    assert state.value() is None
    state.update(7)
    keyed.key = 2
    assert state.value() is None
    keyed.key = 1.0
    assert state.value() == 7
    state.clear()
    state.clear()
    assert state.value() is None


def test_none_clears() -> None:
    keyed = HeapKeyedState()
    state = keyed.get_state(ValueStateDescriptor("n", Types.LONG()))
    keyed.key = "a"
    state.update(1)
    state.update(None)
    assert list(keyed.keys()) == []


@pytest.mark.parametrize(
    ("type_info", "value", "fitted"),
    [
        (Types.SHORT(), 43878, -21658),
        (Types.SHORT(), 32767, 32767),
        (Types.SHORT(), -32769, 32767),
        (Types.LONG(), 2**63 - 1, 2**63 - 1),
        (Types.LONG(), 2**63, -(2**63)),
        (Types.STRING(), "s", "s"),
        (Types.BOOLEAN(), True, True),
        (Types.DOUBLE(), 0.1, 0.1),
        (Types.PICKLED_BYTE_ARRAY(), [1], [1]),
        (Types.TUPLE([Types.INT()]), (1,), (1,)),
    ],
)
def test_values_are_fitted_to_the_declared_type(type_info: object, value: object, fitted: object) -> None:
    keyed = HeapKeyedState()
    state = keyed.get_state(ValueStateDescriptor("n", type_info))  # type: ignore[arg-type]
    keyed.key = 1
    state.update(value)
    assert state.value() == fitted
    assert type(state.value()) is type(fitted)


def test_a_value_of_another_type_names_the_state() -> None:
    keyed = HeapKeyedState()
    state = keyed.get_state(ValueStateDescriptor("price", Types.DOUBLE()))
    keyed.key = 1
    with pytest.raises(TypeMismatchError, match="state price"):
        state.update("cheap")


def test_strict_integers_refuse_to_wrap() -> None:
    keyed = HeapKeyedState(strict_integers=True)
    state = keyed.get_state(ValueStateDescriptor("n", Types.SHORT()))
    keyed.key = 1
    with pytest.raises(TypeMismatchError):
        state.update(43878)


def test_a_name_has_one_type() -> None:
    keyed = HeapKeyedState()
    first = keyed.get_state(ValueStateDescriptor("n", Types.LONG()))
    assert keyed.get_state(ValueStateDescriptor("n", Types.LONG())) is first
    with pytest.raises(ProgramError, match="'n' was asked for"):
        keyed.get_state(ValueStateDescriptor("n", Types.STRING()))


def test_state_without_a_record_says_what_is_wrong() -> None:
    state = HeapKeyedState().get_state(ValueStateDescriptor("n", Types.LONG()))
    with pytest.raises(ProgramError, match=r"not in open\(\) or close\(\)"):
        state.value()
    with pytest.raises(ProgramError):
        state.update(1)
