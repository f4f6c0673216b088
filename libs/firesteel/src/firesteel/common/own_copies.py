"""Copies of records that can be changed in place, so that two who hold a record don't see each other's changes.

Dicts, lists, sets, byte arrays, what ``collections`` has of such, rows and dataclasses that are not frozen are copied,
with such values inside them, also inside tuples. Objects of other classes are not: nobody can tell what a copy of them
would mean.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from firesteel.common.types import Row

Copier = Callable[[Any], Any]

ATOMS: Final[frozenset[type]] = frozenset(
    {
        int,
        str,
        float,
        bool,
        bytes,
        complex,
        type(None),
        decimal.Decimal,
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
    }
)
"""Types of values that nobody can change, and which hold no others."""
_MOST_CLASSES: Final = 10_000


def own_copy(value: Any) -> Any:
    """A value that shares nothing that can be changed with the one given; that one itself if it can't be changed."""
    cls = value.__class__
    if cls in ATOMS:
        return value
    if cls is tuple:
        return value if ATOMS.issuperset(map(type, value)) else _of_tuple(value)
    copier = COPIERS[cls]
    return value if copier is None else copier(value)


def own_copies(values: list[Any]) -> list[Any]:
    """The same for each value of a list, which may be given back itself."""
    if ATOMS.issuperset(map(type, values)):
        return values
    return [own_copy(value) for value in values]  # not map(): what a copy of a user's class raises may be StopIteration


def as_given(value: Any) -> Any:
    """A value as it is now: who has given it may change it, and give it again.

    The same as ``own_copy``, but tuples are passed as they are, whatever is in them: looking into each would cost every
    record as much as a copy.
    """
    copier = COPIERS[value.__class__]
    return value if copier is None else copier(value)


def _of_tuple(value: Any) -> Any:
    parts = [own_copy(part) for part in value]
    if all(part is other for part, other in zip(parts, value, strict=True)):
        return value
    return tuple.__new__(value.__class__, parts)


def _of_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    if ATOMS.issuperset(map(type, value.values())):
        return value.copy()
    return {key: own_copy(part) for key, part in value.items()}


def _of_list(value: list[Any]) -> list[Any]:
    return value.copy() if ATOMS.issuperset(map(type, value)) else [own_copy(part) for part in value]


def _of_row(value: Row) -> Row:
    row = Row.__new__(Row)
    row._fields, row._row_kind = value._fields, value._row_kind
    row._values = _of_list(value._values)
    return row


def _of_dataclass(value: Any) -> Any:
    made = object.__new__(value.__class__)
    made.__dict__.update(_of_dict(value.__dict__))
    return made


def _of_slotted(names: tuple[str, ...], value: Any) -> Any:
    made = object.__new__(value.__class__)
    for name in names:
        if hasattr(value, name):
            object.__setattr__(made, name, own_copy(getattr(value, name)))
    return made


def _of_other_dict(value: Any) -> Any:
    made = copy.copy(value)
    for key, part in value.items():
        made[key] = own_copy(part)
    return made


def _of_deque(value: deque[Any]) -> deque[Any]:
    return deque([own_copy(part) for part in value], value.maxlen)


class _Copiers(dict[type, Copier | None]):
    """What copies values of a class; None: they are passed as they are."""

    def __missing__(self, cls: type) -> Copier | None:
        copier = _copier_of(cls)
        if len(self) >= _MOST_CLASSES:
            self.clear()
            self.update(_BUILT_IN)
        self[cls] = copier
        return copier


def _copier_of(cls: type) -> Copier | None:
    if any("__reduce__" in one.__dict__ or "__reduce_ex__" in one.__dict__ for one in cls.__mro__[:-1]):
        return None  # it says itself what it is made of
    if not dataclasses.is_dataclass(cls) or cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return None
    if cls.__new__ is not object.__new__ or hasattr(cls, "__copy__") or hasattr(cls, "__deepcopy__"):
        return None
    if not any("__slots__" in parent.__dict__ for parent in cls.__mro__[:-1]):
        return _of_dataclass
    return partial(_of_slotted, tuple(field.name for field in dataclasses.fields(cls)))


_BUILT_IN: Final[dict[type, Copier | None]] = {
    **dict.fromkeys(ATOMS),
    tuple: None,
    dict: _of_dict,
    list: _of_list,
    set: set.copy,
    bytearray: bytearray.copy,
    Row: _of_row,
    OrderedDict: _of_other_dict,
    defaultdict: _of_other_dict,
    Counter: _of_other_dict,
    deque: _of_deque,
}
COPIERS: Final = _Copiers(_BUILT_IN)
