"""Coercers of the basic types and of dates and times; ``coerce`` puts them together."""

from __future__ import annotations

import ctypes
import datetime
import math
import numbers
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from firesteel.common.time import Instant
from firesteel.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    LocalTimeTypeInfo,
    TimestampTypeInfo,
    TypeInformation,
)
from firesteel.core.errors import TypeMismatchError
from firesteel.core.short_repr import short_repr

Coercer = Callable[[Any], Any]


def misfit(declared: TypeInformation, value: object, reason: str) -> TypeMismatchError:
    """The error for a value that does not fit; outer levels add the path of the field."""
    text, name = short_repr(value), type(value).__name__
    return TypeMismatchError("", str(declared), text if value is None else f"{text} ({name})", reason)


def _is_numpy_bool(value: object) -> bool:
    kind = type(value)
    return kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_")


def integer_coercer(declared: BasicTypeInfo, bits: int, strict: bool) -> Coercer:
    """Integers of a Java type: two's complement of the low bits, or an error when strict."""
    low, high, span = -(1 << bits - 1), (1 << bits - 1) - 1, 1 << bits

    def coerce_integer(value: Any) -> Any:
        if type(value) is not int:
            if _is_numpy_bool(value):
                return int(value)
            try:
                value = int(operator.index(value))
            except TypeError:
                raise misfit(declared, value, "an integer is expected") from None
        if low <= value <= high:
            return value
        if strict:
            raise misfit(declared, value, f"the type holds {low} to {high}, and strict integers are on")
        return (value - low) % span + low

    return coerce_integer


def basic_coercer(declared: BasicTypeInfo, strict: bool) -> Coercer:
    """The coercer of a basic type."""
    basic = declared.basic_type
    bits = {BasicType.BYTE: 8, BasicType.SHORT: 16, BasicType.INT: 32, BasicType.LONG: 64}.get(basic)
    if bits is not None:
        return integer_coercer(declared, bits, strict)

    def coerce_string(value: Any) -> Any:
        if type(value) is str:
            return value
        if isinstance(value, str):
            return str.__str__(value)
        raise misfit(declared, value, "a str is expected")

    def coerce_char(value: Any) -> Any:
        if isinstance(value, str) and len(value) == 1 and ord(value) <= 0xFFFF:
            return value if type(value) is str else str.__str__(value)
        raise misfit(declared, value, "a str of one character up to U+FFFF is expected")

    def coerce_boolean(value: Any) -> Any:
        if type(value) is bool:
            return value
        if _is_numpy_bool(value) or (isinstance(value, numbers.Integral) and value in (0, 1)):
            return bool(value)
        raise misfit(declared, value, "a bool is expected")

    def coerce_double(value: Any) -> Any:
        if type(value) is float:
            return value
        if isinstance(value, (numbers.Real, Decimal)) or _is_numpy_bool(value):
            try:
                return float(value)
            except (OverflowError, ValueError) as error:
                raise misfit(declared, value, str(error)) from None
        raise misfit(declared, value, "a number is expected")

    def coerce_float(value: Any) -> Any:
        if type(value) is not float:
            value = coerce_double(value)
        rounded = to_float32(value).value
        return value if rounded == value else rounded

    def coerce_big_int(value: Any) -> Any:
        if type(value) is int:
            return value
        try:
            return int(operator.index(value))
        except TypeError:
            raise misfit(declared, value, "an integer is expected") from None

    def coerce_big_dec(value: Any) -> Any:
        if type(value) is Decimal and value.is_finite():
            return value
        if isinstance(value, Decimal) and value.is_finite():
            return Decimal(value)
        if isinstance(value, numbers.Integral):
            return Decimal(int(value))
        if isinstance(value, float) and math.isfinite(value):
            return Decimal(repr(float(value)))
        raise misfit(declared, value, "a finite Decimal is expected")

    def coerce_instant(value: Any) -> Any:
        if isinstance(value, Instant):
            return value
        if isinstance(value, datetime.datetime) and value.utcoffset() is not None:
            micros = (value - _EPOCH) // _MICROSECOND
            return Instant(micros // 1_000_000, micros % 1_000_000 * 1_000)
        raise misfit(declared, value, "an Instant or a datetime with a time zone is expected")

    to_float32 = ctypes.c_float
    table: dict[BasicType, Coercer] = {
        BasicType.STRING: coerce_string,
        BasicType.CHAR: coerce_char,
        BasicType.BOOLEAN: coerce_boolean,
        BasicType.FLOAT: coerce_float,
        BasicType.DOUBLE: coerce_double,
        BasicType.BIG_INT: coerce_big_int,
        BasicType.BIG_DEC: coerce_big_dec,
        BasicType.INSTANT: coerce_instant,
    }
    return table[basic]


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def temporal_coercer(declared: TypeInformation) -> Coercer:
    """The coercer of a date, time or timestamp type."""
    kind = declared.time_type if isinstance(declared, LocalTimeTypeInfo) else None

    def coerce_date(value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            return value.date()
        if isinstance(value, datetime.date):
            return value
        raise misfit(declared, value, "a datetime.date is expected")

    def coerce_time(value: Any) -> Any:
        if isinstance(value, datetime.time):
            return value
        raise misfit(declared, value, "a datetime.time is expected")

    def coerce_timestamp(value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            return value
        raise misfit(declared, value, "a datetime.datetime is expected")

    if isinstance(declared, DateTypeInfo) or kind is LocalTimeTypeInfo.TimeType.LOCAL_DATE:
        return coerce_date
    if isinstance(declared, TimestampTypeInfo) or kind is LocalTimeTypeInfo.TimeType.LOCAL_DATE_TIME:
        return coerce_timestamp
    return coerce_time
