"""Rows as columns and back. A ``pyarrow.RecordBatch`` says in its metadata what its rows are to Python functions."""

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
    """The columns of a stream whose type has fields, all of which can stand in columns.

    Attributes:
        names: of the columns.
        types: declared types of the fields.
        schema: of its batches.
    """

    def __init__(self, type_info: TypeInformation) -> None:
        columns = schema_of(type_info)
        assert columns is not None
        self.names, self.types = tuple(columns), tuple(columns.values())
        self.schema = arrow_schema(type_info, {RECORDS: ROW if isinstance(type_info, RowTypeInfo) else TUPLE})

    def from_records(self, records: Sequence[Any]) -> pa.RecordBatch:
        """A batch of rows or tuples.

        Raises:
            TypeMismatchError: a value does not fit; names the field.
        """
        if not records:
            return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in self.schema], schema=self.schema)
        for record in records:
            if record.__class__ is Row and record.get_row_kind() is not RowKind.INSERT:
                raise TypeMismatchError("", "+I", short_repr(record), "columns hold rows of the kind +I only")
        values = zip(*records, strict=True)
        arrays = [column_of(*given) for given in zip(values, self.names, self.types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def from_rows(self, batch: Batch) -> Batch:
        """A batch of columns; itself if it is one already.

        Raises:
            TypeMismatchError: a value does not fit; names the field.
        """
        if not isinstance(batch.values, list):
            return batch
        kinds = None if batch.kinds is None else np.array(batch.kinds, np.int8)
        return Batch(self.from_records(batch.values), as_array(batch.timestamps), kinds)

    def fitted(self, batch: pa.RecordBatch, what: str) -> pa.RecordBatch:
        """A batch of somebody else's; columns of other types are brought to the declared ones.

        Args:
            batch: columns are found by name, and there may be more of them; if none has its name and their number is
                right, by position.
            what: where it is from, for errors.

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
        """Whether a batch has these columns as they are."""
        return bool(batch.schema.equals(self.schema, check_metadata=True))


def _fitted(column: pa.Array, name: str, type_info: TypeInformation, wanted: pa.DataType, what: str) -> pa.Array:
    if column.type == wanted:
        return column
    try:
        return fitted(column, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        for index in range(len(column)):
            try:
                fitted(column.slice(index, 1), wanted)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as reason:
                shown = f"{short_repr(column[index].as_py())} ({column.type})"
                raise TypeMismatchError(name, str(type_info), shown, f"in {what}: {reason}") from None
        raise TypeMismatchError(name, str(type_info), f"a column of {column.type}", f"in {what}: {error}") from None


def take(batch: Batch, chosen: npt.NDArray[np.intp]) -> Batch:
    """Some rows of a batch of columns, in the order of their positions."""
    taken = columns_of(batch).take(pa.array(chosen))
    COPIES.bytes += taken.nbytes
    stamps, kinds = as_array(batch.timestamps), batch.kinds
    if stamps is not None:
        COPIES.bytes += 8 * len(chosen)
        stamps = stamps[chosen]
    return Batch(taken, stamps, None if kinds is None else np.asarray(kinds, np.int8)[chosen])


def columns_of(batch: Batch) -> pa.RecordBatch:
    """The values of a batch of columns."""
    values = batch.values
    assert isinstance(values, pa.RecordBatch)
    return values


def as_array(stamps: Timestamps) -> Stamps:
    """Timestamps as they stand beside columns."""
    return None if stamps is None else np.ascontiguousarray(stamps, np.int64)
