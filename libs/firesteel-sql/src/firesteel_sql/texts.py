"""Rows and values as text: what ``print`` tables, ``TableResult.print()`` and casts to STRING show."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from firesteel.common.types import Row
from firesteel.common.value_texts import java_double_text, java_float_text
from firesteel.table.types import DataType, ElementsType, MapType, RowType
from firesteel_sql.types.intervals import DAY_TIME, YEAR_MONTH

KINDS = ("+I", "-U", "+U", "-D")


def value_text(value: Any, data_type: DataType | None = None) -> str:
    """A value as SQL shows it; NULL for None."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case Decimal():
            return format(value, "f")
        case float():
            return (
                java_float_text(value)
                if data_type is not None and data_type.name == "FLOAT"
                else java_double_text(value)
            )
        case datetime():
            digits = data_type.parameters[0] if data_type is not None and data_type.parameters else 6
            return _moment_text(value, digits)
        case date() | time():
            return value.isoformat()
        case bytes():
            return f"x'{value.hex()}'"
        case list() if isinstance(data_type, MapType):  # as Arrow gives it
            return value_text(dict(value), data_type)
        case dict():
            key, item = (data_type.key_type, data_type.value_type) if isinstance(data_type, MapType) else (None, None)
            return "{" + ", ".join(f"{value_text(k, key)}={value_text(v, item)}" for k, v in value.items()) + "}"
        case Row():
            types: Sequence[DataType | None] = (
                data_type.field_types() if isinstance(data_type, RowType) else [None] * len(list(value))
            )
            return f"({', '.join(value_text(part, part_type) for part, part_type in zip(value, types, strict=True))})"
        case list() | tuple():
            element = data_type.element_type if isinstance(data_type, ElementsType) else None
            return f"[{', '.join(value_text(part, element) for part in value)}]"
    if data_type is not None and data_type.name == DAY_TIME.name:
        return _interval_text(int(value))
    if data_type is not None and data_type.name == YEAR_MONTH.name:
        sign, months = ("-", -value) if value < 0 else ("+", value)
        return f"{sign}{months // 12}-{months % 12:02d}"
    return str(value)


def _moment_text(value: datetime, digits: int) -> str:
    text = value.replace(tzinfo=None, microsecond=0).isoformat(" ")
    return f"{text}.{value.microsecond:06d}"[: len(text) + 1 + digits] if digits else text


def _interval_text(millis: int) -> str:
    sign, millis = ("-", -millis) if millis < 0 else ("+", millis)
    seconds, fraction = divmod(millis, 1000)
    clock = f"{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{sign}{seconds // 86400} {clock}.{fraction:03d}"


def row_text(row: Any, types: Sequence[DataType | None]) -> str:
    """A row with its kind: ``+I[1, a]``."""
    kind = KINDS[row.get_row_kind().value] if isinstance(row, Row) else KINDS[0]
    return f"{kind}[{', '.join(value_text(value, data_type) for value, data_type in zip(row, types, strict=True))}]"


def type_text(data_type: DataType) -> str:
    """A type as DESCRIBE shows it, and as statements write it."""
    text = str(data_type)
    for name, written in _WRITTEN.items():
        text = text.replace(name, written)
    return text


_WRITTEN = {
    "VARCHAR(2147483647)": "STRING", "VARBINARY(2147483647)": "BYTES", YEAR_MONTH.name: "INTERVAL MONTH",
    DAY_TIME.name: "INTERVAL SECOND(3)",
}  # fmt: skip
"""What statements write for some types."""
