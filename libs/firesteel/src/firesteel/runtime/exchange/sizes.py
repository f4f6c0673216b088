"""Cheap estimates of how many bytes records take when serialised; right within a factor of two for common records."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

import pyarrow as pa

from firesteel.runtime.batch import Batch, Values

_SAMPLE: Final = 16
_DEPTH: Final = 3
_FIXED: Final = {type(None): 1, bool: 1, int: 5, float: 9}


def record_bytes(value: Any, depth: int = _DEPTH) -> int:
    """Estimate for one record, from a few elements of its containers."""
    kind = type(value)
    fixed = _FIXED.get(kind)
    if fixed is not None:
        return fixed
    if kind is str or kind is bytes or kind is bytearray:
        return len(value) + 4
    if kind.__module__.startswith(("numpy", "pyarrow")):
        size = getattr(value, "nbytes", None)
        return size + 128 if isinstance(size, int) else 64
    if depth > 0:
        if issubclass(kind, tuple):
            return 4 + _elements(tuple.__getitem__(value, slice(_SAMPLE)), tuple.__len__(value), depth - 1)
        if issubclass(kind, list):
            return 4 + _elements(list.__getitem__(value, slice(_SAMPLE)), list.__len__(value), depth - 1)
        if issubclass(kind, dict):
            pairs = list(islice(dict.items(value), _SAMPLE // 2))
            return 4 + _elements([item for pair in pairs for item in pair], 2 * dict.__len__(value), depth - 1)
        try:
            fields = object.__getattribute__(value, "__dict__")
        except AttributeError:
            fields = None
        if type(fields) is dict:
            return 24 + record_bytes(fields, depth - 1)
    return object.__sizeof__(value)


def _elements(sample: Any, count: int, depth: int) -> int:
    seen = len(sample)
    return sum(record_bytes(item, depth) for item in sample) * count // seen if seen else 0


def values_bytes(values: Values) -> int:
    """Estimate for a list (from its first, middle and last record) or the exact size of a ``RecordBatch``."""
    if isinstance(values, pa.RecordBatch):
        return int(values.nbytes) + 64
    count = len(values)
    if count <= 3:
        return sum(record_bytes(value) for value in values)
    return (record_bytes(values[0]) + record_bytes(values[count // 2]) + record_bytes(values[-1])) * count // 3


def batch_bytes(batch: Batch) -> int:
    """The batch's estimate of bytes, made now if it has none."""
    size = batch.bytes_estimate
    if size <= 0:
        size = values_bytes(batch.values)
        if batch.timestamps is not None:
            size += 8 * len(batch)
        if batch.kinds is not None:
            size += len(batch)
        batch.bytes_estimate = size = max(1, size)
    return size
