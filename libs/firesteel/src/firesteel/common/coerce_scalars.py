"""Coercers of scalar types: cells of the table of types. ``coerce`` combines them for types with parts.

A coercer converts a value to its type. It returns a value that fits as it is, and raises ``TypeMismatchError`` for one
that can't be converted.
"""

from __future__ import annotations

import ctypes
import datetime
import math
import numbers
import operator
from array import array
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final

from firesteel.common.time import Instant
from firesteel.common.typeinfo import TypeInformation, Types
from firesteel.core.errors import TypeMismatchError
from firesteel.core.short_repr import short_repr

Coercer = Callable[[Any], Any]
NULL_REFUSED: Final = "null is not allowed here"
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_EXACT: Final = Context(prec=100)
_to_float32 = ctypes.c_float


def misfit(declared: TypeInformation, value: object, reason: str) -> TypeMismatchError:
    """Return the error for a value that can't be converted; ``inside`` adds the path of its field."""
    text, name = short_repr(value), type(value).__name__
    return TypeMismatchError("", str(declared), text if value is None else f"{text} ({name})", reason)


def inside(error: TypeMismatchError, name: str) -> TypeMismatchError:
    """Return an error with the name of the field that contains the value in front of its path."""
    inner = error.field
    path = name + inner if inner.startswith("[") or not inner else f"{name}.{inner}"
    return TypeMismatchError(path, error.declared, error.value, error.reason)


def elements_of(declared: TypeInformation, value: Any) -> list[Any] | tuple[Any, ...]:
    """Return the elements of a list, tuple, ``array.array`` or one-dimensional numpy array."""
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, array):
        return value.tolist()
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 0) == 1:
        elements: list[Any] = value.tolist()
        return elements
    raise misfit(declared, value, NULL_REFUSED if value is None else "a list, tuple or array is expected")


def _is_numpy_bool(value: object) -> bool:
    kind = type(value)
    return kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_")


def integer_coercer(declared: TypeInformation, bits: int, *, strict: bool) -> Coercer:
    """Make the coercer of a Java integer type: the low bits in two's complement, or an error if strict."""
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


def coerce_string(value: Any) -> Any:
    """Convert to STRING; subclasses of ``str`` become plain ``str``."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    raise misfit(Types.STRING(), value, "a str is expected")


def coerce_char(value: Any) -> Any:
    """Convert to CHAR, one of Java's characters of 16 bits."""
    if isinstance(value, str) and len(value) == 1 and ord(value) <= 0xFFFF:
        return value if type(value) is str else str.__str__(value)
    raise misfit(Types.CHAR(), value, "a str of one character up to U+FFFF is expected")


def coerce_boolean(value: Any) -> Any:
    """Convert to BOOLEAN, also from 0 and 1."""
    if type(value) is bool:
        return value
    if _is_numpy_bool(value) or (isinstance(value, numbers.Integral) and value in (0, 1)):
        return bool(value)
    raise misfit(Types.BOOLEAN(), value, "a bool is expected")


def coerce_double(value: Any) -> Any:
    """Convert any real number to DOUBLE."""
    return value if type(value) is float else _real_number(Types.DOUBLE(), value)


def coerce_float(value: Any) -> Any:
    """Convert any real number to the nearest FLOAT."""
    if type(value) is not float:
        value = _real_number(Types.FLOAT(), value)
    rounded = _to_float32(value).value
    return value if rounded == value else rounded


def _real_number(declared: TypeInformation, value: Any) -> float:
    if isinstance(value, (numbers.Real, Decimal)) or _is_numpy_bool(value):
        try:
            return float(value)
        except (OverflowError, ValueError) as error:
            raise misfit(declared, value, str(error)) from None
    raise misfit(declared, value, "a number is expected")


def coerce_big_int(value: Any) -> Any:
    """Convert any integer to BIG_INT."""
    if type(value) is int:
        return value
    try:
        return int(operator.index(value))
    except TypeError:
        raise misfit(Types.BIG_INT(), value, "an integer is expected") from None


def coerce_big_dec(value: Any) -> Any:
    """Convert to BIG_DEC, which is finite; a float gives the digits that Python shows for it."""
    if type(value) is Decimal and value.is_finite():
        return value
    if isinstance(value, Decimal) and value.is_finite():
        return Decimal(value)
    if isinstance(value, numbers.Integral):
        return Decimal(int(value))
    if isinstance(value, float) and math.isfinite(value):
        return Decimal(repr(float(value)))
    raise misfit(Types.BIG_DEC(), value, "a finite Decimal is expected")


def rounded(value: Decimal, digits: tuple[int, int]) -> Decimal:
    """The number with the digits behind the point that its type has, halves away from zero, as Flink does.

    Raises:
        ValueError: it has more digits in front of the point than the type; Flink makes it null.
    """
    precision, scale = digits
    try:
        result = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
    except InvalidOperation:
        result = None
    if result is None or len(result.as_tuple().digits) > precision:
        raise ValueError(f"{value!s:.50} does not fit DECIMAL({precision}, {scale})")
    return result


def decimal_coercer(declared: TypeInformation, digits: tuple[int, int]) -> Callable[[Any], Any]:
    """Convert to a decimal number of so many digits; those behind the point that are too many are rounded."""

    def coerce(value: Any) -> Any:
        try:
            return rounded(coerce_big_dec(value), digits)
        except ValueError as error:
            raise misfit(declared, value, str(error)) from None

    return coerce


def coerce_instant(value: Any) -> Any:
    """Convert to an ``Instant``, also from a datetime with a time zone."""
    if isinstance(value, Instant):
        return value
    if isinstance(value, datetime.datetime) and value.utcoffset() is not None:
        micros = (value - _EPOCH) // _MICROSECOND
        return Instant(micros // 1_000_000, micros % 1_000_000 * 1_000)
    raise misfit(Types.INSTANT(), value, "an Instant or a datetime with a time zone is expected")


def date_coercer(declared: TypeInformation) -> Coercer:
    """Make the coercer of dates; a datetime loses its time of day."""

    def coerce_date(value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            return value.date()
        if isinstance(value, datetime.date):
            return value
        raise misfit(declared, value, "a datetime.date is expected")

    return coerce_date


def instance_coercer(declared: TypeInformation, kind: type) -> Coercer:
    """Make the coercer that only takes instances of a class of ``datetime``."""

    def coerce_instance(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        raise misfit(declared, value, f"a datetime.{kind.__name__} is expected")

    return coerce_instance


def bytes_coercer(declared: TypeInformation, *, strict: bool) -> Coercer:
    """Make the coercer of bytes, also from a list of integers (``elements_of``), of which the low eight bits count."""

    def coerce_bytes(value: Any) -> Any:
        if type(value) is bytes:
            return value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        fitted = bytearray()
        for i, item in enumerate(elements_of(declared, value)):
            if not isinstance(item, int):
                raise inside(misfit(Types.BYTE(), item, "an integer is expected"), f"[{i}]")
            if strict and not -128 <= item <= 255:
                raise inside(misfit(Types.BYTE(), item, "the value is outside the type's range"), f"[{i}]")
            fitted.append(item & 0xFF)
        return bytes(fitted)

    return coerce_bytes
