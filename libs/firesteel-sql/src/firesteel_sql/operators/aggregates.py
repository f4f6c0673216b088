"""GROUP BY: a row of results for each group of rows that come and go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from typing_extensions import override

from firesteel.core.errors import ProgramError, StateMigrationError
from firesteel.core.short_repr import short_repr
from firesteel.runtime.operators.changelog import (
    ChangelogContext,
    ChangelogFunction,
    ChangelogStates,
    weights_of,
)
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import columns_of
from firesteel.state.columnar.groups import Groups, running_extremes, running_sums
from firesteel.state.columnar.row_table import unique_names
from firesteel_sql.operators.accumulators import (
    INSERT_ONLY,
    NUMERIC,
    ArgumentChanges,
    GroupAccumulator,
    RowCount,
    Storage,
)
from firesteel_sql.operators.changes import END_OF_INPUT
from firesteel_sql.operators.distinct import DistinctValues, TurnedValues
from firesteel_sql.operators.group_results import Ints, Mask, changes_of_groups, inserted, truths
from firesteel_sql.operators.plans import AggregatePlan
from firesteel_sql.operators.row_accumulators import ChangingExtreme, RowAccumulator, StoredRows, accumulator_over_rows
from firesteel_sql.operators.slot_life import SlotLife
from firesteel_sql.operators.windows import last_moments
from firesteel_sql.plan.meanings import call_text
from firesteel_sql.plan.stateful_relations import AggregateCall


class _Call:
    """One aggregate: which rows it counts, and what it stores of them.

    Attributes:
        filter: name of the condition of the rows that count.
        distinct: the values of its arguments, if each counts once.
    """

    def __init__(
        self, call: AggregateCall, accumulator: GroupAccumulator, distinct: DistinctValues | None, filter_name: str
    ) -> None:
        self.call, self.accumulator, self.distinct, self.filter = call, accumulator, distinct, filter_name
        if distinct is not None:
            distinct.counts_for(self.filter)

    def mask(self, batch: pa.RecordBatch) -> Mask | None:
        """Which rows of a batch count; None = all."""
        return None if self.call.filter is None else truths(batch.column(self.call.filter))

    def add(self, batch: pa.RecordBatch, groups: Groups, weights: Ints, turned: TurnedValues | None) -> None:
        """Add the changes of a batch.

        Args:
            batch: rows that come and go.
            groups: the rows by group.
            weights: of the rows, in grouped order.
            turned: if each value counts once: the rows with values that have come or gone; None = there are none.
        """
        columns = [batch.column(place) for place in (*self.call.arguments, *(key.place for key in self.call.order))]
        if self.distinct is None:
            changes = ArgumentChanges(groups, weights, columns)
            mask = self.mask(batch)
            self.accumulator.add(changes if mask is None else changes.without(~mask))
        elif turned is not None:
            picks = pa.array(turned.rows)
            self.accumulator.add(
                ArgumentChanges(turned.groups, turned.weights, [column.take(picks) for column in columns])
            )


class GroupAggregate(ChangelogFunction):
    """Keeps the number of rows and the aggregates of each group, and gives the groups whose results have changed.

    Without groups there is one row of results, also while there are no rows: it is given at the end of the input, if
    nothing came before.
    """

    def __init__(self, parameters: AggregatePlan, inputs: Sequence[pa.Schema], output: pa.Schema) -> None:
        self._plan, self._output = parameters, output
        (self._input,) = inputs

    @override
    def create_state(self, states: ChangelogStates) -> None:
        self._owns_constant = _owns_constant(states) if self._plan.is_global else False
        self._state = states.columns("groups")
        self._life = SlotLife(states, self._state, self._plan.ttl)
        self._rows = self._state.column("rows", pa.int64())
        self._distinct: dict[tuple[int, ...], DistinctValues] = {}
        self._tables: list[RowAccumulator | ChangingExtreme] = []
        results = list(self._output)[len(self._output) - len(self._plan.calls) :]
        names = self._names = unique_names([call_text(call, self._input.names) for call in self._plan.calls])
        self._calls = [
            self._call(call, name, field.type, states)
            for call, name, field in zip(self._plan.calls, names, results, strict=True)
        ]
        self._next_last: int | None = None
        self._gave = False

    def _call(self, call: AggregateCall, name: str, result: pa.DataType, states: ChangelogStates) -> _Call:
        types = [self._input.field(place).type for place in call.arguments]
        names = self._input.names
        storage = Storage(self._state, name, types, result, self._plan.insert_only)
        functions = {**NUMERIC, **(INSERT_ONLY if self._plan.insert_only and not call.order else {})}
        if call.function == "COUNT" and not call.arguments and call.filter is None:
            accumulator: GroupAccumulator = RowCount(self._rows)
        elif call.function in functions:
            accumulator = functions[call.function](storage)
        else:
            sort_types = [self._input.field(key.place).type for key in call.order]
            accumulator = accumulator_over_rows(call, storage, [*types, *sort_types], states, self._plan.ttl)
            self._tables.append(accumulator)
        distinct = None
        if call.distinct and call.function not in ("MIN", "MAX"):
            if call.arguments not in self._distinct:
                shown = ", ".join(names[place] for place in call.arguments)
                self._distinct[call.arguments] = DistinctValues(states, f"DISTINCT {shown}", types, self._plan.ttl)
            distinct = self._distinct[call.arguments]
        return _Call(call, accumulator, distinct, "all" if call.filter is None else names[call.filter])

    @override
    def open(self, context: ChangelogContext) -> None:
        super().open(context)
        self._refuse_added_aggregates()
        self._late = context.metrics.counter("numLateRecordsDropped")
        self._unmatched = context.metrics.counter("numUnmatchedRetractions")
        if self._owns_constant:
            self._gave = self._state.find(self._constant_key())[0] >= 0
            if self._plan.starts_with_row and not self._gave:
                context.wake_at(context.now())
        end = self._plan.window_end
        if end is not None:
            pieces = [self._last(self._state.index.keys(slots)[end]) for slots in self._state.pieces() if len(slots)]
            self._next_last = min((int(lasts.min()) for lasts in pieces), default=None)

    def _refuse_added_aggregates(self) -> None:
        """Refuse aggregates that the restored groups do not have, where rows may go that these never counted.

        Where rows only come, such an aggregate is one of the rows from now on.

        Raises:
            StateMigrationError: there is such an aggregate.
        """
        names = [column.rpartition(".")[0] for column in self._state.added_columns]
        name = next((name for name in names if name in self._names), None)
        if name is not None and not self._plan.insert_only:
            raise StateMigrationError(
                self._state.name,
                name,
                "it was added, and rows that came before it may go, so it can't begin now",
                "compute it in an INSERT of its own, or begin without this state",
            )

    def _last(self, ends: pa.Array) -> Ints:
        """The last milliseconds of windows, by their ends."""
        return last_moments(ends, self._plan.window_zone)

    # -- rows

    @override
    def begin_batch(self, rows: int) -> int:
        if not self._plan.ttl:
            return 0
        expired = self._life.begin_batch(rows)
        self._forget(expired)
        return len(expired) + sum(distinct.begin_batch(rows) for distinct in self._distinct.values())

    def _forget(self, slots: Ints) -> None:
        """Forget groups that have expired; what belongs to them in other states expires by itself."""
        if self._plan.is_global and len(slots):
            self._gave = False
        self._state.release(slots)

    @override
    def process(self, keys: Sequence[pa.Array], batch: Batch, input_index: int) -> Iterator[Batch]:
        rows, weights = columns_of(batch), weights_of(batch)
        end = self._plan.window_end
        if end is not None:
            lasts = self._last(keys[end])
            late = lasts <= self.context.watermark()
            if late.any():
                self._late.inc(int(late.sum()))
                chosen = np.flatnonzero(~late)
                if not chosen.size:
                    return
                picks = pa.array(chosen)
                rows, weights, lasts = rows.take(picks), weights[chosen], lasts[chosen]
                keys = [key.take(picks) for key in keys]
            first = int(lasts.min())
            self._next_last = first if self._next_last is None else min(first, self._next_last)
        changes = self._changes(keys, rows, weights)
        if changes is not None:
            yield changes

    def _changes(self, keys: Sequence[pa.Array], rows: pa.RecordBatch, weights: Ints) -> Batch | None:
        state = self._state
        slots = state.slots(keys)
        groups = Groups(slots)
        if self._plan.ttl:
            expired = groups.slots[self._life.expired(groups.slots)]
            if expired.size:
                self._forget(expired)
                slots = state.slots(keys)
                groups = Groups(slots)
            is_unmatched = self._unmatched_rows(groups, weights)
            if is_unmatched is not None:
                self._unmatched.inc(int(is_unmatched.sum()))
                # Groups that only such rows have come for are empty.
                state.release(groups.slots[self._rows.get(groups.slots) == 0])
                rest = np.flatnonzero(~is_unmatched)
                if not rest.size:
                    return None
                picks = pa.array(rest)
                keys, rows, weights = [key.take(picks) for key in keys], rows.take(picks), weights[rest]
                slots = state.slots(keys)
                groups = Groups(slots)
        state.touch(groups.slots)
        self._life.written(groups.slots)
        touched, by_group = groups.slots, weights.take(groups.order)
        emits = self._plan.window_end is None
        before_count = self._rows.get(touched)
        before = self._results(touched) if emits else []
        count = before_count + np.add.reduceat(by_group, groups.starts)
        if count.min() < 0:
            raise self._without_row(touched[count < 0][:1])
        self._rows.set(touched, count)
        turned = self._turned_values(keys, rows, slots, groups, by_group)
        for call in self._calls:
            call.add(rows, groups, by_group, turned.get((call.call.arguments, call.filter)))
        changes = None
        if emits:
            existed, exists = before_count > 0, count > 0
            if self._plan.is_global:
                existed, exists = np.full(1, self._gave), np.ones(1, bool)
                self._gave = True
            shown = [] if self._plan.is_global else state.index.keys(touched)
            changes = changes_of_groups(
                self._output, shown, existed, exists, before, self._results(touched), resends=self._plan.ttl > 0
            )
        if not self._plan.is_global:
            state.release(touched[count == 0])
        if self._plan.ttl:
            self._count_unmatched()
        return changes

    def _unmatched_rows(self, groups: Groups, weights: Ints) -> Mask | None:
        """Which rows go from a group that has no row at that moment: their group has expired. None = none does."""
        if weights.min() > 0:
            return None
        before = self._rows.get(groups.slots)
        counts = running_sums(groups, weights.take(groups.order), before)
        if counts.min() >= 0:
            return None
        # Each row with which the count falls to a new least value below zero takes a row that is not there.
        lowest = np.minimum(running_extremes(groups, counts, np.zeros(len(before), np.int64), largest=False), 0)
        lowest_before = np.r_[0, lowest[:-1]]
        lowest_before[groups.starts] = 0
        return groups.to_rows(lowest < lowest_before)

    def _count_unmatched(self) -> None:
        """Count rows that have gone, and that the state beside the groups had forgotten."""
        parts: list[DistinctValues | StoredRows] = [*self._distinct.values(), *(table.rows for table in self._tables)]
        for part in parts:
            if part.unmatched:
                self._unmatched.inc(part.unmatched)
                part.unmatched = 0

    def _turned_values(
        self, keys: Sequence[pa.Array], rows: pa.RecordBatch, slots: Ints, groups: Groups, weights: Ints
    ) -> dict[tuple[tuple[int, ...], str], TurnedValues | None]:
        """The values that have come and gone, by arguments that count once and filter: looked up once for all calls."""
        turned = {}
        for arguments, distinct in self._distinct.items():
            filters = {call.filter: call.mask(rows) for call in self._calls if call.distinct is distinct}
            changes = ArgumentChanges(groups, weights, [rows.column(place) for place in arguments])
            for name, values in distinct.first_and_last(keys, slots, changes, filters).items():
                turned[arguments, name] = values
        return turned

    def _results(self, slots: Ints) -> list[pa.Array]:
        return [call.accumulator.results(slots) for call in self._calls]

    def _without_row(self, slots: Ints) -> ProgramError:
        key = ", ".join(short_repr(column[0].as_py(), 80) for column in self._state.index.keys(slots))
        return ProgramError(
            f"{self.context.operator}: a row of the group ({key}) goes that never came. The changes of the input do "
            "not fit each other: is a primary key declared that rows do not have?"
        )

    # -- times

    @override
    def on_watermark(self, watermark: int) -> Iterator[Batch]:
        if self._plan.window_end is not None:
            if self._next_last is not None and self._next_last <= watermark:
                yield from self._end_windows(self._plan.window_end, watermark)
        elif watermark == END_OF_INPUT and self._lacks_row:
            yield self._row_of_nothing()

    @override
    def on_processing_time(self, now: int) -> Iterator[Batch]:
        if self._plan.starts_with_row and self._lacks_row:
            yield self._row_of_nothing()

    @property
    def _lacks_row(self) -> bool:
        """Whether the one row without groups is to be given here, and was not."""
        return self._owns_constant and not self._gave

    def _constant_key(self) -> list[pa.Array]:
        return [pa.array([0], self._state.key_types[0])]

    def _row_of_nothing(self) -> Batch:
        self._gave = True
        return inserted(self._output, self._results(self._state.slots(self._constant_key())))

    def _end_windows(self, end: int, watermark: int) -> Iterator[Batch]:
        """Give the results of the windows that the watermark has passed, and forget them."""

        def is_over(keys: Sequence[pa.Array]) -> Mask:
            over: Mask = self._last(keys[end]) <= watermark
            return over

        remaining_lasts: list[int] = []
        for slots in self._state.pieces():
            if not len(slots):
                continue
            keys = self._state.index.keys(slots)
            over = is_over(keys)
            remaining = self._last(keys[end])[~over]
            if remaining.size:
                remaining_lasts.append(int(remaining.min()))
            ended = slots[over]
            if ended.size:
                ended_keys = self._state.index.keys(ended)
                yield inserted(self._output, [*ended_keys, *self._results(ended)])
                for table in self._tables:
                    table.forget(ended)
                self._state.release(ended)
        for distinct in self._distinct.values():
            distinct.forget(is_over)
        self._next_last = min(remaining_lasts, default=None)


def _owns_constant(states: ChangelogStates) -> bool:
    """Whether the constant by which rows without groups are keyed belongs to this subtask."""
    parameters = states.parameters
    (group,) = parameters.key_groups_of([pa.array([0], states.key_types[0])])
    return int(group) in parameters.key_groups
