"""The first rows of each partition: Top-N, deduplication, LIMIT and OFFSET.

Each row has its rank beside it, 0 if it is not among the first ones. A change sorts the rows that have a rank together
with new ones, and what has another rank then is a change of the result. Rows without a rank are looked at only when
one of the first rows was deleted and they move up; if rows are never deleted, they are not stored at all. The first
rows of a window leave when the watermark has passed its end, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from firesteel.core.errors import ProgramError
from firesteel.core.short_repr import short_repr
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
from firesteel.state.columnar.slot_lists import SlotLists
from firesteel_sql.operators.changes import (
    OUTPUT_ROWS,
    Changes,
    Ints,
    Kinds,
    matched_rows,
    net_changes,
    result,
)
from firesteel_sql.operators.expiry import ExpiryQueue
from firesteel_sql.operators.ordering import sort_codes, sort_rows
from firesteel_sql.operators.plans import RankPlan
from firesteel_sql.operators.windows import last_moments
from firesteel_sql.plan.stateful_relations import RankFunction

_RANK, _ARRIVAL = "rank", "arrival"


class RankChanges(ChangelogFunction):
    """Finds the first rows of each partition.

    Args:
        plan: of the rank.
        inputs: columns of the input.
        output: columns of the results.
    """

    def __init__(self, plan: RankPlan, inputs: Sequence[pa.Schema], output: pa.Schema) -> None:
        self._plan, self._output = plan, output
        self._schema = pa.schema(list(inputs[0])[: plan.width])
        # Ranks pass from one row to another, as the group's row of an aggregate changes: that is an update.
        self._has_updates = plan.function is RankFunction.ROW_NUMBER and (plan.with_rank or plan.first == plan.last)

    @override
    def create_state(self, states: ChangelogStates) -> None:
        expires = [] if self._plan.window_end is None else [ExpiryQueue.NUMBER]
        ttl = 0 if expires else self._plan.ttl
        stays = bool(expires) or self._plan.refuses_peers
        self._table = states.rows("rows", self._schema, [_RANK, _ARRIVAL, *expires], ttl=ttl, stays=stays)

    @override
    def open(self, context: ChangelogContext) -> None:
        super().open(context)
        rows = self._table.all_rows()
        ranks = self._table.numbers[_RANK].get(rows)
        self._arrivals = self._table.highest(_ARRIVAL) + 1
        self._ranked = SlotLists()  # the rows that have a rank; of all rows if each one has
        self._stores_others = not self._plan.is_insert_only and self._plan.last is not None
        if self._stores_others:
            ranked = rows[ranks > 0]
            self._ranked.append(self._table.slots_of(ranked), ranked)
            self._table.on_leaving, self._table.on_arrival = self._leave, self._return
        self._ends = None if self._plan.window_end is None else ExpiryQueue(self._table, 100)
        self._late_rows = context.metrics.counter("numLateRecordsDropped")
        self._unchecked = [self._table.slots_of(rows)]  # partitions that may have several rows since the last watermark
        self._unmatched = context.metrics.counter("numUnmatchedRetractions")

    @override
    def process(self, keys: Sequence[pa.Array], batch: Batch, input_index: int) -> Iterator[Batch]:
        table, numbers = self._table, self._table.numbers
        changes = net_changes(keys, batch, self._plan.width)
        if self._plan.window_end is not None:
            in_time = np.flatnonzero(self._ends_of(changes.columns) > self.context.watermark())
            self._late_rows.inc(len(changes) - len(in_time))
            changes = changes.at(in_time)
        deletions, insertions = changes.at(changes.deleted), changes.at(changes.inserted)
        gone, deletions = matched_rows(table, deletions, self.context.operator, self._unmatched)
        gone_slots, gone_ranks = table.slots_of(gone), numbers[_RANK].get(gone)
        slots = table.slots(insertions.keys)
        if self._plan.is_insert_only and self._plan.last is not None:
            # Most rows of a batch are behind others of the same batch: they never enter the state.
            chosen = self._first_of_batch(slots, insertions)
            chosen = chosen[self._may_rank(slots[chosen], insertions.at(chosen))]
            slots, insertions = slots[chosen], insertions.at(chosen)
        if self._stores_others:
            self._ranked.remove(gone[gone_ranks > 0])
        table.drop(gone)
        added = table.add(slots, insertions.columns)
        numbers[_ARRIVAL].set(added, np.arange(self._arrivals, self._arrivals + len(added)))
        self._arrivals += len(added)
        if self._plan.refuses_peers:
            self._unchecked.append(slots)
        if self._ends is not None:
            self._ends.set(added, self._ends_of(insertions.columns))

        # A row that has lost its rank, or must not have had one, changes nothing for the others.
        touched = np.unique(np.concatenate([gone_slots[gone_ranks > 0], slots]))
        refilled = np.unique(gone_slots[gone_ranks > 0])
        if table.life is not None:
            refilled = np.union1d(refilled, self._with_free_ranks(touched))
        rows = self._candidates(touched, refilled, added)
        before, after = numbers[_RANK].get(rows), self._ranks(rows)
        self._set_ranks(rows, before, after)
        if self._ends is None:
            yield from self._differences(deletions.columns, gone_slots, gone_ranks, rows, before, after)
        if self._plan.is_insert_only:
            table.drop(rows[after == 0])

    def _leave(self, rows: Ints) -> None:
        """Note that rows leave memory: they have expired, or have not been used for long."""
        ranks = self._table.numbers[_RANK].get(rows)
        self._ranked.remove(rows[ranks > 0])

    def _return(self, rows: Ints) -> None:
        """Note that rows are in memory again."""
        ranked = rows[self._table.numbers[_RANK].get(rows) > 0]
        self._ranked.append(self._table.slots_of(ranked), ranked)

    def _with_free_ranks(self, slots: Ints) -> Ints:
        """The partitions of which a row with a rank may have expired: others have more rows than they have ranks."""
        if not self._stores_others:
            return np.empty(0, np.int64)
        assert self._plan.last is not None
        ranks = np.minimum(self._table.lists.counts(slots), self._plan.last)
        return slots[self._ranked.counts(slots) < ranks]

    def _ends_of(self, columns: Sequence[pa.Array]) -> Ints:
        """The last millisecond of the window of each row."""
        assert self._plan.window_end is not None
        return last_moments(columns[self._plan.window_end], self._plan.window_zone)

    @override
    def on_watermark(self, watermark: int) -> Iterator[Batch]:
        if self._plan.refuses_peers:
            self._refuse_peers()
        if self._ends is None:
            return
        table = self._table
        due = self._ends.due(watermark)
        ranks = table.numbers[_RANK].get(due)
        shown = np.flatnonzero(ranks >= self._plan.first)
        # By partition and rank, as people expect to see them.
        shown = shown[np.lexsort((ranks[shown], table.slots_of(due[shown])))]
        yield from self._inserted(due[shown], ranks[shown], np.zeros(len(shown), np.int8))
        if self._stores_others:
            self._ranked.remove(due[ranks > 0])
        table.drop(due)

    def _refuse_peers(self) -> None:
        """Check that no partition has several rows.

        Raises:
            ProgramError: one has.
        """
        table = self._table
        slots = np.unique(np.concatenate(self._unchecked))
        self._unchecked = [slots[:0]]
        crowded = slots[table.lists.counts(slots) > 1]
        if crowded.size:
            rows = table.rows_of(crowded[:1])[1]
            columns = [column.slice(0, 2).to_pylist() for column in table.take(rows)]
            first, second = (short_repr(row, 200) for row in zip(*columns, strict=True))
            raise ProgramError(
                f"{self.context.operator}: ON CONFLICT DO ERROR: {len(rows)} rows have one primary key, such as "
                f"{first} and {second}. DO DEDUPLICATE writes the one that came last, DO NOTHING the first"
            )

    def _differences(
        self, gone: Sequence[pa.Array], gone_slots: Ints, gone_ranks: Ints, rows: Ints, before: Ints, after: Ints
    ) -> Iterator[Batch]:
        """The changes of the result.

        Args:
            gone: columns of the rows that were deleted.
            gone_slots: their slots.
            gone_ranks: the ranks they had.
            rows: further rows.
            before: the ranks they had.
            after: the ranks they have.
        """
        table = self._table
        first, with_rank = self._plan.first, self._plan.with_rank
        was_shown, is_shown = before >= first, after >= first
        changed = before != after if with_rank else was_shown != is_shown
        left, came = np.flatnonzero(was_shown & changed), np.flatnonzero(is_shown & changed)
        deleted = np.flatnonzero(gone_ranks >= first)
        old_columns = [
            pa.concat_arrays([column.take(pa.array(deleted)), stored])
            for column, stored in zip(gone, table.take(rows[left]), strict=True)
        ]
        old_ranks = np.concatenate([gone_ranks[deleted], before[left]])
        old_slots = np.concatenate([gone_slots[deleted], table.slots_of(rows[left])])
        new_rows, new_ranks = rows[came], after[came]
        old_kinds = np.full(len(old_ranks), DELETE, np.int8)
        new_kinds = np.full(len(new_ranks), INSERT, np.int8)
        if self._has_updates:
            limit = int(max(old_ranks.max(initial=0), new_ranks.max(initial=0))) + 1
            old_places, new_places = old_slots * limit + old_ranks, table.slots_of(new_rows) * limit + new_ranks
            old_kinds[np.isin(old_places, new_places)] = UPDATE_BEFORE
            new_kinds[np.isin(new_places, old_places)] = UPDATE_AFTER
        for start in range(0, len(old_ranks), OUTPUT_ROWS):
            piece = slice(start, start + OUTPUT_ROWS)
            yield self._result([column[piece] for column in old_columns], old_ranks[piece], old_kinds[piece])
        yield from self._inserted(new_rows, new_ranks, new_kinds)

    def _inserted(self, rows: Ints, ranks: Ints, kinds: Kinds) -> Iterator[Batch]:
        for start in range(0, len(rows), OUTPUT_ROWS):
            piece = slice(start, start + OUTPUT_ROWS)
            yield self._result(self._table.take(rows[piece]), ranks[piece], kinds[piece])

    def _first_of_batch(self, slots: Ints, insertions: Changes) -> Ints:
        """Positions of the rows that have a rank if there are no others than those of the batch, ascending."""
        plan, count = self._plan, len(insertions)
        assert plan.last is not None
        if not count:
            return np.empty(0, np.int64)
        codes = sort_codes(insertions.columns, plan.order)
        arrivals = np.arange(count)
        in_order = sort_rows(slots, codes, -arrivals if plan.last_of_peers else arrivals)
        return np.sort(in_order.order[in_order.ranks(plan.function) <= plan.last])

    def _may_rank(self, slots: Ints, insertions: Changes) -> npt.NDArray[np.bool_]:
        """Which rows are not behind the last one of their partition that has a rank.

        A partition of that many rows has none behind it.
        """
        may_rank = np.ones(len(insertions), bool)
        table, order, last = self._table, self._plan.order[:1], self._plan.last
        assert last is not None
        positions = np.flatnonzero(table.lists.counts(slots) >= last)
        if not positions.size or (not order and self._plan.last_of_peers):
            return may_rank
        partitions, partition_of_row = np.unique(slots[positions], return_inverse=True)
        at, rows = table.rows_of(partitions)
        is_last = table.numbers[_RANK].get(rows) == last
        last_rows = np.full(len(partitions), -1, np.int64)
        last_rows[at[is_last]] = rows[is_last]
        has_last = last_rows[partition_of_row] >= 0  # peers may share a rank before it
        positions, last_rows = positions[has_last], last_rows[partition_of_row[has_last]]
        if not order:
            may_rank[positions] = False
            return may_rank
        (key,) = order
        column = insertions.columns[key.place].take(pa.array(positions))
        codes = sort_codes({key.place: pa.concat_arrays([column, *table.take(last_rows, [key.place])])}, order)
        count = len(positions)
        is_behind, is_equal = np.zeros(count, bool), np.ones(count, bool)
        for code in codes:
            is_behind |= is_equal & (code[:count] > code[count:])
            is_equal &= code[:count] == code[count:]
        may_rank[positions[is_behind]] = False
        return may_rank

    def _candidates(self, touched: Ints, refilled: Ints, added: Ints) -> Ints:
        """The rows that may have a rank: those that have one and new ones, and all where rows with a rank are gone."""
        if not self._stores_others:
            return self._table.rows_of(touched)[1]
        unchanged = np.setdiff1d(touched, refilled, assume_unique=True)
        ranked = self._ranked.gather(unchanged)[1]
        new = added[np.isin(self._table.slots_of(added), unchanged)]
        return np.concatenate([ranked, new, self._table.rows_of(refilled)[1]])

    def _ranks(self, rows: Ints) -> Ints:
        """The new rank of each row; 0 = it is not among the first ones."""
        plan, table = self._plan, self._table
        places = sorted({key.place for key in plan.order})
        columns = dict(zip(places, table.take(rows, places), strict=True))
        codes = sort_codes(columns, plan.order)
        arrivals = table.numbers[_ARRIVAL].get(rows)
        in_order = sort_rows(table.slots_of(rows), codes, -arrivals if plan.last_of_peers else arrivals)
        ranks = np.empty(len(rows), np.int64)
        ranks[in_order.order] = in_order.ranks(plan.function)
        if plan.last is not None:
            ranks[ranks > plan.last] = 0
        return ranks

    def _set_ranks(self, rows: Ints, before: Ints, after: Ints) -> None:
        changed = before != after
        self._table.touch(rows[changed], is_write=False)
        self._table.numbers[_RANK].set(rows[changed], after[changed])
        if self._stores_others:
            self._ranked.remove(rows[(before > 0) & (after == 0)])
            came = rows[(before == 0) & (after > 0)]
            self._ranked.append(self._table.slots_of(came), came)

    def _result(self, columns: Sequence[pa.Array], ranks: Ints, kinds: Kinds) -> Batch:
        return result([*columns, *([pa.array(ranks)] if self._plan.with_rank else [])], self._output, kinds)
