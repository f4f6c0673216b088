"""What tables cost."""

from __future__ import annotations

import pytest

from firesteel.state.tables import HeapTable, TtlTable


@pytest.mark.parametrize("table", [HeapTable, TtlTable])
def test_storing_goes_straight_to_the_dict(table: type) -> None:
    """A class with a ``__delitem__`` or ``__setitem__`` of its own has Python look up both for each store."""
    classes = table.__mro__[: table.__mro__.index(table.__base__)]
    assert not [cls for cls in classes if {"__setitem__", "__delitem__", "__getitem__"} & cls.__dict__.keys()]
    made = table()
    made["a"] = 1
    del made["a"]
    assert not made
