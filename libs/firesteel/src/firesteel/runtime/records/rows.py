"""Columns become rows at the door of a chain whose functions take one record at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.common.typeinfo import TypeInformation
from firesteel.expressions.values import records_of
from firesteel.runtime.records.batch import Batch, Kinds, Timestamps, Values


def to_records(values: Values, declared: TypeInformation | None = None) -> list[Any]:
    """The records of a batch.

    Args:
        values: a list is returned as it is.
        declared: what columns mean; see ``records_of``.
    """
    if not isinstance(values, pa.RecordBatch):
        return values
    return records_of(values, declared)


def to_rows(batch: Batch) -> Batch:
    """A batch whose values are records; itself if they are already."""
    values = batch.values
    if not isinstance(values, pa.RecordBatch):
        return batch
    return Batch(to_records(values), to_list(batch.timestamps), to_list(batch.kinds))


def to_list(numbers: Timestamps | Kinds) -> list[int] | None:
    """Timestamps, or row kinds, as they stand beside rows."""
    if isinstance(numbers, np.ndarray):
        made: list[int] = numbers.tolist()
        return made
    return numbers
