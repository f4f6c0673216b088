"""Scalar values in JSON: cells of the table of types. ``connectors.formats.json_values`` adds types with parts.

JSON is read in two ways with the same result. The fast way: msgspec reads text directly into a ``shape``, which
``convert`` turns into the value. But msgspec is stricter than Flink: it refuses numbers in quotes, infinite numbers and
lone surrogates. Text that it refuses is parsed by Python's ``json``, and ``read`` makes the value; that also decides
about errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Annotated, Any, Final

import msgspec

from firesteel.common.value_texts import Parse, Text, checked_integer, single, to_float, whole_number

Convert = Callable[[Any], Any]
_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


@dataclass(frozen=True)
class JsonCell:
    """Representation of a scalar type's values in JSON.

    Attributes:
        shape: type that msgspec reads, apart from null.
        convert: makes the value from msgspec's; raises ``ValueError`` or ``ArithmeticError`` to leave the decision to
            ``read``. None = msgspec's is the value already.
        read: makes the value from that of Python's ``json``, including None; raises ``ValueError``.
        write: converts a value, including None, to an object that ``msgspec.json`` writes in the right form.
    """

    shape: Any
    convert: Convert | None
    read: Convert
    write: Convert


def text_cell(parse: Parse, text: Text) -> JsonCell:
    """Make the cell of values that are text in JSON."""

    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not str:
            raise ValueError(f"a text is expected, not {value!r:.50}")
        return parse(value)

    return JsonCell(str, parse, read, lambda value: None if value is None else text(value))


def integer_cell(bits: int | None) -> JsonCell:
    """Make the cell of integers, which may also be in quotes."""

    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is str:
            value = whole_number(value)
        if type(value) is not int:
            raise ValueError(f"an integer is expected, not {value!r:.50}")
        return value if bits is None else checked_integer(value, bits)

    # msgspec checks the range itself; what it refuses is read again by read(), which raises the error.
    half = 1 << ((bits or 1) - 1)
    shape = int if bits is None else Annotated[int, msgspec.Meta(ge=-half, le=half - 1)]
    return JsonCell(shape, None, read, write_instance_of(int))


def number_cell(shape: Any, convert: Convert | None, make: Convert, parse: Parse, write: Convert) -> JsonCell:
    """Make the cell of numbers with a fraction, which may also be in quotes.

    ``make`` makes the value from a number that Python's ``json`` has read, ``parse`` from a text; the other arguments
    are attributes of the cell.
    """

    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is str:
            return parse(value)
        if value is True or value is False or not isinstance(value, (int, float, Decimal)):
            raise ValueError(f"a number is expected, not {value!r:.50}")
        try:
            return make(value)
        except OverflowError:
            raise ValueError(f"{str(value)[:20]}... is too large") from None

    return JsonCell(shape, convert, read, write)


def boolean_cell(parse: Parse) -> JsonCell:
    """Make the cell of booleans, which may also be in quotes."""

    def read(value: Any) -> Any:
        if value is None or value is True or value is False:
            return value
        if type(value) is not str:
            raise ValueError(f"a value of another type: {value!r:.50}")
        return parse(value)

    return JsonCell(bool, None, read, write_instance_of(bool))


def read_string(value: Any) -> Any:
    """Read a text; booleans and numbers become their text in JSON."""
    if value is None or type(value) is str:
        return value
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, (int, float, Decimal)):
        return str(value)
    raise ValueError(f"a text is expected, not {value!r:.50}")


def write_any(value: Any) -> Any:
    """Write a value as Python's ``json`` does, which refuses more than msgspec, such as bytes and NaN."""
    return None if value is None else msgspec.Raw(_encode(value).encode())


def write_instance_of(kind: type) -> Convert:
    """Make the writer of values of one class by msgspec, and of all others by Python's ``json``."""
    return lambda value: value if value is None or type(value) is kind else write_any(value)


def write_double(value: Any) -> Any:
    """Write a DOUBLE; NaN and infinite values are refused."""
    return value if type(value) is float and isfinite(value) else write_any(value)


def write_float(value: Any) -> Any:
    """Write a FLOAT, with its own digits and not those of the DOUBLE."""
    return None if value is None else write_double(single(value))


def write_decimal(value: Any) -> Any:
    """Write a decimal number with all its digits."""
    if value is None:
        return None
    if not value.is_finite():
        raise ValueError(f"{value} can't be written as JSON")
    return msgspec.Raw(str(value).encode())


def write_plain_decimal(value: Any) -> Any:
    """Write a decimal number with all its digits, and without an exponent."""
    return None if value is None else msgspec.Raw(format(value, "f").encode())


def number_to_float(value: int | float | Decimal) -> float:
    """Round a number to the nearest FLOAT."""
    return to_float(float(value))


class _NoDecimal(float):
    """A number that can't be converted to ``Decimal``."""


def decimal_or_float(text: str) -> Decimal | float:
    """Parse a number with a point or an exponent; ``number_to_decimal`` refuses one that is not a decimal."""
    try:
        return Decimal(text)
    except ArithmeticError:
        return _NoDecimal(text)


def number_to_decimal(value: int | float | Decimal) -> Decimal:
    """Convert a number from ``decimal_or_float`` to ``Decimal``."""
    if type(value) is _NoDecimal:
        raise ArithmeticError(value)
    return Decimal(value)


def raw_to_decimal(raw: Any) -> Decimal | None:
    """Convert the raw JSON text of a number to ``Decimal``, with all its digits."""
    text = b"null" if raw is None else bytes(raw)
    if text == b"null":
        return None
    # Left to read(): numbers in quotes, and -0, which Python's json reads as the integer 0.
    if text[0] not in b"-0123456789" or text == b"-0":
        raise ValueError("not a number, or a negative zero")
    return Decimal(text.decode("ascii"))
