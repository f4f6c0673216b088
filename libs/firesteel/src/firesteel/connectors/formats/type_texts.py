"""Declared types as programs hand them to formats: type information, or data types of the Table API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firesteel.common.type_table import unwrapped
from firesteel.common.typeinfo import RowTypeInfo, TypeInformation
from firesteel.expressions.schema import Digits, digits_of_parts


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
    """The digits of these fields."""
    digits_by_name = dict(zip(row.field_names, digits_of_parts(digits, len(row.field_names)), strict=True))
    return [digits_by_name[name] for name in names]


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
