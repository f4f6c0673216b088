"""Rows as columns and back. A ``pyarrow.RecordBatch`` says in its metadata what its rows are to Python functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.common.typeinfo import RowTypeInfo, TypeInformation
from firesteel.core.errors import TypeMismatchError
from firesteel.core.short_repr import short_repr
from firesteel.expressions.schema import arrow_type, column_of, schema_of

RECORDS: Final = b"firesteel.records"
"""Key of the metadata: ``row`` or ``tuple``."""
ROW, TUPLE = b"row", b"tuple"
Stamps = list[int] | None


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
        fields = [(name, arrow_type(field)) for name, field in columns.items()]
        kind = ROW if isinstance(type_info, RowTypeInfo) else TUPLE
        self.schema = pa.schema(fields, metadata={RECORDS: kind})

    def from_records(self, records: Sequence[Any]) -> pa.RecordBatch:
        """A batch of rows or tuples.

        Raises:
            TypeMismatchError: a value does not fit; names the field.
        """
        if not records:
            return pa.RecordBatch.from_pylist([], self.schema)
        values = zip(*records, strict=True)
        arrays = [column_of(*given) for given in zip(values, self.names, self.types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

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
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        for index in range(len(column)):
            try:
                column.slice(index, 1).cast(wanted)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as reason:
                shown = f"{short_repr(column[index].as_py())} ({column.type})"
                raise TypeMismatchError(name, str(type_info), shown, f"in {what}: {reason}") from None
        raise TypeMismatchError(name, str(type_info), f"a column of {column.type}", f"in {what}: {error}") from None


def take(batch: pa.RecordBatch, stamps: Stamps, chosen: npt.NDArray[np.intp]) -> tuple[pa.RecordBatch, Stamps]:
    """Some rows, in the order of their positions, with their timestamps."""
    return batch.take(pa.array(chosen)), None if stamps is None else [stamps[index] for index in chosen.tolist()]
