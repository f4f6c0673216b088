"""Types of the DataStream API as types of Arrow, and rows as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from firesteel.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    LocalTimeTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from firesteel.core.errors import TypeMismatchError
from firesteel.core.short_repr import short_repr

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
}
TIMESTAMP = pa.timestamp("us")
TIME = pa.time64("us")
_OTHERS: list[tuple[TypeInformation, pa.DataType]] = [
    (Types.SQL_DATE(), pa.date32()),
    (Types.SQL_TIME(), TIME),
    (Types.SQL_TIMESTAMP(), TIMESTAMP),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), pa.binary()),
]


def arrow_type(type_info: TypeInformation) -> pa.DataType | None:
    """The Arrow type of a declared type; None if its values can't stand in a column (they stay Python objects)."""
    if isinstance(type_info, BasicTypeInfo):
        return _BASIC.get(type_info.basic_type)
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
    return None


def type_info_of(data_type: pa.DataType) -> TypeInformation:
    """The declared type of a column.

    Raises:
        TypeError: no declared type has such columns.
    """
    for basic, known in _BASIC.items():
        if known == data_type:
            return BasicTypeInfo(basic)
    for type_info, known in _OTHERS:
        if known == data_type:
            return type_info
    raise TypeError(f"columns of the type {data_type} have no declared type")


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


def column_of(values: Sequence[Any], name: str, type_info: TypeInformation) -> pa.Array:
    """A column of Python values.

    Raises:
        TypeMismatchError: a value does not fit the type; names the column.
    """
    data_type = arrow_type(type_info)
    assert data_type is not None
    try:
        return pa.array(values, type=data_type, from_pandas=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as error:
        for value in values:
            try:
                pa.array([value], type=data_type, from_pandas=False)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as reason:
                shown = f"{short_repr(value)} ({type(value).__name__})"
                raise TypeMismatchError(name, str(type_info), shown, str(reason)) from None
        raise TypeMismatchError(name, str(type_info), "a batch", str(error)) from None
