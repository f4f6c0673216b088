"""One kernel for each aggregate function.

A kernel serves all that aggregates by slot. Keyed streams ask for the result so far behind each row (``running``).
Windows add rows to slots, bring slots together and ask for results at the end (``add``, ``merge``, ``result``), and
write slots out and put them back (``dump``, ``load``). Where the numbers stand is the business of ``Fields``.

All kernels agree: nulls are skipped, and without another value the result is null. NaN is above all other numbers; of
0.0 and -0.0 neither is greater. A sum of whole numbers is that of the program, not what 64 bits make of it: each
*result* has to fit LONG, or it is an error that says what to do. A sum on its way to a result may be of any size, so
the order in which a window's rows and panes come together does not matter. Java's sums wrap around without a word; so
do these where the program asks for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.core.errors import ProgramError
from firesteel.core.short_repr import short_repr
from firesteel.expressions.aggregates import BoundAggregate
from firesteel.expressions.schema import arrow_type
from firesteel.state.columnar.aggregate_fields import (
    SEEN,
    VALUE,
    Fields,
    Ints,
    Mask,
    SeenSlots,
    SlotColumn,
    SlotFields,
    flags_column,
)
from firesteel.state.columnar.groups import (
    Groups,
    first_overflow,
    first_valid,
    fits,
    in_words,
    last_valid,
    running_extremes,
    running_sums,
)
from firesteel.state.columnar.values import Codec, valid_of

__all__ = ["Accumulators", "Inputs", "Kernel", "NotLongError", "Values", "make_kernel"]

_SAFE: Final = 2**62
"""Sums whose bound is below it can't have overflown."""
_CARRY: Final = 1 << 30
"""After so many rows at most, lower words are brought below 2**32 again."""


class NotLongError(Exception):
    """A result does not fit LONG.

    Attributes:
        row: which one of the rows or slots at hand.
        keys: columns of their keys.
    """

    keys: Sequence[pa.Array] = ()

    def __init__(self, row: int, bound: BoundAggregate, total: int, cause: str = "") -> None:
        super().__init__(
            f"{bound.aggregate}: the sum {total} does not fit LONG (64 bits){cause}; cast the values to DOUBLE, or set "
            "firesteel.expressions.wrap-integers"
        )
        self.row = row

    def with_key(self, names: Sequence[str]) -> ProgramError:
        """For the user; ``names`` are those of the key's columns, none if there is one key for all."""
        key = ", ".join(
            f"{name} = {short_repr(column[self.row].as_py(), 80)}"
            for name, column in zip(names, self.keys, strict=False)
        )
        return ProgramError(f"for the key {key}: {self}" if key else str(self))


class Values:
    """What an aggregate reads of a batch.

    Args:
        column: a value for each row; None for ``count()``.
        codec: of its type; None where only nulls matter.

    Attributes:
        valid: which rows are not null; None = all.
    """

    __slots__ = ("_codec", "_column", "_numbers", "valid")

    def __init__(self, column: pa.Array | None, codec: Codec | None) -> None:
        self._column, self._codec = column, codec
        self._numbers: npt.NDArray[Any] | None = None
        self.valid = None if column is None else valid_of(column)

    @property
    def numbers(self) -> npt.NDArray[Any]:
        """As arrays hold them; anything for nulls, where they are numbers."""
        if self._numbers is None:
            assert self._codec is not None
            self._numbers = self._codec.numbers(self._column)
        return self._numbers

    @property
    def column(self) -> pa.Array:
        """All rows, without a dictionary."""
        assert self._column is not None
        return self._column.dictionary_decode() if pt.is_dictionary(self._column.type) else self._column

    def take(self, rows: Ints) -> Values:
        """Some rows, to be added."""
        taken = Values(None, None)
        if self._codec is not None:
            taken._numbers = self.numbers[rows]
            taken._codec = self._codec
        if self.valid is not None:
            taken.valid = self.valid[rows]
        return taken

    def counted(self, slots: Ints) -> tuple[Ints, npt.NDArray[Any]]:
        """Slots and numbers of the rows that are not null."""
        if self.valid is None:
            return slots, self.numbers
        return slots[self.valid], self.numbers[self.valid]


