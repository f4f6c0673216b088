"""Columns of files brought to the types that a program declares, where nothing is lost by that.

The types decide, not the values at hand: a file of doubles does not become one of integers because its first rows
happen to be whole numbers. Within one kind a value may be too large for the declared type; that is an error, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

__all__ = ["check_column", "fitted", "place_of"]


def place_of(name: str, names: Sequence[str], what: str = "columns of the file") -> str | None:
    """The name, if a file has it; None = it has not.

    Raises:
        ValueError: the file has it more than once, so nobody knows which one is meant.
    """
    count = list(names).count(name)
    if count > 1:
        raise ValueError(f"{count} {what} have the name {name!r}")
    return name if count else None


def check_column(name: str, stored: pa.DataType, declared: pa.DataType) -> None:
    """See that values of one type are values of the other.

    Args:
        name: of the column, or the path to a field inside it.
        stored: its type in the file.
        declared: its type in the program.

    Raises:
        ValueError: they are not, or a field inside stands twice.
    """
    if isinstance(stored, pa.BaseExtensionType):
        stored = stored.storage_type
    if pt.is_dictionary(stored):
        stored = stored.value_type
    if stored == declared or pt.is_null(stored):
        return
    if pt.is_struct(stored) and pt.is_struct(declared):
        for field in declared:
            if place_of(field.name, [inner.name for inner in stored], f"fields of column {name!r}"):
                check_column(f"{name}.{field.name}", stored.field(field.name).type, field.type)
    elif _is_list(stored) and _is_list(declared):
        check_column(f"{name}[]", stored.value_type, declared.value_type)
    elif pt.is_map(stored) and pt.is_map(declared):
        check_column(f"{name} (keys)", stored.key_type, declared.key_type)
        check_column(f"{name} (values)", stored.item_type, declared.item_type)
    elif not _holds(declared, stored):
        raise ValueError(f"column {name!r} is {stored}, not {declared}")


def _holds(declared: pa.DataType, stored: pa.DataType) -> bool:
    """Whether a type takes values of another one as they are, if they are not too large."""
    if pt.is_integer(declared):
        return bool(pt.is_integer(stored))
    if pt.is_floating(declared):
        narrower = pt.is_floating(stored) and stored.bit_width <= declared.bit_width
        return bool(narrower or pt.is_integer(stored))
    if pt.is_decimal(declared):
        return bool(pt.is_decimal(stored) or pt.is_integer(stored))
    if _is_text(declared) or _is_bytes(declared):
        return _is_text(stored) or _is_bytes(stored)  # bytes have to be UTF-8, which the cast checks
    return any(kind(declared) and kind(stored) for kind in (pt.is_timestamp, pt.is_time, pt.is_date))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind) or pt.is_fixed_size_binary(kind)
    )


def fitted(name: str, column: pa.Array, declared: pa.DataType) -> pa.Array:
    """The column in the declared type. Nanoseconds are cut to microseconds, which Python's types hold, as PyFlink does.

    Args:
        name: for errors.
        column: of a type for which ``check_column`` has nothing to say.
        declared: its type in the program.

    Raises:
        ValueError: a value is too large, or no UTF-8.
    """
    stored = column.type
    if stored == declared:
        return column
    try:
        if stored == pa.time64("ns") or (pt.is_timestamp(stored) and stored.unit == "ns"):
            column = pc.floor_temporal(column, unit="microsecond")
        elif pt.is_nested(stored):
            column = column.cast(_in_microseconds(stored), safe=False)  # changes nothing else
        return column.cast(declared)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column {name!r} is {stored}, not {declared}: {error}") from error


def _in_microseconds(kind: Any) -> Any:
    if pt.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if kind == pa.time64("ns"):
        return pa.time64("us")
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_in_microseconds(field.type)) for field in kind])
    if pt.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_microseconds(kind.value_type)))
    if pt.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_in_microseconds(kind.item_type)))
    return kind
