"""Operators with keys say which ones come next, where the state is the quicker for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest

from firesteel.core.errors import StateDatabaseError
from firesteel.graph.specs import OperatorKind, OperatorSpec
from firesteel.runtime.operator_base.keyed_base import KeyedTransform
from firesteel.runtime.operators import create_operator
from firesteel.state.backend import KeyedStateBackend, KeyedStateParameters, StateBackend
from firesteel.state.heap import HeapKeyedState


class Asked(HeapKeyedState):
    fetches_ahead: ClassVar[bool] = True
    __slots__ = ("error", "keys_ahead")

    def __init__(self, parameters: KeyedStateParameters) -> None:
        super().__init__(parameters)
        self.keys_ahead: list[list[Any]] = []
        self.error: Exception | None = None

    def fetch_ahead(self, keys: Callable[[], Sequence[Any]]) -> None:
        self.keys_ahead.append(list(keys()))
        if self.error is not None:
            raise self.error


class Backend(StateBackend):
    name = "asked"

    def create_keyed_state(self, parameters: KeyedStateParameters) -> KeyedStateBackend:
        return Asked(parameters)


def reduced(key: Any) -> tuple[KeyedTransform, Asked]:
    spec = OperatorSpec("reduce", "Reduce", OperatorKind.REDUCE, lambda a, b: a + b, key_selectors=(key,))
    operator = create_operator(spec)
    assert isinstance(operator, KeyedTransform)
    assert not operator.looks_ahead
    operator.use_backend(Backend(), KeyedStateParameters())
    assert isinstance(operator.keyed, Asked)
    return operator, operator.keyed


def test_the_keys_of_a_slice_are_told() -> None:
    operator, state = reduced(lambda value: value % 10)
    assert operator.looks_ahead
    operator.look_ahead(list(range(20)), 0)
    assert state.keys_ahead == [[n % 10 for n in range(20)]]


def test_few_are_not_worth_it() -> None:
    operator, state = reduced(lambda value: value)
    operator.look_ahead(list(range(15)), 0)
    assert state.keys_ahead == []


def test_a_selector_that_raises_does_so_when_the_record_comes() -> None:
    operator, state = reduced(lambda value: 1 // value)
    operator.look_ahead(list(range(20)), 0)
    assert state.keys_ahead == []


def test_errors_of_the_database_are_told() -> None:
    operator, state = reduced(lambda value: value)
    state.error = StateDatabaseError("reduce", "/state", "Corruption")
    with pytest.raises(StateDatabaseError, match="Corruption"):
        operator.look_ahead(list(range(20)), 0)
