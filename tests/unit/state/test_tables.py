"""What tables cost."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.state.tables import HeapTable, TtlTable, is_frozen


@pytest.mark.parametrize("table", [HeapTable, TtlTable])
def test_storing_goes_straight_to_the_dict(table: type) -> None:
    """A class with a ``__delitem__`` or ``__setitem__`` of its own has Python look up both for each store."""
    classes = table.__mro__[: table.__mro__.index(table.__base__)]
    assert not [cls for cls in classes if {"__setitem__", "__delitem__", "__getitem__"} & cls.__dict__.keys()]
    entries = table()
    entries["a"] = 1
    del entries["a"]
    assert not entries


def test_what_nobody_can_change_is_told_at_any_depth() -> None:
    frozen: Any = (1, "a")
    changeable: Any = (1, [])
    for _ in range(10_000):
        frozen, changeable = (1, frozen), (1, changeable)
    assert is_frozen(frozen)
    assert not is_frozen(changeable)
