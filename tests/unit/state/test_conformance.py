"""The built-in backend keeps the contract, and the kit finds those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.core.errors import ConfigurationError
from firesteel.state import tables
from firesteel.state.backend import KeyedStateParameters, load_state_backend
from firesteel.state.heap import HeapKeyedState, HeapStateBackend
from firesteel.testing.state_conformance import check_state_backend
from tests.examples import examples


def test_hashmap_keeps_the_contract() -> None:
    check_state_backend(load_state_backend("hashmap"), seeds=range(examples(6)))


def test_an_unknown_backend_names_those_that_are_known() -> None:
    with pytest.raises(ConfigurationError, match="hashmap"):
        load_state_backend("hashmop")


def test_the_kit_finds_changes_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "is_frozen", lambda value: True)
    with pytest.raises(AssertionError, match="in place"):
        check_state_backend(HeapStateBackend(), seeds=())


class Late(HeapKeyedState):
    """Begins to write out only when the first slice is asked for."""

    def snapshot(self, slice_seconds: float = 0.002, purpose: Any = None) -> Any:
        class Lazy:
            base, has_files = None, False

            def __init__(self, keyed: Late) -> None:
                self.keyed = keyed
                self.inner: Any = None
                self.states = HeapKeyedState.snapshot(keyed, slice_seconds).states
                keyed._snapshot.close()  # type: ignore[union-attr]

            def __iter__(self) -> Any:
                return self

            def __next__(self) -> Any:
                if self.inner is None:
                    self.inner = HeapKeyedState.snapshot(self.keyed, slice_seconds)
                return next(self.inner)

            def close(self) -> None: ...

        return Lazy(self)


class LateBackend(HeapStateBackend):
    def create_keyed_state(self, parameters: KeyedStateParameters) -> HeapKeyedState:
        return Late(parameters)


def test_the_kit_finds_snapshots_of_a_later_moment() -> None:
    with pytest.raises(AssertionError):
        check_state_backend(LateBackend(), seeds=())
