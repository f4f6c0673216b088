"""Keys and values of state in columns as bytes: many at a time.

A key begins with the number of its state and its key group; behind them are the columns, each with a flag in front that
says whether it is null: numbers as eight bytes, texts with their length, all else pickled. Keys that are equal in
``state/columnar/key_index.py`` have the same bytes. A row of values begins with the number of its layout, which says
which columns it has: numbers stand one behind the other, all else is pickled behind them. Both are part of checkpoints.
"""

from __future__ import annotations

import io
import pickle
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.state.columnar.key_columns import is_fixed, key_column
from firesteel.state.columnar.values import Codec

Ints = npt.NDArray[np.int64]
Groups = npt.NDArray[np.signedinteger[Any]]

_PREFIX: Final = 6
"""Bytes of the number of the state and the key group."""
_WORD: Final = 9
_NULL: Final = b"\0"
_SIZED: Final = struct.Struct(">BI")
_LAYOUT: Final = struct.Struct(">H")


class _KeyColumn(ABC):
    """One column of keys."""

    @abstractmethod
    def write(self, column: pa.Array) -> list[bytes]:
        """Bytes of each row."""

    @abstractmethod
    def read(self, rows: Sequence[bytes], starts: list[int]) -> pa.Array:
        """Column of rows, whose bytes begin at ``starts``; these are moved behind it."""


class _Words(_KeyColumn):
    """Numbers, dates, times and Booleans."""

    def __init__(self, data_type: pa.DataType) -> None:
        self._handler = key_column(data_type)

    def fill(self, column: pa.Array, target: npt.NDArray[np.uint8]) -> None:
        """Write each row into nine bytes: a flag for null, and the number."""
        (words,) = self._handler.words(column, add=False)
        valid = _valid(column)
        if valid is not None:
            words = np.where(valid, words, 0)
        target[:, 0] = 1 if valid is None else valid
        target[:, 1:] = words.astype(">i8").view(np.uint8).reshape(len(words), 8)

    def column(self, rows: npt.NDArray[np.uint8]) -> pa.Array:
        words = np.ascontiguousarray(rows[:, 1:]).view(">i8")[:, 0].astype(np.int64)
        nulls = rows[:, 0] == 0
        return self._handler.column([words], nulls if nulls.any() else None)

    def write(self, column: pa.Array) -> list[bytes]:
        matrix = np.empty((len(column), _WORD), np.uint8)
        self.fill(column, matrix)
        rows: list[bytes] = matrix.view(f"V{_WORD}")[:, 0].tolist()
        return rows

    def read(self, rows: Sequence[bytes], starts: list[int]) -> pa.Array:
        data = b"".join([row[start : start + _WORD] for row, start in zip(rows, starts, strict=True)])
        starts[:] = [start + _WORD for start in starts]
        return self.column(np.frombuffer(data, np.uint8).reshape(len(rows), _WORD))


class _Sized(_KeyColumn):
    """Texts, and other columns without a fixed width."""

    def __init__(self, data_type: pa.DataType) -> None:
        self._type = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
        self._text = self._type == pa.string()
        self._plain = self._text or self._type == pa.binary()

    def write(self, column: pa.Array) -> list[bytes]:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if self._plain:
            values = column.cast(pa.binary()).to_pylist()
        else:
            values = [None if value is None else _pickled(value) for value in column.to_pylist()]
        head = _SIZED.pack
        return [_NULL if value is None else head(1, len(value)) + value for value in values]

    def read(self, rows: Sequence[bytes], starts: list[int]) -> pa.Array:
        values: list[Any] = []
        for row_index, (row, start) in enumerate(zip(rows, starts, strict=True)):
            if not row[start]:
                values.append(None)
                starts[row_index] = start + 1
                continue
            _, size = _SIZED.unpack_from(row, start)
            starts[row_index] = stop = start + _SIZED.size + size
            value = row[stop - size : stop]
            values.append(value if self._plain else pickle.loads(value))
        if self._text:
            return pa.array(values, pa.binary()).cast(pa.string())
        return pa.array(values, self._type)


