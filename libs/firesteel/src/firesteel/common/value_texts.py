"""The text of typed records, as printed and in lines of files: that of Flink's Java types, as PyFlink gives it.

A row is ``+I[1, x]`` (its kind in front), a tuple ``(1,x)``, a list ``[1, 2]``, a map ``{a=1}``, a null ``null``, a
boolean ``true``. Records without a declared type are printed as Python prints them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from firesteel.common.typeinfo import (
    BasicArrayTypeInfo,
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


def _not_null_text_of(type_info: TypeInformation) -> Text:
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
        return lambda value: f"[{', '.join(map(element, value))}]"
    if type_info == Types.BOOLEAN():
        return lambda value: "true" if value else "false"
    return str


def _joined(texts: Sequence[Text], values: Sequence[Any], separator: str) -> str:
    return separator.join(text(value) for text, value in zip(texts, values, strict=True))
