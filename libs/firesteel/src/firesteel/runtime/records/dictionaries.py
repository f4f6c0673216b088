"""Sends texts that repeat as Arrow dictionaries on keyed edges, so that each distinct text is hashed and sent once.

The sender decides for each batch (``RepeatedTexts``). The receiving chain decodes dictionaries before its first
operator, unless that ``takes_dictionaries``; so functions and sinks of users see only the declared types.
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
"""Rows of a batch from which on dictionaries are tried; smaller batches cost less without."""
_SAMPLE: Final = 1024
"""Rows that are looked at first."""
_DIFFERENT: Final = 0.85
"""Largest share of distinct texts in the sample with which the whole batch is encoded."""
_REPEATED: Final = 0.5
"""Largest size of a dictionary, as a share of the batch's rows, with which it is used."""
_LONGEST_PAUSE: Final = 63
"""Most batches that are skipped after one in which texts did not repeat."""


class RepeatedTexts:
    """Encodes the columns of one edge as dictionaries, as long as texts repeat in them.

    After a batch in which they do not, it skips one batch, then three, seven, up to ``_LONGEST_PAUSE``.
    """

    def __init__(self) -> None:
        self._pause = self._batches_to_skip = 0

    def encoded(self, column: pa.Array) -> pa.DictionaryArray | None:
        """Encode a column as a dictionary of distinct texts; None if too few texts repeat."""
        count = len(column)
        if count < _FEWEST or column.type not in (pa.string(), pa.binary()) or column.null_count:
            return None
        if self._batches_to_skip:
            self._batches_to_skip -= 1
            return None
        if len(column.slice(0, _SAMPLE).dictionary_encode().dictionary) <= _DIFFERENT * _SAMPLE:
            encoded = column.dictionary_encode()
            if len(encoded.dictionary) <= _REPEATED * count:
                self._pause = 0
                return encoded
        self._batches_to_skip = self._pause = min(_LONGEST_PAUSE, 2 * self._pause + 1)
        return None


def with_form(batch: pa.RecordBatch, index: int, column: pa.Array) -> pa.RecordBatch:
    """Replace a column by another encoding of the same values."""
    columns, field = batch.columns, batch.schema.field(index)
    columns[index] = column
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema.set(index, field.with_type(column.type)))


def plain_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decode the dictionaries of a batch; returns the batch itself if it has none."""
    types: list[Any] = batch.schema.types
    for index, data_type in enumerate(types):
        if pt.is_dictionary(data_type):
            batch = with_form(batch, index, batch.column(index).dictionary_decode())
    return batch
