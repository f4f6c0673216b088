"""Keys as bytes: keys that are equal in Python have equal bytes.

The classes are those that may be keys (``graph/key_hash.py``), with the same rules of equality. The bytes are part of
checkpoints: a change of any of them raises ``VERSION``.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import math
import numbers
import pickle
import struct
import uuid
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, Final

from firesteel.common.nan_keys import NAN, with_one_nan
from firesteel.common.types import Row

VERSION: Final = 1
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_pack_int = struct.Struct(">q").pack
_unpack_int = struct.Struct(">q").unpack_from
_pack_float = struct.Struct(">d").pack
_unpack_float = struct.Struct(">d").unpack_from
_length = struct.Struct(">I")
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_UTC_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


def encode(key: Any) -> tuple[bytes, bool]:
    """Bytes of a key, and whether ``decode`` returns this very key, not only an equal one."""
    kind = key.__class__
    if kind is int:
        return _int(key), True
    if kind is str:
        return _str(key), True
    if kind is tuple:
        parts = [encode(part) for part in key]
        return _joined(b"t", [data for data, _ in parts]), all(exact for _, exact in parts)
    if kind is bytes:
        return b"b" + key, True
    if key is None:
        return b"N", True
    if kind is float:
        data = _number(key)
        return data, data[:1] in (b"f", b"n")
    return _other(key), False


def decode(data: bytes) -> Any:
    """Key from its bytes: the same one if ``encode`` said so, else an equal one."""
    tag = data[:1]
    if tag == b"i":
        return _unpack_int(data, 1)[0]
    if tag == b"s":
        return data[1:].decode("utf-8", "surrogatepass")
    if tag == b"t":
        return tuple(map(decode, _split(data)))
    if tag == b"b":
        return data[1:]
    if tag == b"N":
        return None
    if tag == b"f":
        return _unpack_float(data, 1)[0]
    if tag == b"n":
        return NAN
    if tag == b"I":
        return int.from_bytes(data[1:], "big", signed=True)
    raise ValueError(f"a key that begins with {tag!r} can't be read from its bytes alone")


def encode_exactly(key: Any) -> bytes:
    """Bytes that are stored beside those of a key that ``decode`` can't return."""
    return pickle.dumps(key, protocol=5)


def decode_exactly(data: bytes) -> Any:
    return with_one_nan(pickle.loads(data))


def _int(key: int) -> bytes:
    if _LOWEST <= key <= _HIGHEST:
        return b"i" + _pack_int(key)
    return b"I" + key.to_bytes(key.bit_length() // 8 + 1, "big", signed=True)


def _str(key: str) -> bytes:
    return b"s" + key.encode("utf-8", "surrogatepass")


def _number(key: Any) -> bytes:
    """Bytes of a real number of any class: numbers of all classes compare with each other."""
    if key != key:
        return b"m" if isinstance(key, Decimal) else b"n"
    if isinstance(key, Decimal) and key.is_infinite():
        key = float(key)
    if isinstance(key, float) and math.isinf(key):
        return b"f" + _pack_float(key)
    if key == int(key):
        return _int(int(key))
    try:
        rounded = float(key)
    except OverflowError:
        rounded = math.inf
    if rounded == key:
        return b"f" + _pack_float(rounded)
    numerator, denominator = key.as_integer_ratio()
    return _joined(b"q", [_int(numerator), _int(denominator)])


def _joined(tag: bytes, parts: list[bytes]) -> bytes:
    pieces = [tag]
    for part in parts:
        pieces += _length.pack(len(part)), part
    return b"".join(pieces)


def _split(data: bytes) -> list[bytes]:
    parts, offset = [], 1
    while offset < len(data):
        (size,) = _length.unpack_from(data, offset)
        parts.append(data[offset + 4 : offset + 4 + size])
        offset += 4 + size
    return parts


def _other(key: Any) -> bytes:
    """Bytes of keys of the rarer classes, and of namespaces of any class."""
    if isinstance(key, str):
        return _str(str.__str__(key))
    if isinstance(key, bytes):
        return b"b" + bytes(key)
    if isinstance(key, tuple):
        return _joined(b"t", [encode(part)[0] for part in tuple(key)])
    if isinstance(key, Enum) and not isinstance(key, numbers.Number):
        return _joined(b"E", [_str(type(key).__qualname__), _str(key.name)])
    if isinstance(key, numbers.Integral) or type(key).__name__ in ("bool", "bool_"):
        return _int(int(key))
    if isinstance(key, Fraction | Decimal):
        return _number(key)
    if isinstance(key, numbers.Real):
        return _number(float(key))
    if isinstance(key, datetime.datetime):
        key = key.replace(fold=0)
        if key.utcoffset() is None:
            return b"e" + _int((key.replace(tzinfo=None) - _EPOCH) // _MICROSECOND)
        return b"a" + _int((key - _UTC_EPOCH) // _MICROSECOND)
    if isinstance(key, datetime.date):
        return b"d" + _int(key.toordinal())
    if isinstance(key, datetime.time):
        offset = key.replace(fold=0).utcoffset()
        micros = ((key.hour * 60 + key.minute) * 60 + key.second) * 1_000_000 + key.microsecond
        aware = b"A" if offset is not None else b"h"
        return aware + _int(micros - (offset // _MICROSECOND if offset else 0))
    if isinstance(key, datetime.timedelta):
        return b"l" + _int(key // _MICROSECOND)
    if isinstance(key, uuid.UUID):
        return b"u" + key.bytes
    if isinstance(key, Row):
        return _row(key)
    if dataclasses.is_dataclass(key):
        names = [field.name for field in dataclasses.fields(key) if field.compare]
        title = _str(f"{type(key).__module__}.{type(key).__qualname__}")
        return _joined(b"D", [title, *(encode(getattr(key, name))[0] for name in names)])
    return b"P" + _pickled(key)


def _row(key: Row) -> bytes:
    kind = _int(key.get_row_kind().value)
    names = key._fields
    if names is None:
        return _joined(b"R", [kind, *(encode(value)[0] for value in key._values)])
    pairs = sorted(zip(names, key._values, strict=False), key=lambda pair: pair[0])
    return _joined(b"S", [kind, *(part for name, value in pairs for part in (_str(name), encode(value)[0]))])


def _pickled(key: Any) -> bytes:
    """Pickle without references to earlier parts, in which equal objects may differ."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=5)
    pickler.fast = True
    pickler.dump(key)
    return stream.getvalue()
