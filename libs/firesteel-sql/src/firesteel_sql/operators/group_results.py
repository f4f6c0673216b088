"""Rows of changes: what was there before a batch and what is there after it, as rows with kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.runtime.operators.changelog import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from firesteel.runtime.records.batch import Batch

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def differs(before: pa.Array, after: pa.Array) -> Mask:
    """Where two columns of one type have different values; two NULLs are equal, and so are two NaN."""
    if pt.is_nested(before.type):
        pairs = zip(before.to_pylist(), after.to_pylist(), strict=True)
        return np.fromiter((one != other for one, other in pairs), bool, len(before))
    unequal = pc.not_equal(before, after)
    if pt.is_floating(before.type):
        unequal = pc.and_(unequal, pc.invert(pc.and_(pc.is_nan(before), pc.is_nan(after))))
    mask: Mask = unequal.fill_null(False).to_numpy(zero_copy_only=False)
    if before.null_count or after.null_count:
        mask |= pc.not_equal(before.is_null(), after.is_null()).to_numpy(zero_copy_only=False)
    return mask


def changes_of_groups(
    schema: pa.Schema,
    keys: Sequence[pa.Array],
    existed: Mask,
    exists: Mask,
    before: Sequence[pa.Array],
    after: Sequence[pa.Array],
    *,
    resends: bool = False,
) -> Batch | None:
    """What changed in the rows of some groups, each of which has one row or none.

    A row that changed gives -U with the values before and +U with those after it, next to each other. None = nothing
    has changed.

    Args:
        schema: columns of the rows: the key, then the values.
        keys: of the groups.
        existed: which groups had a row before.
        exists: which groups have one now.
        before: values of the rows before; of groups without one they are arbitrary.
        after: values of the rows now.
        resends: rows that have not changed are given, too: state behind them has a time-to-live.
    """
    changed = np.full(len(existed), resends)
    for old, new in zip(before, after, strict=True):
        changed |= differs(old, new)
    withdrawn = np.flatnonzero(existed & (changed | ~exists))
    given = np.flatnonzero(exists & (changed | ~existed))
    if not withdrawn.size and not given.size:
        return None
    order = np.argsort(np.concatenate([2 * withdrawn, 2 * given + 1]), kind="stable")
    positions = pa.array(np.concatenate([withdrawn, given])[order])
    columns = [key.take(positions) for key in keys]
    picks = pa.array(order)
    for old, new in zip(before, after, strict=True):
        columns.append(pa.concat_arrays([old.take(pa.array(withdrawn)), new.take(pa.array(given))]).take(picks))
    kinds = np.concatenate(
        [np.where(exists[withdrawn], UPDATE_BEFORE, DELETE), np.where(existed[given], UPDATE_AFTER, INSERT)]
    )
    return Batch(pa.RecordBatch.from_arrays(columns, schema=schema), None, kinds[order].astype(np.int8))


def truths(column: pa.Array) -> Mask:
    """Where a Boolean column is true, neither false nor NULL."""
    mask: Mask = column.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def inserted(schema: pa.Schema, columns: Sequence[Any]) -> Batch:
    """A batch of rows that are inserted."""
    return Batch(pa.RecordBatch.from_arrays(list(columns), schema=schema))
