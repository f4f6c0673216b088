"""Reads many JSON objects as columns by Arrow, if it reads them as ``json_values`` does.

Checks before and after find what Arrow reads differently. Then the result is None: the caller reads the objects one by
one, and finds their errors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json
import pyarrow.types as pt

from firesteel.common.type_table import Absent, ScalarRow, Shape, parts_of, resolved, scalar_of, unwrapped
from firesteel.common.typeinfo import RowTypeInfo, TypeInformation
from firesteel.connectors.formats.csv_columns import OddTextError, column_reader
from firesteel.expressions.schema import arrow_type
from firesteel.expressions.values import RECORDS, ROW, arrow_schema

_NEWLINE, _OPEN, _CLOSE = b"\n{}"
_NO_NUMBER: Final = re.compile(rb"[:,\[]\s*-?(?:NaN|Inf)")
"""Words that Arrow takes for numbers, and that are not JSON."""


class JsonColumns:
    """Reads objects of a row type.

    Args:
        row_type: row type for which ``reads`` is true.
        fail_on_missing_field: treat an object without one of the fields as malformed.
    """

    def __init__(self, row_type: RowTypeInfo, *, fail_on_missing_field: bool) -> None:
        self._names, self._types = row_type.field_names, row_type.field_types
        self._schema = arrow_schema(row_type, {RECORDS: ROW})
        self._complete = fail_on_missing_field
        read = [(name, _read_as(declared)) for name, declared in zip(self._names, self._types, strict=True)]
        self._options = pa_json.ParseOptions(explicit_schema=pa.schema(read), unexpected_field_behavior="ignore")

    @staticmethod
    def reads(declared: TypeInformation, *, fail_on_missing_field: bool) -> bool:
        """Whether objects of this type can be read as columns."""
        row_type = unwrapped(declared)
        if not isinstance(row_type, RowTypeInfo) or not row_type.field_names:
            return False
        if fail_on_missing_field and any(scalar_of(field) is None for field in row_type.field_types):
            return False  # inside of values a missing field looks like null
        return all(_read_as(field) is not None for field in row_type.field_types)

    def read(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """One row for each message; None = read them one by one."""
        data = b"\n".join(messages)
        if not _plain(data, len(messages)):
            return None
        options = pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1)
        try:
            table = pa_json.read_json(pa.BufferReader(data), options, self._options)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if table.num_rows != len(messages):
            return None
        try:
            arrays = [self._column(number, table) for number in range(len(self._names))]
        except (pa.ArrowInvalid, OddTextError):
            return None
        if self._complete and any(array.null_count for array in arrays):
            return None
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, number: int, table: pa.Table) -> pa.Array:
        read, declared = table.column(self._names[number]).combine_chunks(), self._schema.field(number).type
        if isinstance(read, pa.ChunkedArray):  # there are no rows, or several chunks
            read = pa.concat_arrays(read.chunks)
        if read.type == declared:
            return read
        if pt.is_float32(declared):
            narrow = read.cast(declared, safe=False)
            if not pc.all(pc.is_finite(narrow), skip_nulls=True, min_count=0).as_py():
                raise OddTextError
            return narrow
        reader = column_reader(self._types[number])
        assert reader is not None
        return reader(read)


def _read_as(declared: TypeInformation) -> pa.DataType | None:
    """The type that Arrow shall read; None if Arrow does not read values of the declared type exactly."""
    row = scalar_of(declared)
    if row is None or isinstance(row.arrow_parses, Absent):
        return _exact(declared)
    return {"moment": pa.string(), "floating": pa.float64()}.get(row.arrow_parses, arrow_type(declared))


def _exact(declared: TypeInformation) -> pa.DataType | None:
    """The type as which Arrow reads parts of values, if it reads them exactly; None if it does not."""
    declared, row = resolved(declared)
    data_type = arrow_type(declared)
    if isinstance(row, ScalarRow):
        exact = row.arrow_parses in ("text", "integer", "boolean") or pt.is_float64(data_type)
    else:
        parts = parts_of(declared)
        exact = row.shape in (Shape.ROW, Shape.LIST) and all(_exact(part) is not None for part in parts) and bool(parts)
    return data_type if exact else None


def _plain(data: bytes, count: int) -> bool:
    """Whether each message is one object on one line of UTF-8, without words that Arrow takes for numbers.

    If each message begins and ends with a brace, and there are as many rows as messages, each message is one object.
    """
    raw: Any = np.frombuffer(data, np.uint8)
    newlines = np.flatnonzero(raw == _NEWLINE)
    if len(newlines) != count - 1 or not len(raw) or raw[0] != _OPEN or raw[-1] != _CLOSE:
        return False
    if not ((raw[newlines - 1] == _CLOSE).all() and (raw[newlines + 1] == _OPEN).all()):
        return False
    if not data.isascii():
        try:
            str(data, "utf-8")  # Arrow does not check fields that it skips
        except UnicodeDecodeError:
            return False
    return not ((b"NaN" in data or b"Inf" in data) and _NO_NUMBER.search(data))
