"""One kernel for each aggregate function.

A kernel serves everything that aggregates by slot. Keyed streams ask for the result so far behind each row
(``running``). Windows add rows to slots, merge slots and ask for results at the end (``add``, ``merge``, ``result``),
and write slots out and put them back (``dump``, ``load``). ``Fields`` decides where the numbers are stored.

All kernels agree: nulls are skipped, and without any value the result is null. NaN is above all other numbers, and of
0.0 and -0.0 neither is greater. A sum of whole numbers is exact, whatever 64 bits make of it: each *result* has to fit
LONG, or it is an error that says what to do. A sum on its way to a result may be of any size, so the order in which a
window's rows and panes come together does not matter. Java's sums wrap around silently; so do these where the program
asks for it.
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
"""Sums whose bound is below it can't have overflowed."""
_CARRY: Final = 1 << 30
"""Rows added before lower words are brought below 2**32 again."""


class NotLongError(Exception):
    """A result does not fit LONG.

    Attributes:
        row: position of the result among the rows or slots passed.
        keys: columns of the keys of these rows or slots.
    """

    keys: Sequence[pa.Array] = ()

    def __init__(self, row: int, bound: BoundAggregate, total: int, cause: str = "") -> None:
        super().__init__(
            f"{bound.aggregate}: the sum {total} does not fit LONG (64 bits){cause}; cast the values to DOUBLE, or set "
            "firesteel.expressions.wrap-integers"
        )
        self.row = row

    def with_key(self, names: Sequence[str]) -> ProgramError:
        """Error for the user; ``names`` are those of the key's columns, none if there is one key for all."""
        key = ", ".join(
            f"{name} = {short_repr(column[self.row].as_py(), 80)}"
            for name, column in zip(names, self.keys, strict=False)
        )
        return ProgramError(f"for the key {key}: {self}" if key else str(self))


class Values:
    """The values of a batch that an aggregate reads.

    Args:
        column: a value for each row; None for ``count()``.
        codec: of the column's type; None where only nulls matter.

    Attributes:
        valid: which rows are not null; None = all of them.
    """

    __slots__ = ("_codec", "_column", "_numbers", "valid")

    def __init__(self, column: pa.Array | None, codec: Codec | None) -> None:
        self._column, self._codec = column, codec
        self._numbers: npt.NDArray[Any] | None = None
        self.valid = None if column is None else valid_of(column)

    @property
    def numbers(self) -> npt.NDArray[Any]:
        """Values as arrays store them; where they are numbers, nulls are arbitrary numbers."""
        if self._numbers is None:
            assert self._codec is not None
            self._numbers = self._codec.numbers(self._column)
        return self._numbers

    @property
    def column(self) -> pa.Array:
        """Values of all rows, without a dictionary."""
        assert self._column is not None
        return self._column.dictionary_decode() if pt.is_dictionary(self._column.type) else self._column

    def take(self, rows: Ints) -> Values:
        """Values of some rows, for ``Kernel.add``."""
        chosen = Values(None, None)
        if self._codec is not None:
            chosen._numbers = self.numbers[rows]
            chosen._codec = self._codec
        if self.valid is not None:
            chosen.valid = self.valid[rows]
        return chosen

    def counted(self, slots: Ints) -> tuple[Ints, npt.NDArray[Any]]:
        """Slots and numbers of the rows that are not null."""
        if self.valid is None:
            return slots, self.numbers
        return slots[self.valid], self.numbers[self.valid]


class Inputs:
    """Evaluates the expressions that aggregates read, once for a batch."""

    def __init__(self, bound: Sequence[BoundAggregate]) -> None:
        self._inputs = [aggregate.input for aggregate in bound]
        self._codecs = [
            None
            if aggregate.input is None or aggregate.aggregate.function == "count"
            else Codec(aggregate.input.data_type)
            for aggregate in bound
        ]

    def evaluate(self, columns: dict[str, pa.Array], count: int) -> list[Values]:
        """The values that each aggregate reads, of all rows."""
        return [
            Values(None if source is None else source.evaluate(columns, count), codec)
            for source, codec in zip(self._inputs, self._codecs, strict=True)
        ]


