"""Parts that operators over changes of tables share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.core.errors import ProgramError
from firesteel.core.short_repr import short_repr
from firesteel.functions.metrics import Counter
from firesteel.runtime.operators.changelog import DELETE, INSERT, weights_of
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import columns_of
from firesteel.state.columnar.row_contents import consolidated
from firesteel.state.columnar.row_table import RowTable

Ints = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int8]

END_OF_INPUT: Final = (1 << 63) - 1
"""The last watermark (epoch ms)."""
OUTPUT_ROWS: Final = 1 << 14
"""Rows of one batch of results."""


class Changes(NamedTuple):
    """Rows that are inserted or deleted, without those that cancel each other.

    Attributes:
        keys: columns of the rows' keys.
        columns: of the rows.
        weights: +1 or -1.
        kinds: row kinds.
    """

    keys: list[pa.Array]
    columns: list[pa.Array]
    weights: Ints
    kinds: Kinds

    def __len__(self) -> int:
        return len(self.weights)

    def at(self, positions: Ints) -> Changes:
        """The changes at some positions."""
        if len(positions) == len(self.weights) and (np.diff(positions) == 1).all():
            return self
        chosen = pa.array(positions)
        return Changes(
            [key.take(chosen) for key in self.keys],
            [column.take(chosen) for column in self.columns],
            self.weights[positions],
            self.kinds[positions],
        )

    @property
    def deleted(self) -> Ints:
        """Positions of deleted rows."""
        return np.flatnonzero(self.weights < 0)

    @property
    def inserted(self) -> Ints:
        """Positions of inserted rows."""
        return np.flatnonzero(self.weights > 0)


def net_changes(keys: Sequence[pa.Array], batch: Batch, width: int) -> Changes:
    """The changes of a batch.

    Args:
        keys: columns of the rows' keys.
        batch: rows with their kinds.
        width: number of the columns that belong to the table; further ones are left out.
    """
    columns = columns_of(batch).columns[:width]
    weights = weights_of(batch)
    kinds = np.zeros(len(batch), np.int8) if batch.kinds is None else np.asarray(batch.kinds, np.int8)
    changes = Changes(list(keys), columns, weights, kinds)
    if not columns:
        return changes
    stays = consolidated(columns, weights)
    return changes if stays is None else changes.at(stays)


def kinds_of(weights: Ints) -> Kinds:
    """Kinds of rows that are inserted and deleted."""
    return np.where(weights > 0, INSERT, DELETE).astype(np.int8)


def matched_rows(table: RowTable, changes: Changes, operator: str, unmatched: Counter) -> tuple[Ints, Changes]:
    """The rows that are deleted, and their changes.

    In a table with a time-to-live the row may have expired: the change is counted, and left out.

    Raises:
        ProgramError: a row that was never inserted is deleted.
    """
    rows = table.match(table.find(changes.keys), changes.columns)
    if len(rows) and rows.min() < 0:
        if table.life is None:
            raise unknown_row(operator, changes, int(np.argmin(rows)))
        known = np.flatnonzero(rows >= 0)
        unmatched.inc(len(rows) - len(known))
        return rows[known], changes.at(known)
    return rows, changes


def unknown_row(operator: str, changes: Changes, position: int) -> ProgramError:
    """The error about a row that is deleted, and was never inserted."""
    key = tuple(column[position].as_py() for column in changes.keys)
    row = {f"column {place + 1}": column[position].as_py() for place, column in enumerate(changes.columns)}
    return ProgramError(
        f"{operator}: a row of the key {short_repr(key[0] if len(key) == 1 else key)} is deleted that was never "
        f"inserted: {short_repr(row, 400)}. The input is not what changes of a table are: check the primary key and "
        "the changelog mode of the source table"
    )


def millis_of(column: pa.Array) -> Ints:
    """Times as epoch milliseconds; arbitrary for nulls."""
    if pt.is_timestamp(column.type):
        unit = {"s": 1, "ms": 1, "us": 1000, "ns": 1_000_000}[column.type.unit]
        numbers: Ints = column.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) // unit
        return numbers * 1000 if column.type.unit == "s" else numbers
    millis: Ints = pc.cast(column, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return millis


def nulls_of(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Which values are null."""
    nulls: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def result(columns: Sequence[Any], schema: pa.Schema, kinds: Kinds) -> Batch:
    """A batch of results."""
    rows = pa.RecordBatch.from_arrays(list(columns), schema=schema)
    return Batch(rows, None, kinds if kinds.any() else None)
