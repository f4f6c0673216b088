"""Types of the DataStream API as types of Arrow."""

from __future__ import annotations

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


def element_type(type_info: TypeInformation) -> TypeInformation | None:
    """The type of the elements of a list or array that is no byte array; None = it is something else."""
    if isinstance(type_info, (BasicArrayTypeInfo, ListTypeInfo, ObjectArrayTypeInfo)):
        return type_info.element_type
    if isinstance(type_info, PrimitiveArrayTypeInfo) and type_info.element_type != Types.BYTE():
        return type_info.element_type
    return None


def arrow_type(type_info: TypeInformation) -> pa.DataType | None:
    """The Arrow type of a declared type; None if its values can't stand in a column (they stay Python objects)."""
    type_info = unwrapped(type_info)
    if isinstance(type_info, BasicTypeInfo):
        return _BASIC[type_info.basic_type]
    if isinstance(type_info, DateTypeInfo):
        return pa.date32()
    if isinstance(type_info, TimeTypeInfo):
        return TIME
    if isinstance(type_info, TimestampTypeInfo):
        return TIMESTAMP
    if isinstance(type_info, LocalTimeTypeInfo):
        kinds = LocalTimeTypeInfo.TimeType
        return {kinds.LOCAL_DATE: pa.date32(), kinds.LOCAL_TIME: TIME}.get(type_info.time_type, TIMESTAMP)
    if isinstance(type_info, PrimitiveArrayTypeInfo) and type_info.element_type == Types.BYTE():
        return pa.binary()
    return _nested(type_info)


def _nested(type_info: TypeInformation) -> pa.DataType | None:
    elements = element_type(type_info)
    if elements is not None:
        inner = arrow_type(elements)
        return None if inner is None else pa.list_(inner)
    if isinstance(type_info, MapTypeInfo):
        key, item = arrow_type(type_info.key_type), arrow_type(type_info.value_type)
        return None if key is None or item is None else pa.map_(key, item)
    columns = schema_of(type_info)
    if columns is None:
        return None
    fields = [(name, arrow_type(field)) for name, field in columns.items()]
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