class Kernel(ABC):
    """One aggregate function of one operator.

    Args:
        bound: the aggregate, bound to the types of its input.
        fields: where the numbers are stored.
    """

    rows_seen = 0
    """One more than the highest order number of a row in a slot, where order matters."""

    def __init__(self, bound: BoundAggregate, fields: Fields) -> None:
        self.fields = fields

    @abstractmethod
    def running(self, groups: Groups, values: Values) -> pa.Array:
        """Add rows that came after all earlier rows of their slots, and return the result behind each, in their order.

        Raises:
            NotLongError: a result does not fit its type. The rows may have been added or not: the state is undefined.
        """

    @abstractmethod
    def add(self, slots: Ints, values: Values, order: Ints) -> None:
        """Add rows; a slot may occur several times. As ``merge``, only with fields whose slots can be merged.

        Args:
            slots: of the rows.
            values: of the rows.
            order: when the rows came, as rising numbers.
        """

    @abstractmethod
    def merge(self, slots: Ints, source: Any, source_slots: Ints) -> None:
        """Add slots of another kernel of the same aggregate; on both sides a slot may occur several times."""

    @abstractmethod
    def result(self, slots: Ints) -> pa.Array:
        """Results of slots.

        Raises:
            NotLongError: a result does not fit its type.
        """

    def valid(self, slots: Ints) -> Mask | None:
        """Which slots have a result that is not null; None = all of them."""
        return None

    def dump(self, slots: Ints) -> dict[str, pa.Array]:
        """Contents of slots, as columns."""
        assert isinstance(self.fields, SlotFields)
        return self.fields.dump(slots, self.valid(slots))

    def load(self, slots: Ints, columns: dict[str, pa.Array]) -> None:
        """Put the columns of ``dump`` back into new slots."""
        assert isinstance(self.fields, SlotFields)
        self.fields.load(slots, columns)


def make_kernel(bound: BoundAggregate, fields: Fields) -> Kernel:
    """Create the kernel of an aggregate."""
    kernel_type: type[Kernel] = _KERNELS[bound.aggregate.function]
    if kernel_type is _Extreme and bound.input is not None and not Codec(bound.input.data_type).fixed:
        kernel_type = _TextExtreme
    return kernel_type(bound, fields)


# -- counts and sums


class _Count(Kernel):
    def __init__(self, bound: BoundAggregate, fields: Fields) -> None:
        super().__init__(bound, fields)
        self._counts = fields.column("count", pa.int64())

    def running(self, groups: Groups, values: Values) -> pa.Array:
        return pa.array(groups.to_rows(self.numbers(groups, _grouped(groups, values.valid))))

    def numbers(self, groups: Groups, valid: Mask | None) -> Ints:
        """Running counts; like ``valid`` in grouped order."""
        previous = self._counts.get(groups.slots)
        if valid is not None:
            counts = running_sums(groups, valid.astype(np.int64), previous)
            self._counts.set(groups.slots, counts.take(groups.ends))
            return counts
        counts = np.arange(1, groups.count + 1)
        counts += groups.spread(previous - groups.starts)
        self._counts.set(groups.slots, previous + groups.lengths)
        return counts

    def add(self, slots: Ints, values: Values, order: Ints) -> None:
        np.add.at(self._counts.array.values, slots if values.valid is None else slots[values.valid], 1)

    def merge(self, slots: Ints, source: _Count, source_slots: Ints) -> None:
        np.add.at(self._counts.array.values, slots, source.counts(source_slots))

    def put(self, slots: Ints, counts: Ints) -> None:
        """Set the counts of slots."""
        self._counts.set(slots, counts)

    def counts(self, slots: Ints) -> Ints:
        """Number of rows added to slots."""
        return self._counts.get(slots)

    def result(self, slots: Ints) -> pa.Array:
        return pa.array(self.counts(slots))


