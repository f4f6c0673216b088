"""The columns in which streams hold values of SQL's types."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from firesteel.common.typeinfo import DecimalTypeInfo, TypeInformation, Types
from firesteel.core.errors import UnsupportedFeatureError
from firesteel.expressions.schema import arrow_type
from firesteel.table.types import DataType, ElementsType, MapType, RowType, to_type_info
from firesteel_sql.types.intervals import DAY_TIME, YEAR_MONTH

MICROSECONDS: Final = 6
"""Digits behind the second that columns of timestamps hold."""


def type_info_of(data_type: DataType) -> TypeInformation:
    """The type of the values in a stream.

    Raises:
        UnsupportedFeatureError: streams hold no such values: timestamps finer than microseconds.
    """
    match data_type:
        case RowType():
            return Types.ROW_NAMED(
                data_type.field_names(), [type_info_of(field_type) for field_type in data_type.field_types()]
            )
        case MapType():
            return Types.MAP(type_info_of(data_type.key_type), type_info_of(data_type.value_type))
        case ElementsType(name="ARRAY"):
            return Types.OBJECT_ARRAY(type_info_of(data_type.element_type))
        case ElementsType():
            return Types.MAP(type_info_of(data_type.element_type), Types.INT())
    if data_type.name == "DECIMAL":
        return DecimalTypeInfo(*data_type.parameters)
    if data_type.name in (YEAR_MONTH.name, DAY_TIME.name):
        return Types.LONG()
    if data_type.name in ("TIME", "TIMESTAMP", "TIMESTAMP_LTZ") and data_type.parameters[0] > MICROSECONDS:
        raise UnsupportedFeatureError(f"{data_type}: streams hold times to the microsecond, with a precision of 6")
    if data_type.name == "NULL":
        return Types.BOOLEAN()
    return to_type_info(data_type)


def arrow_of(data_type: DataType) -> pa.DataType:
    """The Arrow type of the columns of a type.

    Raises:
        UnsupportedFeatureError: there are no such columns.
    """
    found = arrow_type(type_info_of(data_type))
    assert found is not None
    return found
