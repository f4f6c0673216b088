"""Values of declared types as text and back: what JSON and CSV have in common."""

from __future__ import annotations

import base64
import binascii
import ctypes
import datetime
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

from firesteel.common.time import Instant
from firesteel.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    InstantTypeInfo,
    LocalTimeTypeInfo,
    RowTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)
from firesteel.common.value_texts import double_text, float_text, java_double_text, java_float_text
from firesteel.expressions.schema import Digits, is_bytes, parts_of, unwrapped

FromText = Callable[[str], Any]
ToText = Callable[[Any], str]

INTEGERS: Final = {
    BasicType.BYTE: 8, BasicType.SHORT: 16, BasicType.INT: 32, BasicType.LONG: 64,
}  # fmt: skip
"""Integer types with a range -> bits."""
_WHOLE: Final = re.compile(r"\s*[+-]?[0-9]+\s*")
_DECIMAL: Final = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
_FLOATING: Final = re.compile(r"\s*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|NaN|Infinity)\s*")
UTC: Final = datetime.UTC
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=UTC)


def row_type(declared: Any, owner: str) -> RowTypeInfo:
    """The row type that is meant.

    Raises:
        TypeError: it is no row type.
    """
    inner = unwrapped(as_type(declared, owner))
    if not isinstance(inner, RowTypeInfo):
        raise TypeError(f"{owner} takes a row type such as Types.ROW_NAMED([...], [...]), not {inner}")
    return inner


def narrowed(row: RowTypeInfo, names: Sequence[str]) -> RowTypeInfo:
    """The row type with these fields only."""
    types = dict(zip(row.field_names, row.field_types, strict=True))
    return RowTypeInfo([types[name] for name in names], list(names))


def narrowed_digits(row: RowTypeInfo, digits: Digits, names: Sequence[str]) -> Digits:
    """Those of these fields."""
    found = dict(zip(row.field_names, parts_of(digits, len(row.field_names)), strict=True))
    return [found[name] for name in names]


def as_type(declared: Any, owner: str) -> TypeInformation:
    """Type information; a data type of the Table API (``firesteel.table.DataTypes``) is converted.

    Raises:
        TypeError: it is neither.
    """
    if type(declared).__module__.startswith("firesteel.table."):  # imported only where a program uses it
        inner = declared.to_type_info()
    else:
        inner = declared
    if not isinstance(inner, TypeInformation):
        raise TypeError(f"{owner} takes type information, not {declared!r}")
    return inner


def digits_of(declared: Any) -> Digits:
    """Precision and scale of the decimal numbers in a data type of the Table API; None = it has none.

    Of a row there is one for each field, of a map for key and value, of an array those of its elements.
    """
    if not type(declared).__module__.startswith("firesteel.table."):
        return None
    if declared.name == "DECIMAL":
        precision, scale = declared.parameters
        return precision, scale
    if declared.name == "ROW":
        return [digits_of(one) for one in declared.field_types()]
    if declared.name == "MAP":
        return [digits_of(declared.key_type), digits_of(declared.value_type)]
    return digits_of(declared.element_type) if declared.name == "ARRAY" else None


def integer(value: int, bits: int) -> int:
    """The number, if it fits.

    Raises:
        ValueError: it does not.
    """
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(f"{value} does not fit {bits} bits")
    return value


def from_text(declared: TypeInformation) -> FromText | None:
    """How a value of a type without parts is read; the function raises ``ValueError``. None: it has parts."""
    if isinstance(declared, BasicTypeInfo):
        basic = declared.basic_type
        if basic in INTEGERS:
            bits = INTEGERS[basic]
            return lambda text: integer(whole_number(text), bits)
        return _BASIC_FROM.get(basic)
    if is_bytes(declared):
        return _bytes
    if isinstance(declared, (DateTypeInfo, TimeTypeInfo, TimestampTypeInfo)):
        return _TEMPORAL_FROM[type(declared).__name__]
    if isinstance(declared, LocalTimeTypeInfo):
        return _TEMPORAL_FROM[declared.time_type.name]
    return None


