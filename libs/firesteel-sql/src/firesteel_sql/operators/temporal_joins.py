"""Rows with the version of another row that was valid at their time.

Rows of the left input wait until the watermark reaches their time: all versions up to it have come then. Of the
versions up to the watermark the last one of each key stays, as it is valid for rows to come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from firesteel.runtime.operators.changelog import (
    DELETE,
    UPDATE_BEFORE,
    ChangelogContext,
    ChangelogFunction,
    ChangelogStates,
)
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import columns_of
from firesteel.state.columnar.row_table import RowTable
from firesteel_sql.operators.changes import OUTPUT_ROWS, Ints, Kinds, millis_of, nulls_of, result
from firesteel_sql.operators.expiry import ExpiryQueue
from firesteel_sql.operators.pair_condition import PairCondition
from firesteel_sql.operators.plans import TemporalJoinPlan

_KIND, _ARRIVAL = "kind", "arrival"
_NO_TIME = 0


class VersionJoin(ChangelogFunction):
    """Joins rows with versions of rows.

    Args:
        plan: of the join.
        inputs: columns of both inputs.
        output: columns of the results.
    """

    def __init__(self, plan: TemporalJoinPlan, inputs: Sequence[pa.Schema], output: pa.Schema) -> None:
        self._plan, self._output = plan, output
        self._schemas = [pa.schema(list(schema)[:width]) for schema, width in zip(inputs, plan.widths, strict=True)]
        self._condition = None
        if plan.condition is not None:
            assert plan.condition_types is not None
            self._condition = PairCondition(plan.condition, plan.condition_types, plan.widths[0])

    @override
    def create_state(self, states: ChangelogStates) -> None:
        numbers = [_KIND, _ARRIVAL, ExpiryQueue.NUMBER]
        self._tables = [
            states.rows(name, schema, numbers, stays=True)
            for name, schema in zip(("left", "right"), self._schemas, strict=True)
        ]

    @override
    def open(self, context: ChangelogContext) -> None:
        super().open(context)
        self._queues = [ExpiryQueue(table, 100) for table in self._tables]
        arrivals = [table.numbers[_ARRIVAL].get(table.all_rows()).max(initial=-1) for table in self._tables]
        self._arrivals = int(max(arrivals)) + 1

    @override
    def process(self, keys: Sequence[pa.Array], batch: Batch, input_index: int) -> Iterator[Batch]:
        plan = self._plan
        rows = columns_of(batch).columns[: plan.widths[input_index]]
        kinds = np.zeros(len(batch), np.int8) if batch.kinds is None else np.asarray(batch.kinds, np.int8)
        if input_index == 1:
            # A version ends as the next one begins, so what was before an update says nothing.
            chosen = np.flatnonzero((kinds != UPDATE_BEFORE) & ~self._has_null_key(keys))
            picks = pa.array(chosen)
            rows, keys, kinds = [c.take(picks) for c in rows], [key.take(picks) for key in keys], kinds[chosen]
        column = rows[plan.left_time if input_index == 0 else plan.right_time]
        times = np.where(nulls_of(column), _NO_TIME, millis_of(column))
        table = self._tables[input_index]
        added = table.add(table.slots(keys), rows)
        table.numbers[_KIND].set(added, kinds)
        table.numbers[_ARRIVAL].set(added, np.arange(self._arrivals, self._arrivals + len(added)))
        self._arrivals += len(added)
        self._queues[input_index].set(added, times)
        return iter(())

    def _has_null_key(self, keys: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        has_null = np.zeros(len(keys[0]), bool)
        for key, nulls_equal in zip(keys, self._plan.nulls_equal, strict=False):
            if key.null_count and not nulls_equal:
                has_null |= nulls_of(key)
        return has_null

    @override
    def on_watermark(self, watermark: int) -> Iterator[Batch]:
        left, right = self._tables
        rows = self._queues[0].due(watermark)
        rows = rows[np.lexsort((left.numbers[_ARRIVAL].get(rows), left.numbers[ExpiryQueue.NUMBER].get(rows)))]
        for start in range(0, len(rows), OUTPUT_ROWS):
            yield from self._results(rows[start : start + OUTPUT_ROWS])
        left.drop(rows)
        right.drop(self._outdated(self._queues[1].due(watermark), watermark))

    def _results(self, rows: Ints) -> Iterator[Batch]:
        left, right = self._tables
        versions = self._versions(rows)
        own = left.take(rows)
        matched = np.flatnonzero(versions >= 0)
        if self._condition is not None and matched.size:
            picks = pa.array(matched)

            def column(index: int, place: int) -> pa.Array:
                return own[place].take(picks) if index == 0 else right.take(versions[matched], [place])[0]

            is_refused = ~self._condition.holds(column, len(matched))
            versions[matched[is_refused]] = -1
        kinds = left.numbers[_KIND].get(rows).astype(np.int8)
        shown = np.arange(len(rows)) if self._plan.is_outer else np.flatnonzero(versions >= 0)
        if shown.size:
            yield self._pairs([c.take(pa.array(shown)) for c in own], versions[shown], kinds[shown])

    def _pairs(self, own: Sequence[pa.Array], versions: Ints, kinds: Kinds) -> Batch:
        is_there = versions >= 0
        places = np.where(is_there, np.cumsum(is_there) - 1, -1)
        theirs = self._tables[1].take(versions[is_there])
        picks = pa.array(places, mask=~is_there)
        return result([*own, *(column.take(picks) for column in theirs)], self._output, kinds)

    def _versions(self, rows: Ints) -> Ints:
        """The version that was valid at the time of each left row; -1 if there was none."""
        left, right = self._tables
        keys = left.index.keys(left.slots_of(rows))
        slots = np.where(self._has_null_key(keys), -1, right.find(keys))
        _, versions = right.rows_of(np.unique(slots[slots >= 0]))
        versions = versions[self._order(right, versions)]
        times, version_times = (
            table.numbers[ExpiryQueue.NUMBER].get(part) for table, part in ((left, rows), (right, versions))
        )
        version_slots = right.slots_of(versions)
        # Behind all versions of its key up to its time: of equal times the last one counts.
        is_row = np.repeat([False, True], [len(versions), len(rows)])
        order = np.lexsort((is_row, np.append(version_times, times), np.append(version_slots, slots)))
        before = np.cumsum(~is_row[order]) - 1
        last = np.empty(len(order), np.int64)
        last[order] = before
        last = last[len(versions) :]
        is_valid = (last >= 0) & (slots >= 0)
        candidates = last[is_valid]
        is_valid[is_valid] = (version_slots[candidates] == slots[is_valid]) & (
            right.numbers[_KIND].get(versions[candidates]) != DELETE
        )
        valid = np.full(len(rows), -1, np.int64)
        valid[is_valid] = versions[last[is_valid]]
        return valid

    @staticmethod
    def _order(table: RowTable, rows: Ints) -> Ints:
        """By key, time and arrival."""
        numbers = table.numbers
        order: Ints = np.lexsort(
            (numbers[_ARRIVAL].get(rows), numbers[ExpiryQueue.NUMBER].get(rows), table.slots_of(rows))
        )
        return order

    def _outdated(self, due: Ints, watermark: int) -> Ints:
        """Versions up to the watermark but the last of each key; that one, too, if it says that there is no row."""
        right = self._tables[1]
        _, rows = right.rows_of(np.unique(right.slots_of(due)))
        rows = rows[right.numbers[ExpiryQueue.NUMBER].get(rows) <= watermark]
        rows = rows[self._order(right, rows)]
        slots = right.slots_of(rows)
        is_last = np.append(slots[1:] != slots[:-1], True)[: len(rows)]
        outdated: Ints = rows[~is_last | (right.numbers[_KIND].get(rows) == DELETE)]
        return outdated