def _pickled(value: Any) -> bytes:
    """Pickle without references to earlier parts, in which equal values may differ."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=5)
    pickler.fast = True
    pickler.dump(value)
    return stream.getvalue()


def _valid(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    if pa.types.is_dictionary(column.type) and column.dictionary.null_count:
        column = column.dictionary_decode()
    if not column.null_count:
        return None
    valid: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


class KeyBytes:
    """Columns of keys as bytes, and back.

    Args:
        types: of the columns.
    """

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._parts = [_Words(data_type) if _has_words(data_type) else _Sized(data_type) for data_type in types]

    def encode(self, number: int, columns: Sequence[pa.Array], groups: Groups) -> list[bytes]:
        """The bytes of keys.

        Args:
            number: of the state.
            columns: of the keys.
            groups: their key groups.
        """
        count, only = len(groups), self._parts[0]
        alone = len(self._parts) == 1 and isinstance(only, _Words)
        matrix = np.empty((count, _PREFIX + (_WORD if alone else 0)), np.uint8)
        matrix[:, :4] = np.frombuffer(struct.pack(">I", number), np.uint8)
        matrix[:, 4:_PREFIX] = groups.astype(">u2").view(np.uint8).reshape(count, 2)
        if alone:
            assert isinstance(only, _Words)
            only.fill(columns[0], matrix[:, _PREFIX:])
        rows: list[bytes] = matrix.view(f"V{matrix.shape[1]}")[:, 0].tolist()
        if alone:
            return rows
        parts = [part.write(column) for part, column in zip(self._parts, columns, strict=True)]
        return list(map(b"".join, zip(rows, *parts, strict=True)))

    def decode(self, keys: Sequence[bytes]) -> list[pa.Array]:
        """The columns of keys."""
        starts = [_PREFIX] * len(keys)
        return [part.read(keys, starts) for part in self._parts]


def _has_words(data_type: pa.DataType) -> bool:
    return is_fixed(data_type.value_type if pa.types.is_dictionary(data_type) else data_type)


class RowLayout:
    """The columns that rows have, and where they stand in the bytes of a row.

    Args:
        number: of the layout, in front of each row.
        fields: names and types of the columns.
    """

    def __init__(self, number: int, fields: Sequence[tuple[str, pa.DataType]]) -> None:
        self.number, self.fields = number, list(fields)
        self.codecs = [Codec(data_type) for _, data_type in fields]
        fixed = [(f"{at}", codec.dtype.newbyteorder("<")) for at, codec in enumerate(self.codecs) if codec.fixed]
        self._dtype = np.dtype([("layout", ">u2"), *fixed])
        self._objects = [at for at, codec in enumerate(self.codecs) if not codec.fixed]

    def write(self, columns: Sequence[npt.NDArray[Any]]) -> list[bytes]:
        """Rows of values, which come in the form of ``Codec``."""
        records = np.empty(len(columns[0]) if columns else 0, self._dtype)
        records["layout"] = self.number
        for index, codec in enumerate(self.codecs):
            if codec.fixed:
                records[f"{index}"] = columns[index]
        rows: list[bytes] = records.view(f"V{self._dtype.itemsize}").tolist()
        if self._objects:
            dumps = pickle.dumps
            objects = zip(*(columns[index].tolist() for index in self._objects), strict=True)
            return [row + dumps(values, 5) for row, values in zip(rows, objects, strict=True)]
        return rows

    def read(self, rows: Sequence[bytes]) -> list[npt.NDArray[Any]]:
        size = self._dtype.itemsize
        heads = rows if not self._objects else [row[:size] for row in rows]
        fixed = np.frombuffer(b"".join(heads), self._dtype)
        columns: list[npt.NDArray[Any]] = [
            fixed[f"{index}"] if codec.fixed else fixed for index, codec in enumerate(self.codecs)
        ]
        if self._objects:
            tails = [pickle.loads(row[size:]) for row in rows]
            for position, index in enumerate(self._objects):
                columns[index] = np.empty(len(rows), object)
                columns[index][:] = [tail[position] for tail in tails]
        return columns


def layout_of(row: bytes) -> int:
    """Number of a row's layout."""
    return row[0] << 8 | row[1]


def with_layout(row: bytes, number: int) -> bytes:
    """A row under another layout number."""
    return _LAYOUT.pack(number) + row[_LAYOUT.size :]
