"""Columns become rows at the door of a chain whose functions take one record at a time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from firesteel.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from firesteel.common.types import make_row
from firesteel.runtime.batch import Values
from firesteel.runtime.columns import RECORDS, ROW, TUPLE


def to_records(values: Values, declared: TypeInformation | None = None) -> list[Any]:
    """The records of a batch.

    Args:
        values: a list is returned as it is.
        declared: what columns mean: a row type gives ``Row``, a tuple type tuples. Without it the batch's own metadata
            says so; where there is none, one column gives its values, several give tuples.
    """
    if not isinstance(values, pa.RecordBatch):
        return values
    columns = [_to_list(column) for column in values.columns]
    kind = (values.schema.metadata or {}).get(RECORDS) if declared is None else None
    if kind == ROW or isinstance(declared, RowTypeInfo):
        names = declared.field_names if isinstance(declared, RowTypeInfo) else tuple(values.schema.names)
        return [make_row(names, fields) for fields in zip(*columns, strict=True)]
    if len(columns) == 1 and kind != TUPLE and not isinstance(declared, TupleTypeInfo):
        return columns[0]
    return list(zip(*columns, strict=True))


def _to_list(column: Any) -> list[Any]:
    kind = column.type
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        plain: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return plain
    boxed: list[Any] = column.to_pylist()
    return boxed
