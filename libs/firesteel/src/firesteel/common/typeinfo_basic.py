"""Type information without parts: basic types, dates and times. Import it from ``firesteel.common.typeinfo``."""

from __future__ import annotations

import datetime
from abc import ABC
from enum import Enum
from typing import Any, ClassVar, Protocol


class TypeDescriptor(Protocol):
    """Whatever stands for a type: type information, and types of the Table API (``firesteel.table.DataTypes``)."""

    def to_type_info(self) -> TypeInformation:
        """Returns the type information."""


class TypeInformation(ABC):  # noqa: B024 - PyFlink's root class; subclasses share no abstract method
    """Root of all type information."""

    def to_type_info(self) -> TypeInformation:
        """Returns this object: it is type information already."""
        return self

    def _key(self) -> tuple[Any, ...]:
        """What two instances of one class must have in common to be equal."""
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
        """Which basic type this is."""
        return self._basic_type

    def _key(self) -> tuple[Any, ...]:
        return (self._basic_type.name,)

    def __str__(self) -> str:
        return self._basic_type.value

    @staticmethod
    def STRING_TYPE_INFO() -> BasicTypeInfo:
        """The type ``Types.STRING()``."""
        return _BASIC[BasicType.STRING]

    @staticmethod
    def BOOLEAN_TYPE_INFO() -> BasicTypeInfo:
        """The type ``Types.BOOLEAN()``."""
        return _BASIC[BasicType.BOOLEAN]

    @staticmethod
    def BYTE_TYPE_INFO() -> BasicTypeInfo:
        """The type ``Types.BYTE()``."""
        return _BASIC[BasicType.BYTE]

    @staticmethod
    def SHORT_TYPE_INFO() -> BasicTypeInfo:
        """The type ``Types.SHORT()``."""
        return _BASIC[BasicType.SHORT]

    @staticmethod
    def INT_TYPE_INFO() -> BasicTypeInfo:
        """The type ``Types.INT()``."""
        return _BASIC[BasicType.INT]

    @staticmethod
    def LONG_TYPE_INFO() -> BasicTypeInfo:
        """The type ``Types.LONG()``."""
        return _BASIC[BasicType.LONG]

    @staticmethod
    def FLOAT_TYPE_INFO() -> BasicTypeInfo:
        """The type ``Types.FLOAT()``."""
        return _BASIC[BasicType.FLOAT]

    @staticmethod
    def DOUBLE_TYPE_INFO() -> BasicTypeInfo:
        """The type ``Types.DOUBLE()``."""
        return _BASIC[BasicType.DOUBLE]

    @staticmethod
    def CHAR_TYPE_INFO() -> BasicTypeInfo:
        """The type ``Types.CHAR()``."""
        return _BASIC[BasicType.CHAR]

    @staticmethod
    def BIG_INT_TYPE_INFO() -> BasicTypeInfo:
        """The type ``Types.BIG_INT()``."""
        return _BASIC[BasicType.BIG_INT]

    @staticmethod
    def BIG_DEC_TYPE_INFO() -> BasicTypeInfo:
        """The type ``Types.BIG_DEC()``."""
        return _BASIC[BasicType.BIG_DEC]

    @staticmethod
    def INSTANT_TYPE_INFO() -> BasicTypeInfo:
        """The type ``Types.INSTANT()``."""
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
        """The type ``Types.SQL_DATE()``."""
        return DateTypeInfo()

    @staticmethod
    def TIME() -> TimeTypeInfo:
        """The type ``Types.SQL_TIME()``."""
        return TimeTypeInfo()

    @staticmethod
    def TIMESTAMP() -> TimestampTypeInfo:
        """The type ``Types.SQL_TIMESTAMP()``."""
        return TimestampTypeInfo()

    def __str__(self) -> str:
        return self._TEXT


class DateTypeInfo(SqlTimeTypeInfo):
    """SQL DATE: ``datetime.date``."""

    _TEXT = "Date"
    EPOCH_ORDINAL: ClassVar[int] = datetime.date(1970, 1, 1).toordinal()


class TimeTypeInfo(SqlTimeTypeInfo):
    """SQL TIME: ``datetime.time``."""

    _TEXT = "Time"
    EPOCH_ORDINAL: ClassVar[int] = 0


class TimestampTypeInfo(SqlTimeTypeInfo):
    """SQL TIMESTAMP: ``datetime.datetime``."""

    _TEXT = "Timestamp"


class LocalTimeTypeInfo(TypeInformation):
    """Java's local date, time and date-time: ``datetime.date``, ``time``, ``datetime``."""

    class TimeType(Enum):
        """Which of the three."""

        LOCAL_DATE = "LocalDate"
        LOCAL_TIME = "LocalTime"
        LOCAL_DATE_TIME = "LocalDateTime"

    def __init__(self, time_type: LocalTimeTypeInfo.TimeType) -> None:
        self._time_type = time_type

    @property
    def time_type(self) -> LocalTimeTypeInfo.TimeType:
        """Which of the three this is."""
        return self._time_type

    def _key(self) -> tuple[Any, ...]:
        return (self._time_type.name,)

    def __str__(self) -> str:
        return self._time_type.value
