"""Rows that become several: the elements of collections, and repeated rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from typing_extensions import override

from firesteel.runtime.operators.changelog import RowExpansion
from firesteel.state.columnar.slot_lists import spread
from firesteel_sql.operators.changes import Ints, nulls_of
from firesteel_sql.operators.plans import UnnestPlan


class ElementRows(RowExpansion):
    """Gives a row for each element of a collection.

    Args:
        plan: of the relation.
        input_schema: columns of the input.
        output: columns of the results.
    """

    def __init__(self, plan: UnnestPlan, input_schema: pa.Schema, output: pa.Schema) -> None:
        self._plan, self._output = plan, output

    @override
    def expand(self, rows: pa.RecordBatch) -> tuple[Ints, pa.RecordBatch]:
        collection = rows.column(self._plan.collection)
        starts, counts = _extents(collection)
        origins, elements = np.repeat(np.arange(len(counts)), counts), spread(starts, counts)
        numbers = spread(np.ones(len(counts), np.int64), counts)
        if self._plan.is_multiset:
            repeats = collection.items.take(pa.array(elements)).fill_null(0).to_numpy(zero_copy_only=False)
            origins, elements = np.repeat(origins, repeats), np.repeat(elements, repeats)
            counts = np.bincount(origins, minlength=len(counts))
            numbers = spread(np.ones(len(counts), np.int64), counts)
        if self._plan.is_outer and len(counts) and not counts.all():
            # A row without elements stays, with an element that is not there.
            origins = np.concatenate([origins, np.flatnonzero(counts == 0)])
            order = np.argsort(origins, kind="stable")
            missing = np.full(len(origins) - len(elements), -1)
            origins, elements = origins[order], np.concatenate([elements, missing])[order]
            numbers = np.concatenate([numbers, missing])[order]
        chosen = pa.array(elements, mask=elements < 0)
        if pt.is_map(collection.type):
            parts = [collection.keys] if self._plan.is_multiset else [collection.keys, collection.items]
        else:
            parts = [collection.values]
        columns = [column.take(pa.array(origins)) for column in rows.columns]
        fields = list(self._output)[len(columns) :]
        if len(parts) == 1 and self._plan.has_fields:
            columns += parts[0].take(chosen).flatten()
        else:
            columns += [part.take(chosen) for part in parts]
        if self._plan.with_ordinality:
            columns.append(pa.array(numbers, pa.int64(), mask=numbers < 0).cast(fields[-1].type))
        return origins, pa.RecordBatch.from_arrays(columns, schema=self._output)


def _extents(collection: pa.Array) -> tuple[Ints, Ints]:
    """Where the elements of each collection begin, and their numbers; none for NULL."""
    offsets = collection.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    counts = np.diff(offsets)
    if collection.null_count:
        counts[nulls_of(collection)] = 0
    return offsets[:-1], counts


class RepeatedRows(RowExpansion):
    """Gives each row as often as a column says, without that column.

    Args:
        place: of the column.
        input_schema: columns of the input.
        output: columns of the results.
    """

    def __init__(self, place: int, input_schema: pa.Schema, output: pa.Schema) -> None:
        self._place, self._output = place, output

    @override
    def expand(self, rows: pa.RecordBatch) -> tuple[Ints, pa.RecordBatch]:
        counts = rows.column(self._place).fill_null(0).to_numpy(zero_copy_only=False)
        origins = np.repeat(np.arange(rows.num_rows), np.maximum(counts, 0))
        columns = [column for place, column in enumerate(rows.columns) if place != self._place]
        chosen = pa.array(origins)
        return origins, pa.RecordBatch.from_arrays([column.take(chosen) for column in columns], schema=self._output)
