"""Aggregates with state in arrays: for each row the result so far, or only the result of many."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.expressions.aggregates import BoundAggregate
from firesteel.expressions.schema import arrow_type
from firesteel.state.columnar.groups import (
    Groups,
    first_overflow,
    first_valid,
    last_valid,
    running_extremes,
    running_sums,
)
from firesteel.state.columnar.store import ColumnarState
from firesteel.state.columnar.values import Codec, StateColumn, valid_of

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class RowError(Exception):
    """A row can't be taken in.

    Attributes:
        row: its position in the batch.
    """

    def __init__(self, row: int, text: str) -> None:
        super().__init__(text)
        self.row = row


class Aggregator(ABC):
    """One aggregate of one operator. Whoever adds rows has called ``touch`` for their slots.

    Args:
        bound: what to compute.
        state: gets columns named after the result and what they hold.
    """

    def __init__(self, bound: BoundAggregate, state: ColumnarState) -> None:
        self.bound = bound
        found = arrow_type(bound.type_info)
        assert found is not None
        self.data_type: pa.DataType = found

    @abstractmethod
    def running(self, groups: Groups, values: pa.Array | None) -> pa.Array:
        """Take rows in; the result so far for each, in the order of the batch.

        Args:
            groups: of the rows.
            values: of the aggregate's input, one for each row; None for ``count()``.

        Raises:
            RowError: the result does not fit its type at a row. The state is as it was, or may be anything.
        """

    def add(self, groups: Groups, values: pa.Array | None) -> None:
        """Take rows in."""
        self.running(groups, values)

    @abstractmethod
    def result(self, slots: Ints) -> pa.Array:
        """The results of slots."""


def make_aggregator(bound: BoundAggregate, state: ColumnarState) -> Aggregator:
    """What computes an aggregate."""
    function = bound.aggregate.function
    if function == "count":
        return _Count(bound, state)
    if function == "sum":
        return _Sum(bound, state)
    if function == "avg":
        return _Average(bound, state)
    if function == "first":
        return _First(bound, state)
    if function == "last":
        return _Last(bound, state)
    assert bound.input is not None
    if Codec(bound.input.data_type).fixed:
        return _Extreme(bound, state)
    return _TextExtreme(bound, state)


def _grouped(groups: Groups, valid: Mask | None) -> Mask | None:
    return None if valid is None else valid.take(groups.order)


def _rows(groups: Groups, mask: Mask | None) -> Mask | None:
    return None if mask is None else groups.to_rows(mask)


class _Count(Aggregator):
    def __init__(self, bound: BoundAggregate, state: ColumnarState) -> None:
        super().__init__(bound, state)
        self._counts = state.column(f"{bound.name}.count", pa.int64())

    def running(self, groups: Groups, values: pa.Array | None) -> pa.Array:
        before = self._counts.get(groups.slots)
        valid = None if values is None else _grouped(groups, valid_of(values))
        if valid is None:
            found = np.arange(1, groups.count + 1)
            found += groups.spread(before - groups.starts)
            self._counts.set(groups.slots, before + groups.lengths)
        else:
            found = running_sums(groups, valid.astype(np.int64), before)
            self._counts.set(groups.slots, found.take(groups.ends))
        return pa.array(groups.to_rows(found))

    def add(self, groups: Groups, values: pa.Array | None) -> None:
        if values is not None and values.null_count:
            self.running(groups, values)
        else:
            self._counts.set(groups.slots, self._counts.get(groups.slots) + groups.lengths)

    def result(self, slots: Ints) -> pa.Array:
        return pa.array(self._counts.get(slots))


class _Seen:
    """Which keys had a value that counts."""

    def __init__(self, bound: BoundAggregate, state: ColumnarState) -> None:
        self._column = state.column(f"{bound.name}.seen", pa.bool_())

    def get(self, slots: Ints) -> Mask:
        seen: Mask = self._column.get(slots)
        return seen

    def running(self, groups: Groups, valid: Mask | None) -> Mask | None:
        """For each row, grouped, whether there was one by then; None if so for all. Takes the rows in."""
        if valid is None:
            self._column.set(groups.slots, True)
            return None
        seen = last_valid(groups, valid) >= 0
        seen |= groups.spread(self.get(groups.slots))
        self._column.set(groups.slots, seen.take(groups.ends))
        return seen


class _Total:
    """Running sums of numbers: int64 of whole ones, float64 of others."""

    def __init__(self, bound: BoundAggregate, state: ColumnarState) -> None:
        assert bound.input is not None
        self._bound = bound
        floating = pt.is_floating(bound.input.data_type)
        self._codec = Codec(bound.input.data_type)
        self._dtype = np.dtype(np.float64 if floating else np.int64)
        self._checked = not floating and not bound.wrap
        self.column = state.column(f"{bound.name}.sum", pa.float64() if floating else pa.int64())

    def running(self, groups: Groups, values: pa.Array, valid: Mask | None) -> npt.NDArray[Any]:
        """Sums, grouped; ``valid`` is grouped, too."""
        numbers: npt.NDArray[Any] = self._codec.numbers(values).take(groups.order).astype(self._dtype, copy=False)
        if valid is not None:
            numbers = np.where(valid, numbers, self._dtype.type(0))
        before = self.column.get(groups.slots)
        if self._checked:
            bad = first_overflow(groups, numbers, before)
            if bad >= 0:
                raise RowError(
                    bad,
                    f"{self._bound.aggregate} overflows LONG (64 bits) when {values[bad].as_py()} is added; cast the "
                    "values to DOUBLE, or set firesteel.expressions.wrap-integers",
                )
        with np.errstate(all="ignore"):
            sums = running_sums(groups, numbers, before)
        self.column.set(groups.slots, sums.take(groups.ends))
        return sums


class _Sum(Aggregator):
    def __init__(self, bound: BoundAggregate, state: ColumnarState) -> None:
        super().__init__(bound, state)
        self._total, self._seen = _Total(bound, state), _Seen(bound, state)

    def running(self, groups: Groups, values: pa.Array | None) -> pa.Array:
        assert values is not None
        valid = _grouped(groups, valid_of(values))
        sums = self._total.running(groups, values, valid)
        seen = self._seen.running(groups, valid)
        return _column(groups.to_rows(sums), _rows(groups, seen), self.data_type)

    def result(self, slots: Ints) -> pa.Array:
        return _column(self._total.column.get(slots), self._seen.get(slots), self.data_type)


class _Average(Aggregator):
    def __init__(self, bound: BoundAggregate, state: ColumnarState) -> None:
        super().__init__(bound, state)
        self._total = _Total(bound, state)
        self._counts = state.column(f"{bound.name}.count", pa.int64())

    def running(self, groups: Groups, values: pa.Array | None) -> pa.Array:
        assert values is not None
        valid = _grouped(groups, valid_of(values))
        sums = self._total.running(groups, values, valid)
        before = self._counts.get(groups.slots)
        ones = np.ones(groups.count, np.int64) if valid is None else valid.astype(np.int64)
        counts = running_sums(groups, ones, before)
        self._counts.set(groups.slots, counts.take(groups.ends))
        return _mean(groups.to_rows(sums), groups.to_rows(counts))

    def result(self, slots: Ints) -> pa.Array:
        return _mean(self._total.column.get(slots), self._counts.get(slots))


def _mean(sums: npt.NDArray[Any], counts: Ints) -> pa.Array:
    with np.errstate(all="ignore"):
        return _column(sums / counts, counts > 0, pa.float64())


class _Extreme(Aggregator):
    """Minima and maxima of numbers, dates and times."""

    def __init__(self, bound: BoundAggregate, state: ColumnarState) -> None:
        super().__init__(bound, state)
        self._codec = Codec(self.data_type)
        self._values = state.column(f"{bound.name}.{bound.aggregate.function}", self.data_type)
        self._seen = _Seen(bound, state)
        self._largest = bound.aggregate.function == "max"
        if self._codec.dtype.kind == "f":
            self._dtype: np.dtype[Any] = self._codec.dtype
            self._nothing: Any = self._dtype.type(-np.inf if self._largest else np.nan)
        else:
            self._dtype = np.dtype(np.int64)
            narrow = np.iinfo(np.int8 if self._codec.dtype.kind == "b" else self._codec.dtype)
            self._nothing = narrow.min if self._largest else narrow.max

    def running(self, groups: Groups, values: pa.Array | None) -> pa.Array:
        assert values is not None
        valid = _grouped(groups, valid_of(values))
        numbers = self._codec.numbers(values).take(groups.order).astype(self._dtype, copy=False)
        if self._dtype.kind == "f":
            numbers = numbers + self._dtype.type(0)  # of 0.0 and -0.0 neither is greater
        if valid is not None:
            numbers = np.where(valid, numbers, self._dtype.type(self._nothing))
        before = np.where(self._seen.get(groups.slots), self._values.get(groups.slots), self._nothing)
        found = running_extremes(groups, numbers, before.astype(self._dtype), largest=self._largest)
        seen = self._seen.running(groups, valid)
        last = found.take(groups.ends)
        if seen is not None:  # what stands for nothing is no value of a Boolean
            last = np.where(self._seen.get(groups.slots), last, 0)
            found = np.where(seen, found, 0)
        self._values.set(groups.slots, last.astype(self._codec.dtype))
        return self._codec.column(groups.to_rows(found.astype(self._codec.dtype)), _rows(groups, seen))

    def result(self, slots: Ints) -> pa.Array:
        return self._codec.column(self._values.get(slots), _some(self._seen.get(slots)))


class _TextExtreme(Aggregator):
    """Minima and maxima of texts and bytes, by their rank among the values at hand."""

    def __init__(self, bound: BoundAggregate, state: ColumnarState) -> None:
        super().__init__(bound, state)
        self._values = state.column(f"{bound.name}.{bound.aggregate.function}", self.data_type)
        self._seen = _Seen(bound, state)
        self._largest = bound.aggregate.function == "max"

    def running(self, groups: Groups, values: pa.Array | None) -> pa.Array:
        assert values is not None
        slots = groups.slots
        before = self._values.codec.column(self._values.get(slots), self._seen.get(slots))
        both = pa.concat_arrays([_plain(values), before]).dictionary_encode()
        by_rank = pc.array_sort_indices(both.dictionary)
        ranked = both.dictionary.take(by_rank)
        nothing = -1 if self._largest else len(ranked)
        rank_of = np.empty(len(ranked) + 1, np.int64)
        rank_of[by_rank.to_numpy()] = np.arange(len(ranked))
        rank_of[-1] = nothing
        ranks = rank_of.take(both.indices.fill_null(len(ranked)).to_numpy())
        ranks_before = ranks[groups.count :]
        found = running_extremes(groups, ranks[: groups.count].take(groups.order), ranks_before, largest=self._largest)
        last = found.take(groups.ends)
        better = np.flatnonzero(last != ranks_before)
        self._values.set(slots[better], self._values.codec.numbers(ranked.take(pa.array(last[better]))))
        self._seen.running(groups, _grouped(groups, valid_of(values)))
        found = groups.to_rows(found)
        return ranked.take(pa.array(found, mask=found == nothing))

    def result(self, slots: Ints) -> pa.Array:
        return self._values.codec.column(self._values.get(slots), self._seen.get(slots))


class _Picked(Aggregator):
    """The first or the last value, of any type."""

    def __init__(self, bound: BoundAggregate, state: ColumnarState) -> None:
        super().__init__(bound, state)
        self._values: StateColumn = state.column(f"{bound.name}.{bound.aggregate.function}", self.data_type)
        self._seen = _Seen(bound, state)

    def running(self, groups: Groups, values: pa.Array | None) -> pa.Array:
        assert values is not None
        values = _plain(values)
        before = self._seen.get(groups.slots)
        valid = _grouped(groups, valid_of(values))
        chosen, changed, to = self._choose(groups, valid, before)
        source = values
        if before.any():
            source = pa.concat_arrays([values, self._values.codec.column(self._values.get(groups.slots), None)])
        self._values.set(groups.slots[changed], self._values.codec.numbers(values.take(pa.array(groups.order[to]))))
        self._seen.running(groups, valid)
        chosen = groups.to_rows(chosen)
        return source.take(pa.array(chosen, mask=chosen < 0 if valid is not None else None))

    @abstractmethod
    def _choose(self, groups: Groups, valid: Mask | None, before: Mask) -> tuple[Ints, Ints, Ints]:
        """What is the result.

        Returns:
            For each row, grouped, the row of the batch, or the number of all rows and that of the group for what was
            before, or -1; the groups that get another value; and the rows, grouped, that these are of.
        """

    def result(self, slots: Ints) -> pa.Array:
        return self._values.codec.column(self._values.get(slots), _some(self._seen.get(slots)))


class _First(_Picked):
    def _choose(self, groups: Groups, valid: Mask | None, before: Mask) -> tuple[Ints, Ints, Ints]:
        at = first_valid(groups, valid)
        of_group = np.where(before, groups.count + np.arange(len(before)), np.append(groups.order, -1)[at])
        chosen = groups.spread(of_group)
        if valid is not None:
            chosen[np.arange(groups.count) < groups.spread(np.where(before, 0, at))] = -1
        changed = np.flatnonzero(~before & (at < groups.count))
        return chosen, changed, at[changed]


class _Last(_Picked):
    def _choose(self, groups: Groups, valid: Mask | None, before: Mask) -> tuple[Ints, Ints, Ints]:
        at = last_valid(groups, valid)
        chosen = groups.order if valid is None else np.append(groups.order, -1)[at]
        if valid is not None:
            old = np.where(before, groups.count + np.arange(len(before)), -1)
            chosen = np.where(at < 0, groups.spread(old), chosen)
        ends = at.take(groups.ends)
        changed = np.flatnonzero(ends >= 0)
        return chosen, changed, ends[changed]


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pt.is_dictionary(column.type) else column


def _some(mask: Mask) -> Mask | None:
    return None if mask.all() else mask


def _column(numbers: npt.NDArray[Any], valid: Mask | None, data_type: pa.DataType) -> pa.Array:
    if valid is not None:
        valid = _some(valid)
    return pa.array(numbers, data_type, mask=None if valid is None else ~valid, from_pandas=False)
