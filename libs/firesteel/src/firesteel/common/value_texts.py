"""Scalar values as text and back: cells of the table of types.

There are three kinds of text: what is printed (``common.printing``), the text of JSON and of its keys, which readers of
CSV take too, and what Flink writes as CSV. Reading raises ``ValueError``.
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
"""Zeros at the end of the fraction of a second."""
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LEAST_NORMAL_FLOAT: Final = 2.0**-126
_FLOAT: Final = struct.Struct("f")


# --- numbers


def checked_integer(value: int, bits: int) -> int:
    """The number, if it fits.

    Raises:
        ValueError: it does not.
    """
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(f"{value} does not fit {bits} bits")
    return value


def whole_number(text: str) -> int:
    """What Java's ``parseInt`` takes: digits, perhaps with a sign; blanks around them do not count."""
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(f"{text!r:.50} is no whole number")
    return int(text)


def integer_parser(bits: int) -> Parse:
    """What reads whole numbers of so many bits."""
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def parse(text: str) -> int:
        value = whole_number(text)
        return value if least <= value <= most else checked_integer(value, bits)

    return parse


def floating_number(text: str) -> float:
    """What Java's ``parseDouble`` takes: decimal numbers, with or without an exponent, ``NaN`` and ``Infinity``.

    Not its hexadecimal numbers, nor a letter for the type behind the number.
    """
    if _FLOATING.fullmatch(text) is None:
        raise ValueError(f"{text!r:.50} is no number")
    return float(text)


def float32_number(text: str) -> float:
    """The FLOAT nearest to what ``floating_number`` reads."""
    return to_float(floating_number(text))


def decimal_number(text: str) -> Decimal:
    """A decimal number, with all its digits."""
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(f"{text!r:.50} is no number")
    return Decimal(text.strip())


def to_float(value: float) -> float:
    """The FLOAT nearest to a DOUBLE."""
    return ctypes.c_float(value).value


def double_text(value: float) -> str:
    """The shortest text that gives the same DOUBLE; ``NaN`` and ``Infinity`` as Java writes them."""
    if value - value == 0:
        return repr(float(value))
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def float_text(value: float) -> str:
    """The shortest text that gives the same FLOAT."""
    return double_text(single(value))


def java_double_text(value: float) -> str:
    """What ``Double.toString`` gives (from JDK 19 on, which takes the shortest digits): ``1.0E7``, ``1.0E-4``."""
    if value == 0 or value - value != 0 or 1e-3 <= abs(value) < 1e7:
        return double_text(value)
    return _with_exponent(value, repr(float(value)), f"{value:.1e}")


def java_float_text(value: float) -> str:
    """A float as Java's ``Float.toString`` writes it."""
    shortest = single(value)
    if shortest == 0 or shortest - shortest != 0 or 1e-3 <= abs(shortest) < 1e7:
        return double_text(shortest)
    if abs(shortest) < _LEAST_NORMAL_FLOAT:
        shortest = next(
            shorter
            for digits in range(2, 10)
            if _FLOAT.pack(shorter := float(f"{value:.{digits}g}")) == _FLOAT.pack(value)
        )
    return _with_exponent(shortest, repr(shortest), repr(shortest))


def _with_exponent(value: float, shortest: str, two_digits: str) -> str:
    """Java's form; of several texts with two digits or less it takes the one that is nearest to the value."""
    sign, digits, exponent = Decimal(shortest).as_tuple()
    if len(digits) == 1 and float(two_digits) == value:
        sign, digits, exponent = Decimal(two_digits).as_tuple()
    assert isinstance(exponent, int)
    exponent += len(digits) - 1
    text = "".join(map(str, digits)).rstrip("0")
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{exponent}"


def single(value: float) -> float:
    """The DOUBLE with the fewest digits (six, where fewer would do) that is the same FLOAT as this one."""
    try:
        bits = _FLOAT.pack(value)
    except OverflowError:
        return float(value)
    for digits in (6, 7, 8, 9):
        shortened = float(f"{value:.{digits}g}")
        try:
            if _FLOAT.pack(shortened) == bits:
                return shortened
        except OverflowError:  # rounded up beyond the largest one
            continue
    return float(value)


# --- other values


def boolean(text: str) -> bool:
    """``true`` or ``false``, in letters of any case; blanks around them do not count."""
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return lowered == "true"


def boolean_text(value: bool) -> str:
    """As Java writes it."""
    return "true" if value else "false"


def character(text: str) -> str:
    """A text of one character."""
    if len(text) != 1:
        raise ValueError(f"{text!r} is not one character")
    return text


def base64_bytes(text: str) -> bytes:
    """The bytes of a text in base64."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"no base64: {error}") from None


def base64_text(value: bytes) -> str:
    """Bytes in base64."""
    return base64.b64encode(value).decode("ascii")


def date(text: str) -> datetime.date:
    """A date as ISO 8601 writes it."""
    return datetime.date.fromisoformat(text.strip())


def time(text: str) -> datetime.time:
    """A time of day; a time zone is passed over."""
    return datetime.time.fromisoformat(text.strip()).replace(tzinfo=None)


def timestamp(text: str) -> datetime.datetime:
    """A timestamp without a zone: in UTC if the text names a zone, otherwise as it stands."""
    moment = datetime.datetime.fromisoformat(text.strip())
    return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)


def instant(text: str) -> Instant:
    """A point in time: in UTC if the text names no zone."""
    moment = datetime.datetime.fromisoformat(text.strip())
    since = (moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)) - _EPOCH
    return Instant(since.days * 86_400 + since.seconds, since.microseconds * 1000)


def instant_text(value: Instant) -> str:
    """An instant in UTC, to the microsecond."""
    try:
        moment = _EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    except OverflowError:
        raise ValueError(f"{value} is not in the years 1 to 9999, which text has") from None
    return moment.replace(tzinfo=None).isoformat() + "Z"


def iso_text(value: datetime.date | datetime.time) -> str:
    """A date, time or timestamp as ISO 8601 writes it."""
    return value.isoformat()


def sql_text(value: datetime.date | datetime.time) -> str:
    """A date, time or timestamp as Flink writes it in CSV: a blank in place of ``T``, no zeros at the end."""
    return _FRACTION.sub(r"\1", value.isoformat().replace("T", " "))


def sql_instant_text(value: Instant) -> str:
    """The same of an instant."""
    return _FRACTION.sub(r"\1", instant_text(value).replace("T", " "))
