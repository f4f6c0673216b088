"""Converts columns of files to the types that a program declares, and puts columns into the order of a format.

A conversion that could lose something is refused. The types decide that, not the values at hand: a file of doubles does
not become one of integers because its first rows happen to be whole numbers. A value that is too large for the declared
type is an error, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.expressions.values import RECORDS, TUPLE

__all__ = ["check_column", "columns_in_order", "fitted", "place_of"]


def place_of(name: str, names: Sequence[str], title: str = "columns of the file") -> str | None:
    """The name, if it is among the names; else None.

    Raises:
        ValueError: the name is there more than once, so it is ambiguous.
    """
    count = list(names).count(name)
    if count > 1:
        raise ValueError(f"{count} {title} have the name {name!r}")
    return name if count else None


def check_column(name: str, stored: pa.DataType, declared: pa.DataType) -> None:
    """Check that values of a stored type can be values of a declared type.

    Args:
        name: name of the column, or path to a field inside it.
        stored: type in the file.
        declared: type in the program.

    Raises:
        ValueError: the values can't be, or a field inside is there twice.
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
    """Whether a type takes the values of another one unchanged, if they are not too large."""
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
    """Convert a column to the declared type. Nanoseconds are cut to the microseconds of Python's types, as in PyFlink.

    Args:
        name: name of the column, for errors.
        column: column whose type ``check_column`` has accepted.
        declared: type in the program.

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
            column = column.cast(_in_microseconds(stored), safe=False)  # changes nanoseconds inside only
        return column.cast(declared)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column {name!r} is {stored}, not {declared}: {error}") from error


def _in_microseconds(kind: Any) -> Any:
    """The type with microseconds instead of nanoseconds, also inside of it."""
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


def columns_in_order(batch: pa.RecordBatch, names: tuple[str, ...]) -> list[tuple[pa.Array, pa.Field]]:
    """Columns and fields of a stream's batch in the order of these names; columns of tuples go by position.

    Raises:
        ValueError: a name is missing, or there are not as many columns; the same error as for rows.
    """
    schema = batch.schema
    present = tuple(schema.names)
    if present == names:
        return list(zip(batch.columns, schema, strict=True))
    if (schema.metadata or {}).get(RECORDS) == TUPLE:
        if len(present) != len(names):
            raise ValueError(f"{len(present)} values for the {len(names)} fields {list(names)}")
        return list(zip(batch.columns, schema, strict=True))
    missing = sorted(set(names).difference(present))
    if missing:
        raise ValueError(f"Field names {missing} do not exist in a Row with the fields {list(present)}.")
    return [(batch.column(name), schema.field(name)) for name in names]
