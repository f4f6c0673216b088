"""NaN in keys: all NaN are one key, as in Flink, although Python holds no NaN equal to another one.

Dicts look for the same object before they compare, inside tuples too. So NaN in a key is replaced by one object of the
process, and whatever is kept by key finds it. 0.0 and -0.0 are equal in Python, and one key as they are.

Keys of map state are keys of dicts that are pickled whole. In these stands a NaN that pickle writes by its name, so
that it comes back as that very object, and the dict finds it again.
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

NAN: Final = float("nan")
"""Stands for each NaN of a floating-point type."""
DECIMAL_NAN: Final = Decimal("NaN")
"""Stands for each NaN of ``Decimal``."""


class _NamedNan(float):
    """NaN that pickle writes by name."""

    def __reduce__(self) -> str:
        return "MAP_NAN"


class _NamedDecimalNan(Decimal):
    """The same of ``Decimal``."""

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
"""Types of keys that can't hold NaN."""


def with_one_nan(key: Any) -> Any:
    """The key as it is, or one that equals it but for its NaN, each of which is the one that stands for all."""
    cls = key.__class__
    if cls in WHOLE:
        return key
    if cls is float:
        return key if key == key else NAN
    if cls is tuple:
        return key if WHOLE.issuperset(map(type, key)) else _of_tuple(key, with_one_nan)
    return _rarely(key)


def each_with_one_nan(keys: list[Any]) -> list[Any]:
    """The same for each key of a list, which may be given back itself."""
    if WHOLE.issuperset(map(type, keys)):
        return keys
    return [with_one_nan(key) for key in keys]


def with_named_nan(key: Any) -> Any:
    """The key as a dict that is pickled finds it again: each NaN in it is the one that is written by name."""
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
    return tuple.__new__(key.__class__, parts)


def _same(parts: list[Any], former_parts: Any) -> bool:
    return all(part is former for part, former in zip(parts, former_parts, strict=True))


def _rarely(key: Any) -> Any:
    if isinstance(key, Decimal):
        return DECIMAL_NAN if key.is_nan() else key
    if isinstance(key, float | np.floating) and not isinstance(key, Enum):
        return key if key == key else NAN
    return _inside(key, with_one_nan)


def _inside(key: Any, replace: Callable[[Any], Any]) -> Any:
    """A key with parts, each of them replaced."""
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
            object.__setattr__(copied, name, part)
        return copied
    return key
