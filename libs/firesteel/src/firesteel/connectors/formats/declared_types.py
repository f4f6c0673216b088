"""Reads the types that programs declare for formats: type information, or data types of the Table API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firesteel.common.type_table import unwrapped
from firesteel.common.typeinfo import RowTypeInfo, TypeInformation
from firesteel.expressions.schema import Digits, digits_of_parts


def row_type(declared: Any, owner: str) -> RowTypeInfo:
    """The row type that a program declares.

    Raises:
        TypeError: the declared type is no row type.
    """
    inner = unwrapped(as_type(declared, owner))
    if not isinstance(inner, RowTypeInfo):
        raise TypeError(f"{owner} takes a row type such as Types.ROW_NAMED([...], [...]), not {inner}")
    return inner


def narrowed(row: RowTypeInfo, names: Sequence[str]) -> RowTypeInfo:
    """The row type with these fields only, in this order."""
    types = dict(zip(row.field_names, row.field_types, strict=True))
    return RowTypeInfo([types[name] for name in names], list(names))


def narrowed_digits(row: RowTypeInfo, digits: Digits, names: Sequence[str]) -> Digits:
    """The digits of these fields, in this order."""
    digits_by_name = dict(zip(row.field_names, digits_of_parts(digits, len(row.field_names)), strict=True))
    return [digits_by_name[name] for name in names]


def as_type(declared: Any, owner: str) -> TypeInformation:
    """The declared type as type information; a data type of the Table API (``DataTypes``) is converted.

    Raises:
        TypeError: the declared type is neither.
    """
    convert = None if isinstance(declared, type) else getattr(declared, "to_type_info", None)
    if convert is None:
        raise TypeError(f"{owner} takes type information, not {declared!r}")
    inner: TypeInformation = convert()
    return inner


def digits_of(declared: Any) -> Digits:
    """Precision and scale of the decimal numbers in a data type of the Table API; None = there are no such numbers.

    For a row this is a list of the digits of its fields, for a map of those of key and value; for an array it is the
    digits of its elements.
    """
    match getattr(declared, "name", None):  # type information has none
        case "DECIMAL":
            return declared.parameters
        case "ROW":
            return list(map(digits_of, declared.field_types()))
        case "MAP":
            return [digits_of(declared.key_type), digits_of(declared.value_type)]
        case "ARRAY":
            return digits_of(declared.element_type)
    return None
