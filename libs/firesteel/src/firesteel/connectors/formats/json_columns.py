"""JSON objects as columns, many at once, by Arrow, where it reads them as ``json_values`` does.

What Arrow reads in another way is found before or behind it, and then the answer is None: the objects have to be read
one by one, and errors are found there.
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

from firesteel.common.typeinfo import BasicType, BasicTypeInfo, RowTypeInfo, TypeInformation
from firesteel.connectors.formats.csv_columns import OddTextError, moments_of
from firesteel.connectors.formats.type_texts import INTEGERS
from firesteel.expressions.schema import arrow_type, element_type, unwrapped
from firesteel.expressions.values import RECORDS, ROW, arrow_schema

_NEWLINE, _OPEN, _CLOSE = b"\n{}"
_NO_NUMBER: Final = re.compile(rb"[:,\[]\s*-?(?:NaN|Inf)")
"""Arrow takes these for numbers; they are not JSON."""
_BASIC: Final = (*INTEGERS, BasicType.DOUBLE, BasicType.BOOLEAN, BasicType.STRING)


class JsonColumns:
    """Reads objects of a row type.

    Args:
        row_type: for which ``reads`` is true.
        fail_on_missing_field: an object without one of the fields is malformed.
    """

    def __init__(self, row_type: RowTypeInfo, *, fail_on_missing_field: bool) -> None:
        self._names, self._types = row_type.field_names, [unwrapped(one) for one in row_type.field_types]
        self._schema = arrow_schema(row_type, {RECORDS: ROW})
        self._complete = fail_on_missing_field
        read = [(name, _read_as(one)) for name, one in zip(self._names, self._types, strict=True)]
        self._options = pa_json.ParseOptions(explicit_schema=pa.schema(read), unexpected_field_behavior="ignore")

    @staticmethod
    def reads(declared: TypeInformation, *, fail_on_missing_field: bool) -> bool:
        """Whether values of this type can be read so."""
        row_type = unwrapped(declared)
        if not isinstance(row_type, RowTypeInfo) or not row_type.field_names:
            return False
        types = [unwrapped(one) for one in row_type.field_types]
        if fail_on_missing_field and any(
            isinstance(one, RowTypeInfo) or element_type(one) is not None for one in types
        ):
            return False  # whether something deep inside is missing could not be told from null
        return all(_read_as(one) is not None for one in types)

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
        read, wanted = table.column(self._names[number]).combine_chunks(), self._schema.field(number).type
        if isinstance(read, pa.ChunkedArray):  # of no rows, or of several pieces
            read = pa.concat_arrays(read.chunks)
        if read.type == wanted:
            return read
        if pt.is_float32(wanted):
            narrow = read.cast(wanted, safe=False)
            if not pc.all(pc.is_finite(narrow), skip_nulls=True, min_count=0).as_py():
                raise OddTextError
            return narrow
        moments = moments_of(self._types[number])
        assert moments is not None
        return moments(read)


def _read_as(declared: TypeInformation) -> pa.DataType | None:
    """What Arrow is to read; None = a type whose values it does not read as they are."""
    if isinstance(declared, BasicTypeInfo) and declared.basic_type is BasicType.FLOAT:
        return pa.float64()
    if moments_of(declared) is not None:
        return pa.string()
    return _exact(declared)


def _exact(declared: TypeInformation) -> pa.DataType | None:
    declared = unwrapped(declared)
    if isinstance(declared, BasicTypeInfo):
        return arrow_type(declared) if declared.basic_type in _BASIC else None
    if isinstance(declared, RowTypeInfo):
        fits = declared.field_names and all(_exact(one) is not None for one in declared.field_types)
        return arrow_type(declared) if fits else None
    inner = element_type(declared)
    return None if inner is None or _exact(inner) is None else arrow_type(declared)


def _plain(data: bytes, count: int) -> bool:
    """Whether each message is one object on one line of UTF-8, and no word is in it that Arrow takes for a number.

    Each begins with a brace and ends with one, and there are as many rows as messages: so each is one object.
    """
    raw: Any = np.frombuffer(data, np.uint8)
    newlines = np.flatnonzero(raw == _NEWLINE)
    if len(newlines) != count - 1 or not len(raw) or raw[0] != _OPEN or raw[-1] != _CLOSE:
        return False
    if not ((raw[newlines - 1] == _CLOSE).all() and (raw[newlines + 1] == _OPEN).all()):
        return False
    if not data.isascii():
        try:
            str(data, "utf-8")  # also what is passed over is UTF-8
        except UnicodeDecodeError:
            return False
    return not ((b"NaN" in data or b"Inf" in data) and _NO_NUMBER.search(data))
