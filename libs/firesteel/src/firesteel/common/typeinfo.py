"""Type information: the declared types of records and their fields. PyFlink's classes, names and texts.

All of them are immutable values: equal by content, hashable, picklable, no JVM behind them. The texts of
``str()`` are those of Flink 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from firesteel.common.typeinfo_basic import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    InstantTypeInfo,
    LocalTimeTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeDescriptor,
    TypeInformation,
)

__all__ = [
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "DateTypeInfo",
    "DecimalTypeInfo",
    "ExternalTypeInfo",
    "InstantTypeInfo",
    "ListTypeInfo",
    "LocalTimeTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeDescriptor",
    "TypeInformation",
    "Types",
    "as_type_info",
]


class _ElementTypeInfo(TypeInformation):
    """Arrays and lists: one element type."""

    def __init__(self, element_type: TypeDescriptor) -> None:
        (self._element_type,) = _type_infos([element_type], type(self).__name__)

    @property
    def element_type(self) -> TypeInformation:
        """The type of each element."""
        return self._element_type

    def _key(self) -> tuple[Any, ...]:
        return (self._element_type,)

    def __str__(self) -> str:
        return f"{type(self).__name__}<{self._element_type}>"


_PRIMITIVES = {
    BasicType.BOOLEAN: "boolean",
    BasicType.BYTE: "byte",
    BasicType.SHORT: "short",
    BasicType.INT: "int",
    BasicType.LONG: "long",
    BasicType.FLOAT: "float",
    BasicType.DOUBLE: "double",
    BasicType.CHAR: "char",
}


class PrimitiveArrayTypeInfo(_ElementTypeInfo):
    """Array of Java primitives; a byte array is Python ``bytes``, any other a list without nulls.

    Raises:
        TypeError: the element type has no Java primitive.
    """

    def __init__(self, element_type: TypeDescriptor) -> None:
        super().__init__(element_type)
        element = self._element_type
        if not isinstance(element, BasicTypeInfo) or element.basic_type not in _PRIMITIVES:
            raise TypeError(f"Invalid element type for a primitive array: {element}.")
        self._name = _PRIMITIVES[element.basic_type]

    def __str__(self) -> str:
        return f"{self._name}[]"


class BasicArrayTypeInfo(_ElementTypeInfo):
    """Array of boxed Java primitives or strings: a list, nulls allowed.

    Raises:
        TypeError: the element type is neither a boxed primitive nor a string.
    """

    def __init__(self, element_type: TypeDescriptor) -> None:
        super().__init__(element_type)
        element, allowed = self._element_type, {*_PRIMITIVES, BasicType.STRING}
        if not isinstance(element, BasicTypeInfo) or element.basic_type not in allowed:
            raise TypeError(f"Invalid element type for a boxed primitive array: {element}.")


class ObjectArrayTypeInfo(_ElementTypeInfo):
    """Array of anything: a list, nulls allowed."""


class ListTypeInfo(_ElementTypeInfo):
    """A list, nulls allowed."""


class MapTypeInfo(TypeInformation):
    """A dict; values may be null, keys may not."""

    def __init__(self, key_type_info: TypeDescriptor, value_type_info: TypeDescriptor) -> None:
        self._key_type_info, self._value_type_info = _type_infos([key_type_info, value_type_info], "MapTypeInfo")

    @property
    def key_type(self) -> TypeInformation:
        """The type of each key."""
        return self._key_type_info

    @property
    def value_type(self) -> TypeInformation:
        """The type of each value."""
        return self._value_type_info

    def _key(self) -> tuple[Any, ...]:
        return (self._key_type_info, self._value_type_info)

    def __str__(self) -> str:
        return f"MapTypeInfo<{self._key_type_info}, {self._value_type_info}>"


class PickledBytesTypeInfo(TypeInformation):
    """Any Python object, pickled when it leaves the process: the type of streams without a declared type."""

    @staticmethod
    def PICKLED_BYTE_ARRAY_TYPE_INFO() -> PickledBytesTypeInfo:
        """Returns the type information of any Python object, ``Types.PICKLED_BYTE_ARRAY()``."""
        return _PICKLED

    def __str__(self) -> str:
        return "PickledByteArrayTypeInfo"


_PICKLED = PickledBytesTypeInfo()


class RowTypeInfo(TypeInformation):
    """A ``Row`` with typed fields, named ``f0``, ``f1``, … unless names are given.

    As in PyFlink, ``str()`` of a type without given names shows names only after ``get_field_names()`` was called.

    Raises:
        ValueError: the number of names differs from the number of types, or a name occurs twice.
        TypeError: a field type is not type information.
    """

    def __init__(self, field_types: Sequence[TypeDescriptor], field_names: Sequence[str] | None = None) -> None:
        self._types = _type_infos(field_types, "RowTypeInfo")
        self._given_names = field_names is not None
        self._names_shown = self._given_names
        names = [f"f{i}" for i in range(len(self._types))] if field_names is None else list(field_names)
        if len(names) != len(self._types):
            raise ValueError(f"A row type has {len(self._types)} field types but {len(names)} field names: {names}.")
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"A field name is a str, not {type(name).__name__}: {name!r}.")
            if names.count(name) > 1:
                raise ValueError(f"The field name {name!r} stands more than once in {names}.")
        self._names = tuple(names)

    def get_field_names(self) -> list[str]:
        """Returns the names in order of position."""
        self._names_shown = True
        return list(self._names)

    def get_field_index(self, field_name: str) -> int:
        """Returns the position of a field, -1 if there is no field with this name (as Flink does)."""
        return self._names.index(field_name) if field_name in self._names else -1

    def get_field_types(self) -> list[TypeInformation]:
        """Returns the types in order of position."""
        return list(self._types)

    @property
    def field_names(self) -> tuple[str, ...]:
        """The names in order of position."""
        return self._names

    @property
    def field_types(self) -> tuple[TypeInformation, ...]:
        """The types in order of position."""
        return self._types

    @property
    def has_given_names(self) -> bool:
        """Whether the program has given the names (``ROW_NAMED``); else they are generated (``ROW``)."""
        return self._given_names

    def _key(self) -> tuple[Any, ...]:
        return (self._names, self._types)

    def __str__(self) -> str:
        if not self._names_shown:
            return f"RowTypeInfo({', '.join(map(str, self._types))})"
        return f"RowTypeInfo({', '.join(f'{n}: {t}' for n, t in zip(self._names, self._types, strict=True))})"


class TupleTypeInfo(TypeInformation):
    """A tuple with typed fields.

    Raises:
        TypeError: a field type is not type information.
    """

    def __init__(self, field_types: Sequence[TypeDescriptor]) -> None:
        self._types = _type_infos(field_types, "TupleTypeInfo")

    def get_field_types(self) -> list[TypeInformation]:
        """Returns the types in order of position."""
        return list(self._types)

    @property
    def field_types(self) -> tuple[TypeInformation, ...]:
        """The types in order of position."""
        return self._types

    def _key(self) -> tuple[Any, ...]:
        return self._types

    def __str__(self) -> str:
        return f"TupleTypeInfo({', '.join(map(str, self._types))})"


class DecimalTypeInfo(TypeInformation):
    """Decimal numbers with a fixed number of digits, as SQL's DECIMAL: ``DecimalTypeInfo(10, 2)`` holds ``12.50``.

    Args:
        precision: digits in all, 1 to 38.
        scale: those behind the point, at most ``precision``.

    Raises:
        ValueError: there are no such numbers.
    """

    def __init__(self, precision: int, scale: int) -> None:
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise ValueError(
                f"DECIMAL({precision}, {scale}): the precision is from 1 to 38, the scale from 0 to the precision"
            )
        self.precision, self.scale = precision, scale

    def _key(self) -> tuple[Any, ...]:
        return (self.precision, self.scale)

    def __str__(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"


class ExternalTypeInfo(TypeInformation):
    """A type of the Table API in its external form; here it means the same as the type inside of it."""

    def __init__(self, type_info: TypeDescriptor) -> None:
        (self._type_info,) = _type_infos([type_info], "ExternalTypeInfo")

    @property
    def type_info(self) -> TypeInformation:
        """The type that this one wraps."""
        return self._type_info

    def _key(self) -> tuple[Any, ...]:
        return (self._type_info,)

    def __str__(self) -> str:
        return f"ExternalTypeInfo<{self._type_info}>"


def as_type_info(declared: object, description: Callable[[], str]) -> TypeInformation:
    """Return the type information of a type that a program has declared.

    Args:
        declared: type information, or a type of ``DataTypes``.
        description: returns what is declared, as the beginning of the error's message.

    Raises:
        TypeError: ``declared`` is not a type.
    """
    if isinstance(declared, TypeInformation):
        return declared
    convert = None if isinstance(declared, type) else getattr(declared, "to_type_info", None)
    if convert is None:
        hint = "; did you leave out the parentheses?" if callable(declared) else ""
        raise TypeError(f"{description()} is {declared!r}, not a TypeInformation such as Types.STRING(){hint}")
    converted = convert()
    assert isinstance(converted, TypeInformation)
    return converted


def _type_infos(types: Sequence[TypeDescriptor], owner: str) -> tuple[TypeInformation, ...]:
    """Return the type information of each of these types; ``owner`` names them in errors."""
    if hasattr(types, "to_type_info"):
        raise TypeError(f"{owner} takes a list of types, not {types}: write [{types}].")
    converted_types = []
    for position, field_type in enumerate(types):
        convert = None if isinstance(field_type, type) else getattr(field_type, "to_type_info", None)
        if convert is None:
            hint = " Did you leave out the parentheses?" if callable(field_type) else ""
            raise TypeError(f"Type {position} of {owner} is {field_type!r}, not a TypeInformation.{hint}")
        converted_types.append(convert())
    return tuple(converted_types)


class Types:
    """Type information of the common types: ``Types.INT()``, ``Types.ROW([Types.STRING(), Types.INT()])``.

    Examples:
        ```python
        from firesteel.common import Types

        print(Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()]))
        ```

        ```text
        RowTypeInfo(name: String, age: Integer)
        ```
    """

    STRING = BasicTypeInfo.STRING_TYPE_INFO
    BYTE = BasicTypeInfo.BYTE_TYPE_INFO
    BOOLEAN = BasicTypeInfo.BOOLEAN_TYPE_INFO
    SHORT = BasicTypeInfo.SHORT_TYPE_INFO
    INT = BasicTypeInfo.INT_TYPE_INFO
    LONG = BasicTypeInfo.LONG_TYPE_INFO
    FLOAT = BasicTypeInfo.FLOAT_TYPE_INFO
    DOUBLE = BasicTypeInfo.DOUBLE_TYPE_INFO
    CHAR = BasicTypeInfo.CHAR_TYPE_INFO
    BIG_INT = BasicTypeInfo.BIG_INT_TYPE_INFO
    BIG_DEC = BasicTypeInfo.BIG_DEC_TYPE_INFO
    INSTANT = BasicTypeInfo.INSTANT_TYPE_INFO
    SQL_DATE = SqlTimeTypeInfo.DATE
    SQL_TIME = SqlTimeTypeInfo.TIME
    SQL_TIMESTAMP = SqlTimeTypeInfo.TIMESTAMP
    PICKLED_BYTE_ARRAY = PickledBytesTypeInfo.PICKLED_BYTE_ARRAY_TYPE_INFO

    @staticmethod
    def ROW(field_types: Sequence[TypeDescriptor]) -> RowTypeInfo:
        """A row with the fields ``f0``, ``f1``, … of these types."""
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(field_names: Sequence[str], field_types: Sequence[TypeDescriptor]) -> RowTypeInfo:
        """A row with fields of these names and types."""
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeDescriptor]) -> TupleTypeInfo:
        """A tuple with fields of these types."""
        return TupleTypeInfo(field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeDescriptor) -> PrimitiveArrayTypeInfo:
        """An array of Java primitives; ``bytes`` for ``Types.BYTE()``."""
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeDescriptor) -> BasicArrayTypeInfo:
        """An array of boxed primitives or strings."""
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeDescriptor) -> ObjectArrayTypeInfo:
        """An array of any elements of one type."""
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def MAP(key_type_info: TypeDescriptor, value_type_info: TypeDescriptor) -> MapTypeInfo:
        """A dict with keys and values of these types."""
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def LIST(element_type_info: TypeDescriptor) -> ListTypeInfo:
        """A list with elements of this type."""
        return ListTypeInfo(element_type_info)
