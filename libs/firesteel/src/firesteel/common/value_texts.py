"""The text of typed records, as printed and in lines of files: that of Flink's Java types, as PyFlink gives it.

A row is ``+I[1, x]`` (its kind in front), a tuple ``(1,x)``, a list ``[1, 2]``, a map ``{a=1}``, a null ``null``, a
boolean ``true``, a FLOAT ``163.3`` and not the DOUBLE that Python holds it in. Large and small numbers have Python's
exponents (``1e+20``). Records without a declared type are printed as Python prints them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

from firesteel.common.typeinfo import (
    BasicArrayTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)

Text = Callable[[Any], str]


def text_of(type_info: TypeInformation | None) -> Text:
    """How records of a type are written; ``str`` for None."""
    if type_info is None:
        return str
    inner = _not_null_text_of(type_info)
    return lambda value: "null" if value is None else inner(value)


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
    """What ``Float.toString`` gives."""
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
        found = float(f"{value:.{digits}g}")
        try:
            if _FLOAT.pack(found) == bits:
                return found
        except OverflowError:  # rounded up beyond the largest one
            continue
    return float(value)


_LEAST_NORMAL_FLOAT: Final = 2.0**-126
_FLOAT = struct.Struct("f")


def _not_null_text_of(type_info: TypeInformation) -> Text:
    while isinstance(type_info, ExternalTypeInfo):
        type_info = type_info.type_info
    if isinstance(type_info, RowTypeInfo):
        row_fields = [text_of(field) for field in type_info.field_types]
        return lambda row: f"{row.get_row_kind()}[{_joined(row_fields, list(row), ', ')}]"
    if isinstance(type_info, TupleTypeInfo):
        tuple_fields = [text_of(field) for field in type_info.field_types]
        return lambda value: f"({_joined(tuple_fields, value, ',')})"
    if isinstance(type_info, MapTypeInfo):
        key, item = text_of(type_info.key_type), text_of(type_info.value_type)
        return lambda value: "{" + ", ".join(f"{key(k)}={item(v)}" for k, v in value.items()) + "}"
    if isinstance(type_info, ListTypeInfo | PrimitiveArrayTypeInfo | BasicArrayTypeInfo | ObjectArrayTypeInfo):
        element = text_of(type_info.element_type)
        return lambda value: f"[{', '.join([element(part) for part in value])}]"
    if type_info == Types.BOOLEAN():
        return lambda value: "true" if value else "false"
    if type_info == Types.FLOAT():
        return float_text
    return double_text if type_info == Types.DOUBLE() else str


def _joined(texts: Sequence[Text], values: Sequence[Any], separator: str) -> str:
    return separator.join(text(value) for text, value in zip(texts, values, strict=True))
