"""The text of typed records, for ``print()`` and lines of files: that of Flink's Java types, as PyFlink shows it.

A row is ``+I[1, x]`` (with its kind in front), a tuple ``(1,x)``, a list ``[1, 2]``, a map ``{a=1}``, null ``null``, a
boolean ``true``, and a FLOAT ``163.3``, without the digits of Python's DOUBLE. Large and small numbers have Python's
exponents (``1e+20``). Records without a declared type are printed as Python prints them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firesteel.common.type_table import ScalarRow, Shape, parts_of, resolved
from firesteel.common.typeinfo import TypeInformation
from firesteel.common.value_texts import Text


def text_of(type_info: TypeInformation | None) -> Text:
    """Return the function that writes records of a type; ``str`` if the type is None."""
    if type_info is None:
        return str
    inner = _not_null_text_of(type_info)
    return lambda value: "null" if value is None else inner(value)


def _not_null_text_of(type_info: TypeInformation) -> Text:
    type_info, row = resolved(type_info)
    if isinstance(row, ScalarRow):
        return row.print
    parts = [text_of(part) for part in parts_of(type_info)]
    match row.shape:
        case Shape.ROW:
            return lambda value: f"{value.get_row_kind()}[{_joined(parts, list(value), ', ')}]"
        case Shape.TUPLE:
            return lambda value: f"({_joined(parts, value, ',')})"
        case Shape.MAP:
            key, item = parts
            return lambda value: "{" + ", ".join(f"{key(k)}={item(v)}" for k, v in value.items()) + "}"
        case Shape.LIST:
            (element,) = parts
            return lambda value: f"[{', '.join([element(part) for part in value])}]"
    return str


def _joined(texts: Sequence[Text], values: Sequence[Any], separator: str) -> str:
    return separator.join(text(value) for text, value in zip(texts, values, strict=True))
