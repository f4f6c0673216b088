"""The stable key hash: which key group a key belongs to, the same in every process and for ever.

Keys that Python holds equal hash equal (``1``, ``1.0``, ``True``, ``Decimal(1)``, ``numpy.int64(1)``).
The hash becomes part of every checkpoint: a change of any value needs a new ``KEY_HASH_VERSION``.
``docs/key-hash.md`` publishes the rules and test vectors; ``key_hash_columns`` has the twins for columns.
"""

from __future__ import annotations

import dataclasses
import datetime
import sys
import uuid
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any
from zlib import crc32

from firesteel.common.types import Row
from firesteel.core.errors import KeyTypeError, class_name

__all__ = ["KEY_HASH_VERSION", "key_group", "murmur", "stable_hash"]

KEY_HASH_VERSION = 1
"""Version of all hash rules in this module; checkpoints carry it."""

if sys.hash_info.modulus != (1 << 61) - 1 or sys.hash_info.inf != 314159:
    raise ImportError(
        "The stable key hash needs Python's numeric hash modulo 2**61-1, as 64-bit builds have it; "
        f"this build uses the modulus {sys.hash_info.modulus}."
    )

MASK = 0xFFFFFFFF
NONE_HASH = 0x6E6F6E65
NAN_HASH = 0x7FC00000

ALLOWED = (
    "None, bool, int, float, Decimal, Fraction, str, bytes, date, time, datetime, timedelta, UUID, tuple, Row, "
    "Enum members, frozen dataclasses, and numpy scalars of these"
)

TOO_DEEP = "its tuples or dataclasses are nested deeper than Python's recursion limit allows"
"""Reason in the error about a key whose hash raises ``RecursionError``."""

Hasher = Callable[[Any], int]


def _fold(h: int) -> int:
    """Fold the 64-bit two's complement of Python's hash to 32 bits."""
    return (h ^ (h >> 32)) & MASK


def _number(key: Any) -> int:
    # Python hashes a NaN by its identity, so all NaNs get one hash of our own.
    return _fold(hash(key)) if key == key else NAN_HASH


def _int(key: int) -> int:
    h = hash(key)  # _fold, written out: the most frequent kind of key
    return (h ^ (h >> 32)) & MASK


def _decimal(key: Decimal) -> int:
    return NAN_HASH if key.is_nan() else _fold(hash(key))


def _str(key: str) -> int:
    try:
        return crc32(key.encode())
    except UnicodeEncodeError:  # a surrogate that stands alone
        return crc32(key.encode("utf-8", "surrogatepass"))


def _none(key: None) -> int:
    return NONE_HASH


def _tagged(tag: str) -> int:
    return crc32(tag.encode())


def _combine(seed: int, parts: Iterable[int]) -> int:
    h = seed
    for part in parts:
        h = (31 * h + part) & MASK
    return h


DATE_TAG, TIME_TAG, DATETIME_TAG, TIMEDELTA_TAG = map(_tagged, ("date", "time", "datetime", "timedelta"))
ROW_TAG, NAMED_ROW_TAG, _ENUM, _DATACLASS = map(_tagged, ("row", "named row", "enum", "dataclass"))
_NAIVE_EPOCH = datetime.datetime(1970, 1, 1)
_UTC_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def _date(key: datetime.date) -> int:
    return _combine(DATE_TAG, (_int(key.toordinal()),))