class Inputs:
    """Evaluates what aggregates read, once for a batch."""

    def __init__(self, bound: Sequence[BoundAggregate]) -> None:
        self._inputs = [one.input for one in bound]
        self._codecs = [
            None if one.input is None or one.aggregate.function == "count" else Codec(one.input.data_type)
            for one in bound
        ]

    def of(self, columns: dict[str, pa.Array], count: int) -> list[Values]:
        """For each aggregate, of all rows."""
        return [
            Values(None if source is None else source.evaluate(columns, count), codec)
            for source, codec in zip(self._inputs, self._codecs, strict=True)
        ]


class Kernel(ABC):
    """One aggregate of one operator.

    Args:
        bound: what to compute.
        fields: where.
    """

    rows_seen = 0
    """The highest number that a row had, plus 1, where that matters."""

    def __init__(self, bound: BoundAggregate, fields: Fields) -> None:
        self.fields = fields

    @abstractmethod
    def running(self, groups: Groups, given: Values) -> pa.Array:
        """Take rows in, which came after all others of their slots; the result so far for each, in their order.

        Raises:
            NotLongError: one does not fit its type. The state is as it was, or may be anything.
        """

    @abstractmethod
    def add(self, slots: Ints, given: Values, order: Ints) -> None:
        """Take rows in; slots may stand there several times. Only where slots are merged, as ``merge``.

        Args:
            slots: of the rows.
            given: their values.
            order: when they came, as numbers that rise.
        """

    @abstractmethod
    def merge(self, slots: Ints, other: Any, others: Ints) -> None:
        """Add slots of another kernel of the same aggregate; both may stand there several times."""

    @abstractmethod
    def result(self, slots: Ints) -> pa.Array:
        """The results of slots.

        Raises:
            NotLongError: one does not fit its type.
        """

    def valid(self, slots: Ints) -> Mask | None:
        """Which slots have a result that is not null; None = all."""
        return None

    def dump(self, slots: Ints) -> dict[str, pa.Array]:
        """What slots hold, as columns."""
        assert isinstance(self.fields, SlotFields)
        return self.fields.dump(slots, self.valid(slots))

    def load(self, slots: Ints, columns: dict[str, pa.Array]) -> None:
        """Put back what ``dump`` gave, into new slots."""
        assert isinstance(self.fields, SlotFields)
        self.fields.load(slots, columns)


def make_kernel(bound: BoundAggregate, fields: Fields) -> Kernel:
    """What computes an aggregate."""
    made: type[Kernel] = _KERNELS[bound.aggregate.function]
    if made is _Extreme and bound.input is not None and not Codec(bound.input.data_type).fixed:
        made = _TextExtreme
    return made(bound, fields)


# -- counts and sums


class _Count(Kernel):
    def __init__(self, bound: BoundAggregate, fields: Fields) -> None:
        super().__init__(bound, fields)
        self._counts = fields.column("count", pa.int64())

    def running(self, groups: Groups, given: Values) -> pa.Array:
        return pa.array(groups.to_rows(self.numbers(groups, _grouped(groups, given.valid))))

    def numbers(self, groups: Groups, valid: Mask | None) -> Ints:
        """Running numbers, grouped as ``valid`` is."""
        before = self._counts.get(groups.slots)
        if valid is not None:
            found = running_sums(groups, valid.astype(np.int64), before)
            self._counts.set(groups.slots, found.take(groups.ends))
            return found
        found = np.arange(1, groups.count + 1)
        found += groups.spread(before - groups.starts)
        self._counts.set(groups.slots, before + groups.lengths)
        return found

    def add(self, slots: Ints, given: Values, order: Ints) -> None:
        np.add.at(self._counts.array.values, slots if given.valid is None else slots[given.valid], 1)

    def merge(self, slots: Ints, other: _Count, others: Ints) -> None:
        np.add.at(self._counts.array.values, slots, other.of(others))

    def put(self, slots: Ints, counts: Ints) -> None:
        """Put back what ``of`` gave."""
        self._counts.set(slots, counts)

    def of(self, slots: Ints) -> Ints:
        """How many rows came to slots."""
        return self._counts.get(slots)

    def result(self, slots: Ints) -> pa.Array:
        return pa.array(self.of(slots))


