"""``PRINTF``: formats of Java's ``java.util.Formatter``, in the locale that Flink uses (English)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

from firesteel.common.value_texts import java_double_text

_SPECIFIER: Final = re.compile(r"%(?:(\d+)\$|(<))?([-#+ 0,(]*)(\d+)?(?:\.(\d+))?([a-zA-Z%])")
_EXACT: Final = Context(prec=400, rounding=ROUND_HALF_UP)


class FormatRefused(ValueError):
    """A format that is none, or that a value does not fit: the result is NULL."""


def java_format(pattern: str, values: Sequence[Any]) -> str:
    """The text of values by a format of Java's: ``java_format("%s has %05.1f", ["a", 1.5])``.

    Raises:
        FormatRefused: the format is none, or a value does not fit or is missing.
    """
    parts: list[str] = []
    place = ordinary = 0
    last = -1
    while place < len(pattern):
        if pattern[place] != "%":
            end = pattern.find("%", place)
            end = len(pattern) if end < 0 else end
            parts.append(pattern[place:end])
            place = end
            continue
        match = _SPECIFIER.match(pattern, place)
        if match is None:
            raise FormatRefused(pattern[place:])
        place = match.end()
        index, previous, flags, width, precision, conversion = match.groups()
        if conversion == "n":
            parts.append("\n")
            continue
        if conversion == "%":
            parts.append(_padded("%", flags, width))
            continue
        if previous:
            at = last
        elif index:
            at = int(index) - 1
        else:
            at, ordinary = ordinary, ordinary + 1
        if not 0 <= at < len(values):
            raise FormatRefused(match.group())
        last = at
        text = _converted(conversion, flags, width, None if precision is None else int(precision), values[at])
        parts.append(text.upper() if conversion.isupper() else text)
    return "".join(parts)


def _padded(text: str, flags: str, width: str | None) -> str:
    if "-" in flags and width is None:
        raise FormatRefused("-")
    size = int(width or 0)
    return text.ljust(size) if "-" in flags else text.rjust(size)


def _converted(conversion: str, flags: str, width: str | None, precision: int | None, value: Any) -> str:
    match conversion.lower():
        case "s":
            return _padded(_cut(_text(value), precision), flags, width)
        case "b":
            return _padded(_cut(_text(value) if isinstance(value, bool) else _lower(value is not None), precision),
                           flags, width)  # fmt: skip
        case "h":
            return _padded(_cut("null" if value is None else f"{_hash(value) & 0xFFFFFFFF:x}", precision), flags, width)
    if value is None:
        return _padded(_cut("null", precision), flags, width)
    match conversion:
        case "c" | "C" if isinstance(value, int) and not isinstance(value, bool) and precision is None:
            return _padded(chr(value), flags, width)
        case "d" if _is_integer(value) and precision is None:
            return _number(str(abs(value)), value < 0, flags, width)
        case "o" | "x" | "X" if _is_integer(value) and precision is None:
            return _based(conversion, value, flags, width)
        case "e" | "E" | "f" | "g" | "G" if isinstance(value, float):
            return _real(conversion.lower(), value, flags, width, 6 if precision is None else precision)
    raise FormatRefused(conversion)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _lower(value: bool) -> str:
    return str(value).lower()


def _text(value: Any) -> str:
    """A value as Java's ``String.valueOf`` shows those that Flink computes with."""
    match value:
        case None:
            return "null"
        case bool():
            return _lower(value)
        case float():
            return java_double_text(value)
        case Decimal():
            return format(value, "f")
        case datetime():
            return _moment_text(value.replace(tzinfo=None))
        case date():
            return str((value - date(1970, 1, 1)).days)
        case time():
            return str(((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000)
    return str(value)


def _moment_text(moment: datetime) -> str:
    """A timestamp as Java's ``LocalDateTime`` shows it: no seconds if they are 0, and 3 or 6 digits of a fraction."""
    if not moment.second and not moment.microsecond:
        return moment.isoformat(timespec="minutes")
    if not moment.microsecond:
        return moment.isoformat(timespec="seconds")
    return moment.isoformat(timespec="microseconds" if moment.microsecond % 1000 else "milliseconds")


def _cut(text: str, precision: int | None) -> str:
    return text if precision is None else text[:precision]


def _hash(value: Any) -> int:
    """``hashCode`` of a text as Flink holds it is that of its bytes; of whole numbers, the number itself."""
    if _is_integer(value):
        return int(value) if -(1 << 31) <= value < 1 << 31 else int(value ^ (value >> 32))
    raise FormatRefused("h")


def _based(conversion: str, value: int, flags: str, width: str | None) -> str:
    bits = 32 if -(1 << 31) <= value < 1 << 31 else 64
    digits = format(value & ((1 << bits) - 1), conversion)
    text = ({"o": "0", "x": "0x", "X": "0X"}[conversion] if "#" in flags else "") + digits
    return text.rjust(int(width or 0), "0") if "0" in flags else _padded(text, flags, width)


def _number(digits: str, is_negative: bool, flags: str, width: str | None) -> str:
    """Digits with their sign, grouping and padding."""
    if "," in flags:
        whole, point, fraction = digits.partition(".")
        digits = f"{int(whole):,}{point}{fraction}"
    if is_negative:
        before, after = ("(", ")") if "(" in flags else ("-", "")
    else:
        before, after = ("+" if "+" in flags else " " if " " in flags else ""), ""
    if "0" in flags:
        if width is None:
            raise FormatRefused("0")
        digits = digits.rjust(int(width) - len(before) - len(after), "0")
    return _padded(f"{before}{digits}{after}", flags.replace("0", ""), width)


def _real(conversion: str, value: float, flags: str, width: str | None, precision: int) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        text = "NaN" if value != value else "Infinity"
        if value < 0:
            text = f"({text})" if "(" in flags else "-" + text
        elif "+" in flags and value == value:
            text = "+" + text
        return _padded(text, flags.replace("0", ""), width)
    exact = abs(Decimal(repr(value)))
    is_negative = value < 0 or str(value).startswith("-")
    if conversion == "g":
        # ``precision`` significant digits. The rounded number decides: 999999.5 with six digits is 1.00000e+06.
        precision = precision or 1
        exponent = 0 if exact == 0 else Context(prec=precision, rounding=ROUND_HALF_UP).plus(exact).adjusted()
        conversion = "f" if -4 <= exponent < precision else "e"
        precision -= exponent + 1 if conversion == "f" else 1
    if conversion == "e":
        exponent = 0 if exact == 0 else exact.adjusted()
        mantissa = exact.scaleb(-exponent, _EXACT).quantize(Decimal(1).scaleb(-precision), context=_EXACT)
        if mantissa >= 10:
            mantissa, exponent = (mantissa / 10).quantize(Decimal(1).scaleb(-precision), context=_EXACT), exponent + 1
        digits = f"{mantissa:f}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    else:
        digits = format(exact.quantize(Decimal(1).scaleb(-precision), context=_EXACT), "f")
    return _number(digits, is_negative, flags, width)
