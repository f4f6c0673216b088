"""Type information without parts: basic types, dates and times. Import it from ``firesteel.common.typeinfo``."""

from __future__ import annotations

import datetime
from abc import ABC
from enum import Enum
from typing import Any, ClassVar, Protocol


class TypeDescriptor(Protocol):
    """Anything that describes a type: type information, or a type of the Table API (``firesteel.table.DataTypes``)."""

    def to_type_info(self) -> TypeInformation:
        """Returns the type information that this describes."""


class TypeInformation(ABC):  # noqa: B024 - PyFlink's root class; subclasses share no abstract method
    """Root of all type information.

    Examples:
        ```python
        from firesteel.common import TypeInformation, Types

        print(isinstance(Types.LIST(Types.INT()), TypeInformation))
        ```

        ```text
        True
        ```
    """

    def to_type_info(self) -> TypeInformation:
        """Returns this object: it is type information already."""
        return self

    def _key(self) -> tuple[Any, ...]:
        """Content of the type: instances of one class are equal if their contents are."""
        return ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._key()))

    def __repr__(self) -> str:
        return str(self)


class BasicType(Enum):
    """The basic types; the values are the names that ``Types`` uses."""

    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Character"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


class BasicTypeInfo(TypeInformation):
    """One of the basic types: numbers, text, characters, instants."""

    def __init__(self, basic_type: BasicType) -> None:
        self._basic_type = basic_type

    @property
    def basic_type(self) -> BasicType:
        """The basic type that this stands for."""
        return self._basic_type

    def _key(self) -> tuple[Any, ...]:
        return (self._basic_type.name,)

    def __str__(self) -> str:
        return self._basic_type.value

    @staticmethod
    def STRING_TYPE_INFO() -> BasicTypeInfo:
        """Returns the type information ``Types.STRING()``."""
        return _BASIC[BasicType.STRING]

    @staticmethod
    def BOOLEAN_TYPE_INFO() -> BasicTypeInfo:
        """Returns the type information ``Types.BOOLEAN()``."""
        return _BASIC[BasicType.BOOLEAN]

    @staticmethod
    def BYTE_TYPE_INFO() -> BasicTypeInfo:
        """Returns the type information ``Types.BYTE()``."""
        return _BASIC[BasicType.BYTE]

    @staticmethod
    def SHORT_TYPE_INFO() -> BasicTypeInfo:
        """Returns the type information ``Types.SHORT()``."""
        return _BASIC[BasicType.SHORT]

    @staticmethod
    def INT_TYPE_INFO() -> BasicTypeInfo:
        """Returns the type information ``Types.INT()``."""
        return _BASIC[BasicType.INT]

    @staticmethod
    def LONG_TYPE_INFO() -> BasicTypeInfo:
        """Returns the type information ``Types.LONG()``."""
        return _BASIC[BasicType.LONG]

    @staticmethod
    def FLOAT_TYPE_INFO() -> BasicTypeInfo:
        """Returns the type information ``Types.FLOAT()``."""
        return _BASIC[BasicType.FLOAT]

    @staticmethod
    def DOUBLE_TYPE_INFO() -> BasicTypeInfo:
        """Returns the type information ``Types.DOUBLE()``."""
        return _BASIC[BasicType.DOUBLE]

    @staticmethod
    def CHAR_TYPE_INFO() -> BasicTypeInfo:
        """Returns the type information ``Types.CHAR()``."""
        return _BASIC[BasicType.CHAR]

    @staticmethod
    def BIG_INT_TYPE_INFO() -> BasicTypeInfo:
        """Returns the type information ``Types.BIG_INT()``."""
        return _BASIC[BasicType.BIG_INT]

    @staticmethod
    def BIG_DEC_TYPE_INFO() -> BasicTypeInfo:
        """Returns the type information ``Types.BIG_DEC()``."""
        return _BASIC[BasicType.BIG_DEC]

    @staticmethod
    def INSTANT_TYPE_INFO() -> BasicTypeInfo:
        """Returns the type information ``Types.INSTANT()``."""
        return _BASIC[BasicType.INSTANT]


class InstantTypeInfo(BasicTypeInfo):
    """The basic type of ``firesteel.common.time.Instant``."""

    def __init__(self, basic_type: BasicType = BasicType.INSTANT) -> None:
        super().__init__(basic_type)


_BASIC: dict[BasicType, BasicTypeInfo] = {
    basic: InstantTypeInfo() if basic is BasicType.INSTANT else BasicTypeInfo(basic) for basic in BasicType
}


class SqlTimeTypeInfo(TypeInformation):
    """SQL dates, times and timestamps (``datetime.date``, ``time``, ``datetime``)."""

    _TEXT: ClassVar[str] = ""

    @staticmethod
    def DATE() -> DateTypeInfo:
        """Returns the type information ``Types.SQL_DATE()``."""
        return DateTypeInfo()

    @staticmethod
    def TIME() -> TimeTypeInfo:
        """Returns the type information ``Types.SQL_TIME()``."""
        return TimeTypeInfo()

    @staticmethod
    def TIMESTAMP() -> TimestampTypeInfo:
        """Returns the type information ``Types.SQL_TIMESTAMP()``."""
        return TimestampTypeInfo()

    def __str__(self) -> str:
        return self._TEXT


class DateTypeInfo(SqlTimeTypeInfo):
    """The SQL type DATE, whose values are ``datetime.date``."""

    _TEXT = "Date"
    EPOCH_ORDINAL: ClassVar[int] = datetime.date(1970, 1, 1).toordinal()


class TimeTypeInfo(SqlTimeTypeInfo):
    """The SQL type TIME, whose values are ``datetime.time``."""

    _TEXT = "Time"
    EPOCH_ORDINAL: ClassVar[int] = 0


class TimestampTypeInfo(SqlTimeTypeInfo):
    """The SQL type TIMESTAMP, whose values are ``datetime.datetime``."""

    _TEXT = "Timestamp"


class LocalTimeTypeInfo(TypeInformation):
    """Java's local date, time and date-time; the values are ``datetime.date``, ``time`` and ``datetime``."""

    class TimeType(Enum):
        """The three Java classes."""

        LOCAL_DATE = "LocalDate"
        LOCAL_TIME = "LocalTime"
        LOCAL_DATE_TIME = "LocalDateTime"

    def __init__(self, time_type: LocalTimeTypeInfo.TimeType) -> None:
        self._time_type = time_type

    @property
    def time_type(self) -> LocalTimeTypeInfo.TimeType:
        """The Java class that this stands for."""
        return self._time_type

    def _key(self) -> tuple[Any, ...]:
        return (self._time_type.name,)

    def __str__(self) -> str:
        return self._time_type.value