class _Total:
    """Sums: int64 for whole numbers, float64 for all others.

    Where slots are merged, sums of whole numbers that 64 bits might not hold on their way are stored in two words: the
    column is then the lower word, of 32 bits and what they carry. Two words hold the sum of 2**32 rows of any values.
    """

    def __init__(self, bound: BoundAggregate, fields: Fields) -> None:
        assert bound.input is not None
        self._bound = bound
        whole = not pt.is_floating(bound.input.data_type)
        self._dtype: np.dtype[Any] = np.dtype(np.int64 if whole else np.float64)
        self._checked = whole and not bound.wrap
        self._sums = fields.column("sum", pa.int64() if whole else pa.float64())
        self._upper: SlotColumn | None = None
        self._most = self._rows = 0  # bound of all sums; numbers added to lower words since the last carry

    def running(self, groups: Groups, values: Values, valid: Mask | None) -> npt.NDArray[Any]:
        """Sums behind each row; like ``valid`` in grouped order."""
        numbers = values.numbers.take(groups.order).astype(self._dtype, copy=False)
        if valid is not None:
            numbers = np.where(valid, numbers, self._dtype.type(0))
        previous = self._sums.get(groups.slots)
        if self._checked:
            overflow = first_overflow(groups, numbers, previous)
            if overflow is not None:
                row, total = overflow
                raise NotLongError(row, self._bound, total, f" when {values.column[row].as_py()} is added")
        with np.errstate(all="ignore"):
            sums = running_sums(groups, numbers, previous)
        self._sums.set(groups.slots, sums.take(groups.ends))
        return sums

    def add(self, slots: Ints, values: Values) -> None:
        chosen, numbers = values.counted(slots)
        numbers = numbers.astype(self._dtype, copy=False)
        if self._checked and numbers.size:
            self._reach(_size(numbers) * len(numbers))
        if self._upper is None:
            with np.errstate(all="ignore"):
                np.add.at(self._sums.array.values, chosen, numbers)
        else:
            self._add_words(chosen, *in_words(numbers))

    def merge(self, slots: Ints, source: _Total, source_slots: Ints) -> None:
        """Add slots of another kernel."""
        # What is added may be greater than all sums here, so the bound rises before.
        if source is self:
            pass
        elif source._upper is not None:
            self._reach(source._most)
        elif self._checked and len(source_slots):
            self._reach(_size(source._sums.get(source_slots)) * len(source_slots))
        if self._upper is None:
            with np.errstate(all="ignore"):
                np.add.at(self._sums.array.values, slots, source._sums.get(source_slots))
        else:
            self._add_words(slots, *source._words(source_slots))

    def numbers(self, slots: Ints) -> npt.NDArray[Any]:
        """Sums of slots.

        Raises:
            NotLongError: a sum does not fit 64 bits.
        """
        if self._upper is None:
            return self._sums.get(slots)
        lower, upper = self._words(slots)
        bad = np.flatnonzero(~fits(upper))
        if bad.size and self._checked:
            raise NotLongError(int(bad[0]), self._bound, _joined(lower, upper, int(bad[0])))
        return (upper << 32) | lower

    def dump(self, slots: Ints) -> pa.Array:
        """Sums as numbers; as texts where one does not fit 64 bits."""
        try:
            return pa.array(self.numbers(slots))
        except NotLongError:
            lower, upper = self._words(slots)
            return pa.array([str(_joined(lower, upper, row)) for row in range(len(slots))])

    def load(self, slots: Ints, column: pa.Array) -> None:
        """Put the column of ``dump`` back into new slots."""
        if not len(column):
            return
        if pt.is_string(column.type):
            totals = np.array([int(text) for text in column.to_pylist()], object)
            self._reach(max(_SAFE, _size(totals) * len(totals)))
            self._add_words(slots, (totals & 0xFFFFFFFF).astype(np.int64), (totals >> 32).astype(np.int64))
            return
        numbers = column.to_numpy(zero_copy_only=False)
        if self._checked:
            self._reach(_size(numbers) * len(numbers))
        if self._upper is None:
            self._sums.set(slots, numbers)
        else:
            self._add_words(slots, *in_words(numbers))

    def _reach(self, increase: int) -> None:
        """Note that sums may grow by ``increase``; from the bound on that 64 bits might not hold they get a second
        word.
        """
        if self._upper is not None:
            return
        self._most += increase
        if self._most >= _SAFE:
            upper, sums = SlotColumn("upper", pa.int64()), self._sums.array.values
            upper.ensure(len(sums))
            sums[:], upper.array.values[: len(sums)] = in_words(sums)
            self._upper = upper

    def _words(self, slots: Ints) -> tuple[Ints, Ints]:
        """Sums in two words, the lower one with 32 bits."""
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
        # Lower words carry up before 2**31 additions of 32 bits could fill their 64.
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

    def running(self, groups: Groups, values: Values) -> pa.Array:
        valid = _grouped(groups, values.valid)
        sums = self._total.running(groups, values, valid)
        seen = _running_seen(groups, self._seen, valid)
        return _column(groups.to_rows(sums), _rows(groups, seen))

    def add(self, slots: Ints, values: Values, order: Ints) -> None:
        self._total.add(slots, values)
        self._seen.mark(slots, values.valid)

    def merge(self, slots: Ints, source: _Sum, source_slots: Ints) -> None:
        self._total.merge(slots, source._total, source_slots)
        self._seen.mark(slots, source._seen.flags(source_slots))

    def result(self, slots: Ints) -> pa.Array:
        return _column(self._total.numbers(slots), self.valid(slots))

    def valid(self, slots: Ints) -> Mask | None:
        return self._seen.flags(slots)

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

    def running(self, groups: Groups, values: Values) -> pa.Array:
        valid = _grouped(groups, values.valid)
        sums = self._total.running(groups, values, valid)
        return _means(groups.to_rows(sums), groups.to_rows(self._count.numbers(groups, valid)))

    def add(self, slots: Ints, values: Values, order: Ints) -> None:
        self._total.add(slots, values)
        self._count.add(slots, values, order)

    def merge(self, slots: Ints, source: _Average, source_slots: Ints) -> None:
        self._total.merge(slots, source._total, source_slots)
        self._count.merge(slots, source._count, source_slots)

    def result(self, slots: Ints) -> pa.Array:
        return _means(self._total.numbers(slots), self._count.counts(slots))

    def dump(self, slots: Ints) -> dict[str, pa.Array]:
        counts = self._count.counts(slots)
        return {"sum": self._total.dump(slots), "count": pa.array(counts), SEEN: pa.array(counts > 0)}

    def load(self, slots: Ints, columns: dict[str, pa.Array]) -> None:
        self._total.load(slots, columns["sum"])
        self._count.put(slots, columns["count"].to_numpy())


