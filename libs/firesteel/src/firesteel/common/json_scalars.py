"""Scalar values and JSON: cells of the table of types. ``connectors.formats.json_values`` adds types with parts.

JSON is read in two ways with one result. msgspec reads text straight into a ``shape``, and ``convert`` makes the value
of what it read. It is stricter than Flink: it refuses numbers in quotes, infinite ones and lone surrogates. What it
refuses is parsed by Python's ``json``, and ``read`` makes the value of what that gives; errors come from there.
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
    """How values of a scalar type stand in JSON.

    Attributes:
        shape: what msgspec reads, null left aside.
        convert: makes the value of that; raises ``ValueError`` or ``ArithmeticError`` where ``read`` has to decide.
            None = it is the value.
        read: makes the value of what Python's ``json`` gives, null included; raises ``ValueError``.
        write: makes of a value, None included, what ``msgspec.json`` writes as it should.
    """

    shape: Any
    convert: Convert | None
    read: Convert
    write: Convert


def text_cell(parse: Parse, text: Text) -> JsonCell:
    """Values that are texts in JSON."""

    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not str:
            raise ValueError(f"a text is expected, not {value!r:.50}")
        return parse(value)

    return JsonCell(str, parse, read, lambda value: None if value is None else text(value))


def integer_cell(bits: int | None) -> JsonCell:
    """Whole numbers; those in quotes as well."""

    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is str:
            value = whole_number(value)
        if type(value) is not int:
            raise ValueError(f"an integer is expected, not {value!r:.50}")
        return value if bits is None else checked_integer(value, bits)

    half = 1 << ((bits or 1) - 1)
    shape = int if bits is None else Annotated[int, msgspec.Meta(ge=-half, le=half - 1)]
    return JsonCell(shape, None, read, write_instance_of(int))


def number_cell(shape: Any, convert: Convert | None, make: Convert, parse: Parse, write: Convert) -> JsonCell:
    """Numbers with a fraction; those in quotes as well.

    ``make`` makes the value of a number that is read, ``parse`` that of a text; the others are those of the cell.
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
    """Booleans; those in quotes as well."""

    def read(value: Any) -> Any:
        if value is None or value is True or value is False:
            return value
        if type(value) is not str:
            raise ValueError(f"a value of another type: {value!r:.50}")
        return parse(value)

    return JsonCell(bool, None, read, write_instance_of(bool))


def read_string(value: Any) -> Any:
    """A text; booleans and numbers become the text that they are in JSON."""
    if value is None or type(value) is str:
        return value
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, (int, float, Decimal)):
        return str(value)
    raise ValueError(f"a text is expected, not {value!r:.50}")


def write_any(value: Any) -> Any:
    """A value as Python writes it: msgspec takes more, such as bytes and NaN."""
    return None if value is None else msgspec.Raw(_encode(value).encode())


def write_instance_of(kind: type) -> Convert:
    """Writes values of one class as msgspec does, all others as Python does."""
    return lambda value: value if value is None or type(value) is kind else write_any(value)


def write_double(value: Any) -> Any:
    """A DOUBLE; NaN and the infinite ones are refused."""
    return value if type(value) is float and isfinite(value) else write_any(value)


def write_float(value: Any) -> Any:
    """A FLOAT, with the digits that it has."""
    return None if value is None else write_double(single(value))


def write_decimal(value: Any) -> Any:
    """A decimal number, with all its digits."""
    if value is None:
        return None
    if not value.is_finite():
        raise ValueError(f"{value} can't be written as JSON")
    return msgspec.Raw(str(value).encode())


def number_to_float(value: int | float | Decimal) -> float:
    """The FLOAT nearest to a number."""
    return to_float(float(value))


class _NoDecimal(float):
    """A number of which no decimal can be made."""


def decimal_or_float(text: str) -> Decimal | float:
    """A number with a point or an exponent; one that is no decimal is refused by who wants it as one."""
    try:
        return Decimal(text)
    except ArithmeticError:
        return _NoDecimal(text)


def number_to_decimal(value: int | float | Decimal) -> Decimal:
    """The decimal number of what ``decimal_or_float`` read."""
    if type(value) is _NoDecimal:
        raise ArithmeticError(value)
    return Decimal(value)


def raw_to_decimal(raw: Any) -> Decimal | None:
    """The decimal number of JSON's text, which has all its digits."""
    text = b"null" if raw is None else bytes(raw)
    if text == b"null":
        return None
    if text[0] not in b"-0123456789" or text == b"-0":
        raise ValueError("no number, or none as text has it")
    return Decimal(text.decode("ascii"))