class _Total:
    """Sums: of whole numbers as int64, of others as float64.

    Where slots are merged, a sum of whole numbers that 64 bits might not hold on its way is kept in two words: the
    column is the lower one then, of 32 bits and what they carry. Two words hold what 2**32 rows of any values give.
    """

    def __init__(self, bound: BoundAggregate, fields: Fields) -> None:
        assert bound.input is not None
        self._bound = bound
        whole = not pt.is_floating(bound.input.data_type)
        self._dtype: np.dtype[Any] = np.dtype(np.int64 if whole else np.float64)
        self._checked = whole and not bound.wrap
        self._sums = fields.column("sum", pa.int64() if whole else pa.float64())
        self._upper: SlotColumn | None = None
        self._most = self._rows = 0  # no sum is greater; so many numbers were added to lower words

    def running(self, groups: Groups, given: Values, valid: Mask | None) -> npt.NDArray[Any]:
        """Sums behind each row, grouped; ``valid`` is grouped, too."""
        numbers = given.numbers.take(groups.order).astype(self._dtype, copy=False)
        if valid is not None:
            numbers = np.where(valid, numbers, self._dtype.type(0))
        before = self._sums.get(groups.slots)
        if self._checked:
            overflow = first_overflow(groups, numbers, before)
            if overflow is not None:
                row, total = overflow
                raise NotLongError(row, self._bound, total, f" when {given.column[row].as_py()} is added")
        with np.errstate(all="ignore"):
            sums = running_sums(groups, numbers, before)
        self._sums.set(groups.slots, sums.take(groups.ends))
        return sums

    def add(self, slots: Ints, given: Values) -> None:
        chosen, numbers = given.counted(slots)
        numbers = numbers.astype(self._dtype, copy=False)
        if self._checked and numbers.size:
            self._reach(_size(numbers) * len(numbers))
        if self._upper is None:
            with np.errstate(all="ignore"):
                np.add.at(self._sums.array.values, chosen, numbers)
        else:
            self._add_words(chosen, *in_words(numbers))

    def merge(self, slots: Ints, other: _Total, others: Ints) -> None:
        """Add slots of another one."""
        if other is self:
            pass
        elif other._upper is not None:
            self._reach(other._most)
        elif self._checked and len(others):
            self._reach(_size(other._sums.get(others)) * len(others))
        if self._upper is None:
            with np.errstate(all="ignore"):
                np.add.at(self._sums.array.values, slots, other._sums.get(others))
        else:
            self._add_words(slots, *other._words(others))

    def numbers(self, slots: Ints) -> npt.NDArray[Any]:
        """The sums.

        Raises:
            NotLongError: one does not fit 64 bits.
        """
        if self._upper is None:
            return self._sums.get(slots)
        lower, upper = self._words(slots)
        bad = np.flatnonzero(~fits(upper))
        if bad.size and self._checked:
            raise NotLongError(int(bad[0]), self._bound, _joined(lower, upper, int(bad[0])))
        return (upper << 32) | lower

    def dump(self, slots: Ints) -> pa.Array:
        """Numbers; texts where one does not fit 64 bits."""
        try:
            return pa.array(self.numbers(slots))
        except NotLongError:
            lower, upper = self._words(slots)
            return pa.array([str(_joined(lower, upper, row)) for row in range(len(slots))])

    def load(self, slots: Ints, given: pa.Array) -> None:
        """Put back what ``dump`` gave, into new slots."""
        if not len(given):
            return
        if pt.is_string(given.type):
            totals = np.array([int(text) for text in given.to_pylist()], object)
            self._reach(max(_SAFE, _size(totals) * len(totals)))
            self._add_words(slots, (totals & 0xFFFFFFFF).astype(np.int64), (totals >> 32).astype(np.int64))
            return
        numbers = given.to_numpy(zero_copy_only=False)
        if self._checked:
            self._reach(_size(numbers) * len(numbers))
        if self._upper is None:
            self._sums.set(slots, numbers)
        else:
            self._add_words(slots, *in_words(numbers))

    def _reach(self, more: int) -> None:
        """Sums may get so much greater."""
        if self._upper is not None:
            return
        self._most += more
        if self._most >= _SAFE:
            upper, sums = SlotColumn("upper", pa.int64()), self._sums.array.values
            upper.ensure(len(sums))
            sums[:], upper.array.values[: len(sums)] = in_words(sums)
            self._upper = upper

    def _words(self, slots: Ints) -> tuple[Ints, Ints]:
        """Sums in two words; the lower one has 32 bits."""
        if self._upper is None:
            return in_words(self._sums.get(slots))
        lower = self._sums.get(slots)
        self._upper.ensure(self._count)
        return lower & 0xFFFFFFFF, self._upper.get(slots) + (lower >> 32)

    def _add_words(self, slots: Ints, lower: Ints, upper: Ints) -> None:
        assert self._upper is not None
        self._upper.ensure(self._count)
        self._rows += len(slots)
        sums, uppers = self._sums.array.values, self._upper.array.values
        if self._rows > _CARRY:
            uppers[: len(sums)] += sums >> 32
            sums &= 0xFFFFFFFF
            self._rows = len(slots)
        np.add.at(sums, slots, lower)
        np.add.at(uppers, slots, upper)

    @property
    def _count(self) -> int:
        return len(self._sums.array.values)


