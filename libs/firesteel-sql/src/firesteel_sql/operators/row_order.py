"""The order of rows by SQL's sort keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel_sql.plan.stateful_relations import SortKey

Ints = npt.NDArray[np.int64]


def row_order(groups: Ints, keys: Sequence[tuple[pa.Array, SortKey]], positions: Ints) -> Ints:
    """The order of rows: by group, then by the sort keys, then by position.

    NaN is above all numbers, and texts are ordered by their code points.
    """
    parts: list[npt.NDArray[Any]] = [positions]
    for column, key in reversed(keys):
        ranks = _ranks(column)
        ranks = ranks if key.ascending else -ranks
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        if nulls.any():
            ranks = np.where(nulls, 0, ranks)
        parts.append(ranks)
        if nulls.any():
            parts.append(np.where(nulls, -1 if key.nulls_first else 1, 0))
    order: Ints = np.lexsort([*parts, groups])
    return order


def _ranks(column: pa.Array) -> npt.NDArray[Any]:
    """Numbers that are ordered as the values of a column; arbitrary ones for nulls."""
    if pt.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pt.is_temporal(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    if pt.is_integer(column.type) and column.type.bit_width < 64:
        whole: npt.NDArray[Any] = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return whole
    if pt.is_floating(column.type):
        numbers: npt.NDArray[Any] = column.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64)
        if not np.isnan(numbers).any():
            return numbers
    # The number of a value among all different ones: also for 64 bits, where the least has no opposite.
    ranks: npt.NDArray[Any] = pc.rank(column, tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64)
    return ranks
