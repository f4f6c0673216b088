"""Texts that repeat travel as dictionaries on edges with keys: what is done for a key is done once for each text.

Whoever sends chooses (``RepeatedTexts``); a chain makes plain columns of them at its door unless its first operator
``takes_dictionaries``. So functions and sinks of users see the declared types only.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

__all__ = ["RepeatedTexts", "plain_columns", "with_form"]

Ints = npt.NDArray[np.int32]

_FEWEST = 32768
"""Rows; smaller batches cost less as they are."""
_SAMPLE: Final = 1024
"""Rows that are looked at first."""
_DIFFERENT: Final = 0.85
"""If more than this share of these are different, the batch stays as it is."""
_REPEATED: Final = 0.5
"""A dictionary is used if it has at most this share of the batch's rows."""
_LONGEST_PAUSE: Final = 63


class RepeatedTexts:
    """Makes dictionaries of the columns of one edge, as long as texts repeat in them.

    After a batch in which they do not it leaves some out, more and more.
    """

    def __init__(self) -> None:
        self._pause = self._left = 0

    def encoded(self, column: pa.Array) -> pa.DictionaryArray | None:
        """The column as a dictionary in which no text stands twice; None if that is of no use."""
        count = len(column)
        if count < _FEWEST or column.type not in (pa.string(), pa.binary()) or column.null_count:
            return None
        if self._left:
            self._left -= 1
            return None
        if len(column.slice(0, _SAMPLE).dictionary_encode().dictionary) <= _DIFFERENT * _SAMPLE:
            found = column.dictionary_encode()
            if len(found.dictionary) <= _REPEATED * count:
                self._pause = 0
                return found
        self._left = self._pause = min(_LONGEST_PAUSE, 2 * self._pause + 1)
        return None


def with_form(batch: pa.RecordBatch, index: int, column: pa.Array) -> pa.RecordBatch:
    """A batch with another form of one of its columns."""
    columns, field = batch.columns, batch.schema.field(index)
    columns[index] = column
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema.set(index, field.with_type(column.type)))


def plain_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same without dictionaries; itself if there are none."""
    types: list[Any] = batch.schema.types
    for index, data_type in enumerate(types):
        if pt.is_dictionary(data_type):
            batch = with_form(batch, index, batch.column(index).dictionary_decode())
    return batch
