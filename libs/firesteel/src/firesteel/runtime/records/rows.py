"""Conversion of columns to rows, for functions that take one record at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.common.typeinfo import TypeInformation
from firesteel.common.types import Row, RowKind
from firesteel.expressions.values import records_of
from firesteel.runtime.records.batch import Batch, Kinds, Timestamps, Values


def to_records(values: Values, declared: TypeInformation | None = None) -> list[Any]:
    """The records of a batch.

    Args:
        values: a list is returned as it is.
        declared: type of the records; None = as the metadata of the columns say (``records_of``).
    """
    if not isinstance(values, pa.RecordBatch):
        return values
    return records_of(values, declared)


def to_rows(batch: Batch) -> Batch:
    """Convert a batch to rows, which know their kinds; returns the batch itself if it has rows already."""
    values = batch.values
    if not isinstance(values, pa.RecordBatch):
        return batch
    records, kinds = to_records(values), to_list(batch.kinds)
    for record, kind in zip(records, kinds or (), strict=False):
        if kind and record.__class__ is Row:
            record.set_row_kind(RowKind(kind))
    return Batch(records, to_list(batch.timestamps), kinds)


def to_list(numbers: Timestamps | Kinds) -> list[int] | None:
    """Timestamps, or row kinds, in the form that goes with rows: a list."""
    if isinstance(numbers, np.ndarray):
        listed: list[int] = numbers.tolist()
        return listed
    return numbers