def _size(numbers: npt.NDArray[Any]) -> int:
    return max(int(numbers.max()), -int(numbers.min()))


def _joined(lower: Ints, upper: Ints, row: int) -> int:
    return (int(upper[row]) << 32) + int(lower[row])


class _Sum(Kernel):
    def __init__(self, bound: BoundAggregate, fields: Fields) -> None:
        super().__init__(bound, fields)
        self._total, self._seen = _Total(bound, fields), fields.seen()

    def running(self, groups: Groups, given: Values) -> pa.Array:
        valid = _grouped(groups, given.valid)
        sums = self._total.running(groups, given, valid)
        seen = _running_seen(groups, self._seen, valid)
        return _column(groups.to_rows(sums), _rows(groups, seen))

    def add(self, slots: Ints, given: Values, order: Ints) -> None:
        self._total.add(slots, given)
        self._seen.mark(slots, given.valid)

    def merge(self, slots: Ints, other: _Sum, others: Ints) -> None:
        self._total.merge(slots, other._total, others)
        self._seen.mark(slots, other._seen.of(others))

    def result(self, slots: Ints) -> pa.Array:
        return _column(self._total.numbers(slots), self.valid(slots))

    def valid(self, slots: Ints) -> Mask | None:
        return self._seen.of(slots)

    def dump(self, slots: Ints) -> dict[str, pa.Array]:
        return {"sum": self._total.dump(slots), SEEN: flags_column(slots, self.valid(slots))}

    def load(self, slots: Ints, columns: dict[str, pa.Array]) -> None:
        self._total.load(slots, columns["sum"])
        seen = columns[SEEN].to_numpy(zero_copy_only=False)
        self._seen.mark(slots, None if seen.all() else seen)


class _Average(Kernel):
    def __init__(self, bound: BoundAggregate, fields: Fields) -> None:
        super().__init__(bound, fields)
        self._total, self._count = _Total(bound, fields), _Count(bound, fields)

    def running(self, groups: Groups, given: Values) -> pa.Array:
        valid = _grouped(groups, given.valid)
        sums = self._total.running(groups, given, valid)
        return _means(groups.to_rows(sums), groups.to_rows(self._count.numbers(groups, valid)))

    def add(self, slots: Ints, given: Values, order: Ints) -> None:
        self._total.add(slots, given)
        self._count.add(slots, given, order)

    def merge(self, slots: Ints, other: _Average, others: Ints) -> None:
        self._total.merge(slots, other._total, others)
        self._count.merge(slots, other._count, others)

    def result(self, slots: Ints) -> pa.Array:
        return _means(self._total.numbers(slots), self._count.of(slots))

    def dump(self, slots: Ints) -> dict[str, pa.Array]:
        counts = self._count.of(slots)
        return {"sum": self._total.dump(slots), "count": pa.array(counts), SEEN: pa.array(counts > 0)}

    def load(self, slots: Ints, columns: dict[str, pa.Array]) -> None:
        self._total.load(slots, columns["sum"])
        self._count.put(slots, columns["count"].to_numpy())


