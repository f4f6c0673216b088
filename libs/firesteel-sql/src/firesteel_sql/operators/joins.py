"""Joins of two changing tables.

The changes of one input meet the rows of the other one that are there, and are then stored themselves: what a change
of both together adds is counted once, by whichever comes second. Rows whose result depends on whether there is a
partner at all (outer sides, SEMI, ANTI) have a number beside them, the degree: how many partners they have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from typing_extensions import override

from firesteel.runtime.operators.changelog import (
    DELETE,
    INSERT,
    ChangelogContext,
    ChangelogFunction,
    ChangelogStates,
)
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import columns_of
from firesteel.state.columnar.growing import GrowingArray
from firesteel.state.columnar.nested_bytes import bytes_of
from firesteel.state.columnar.row_table import RowTable
from firesteel_sql.operators.changes import (
    OUTPUT_ROWS,
    Changes,
    Ints,
    Kinds,
    millis_of,
    net_changes,
    nulls_of,
    result,
    unknown_row,
)
from firesteel_sql.operators.expiry import ExpiryQueue
from firesteel_sql.operators.not_in import ExcludedValues
from firesteel_sql.operators.pair_condition import PairCondition
from firesteel_sql.operators.plans import JoinPlan
from firesteel_sql.operators.windows import last_moments
from firesteel_sql.plan.stateful_relations import JoinKind

Mask = npt.NDArray[np.bool_]

PAIRS: Final = 1 << 18
"""Pairs of rows that are looked at together; a single row may have more."""
_DEGREE: Final = "degree"


@dataclass
class _Side:
    """One input.

    Attributes:
        index: 0 = left, 1 = right.
        schema: of its table.
        has_degree: its rows count their partners.
        is_padded: its rows without partners are results.
        table: its rows.
        expiries: of the rows, if the join has times.
    """

    index: int
    schema: pa.Schema
    has_degree: bool
    is_padded: bool
    table: RowTable
    expiries: ExpiryQueue | None = None

    @property
    def degrees(self) -> GrowingArray:
        return self.table.numbers[_DEGREE]


class JoinChanges(ChangelogFunction):
    """Joins two tables of changes.

    Args:
        plan: of the join.
        inputs: columns of both inputs.
        output: columns of the results.
    """

    def __init__(self, plan: JoinPlan, inputs: Sequence[pa.Schema], output: pa.Schema) -> None:
        self._plan, self._output = plan, output
        kind = plan.kind
        self._gives_pairs = kind not in (JoinKind.SEMI, JoinKind.ANTI)
        self._has_times = plan.bounds is not None or plan.window_ends is not None
        self._schemas = [pa.schema(list(s)[:width]) for s, width in zip(inputs, plan.widths, strict=True)]
        self._padded = [
            kind in (JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI),
            kind in (JoinKind.RIGHT, JoinKind.FULL),
        ]
        self._degrees = [self._padded[0] or kind is JoinKind.SEMI, self._padded[1]]
        self._condition = None
        if plan.condition is not None:
            assert plan.condition_types is not None
            self._condition = PairCondition(plan.condition, plan.condition_types, plan.widths[0])

    @override
    def create_state(self, states: ChangelogStates) -> None:
        self._sides = []
        places, value_types = self._plan.may_be_equal, []
        if places is not None and self._condition is None and self._plan.bounds is None:
            value_type = self._schemas[0].field(places[0]).type
            value_types = [pa.binary() if pt.is_nested(value_type) else value_type]
        for index, schema in enumerate(self._schemas):
            numbers = [_DEGREE] * self._degrees[index] + [ExpiryQueue.NUMBER] * self._has_times
            ttl = 0 if self._has_times else self._plan.ttl[index]
            table = states.rows(
                "left" if index == 0 else "right",
                schema,
                numbers,
                value_types,
                ttl,
                stays=self._has_times or bool(value_types),
            )
            self._sides.append(_Side(index, schema, self._degrees[index], self._padded[index], table))
        self._excluded = None
        if value_types:
            self._excluded = ExcludedValues(self._sides[0].table, self._sides[1].table, states.columns("groups"))

    @override
    def open(self, context: ChangelogContext) -> None:
        super().open(context)
        self._late_rows = context.metrics.counter("numLateRecordsDropped")
        self._unmatched = context.metrics.counter("numUnmatchedRetractions")
        if self._has_times:
            bounds = self._plan.bounds
            width = 100 if bounds is None else max(100, (bounds.upper - bounds.lower) // 8)
            for side in self._sides:
                side.expiries = ExpiryQueue(side.table, width)

    # -- changes

    @override
    def process(self, keys: Sequence[pa.Array], batch: Batch, input_index: int) -> Iterator[Batch]:
        side = self._sides[input_index]
        if self._excluded is not None:
            assert self._plan.may_be_equal is not None
            value = columns_of(batch).column(self._plan.may_be_equal[input_index])
            keys = [*keys, bytes_of(value) if pt.is_nested(value.type) else value]
        changes = net_changes(keys, batch, self._plan.widths[input_index])
        if self._plan.window_ends is not None:
            changes = self._without_late(side, changes)
        # A row whose key has a NULL has no partner, and never will: it need not be stored.
        is_alone = self._has_null_key(changes.keys)
        if is_alone.any():
            if side.is_padded:
                alone = changes.at(np.flatnonzero(is_alone))
                yield from self._alone(side, alone.columns, alone.kinds)
            changes = changes.at(np.flatnonzero(~is_alone))
        for positions in (changes.deleted, changes.inserted):
            yield from self._in_pieces(side, changes.at(positions))

    def _has_null_key(self, keys: Sequence[pa.Array]) -> Mask:
        has_null = np.zeros(len(keys[0]), bool)
        for key, nulls_equal in zip(keys, self._plan.nulls_equal, strict=False):
            if key.null_count and not nulls_equal:
                has_null |= nulls_of(key)
        return has_null

    def _without_late(self, side: _Side, changes: Changes) -> Changes:
        late = self._expire_times(side, changes.columns) <= self.context.watermark()
        if not late.any():
            return changes
        self._late_rows.inc(int(late.sum()))
        return changes.at(np.flatnonzero(~late))

    def _in_pieces(self, side: _Side, changes: Changes) -> Iterator[Batch]:
        """Join changes of one sign, so many at a time that there are not too many pairs."""
        if not len(changes):
            return
        table = self._sides[1 - side.index].table
        pairs = np.cumsum(table.lists.counts(table.find(changes.keys)))
        start = 0
        while start < len(changes):
            done = int(pairs[start - 1]) if start else 0
            stop = max(int(np.searchsorted(pairs, done + PAIRS, side="right")), start + 1)
            yield from self._join(side, changes.at(np.arange(start, stop)))
            start = stop

    def _join(self, side: _Side, changes: Changes) -> Iterator[Batch]:
        """Join changes of one sign, and store them."""
        if not len(changes):
            return
        other, sign = self._sides[1 - side.index], int(changes.weights[0])
        own_rows = np.empty(0, np.int64)
        if sign < 0:
            own_rows = side.table.match(side.table.find(changes.keys), changes.columns)
            unknown = np.flatnonzero(own_rows < 0)
            if unknown.size:
                if not self._has_times and side.table.life is None:
                    raise unknown_row(self.context.operator, changes, int(unknown[0]))
                self._unmatched.inc(len(unknown))  # it expired: so did all results that it had a part in
                known = np.flatnonzero(own_rows >= 0)
                own_rows, changes = own_rows[known], changes.at(known)
        if self._excluded is None:
            positions, partners = self._pairs(side, changes)
            degrees = np.bincount(positions, minlength=len(changes))
        elif side.index == 0:
            positions, partners = np.empty(0, np.int64), np.empty(0, np.int64)
            degrees = self._excluded.degrees(changes.keys)
        else:
            positions, partners = self._excluded.excluded(changes.keys)
            degrees = np.empty(0, np.int64)  # of no use: only left rows have one
            self._excluded.count(changes.keys, sign)
        partner_rows, partner_counts = np.unique(partners, return_counts=True)
        turned = np.empty(0, np.int64)  # the partners that have their first partner now, or none any more
        if other.has_degree:
            partner_degrees = other.degrees.get(partner_rows) + sign * partner_counts
            turned = partner_rows[partner_degrees == (partner_counts if sign > 0 else 0)]
        if sign < 0 and side.has_degree:
            degrees = side.degrees.get(own_rows)
        results = []
        if self._gives_pairs:
            results.append(self._pair_results(side, changes, positions, partners))
        if not self._gives_pairs and not side.is_padded and side.has_degree:  # SEMI
            shown = np.flatnonzero(degrees > 0)
            results.append(self._alone(side, [c.take(pa.array(shown)) for c in changes.columns], changes.kinds[shown]))
        if side.is_padded and not self._has_times:
            shown = np.flatnonzero(degrees == 0)
            results.append(self._alone(side, [c.take(pa.array(shown)) for c in changes.columns], changes.kinds[shown]))
        if turned.size and other.is_padded and not self._has_times:
            # Rows with their first partner are taken back before they come with it.
            padded = self._stored_alone(other, turned, DELETE if sign > 0 else INSERT)
            results.insert(0 if sign > 0 else len(results), padded)
        if turned.size and not self._gives_pairs and not other.is_padded:
            results.append(self._stored_alone(other, turned, INSERT if sign > 0 else DELETE))
        for part in results:
            yield from part
        if other.has_degree:
            other.table.touch(partner_rows)
            other.degrees.set(partner_rows, partner_degrees)
        if sign < 0:
            side.table.drop(own_rows)
        else:
            yield from self._store(side, changes, degrees)

    def _store(self, side: _Side, changes: Changes, degrees: Ints) -> Iterator[Batch]:
        if side.expiries is not None:
            times = self._expire_times(side, changes.columns)
            late = times <= self.context.watermark()
            if late.any():
                if side.is_padded:
                    alone = np.flatnonzero(late & (degrees == 0))
                    columns = [column.take(pa.array(alone)) for column in changes.columns]
                    yield from self._alone(side, columns, np.zeros(len(alone), np.int8))
                in_time = np.flatnonzero(~late)
                changes, degrees, times = changes.at(in_time), degrees[in_time], times[in_time]
        rows = side.table.add(side.table.slots(changes.keys), changes.columns)
        if side.has_degree:
            side.degrees.set(rows, degrees)
        if side.expiries is not None:
            side.expiries.set(rows, times)

    # -- pairs

    def _pairs(self, side: _Side, changes: Changes) -> tuple[Ints, Ints]:
        """Positions of the changes, and the partners of each."""
        table = self._sides[1 - side.index].table
        positions, partners = table.rows_of(table.find(changes.keys))
        plan = self._plan
        if self._condition is None and plan.may_be_equal is None and plan.bounds is None:
            return positions, partners
        chosen = []
        for start in range(0, len(positions), PAIRS):
            stop = start + PAIRS
            is_pair = self._is_pair(side, changes.columns, positions[start:stop], partners[start:stop])
            chosen.append(np.flatnonzero(is_pair) + start)
        pairs = np.concatenate([np.empty(0, np.int64), *chosen])
        return positions[pairs], partners[pairs]

    def _is_pair(self, side: _Side, columns: Sequence[pa.Array], positions: Ints, partners: Ints) -> Mask:
        own_positions, table = pa.array(positions), self._sides[1 - side.index].table

        def column(index: int, place: int) -> pa.Array:
            return columns[place].take(own_positions) if index == side.index else table.take(partners, [place])[0]

        plan = self._plan
        is_pair = np.ones(len(positions), bool)
        if plan.bounds is not None:
            bounds = plan.bounds
            left, right = column(0, bounds.left_time), column(1, bounds.right_time)
            distance = millis_of(right) - millis_of(left)
            is_pair &= (distance >= bounds.lower) & (distance <= bounds.upper)
            is_pair &= ~nulls_of(left) & ~nulls_of(right)
        if plan.may_be_equal is not None:
            left, right = (column(index, place) for index, place in enumerate(plan.may_be_equal))
            is_pair &= pc.equal(left, right).fill_null(True).to_numpy(zero_copy_only=False)
        if self._condition is not None:
            is_pair &= self._condition.holds(column, len(positions))
        return is_pair

    # -- results

    def _pair_results(self, side: _Side, changes: Changes, positions: Ints, partners: Ints) -> Iterator[Batch]:
        table = self._sides[1 - side.index].table
        for start in range(0, len(positions), OUTPUT_ROWS):
            piece = positions[start : start + OUTPUT_ROWS]
            own = [column.take(pa.array(piece)) for column in changes.columns]
            theirs = table.take(partners[start : start + OUTPUT_ROWS])
            yield result(own + theirs if side.index == 0 else theirs + own, self._output, changes.kinds[piece])

    def _stored_alone(self, side: _Side, rows: Ints, kind: int) -> Iterator[Batch]:
        for start in range(0, len(rows), OUTPUT_ROWS):
            piece = rows[start : start + OUTPUT_ROWS]
            yield from self._alone(side, side.table.take(piece), np.full(len(piece), kind, np.int8))

    def _alone(self, side: _Side, columns: Sequence[pa.Array], kinds: Kinds) -> Iterator[Batch]:
        """Rows of a side without those of the other one, which are NULL in outer joins."""
        if not len(kinds):
            return
        own = list(columns)
        if self._gives_pairs:
            nulls = [pa.nulls(len(kinds), field.type) for field in self._sides[1 - side.index].schema]
            own = own + nulls if side.index == 0 else nulls + own
        yield result(own, self._output, kinds)

    # -- time

    def _expire_times(self, side: _Side, columns: Sequence[pa.Array]) -> Ints:
        """The watermark at which no partner of a row can come any more."""
        plan, is_left = self._plan, side.index == 0
        if plan.window_ends is not None:
            return last_moments(columns[plan.window_ends[side.index]], plan.window_zone)
        bounds = plan.bounds
        assert bounds is not None
        column = columns[bounds.left_time if is_left else bounds.right_time]
        times = millis_of(column) + (bounds.upper if is_left else -bounds.lower)
        return np.where(nulls_of(column), 0, times) if column.null_count else times

    @override
    def on_watermark(self, watermark: int) -> Iterator[Batch]:
        for side in self._sides:
            if side.expiries is None:
                continue
            rows = side.expiries.due(watermark)
            if side.is_padded:
                yield from self._stored_alone(side, rows[side.degrees.get(rows) == 0], INSERT)
            side.table.drop(rows)
