"""Conversion of rows to columns. The metadata of a ``pyarrow.RecordBatch`` say what its rows are: rows or tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.common.typeinfo import RowTypeInfo, TypeInformation
from firesteel.common.types import Row, RowKind
from firesteel.core.errors import TypeMismatchError
from firesteel.core.short_repr import short_repr
from firesteel.expressions.schema import schema_of
from firesteel.expressions.values import RECORDS, ROW, TUPLE, arrow_schema, column_of, fitted
from firesteel.runtime.records.batch import Batch, Timestamps
from firesteel.runtime.records.copies import COPIES

Stamps = npt.NDArray[np.int64] | None
"""Timestamps beside columns: contiguous, one for each row; None = no timestamps."""


class StreamColumns:
    """The columns of a stream whose declared type has fields that can all be Arrow columns.

    Attributes:
        names: names of the columns.
        types: declared types of the fields.
        schema: schema of the stream's batches.
    """

    def __init__(self, type_info: TypeInformation) -> None:
        columns = schema_of(type_info)
        assert columns is not None
        self.names, self.types = tuple(columns), tuple(columns.values())
        self.schema = arrow_schema(type_info, {RECORDS: ROW if isinstance(type_info, RowTypeInfo) else TUPLE})

    def from_records(self, records: Sequence[Any]) -> pa.RecordBatch:
        """Convert rows or tuples to a batch of columns.

        Raises:
            TypeMismatchError: a value does not fit; names the field.
        """
        if not records:
            return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in self.schema], schema=self.schema)
        for record in records:
            if record.__class__ is Row and record.get_row_kind() is not RowKind.INSERT:
                raise TypeMismatchError("", "+I", short_repr(record), "columns hold rows of the kind +I only")
        values = zip(*records, strict=True)
        arrays = [column_of(*column) for column in zip(values, self.names, self.types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def from_rows(self, batch: Batch) -> Batch:
        """Convert a batch to columns; returns the batch itself if it has columns already.

        Raises:
            TypeMismatchError: a value does not fit; names the field.
        """
        if not isinstance(batch.values, list):
            return batch
        kinds = None if batch.kinds is None else np.array(batch.kinds, np.int8)
        return Batch(self.from_records(batch.values), as_array(batch.timestamps), kinds)

    def fitted(self, batch: pa.RecordBatch, what: str) -> pa.RecordBatch:
        """Fit a batch that user code or a connector has made: select its columns, and cast them to the declared types.

        Args:
            batch: the batch. Columns are found by name, and there may be others; if no name matches and the number of
                columns is right, they are found by position.
            what: text for errors that says where the batch comes from.

        Raises:
            TypeMismatchError: a column is missing or does not fit; names field, type and a value.
        """
        if batch.num_columns == len(self.names) and not set(batch.schema.names) & set(self.names):
            batch = batch.rename_columns(list(self.names))
        arrays = []
        for name, type_info, field in zip(self.names, self.types, self.schema, strict=True):
            index = batch.schema.get_field_index(name)
            if index < 0:
                shown = f"the columns {', '.join(batch.schema.names)}"
                raise TypeMismatchError(name, str(type_info), shown, f"{what} has no column {name!r}, or several")
            arrays.append(_fitted(batch.column(index), name, type_info, field.type, what))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def matches(self, batch: pa.RecordBatch) -> bool:
        """Whether a batch has exactly these columns."""
        return bool(batch.schema.equals(self.schema, check_metadata=True))


def _fitted(column: pa.Array, name: str, type_info: TypeInformation, declared: pa.DataType, what: str) -> pa.Array:
    if column.type == declared:
        return column
    try:
        return fitted(column, declared)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        for index in range(len(column)):
            try:
                fitted(column.slice(index, 1), declared)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as reason:
                shown = f"{short_repr(column[index].as_py())} ({column.type})"
                raise TypeMismatchError(name, str(type_info), shown, f"in {what}: {reason}") from None
        raise TypeMismatchError(name, str(type_info), f"a column of {column.type}", f"in {what}: {error}") from None


def take(batch: Batch, chosen: npt.NDArray[np.intp]) -> Batch:
    """Copy the rows at these positions of a batch of columns, in this order."""
    rows = columns_of(batch).take(pa.array(chosen))
    COPIES.bytes += rows.nbytes
    stamps, kinds = as_array(batch.timestamps), batch.kinds
    if stamps is not None:
        COPIES.bytes += 8 * len(chosen)
        stamps = stamps[chosen]
    return Batch(rows, stamps, None if kinds is None else np.asarray(kinds, np.int8)[chosen])


def columns_of(batch: Batch) -> pa.RecordBatch:
    """The values of a batch that is known to have columns."""
    values = batch.values
    assert isinstance(values, pa.RecordBatch)
    return values


def as_array(stamps: Timestamps) -> Stamps:
    """Timestamps in the form that goes with columns: a contiguous array."""
    return None if stamps is None else np.ascontiguousarray(stamps, np.int64)
