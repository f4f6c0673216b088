"""Maps types of the DataStream API to types of Arrow, for columns of streams and for files with columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from firesteel.common.type_table import (
    SCALAR_BY_NAME,
    SCALARS,
    ArrowName,
    ScalarRow,
    Shape,
    field_names,
    parts_of,
    resolved,
)
from firesteel.common.typeinfo import DecimalTypeInfo, TypeInformation


def _data_type(name: ArrowName) -> pa.DataType:
    function, *arguments = name
    data_type: pa.DataType = getattr(pa, function)(*arguments)
    return data_type


_STREAM: Final = {row.name: _data_type(row.arrow) for row in SCALARS}
_FILE: Final = {row.name: _data_type(row.file_arrow or row.arrow) for row in SCALARS}
TIMESTAMP: Final = _STREAM["SQL_TIMESTAMP"]
INSTANT: Final = _STREAM["INSTANT"]
TIME: Final = _STREAM["SQL_TIME"]
BIG_INT: Final = _STREAM["BIG_INT"]
BIG_DEC: Final = _STREAM["BIG_DEC"]
"""Decimal numbers stand as text, since they keep all their digits and zeros; no text of programs has this type."""
Digits = Any
"""Precision and scale of the decimal numbers in a declared type: a pair; a list with an entry for each field of a row,
or for key and value of a map; for an array what its elements have. None = none are declared."""


@dataclass(frozen=True)
class Layout:
    """The choices in which columns of streams and of files differ.

    Attributes:
        exact: values keep everything, or are refused. Otherwise decimal numbers are rounded to the digits that their
            type declares, instants are cut to microseconds, and times of a zone are in UTC.
        timestamp: the type of timestamps without a zone.
    """

    exact: bool
    timestamp: pa.DataType = TIMESTAMP


STREAM: Final = Layout(exact=True)
FILE: Final = Layout(exact=False)
UTC_FILE: Final = Layout(exact=False, timestamp=INSTANT)
"""Timestamps without a zone are marked as UTC."""


def arrow_type(type_info: TypeInformation, layout: Layout = STREAM, digits: Digits = None) -> pa.DataType | None:
    """The Arrow type of a declared type; None if its values can't stand in a column (they stay Python objects).

    Args:
        type_info: the type.
        layout: of the place that the columns are in.
        digits: of its decimal numbers; count in files only.
    """
    type_info, row = resolved(type_info)
    if isinstance(row, ScalarRow):
        if layout.exact:
            return _STREAM.get(row.name) or _data_type(row.arrow)
        if row.form == "decimal" and digits:
            return pa.decimal128(*digits)
        data_type = _FILE.get(row.name) or _data_type(row.arrow)
        return layout.timestamp if data_type == TIMESTAMP else data_type
    types = parts_of(type_info)
    of_parts = [digits] if row.shape is Shape.LIST else digits_of_parts(digits, len(types))
    parts = [arrow_type(part, layout, part_digits) for part, part_digits in zip(types, of_parts, strict=True)]
    if any(part is None for part in parts):
        return None
    match row.shape:
        case Shape.LIST:
            return pa.list_(*parts)
        case Shape.MAP:
            return pa.map_(*parts)
        case Shape.ROW | Shape.TUPLE:
            return pa.struct(list(zip(field_names(type_info) or (), parts, strict=True)))
    return None


def digits_of_parts(digits: Digits, count: int) -> list[Digits]:
    """The digits of each of the parts of a row or map."""
    return list(digits) if digits else [None] * count


def type_info_of(data_type: pa.DataType) -> TypeInformation:
    """The declared type of a column; that of nested ones has to be known from elsewhere.

    Raises:
        TypeError: no declared type has such columns.
    """
    name = next((name for name, arrow in _STREAM.items() if arrow == data_type), None)
    if name is None and pt.is_decimal128(data_type):
        return DecimalTypeInfo(data_type.precision, data_type.scale)
    if name is None:
        raise TypeError(f"columns of the type {data_type} have no declared type")
    return SCALAR_BY_NAME[name].type_info  # type: ignore[no-any-return]


def is_nested(data_type: pa.DataType) -> bool:
    """Whether values have parts: lists, maps, rows, tuples."""
    return bool(pt.is_nested(data_type))


def schema_of(type_info: TypeInformation) -> dict[str, TypeInformation] | None:
    """Columns of a stream of this type, in order; None if its records have no fields."""
    names = field_names(type_info)
    return None if names is None else dict(zip(names, parts_of(type_info), strict=True))


def uncolumnar(type_info: TypeInformation) -> str | None:
    """The reason why a stream of this type has no columns, for an error; None if it has some."""
    columns = schema_of(type_info)
    if columns is None:
        return f"its type is {type_info}, which has no fields"
    if not columns:
        return "its records have no fields"
    for name, field in columns.items():
        if arrow_type(field) is None:
            return f"its field {name!r} is {field}, which can't stand in a column"
    return None
