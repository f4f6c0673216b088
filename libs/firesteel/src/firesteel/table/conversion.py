"""From ``DataTypes`` to ``Types`` and back.

A ``DataType`` says more than a ``TypeInformation`` does: lengths, precision, whether NULL may be there. That is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from firesteel.common.typeinfo import (
    BasicArrayTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from firesteel.core.errors import UnsupportedFeatureError
from firesteel.table.types import DataType, DataTypes, ElementsType, MapType, RowType

__all__ = ["from_type_info", "to_type_info"]

_BY_NAME: Final[Mapping[str, TypeInformation]] = {
    "CHAR": Types.STRING(),
    "VARCHAR": Types.STRING(),
    "BOOLEAN": Types.BOOLEAN(),
    "BINARY": Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "VARBINARY": Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "DECIMAL": Types.BIG_DEC(),
    "TINYINT": Types.BYTE(),
    "SMALLINT": Types.SHORT(),
    "INT": Types.INT(),
    "BIGINT": Types.LONG(),
    "FLOAT": Types.FLOAT(),
    "DOUBLE": Types.DOUBLE(),
    "DATE": Types.SQL_DATE(),
    "TIME": Types.SQL_TIME(),
    "TIMESTAMP": Types.SQL_TIMESTAMP(),
    "TIMESTAMP_LTZ": Types.INSTANT(),
}
_BACK: Final[Sequence[tuple[TypeInformation, DataType]]] = (
    (Types.STRING(), DataTypes.STRING()),
    (Types.CHAR(), DataTypes.CHAR(1)),
    (Types.BOOLEAN(), DataTypes.BOOLEAN()),
    (Types.BYTE(), DataTypes.TINYINT()),
    (Types.SHORT(), DataTypes.SMALLINT()),
    (Types.INT(), DataTypes.INT()),
    (Types.LONG(), DataTypes.BIGINT()),
    (Types.FLOAT(), DataTypes.FLOAT()),
    (Types.DOUBLE(), DataTypes.DOUBLE()),
    (Types.BIG_INT(), DataTypes.DECIMAL(38, 0)),
    (Types.BIG_DEC(), DataTypes.DECIMAL(38, 18)),
    (Types.SQL_DATE(), DataTypes.DATE()),
    (Types.SQL_TIME(), DataTypes.TIME()),
    (Types.SQL_TIMESTAMP(), DataTypes.TIMESTAMP(3)),
    (Types.INSTANT(), DataTypes.TIMESTAMP_LTZ(9)),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), DataTypes.BYTES()),
)


def to_type_info(data_type: DataType) -> TypeInformation:
    """The ``TypeInformation`` of a type; lengths, precision and NOT NULL are lost.

    Raises:
        UnsupportedFeatureError: there is none (NULL).
    """
    match data_type:
        case RowType():
            return Types.ROW_NAMED(data_type.field_names(), [to_type_info(one) for one in data_type.field_types()])
        case MapType():
            return Types.MAP(to_type_info(data_type.key_type), to_type_info(data_type.value_type))
        case ElementsType(name="ARRAY"):
            return Types.OBJECT_ARRAY(to_type_info(data_type.element_type))
        case ElementsType():
            return Types.MAP(to_type_info(data_type.element_type), Types.INT())
    found = _BY_NAME.get(data_type.name)
    if found is None:
        raise UnsupportedFeatureError(f"{data_type} has no TypeInformation: streams have no type for it")
    return found


def from_type_info(type_info: TypeInformation) -> DataType:
    """The type of a ``TypeInformation``, with NULL and the largest length and precision.

    Raises:
        UnsupportedFeatureError: there is none (pickled objects).
    """
    match type_info:
        case RowTypeInfo():
            pairs = zip(type_info.get_field_names(), type_info.get_field_types(), strict=True)
            return DataTypes.ROW([DataTypes.FIELD(name, from_type_info(one)) for name, one in pairs])
        case TupleTypeInfo():
            types = type_info.get_field_types()
            return DataTypes.ROW([DataTypes.FIELD(f"f{i}", from_type_info(one)) for i, one in enumerate(types)])
        case MapTypeInfo():
            return DataTypes.MAP(from_type_info(type_info.key_type), from_type_info(type_info.value_type))
        case ExternalTypeInfo():
            return from_type_info(type_info.type_info)
    for known, data_type in _BACK:
        if known == type_info:
            return data_type
    if isinstance(type_info, ListTypeInfo | ObjectArrayTypeInfo | BasicArrayTypeInfo | PrimitiveArrayTypeInfo):
        return DataTypes.ARRAY(from_type_info(type_info.element_type))
    raise UnsupportedFeatureError(f"{type_info} is no type of SQL: declare the fields, such as with Types.ROW_NAMED")
