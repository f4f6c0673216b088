"""The columns of a stream in the order in which a format writes them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from firesteel.expressions.values import RECORDS, TUPLE, values_of

__all__ = ["arranged", "lists_of"]


def arranged(batch: pa.RecordBatch, names: tuple[str, ...]) -> list[tuple[pa.Array, pa.Field]]:
    """Columns and their fields: those of tuples by position, those of rows by name.

    Raises:
        ValueError: a name is not there, or there are not as many columns; as for rows.
    """
    schema = batch.schema
    found = tuple(schema.names)
    if found == names:
        return list(zip(batch.columns, schema, strict=True))
    if (schema.metadata or {}).get(RECORDS) == TUPLE:
        if len(found) != len(names):
            raise ValueError(f"{len(found)} values for the {len(names)} fields {list(names)}")
        return list(zip(batch.columns, schema, strict=True))
    missing = sorted(set(names).difference(found))
    if missing:
        raise ValueError(f"Field names {missing} do not exist in a Row with the fields {list(found)}.")
    return [(batch.column(name), schema.field(name)) for name in names]


def lists_of(batch: pa.RecordBatch, names: tuple[str, ...]) -> list[list[Any]]:
    """The values of each column in this order."""
    return [values_of(column, field) for column, field in arranged(batch, names)]
