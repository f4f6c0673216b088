"""NaN in keys: all NaN are one key, as in Flink, although Python holds no NaN equal to another one.

Dicts look for the same object before they compare, inside tuples too. So NaN in a key is replaced by one object of the
process, and whatever is kept by key finds it. 0.0 and -0.0 are equal in Python, and one key as they are.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import uuid
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, Final

from firesteel.common.types import Row

NAN: Final = float("nan")
"""Stands for each NaN of a floating-point type."""
DECIMAL_NAN: Final = Decimal("NaN")
"""Stands for each NaN of ``Decimal``."""
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
        return key if WHOLE.issuperset(map(type, key)) else _of_tuple(key)
    return _rarely(key)


def each_with_one_nan(keys: list[Any]) -> list[Any]:
    """The same for each key of a list, which may be given back itself."""
    if WHOLE.issuperset(map(type, keys)):
        return keys
    return [with_one_nan(key) for key in keys]


def _of_tuple(key: tuple[Any, ...]) -> tuple[Any, ...]:
    parts = [with_one_nan(part) for part in key]
    if _same(parts, key):
        return key
    return tuple.__new__(key.__class__, parts)


def _same(parts: list[Any], before: Any) -> bool:
    return all(part is other for part, other in zip(parts, before, strict=True))


def _rarely(key: Any) -> Any:
    if isinstance(key, Decimal):
        return DECIMAL_NAN if key.is_nan() else key
    if isinstance(key, Enum):
        return key
    if isinstance(key, tuple):
        return _of_tuple(key)
    if isinstance(key, Row):
        values = list(key)
        parts = [with_one_nan(part) for part in values]
        if _same(parts, values):
            return key
        row = copy.copy(key)
        row[:] = parts
        return row
    if dataclasses.is_dataclass(key):
        names = [field.name for field in dataclasses.fields(key) if field.compare]
        values = [getattr(key, name) for name in names]
        parts = [with_one_nan(part) for part in values]
        if _same(parts, values):
            return key
        made = copy.copy(key)
        for name, part in zip(names, parts, strict=True):
            object.__setattr__(made, name, part)
        return made
    if type(key).__module__ == "numpy":
        return key if key == key else NAN
    return NAN if isinstance(key, float) and key != key else key
