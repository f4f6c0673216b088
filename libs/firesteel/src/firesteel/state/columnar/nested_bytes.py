"""Lists, maps and structs as bytes, which are equal where the values are, and back.

Entries of a map have the order of their bytes, all NaN are one value, and -0.0 is 0.0: as in keys of numbers. A value
is a byte that says whether it is null, then: a number in its fixed width; a text with its length in front; a list or a
map with the number of its elements in front; a struct's fields one after the other.
"""

from __future__ import annotations

import itertools
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

_NULL: Final = b"\x00"
_VALUE: Final = b"\x01"
_COUNT: Final = struct.Struct(">I")


def bytes_of(column: pa.Array) -> pa.Array:
    """The bytes of each value of a nested column; null for null."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    nulls = column.is_null().to_pylist()
    values = [None if null else value for value, null in zip(_encoded(column), nulls, strict=True)]
    return pa.array(values, pa.binary())


def values_of(encoded: pa.Array, data_type: pa.DataType) -> pa.Array:
    """The column of a type whose bytes these are."""
    reader = _reader(data_type)
    for value in encoded.to_pylist():
        reader.read(_NULL if value is None else value, 0)
    return reader.column()


# -- to bytes


def _encoded(column: pa.Array) -> list[bytes]:
    data_type = column.type
    if pt.is_dictionary(data_type):
        return _encoded(column.dictionary_decode())
    if pt.is_null(data_type):
        return [_NULL] * len(column)
    if pt.is_struct(data_type):
        fields = [_encoded(column.field(place)) for place in range(data_type.num_fields)]
        parts = [b"".join(row) for row in zip(*fields, strict=True)] if fields else [b""] * len(column)
    elif pt.is_map(data_type):
        entries = [_VALUE + key + item for key, item in zip(_encoded(column.keys), _encoded(column.items), strict=True)]
        parts = [_COUNT.pack(len(part)) + b"".join(sorted(part)) for part in _lists(column, entries)]
    elif pt.is_list(data_type):
        elements = _encoded(column.values)
        parts = [_COUNT.pack(len(part)) + b"".join(part) for part in _lists(column, elements)]
    elif data_type in (pa.string(), pa.binary()):
        texts = column.cast(pa.binary()).to_pylist()
        parts = [b"" if text is None else _COUNT.pack(len(text)) + text for text in texts]
    else:
        parts = _number_bytes(column)
    if not column.null_count:
        return [_VALUE + part for part in parts]
    return [_NULL if null else _VALUE + part for part, null in zip(parts, column.is_null().to_pylist(), strict=True)]


def _lists(column: pa.Array, elements: list[bytes]) -> list[list[bytes]]:
    """The elements of each list of a column, whose offsets count from the first one of all values."""
    offsets = column.offsets.to_pylist()
    return [elements[start:stop] for start, stop in itertools.pairwise(offsets)]


def _number_bytes(column: pa.Array) -> list[bytes]:
    numbers = _raw_numbers(column)
    width, content = numbers.dtype.itemsize, numbers.tobytes()
    return [content[start : start + width] for start in range(0, len(content), width)]


def _raw_numbers(column: pa.Array) -> npt.NDArray[Any]:
    """The numbers of a column as they lie in memory; arbitrary for nulls."""
    data_type = column.type
    if pt.is_boolean(data_type):
        flags: npt.NDArray[Any] = column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint8)
        return flags
    size = data_type.bit_width // 8
    raw: npt.NDArray[Any] = np.frombuffer(column.buffers()[1], f"V{size}", len(column), column.offset * size)
    if not pt.is_floating(data_type):
        return raw
    floats: npt.NDArray[Any] = raw.view(f"f{size}") + data_type.to_pandas_dtype()(0)
    floats[np.isnan(floats)] = np.nan
    return floats


# -- from bytes


class _Reader(ABC):
    """Reads values of a type, one after the other, and makes a column of them."""

    def __init__(self, data_type: pa.DataType) -> None:
        self.data_type = data_type
        self._is_valid: list[bool] = []

    def read(self, content: bytes, at: int) -> int:
        """Read the value that begins at a position; returns where it ends."""
        is_valid = content[at : at + 1] == _VALUE
        self._is_valid.append(is_valid)
        if is_valid:
            return self._read(content, at + 1)
        self._skip()
        return at + 1

    @abstractmethod
    def _read(self, content: bytes, at: int) -> int: ...

    @abstractmethod
    def _skip(self) -> None:
        """Add a value that is null."""

    @abstractmethod
    def column(self) -> pa.Array:
        """The column of the values that were read."""

    def _mask(self) -> pa.Buffer:
        return pa.array(self._is_valid, pa.bool_()).buffers()[1]

    def _of_buffers(self, buffers: Sequence[pa.Buffer], children: Sequence[pa.Array] = ()) -> pa.Array:
        return pa.Array.from_buffers(
            self.data_type, len(self._is_valid), [self._mask(), *buffers], children=list(children) or None
        )


class _Numbers(_Reader):
    def __init__(self, data_type: pa.DataType) -> None:
        super().__init__(data_type)
        self._width = 1 if pt.is_boolean(data_type) else data_type.bit_width // 8
        self._parts: list[bytes] = []

    def _read(self, content: bytes, at: int) -> int:
        self._parts.append(content[at : at + self._width])
        return at + self._width

    def _skip(self) -> None:
        self._parts.append(bytes(self._width))

    def column(self) -> pa.Array:
        content = b"".join(self._parts)
        if pt.is_boolean(self.data_type):
            return self._of_buffers([pa.array(np.frombuffer(content, np.uint8).astype(bool)).buffers()[1]])
        return self._of_buffers([pa.py_buffer(content)])


class _Texts(_Reader):
    def __init__(self, data_type: pa.DataType) -> None:
        super().__init__(data_type)
        self._texts: list[bytes | None] = []

    def _read(self, content: bytes, at: int) -> int:
        (size,) = _COUNT.unpack_from(content, at)
        self._texts.append(content[at + 4 : at + 4 + size])
        return at + 4 + int(size)

    def _skip(self) -> None:
        self._texts.append(None)

    def column(self) -> pa.Array:
        return pa.array(self._texts, pa.binary()).cast(self.data_type)


class _Nulls(_Reader):
    def _read(self, content: bytes, at: int) -> int:
        return at

    def _skip(self) -> None: ...

    def column(self) -> pa.Array:
        return pa.nulls(len(self._is_valid))


class _Elements(_Reader):
    """Lists, and maps, whose elements are structs of key and value."""

    def __init__(self, data_type: pa.DataType) -> None:
        super().__init__(data_type)
        self._offsets = [0]
        if pt.is_map(data_type):
            self._elements: _Reader = _Fields(pa.struct([data_type.key_field, data_type.item_field]))
        else:
            self._elements = _reader(data_type.value_type)

    def _read(self, content: bytes, at: int) -> int:
        (count,) = _COUNT.unpack_from(content, at)
        at += 4
        for _ in range(count):
            at = self._elements.read(content, at)
        self._offsets.append(self._offsets[-1] + count)
        return at

    def _skip(self) -> None:
        self._offsets.append(self._offsets[-1])

    def column(self) -> pa.Array:
        offsets = pa.py_buffer(np.array(self._offsets, np.int32))
        return self._of_buffers([offsets], [self._elements.column()])


class _Fields(_Reader):
    def __init__(self, data_type: pa.DataType) -> None:
        super().__init__(data_type)
        self._fields = [_reader(data_type.field(place).type) for place in range(data_type.num_fields)]

    def _read(self, content: bytes, at: int) -> int:
        for field in self._fields:
            at = field.read(content, at)
        return at

    def _skip(self) -> None:
        for field in self._fields:
            field.read(_NULL, 0)

    def column(self) -> pa.Array:
        return self._of_buffers([], [field.column() for field in self._fields])


def _reader(data_type: pa.DataType) -> _Reader:
    if pt.is_dictionary(data_type):
        data_type = data_type.value_type
    if pt.is_struct(data_type):
        return _Fields(data_type)
    if pt.is_list(data_type) or pt.is_map(data_type):
        return _Elements(data_type)
    if data_type in (pa.string(), pa.binary()):
        return _Texts(data_type)
    return _Nulls(data_type) if pt.is_null(data_type) else _Numbers(data_type)
