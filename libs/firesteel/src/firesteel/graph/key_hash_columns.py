"""The stable key hash over columns: numpy versions of ``key_hash``, equal to it for every value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, Final
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.common.types import Row, RowKind
from firesteel.core.errors import KeyTypeError
from firesteel.graph.key_hash import (
    ALLOWED,
    DATE_TAG,
    DATETIME_TAG,
    MASK,
    NAMED_ROW_TAG,
    NAN_HASH,
    NONE_HASH,
    ROW_TAG,
    TIME_TAG,
    TIMEDELTA_TAG,
    stable_hash,
)
from firesteel.graph.key_hash_texts import crc_of_texts

__all__ = ["groups_of_hashes", "hash_column", "hash_columns", "hash_values", "key_groups_of", "murmur_array"]

Hashes = npt.NDArray[np.uint32]

_MODULUS = np.uint64((1 << 61) - 1)
_U64 = np.uint64
_BLOCK: Final = 16384
"""Values hashed per block, so that intermediate results stay in the processor's cache."""
_MICROSECONDS: Final = {"s": 1_000_000, "ms": 1000, "us": 1}
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
# The ranges of Python's types: days since 1970, and microseconds since 1970, since midnight, and of durations.
_DATES: Final = date.min.toordinal() - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY
_MOMENTS: Final = -62_135_596_800_000_000, 253_402_300_799_999_999
_TIMES_OF_DAY: Final = 0, 86_399_999_999
_DURATIONS: Final = -(1 << 63), (1 << 63) - 1
_LONG: Final = 48
"""Average length in bytes above which a text column is dictionary-encoded first, to hash each distinct text once."""


def hash_column(column: Any) -> Hashes:
    """Returns the hashes of a ``pyarrow`` array or chunked array, equal to ``stable_hash`` of each value.

    Nulls hash as None does.

    Raises:
        KeyTypeError: values of this column type can't be keys.
    """
    if isinstance(column, pa.ChunkedArray):
        chunks = [_hash_array(chunk) for chunk in column.chunks]
        return np.concatenate(chunks) if chunks else np.empty(0, np.uint32)
    return _hash_array(column)


def hash_columns(columns: Sequence[Any]) -> Hashes:
    """Returns the hashes of keys: the values of one column, or tuples of the values of several."""
    if len(columns) == 1:
        return hash_column(columns[0])
    hashes = np.ones(len(columns[0]), np.uint32)
    for column in columns:
        hashes = hashes * np.uint32(31) + hash_column(column)
    return hashes


def hash_values(keys: Sequence[Any]) -> Hashes | None:
    """Returns the hashes of Python values, if all are of one type that can be hashed in bulk; else None.

    These types are int, float, str, bytes, and tuples of one length or rows of one form whose fields have these types.
    """
    kinds = set(map(type, keys))
    kind = kinds.pop() if len(kinds) == 1 else None
    try:
        if kind is int:
            return _hash_integers(np.fromiter(keys, np.int64, len(keys)))
        if kind is float:
            return _hash_floats(np.fromiter(keys, np.float64, len(keys)))
        if kind is str:
            return np.fromiter(map(crc32, map(str.encode, keys)), np.uint32, len(keys))
        if kind is bytes:
            return np.fromiter(map(crc32, keys), np.uint32, len(keys))
        if kind is tuple and len(set(map(len, keys))) == 1:
            return _hash_parts(np.ones(len(keys), np.uint32), list(zip(*keys, strict=True)))
        if kind is Row:
            return _hash_rows(keys)
    except (OverflowError, UnicodeEncodeError):  # an int of more than 64 bits; a single surrogate
        pass
    return None


def _hash_parts(hashes: Hashes, columns: Iterable[Sequence[Any]]) -> Hashes | None:
    for column in columns:
        part = hash_values(column)
        if part is None:
            return None
        hashes = hashes * np.uint32(31) + part
    return hashes


def _hash_rows(rows: Sequence[Row]) -> Hashes | None:
    names, width = rows[0]._fields, len(rows[0])
    for row in rows:
        if len(row._values) != width or row._row_kind is not RowKind.INSERT or row._fields != names:
            return None
    columns = list(zip(*[row._values for row in rows], strict=True))
    start = 31 * (ROW_TAG if names is None else NAMED_ROW_TAG) + RowKind.INSERT.value & MASK
    hashes: Hashes = np.full(len(rows), start, np.uint32)
    if names is None:
        return _hash_parts(hashes, columns)
    for name, column in sorted(zip(names, columns, strict=False), key=lambda pair: pair[0]):
        with_field = _hash_parts(hashes * np.uint32(31) + np.uint32(stable_hash(name)), (column,))
        if with_field is None:
            return None
        hashes = with_field
    return hashes


