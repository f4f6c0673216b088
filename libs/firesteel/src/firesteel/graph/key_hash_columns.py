"""The stable key hash over columns: numpy twins of ``key_hash`` that agree with it for every value."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.core.errors import KeyTypeError
from firesteel.graph.key_hash import ALLOWED, NAN_HASH, NONE_HASH, stable_hash

__all__ = ["hash_column", "murmur_array"]

Hashes = npt.NDArray[np.uint32]

_MODULUS = np.uint64((1 << 61) - 1)
_U64 = np.uint64


def hash_column(column: Any) -> Hashes:
    """Returns the hashes of a ``pyarrow`` array or chunked array. See ``key_hash.stable_hash_array``."""
    if isinstance(column, pa.ChunkedArray):
        chunks = [_hash_array(chunk) for chunk in column.chunks]
        return np.concatenate(chunks) if chunks else np.empty(0, np.uint32)
    return _hash_array(column)


def _hash_array(column: Any) -> Hashes:
    kind = column.type
    if pa.types.is_dictionary(kind):
        codes = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        values = _hash_array(column.dictionary)
        hashes = values[codes] if len(values) else np.zeros(len(column), np.uint32)
    elif pa.types.is_boolean(kind):
        hashes = column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint32)
    elif pa.types.is_integer(kind):
        hashes = _hash_integers(column.fill_null(0).to_numpy(zero_copy_only=False))
    elif pa.types.is_floating(kind):
        numbers = column.fill_null(np.array(0, dtype=kind.to_pandas_dtype())[()])
        hashes = _hash_floats(numbers.to_numpy(zero_copy_only=False).astype(np.float64))
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        hashes = _hash_bytes(column, np.int32)
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        hashes = _hash_bytes(column, np.int64)
    else:
        try:
            values = column.to_pylist()
        except ValueError as error:
            raise KeyTypeError(f"A column of type {kind} can't be a key: {error}. Allowed are {ALLOWED}.") from error
        return np.fromiter(map(stable_hash, values), np.uint32, len(column))
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = NONE_HASH
    result: Hashes = hashes
    return result


def _finish(magnitude: npt.NDArray[np.uint64], negative: npt.NDArray[np.bool_]) -> Hashes:
    """From Python's numeric hash without its sign to 32 bits: sign, -1 becomes -2, fold."""
    h: npt.NDArray[np.uint64] = np.where(negative, _U64(0) - magnitude, magnitude)
    h[h == _U64(0xFFFFFFFFFFFFFFFF)] = _U64(0xFFFFFFFFFFFFFFFE)
    return ((h ^ (h >> _U64(32))) & _U64(0xFFFFFFFF)).astype(np.uint32)


def _hash_integers(values: npt.NDArray[Any]) -> Hashes:
    negative = values < 0
    bits = values.astype(np.uint64) if values.dtype.kind == "u" else values.astype(np.int64).view(np.uint64)
    magnitude = np.where(negative, _U64(0) - bits, bits)
    return _finish(magnitude % _MODULUS, negative)


def _hash_floats(values: npt.NDArray[np.float64]) -> Hashes:
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


def _hash_bytes(column: Any, offset_type: type[np.signedinteger[Any]]) -> Hashes:
    count = len(column)
    _, offsets, data = column.buffers()
    if count == 0 or data is None:
        return np.zeros(count, np.uint32)
    ends = np.frombuffer(offsets, offset_type, count + 1, column.offset * np.dtype(offset_type).itemsize).tolist()
    view = memoryview(data)
    starts = iter(ends)
    next(starts)
    return np.fromiter((crc32(view[a:b]) for a, b in zip(ends, starts, strict=False)), np.uint32, count)


def murmur_array(hashes: Hashes) -> npt.NDArray[np.int32]:
    """Returns ``key_hash.murmur`` of each hash."""
    h = hashes.astype(np.uint32) * np.uint32(0xCC9E2D51)
    h = (h << np.uint32(15)) | (h >> np.uint32(17))
    h *= np.uint32(0x1B873593)
    h = (h << np.uint32(13)) | (h >> np.uint32(19))
    h = h * np.uint32(5) + np.uint32(0xE6546B64)
    h ^= np.uint32(4)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    h = np.where(h >= np.uint32(0x80000000), np.uint32(0) - h, h)
    h[h == np.uint32(0x80000000)] = 0
    return h.view(np.int32)
