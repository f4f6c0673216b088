"""Rows with results over the rows around them (OVER).

Where rows are only inserted, and their order begins with a time attribute, each row leaves once, when the watermark
has passed it: all rows in front of it have come then. Of the rows that have left those stay that are in frames of later
ones; for frames that begin with the partition a value for each call stands for them. Everywhere else a change computes
the partitions that it touches before and after it, and what differs is a change of the result.
"""

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
    ChangelogContext,
    ChangelogFunction,
    ChangelogStates,
)
from firesteel.runtime.records.batch import Batch
from firesteel.state.columnar.row_contents import equal_rows
from firesteel_sql.operators.changes import OUTPUT_ROWS, Ints, Kinds, matched_rows, millis_of, net_changes, result
from firesteel_sql.operators.expiry import ExpiryQueue
from firesteel_sql.operators.ordering import sort_codes, sort_rows
from firesteel_sql.operators.over_frames import OverComputation, running_fields
from firesteel_sql.operators.plans import OverPlan
from firesteel_sql.plan.meanings import over_text

_ARRIVAL = "arrival"
_LEFT = "left"
"""1 for rows that have left with their results, and stay for those of later rows."""


class OverRows(ChangelogFunction):
    """Computes results over the rows around each row.

    Args:
        plan: of the relation.
        inputs: columns of the input.
        output: columns of the results.
    """

    def __init__(self, plan: OverPlan, inputs: Sequence[pa.Schema], output: pa.Schema) -> None:
        self._plan, self._output = plan, output
        self._schema = pa.schema(list(inputs[0])[: plan.width])

    @override
    def create_state(self, states: ChangelogStates) -> None:
        self._leaves_once = self._plan.is_by_time or self._plan.is_by_clock
        expires = [ExpiryQueue.NUMBER, _LEFT] if self._leaves_once else []
        ttl, stays = self._plan.ttl, self._plan.is_by_time
        self._table = states.rows("rows", self._schema, [_ARRIVAL, *expires], ttl=ttl, stays=stays)
        calls = [self._plan.calls[number] for number in self._plan.running]
        known = [
            pa.field(f"{over_text(over, self._schema.names)} {at}", part)
            for over in calls
            for at, part in enumerate(running_fields(over.call, self._schema))
        ]
        self._known = states.rows("running", pa.schema(known), ttl=self._plan.ttl)

    @override
    def open(self, context: ChangelogContext) -> None:
        super().open(context)
        rows = self._table.all_rows()
        self._arrivals = self._table.highest(_ARRIVAL) + 1
        self._computation = OverComputation(self._plan, self._schema, self._output, context)
        self._queue = None
        if self._plan.is_by_time:
            self._queue = ExpiryQueue(self._table, 100, rows[self._table.numbers[_LEFT].get(rows) == 0])
        self._late_rows = context.metrics.counter("numLateRecordsDropped")
        self._unmatched = context.metrics.counter("numUnmatchedRetractions")

    @override
    def process(self, keys: Sequence[pa.Array], batch: Batch, input_index: int) -> Iterator[Batch]:
        table = self._table
        changes = net_changes(keys, batch, self._plan.width)
        if self._leaves_once:
            times = self._times(changes.columns)
            if self._queue is None:
                added = self._added(table.slots(changes.keys), changes.columns)
                table.numbers[ExpiryQueue.NUMBER].set(added, times)
                yield from self._leave(added, int(times.max(initial=0)))
                return
            in_time = np.flatnonzero(times > self.context.watermark())
            self._late_rows.inc(len(changes) - len(in_time))
            changes = changes.at(in_time)
            added = self._added(table.slots(changes.keys), changes.columns)
            table.hold(added)  # until they have left
            self._queue.set(added, times[in_time])
            return
        deletions, insertions = changes.at(changes.deleted), changes.at(changes.inserted)
        gone, _ = matched_rows(table, deletions, self.context.operator, self._unmatched)
        slots = table.slots(insertions.keys)
        touched = np.unique(np.concatenate([table.slots_of(gone), slots]))
        _, before = table.rows_of(touched)
        old_results = self._results(before)
        added = self._added(slots, insertions.columns)
        is_gone = np.isin(before, gone)
        rows = np.concatenate([before[~is_gone], added])
        new_results = self._results(rows)
        staying = np.flatnonzero(~is_gone)
        old_staying = [column.take(pa.array(staying)) for column in old_results]
        changed = np.flatnonzero(~equal_rows(old_staying, [column[: len(staying)] for column in new_results]))

        old_at = np.concatenate([np.flatnonzero(is_gone), staying[changed]])
        old_kinds = np.repeat(np.array([DELETE, UPDATE_BEFORE], np.int8), [int(is_gone.sum()), len(changed)])
        new_at = np.concatenate([changed, np.arange(len(staying), len(rows))])
        new_kinds = np.repeat(np.array([UPDATE_AFTER, INSERT], np.int8), [len(changed), len(added)])
        yield from self._given(before[old_at], [column.take(pa.array(old_at)) for column in old_results], old_kinds)
        yield from self._given(rows[new_at], [column.take(pa.array(new_at)) for column in new_results], new_kinds)
        table.drop(gone)

    @override
    def on_watermark(self, watermark: int) -> Iterator[Batch]:
        if self._queue is not None:
            yield from self._leave(self._queue.due(watermark), watermark)

    def _leave(self, due: Ints, time: int) -> Iterator[Batch]:
        """Yield rows with their results; no row before them comes any more, nor one up to the time by its attribute."""
        if not len(due):
            return
        table, known = self._table, self._known
        partitions = np.unique(table.slots_of(due))
        table.drop_expired(partitions)
        _, rows = table.rows_of(partitions)
        rows = rows[(table.numbers[_LEFT].get(rows) == 1) | np.isin(rows, due)]
        order = np.lexsort((table.numbers[_ARRIVAL].get(rows), table.numbers[ExpiryQueue.NUMBER].get(rows)))
        rows = rows[order]
        fresh = np.flatnonzero(table.numbers[_LEFT].get(rows) == 0)
        # What is known of the rows that have left, for each partition and then for each row.
        keys = table.index.keys(partitions)
        at, known_rows = known.rows_of(known.find(keys))
        known_row_of = np.full(len(partitions), -1, np.int64)
        known_row_of[at] = np.arange(len(known_rows))
        of_fresh = known_row_of[np.searchsorted(partitions, table.slots_of(rows[fresh]))]
        picks = pa.array(of_fresh, mask=of_fresh < 0)
        before = [column.take(picks) for column in known.take(known_rows)]
        results, after = self._computation.results(
            table.slots_of(rows), table.take(rows), table.numbers[_ARRIVAL].get(rows), fresh, before
        )
        yield from self._given(rows[fresh], results, np.zeros(len(fresh), np.int8))
        if after:
            # The last row of each partition has seen all of them.
            codes = sort_codes(table.take(rows[fresh]), self._plan.order)
            in_order = sort_rows(table.slots_of(rows[fresh]), codes, table.numbers[_ARRIVAL].get(rows[fresh]))
            last = pa.array(in_order.order[in_order.starts + in_order.counts - 1])
            known.drop(known_rows)
            known.add(known.slots(keys), [column.take(last) for column in after])
        table.touch(due)
        table.numbers[_LEFT].set(due, 1)
        table.drop(self._outdated(rows, time))

    def _outdated(self, rows: Ints, time: int) -> Ints:
        """The rows that are in no frame of a later row."""
        if self._plan.keeps_rows is None:
            return np.empty(0, np.int64)
        table = self._table
        times = table.numbers[ExpiryQueue.NUMBER].get(rows)
        order = np.lexsort((table.numbers[_ARRIVAL].get(rows), times, table.slots_of(rows)))
        slots = table.slots_of(rows[order])
        # The number of each row among those of its partition, from the last one.
        starts = np.flatnonzero(np.append(True, slots[1:] != slots[:-1]))
        ends = np.append(starts[1:], len(slots))
        numbers = np.repeat(ends, ends - starts) - np.arange(len(slots)) - 1
        is_outdated = numbers >= self._plan.keeps_rows
        if self._plan.keeps_millis is not None:
            is_outdated &= times[order] < time - self._plan.keeps_millis
        return rows[order][is_outdated]

    def _added(self, slots: Ints, columns: Sequence[pa.Array]) -> Ints:
        rows = self._table.add(slots, columns)
        self._table.numbers[_ARRIVAL].set(rows, np.arange(self._arrivals, self._arrivals + len(rows)))
        self._arrivals += len(rows)
        return rows

    def _times(self, columns: Sequence[pa.Array]) -> Ints:
        return millis_of(columns[self._plan.order[0].place])

    def _results(self, rows: Ints) -> list[pa.Array]:
        table = self._table
        arrivals = table.numbers[_ARRIVAL].get(rows)
        return self._computation.results(table.slots_of(rows), table.take(rows), arrivals)[0]

    def _given(self, rows: Ints, results: Sequence[pa.Array], kinds: Kinds) -> Iterator[Batch]:
        for start in range(0, len(rows), OUTPUT_ROWS):
            piece = slice(start, start + OUTPUT_ROWS)
            columns = [*self._table.take(rows[piece]), *(column[piece] for column in results)]
            yield result(columns, self._output, kinds[piece])
