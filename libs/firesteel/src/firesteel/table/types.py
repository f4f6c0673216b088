"""Descriptors of SQL types, and their conversion to ``Types`` and back. PyFlink's names and defaults.

A ``DataType`` has more properties than a ``TypeInformation``: lengths, precision, and whether NULL is allowed. The
conversion drops them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

from firesteel.common.type_table import LONGEST, SCALARS, Absent, Shape, field_names, parts_of, resolved
from firesteel.common.typeinfo import TypeInformation, Types
from firesteel.core.errors import UnsupportedFeatureError

__all__ = [
    "DataType",
    "DataTypes",
    "ElementsType",
    "MapType",
    "RowField",
    "RowType",
    "from_type_info",
    "to_type_info",
]


@dataclass(frozen=True)
class DataType:
    """A SQL type; this class stands for types that contain no other types.

    Attributes:
        name: name in SQL, such as ``VARCHAR``.
        parameters: lengths and precision, in the order of SQL.
        nullable: whether NULL is allowed.
    """

    name: str
    parameters: tuple[int, ...] = ()
    nullable: bool = True

    def not_null(self) -> DataType:
        """Returns the same type without NULL."""
        return replace(self, nullable=False)

    def nullable_(self) -> DataType:
        """Returns the same type with NULL."""
        return replace(self, nullable=True)

    def to_type_info(self) -> TypeInformation:
        """Returns the type information of the same values; lengths, precision and NOT NULL are dropped.

        Raises:
            UnsupportedFeatureError: there is no such type information (NULL).
        """
        return to_type_info(self)

    def _text(self) -> str:
        return self.name + (f"({', '.join(map(str, self.parameters))})" if self.parameters else "")

    def __str__(self) -> str:
        return self._text() + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True)
class ElementsType(DataType):
    """ARRAY or MULTISET: a type with elements of one type."""

    element_type: DataType = None  # type: ignore[assignment] # always given

    def _text(self) -> str:
        return f"{self.name}<{self.element_type}>"

    __str__ = DataType.__str__


@dataclass(frozen=True)
class MapType(DataType):
    """MAP: a type with keys and values."""

    key_type: DataType = None  # type: ignore[assignment] # always given
    value_type: DataType = None  # type: ignore[assignment]

    def _text(self) -> str:
        return f"MAP<{self.key_type}, {self.value_type}>"

    __str__ = DataType.__str__


@dataclass(frozen=True)
class RowField:
    """A field of a row type, from ``DataTypes.FIELD``."""

    name: str
    data_type: DataType
    description: str | None = None

    def __str__(self) -> str:
        name = self.name.replace("`", "``")
        description = "" if not self.description else " '" + self.description.replace("'", "''") + "'"
        return f"`{name}` {self.data_type}{description}"


@dataclass(frozen=True)
class RowType(DataType):
    """ROW: a type with named fields."""

    fields: tuple[RowField, ...] = ()

    def field_names(self) -> list[str]:
        """Returns the names, in order."""
        return [field.name for field in self.fields]

    def field_types(self) -> list[DataType]:
        """Returns the types, in order."""
        return [field.data_type for field in self.fields]

    def _text(self) -> str:
        return f"ROW<{', '.join(map(str, self.fields))}>"

    __str__ = DataType.__str__


class DataTypes:
    """Makes SQL types; ``nullable=False`` makes them NOT NULL."""

    @staticmethod
    def NULL() -> DataType:
        return DataType("NULL")

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> DataType:
        """Text of a fixed length."""
        return DataType("CHAR", (_bounded("length", length, 1, LONGEST),), nullable)

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> DataType:
        """Text up to a length."""
        return DataType("VARCHAR", (_bounded("length", length, 1, LONGEST),), nullable)

    @staticmethod
    def STRING(nullable: bool = True) -> DataType:
        """Text of any length."""
        return DataTypes.VARCHAR(LONGEST, nullable)

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> DataType:
        return DataType("BOOLEAN", (), nullable)

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> DataType:
        """Bytes of a fixed length."""
        return DataType("BINARY", (_bounded("length", length, 1, LONGEST),), nullable)

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> DataType:
        """Bytes up to a length."""
        return DataType("VARBINARY", (_bounded("length", length, 1, LONGEST),), nullable)

    @staticmethod
    def BYTES(nullable: bool = True) -> DataType:
        """Bytes of any length."""
        return DataTypes.VARBINARY(LONGEST, nullable)

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> DataType:
        """A decimal number with ``precision`` digits, ``scale`` of them behind the point."""
        _bounded("precision", precision, 1, 38)
        return DataType("DECIMAL", (precision, _bounded("scale", scale, 0, precision)), nullable)

    @staticmethod
    def TINYINT(nullable: bool = True) -> DataType:
        """A whole number of 8 bits."""
        return DataType("TINYINT", (), nullable)

    @staticmethod
    def SMALLINT(nullable: bool = True) -> DataType:
        """A whole number of 16 bits."""
        return DataType("SMALLINT", (), nullable)

    @staticmethod
    def INT(nullable: bool = True) -> DataType:
        """A whole number of 32 bits."""
        return DataType("INT", (), nullable)

    @staticmethod
    def BIGINT(nullable: bool = True) -> DataType:
        """A whole number of 64 bits."""
        return DataType("BIGINT", (), nullable)

    @staticmethod
    def FLOAT(nullable: bool = True) -> DataType:
        """A floating-point number of 32 bits."""
        return DataType("FLOAT", (), nullable)

    @staticmethod
    def DOUBLE(nullable: bool = True) -> DataType:
        """A floating-point number of 64 bits."""
        return DataType("DOUBLE", (), nullable)

    @staticmethod
    def DATE(nullable: bool = True) -> DataType:
        return DataType("DATE", (), nullable)

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> DataType:
        """A time of day with ``precision`` digits of the fraction of a second."""
        return DataType("TIME", (_bounded("precision", precision, 0, 9),), nullable)

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> DataType:
        """A date and time without time zone."""
        return DataType("TIMESTAMP", (_bounded("precision", precision, 0, 9),), nullable)

    @staticmethod
    def TIMESTAMP_WITH_LOCAL_TIME_ZONE(precision: int = 6, nullable: bool = True) -> DataType:
        """A point in time."""
        return DataType("TIMESTAMP_LTZ", (_bounded("precision", precision, 0, 9),), nullable)

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> DataType:
        """A point in time."""
        return DataTypes.TIMESTAMP_WITH_LOCAL_TIME_ZONE(precision, nullable)

    @staticmethod
    def ARRAY(element_type: DataType, nullable: bool = True) -> ElementsType:
        """Values of one type in order."""
        return ElementsType("ARRAY", (), nullable, _checked("element_type", element_type))

    @staticmethod
    def MULTISET(element_type: DataType, nullable: bool = True) -> ElementsType:
        """Values of one type, some of them several times."""
        return ElementsType("MULTISET", (), nullable, _checked("element_type", element_type))

    @staticmethod
    def MAP(key_type: DataType, value_type: DataType, nullable: bool = True) -> MapType:
        return MapType("MAP", (), nullable, _checked("key_type", key_type), _checked("value_type", value_type))

    @staticmethod
    def FIELD(name: str, data_type: DataType, description: str | None = None) -> RowField:
        """Makes a field for ``ROW``."""
        if not isinstance(name, str) or not name:
            raise TypeError(f"the name of a field is a text that is not empty, not {name!r}")
        return RowField(name, _checked("data_type", data_type), description)

    @staticmethod
    def ROW(row_fields: Sequence[RowField], nullable: bool = True) -> RowType:
        """A row with named fields.

        Raises:
            TypeError: an element is not a field made by ``FIELD``.
            ValueError: a name occurs twice.
        """
        fields = tuple(row_fields)
        for field in fields:
            if not isinstance(field, RowField):
                raise TypeError(f"ROW() takes fields made by DataTypes.FIELD(), not {type(field).__name__}")
        names = [field.name for field in fields]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"the field {twice!r} comes twice")
        return RowType("ROW", (), nullable, fields)

    @staticmethod
    def LIST_VIEW(element_type: DataType) -> NoReturn:
        """Refused: views belong to aggregate functions of the Table API."""
        raise UnsupportedFeatureError("LIST_VIEW: views belong to the Table API, which firesteel does not have")

    @staticmethod
    def MAP_VIEW(key_type: DataType, value_type: DataType) -> NoReturn:
        """Refused: views belong to aggregate functions of the Table API."""
        raise UnsupportedFeatureError("MAP_VIEW: views belong to the Table API, which firesteel does not have")


def _bounded(name: str, value: Any, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"the {name} is an int, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"the {name} must be between {least} and {most}, not {value}")
    return value


def _checked(name: str, data_type: Any) -> DataType:
    if not isinstance(data_type, DataType):
        hint = "; did you leave out the parentheses?" if callable(data_type) else ""
        raise TypeError(f"{name} is a DataType such as DataTypes.INT(), not {type(data_type).__name__}{hint}")
    return data_type


_BY_NAME: Final[Mapping[str, TypeInformation]] = {name: row.type_info for row in SCALARS for name in row.sql_names}


def to_type_info(data_type: DataType) -> TypeInformation:
    """Return the ``TypeInformation`` of a SQL type; lengths, precision and NOT NULL are dropped.

    Raises:
        UnsupportedFeatureError: there is no such type information (NULL).
    """
    match data_type:
        case RowType():
            return Types.ROW_NAMED(
                data_type.field_names(), [to_type_info(field_type) for field_type in data_type.field_types()]
            )
        case MapType():
            return Types.MAP(to_type_info(data_type.key_type), to_type_info(data_type.value_type))
        case ElementsType(name="ARRAY"):
            return Types.OBJECT_ARRAY(to_type_info(data_type.element_type))
        case ElementsType():
            return Types.MAP(to_type_info(data_type.element_type), Types.INT())
    type_info = _BY_NAME.get(data_type.name)
    if type_info is None:
        raise UnsupportedFeatureError(f"{data_type} has no TypeInformation: streams have no type for it")
    return type_info


def from_type_info(type_info: TypeInformation) -> DataType:
    """Return the SQL type of a ``TypeInformation``: nullable, with the largest length and precision.

    Raises:
        UnsupportedFeatureError: there is no such SQL type (pickled objects).
    """
    type_info, row = resolved(type_info)
    if isinstance(row.sql, Absent):
        raise UnsupportedFeatureError(f"{type_info} is no type of SQL: {row.sql.reason}")
    parts = [from_type_info(part) for part in parts_of(type_info)]
    match row.shape:
        case Shape.ROW | Shape.TUPLE:
            pairs = zip(field_names(type_info) or (), parts, strict=True)
            return DataTypes.ROW([DataTypes.FIELD(name, part) for name, part in pairs])
        case Shape.MAP:
            return DataTypes.MAP(parts[0], parts[1])
        case Shape.LIST:
            return DataTypes.ARRAY(parts[0])
    return DataType(*row.sql)