def _time(key: datetime.time) -> int:
    # Python compares times with a zone by their UTC time, with fold 0.
    offset = key.replace(fold=0).utcoffset()
    micros = ((key.hour * 60 + key.minute) * 60 + key.second) * 1_000_000 + key.microsecond
    return _combine(TIME_TAG, (_int(micros - (offset // _MICROSECOND if offset else 0)),))


def _datetime(key: datetime.datetime) -> int:
    # Python compares and hashes with fold 0; so do we, or equal keys could part ways.
    key = key.replace(fold=0)
    if key.utcoffset() is None:
        micros = (key.replace(tzinfo=None) - _NAIVE_EPOCH) // _MICROSECOND
    else:
        micros = (key - _UTC_EPOCH) // _MICROSECOND
    return _combine(DATETIME_TAG, (_int(micros),))


def _timedelta(key: datetime.timedelta) -> int:
    return _combine(TIMEDELTA_TAG, (_int(key // _MICROSECOND),))


def _tuple(key: tuple[Any, ...]) -> int:
    h = 1
    for element in key:
        h = (31 * h + stable_hash(element)) & MASK
    return h


def _row(key: Row) -> int:
    # Rows with names are equal whatever the order of their fields, so the hash takes these by name.
    kind = key.get_row_kind().value
    names = key._fields
    if names is None:
        return _combine(ROW_TAG, (kind, *map(stable_hash, key._values)))
    pairs = sorted(zip(names, key._values, strict=False), key=lambda pair: pair[0])
    return _combine(
        NAMED_ROW_TAG, (kind, *(part for name, value in pairs for part in (_str(name), stable_hash(value))))
    )


def _uuid(key: uuid.UUID) -> int:
    return crc32(key.bytes)


def _enum(key: Enum) -> int:
    return _combine(_ENUM, (_str(type(key).__qualname__), _str(key.name or "")))


def _dataclass_hasher(cls: type) -> Hasher:
    names = tuple(f.name for f in dataclasses.fields(cls) if f.compare)
    seed = _combine(_DATACLASS, (_str(cls.__qualname__),))

    def hash_dataclass(key: Any) -> int:
        return _combine(seed, (stable_hash(getattr(key, name)) for name in names))

    return hash_dataclass


_EXACT: dict[type, Hasher] = {
    bool: _int,
    int: _int,
    float: _number,
    Fraction: _int,
    Decimal: _decimal,
    str: _str,
    bytes: crc32,
    type(None): _none,
    datetime.date: _date,
    datetime.time: _time,
    datetime.datetime: _datetime,
    datetime.timedelta: _timedelta,
    tuple: _tuple,
    Row: _row,
    uuid.UUID: _uuid,
}
_derived: dict[type, Hasher] = {}
_MAX_DERIVED = 10_000

_HINTS: dict[type, str] = {
    list: "a list can change; use a tuple",
    dict: "a dict can change; use a tuple of its items in a fixed order",
    set: "a set can change and has no order; use a sorted tuple",
    frozenset: "a frozenset has no order; use a sorted tuple",
    bytearray: "a bytearray can change; use bytes",
    memoryview: "use bytes",
    complex: "complex numbers have no stable hash here; use a tuple of two floats",
}


def stable_hash(key: Any) -> int:
    """Returns the key's hash, an unsigned 32-bit integer.

    Raises:
        KeyTypeError: keys of this type are not allowed; the message says which are.
    """
    cls = key.__class__
    hasher = _EXACT.get(cls)
    if hasher is None:
        hasher = _derived.get(cls) or _derive(cls)
    return hasher(key)


def key_type_error(cls: type, why: str = "") -> KeyTypeError:
    """Return the error about a key of a class that is not allowed; ``why`` replaces the hint for the class."""
    hint = why or next((text for base, text in _HINTS.items() if issubclass(cls, base)), "")
    return KeyTypeError(
        f"A value of type {class_name(cls)} can't be a key{': ' + hint if hint else ''}. Allowed are {ALLOWED}."
    )


def _derive(cls: type) -> Hasher:
    """Find the hasher of a class that has none of its own, and remember it (programs may make classes without end)."""
    hasher = _numpy_hasher(cls) if cls.__module__ == "numpy" else _find(cls)
    if len(_derived) >= _MAX_DERIVED:
        _derived.clear()
    _derived[cls] = hasher
    return hasher


def _find(cls: type) -> Hasher:
    """Find the hasher of a subclass, an Enum or a dataclass.

    Equal keys must hash equal, so a class is refused whose ``__eq__`` is not the one that the hash goes by.
    """
    if issubclass(cls, Enum):
        data_type = getattr(cls, "_member_type_", object)
        if data_type is object or dataclasses.is_dataclass(data_type):
            if cls.__eq__ is not (object if data_type is object else data_type).__eq__:
                raise key_type_error(cls, "its __eq__ is its own, so equal keys could hash differently")
            return _enum
    nearest = next((parent for parent in cls.__mro__ if parent in _EXACT), None)
    if nearest is not None and not dataclasses.is_dataclass(cls):
        if cls.__eq__ is not nearest.__eq__:
            raise key_type_error(cls, f"its __eq__ differs from that of {nearest.__name__}; convert it first")
        return _EXACT[nearest]
    if dataclasses.is_dataclass(cls):
        parameters = cls.__dataclass_params__  # type: ignore[attr-defined]
        code = getattr(cls.__eq__, "__code__", None)
        if not parameters.eq or code is None or code.co_filename != "<string>":
            raise key_type_error(cls, "only dataclasses with the generated __eq__ (eq=True) can be keys")
        if not parameters.frozen:
            raise key_type_error(cls, "the dataclass can change; declare it with @dataclass(frozen=True)")
        return _dataclass_hasher(cls)
    raise key_type_error(cls)


def _numpy_hasher(cls: type) -> Hasher:
    import numpy

    if issubclass(cls, (numpy.integer, numpy.bool_)) and not issubclass(cls, numpy.timedelta64):
        return lambda key: _int(int(key))
    if cls in (numpy.float16, numpy.float32, numpy.float64):
        return lambda key: _number(float(key))
    if issubclass(cls, numpy.str_):
        return _str
    if issubclass(cls, numpy.bytes_):
        return lambda key: crc32(bytes(key))
    raise key_type_error(cls, "convert it to a Python value first (numpy arrays: to a tuple)")


def murmur(h: int) -> int:
    """Flink's scattering of a 32-bit hash: MurmurHash3's finish, made non-negative (0 to 2**31-1)."""
    h = h * 0xCC9E2D51 & MASK
    h = (h << 15 | h >> 17) & MASK
    h = h * 0x1B873593 & MASK
    h = (h << 13 | h >> 19) & MASK
    h = (h * 5 + 0xE6546B64) & MASK
    h ^= 4
    h ^= h >> 16
    h = h * 0x85EBCA6B & MASK
    h ^= h >> 13
    h = h * 0xC2B2AE35 & MASK
    h ^= h >> 16
    if h < 0x80000000:
        return h
    return 0 if h == 0x80000000 else 0x100000000 - h


def key_group(key: Any, max_parallelism: int) -> int:
    """Returns the key's group, from 0 to ``max_parallelism - 1``.

    Raises:
        KeyTypeError: keys of this type are not allowed.
    """
    return murmur(stable_hash(key)) % max_parallelism
