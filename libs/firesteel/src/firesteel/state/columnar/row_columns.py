"""Columns of rows that are stored by number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from firesteel.state.columnar.growing import GrowingArray
from firesteel.state.columnar.row_contents import is_text, is_wide, wide_numbers
from firesteel.state.columnar.text_heap import TextHeap
from firesteel.state.columnar.values import Codec, valid_of

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_OBJECT: Final = 200
"""Bytes of a nested value, guessed."""


class RowColumn(ABC):
    """One column of rows that are stored by number.

    Args:
        data_type: of the values.
    """

    def __init__(self, data_type: pa.DataType) -> None:
        self.data_type = data_type
        self._valid: GrowingArray | None = None  # created with the first null
        self._room = 0

    @property
    @abstractmethod
    def width(self) -> int:
        """Bytes of each row, beyond ``live_bytes``."""

    @property
    def live_bytes(self) -> int:
        """Bytes of texts beside the rows."""
        return 0

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes in use; of Python objects only the references count."""

    def ensure(self, rows: int) -> None:
        """Make room for this many rows."""
        self._room = max(rows, self._room)
        if self._valid is not None:
            self._valid.ensure(rows)
        self._ensure(rows)

    def set(self, rows: Ints, values: pa.Array) -> None:
        """Put values into rows that have none."""
        valid = valid_of(values)
        if valid is not None and self._valid is None:
            self._valid = GrowingArray(np.bool_, self._room)
            self._valid.values[:] = True
        if self._valid is not None:
            self._valid.set(rows, True if valid is None else valid)
        self._set(rows, values)

    def take(self, rows: Ints) -> pa.Array:
        """The values of some rows, in their order."""
        valid = None if self._valid is None else self._valid.get(rows)
        return self._take(rows, None if valid is None or valid.all() else valid)

    def clear(self, rows: Ints) -> None:  # noqa: B027 # numbers need no tidying
        """Forget the values of rows."""

    @abstractmethod
    def _ensure(self, rows: int) -> None: ...

    @abstractmethod
    def _set(self, rows: Ints, values: pa.Array) -> None: ...

    @abstractmethod
    def _take(self, rows: Ints, valid: Mask | None) -> pa.Array: ...


class _Values(RowColumn):
    """Numbers up to eight bytes, and Python objects for nested values."""

    def __init__(self, data_type: pa.DataType) -> None:
        super().__init__(data_type)
        self._codec = Codec(data_type)
        self._array = self._codec.array(0)

    @property
    @override
    def width(self) -> int:
        return self._codec.dtype.itemsize if self._codec.fixed else _OBJECT

    @property
    def nbytes(self) -> int:
        return self._codec.dtype.itemsize * len(self._array.values)

    def _ensure(self, rows: int) -> None:
        self._array.ensure(rows)

    def _set(self, rows: Ints, values: pa.Array) -> None:
        self._array.set(rows, self._codec.numbers(values))

    def _take(self, rows: Ints, valid: Mask | None) -> pa.Array:
        return self._codec.column(self._array.get(rows), valid)

    def clear(self, rows: Ints) -> None:
        if not self._codec.fixed:
            self._array.set(rows, None)


class _WideNumbers(RowColumn):
    def __init__(self, data_type: pa.DataType) -> None:
        super().__init__(data_type)
        self._array = GrowingArray(f"V{data_type.bit_width // 8}")

    @property
    @override
    def width(self) -> int:
        return self._array.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self._array.dtype.itemsize * len(self._array)

    def _ensure(self, rows: int) -> None:
        self._array.ensure(rows)

    def _set(self, rows: Ints, values: pa.Array) -> None:
        if len(values):
            self._array.set(rows, wide_numbers(values))

    def _take(self, rows: Ints, valid: Mask | None) -> pa.Array:
        content = pa.py_buffer(self._array.get(rows).view(np.uint8) if len(rows) else b"")
        return pa.Array.from_buffers(self.data_type, len(rows), [_bitmap(valid), content])


class _Texts(RowColumn):
    """Texts or bytes: their bytes in one heap, with a place for each row."""

    def __init__(self, data_type: pa.DataType) -> None:
        super().__init__(data_type)
        self._heap = TextHeap(data_type)

    @property
    @override
    def width(self) -> int:
        return 16

    @property
    @override
    def live_bytes(self) -> int:
        return self._heap.live_bytes

    @property
    def nbytes(self) -> int:
        return self._heap.nbytes

    def _ensure(self, rows: int) -> None:
        self._heap.ensure(rows)

    def _set(self, rows: Ints, values: pa.Array) -> None:
        self._heap.set(rows, values)

    def _take(self, rows: Ints, valid: Mask | None) -> pa.Array:
        return self._heap.take(rows, _bitmap(valid))

    def clear(self, rows: Ints) -> None:
        self._heap.clear(rows)


def row_column(data_type: pa.DataType) -> RowColumn:
    """Create a column for values of a type."""
    if is_text(data_type):
        return _Texts(data_type)
    return _WideNumbers(data_type) if is_wide(data_type) else _Values(data_type)


def _bitmap(valid: Mask | None) -> Any:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