def _means(sums: npt.NDArray[Any], counts: Ints) -> pa.Array:
    with np.errstate(all="ignore"):
        return _column(sums / counts, counts > 0)


# -- minima and maxima


class _Extreme(Kernel):
    """Minimum or maximum of numbers, dates and times."""

    def __init__(self, bound: BoundAggregate, fields: Fields) -> None:
        super().__init__(bound, fields)
        self._largest = bound.aggregate.function == "max"
        self._codec = _result_codec(bound)
        dtype = self._codec.dtype
        self._better: Any = np.maximum if self._largest else np.fmin if dtype.kind == "f" else np.minimum
        self._nothing = _loses_to_all(dtype, self._largest)
        self._values, self._seen = fields.column(VALUE, self._codec.data_type, self._nothing), fields.seen()

    def running(self, groups: Groups, values: Values) -> pa.Array:
        dtype, valid = self._codec.dtype, _grouped(groups, values.valid)
        numbers, nothing = _without_sign(values.numbers.take(groups.order)), dtype.type(self._nothing)
        if valid is not None:
            numbers = np.where(valid, numbers, nothing)
        previous = np.where(_seen_before(groups, self._seen), self._values.get(groups.slots), nothing)
        if dtype.kind != "f":
            numbers, previous = numbers.astype(np.int64, copy=False), previous.astype(np.int64, copy=False)
        extremes = running_extremes(groups, numbers, previous, largest=self._largest).astype(dtype, copy=False)
        self._values.set(groups.slots, extremes.take(groups.ends))
        seen = _running_seen(groups, self._seen, valid)
        return self._codec.column(groups.to_rows(extremes), _rows(groups, seen))

    def add(self, slots: Ints, values: Values, order: Ints) -> None:
        self._put(*values.counted(slots))
        self._seen.mark(slots, values.valid)

    def merge(self, slots: Ints, source: _Extreme, source_slots: Ints) -> None:
        seen = source.valid(source_slots)
        chosen, chosen_source = (slots, source_slots) if seen is None else (slots[seen], source_slots[seen])
        self._put(chosen, source._values.get(chosen_source))
        self._seen.mark(slots, seen)

    def _put(self, slots: Ints, numbers: npt.NDArray[Any]) -> None:
        with np.errstate(invalid="ignore"):  # NaN
            self._better.at(self._values.array.values, slots, _without_sign(numbers))

    def result(self, slots: Ints) -> pa.Array:
        return self._codec.column(self._values.get(slots), self.valid(slots))

    def valid(self, slots: Ints) -> Mask | None:
        return self._seen.flags(slots)