def key_groups_of(columns: Sequence[Any], max_parallelism: int) -> npt.NDArray[np.int32]:
    """Returns the key groups of keys: the values of one column, or tuples of the values of several."""
    return groups_of_hashes(hash_columns(columns), max_parallelism)


def groups_of_hashes(hashes: Hashes, max_parallelism: int) -> npt.NDArray[np.int32]:
    """Returns the key groups of keys with these hashes."""
    groups = murmur_array(hashes)
    if max_parallelism & (max_parallelism - 1):
        groups %= np.int32(max_parallelism)
    else:  # a division costs ten times as much
        groups &= np.int32(max_parallelism - 1)
    return groups


def _hash_array(column: Any) -> Hashes:
    kind = column.type
    if pa.types.is_dictionary(kind):
        codes = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        values = _hash_values(column.dictionary)
        hashes = values[codes] if len(values) else np.zeros(len(column), np.uint32)
    elif pa.types.is_boolean(kind):
        hashes = column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint32)
    elif pa.types.is_integer(kind):
        hashes = _hash_integers(column.fill_null(0).to_numpy(zero_copy_only=False))
    elif pa.types.is_floating(kind):
        numbers = column.fill_null(np.array(0, dtype=kind.to_pandas_dtype())[()])
        hashes = _hash_floats(numbers.to_numpy(zero_copy_only=False).astype(np.float64))
    elif _is_text(kind):
        ends = _ends(column)
        if len(ends) > 1 and ends[-1] - ends[0] > _LONG * len(column):
            return _hash_array(column.dictionary_encode())
        hashes = _hash_bytes(column, ends)
    elif (of_times := _hash_times(column)) is not None:
        hashes = of_times
    else:
        try:
            values = column.to_pylist()
        except ValueError as error:
            raise KeyTypeError(f"A column of type {kind} can't be a key: {error}. Allowed are {ALLOWED}.") from None
        return np.fromiter(map(stable_hash, values), np.uint32, len(column))
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = NONE_HASH
    result: Hashes = hashes
    return result