def _means(sums: npt.NDArray[Any], counts: Ints) -> pa.Array:
    with np.errstate(all="ignore"):
        return _column(sums / counts, counts > 0)


# -- minima and maxima


class _Extreme(Kernel):
    """Of numbers, dates and times."""

    def __init__(self, bound: BoundAggregate, fields: Fields) -> None:
        super().__init__(bound, fields)
        self._largest = bound.aggregate.function == "max"
        self._codec = _result_codec(bound)
        dtype = self._codec.dtype
        self._better: Any = np.maximum if self._largest else np.fmin if dtype.kind == "f" else np.minimum
        self._nothing = _loses_to_all(dtype, self._largest)
        self._found, self._seen = fields.column(VALUE, self._codec.data_type, self._nothing), fields.seen()

    def running(self, groups: Groups, given: Values) -> pa.Array:
        dtype, valid = self._codec.dtype, _grouped(groups, given.valid)
        numbers, nothing = _without_sign(given.numbers.take(groups.order)), dtype.type(self._nothing)
        if valid is not None:
            numbers = np.where(valid, numbers, nothing)
        before = np.where(_seen_before(groups, self._seen), self._found.get(groups.slots), nothing)
        if dtype.kind != "f":
            numbers, before = numbers.astype(np.int64, copy=False), before.astype(np.int64, copy=False)
        found = running_extremes(groups, numbers, before, largest=self._largest).astype(dtype, copy=False)
        self._found.set(groups.slots, found.take(groups.ends))
        seen = _running_seen(groups, self._seen, valid)
        return self._codec.column(groups.to_rows(found), _rows(groups, seen))

    def add(self, slots: Ints, given: Values, order: Ints) -> None:
        self._put(*given.counted(slots))
        self._seen.mark(slots, given.valid)

    def merge(self, slots: Ints, other: _Extreme, others: Ints) -> None:
        seen = other.valid(others)
        chosen, taken = (slots, others) if seen is None else (slots[seen], others[seen])
        self._put(chosen, other._found.get(taken))
        self._seen.mark(slots, seen)

    def _put(self, slots: Ints, numbers: npt.NDArray[Any]) -> None:
        with np.errstate(invalid="ignore"):  # NaN
            self._better.at(self._found.array.values, slots, _without_sign(numbers))

    def result(self, slots: Ints) -> pa.Array:
        return self._codec.column(self._found.get(slots), self.valid(slots))

    def valid(self, slots: Ints) -> Mask | None:
        return self._seen.of(slots)


class _TextExtreme(_Extreme):
    """Of texts and bytes: running ones by their rank among the values at hand."""

    def running(self, groups: Groups, given: Values) -> pa.Array:
        both = pa.concat_arrays([given.column, self.result(groups.slots)]).dictionary_encode()
        by_rank = pc.array_sort_indices(both.dictionary)
        ranked = both.dictionary.take(by_rank)
        nothing = -1 if self._largest else len(ranked)
        rank_of = np.empty(len(ranked) + 1, np.int64)
        rank_of[by_rank.to_numpy()] = np.arange(len(ranked))
        rank_of[-1] = nothing
        ranks = rank_of.take(both.indices.fill_null(len(ranked)).to_numpy())
        before = ranks[groups.count :]
        found = running_extremes(groups, ranks[: groups.count].take(groups.order), before, largest=self._largest)
        last = found.take(groups.ends)
        better = np.flatnonzero(last != before)
        self._found.set(groups.slots[better], self._codec.numbers(ranked.take(pa.array(last[better]))))
        _running_seen(groups, self._seen, _grouped(groups, given.valid))
        found = groups.to_rows(found)
        return ranked.take(pa.array(found, mask=found == nothing))

    def _put(self, slots: Ints, numbers: npt.NDArray[Any]) -> None:
        found, largest = self._found.array.values, self._largest
        for slot, value in zip(slots.tolist(), numbers.tolist(), strict=True):
            before = found[slot]
            if before is None or (value > before if largest else value < before):
                found[slot] = value


