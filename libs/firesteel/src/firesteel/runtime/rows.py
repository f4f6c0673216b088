"""Columns become rows at the door of a chain whose functions take one record at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.common.typeinfo import TypeInformation
from firesteel.expressions.values import records_of
from firesteel.runtime.batch import Timestamps, Values


def to_records(values: Values, declared: TypeInformation | None = None) -> list[Any]:
    """The records of a batch.

    Args:
        values: a list is returned as it is.
        declared: what columns mean; see ``records_of``.
    """
    if not isinstance(values, pa.RecordBatch):
        return values
    return records_of(values, declared)


def to_list(stamps: Timestamps) -> list[int] | None:
    """Timestamps as they stand beside rows."""
    if isinstance(stamps, np.ndarray):
        made: list[int] = stamps.tolist()
        return made
    return stamps
