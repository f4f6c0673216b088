"""Conversion of scalar values to text and back: cells of the table of types.

There are three kinds of text: printed text (``common.printing``), the text in JSON and its keys, which is also read
from CSV, and the text that Flink writes to CSV. Functions that read raise ``ValueError`` for malformed text.
"""

from __future__ import annotations

import base64
import binascii
import ctypes
import datetime
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from firesteel.common.time import Instant

Parse = Callable[[str], Any]
Text = Callable[[Any], str]
_WHOLE: Final = re.compile(r"\s*[+-]?[0-9]+\s*")
_DECIMAL: Final = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
_FLOATING: Final = re.compile(r"\s*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|NaN|Infinity)\s*")
_FRACTION: Final = re.compile(r"(\.\d*?)0+(?=Z?$)")
"""Matches the zeros at the end of the fraction of a second."""
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LEAST_NORMAL_FLOAT: Final = 2.0**-126
_FLOAT: Final = struct.Struct("f")


# --- numbers


def checked_integer(value: int, bits: int) -> int:
    """Return the number, if it fits into ``bits`` bits.

    Raises:
        ValueError: it does not fit.
    """
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(f"{value} does not fit {bits} bits")
    return value


def whole_number(text: str) -> int:
    """Read an integer as Java's ``parseInt`` does: digits, perhaps with a sign; blanks around them are ignored."""
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(f"{text!r:.50} is no whole number")
    return int(text)


def integer_parser(bits: int) -> Parse:
    """Return the function that reads integers of ``bits`` bits."""
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def parse(text: str) -> int:
        value = whole_number(text)
        return value if least <= value <= most else checked_integer(value, bits)

    return parse


def floating_number(text: str) -> float:
    """Read a number as Java's ``parseDouble`` does: with or without an exponent, or ``NaN`` or ``Infinity``.

    Hexadecimal numbers are not read, nor numbers with a letter for their type.
    """
    if _FLOATING.fullmatch(text) is None:
        raise ValueError(f"{text!r:.50} is no number")
    return float(text)


def float32_number(text: str) -> float:
    """Read a number as ``floating_number`` does, and round it to a FLOAT."""
    return to_float(floating_number(text))


def decimal_number(text: str) -> Decimal:
    """Read a decimal number with all its digits."""
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(f"{text!r:.50} is no number")
    return Decimal(text.strip())


def to_float(value: float) -> float:
    """Round a DOUBLE to the nearest FLOAT."""
    return ctypes.c_float(value).value


def double_text(value: float) -> str:
    """Return the shortest text that is read as the same DOUBLE; ``NaN`` and ``Infinity`` as Java writes them."""
    if value - value == 0:
        return repr(float(value))
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def float_text(value: float) -> str:
    """Return the shortest text that is read as the same FLOAT."""
    return double_text(single(value))


def java_double_text(value: float) -> str:
    """Return the text of ``Double.toString`` (since JDK 19, with the fewest digits): ``1.0E7``, ``1.0E-4``."""
    # Java and Python agree from 1e-3 to 1e7, and for zero; value - value is NaN for NaN and infinite values.
    if value == 0 or value - value != 0 or 1e-3 <= abs(value) < 1e7:
        return double_text(value)
    return _with_exponent(value, repr(float(value)), f"{value:.1e}")


def java_float_text(value: float) -> str:
    """Return the text of Java's ``Float.toString`` for a FLOAT."""
    shortest = single(value)
    if shortest == 0 or shortest - shortest != 0 or 1e-3 <= abs(shortest) < 1e7:
        return double_text(shortest)
    if abs(shortest) < _LEAST_NORMAL_FLOAT:
        # Java writes subnormal numbers with two digits at least, where single() takes six.
        shortest = next(
            shorter
            for digits in range(2, 10)
            if _FLOAT.pack(shorter := float(f"{value:.{digits}g}")) == _FLOAT.pack(value)
        )
    return _with_exponent(shortest, repr(shortest), repr(shortest))


def _with_exponent(value: float, shortest: str, two_digits: str) -> str:
    """Return Java's form with an exponent; of several texts of up to two digits Java takes the nearest to the value."""
    sign, digits, exponent = Decimal(shortest).as_tuple()
    if len(digits) == 1 and float(two_digits) == value:
        sign, digits, exponent = Decimal(two_digits).as_tuple()
    assert isinstance(exponent, int)
    exponent += len(digits) - 1
    text = "".join(map(str, digits)).rstrip("0")
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{exponent}"


def single(value: float) -> float:
    """Return the DOUBLE with the fewest digits (at least six) that is rounded to the same FLOAT as this one."""
    try:
        bits = _FLOAT.pack(value)
    except OverflowError:
        return float(value)
    for digits in (6, 7, 8, 9):  # nine digits always identify a FLOAT
        shortened = float(f"{value:.{digits}g}")
        try:
            if _FLOAT.pack(shortened) == bits:
                return shortened
        except OverflowError:  # rounding has made it larger than the largest FLOAT
            continue
    return float(value)


# --- other values


def boolean(text: str) -> bool:
    """Read ``true`` or ``false`` in any case; blanks around them are ignored."""
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return lowered == "true"


def boolean_text(value: bool) -> str:
    """Return the text of a boolean as Java writes it."""
    return "true" if value else "false"


def character(text: str) -> str:
    """Return a text, which must be one character."""
    if len(text) != 1:
        raise ValueError(f"{text!r} is not one character")
    return text


def base64_bytes(text: str) -> bytes:
    """Decode a text in base64."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"no base64: {error}") from None


def base64_text(value: bytes) -> str:
    """Encode bytes in base64."""
    return base64.b64encode(value).decode("ascii")


def date(text: str) -> datetime.date:
    """Read a date in the form of ISO 8601."""
    return datetime.date.fromisoformat(text.strip())


def time(text: str) -> datetime.time:
    """Read a time of day; a time zone is ignored."""
    return datetime.time.fromisoformat(text.strip()).replace(tzinfo=None)


def timestamp(text: str) -> datetime.datetime:
    """Read a timestamp without a zone; if the text has a zone, the time is converted to UTC."""
    moment = datetime.datetime.fromisoformat(text.strip())
    return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)


def instant(text: str) -> Instant:
    """Read a point in time; without a zone the text is taken as UTC."""
    moment = datetime.datetime.fromisoformat(text.strip())
    since = (moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)) - _EPOCH
    return Instant(since.days * 86_400 + since.seconds, since.microseconds * 1000)


def instant_text(value: Instant) -> str:
    """Return the text of an instant in UTC, to the microsecond."""
    try:
        moment = _EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    except OverflowError:
        raise ValueError(f"{value} is not in the years 1 to 9999, which text can represent") from None
    return moment.replace(tzinfo=None).isoformat() + "Z"


def iso_text(value: datetime.date | datetime.time) -> str:
    """Return a date, time or timestamp in the form of ISO 8601."""
    return value.isoformat()


def sql_text(value: datetime.date | datetime.time) -> str:
    """Return a date, time or timestamp as Flink writes it in CSV: a blank instead of ``T``, no trailing zeros."""
    return _FRACTION.sub(r"\1", value.isoformat().replace("T", " "))


def sql_instant_text(value: Instant) -> str:
    """Return an instant as Flink writes it in CSV."""
    return _FRACTION.sub(r"\1", instant_text(value).replace("T", " "))