def _without_sign(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """With 0.0 for -0.0: neither is greater."""
    return numbers + numbers.dtype.type(0) if numbers.dtype.kind == "f" else numbers


def _loses_to_all(dtype: np.dtype[Any], largest: bool) -> Any:
    """What any value replaces."""
    if dtype.kind == "O":
        return None
    if dtype.kind == "b":
        return not largest
    if dtype.kind == "f":
        return -np.inf if largest else np.nan
    return np.iinfo(dtype).min if largest else np.iinfo(dtype).max


# -- the first and the last value


class _Picked(Kernel):
    """The value that came first or last, of any type. Where slots are merged, it is known when it came."""

    def __init__(self, bound: BoundAggregate, fields: Fields) -> None:
        super().__init__(bound, fields)
        self._last = bound.aggregate.function == "last"
        self._nothing = -1 if self._last else np.iinfo(np.int64).max
        self._codec = _result_codec(bound)
        self._found = fields.column(VALUE, self._codec.data_type)
        if fields.merging:
            self._order = fields.column("order", pa.int64(), self._nothing)
        else:
            self._seen = fields.seen()

    def running(self, groups: Groups, given: Values) -> pa.Array:
        values, slots = given.column, groups.slots
        before = _seen_before(groups, self._seen)
        valid = _grouped(groups, given.valid)
        chosen, changed, to = (self._latest if self._last else self._earliest)(groups, valid, before)
        source = values
        if before.any():
            source = pa.concat_arrays([values, self._codec.column(self._found.get(slots), None)])
        self._found.set(slots[changed], self._codec.numbers(values.take(pa.array(groups.order[to]))))
        _running_seen(groups, self._seen, valid)
        chosen = groups.to_rows(chosen)
        return source.take(pa.array(chosen, mask=chosen < 0 if valid is not None else None))

    # Both of these give: for each row, grouped, the row of the batch that is the result, or the number of all rows and
    # that of the group for what was before, or -1; the groups that get another value; the rows, grouped, it is from.

    def _earliest(self, groups: Groups, valid: Mask | None, before: Mask) -> tuple[Ints, Ints, Ints]:
        at = first_valid(groups, valid)
        of_group = np.where(before, groups.count + np.arange(len(before)), np.append(groups.order, -1)[at])
        chosen = groups.spread(of_group)
        if valid is not None:
            chosen[np.arange(groups.count) < groups.spread(np.where(before, 0, at))] = -1
        changed = np.flatnonzero(~before & (at < groups.count))
        return chosen, changed, at[changed]

    def _latest(self, groups: Groups, valid: Mask | None, before: Mask) -> tuple[Ints, Ints, Ints]:
        at = last_valid(groups, valid)
        chosen = groups.order if valid is None else np.append(groups.order, -1)[at]
        if valid is not None:
            old = np.where(before, groups.count + np.arange(len(before)), -1)
            chosen = np.where(at < 0, groups.spread(old), chosen)
        ends = at.take(groups.ends)
        changed = np.flatnonzero(ends >= 0)
        return chosen, changed, ends[changed]

    def add(self, slots: Ints, given: Values, order: Ints) -> None:
        chosen, values = given.counted(slots)
        self._put(chosen, values, order if given.valid is None else order[given.valid])

    def merge(self, slots: Ints, other: _Picked, others: Ints) -> None:
        order = other._order.get(others)
        rows = np.argsort(order, kind="stable")
        rows = rows[order[rows] != self._nothing]
        self._put(slots[rows], other._found.get(others[rows]), order[rows])

    def _put(self, slots: Ints, values: npt.NDArray[Any], order: Ints) -> None:
        before = self._order.get(slots)
        rows = np.flatnonzero(order > before if self._last else order < before)
        if not self._last:
            rows = rows[::-1]
        self._found.set(slots[rows], values[rows])  # of equal slots the last one counts
        self._order.set(slots[rows], order[rows])

    def result(self, slots: Ints) -> pa.Array:
        return self._codec.column(self._found.get(slots), self.valid(slots))

    def valid(self, slots: Ints) -> Mask | None:
        return self._order.get(slots) != self._nothing if self.fields.merging else self._seen.of(slots)

    def load(self, slots: Ints, columns: dict[str, pa.Array]) -> None:
        super().load(slots, columns)
        order = columns["order"].to_numpy()
        there = order[order != self._nothing]
        self.rows_seen = max(self.rows_seen, int(there.max(initial=-1)) + 1)


_KERNELS: Final[dict[str, type[Kernel]]] = {
    "count": _Count,
    "sum": _Sum,
    "avg": _Average,
    "min": _Extreme,
    "max": _Extreme,
    "first": _Picked,
    "last": _Picked,
}


def _grouped(groups: Groups, valid: Mask | None) -> Mask | None:
    return None if valid is None else valid.take(groups.order)


def _rows(groups: Groups, mask: Mask | None) -> Mask | None:
    return None if mask is None else groups.to_rows(mask)


def _seen_before(groups: Groups, seen: SeenSlots) -> Mask:
    """Which of the slots hold a value already; of keyed state, which keeps flags of all."""
    flags = seen.of(groups.slots)
    assert flags is not None
    return flags


def _running_seen(groups: Groups, seen: SeenSlots, valid: Mask | None) -> Mask | None:
    """For each row, grouped, whether there was a value by then; None if so for all. Takes the rows in."""
    if valid is None:
        seen.mark(groups.slots)
        return None
    found = last_valid(groups, valid) >= 0
    found |= groups.spread(_seen_before(groups, seen))
    seen.mark(groups.slots, found.take(groups.ends))
    return found


def _result_codec(bound: BoundAggregate) -> Codec:
    data_type = arrow_type(bound.type_info)
    assert data_type is not None
    return Codec(data_type)


def _column(numbers: npt.NDArray[Any], valid: Mask | None) -> pa.Array:
    return pa.array(numbers, mask=None if valid is None or valid.all() else ~valid, from_pandas=False)


class Accumulators:
    """Kernels of several aggregates over slots that can be merged.

    Args:
        bound: the aggregates.
        sparse: some slots may be there before anything is added to them.
    """

    def __init__(self, bound: Sequence[BoundAggregate], *, sparse: bool = False) -> None:
        self._fields = [SlotFields(sparse=sparse) for _ in bound]
        self._kernels = [make_kernel(one, fields) for one, fields in zip(bound, self._fields, strict=True)]

    def add(self, slots: Ints, given: Sequence[Values], order: Ints, count: int) -> None:
        """Add rows to slots; there are ``count`` slots then."""
        self._ensure(count)
        for kernel, values in zip(self._kernels, given, strict=True):
            kernel.add(slots, values, order)

    def merge(self, slots: Ints, other: Accumulators, others: Ints, count: int) -> None:
        """Add slots of others; there are ``count`` slots then."""
        self._ensure(count)
        for kernel, one in zip(self._kernels, other._kernels, strict=True):
            kernel.merge(slots, one, others)

    def results(self, slots: Ints, keys: Sequence[pa.Array]) -> list[pa.Array]:
        """A column for each aggregate.

        Args:
            slots: of the results.
            keys: columns of their keys.

        Raises:
            NotLongError: one does not fit its type; knows its key.
        """
        try:
            return [kernel.result(slots) for kernel in self._kernels]
        except NotLongError as error:
            error.keys = keys
            raise

    @property
    def rows_seen(self) -> int:
        """The highest number that a row had, plus 1, as far as it matters."""
        return max((kernel.rows_seen for kernel in self._kernels), default=0)

    def dump(self, slots: Ints) -> dict[str, pa.Array]:
        """What slots hold, as columns."""
        return {
            f"{index}.{name}": column
            for index, kernel in enumerate(self._kernels)
            for name, column in kernel.dump(slots).items()
        }

    def load(self, slots: Ints, columns: dict[str, pa.Array], count: int) -> None:
        """Put back what ``dump`` gave, into new slots; there are ``count`` slots then."""
        self._ensure(count)
        for index, kernel in enumerate(self._kernels):
            prefix = f"{index}."
            own = {name.removeprefix(prefix): column for name, column in columns.items() if name.startswith(prefix)}
            if own:
                kernel.load(slots, own)
            else:
                self._fields[index].load_nothing(slots)

    def _ensure(self, count: int) -> None:
        for fields in self._fields:
            fields.ensure(count)
