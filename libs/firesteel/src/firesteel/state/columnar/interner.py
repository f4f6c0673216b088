"""Numbers for values without a fixed width."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.common.nan_keys import with_one_nan
from firesteel.state.columnar.growing import GrowingArray

Ints = npt.NDArray[np.int64]


class Interner:
    """Gives each value a number, small and used again; only the distinct values of a batch cost Python work.

    Args:
        data_type: of the values: text, bytes, or whatever Arrow can make a dictionary of.
    """

    def __init__(self, data_type: pa.DataType) -> None:
        self._type = data_type
        self._codes: dict[Any, int] = {}
        self._values: list[Any] = []
        self._free: list[int] = []
        self._uses = GrowingArray(np.int32)

    def encode(self, column: pa.Array, *, add: bool) -> Ints:
        """Number of each value; unknown values get -1, unless ``add`` is set. Arbitrary for nulls."""
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        dictionary_codes = [-1 if value is None else self._code(value, add) for value in column.dictionary.to_pylist()]
        codes = np.array([*dictionary_codes, -1], np.int64)
        indices = column.indices
        if indices.null_count:
            indices = indices.fill_null(0)
        chosen: Ints = codes.take(indices.to_numpy(zero_copy_only=False), mode="clip")
        return chosen

    def _code(self, value: Any, add: bool) -> int:
        value = with_one_nan(value)
        code = self._codes.get(value, -1)
        if code < 0 and add:
            if self._free:
                code = self._free.pop()
                self._values[code] = value
            else:
                code = len(self._values)
                self._values.append(value)
            self._codes[value] = code
        return code

    def decode(self, codes: Ints, nulls: npt.NDArray[np.bool_] | None) -> pa.Array:
        """Values that these numbers stand for."""
        values = self._values
        if nulls is None:
            return pa.array([values[code] for code in codes.tolist()], self._type)
        pairs = zip(codes.tolist(), nulls.tolist(), strict=True)
        return pa.array([None if null else values[code] for code, null in pairs], self._type)

    def use(self, codes: Ints) -> None:
        """Count uses of numbers; each occurrence counts."""
        self._uses.ensure(len(self._values))
        np.add.at(self._uses.values, codes, 1)

    def release(self, codes: Ints) -> None:
        """Uncount uses of numbers; values without uses are forgotten."""
        uses = self._uses.values
        np.subtract.at(uses, codes, 1)
        for code in np.unique(codes[uses.take(codes) == 0]).tolist():
            del self._codes[self._values[code]]
            self._values[code] = None
            self._free.append(code)
