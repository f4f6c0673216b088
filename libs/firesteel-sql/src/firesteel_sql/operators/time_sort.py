"""Rows in the order of a time attribute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from typing_extensions import override

from firesteel.runtime.operators.changelog import ChangelogContext, ChangelogFunction, ChangelogStates
from firesteel.runtime.records.batch import Batch
from firesteel_sql.operators.changes import OUTPUT_ROWS, Ints, millis_of, net_changes, result
from firesteel_sql.operators.expiry import ExpiryQueue
from firesteel_sql.operators.ordering import sort_codes, sort_rows
from firesteel_sql.operators.plans import SortPlan

_ARRIVAL = "arrival"


class SortedByTime(ChangelogFunction):
    """Keeps rows until the watermark passes them; later ones are dropped, and counted.

    Args:
        plan: of the relation.
        inputs: columns of the input.
        output: columns of the results.
    """

    def __init__(self, plan: SortPlan, inputs: Sequence[pa.Schema], output: pa.Schema) -> None:
        self._plan, self._output = plan, output
        self._rows = pa.schema(list(inputs[0])[: plan.width])

    @override
    def create_state(self, states: ChangelogStates) -> None:
        self._table = states.rows("rows", self._rows, [_ARRIVAL, ExpiryQueue.NUMBER], stays=True)

    @override
    def open(self, context: ChangelogContext) -> None:
        super().open(context)
        self._queue = ExpiryQueue(self._table, 100)
        self._arrivals = int(self._table.numbers[_ARRIVAL].get(self._table.all_rows()).max(initial=-1)) + 1
        self._late_rows = context.metrics.counter("numLateRecordsDropped")

    @override
    def process(self, keys: Sequence[pa.Array], batch: Batch, input_index: int) -> Iterator[Batch]:
        table = self._table
        changes = net_changes(keys, batch, self._plan.width)
        deletions = changes.at(changes.deleted)
        rows = table.match(table.find(deletions.keys), deletions.columns)
        table.drop(rows[rows >= 0])
        if (rows < 0).any():  # these rows have left already
            known = deletions.at(np.flatnonzero(rows < 0))
            yield result(known.columns, self._output, known.kinds)
        insertions = changes.at(changes.inserted)
        times = self._times(insertions.columns)
        in_time = np.flatnonzero(times > self.context.watermark())
        self._late_rows.inc(len(insertions) - len(in_time))
        insertions = insertions.at(in_time)
        added = table.add(table.slots(insertions.keys), insertions.columns)
        table.numbers[_ARRIVAL].set(added, np.arange(self._arrivals, self._arrivals + len(added)))
        self._arrivals += len(added)
        self._queue.set(added, times[in_time])

    @override
    def on_watermark(self, watermark: int) -> Iterator[Batch]:
        table = self._table
        rows = self._queue.due(watermark)
        codes = sort_codes(table.take(rows), self._plan.order)
        order = sort_rows(np.zeros(len(rows), np.int64), codes, table.numbers[_ARRIVAL].get(rows)).order
        for start in range(0, len(rows), OUTPUT_ROWS):
            piece = rows[order[start : start + OUTPUT_ROWS]]
            yield result(table.take(piece), self._output, np.zeros(len(piece), np.int8))
        table.drop(rows)

    def _times(self, columns: Sequence[pa.Array]) -> Ints:
        return millis_of(columns[self._plan.order[0].place])
