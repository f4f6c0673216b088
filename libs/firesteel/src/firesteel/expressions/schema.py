"""Types of the DataStream API as types of Arrow: in the columns of streams, and in files that hold columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from firesteel.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    LocalTimeTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)

TIMESTAMP = pa.timestamp("us")
INSTANT = pa.timestamp("us", tz="UTC")
TIME = pa.time64("us")
BIG_INT = pa.decimal256(76, 0)
BIG_DEC = pa.large_string()
"""Decimal numbers stand as text, since they keep all their digits and zeros; no text of programs has this type."""
Digits = Any
"""Precision and scale of the decimal numbers in a declared type: a pair; a list with an entry for each field of a row,
or for key and value of a map; for an array what its elements have. None = none are declared."""
_MOST_DIGITS: Final = (38, 18)
"""What decimal numbers have in Flink whose type declares no digits."""


@dataclass(frozen=True)
class Layout:
    """Where columns of streams and those of files differ.

    Attributes:
        exact: values keep all they have, or are refused. Otherwise decimal numbers have the digits of their type and
            are rounded to those that it declares, instants are cut to microseconds, and times of a zone are in UTC.
        timestamp: the type of timestamps without a zone.
    """

    exact: bool
    timestamp: pa.DataType = TIMESTAMP


STREAM: Final = Layout(exact=True)
FILE: Final = Layout(exact=False)
UTC_FILE: Final = Layout(exact=False, timestamp=INSTANT)
"""Timestamps without a zone are marked as UTC."""
_BASIC: dict[BasicType, pa.DataType] = {
    BasicType.BOOLEAN: pa.bool_(),
    BasicType.BYTE: pa.int8(),
    BasicType.SHORT: pa.int16(),
    BasicType.INT: pa.int32(),
    BasicType.LONG: pa.int64(),
    BasicType.FLOAT: pa.float32(),
    BasicType.DOUBLE: pa.float64(),
    BasicType.STRING: pa.string(),
    BasicType.CHAR: pa.string(),
    BasicType.BIG_INT: BIG_INT,
    BasicType.BIG_DEC: BIG_DEC,
    BasicType.INSTANT: INSTANT,
}
_OTHERS: list[tuple[TypeInformation, pa.DataType]] = [
    (Types.INSTANT(), INSTANT),
    (Types.SQL_DATE(), pa.date32()),
    (Types.SQL_TIME(), TIME),
    (Types.SQL_TIMESTAMP(), TIMESTAMP),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), pa.binary()),
]


def unwrapped(type_info: TypeInformation) -> TypeInformation:
    """The type inside a type of the Table API."""
    while isinstance(type_info, ExternalTypeInfo):
        type_info = type_info.type_info
    return type_info


def is_bytes(type_info: TypeInformation) -> bool:
    """Whether it is ``PRIMITIVE_ARRAY(BYTE())``, Python's ``bytes``."""
    return isinstance(type_info, PrimitiveArrayTypeInfo) and type_info.element_type == Types.BYTE()


def element_type(type_info: TypeInformation) -> TypeInformation | None:
    """The type of the elements of a list or array that is no byte array; None = it is something else."""
    if isinstance(type_info, (BasicArrayTypeInfo, ListTypeInfo, ObjectArrayTypeInfo)):
        return type_info.element_type
    if isinstance(type_info, PrimitiveArrayTypeInfo) and not is_bytes(type_info):
        return type_info.element_type
    return None


def arrow_type(type_info: TypeInformation, layout: Layout = STREAM, digits: Digits = None) -> pa.DataType | None:
    """The Arrow type of a declared type; None if its values can't stand in a column (they stay Python objects).

    Args:
        type_info: the type.
        layout: of the place that the columns are in.
        digits: of its decimal numbers; count in files only.
    """
    type_info = unwrapped(type_info)
    if isinstance(type_info, BasicTypeInfo):
        if not layout.exact and type_info.basic_type is BasicType.BIG_DEC:
            return pa.decimal128(*(digits or _MOST_DIGITS))
        if not layout.exact and type_info.basic_type is BasicType.BIG_INT:
            return pa.decimal128(_MOST_DIGITS[0], 0)
        return _BASIC[type_info.basic_type]
    if isinstance(type_info, DateTypeInfo):
        return pa.date32()
    if isinstance(type_info, TimeTypeInfo):
        return TIME
    if isinstance(type_info, TimestampTypeInfo):
        return layout.timestamp
    if isinstance(type_info, LocalTimeTypeInfo):
        kinds = LocalTimeTypeInfo.TimeType
        return {kinds.LOCAL_DATE: pa.date32(), kinds.LOCAL_TIME: TIME}.get(type_info.time_type, layout.timestamp)
    if is_bytes(type_info):
        return pa.binary()
    return _nested(type_info, layout, digits)


def parts_of(digits: Digits, count: int) -> list[Digits]:
    """The digits of each of the parts of a row or map."""
    return list(digits) if digits else [None] * count


def _nested(type_info: TypeInformation, layout: Layout, digits: Digits) -> pa.DataType | None:
    elements = element_type(type_info)
    if elements is not None:
        inner = arrow_type(elements, layout, digits)
        return None if inner is None else pa.list_(inner)
    if isinstance(type_info, MapTypeInfo):
        of_key, of_item = parts_of(digits, 2)
        key, item = arrow_type(type_info.key_type, layout, of_key), arrow_type(type_info.value_type, layout, of_item)
        return None if key is None or item is None else pa.map_(key, item)
    columns = schema_of(type_info)
    if columns is None:
        return None
    pairs = zip(columns.items(), parts_of(digits, len(columns)), strict=True)
    fields = [(name, arrow_type(field, layout, of)) for (name, field), of in pairs]
    return None if any(field is None for _, field in fields) else pa.struct(fields)


def type_info_of(data_type: pa.DataType) -> TypeInformation:
    """The declared type of a column; that of nested ones has to be known from elsewhere.

    Raises:
        TypeError: no declared type has such columns.
    """
    for basic, known in _BASIC.items():
        if known == data_type and basic is not BasicType.INSTANT:
            return BasicTypeInfo(basic)
    for type_info, known in _OTHERS:
        if known == data_type:
            return type_info
    raise TypeError(f"columns of the type {data_type} have no declared type")


def is_nested(data_type: pa.DataType) -> bool:
    """Whether values have parts: lists, maps, rows, tuples."""
    return bool(pt.is_nested(data_type))


def field_names(type_info: TypeInformation) -> tuple[str, ...] | None:
    """Names of the columns of a stream of this type; None if its records have no fields."""
    if isinstance(type_info, RowTypeInfo):
        return type_info.field_names
    if isinstance(type_info, TupleTypeInfo):
        return tuple(f"f{index}" for index in range(len(type_info.field_types)))
    return None


def schema_of(type_info: TypeInformation) -> dict[str, TypeInformation] | None:
    """Columns of a stream of this type, in order; None if its records have no fields."""
    names = field_names(type_info)
    if names is None or not isinstance(type_info, RowTypeInfo | TupleTypeInfo):
        return None
    return dict(zip(names, type_info.field_types, strict=True))


def uncolumnar(type_info: TypeInformation) -> str | None:
    """Why a stream of this type has no columns; None if it has."""
    columns = schema_of(type_info)
    if columns is None:
        return f"its type is {type_info}, which has no fields"
    if not columns:
        return "its records have no fields"
    for name, field in columns.items():
        if arrow_type(field) is None:
            return f"its field {name!r} is {field}, which can't stand in a column"
    return None