class _TextExtreme(_Extreme):
    """Minimum or maximum of texts and bytes; running ones by the rank of the values at hand."""

    def running(self, groups: Groups, values: Values) -> pa.Array:
        candidates = pa.concat_arrays([values.column, self.result(groups.slots)]).dictionary_encode()
        by_rank = pc.array_sort_indices(candidates.dictionary)
        ranked = candidates.dictionary.take(by_rank)
        nothing = -1 if self._largest else len(ranked)
        rank_of = np.empty(len(ranked) + 1, np.int64)
        rank_of[by_rank.to_numpy()] = np.arange(len(ranked))
        rank_of[-1] = nothing
        ranks = rank_of.take(candidates.indices.fill_null(len(ranked)).to_numpy())
        previous = ranks[groups.count :]
        extremes = running_extremes(groups, ranks[: groups.count].take(groups.order), previous, largest=self._largest)
        last = extremes.take(groups.ends)
        better = np.flatnonzero(last != previous)
        self._values.set(groups.slots[better], self._codec.numbers(ranked.take(pa.array(last[better]))))
        _running_seen(groups, self._seen, _grouped(groups, values.valid))
        extremes = groups.to_rows(extremes)
        return ranked.take(pa.array(extremes, mask=extremes == nothing))

    def _put(self, slots: Ints, numbers: npt.NDArray[Any]) -> None:
        extremes, largest = self._values.array.values, self._largest
        for slot, value in zip(slots.tolist(), numbers.tolist(), strict=True):
            previous = extremes[slot]
            if previous is None or (value > previous if largest else value < previous):
                extremes[slot] = value


