"""Upserts by key become whole changes: updates and deletes get the row before them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from typing_extensions import override

from firesteel.runtime.operators.changelog import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    ChangelogFunction,
    ChangelogStates,
    weights_of,
)
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import columns_of
from firesteel.state.columnar.row_contents import equal_rows
from firesteel_sql.operators.changes import result
from firesteel_sql.operators.plans import NormalizePlan


class Normalization(ChangelogFunction):
    """Stores the row of each key, and compares it with what comes.

    The last change of a key in a batch counts. A row that is there already changes nothing, and neither does the
    deletion of a key that is not there.

    Args:
        plan: of the relation.
        inputs: columns of the input.
        output: columns of the results, which are the same.
    """

    def __init__(self, plan: NormalizePlan, inputs: Sequence[pa.Schema], output: pa.Schema) -> None:
        self._plan, (self._input,), self._output = plan, inputs, output

    @override
    def create_state(self, states: ChangelogStates) -> None:
        self._table = states.rows("rows", pa.schema(list(self._input)[: len(self._output)]), ttl=self._plan.ttl)

    @override
    def process(self, keys: Sequence[pa.Array], batch: Batch, input_index: int) -> Iterator[Batch]:
        table = self._table
        slots = table.slots(keys)
        table.forget_unused(slots)
        unique_slots, from_end = np.unique(slots[::-1], return_index=True)
        last = len(slots) - 1 - from_end  # the last change of each slot
        at, rows = table.rows_of(unique_slots)
        old_rows = np.full(len(unique_slots), -1, np.int64)
        old_rows[at] = rows
        # The row before an update goes: the one after it may have another key.
        is_there = weights_of(batch)[last] > 0
        columns = [column.take(pa.array(last)) for column in columns_of(batch).columns]

        both = np.flatnonzero(is_there & (old_rows >= 0))
        if self._plan.ttl:  # given again, so that state behind it lives on
            same = np.zeros(len(both), bool)
        else:
            same = equal_rows(table.take(old_rows[both]), [column.take(pa.array(both)) for column in columns])
        updated = both[~same]
        new = np.flatnonzero(is_there & (old_rows < 0))
        gone = np.flatnonzero(~is_there & (old_rows >= 0))

        dropped = old_rows[np.concatenate([gone, updated])]
        old_kinds = np.repeat(np.array([DELETE, UPDATE_BEFORE], np.int8), [len(gone), len(updated)])
        if len(dropped):
            yield result(table.take(dropped), self._output, old_kinds)
        added = np.concatenate([updated, new])
        new_kinds = np.repeat(np.array([UPDATE_AFTER, INSERT], np.int8), [len(updated), len(new)])
        new_columns = [column.take(pa.array(added)) for column in columns]
        if len(added):
            yield result(new_columns, self._output, new_kinds)
        table.drop(dropped)
        table.add(unique_slots[added], new_columns)
