"""Results over the rows around each row, computed for whole partitions at once.

Rows are sorted by partition and order, so that a frame is a range of positions ``low <= position < high``. Sums are
differences of running sums, extremes come from running ones or from a table of the extremes of 1, 2, 4, ... rows, and
numberings from the positions. Every other aggregate function is computed as a group of the frame's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from itertools import accumulate
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.core.clock import SystemClock
from firesteel.runtime.operators.changelog import ChangelogContext, ChangelogStates
from firesteel.runtime.records.batch import MIN_WATERMARK, Batch
from firesteel.runtime.records.columns import columns_of
from firesteel.state.backend import KeyedStateParameters
from firesteel.state.columnar.slot_lists import spread
from firesteel.state.heap import HeapKeyedState
from firesteel_sql.operators.aggregates import GroupAggregate
from firesteel_sql.operators.changes import Ints, millis_of, nulls_of
from firesteel_sql.operators.group_results import truths
from firesteel_sql.operators.ordering import RowOrder, sort_codes, sort_rows, value_codes
from firesteel_sql.operators.plans import AggregatePlan, OverPlan, number_of
from firesteel_sql.plan.stateful_relations import AggregateCall, OverCall, OverFrame, RankFunction

Mask = npt.NDArray[np.bool_]
_FRAME_ROWS: Final = 1 << 17
"""Rows of frames that are looked at together, where each frame is a group."""
_FAR: Final = 1 << 62
_DIGITS: Final = 80


class OverComputation:
    """Computes the calls of an OVER relation.

    Args:
        plan: of the relation.
        schema: columns of the rows.
        output: columns of the results: those of the rows, and then one for each call.
        context: of the operator.
    """

    def __init__(self, plan: OverPlan, schema: pa.Schema, output: pa.Schema, context: ChangelogContext) -> None:
        self._plan, self._schema, self._context = plan, schema, context
        self._types = [field.type for field in list(output)[len(schema) :]]

    def results(
        self,
        partitions: Ints,
        columns: Sequence[pa.Array],
        arrivals: Ints,
        fresh: Ints | None = None,
        before: Sequence[pa.Array] = (),
    ) -> tuple[list[pa.Array], list[pa.Array]]:
        """The result of each call for each row, and what the calls that run on have to know of all rows up to it.

        Args:
            partitions: numbers of the rows' partitions.
            columns: of the rows.
            arrivals: peers have this order.
            fresh: positions of the rows that calls that run on have not seen; only their results count. None = all
                rows, and no call runs on.
            before: for each of these rows, what such calls know of the rows before all fresh ones.
        """
        window, back = self._window(partitions, columns, arrivals)
        if fresh is None:
            calls = zip(self._plan.calls, self._types, strict=True)
            return [self._result(window, call, data_type).take(back) for call, data_type in calls], []
        picks = pa.array(fresh)
        fresh_window, fresh_back = self._window(
            partitions[fresh], [column.take(picks) for column in columns], arrivals[fresh]
        )
        in_order = pa.array(fresh_window.rows.order)
        parts = iter([column.take(in_order) for column in before])
        results, after = [], []
        for number, (call, data_type) in enumerate(zip(self._plan.calls, self._types, strict=True)):
            if number in self._plan.running:
                known = RunningResult(next(parts), next(parts)).joined(fresh_window, call)
                results.append(known.result(fresh_window, call, data_type).take(fresh_back))
                after += [known.counts.take(fresh_back), known.values.take(fresh_back)]
            else:
                results.append(self._result(window, call, data_type).take(back).take(picks))
        return results, after

    def _window(self, partitions: Ints, columns: Sequence[pa.Array], arrivals: Ints) -> tuple[SortedWindow, pa.Array]:
        """The sorted rows, and for each row before its position in them."""
        rows = sort_rows(partitions, sort_codes(columns, self._plan.order), arrivals)
        in_order = pa.array(rows.order)
        back = np.empty(len(rows.order), np.int64)
        back[rows.order] = np.arange(len(back))
        return SortedWindow(rows, [column.take(in_order) for column in columns], self._plan), pa.array(back)

    def _result(self, window: SortedWindow, over: OverCall, data_type: pa.DataType) -> pa.Array:
        call = over.call
        if not window.count:
            return pa.nulls(0, data_type)
        match call.function:
            case "ROW_NUMBER" | "RANK" | "DENSE_RANK":
                return pa.array(window.rows.ranks(RankFunction[call.function])).cast(data_type)
            case "PERCENT_RANK":
                ranks = window.rows.ranks(RankFunction.RANK) - 1
                return pa.array(ranks / np.maximum(window.end - window.begin - 1, 1)).cast(data_type)
            case "CUME_DIST":
                return pa.array((window.peers_end - window.begin) / (window.end - window.begin)).cast(data_type)
            case "NTILE":
                return pa.array(_tiles(window, number_of(call))).cast(data_type)
            case "LAG" | "LEAD":
                return _neighbours(window, call, data_type)
        low, high = window.frame(over.frame)
        if call.function == "NTH_VALUE":
            at = low + number_of(call) - 1
            return window.taken(call.arguments[0], np.where(at < high, at, -1)).cast(data_type)
        if call.distinct or call.order or call.function not in _FAST:
            return self._by_groups(window, call, data_type, low, high)
        return _FAST[call.function](window, call, data_type, low, high)

    def _by_groups(
        self, window: SortedWindow, call: AggregateCall, data_type: pa.DataType, low: Ints, high: Ints
    ) -> pa.Array:
        """Compute an aggregate for which each frame is a group."""
        counts, parts, start = high - low, [], 0
        totals = np.cumsum(counts)
        while start < len(counts):
            done = int(totals[start - 1]) if start else 0
            stop = max(int(np.searchsorted(totals, done + _FRAME_ROWS, side="right")), start + 1)
            rows = pa.array(spread(low[start:stop], counts[start:stop]))
            frames = pa.array(np.repeat(np.arange(stop - start), counts[start:stop]))
            parts.append(
                self._groups(call, data_type, [column.take(rows) for column in window.columns], frames, stop - start)
            )
            start = stop
        return pa.concat_arrays(parts)

    def _groups(
        self, call: AggregateCall, data_type: pa.DataType, columns: Sequence[pa.Array], frames: pa.Array, count: int
    ) -> pa.Array:
        output = pa.schema([("frame", pa.int64()), ("result", data_type)])
        aggregate = GroupAggregate(AggregatePlan((call,), insert_only=True), [self._schema], output)
        parameters = KeyedStateParameters(clock=SystemClock())
        aggregate.create_state(ChangelogStates(HeapKeyedState(parameters), [pa.int64()], parameters))
        context = self._context
        aggregate.open(
            ChangelogContext(context.operator, context.now, lambda: MIN_WATERMARK, context.wake_at, context.metrics)
        )
        batch = Batch(pa.RecordBatch.from_arrays(list(columns), schema=self._schema))
        groups = pa.concat_batches([columns_of(part) for part in aggregate.process([frames], batch, 0)])
        where = np.full(count, -1, np.int64)
        where[groups.column(0).to_numpy()] = np.arange(groups.num_rows)
        return groups.column(1).take(pa.array(where, mask=where < 0))


class SortedWindow:
    """Sorted rows, and the frames of each.

    Args:
        rows: the order of the rows.
        columns: of the rows, in this order.
        plan: of the relation.
    """

    def __init__(self, rows: RowOrder, columns: Sequence[pa.Array], plan: OverPlan) -> None:
        self.rows, self.columns, self._plan = rows, columns, plan
        self.count = len(rows.order)
        self.positions = np.arange(self.count)
        self.begin = np.repeat(rows.starts, rows.counts)
        self.end = self.begin + np.repeat(rows.counts, rows.counts)
        firsts = np.flatnonzero(rows.is_first)
        number = np.cumsum(rows.is_first) - 1
        self.peers_begin = firsts[number]
        self.peers_end = np.append(firsts[1:], self.count)[number]

    def frame(self, frame: OverFrame) -> tuple[Ints, Ints]:
        """The first position of each frame, and the one behind its last."""
        if frame.by_rows:
            low = self.begin if frame.preceding is None else np.maximum(self.begin, self.positions - frame.preceding)
            if frame.following is None:
                return low, self.end
            return low, np.minimum(self.end, self.positions + 1 + frame.following)
        low, high = self.begin, self.end
        if frame.preceding is not None:
            low = self._search(-frame.preceding, behind=False) if frame.preceding else self.peers_begin
        if frame.following is not None:
            high = self._search(frame.following, behind=True) if frame.following else self.peers_end
        return low, high

    def _search(self, distance: int, *, behind: bool) -> Ints:
        """Where a value would stand that is this far from the sort key of each row, before or behind equal ones.

        A row whose key is NULL has the others of this kind as its frame.
        """
        (key,) = self._plan.order
        column = self.columns[key.place]
        values, scale = _measures(column)
        distances = values.dtype.type(distance * scale)
        values = values if key.ascending else -values
        targets = values + distances
        if column.null_count:
            nulls = nulls_of(column)
            edge = values.dtype.type(-_FAR if key.nulls_first else _FAR)
            values, targets = np.where(nulls, edge, values), np.where(nulls, edge, targets)
        partition = np.concatenate([self.begin, self.begin])
        is_row = np.repeat([True, False], self.count)
        order = np.lexsort((is_row != behind, np.concatenate([values, targets]), partition))
        rows_before = np.cumsum(is_row[order])
        places = np.empty(2 * self.count, np.int64)
        places[order] = rows_before
        return places[self.count :]

    def counted(self, call: AggregateCall) -> Mask:
        """Which rows count: the filter holds, and no argument is NULL."""
        counted = np.ones(self.count, bool) if call.filter is None else truths(self.columns[call.filter])
        for place in call.arguments:
            if self.columns[place].null_count:
                counted = counted & ~nulls_of(self.columns[place])
        return counted

    def taken(self, place: int, positions: Ints) -> pa.Array:
        """Values of a column at some positions; NULL for -1."""
        return self.columns[place].take(pa.array(positions, mask=positions < 0))


def _measures(column: pa.Array) -> tuple[npt.NDArray[Any], int]:
    """Values between which there are distances, and how many of them a distance of one has."""
    if pt.is_temporal(column.type):
        if pt.is_timestamp(column.type):
            return millis_of(column), 1
        millis = (
            column.cast(pa.timestamp("ms"))
            if pt.is_date(column.type)
            else column.cast(pa.time32("ms")).view(pa.int32())
        )
        return millis_of(millis), 1
    if pt.is_floating(column.type):
        return column.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64), 1
    if pt.is_decimal(column.type):
        if column.type.precision <= 18:
            words = np.frombuffer(column.buffers()[1], np.int64, 2 * len(column), column.offset * 16)
            return words[::2].copy(), int(10**column.type.scale)
        return column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False), 1
    return millis_of(column), 1


def _tiles(window: SortedWindow, tiles: int) -> Ints:
    numbers, counts = window.positions - window.begin, window.end - window.begin
    small, larger = counts // tiles, counts % tiles  # the first tiles have one row more
    in_larger = numbers < larger * (small + 1)
    return (
        np.where(in_larger, numbers // (small + 1), larger + (numbers - larger * (small + 1)) // np.maximum(small, 1))
        + 1
    )


def _neighbours(window: SortedWindow, call: AggregateCall, data_type: pa.DataType) -> pa.Array:
    offset, default = number_of(call), call.constants[1] if len(call.constants) > 1 else None
    if len(call.constants) > 2:  # IGNORE NULLS
        values_at = np.flatnonzero(window.counted(call))
        before = np.searchsorted(values_at, window.positions, "right" if call.function == "LEAD" else "left")
        number = before + (offset - 1 if call.function == "LEAD" else -offset)
        known = (number >= 0) & (number < len(values_at))
        at = np.full(window.count, -1)
        at[known] = values_at[number[known]]
    else:
        at = window.positions + (offset if call.function == "LEAD" else -offset)
    is_there = (at >= window.begin) & (at < window.end)
    values = window.taken(call.arguments[0], np.where(is_there, at, -1)).cast(data_type)
    if default is None or is_there.all():
        return values
    return pc.if_else(pa.array(is_there), values, pa.scalar(default).cast(data_type))


def _count(window: SortedWindow, call: AggregateCall, data_type: pa.DataType, low: Ints, high: Ints) -> pa.Array:
    return pa.array(counts_of(window.counted(call), low, high)).cast(data_type)


def counts_of(counted: Mask, low: Ints, high: Ints) -> Ints:
    """How many rows of each frame count."""
    running = np.concatenate([[0], np.cumsum(counted)])
    counts: Ints = running[high] - running[low]
    return counts


def _sum(window: SortedWindow, call: AggregateCall, data_type: pa.DataType, low: Ints, high: Ints) -> pa.Array:
    source = window.columns[call.arguments[0]].type
    return final_sums(
        call, source, data_type, sums_of(window, call, low, high), counts_of(window.counted(call), low, high)
    )


def sums_of(window: SortedWindow, call: AggregateCall, low: Ints, high: Ints) -> npt.NDArray[Any]:
    """The sum of each frame: of decimal numbers as Python's integers, without their point."""
    counted, column = window.counted(call), window.columns[call.arguments[0]]
    if pt.is_decimal(column.type):
        return _whole_sums(column, counted, low, high)
    if pt.is_floating(column.type):
        numbers = column.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64)
        return _floating_sums(np.where(counted, numbers, 0.0), window, low, high)
    running = np.concatenate([[0], np.cumsum(np.where(counted, millis_of(column), 0))])
    sums: Ints = running[high] - running[low]
    return sums