def to_text(declared: TypeInformation) -> ToText | None:
    """How a value of a type without parts is written. None: it has parts."""
    if isinstance(declared, InstantTypeInfo):
        return _instant_text
    if isinstance(declared, BasicTypeInfo):
        return _TO_TEXT.get(declared.basic_type, str)
    if is_bytes(declared):
        return lambda value: base64.b64encode(value).decode("ascii")
    if isinstance(declared, (DateTypeInfo, TimeTypeInfo, TimestampTypeInfo, LocalTimeTypeInfo)):
        return lambda value: str(value.isoformat())
    return None


def csv_text(declared: TypeInformation) -> ToText | None:
    """How Flink writes a value of a type without parts as CSV. None: it has parts."""
    if isinstance(declared, BasicTypeInfo) and declared.basic_type in (BasicType.FLOAT, BasicType.DOUBLE):
        return java_float_text if declared.basic_type is BasicType.FLOAT else java_double_text
    text = to_text(declared)
    moment = isinstance(declared, (TimeTypeInfo, TimestampTypeInfo, LocalTimeTypeInfo, InstantTypeInfo))
    if text is None or not moment:
        return text
    return lambda value: _FRACTION.sub(r"\1", text(value).replace("T", " "))


def whole_number(text: str) -> int:
    """What Java's ``parseInt`` takes: digits, perhaps with a sign; blanks around them do not count.

    Raises:
        ValueError: it is something else.
    """
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(f"{text!r:.50} is no whole number")
    return int(text)


def floating_number(text: str) -> float:
    """What Java's ``parseDouble`` takes: decimal numbers, with or without an exponent, ``NaN`` and ``Infinity``.

    Not its hexadecimal numbers, nor a letter for the type behind the number.

    Raises:
        ValueError: it is something else.
    """
    if _FLOATING.fullmatch(text) is None:
        raise ValueError(f"{text!r:.50} is no number")
    return float(text)


def to_float(value: float) -> float:
    """The FLOAT nearest to a DOUBLE."""
    return ctypes.c_float(value).value


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return lowered == "true"


def _boolean_text(value: bool) -> str:
    return "true" if value else "false"


def _char(text: str) -> str:
    if len(text) != 1:
        raise ValueError(f"{text!r} is not one character")
    return text


def _decimal(text: str) -> Decimal:
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(f"{text!r:.50} is no number")
    return Decimal(text.strip())


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"no base64: {error}") from None


def _date(text: str) -> datetime.date:
    return datetime.date.fromisoformat(text.strip())


def _time(text: str) -> datetime.time:
    return datetime.time.fromisoformat(text.strip()).replace(tzinfo=None)


def _timestamp(text: str) -> datetime.datetime:
    """In UTC if it names a zone; without a zone as it stands."""
    found = datetime.datetime.fromisoformat(text.strip())
    return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)


def _instant(text: str) -> Instant:
    found = datetime.datetime.fromisoformat(text.strip())
    since = (found if found.tzinfo is not None else found.replace(tzinfo=UTC)) - _EPOCH
    return Instant(since.days * 86_400 + since.seconds, since.microseconds * 1000)


def _instant_text(value: Instant) -> str:
    try:
        moment = _EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    except OverflowError:
        raise ValueError(f"{value} is not in the years 1 to 9999, which text has") from None
    return moment.replace(tzinfo=None).isoformat() + "Z"


_FRACTION: Final = re.compile(r"(\.\d*?)0+(?=Z?$)")
"""Zeros at the end of the fraction of a second."""
_TO_TEXT: Final[dict[BasicType, ToText]] = {
    BasicType.BOOLEAN: _boolean_text, BasicType.FLOAT: float_text, BasicType.DOUBLE: double_text,
}  # fmt: skip
_BASIC_FROM: Final[dict[BasicType, FromText]] = {
    BasicType.STRING: str,
    BasicType.BOOLEAN: _boolean,
    BasicType.FLOAT: lambda text: to_float(floating_number(text)),
    BasicType.DOUBLE: floating_number,
    BasicType.CHAR: _char,
    BasicType.BIG_INT: whole_number,
    BasicType.BIG_DEC: _decimal,
    BasicType.INSTANT: _instant,
}
_TEMPORAL_FROM: Final[dict[str, FromText]] = {
    "DateTypeInfo": _date,
    "TimeTypeInfo": _time,
    "TimestampTypeInfo": _timestamp,
    "LOCAL_DATE": _date,
    "LOCAL_TIME": _time,
    "LOCAL_DATE_TIME": _timestamp,
}
