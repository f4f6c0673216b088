"""Records as a table for notebooks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from firesteel.common.types import Row
from firesteel.core import html_cards
from firesteel.core.html_cards import MAX_ROWS, MAX_TEXT
from firesteel.core.short_repr import short_repr


def records_table(records: Sequence[Any]) -> str:
    """The first records as HTML: with columns if all are rows, tuples or dataclasses of the same fields."""
    shown = records[:MAX_ROWS]
    fields = [_fields(record) for record in shown]
    names = None if not fields or fields[0] is None else fields[0][0]
    if names and all(record is not None and record[0] == names for record in fields):
        rows = [[short_repr(value, MAX_TEXT) for value in record[1]] for record in fields if record is not None]
        return html_cards.table(names, rows)
    return html_cards.table([], [[short_repr(record, MAX_TEXT)] for record in shown])


def _fields(record: Any) -> tuple[list[str], list[Any]] | None:
    """Names and values of the fields of a record; None if it has none."""
    if isinstance(record, Row):
        values = list(record)
        return list(record._fields or _numbered(values)), values
    if isinstance(record, tuple):
        return list(getattr(record, "_fields", None) or _numbered(record)), list(record)
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        names = [field.name for field in dataclasses.fields(record) if field.repr]
        return names, [getattr(record, name, None) for name in names]
    return None


def _numbered(values: Sequence[Any]) -> list[str]:
    return [f"f{number}" for number in range(len(values))]
