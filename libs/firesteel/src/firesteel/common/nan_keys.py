"""NaN in keys: all NaNs are one key, as in Flink, although no NaN equals another one in Python.

A dict finds a key that is the same object before it compares, also inside of tuples. So each NaN in a key is replaced
by one object of the process, by which dicts find the key. (0.0 and -0.0 are equal in Python, and so one key anyway.)

The keys of map state are in dicts that are pickled as a whole. There each NaN is replaced by one that pickle writes by
its name, so that unpickling gives the very same object, by which the dict finds the key.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import uuid
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, Final

import numpy as np

from firesteel.common.types import Row
from firesteel.core.errors import ProgramError

NAN: Final = float("nan")
"""Replaces each NaN of a floating-point type."""
DECIMAL_NAN: Final = Decimal("NaN")
"""Replaces each NaN of ``Decimal``."""


class _NamedNan(float):
    """A NaN that pickle writes by its name, ``MAP_NAN``."""

    def __reduce__(self) -> str:
        return "MAP_NAN"


class _NamedDecimalNan(Decimal):
    """A NaN of ``Decimal`` that pickle writes by its name, ``MAP_DECIMAL_NAN``."""

    def __reduce__(self) -> Any:
        return "MAP_DECIMAL_NAN"


MAP_NAN: Final = _NamedNan("nan")
MAP_DECIMAL_NAN: Final = _NamedDecimalNan("NaN")
WHOLE: Final = frozenset(
    {
        int,
        str,
        bytes,
        bool,
        type(None),
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        uuid.UUID,
        Fraction,
    }
)
"""Types of keys that can't be or contain NaN."""


def with_one_nan(key: Any) -> Any:
    """Return the key with each NaN replaced by ``NAN`` or ``DECIMAL_NAN``; the key itself if it has none.

    Raises:
        ProgramError: the class of the key has an ``__eq__`` by which no key with NaN equals another one.
    """
    cls = key.__class__
    if cls in WHOLE:
        return key
    if cls is float:
        return key if key == key else NAN
    if cls is tuple:
        return key if WHOLE.issuperset(map(type, key)) else _of_tuple(key, with_one_nan)
    return _rarely(key)


def each_with_one_nan(keys: list[Any]) -> list[Any]:
    """Do ``with_one_nan`` for each key of a list; returns the list itself if no type in it can contain NaN."""
    if WHOLE.issuperset(map(type, keys)):
        return keys
    return [with_one_nan(key) for key in keys]


def with_named_nan(key: Any) -> Any:
    """Return the key with each NaN replaced by ``MAP_NAN`` or ``MAP_DECIMAL_NAN``, for dicts that are pickled."""
    cls = key.__class__
    if cls in WHOLE:
        return key
    if cls is float:
        return key if key == key else MAP_NAN
    if cls is tuple and WHOLE.issuperset(map(type, key)):
        return key
    return _named(with_one_nan(key))


def _named(key: Any) -> Any:
    if key is NAN:
        return MAP_NAN
    return MAP_DECIMAL_NAN if key is DECIMAL_NAN else _inside(key, _named)


def _of_tuple(key: tuple[Any, ...], replace: Callable[[Any], Any]) -> tuple[Any, ...]:
    parts = [replace(part) for part in key]
    if _same(parts, key):
        return key
    return tuple.__new__(key.__class__, parts)  # also a named tuple, whose own __new__ takes other arguments


def _same(parts: list[Any], former_parts: Any) -> bool:
    return all(part is former for part, former in zip(parts, former_parts, strict=True))


def _rarely(key: Any) -> Any:
    """Do ``with_one_nan`` for keys of less frequent types."""
    if isinstance(key, Decimal):
        return DECIMAL_NAN if key.is_nan() else key
    if isinstance(key, float | np.floating) and not isinstance(key, Enum):
        return key if key == key else NAN
    return _inside(key, with_one_nan)


def _inside(key: Any, replace: Callable[[Any], Any]) -> Any:
    """Return a key with each of its parts replaced; a key without parts is returned as it is."""
    if isinstance(key, Enum):
        return key
    if isinstance(key, tuple):
        return _of_tuple(key, replace)
    if isinstance(key, Row):
        values = list(key)
        parts = [replace(part) for part in values]
        if _same(parts, values):
            return key
        row = copy.copy(key)
        row[:] = parts
        return row
    if dataclasses.is_dataclass(type(key)):
        names = [field.name for field in dataclasses.fields(key) if field.compare]
        values = [getattr(key, name) for name in names]
        parts = [replace(part) for part in values]
        if _same(parts, values):
            return key
        copied = copy.copy(key)
        for name, part in zip(names, parts, strict=True):
            object.__setattr__(copied, name, part)  # keys are frozen dataclasses
        # Dataclasses of Python 3.13 compare field by field, where no NaN equals itself; those before compared tuples.
        if copied != copy.copy(copied):
            name = type(key).__qualname__
            raise ProgramError(
                f"the key {key!r} has NaN in a field, and no {name} with NaN equals another one (dataclasses since "
                f"Python 3.13, or its own __eq__), so each would be a key by itself: use a tuple, NamedTuple or Row"
            )
        return copied
    return key
