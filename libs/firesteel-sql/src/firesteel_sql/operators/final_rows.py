"""The rows of a bounded table once all changes are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from typing_extensions import override

from firesteel.runtime.operators.changelog import ChangelogContext, ChangelogFunction, ChangelogStates
from firesteel.runtime.records.batch import Batch
from firesteel_sql.operators.changes import END_OF_INPUT, OUTPUT_ROWS, matched_rows, net_changes, result
from firesteel_sql.operators.ordering import sort_codes, sort_rows
from firesteel_sql.operators.plans import SortPlan

_ARRIVAL = "arrival"


class FinalRows(ChangelogFunction):
    """Keeps the rows of a table until its input has ended; then they leave in their order, as inserted ones.

    Args:
        plan: of the relation.
        inputs: columns of the input.
        output: columns of the results.
    """

    def __init__(self, plan: SortPlan, inputs: Sequence[pa.Schema], output: pa.Schema) -> None:
        self._plan, self._output = plan, output

    @override
    def create_state(self, states: ChangelogStates) -> None:
        self._table = states.rows("rows", self._output, [_ARRIVAL], stays=True)

    @override
    def open(self, context: ChangelogContext) -> None:
        super().open(context)
        self._unmatched = context.metrics.counter("numUnmatchedRetractions")
        self._arrivals = int(self._table.numbers[_ARRIVAL].get(self._table.all_rows()).max(initial=-1)) + 1

    @override
    def process(self, keys: Sequence[pa.Array], batch: Batch, input_index: int) -> Iterator[Batch]:
        table = self._table
        changes = net_changes(keys, batch, self._plan.width)
        insertions = changes.at(changes.inserted)
        added = table.add(table.slots(insertions.keys), insertions.columns)
        table.numbers[_ARRIVAL].set(added, np.arange(self._arrivals, self._arrivals + len(added)))
        self._arrivals += len(added)
        deletions = changes.at(changes.deleted)
        table.drop(matched_rows(table, deletions, self.context.operator, self._unmatched)[0])
        return iter(())

    @override
    def on_watermark(self, watermark: int) -> Iterator[Batch]:
        if watermark < END_OF_INPUT:
            return
        table = self._table
        rows = table.all_rows()
        codes = sort_codes(table.take(rows), self._plan.order)
        order = sort_rows(np.zeros(len(rows), np.int64), codes, table.numbers[_ARRIVAL].get(rows)).order
        for start in range(0, len(rows), OUTPUT_ROWS):
            piece = rows[order[start : start + OUTPUT_ROWS]]
            yield result(table.take(piece), self._output, np.zeros(len(piece), np.int8))
        table.drop(rows)
