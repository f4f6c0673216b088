"""Values by slot, in arrays of numbers or of Python objects, for every type of a column."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from firesteel.state.columnar.growing import GrowingArray
from firesteel.state.columnar.key_columns import is_fixed, plain, stored_type

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_FIRST: Final = 1024


class GrowingObjects:
    """Like ``GrowingArray``, for Python objects; new elements are None or 0."""

    __slots__ = ("dtype", "values")

    def __init__(self, capacity: int = 0) -> None:
        self.dtype = np.dtype(object)
        self.values: npt.NDArray[Any] = np.empty(max(capacity, _FIRST), object)

    def ensure(self, count: int) -> None:
        """Make room for this many elements."""
        if count > len(self.values):
            wider = np.empty(max(count, 2 * len(self.values)), object)
            wider[: len(self.values)] = self.values
            self.values = wider

    def get(self, slots: Ints) -> npt.NDArray[Any]:
        """The elements of slots."""
        return self.values.take(slots)

    def set(self, slots: Ints, values: Any) -> None:
        """Put elements into slots there is room for; of equal slots the last one counts."""
        self.values[slots] = values


Array = GrowingArray | GrowingObjects


class Codec:
    """Converts between columns of a type and arrays.

    Args:
        data_type: of the columns.

    Attributes:
        fixed: values are numbers.
        dtype: of the arrays.
    """

    def __init__(self, data_type: pa.DataType) -> None:
        self.data_type = data_type
        self.fixed = is_fixed(data_type)
        self._stored = stored_type(data_type)
        self.dtype: np.dtype[Any] = np.dtype(object)
        if self.fixed:
            self.dtype = np.dtype(np.bool_ if pt.is_boolean(data_type) else self._stored.to_pandas_dtype())

    def array(self, capacity: int) -> Array:
        """Create an array for such values."""
        return GrowingArray(self.dtype, capacity) if self.fixed else GrowingObjects(capacity)

    def numbers(self, column: pa.Array) -> npt.NDArray[Any]:
        """Values of a column; where they are numbers, nulls become arbitrary ones."""
        if not self.fixed:
            objects = np.empty(len(column), object)
            objects[:] = column.to_pylist()
            return objects
        column = plain(column)
        if column.type != self._stored:
            column = column.view(self._stored)
        numbers: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return numbers

    def column(self, numbers: npt.NDArray[Any], valid: Mask | None) -> pa.Array:
        """Column of values; null where they are not valid."""
        if not self.fixed:
            if valid is not None:
                numbers = numbers.copy()
                numbers[~valid] = None
            return pa.array(numbers.tolist(), self.data_type)
        column = pa.array(numbers, self._stored, mask=None if valid is None else ~valid, from_pandas=False)
        return column if self._stored == self.data_type else column.view(self.data_type)


def valid_of(column: pa.Array) -> Mask | None:
    """Where a column is not null; None = everywhere."""
    if pt.is_dictionary(column.type) and column.dictionary.null_count:
        column = column.dictionary_decode()
    if not column.null_count:
        return None
    valid: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


class StateColumn:
    """A named array of values by slot.

    Attributes:
        name: unique within its state.
        codec: converts its values.
        array: the values; zero or None in new slots.
    """

    __slots__ = ("array", "codec", "name")

    def __init__(self, name: str, data_type: pa.DataType, capacity: int) -> None:
        self.name, self.codec = name, Codec(data_type)
        self.array = self.codec.array(capacity)

    def get(self, slots: Ints) -> npt.NDArray[Any]:
        """The values of slots."""
        return self.array.get(slots)

    def set(self, slots: Ints, values: Any) -> None:
        """Put values into slots."""
        self.array.set(slots, values)

    def clear(self, slots: Ints) -> None:
        """Reset slots to the value of new ones."""
        self.array.set(slots, 0 if self.codec.fixed else None)