def final_sums(
    call: AggregateCall, source: pa.DataType, data_type: pa.DataType, sums: npt.NDArray[Any], counts: Ints
) -> pa.Array:
    """The results of SUM and AVG from sums and numbers of values."""
    is_mean, is_empty = call.function == "AVG", (counts == 0) & (call.function != "SUM0")
    if pt.is_decimal(source):
        return _decimals(sums, counts, is_empty, source, data_type, is_mean)
    if is_mean:
        divisors = np.maximum(counts, 1)
        # Those of whole numbers are cut towards zero.
        sums = sums / divisors if pt.is_floating(source) else np.sign(sums) * (np.abs(sums) // divisors)
    return pa.array(sums, mask=is_empty, from_pandas=False).cast(data_type, safe=False)


def _floating_sums(
    numbers: npt.NDArray[np.float64], window: SortedWindow, low: Ints, high: Ints
) -> npt.NDArray[np.float64]:
    """Sums of frames, of which none sees the numbers of rows outside of it."""
    if (low == window.begin).all():
        running = np.empty(len(numbers))
        for start, count in zip(window.rows.starts.tolist(), window.rows.counts.tolist(), strict=True):
            np.cumsum(numbers[start : start + count], out=running[start : start + count])
        return running[high - 1]
    bounds = np.empty(2 * len(low), np.int64)
    bounds[::2], bounds[1::2] = low, high
    sums: npt.NDArray[np.float64] = np.add.reduceat(np.append(numbers, 0.0), bounds)[::2]
    return sums


def _whole_sums(column: pa.Array, counted: Mask, low: Ints, high: Ints) -> npt.NDArray[Any]:
    values = [
        value if is_counted else 0 for value, is_counted in zip(_without_point(column), counted.tolist(), strict=True)
    ]
    running = np.array([0, *accumulate(values)], object)
    sums: npt.NDArray[Any] = running[high] - running[low]
    return sums


def _without_point(column: pa.Array) -> list[int]:
    """Decimal numbers times 10 to the power of their scale; 0 for NULL."""
    scale = column.type.scale
    with localcontext(prec=_DIGITS):  # Python's own precision of 28 digits would round longer numbers
        return [0 if value is None else int(value.scaleb(scale)) for value in column.to_pylist()]


def _decimals(
    sums: npt.NDArray[Any], counts: Ints, is_empty: Mask, source: pa.DataType, data_type: pa.DataType, is_mean: bool
) -> pa.Array:
    """Sums, or means, as decimal numbers; NULL where they have too many digits."""
    values: list[Decimal | None] = []
    quantum, largest = Decimal(1).scaleb(-data_type.scale), Decimal(10) ** (data_type.precision - data_type.scale)
    with localcontext(prec=_DIGITS):
        for total, count, empty in zip(sums.tolist(), counts.tolist(), is_empty.tolist(), strict=True):
            value = Decimal(total).scaleb(-source.scale)
            if is_mean and count:
                value /= count
            value = value.quantize(quantum, ROUND_HALF_UP)
            values.append(None if empty or abs(value) >= largest else value)
    return pa.array(values, data_type)


def _extreme(window: SortedWindow, call: AggregateCall, data_type: pa.DataType, low: Ints, high: Ints) -> pa.Array:
    counted, column = window.counted(call), window.columns[call.arguments[0]]
    codes = np.zeros(window.count, np.int64)
    some = np.flatnonzero(counted)
    if some.size:
        ranks = np.unique(value_codes(column.take(pa.array(some))), return_inverse=True)[1]
        codes[some] = ranks if call.function == "MIN" else -ranks
    codes[~counted] = window.count + 1  # above all others
    if (low == window.begin).all():
        running = np.empty(window.count, np.int64)
        for start, count in zip(window.rows.starts.tolist(), window.rows.counts.tolist(), strict=True):
            np.minimum.accumulate(codes[start : start + count], out=running[start : start + count])
        is_new = np.append(True, running[1:] != running[:-1])
        is_new[window.rows.starts] = True
        positions = np.maximum.accumulate(np.where(is_new, window.positions, 0))[high - 1]
    else:
        positions = _least(codes, low, high)
    return window.taken(call.arguments[0], np.where(counted[positions], positions, -1)).cast(data_type)


def _least(codes: Ints, low: Ints, high: Ints) -> Ints:
    """Position of the least code of each frame: the lesser of those of two powers of two that cover it."""
    lengths = high - low
    levels = np.log2(lengths).astype(np.int64)
    least, positions = np.arange(len(codes)), np.empty(len(low), np.int64)
    for level in range(int(levels.max()) + 1):
        here = np.flatnonzero(levels == level)
        first, second = least[low[here]], least[high[here] - (1 << level)]
        positions[here] = np.where(codes[second] < codes[first], second, first)
        if level < levels.max():
            left, right = least[: len(least) - (1 << level)], least[1 << level :]
            least = np.where(codes[right] < codes[left], right, left)
    return positions


def _edge(window: SortedWindow, call: AggregateCall, data_type: pa.DataType, low: Ints, high: Ints) -> pa.Array:
    """The first or the last value of each frame that is not NULL."""
    counted = window.counted(call)
    if call.function == "FIRST_VALUE":
        following = np.where(counted, window.positions, window.count)
        following = np.append(np.minimum.accumulate(following[::-1])[::-1], window.count)
        at = following[low]
        return window.taken(call.arguments[0], np.where(at < high, at, -1)).cast(data_type)
    at = np.maximum.accumulate(np.where(counted, window.positions, -1))[high - 1]
    return window.taken(call.arguments[0], np.where(at >= low, at, -1)).cast(data_type)


_FAST: Final = {
    "COUNT": _count,
    "SUM": _sum,
    "SUM0": _sum,
    "AVG": _sum,
    "MIN": _extreme,
    "MAX": _extreme,
    "FIRST_VALUE": _edge,
    "LAST_VALUE": _edge,
}


def running_fields(call: AggregateCall, schema: pa.Schema) -> list[pa.DataType]:
    """Types of the number of rows, and of the value, that a call that runs on has to know of the rows before."""
    if call.function not in ("SUM", "SUM0", "AVG", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE"):
        return [pa.int64(), pa.bool_()]
    data_type = schema.field(call.arguments[0]).type
    if call.function in ("SUM", "SUM0", "AVG"):
        if pt.is_decimal(data_type):
            return [pa.int64(), pa.decimal256(76, data_type.scale)]
        return [pa.int64(), pa.float64() if pt.is_floating(data_type) else pa.int64()]
    return [pa.int64(), data_type]


class RunningResult:
    """What a call whose frames begin with the partition knows of all rows up to each row.

    Args:
        counts: numbers of rows, or of values that are not NULL.
        values: the sum, the extreme, the first or the last value; NULL where there is none.
    """

    def __init__(self, counts: pa.Array, values: pa.Array) -> None:
        self.counts, self.values = counts, values

    def joined(self, window: SortedWindow, over: OverCall) -> RunningResult:
        """This, of the rows before a window, together with the rows of the window."""
        call, function = over.call, over.call.function
        before = self.counts.fill_null(0).to_numpy(zero_copy_only=False)
        if function in ("ROW_NUMBER", "RANK"):
            return RunningResult(pa.array(before + window.rows.numbers()), self.values)
        if function == "DENSE_RANK":
            return RunningResult(pa.array(before + window.rows.ranks(RankFunction.DENSE_RANK)), self.values)
        low, high = window.frame(over.frame)
        counts = counts_of(window.counted(call), low, high)
        joined_counts = pa.array(before + counts)
        if function == "COUNT":
            return RunningResult(joined_counts, self.values)
        if function in ("SUM", "SUM0", "AVG"):
            return RunningResult(joined_counts, self._sums(sums_of(window, call, low, high)))
        values = _FAST[function](window, call, self.values.type, low, high)
        if function == "FIRST_VALUE":
            return RunningResult(joined_counts, pc.coalesce(self.values, values))
        if function == "LAST_VALUE":
            return RunningResult(joined_counts, pc.coalesce(values, self.values))
        size = len(values)
        codes = value_codes(pa.concat_arrays([self.values, values]))
        is_better = codes[size:] < codes[:size] if function == "MIN" else codes[size:] > codes[:size]
        chosen = pa.array(is_better & ~nulls_of(values) | nulls_of(self.values))
        return RunningResult(joined_counts, pc.if_else(chosen, values, self.values))

    def _sums(self, sums: npt.NDArray[Any]) -> pa.Array:
        data_type = self.values.type
        if not pt.is_decimal(data_type):
            return pa.array(sums + self.values.fill_null(0).to_numpy(zero_copy_only=False), data_type)
        with localcontext(prec=_DIGITS):
            totals = [
                Decimal(number).scaleb(-data_type.scale) + (known or 0)
                for number, known in zip(sums.tolist(), self.values.to_pylist(), strict=True)
            ]
        return pa.array(totals, data_type)

    def result(self, window: SortedWindow, over: OverCall, data_type: pa.DataType) -> pa.Array:
        """The result of each row."""
        call, counts = over.call, self.counts.to_numpy(zero_copy_only=False)
        if call.function == "RANK":  # that of the first of the peers
            counts = counts - (window.positions - window.peers_begin)
        if call.function in ("ROW_NUMBER", "RANK", "DENSE_RANK", "COUNT"):
            return pa.array(counts).cast(data_type)
        if call.function not in ("SUM", "SUM0", "AVG"):
            return self.values.cast(data_type)
        values, source = self.values, window.columns[call.arguments[0]].type
        if pt.is_decimal(source):
            numbers = np.array(_without_point(values), object)
        else:
            numbers = values.to_numpy(zero_copy_only=False)
        return final_sums(call, source, data_type, numbers, counts)