def _hash_times(column: Any) -> Hashes | None:
    """Hashes of points in time, dates, times of day and durations; arbitrary for nulls.

    None for other types, for nanoseconds, and where Python has no value for a number: these are hashed one by one.
    """
    kind = column.type
    if pa.types.is_date32(kind):
        tag, storage, factor, (first, last) = DATE_TAG, pa.int32(), 1, _DATES
    elif pa.types.is_time32(kind):
        tag, storage, factor, (first, last) = TIME_TAG, pa.int32(), _MICROSECONDS[kind.unit], _TIMES_OF_DAY
    elif pa.types.is_time(kind) and kind.unit in _MICROSECONDS:
        tag, storage, factor, (first, last) = TIME_TAG, pa.int64(), _MICROSECONDS[kind.unit], _TIMES_OF_DAY
    elif pa.types.is_timestamp(kind) and kind.unit in _MICROSECONDS:
        tag, storage, factor, (first, last) = DATETIME_TAG, pa.int64(), _MICROSECONDS[kind.unit], _MOMENTS
    elif pa.types.is_duration(kind) and kind.unit in _MICROSECONDS:
        tag, storage, factor, (first, last) = TIMEDELTA_TAG, pa.int64(), _MICROSECONDS[kind.unit], _DURATIONS
    else:
        return None
    numbers = column.view(storage).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    if len(numbers) and (numbers.min() < -(-first // factor) or numbers.max() > last // factor):
        return None
    if pa.types.is_date32(kind):
        numbers = numbers + _EPOCH_DAY
    return _hash_integers(numbers * factor) + np.uint32(31 * tag & MASK)


def _is_text(kind: Any) -> bool:
    narrow: bool = pa.types.is_string(kind) or pa.types.is_binary(kind)
    wide: bool = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    return narrow or wide


def _hash_values(dictionary: Any) -> Hashes:
    """Hashes of a dictionary's values; these are distinct, so long texts need no further encoding."""
    if not _is_text(dictionary.type):
        return _hash_array(dictionary)
    hashes = _hash_bytes(dictionary, _ends(dictionary))
    if dictionary.null_count:
        hashes[dictionary.is_null().to_numpy(zero_copy_only=False)] = NONE_HASH
    return hashes


def _finish(magnitude: npt.NDArray[np.uint64], negative: npt.NDArray[np.bool_]) -> Hashes:
    """Turn the magnitude of Python's numeric hash into 32 bits: apply the sign, make -1 a -2 as Python does, fold."""
    h: npt.NDArray[np.uint64] = np.where(negative, _U64(0) - magnitude, magnitude)
    h[h == _U64(0xFFFFFFFFFFFFFFFF)] = _U64(0xFFFFFFFFFFFFFFFE)
    return ((h ^ (h >> _U64(32))) & _U64(0xFFFFFFFF)).astype(np.uint32)


def _hash_integers(values: npt.NDArray[Any]) -> Hashes:
    # Python's hash of an integer from 0 to the modulus is the integer itself: no division, no sign.
    if len(values) and values.min() >= 0 and values.max() < int(_MODULUS):
        low = values.astype(np.uint32)
        if values.dtype.itemsize == 8 and values.max() >> 32:
            low ^= (values >> 32).astype(np.uint32)
        return low
    negative = values < 0
    bits = values.astype(np.uint64) if values.dtype.kind == "u" else values.astype(np.int64).view(np.uint64)
    magnitude = np.where(negative, _U64(0) - bits, bits)
    return _finish(magnitude % _MODULUS, negative)


def _hash_floats(values: npt.NDArray[np.float64]) -> Hashes:
    """Hashes of floats: Python's numeric hash is the value modulo 2**61-1, here mantissa times a power of two."""
    finite = np.isfinite(values)
    mantissa, exponent = np.frexp(np.where(finite, np.abs(values), 0.0))
    whole = (mantissa * float(1 << 53)).astype(np.uint64)
    # Times a power of two modulo 2**61-1 is a rotation of 61 bits.
    turn = ((exponent.astype(np.int64) - 53) % 61).astype(np.uint64)
    rotated = ((whole << turn) & _MODULUS) | (whole >> (_U64(61) - turn))
    rotated[np.isinf(values)] = _U64(314159)
    hashes = _finish(rotated, values < 0)
    hashes[np.isnan(values)] = NAN_HASH
    return hashes


def _ends(column: Any) -> npt.NDArray[np.int64]:
    """Offsets into a text column's bytes: where the first text begins, then where each text ends."""
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    dtype = np.dtype(np.int64 if wide else np.int32)
    offsets = column.buffers()[1]
    if not len(column) or offsets is None:
        return np.zeros(len(column) + 1, np.int64)
    return np.frombuffer(offsets, dtype, len(column) + 1, column.offset * dtype.itemsize).astype(np.int64)


def _hash_bytes(column: Any, ends: npt.NDArray[np.int64]) -> Hashes:
    data = column.buffers()[2]
    return crc_of_texts(ends, b"" if data is None else data)


def murmur_array(hashes: Hashes) -> npt.NDArray[np.int32]:
    """Returns ``key_hash.murmur`` of each hash."""
    scattered = np.empty(len(hashes), np.uint32)
    spare = np.empty(min(len(hashes), _BLOCK), np.uint32)
    for start in range(0, len(hashes), _BLOCK):
        h = scattered[start : start + _BLOCK]
        _murmur(hashes[start : start + _BLOCK], h, spare[: len(h)])
    return scattered.view(np.int32)


def _murmur(hashes: Hashes, h: Hashes, t: Hashes) -> None:
    """Scatter a block of hashes into ``h``; ``t`` is working memory of the same size."""
    u32 = np.uint32
    np.multiply(hashes, u32(0xCC9E2D51), out=h)
    _rotate(h, 15, t)
    np.multiply(h, u32(0x1B873593), out=h)
    _rotate(h, 13, t)
    np.multiply(h, u32(5), out=h)
    np.add(h, u32(0xE6546B64), out=h)
    np.bitwise_xor(h, u32(4), out=h)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        np.right_shift(h, u32(shift), out=t)
        np.bitwise_xor(h, t, out=h)
        np.multiply(h, u32(factor), out=h)
    np.right_shift(h, u32(16), out=t)
    np.bitwise_xor(h, t, out=h)
    signed = h.view(np.int32)
    np.absolute(signed, out=signed)
    signed[signed == np.int32(-(2**31))] = 0


def _rotate(h: Hashes, bits: int, t: Hashes) -> None:
    np.right_shift(h, np.uint32(32 - bits), out=t)
    np.left_shift(h, np.uint32(bits), out=h)
    np.bitwise_or(h, t, out=h)
