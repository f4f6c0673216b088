"""Columns of keys as words of 64 bits, which are equal where the keys are, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from firesteel.state.columnar import packed_text
from firesteel.state.columnar.interner import Interner

Ints = npt.NDArray[np.int64]
Nulls = npt.NDArray[np.bool_]


class KeyColumn(ABC):
    """One column of keys.

    Args:
        data_type: of the column; batches may also be dictionaries of it.
    """

    def __init__(self, data_type: pa.DataType) -> None:
        self.data_type = data_type

    @abstractmethod
    def words(self, column: pa.Array, *, add: bool) -> list[Ints]:
        """Words of each row, one or more; arbitrary ones for nulls.

        Their number differs from batch to batch: words that are left out are zero. Unless ``add`` is set, values that
        are in no key may give words of no key.
        """

    @abstractmethod
    def column(self, words: list[Ints], nulls: Nulls | None) -> pa.Array:
        """Column of the values that these words stand for."""

    def use(self, words: Ints) -> None:  # noqa: B027 - most columns need not know
        """Count the uses of values by new keys; ``words`` are the first words, each occurrence counts."""

    def release(self, words: Ints) -> None:  # noqa: B027
        """Uncount the uses of values by keys that were released; ``words`` are the first words."""


def is_fixed(data_type: pa.DataType) -> bool:
    """Whether values of this type are stored in arrays of numbers; all others are Python objects."""
    return bool(pt.is_boolean(data_type) or pt.is_integer(data_type) or pt.is_floating(data_type)) or (
        pt.is_temporal(data_type)
    )


def key_column(data_type: pa.DataType) -> KeyColumn:
    """Create the handler of keys of a type."""
    if pt.is_dictionary(data_type):
        data_type = data_type.value_type
    if pt.is_boolean(data_type) or pt.is_integer(data_type) or pt.is_temporal(data_type):
        return _Whole(data_type)
    if data_type in (pa.float32(), pa.float64()):
        return _Floating(data_type)
    if data_type in (pa.string(), pa.binary()):
        return _Text(data_type)
    return _Interned(data_type)


def plain(column: pa.Array) -> pa.Array:
    """Column without a dictionary and without nulls, which become arbitrary values."""
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not column.null_count:
        return column
    return pa.Array.from_buffers(column.type, len(column), [None, *column.buffers()[1:]], offset=column.offset)


def stored_type(data_type: pa.DataType) -> pa.DataType:
    """Type of the numbers that represent dates and times; other types represent themselves."""
    if not pt.is_temporal(data_type):
        return data_type
    return pa.int32() if pt.is_date32(data_type) or pt.is_time32(data_type) else pa.int64()


class _Whole(KeyColumn):
    """Integers, Booleans, dates and times."""

    def __init__(self, data_type: pa.DataType) -> None:
        super().__init__(data_type)
        self._stored = stored_type(data_type)

    def words(self, column: pa.Array, *, add: bool) -> list[Ints]:
        column = plain(column)
        if column.type != self._stored:
            column = column.view(self._stored)
        numbers: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return [numbers.view(np.int64) if numbers.dtype == np.uint64 else numbers.astype(np.int64, copy=False)]

    def column(self, words: list[Ints], nulls: Nulls | None) -> pa.Array:
        dtype = np.bool_ if pt.is_boolean(self._stored) else self._stored.to_pandas_dtype()
        column = pa.array(words[0].astype(dtype), self._stored, mask=nulls)
        return column if self._stored == self.data_type else column.view(self.data_type)


class _Floating(KeyColumn):
    """Floating point numbers: all NaN are one key, and so are 0.0 and -0.0."""

    def __init__(self, data_type: pa.DataType) -> None:
        super().__init__(data_type)
        self._dtype = np.dtype(data_type.to_pandas_dtype())
        self._bits = np.dtype(np.int32 if self._dtype.itemsize == 4 else np.int64)

    def words(self, column: pa.Array, *, add: bool) -> list[Ints]:
        numbers = plain(column).to_numpy(zero_copy_only=False) + self._dtype.type(0)
        nan = np.isnan(numbers)
        if nan.any():
            numbers[nan] = np.nan
        bits: Ints = numbers.view(self._bits).astype(np.int64, copy=False)
        return [bits]

    def column(self, words: list[Ints], nulls: Nulls | None) -> pa.Array:
        numbers = words[0].astype(self._bits).view(self._dtype)
        return pa.array(numbers, self.data_type, mask=nulls, from_pandas=False)


class _Text(KeyColumn):
    """Text and bytes: short ones are stored in the words, others by a number."""

    def __init__(self, data_type: pa.DataType) -> None:
        super().__init__(data_type)
        self._interner = Interner(data_type)

    def words(self, column: pa.Array, *, add: bool) -> list[Ints]:
        if pt.is_dictionary(column.type):
            indices = column.indices
            indices = (indices.fill_null(0) if indices.null_count else indices).to_numpy(zero_copy_only=False)
            if not len(column.dictionary):
                return [np.zeros(len(column), np.int64)]
            return [word.take(indices) for word in self.words(column.dictionary, add=add)]
        starts, lengths, content = packed_text.lengths_of(column)
        words = packed_text.pack(starts, lengths, content)
        long = np.flatnonzero(lengths > packed_text.LONGEST)
        if long.size:
            codes = self._interner.encode(column.take(pa.array(long)), add=add)
            words[0][long] = codes << 8 | packed_text.LONG
        return words

    def column(self, words: list[Ints], nulls: Nulls | None) -> pa.Array:
        texts = packed_text.unpack(words, self.data_type)
        long = words[0] & 255 == packed_text.LONG
        if nulls is None and not long.any():
            return texts
        values = np.empty(len(texts), object)
        values[:] = texts.to_pylist()
        if nulls is not None:
            long &= ~nulls
            values[nulls] = None
        values[long] = self._interner.decode(words[0][long] >> 8, None).to_pylist()
        return pa.array(values.tolist(), self.data_type)

    def use(self, words: Ints) -> None:
        self._interner.use(self._codes(words))

    def release(self, words: Ints) -> None:
        self._interner.release(self._codes(words))

    @staticmethod
    def _codes(words: Ints) -> Ints:
        codes: Ints = words[words & 255 == packed_text.LONG] >> 8
        return codes


class _Interned(KeyColumn):
    """Values of any other type, by a number."""

    def __init__(self, data_type: pa.DataType) -> None:
        super().__init__(data_type)
        self._interner = Interner(data_type)

    def words(self, column: pa.Array, *, add: bool) -> list[Ints]:
        return [self._interner.encode(column, add=add)]

    def column(self, words: list[Ints], nulls: Nulls | None) -> pa.Array:
        return self._interner.decode(words[0], nulls)

    def use(self, words: Ints) -> None:
        self._interner.use(words)

    def release(self, words: Ints) -> None:
        self._interner.release(words)