def _without_sign(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Numbers with 0.0 in place of -0.0: neither is greater."""
    return numbers + numbers.dtype.type(0) if numbers.dtype.kind == "f" else numbers


def _loses_to_all(dtype: np.dtype[Any], largest: bool) -> Any:
    """Value that any other one replaces."""
    if dtype.kind == "O":
        return None
    if dtype.kind == "b":
        return not largest
    if dtype.kind == "f":
        return -np.inf if largest else np.nan
    return np.iinfo(dtype).min if largest else np.iinfo(dtype).max


# -- the first and the last value


class _Picked(Kernel):
    """The value that came first or last, of any type. Where slots are merged, its order number is stored beside it."""

    def __init__(self, bound: BoundAggregate, fields: Fields) -> None:
        super().__init__(bound, fields)
        self._last = bound.aggregate.function == "last"
        self._nothing = -1 if self._last else np.iinfo(np.int64).max
        self._codec = _result_codec(bound)
        self._values = fields.column(VALUE, self._codec.data_type)
        if fields.merging:
            self._order = fields.column("order", pa.int64(), self._nothing)
        else:
            self._seen = fields.seen()

    def running(self, groups: Groups, values: Values) -> pa.Array:
        column, slots = values.column, groups.slots
        had_value = _seen_before(groups, self._seen)
        valid = _grouped(groups, values.valid)
        chosen, changed, to = (self._latest if self._last else self._earliest)(groups, valid, had_value)
        source = column
        if had_value.any():
            source = pa.concat_arrays([column, self._codec.column(self._values.get(slots), None)])
        self._values.set(slots[changed], self._codec.numbers(column.take(pa.array(groups.order[to]))))
        _running_seen(groups, self._seen, valid)
        chosen = groups.to_rows(chosen)
        return source.take(pa.array(chosen, mask=chosen < 0 if valid is not None else None))

    # Both functions return: for each row, in grouped order, the position of its result in ``source`` above (the column
    # of the batch, then the values that the groups had), or -1; the groups whose value changes; the row, in grouped
    # order, that each of these takes it from.

    def _earliest(self, groups: Groups, valid: Mask | None, had_value: Mask) -> tuple[Ints, Ints, Ints]:
        first = first_valid(groups, valid)
        # Per group: its earlier value wins; else its first row with a value, if any.
        of_group = np.where(had_value, groups.count + np.arange(len(had_value)), np.append(groups.order, -1)[first])
        chosen = groups.spread(of_group)
        # Rows before the first value of their group have no result yet.
        if valid is not None:
            chosen[np.arange(groups.count) < groups.spread(np.where(had_value, 0, first))] = -1
        changed = np.flatnonzero(~had_value & (first < groups.count))
        return chosen, changed, first[changed]

    def _latest(self, groups: Groups, valid: Mask | None, had_value: Mask) -> tuple[Ints, Ints, Ints]:
        last = last_valid(groups, valid)
        chosen = groups.order if valid is None else np.append(groups.order, -1)[last]
        # Rows before the first value of the batch still have the earlier value of their group.
        if valid is not None:
            previous = np.where(had_value, groups.count + np.arange(len(had_value)), -1)
            chosen = np.where(last < 0, groups.spread(previous), chosen)
        ends = last.take(groups.ends)
        changed = np.flatnonzero(ends >= 0)
        return chosen, changed, ends[changed]

    def add(self, slots: Ints, values: Values, order: Ints) -> None:
        chosen, numbers = values.counted(slots)
        self._put(chosen, numbers, order if values.valid is None else order[values.valid])

    def merge(self, slots: Ints, source: _Picked, source_slots: Ints) -> None:
        order = source._order.get(source_slots)
        rows = np.argsort(order, kind="stable")
        rows = rows[order[rows] != self._nothing]
        self._put(slots[rows], source._values.get(source_slots[rows]), order[rows])

    def _put(self, slots: Ints, values: npt.NDArray[Any], order: Ints) -> None:
        previous = self._order.get(slots)
        rows = np.flatnonzero(order > previous if self._last else order < previous)
        if not self._last:
            rows = rows[::-1]
        self._values.set(slots[rows], values[rows])  # of equal slots the last row counts
        self._order.set(slots[rows], order[rows])

    def result(self, slots: Ints) -> pa.Array:
        return self._codec.column(self._values.get(slots), self.valid(slots))

    def valid(self, slots: Ints) -> Mask | None:
        return self._order.get(slots) != self._nothing if self.fields.merging else self._seen.flags(slots)

    def load(self, slots: Ints, columns: dict[str, pa.Array]) -> None:
        super().load(slots, columns)
        order = columns["order"].to_numpy()
        known_order = order[order != self._nothing]
        self.rows_seen = max(self.rows_seen, int(known_order.max(initial=-1)) + 1)


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
    """Which slots have a value already. For keyed state only, which has flags of all slots."""
    flags = seen.flags(groups.slots)
    assert flags is not None
    return flags


def _running_seen(groups: Groups, seen: SeenSlots, valid: Mask | None) -> Mask | None:
    """Note the rows, and return for each, in grouped order, whether its slot had a value by then; None = all had."""
    if valid is None:
        seen.mark(groups.slots)
        return None
    flags = last_valid(groups, valid) >= 0
    flags |= groups.spread(_seen_before(groups, seen))
    seen.mark(groups.slots, flags.take(groups.ends))
    return flags


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
        sparse: slots may exist before anything is added to them.
    """

    def __init__(self, bound: Sequence[BoundAggregate], *, sparse: bool = False) -> None:
        self._fields = [SlotFields(sparse=sparse) for _ in bound]
        self._kernels = [make_kernel(aggregate, fields) for aggregate, fields in zip(bound, self._fields, strict=True)]

    def add(self, slots: Ints, inputs: Sequence[Values], order: Ints, count: int) -> None:
        """Add rows to slots, of which there are ``count`` afterwards."""
        self._ensure(count)
        for kernel, values in zip(self._kernels, inputs, strict=True):
            kernel.add(slots, values, order)

    def merge(self, slots: Ints, source: Accumulators, source_slots: Ints, count: int) -> None:
        """Add slots of other accumulators; there are ``count`` slots afterwards."""
        self._ensure(count)
        for kernel, source_kernel in zip(self._kernels, source._kernels, strict=True):
            kernel.merge(slots, source_kernel, source_slots)

    def results(self, slots: Ints, keys: Sequence[pa.Array]) -> list[pa.Array]:
        """Results of slots, a column for each aggregate.

        Args:
            slots: of the results.
            keys: columns of their keys.

        Raises:
            NotLongError: a result does not fit its type; the error knows its key.
        """
        try:
            return [kernel.result(slots) for kernel in self._kernels]
        except NotLongError as error:
            error.keys = keys
            raise

    @property
    def rows_seen(self) -> int:
        """One more than the highest order number of a row, as far as order matters."""
        return max((kernel.rows_seen for kernel in self._kernels), default=0)

    def dump(self, slots: Ints) -> dict[str, pa.Array]:
        """Contents of slots, as columns."""
        return {
            f"{index}.{name}": column
            for index, kernel in enumerate(self._kernels)
            for name, column in kernel.dump(slots).items()
        }

    def load(self, slots: Ints, columns: dict[str, pa.Array], count: int) -> None:
        """Put the columns of ``dump`` back into new slots; there are ``count`` slots afterwards."""
        self._ensure(count)
        for index, kernel in enumerate(self._kernels):
            prefix = f"{index}."
            kernel_columns = {
                name.removeprefix(prefix): column for name, column in columns.items() if name.startswith(prefix)
            }
            if kernel_columns:
                kernel.load(slots, kernel_columns)
            else:
                self._fields[index].load_nothing(slots)

    def _ensure(self, count: int) -> None:
        for fields in self._fields:
            fields.ensure(count)
