"""Aggregates over columns as accumulators by slot, which can be added to and brought together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.core.errors import ProgramError
from firesteel.core.short_repr import short_repr
from firesteel.expressions.aggregates import BoundAggregate
from firesteel.expressions.schema import arrow_type
from firesteel.runtime.column_windows.cells import Cells, Ints, Mask, Seen
from firesteel.state.columnar.values import Codec, valid_of

__all__ = ["Accumulator", "Accumulators", "Given", "Inputs"]

_SAFE: Final = 2**62
"""Sums whose bound is below it can't have overflown."""


class Given(NamedTuple):
    """What an aggregate reads of a batch.

    Attributes:
        values: as its arrays hold them; None for ``count()``.
        valid: which rows are not null; None = all.
    """

    values: npt.NDArray[Any] | None
    valid: Mask | None

    def take(self, rows: Ints) -> Given:
        """Some rows."""
        return Given(
            None if self.values is None else self.values[rows], None if self.valid is None else self.valid[rows]
        )

    def counted(self, slots: Ints) -> tuple[Ints, npt.NDArray[Any]]:
        """Slots and values of the rows that are not null."""
        assert self.values is not None
        if self.valid is None:
            return slots, self.values
        return slots[self.valid], self.values[self.valid]


class Accumulator(ABC):
    """One aggregate.

    A slot is to be among the slots of ``add`` or ``merge`` when it is new. Slots may stand there several times.
    """

    rows_seen = 0
    """The highest number that a row had, plus 1, where that matters."""

    def __init__(self) -> None:
        self.count = 0

    @abstractmethod
    def cells(self) -> dict[str, Cells]:
        """The arrays, by name."""

    def ensure(self, count: int) -> None:
        """Make room for so many slots."""
        self.count = max(self.count, count)
        for cells in self.cells().values():
            cells.ensure(count)

    def keep_flags(self) -> None:  # noqa: B027 - those that are never null need not know
        """Slots may be there that are not among those of ``add`` or ``merge``."""

    @abstractmethod
    def add(self, slots: Ints, given: Given, order: Ints) -> None:
        """Add rows; ``order`` counts the rows of the operator."""

    @abstractmethod
    def merge(self, slots: Ints, other: Any, others: Ints) -> None:
        """Add slots of another accumulator of the same aggregate."""

    @abstractmethod
    def result(self, slots: Ints) -> pa.Array:
        """The results of slots."""

    def dump(self, slots: Ints) -> dict[str, pa.Array]:
        """What slots hold, as columns."""
        return {name: pa.array(cells.get(slots)) for name, cells in self.cells().items()}

    def load(self, slots: Ints, columns: dict[str, pa.Array]) -> None:
        """Put back what ``dump`` gave, into new slots."""
        for name, cells in self.cells().items():
            cells.set(slots, columns[name].to_numpy(zero_copy_only=False))


class _Count(Accumulator):
    def __init__(self) -> None:
        super().__init__()
        self._numbers = Cells(np.int64)

    def cells(self) -> dict[str, Cells]:
        return {"count": self._numbers}

    def add(self, slots: Ints, given: Given, order: Ints) -> None:
        np.add.at(self._numbers.values, slots if given.valid is None else slots[given.valid], 1)

    def merge(self, slots: Ints, other: _Count, others: Ints) -> None:
        np.add.at(self._numbers.values, slots, other._numbers.get(others))

    def result(self, slots: Ints) -> pa.Array:
        return pa.array(self._numbers.get(slots))


class _WithNulls(Accumulator):
    """One whose result is null where nothing but nulls came."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Seen()

    def keep_flags(self) -> None:
        self.seen.keep_flags()

    def dump(self, slots: Ints) -> dict[str, pa.Array]:
        seen = self.seen.of(slots)
        flags = np.ones(len(slots), np.bool_) if seen is None else seen
        return {**super().dump(slots), "seen": pa.array(flags)}

    def load(self, slots: Ints, columns: dict[str, pa.Array]) -> None:
        super().load(slots, columns)
        seen = columns["seen"].to_numpy(zero_copy_only=False)
        self.seen.mark(slots, None if seen.all() else seen, self.count)


class _TooLarge(Exception):
    """A result does not fit its type.

    Attributes:
        place: of its slot among those that results were asked for.
    """

    def __init__(self, place: int, text: str) -> None:
        super().__init__(text)
        self.place = place


class _Sum(_WithNulls):
    """A sum of whole numbers is exact: where it might not fit 64 bits on its way, Python's integers take over."""

    def __init__(self, name: str, *, whole: bool, wrap: bool) -> None:
        super().__init__()
        self._name, self._exact = name, whole and not wrap
        self._sums = Cells(np.int64 if whole else np.float64)
        self._bound = 0

    def cells(self) -> dict[str, Cells]:
        return {"sum": self._sums}

    def add(self, slots: Ints, given: Given, order: Ints) -> None:
        chosen, values = given.counted(slots)
        values = values.astype(np.int64 if self._sums.dtype != np.float64 else np.float64, copy=False)
        if self._exact and values.size:
            self._grow(max(int(values.max()), -int(values.min())) * len(values))
        np.add.at(self._sums.values, chosen, values.astype(object) if self._sums.dtype == object else values)
        self.seen.mark(slots, given.valid, self.count)

    def merge(self, slots: Ints, other: _Sum, others: Ints) -> None:
        sums = other._sums.get(others)
        if self._exact and other is not self and len(sums):
            self._grow(max(int(sums.max()), -int(sums.min())) * len(sums))
        if self._sums.dtype == object and sums.dtype != object:
            sums = sums.astype(object)
        np.add.at(self._sums.values, slots, sums)
        self.seen.mark(slots, other.seen.of(others), self.count)

    def _grow(self, by: int) -> None:
        self._bound += by
        if self._exact and self._bound >= _SAFE and self._sums.dtype != object:
            before, self._sums = self._sums.values, Cells(object)
            self._sums.ensure(len(before))
            self._sums.values[: len(before)] = before.astype(object)

    def numbers(self, slots: Ints) -> npt.NDArray[Any]:
        """The sums.

        Raises:
            _TooLarge: one does not fit 64 bits.
        """
        sums = self._sums.get(slots)
        if sums.dtype != object:
            return sums
        for place, value in enumerate(sums.tolist()):
            if not -(2**63) <= value < 2**63:
                raise _TooLarge(
                    place,
                    f"{self._name}: the sum {value} does not fit LONG (64 bits); cast the column to DOUBLE, or set "
                    "firesteel.expressions.wrap-integers",
                )
        return sums.astype(np.int64)

    def result(self, slots: Ints) -> pa.Array:
        return _column(self.numbers(slots), self.seen.of(slots))

    def dump(self, slots: Ints) -> dict[str, pa.Array]:
        if self._sums.dtype != object:
            return super().dump(slots)
        seen = self.seen.of(slots)
        flags = np.ones(len(slots), np.bool_) if seen is None else seen
        return {"sum": pa.array([str(value) for value in self._sums.get(slots).tolist()]), "seen": pa.array(flags)}

    def load(self, slots: Ints, columns: dict[str, pa.Array]) -> None:
        sums = columns["sum"]
        if pa.types.is_string(sums.type):
            self._grow(_SAFE)
            columns = {**columns, "sum": pa.array([], pa.int64())}
            self._sums.ensure(self.count)
            self._sums.values[slots] = np.array([int(text) for text in sums.to_pylist()], object)
            seen = columns["seen"].to_numpy(zero_copy_only=False)
            self.seen.mark(slots, None if seen.all() else seen, self.count)
            return
        values = sums.to_numpy(zero_copy_only=False)
        if self._exact and values.size:
            self._grow(max(int(values.max()), -int(values.min())) * len(values))
        if self._sums.dtype == object:
            values = values.astype(object)
        self._sums.ensure(self.count)
        self._sums.values[slots] = values
        seen = columns["seen"].to_numpy(zero_copy_only=False)
        self.seen.mark(slots, None if seen.all() else seen, self.count)


class _Average(Accumulator):
    def __init__(self, name: str, *, whole: bool, wrap: bool) -> None:
        super().__init__()
        self._sum, self._count = _Sum(name, whole=whole, wrap=wrap), _Count()

    def cells(self) -> dict[str, Cells]:
        return {}

    def ensure(self, count: int) -> None:
        self.count = max(self.count, count)
        self._sum.ensure(count)
        self._count.ensure(count)

    def add(self, slots: Ints, given: Given, order: Ints) -> None:
        self._sum.add(slots, given, order)
        self._count.add(slots, given, order)

    def merge(self, slots: Ints, other: _Average, others: Ints) -> None:
        self._sum.merge(slots, other._sum, others)
        self._count.merge(slots, other._count, others)

    def result(self, slots: Ints) -> pa.Array:
        sums, counts = self._sum.numbers(slots), self._count.result(slots).to_numpy()
        means = np.divide(sums, counts, out=np.zeros(len(slots)), where=counts > 0)
        return _column(means, counts > 0)

    def dump(self, slots: Ints) -> dict[str, pa.Array]:
        return {**self._sum.dump(slots), **self._count.dump(slots)}

    def load(self, slots: Ints, columns: dict[str, pa.Array]) -> None:
        self._sum.load(slots, columns)
        self._count.load(slots, columns)


class _Extreme(_WithNulls):
    """A minimum or maximum; NaN is above all other numbers."""

    def __init__(self, codec: Codec, *, largest: bool) -> None:
        super().__init__()
        self._codec, self._largest = codec, largest
        kind = codec.dtype.kind
        self._better: Any = np.maximum if largest else np.fmin if kind == "f" else np.minimum
        self._found = Cells(codec.dtype, _loses_to_all(codec.dtype, largest))

    def cells(self) -> dict[str, Cells]:
        return {"value": self._found}

    def add(self, slots: Ints, given: Given, order: Ints) -> None:
        self._put(*given.counted(slots))
        self.seen.mark(slots, given.valid, self.count)

    def merge(self, slots: Ints, other: _Extreme, others: Ints) -> None:
        seen = other.seen.of(others)
        chosen, taken = (slots, others) if seen is None else (slots[seen], others[seen])
        self._put(chosen, other._found.get(taken))
        self.seen.mark(slots, seen, self.count)

    def _put(self, slots: Ints, values: npt.NDArray[Any]) -> None:
        if self._codec.fixed:
            if self._codec.dtype.kind == "f":
                values = values + self._codec.dtype.type(0)  # of 0.0 and -0.0 neither is greater
            with np.errstate(invalid="ignore"):  # NaN
                self._better.at(self._found.values, slots, values)
            return
        found, largest = self._found.values, self._largest
        for slot, value in zip(slots.tolist(), values.tolist(), strict=True):
            before = found[slot]
            if before is None or (value > before if largest else value < before):
                found[slot] = value

    def result(self, slots: Ints) -> pa.Array:
        return self._codec.column(self._found.get(slots), self.seen.of(slots))

    def dump(self, slots: Ints) -> dict[str, pa.Array]:
        return {**super().dump(slots), "value": self._codec.column(self._found.get(slots), self.seen.of(slots))}

    def load(self, slots: Ints, columns: dict[str, pa.Array]) -> None:
        values, seen = self._codec.numbers(columns["value"]), columns["seen"].to_numpy(zero_copy_only=False)
        self._found.set(slots[seen], values[seen])
        self.seen.mark(slots, None if seen.all() else seen, self.count)


class _AtOneEnd(Accumulator):
    """The value that came first, or last."""

    def __init__(self, codec: Codec, *, last: bool) -> None:
        super().__init__()
        self._codec, self._last = codec, last
        self._nothing = -1 if last else np.iinfo(np.int64).max
        self._found = Cells(codec.dtype, None if codec.dtype == object else 0)
        self._order = Cells(np.int64, self._nothing)

    def cells(self) -> dict[str, Cells]:
        return {"value": self._found, "order": self._order}

    def add(self, slots: Ints, given: Given, order: Ints) -> None:
        chosen, values = given.counted(slots)
        self._put(chosen, values, order if given.valid is None else order[given.valid])

    def merge(self, slots: Ints, other: _AtOneEnd, others: Ints) -> None:
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
        return self._codec.column(self._found.get(slots), self._order.get(slots) != self._nothing)

    def dump(self, slots: Ints) -> dict[str, pa.Array]:
        return {"value": self.result(slots), "order": pa.array(self._order.get(slots))}

    def load(self, slots: Ints, columns: dict[str, pa.Array]) -> None:
        order = columns["order"].to_numpy()
        self._found.set(slots, self._codec.numbers(columns["value"]))
        self._order.set(slots, order)
        there = order[order != self._nothing]
        self.rows_seen = max(self.rows_seen, int(there.max(initial=-1)) + 1)


class Accumulators:
    """All aggregates of a window operation, by slot.

    Args:
        bound: the aggregates.
        sparse: some slots may be there before anything is added to them.
    """

    def __init__(self, bound: Sequence[BoundAggregate], *, sparse: bool = False) -> None:
        self._all = [_accumulator(one) for one in bound]
        if sparse:
            for accumulator in self._all:
                accumulator.keep_flags()

    def add(self, slots: Ints, given: Sequence[Given], order: Ints, count: int) -> None:
        """Add rows to slots; there are ``count`` slots then."""
        for accumulator, one in zip(self._all, given, strict=True):
            accumulator.ensure(count)
            accumulator.add(slots, one, order)

    def merge(self, slots: Ints, other: Accumulators, others: Ints, count: int) -> None:
        """Add slots of others; there are ``count`` slots then."""
        for accumulator, one in zip(self._all, other._all, strict=True):
            accumulator.ensure(count)
            accumulator.merge(slots, one, others)

    def results(self, slots: Ints, keys: Sequence[pa.Array]) -> list[pa.Array]:
        """A column for each aggregate.

        Args:
            slots: of the results.
            keys: columns of their keys.

        Raises:
            ProgramError: one does not fit its type; names the key.
        """
        try:
            return [accumulator.result(slots) for accumulator in self._all]
        except _TooLarge as error:
            key = [column[error.place].as_py() for column in keys]
            shown = f"key {short_repr(key[0] if len(key) == 1 else tuple(key), 80)}: " if key else ""
            raise ProgramError(f"{shown}{error}") from None

    @property
    def rows_seen(self) -> int:
        """The highest number that a row had, plus 1, as far as it matters."""
        return max((accumulator.rows_seen for accumulator in self._all), default=0)

    def dump(self, slots: Ints) -> dict[str, pa.Array]:
        """What slots hold, as columns."""
        return {
            f"{index}.{name}": column
            for index, accumulator in enumerate(self._all)
            for name, column in accumulator.dump(slots).items()
        }

    def load(self, slots: Ints, columns: dict[str, pa.Array], count: int) -> None:
        """Put back what ``dump`` gave, into new slots; there are ``count`` slots then."""
        for index, accumulator in enumerate(self._all):
            accumulator.ensure(count)
            prefix = f"{index}."
            own = {name.removeprefix(prefix): column for name, column in columns.items() if name.startswith(prefix)}
            accumulator.load(slots, own)


class Inputs:
    """Evaluates what aggregates read, once for a batch."""

    def __init__(self, bound: Sequence[BoundAggregate]) -> None:
        self._bound = bound
        self._codecs = [None if one.input is None else Codec(one.input.data_type) for one in bound]

    def of(self, columns: dict[str, pa.Array], count: int) -> list[Given]:
        """For each aggregate, of all rows."""
        found = []
        for one, codec in zip(self._bound, self._codecs, strict=True):
            if one.input is None or codec is None:
                found.append(Given(None, None))
                continue
            column = one.input.evaluate(columns, count)
            values = None if one.aggregate.function == "count" else codec.numbers(column)
            found.append(Given(values, valid_of(column)))
        return found


def _accumulator(bound: BoundAggregate) -> Accumulator:
    function = bound.aggregate.function
    if function == "count" or bound.input is None:
        return _Count()
    codec = Codec(bound.input.data_type)
    name = repr(bound.aggregate)
    if function == "sum":
        return _Sum(name, whole=arrow_type(bound.type_info) == pa.int64(), wrap=bound.wrap)
    if function == "avg":
        return _Average(name, whole=codec.dtype.kind == "i", wrap=bound.wrap)
    if function in ("min", "max"):
        return _Extreme(codec, largest=function == "max")
    return _AtOneEnd(codec, last=function == "last")


def _loses_to_all(dtype: np.dtype[Any], largest: bool) -> Any:
    """What any value replaces."""
    if dtype.kind == "O":
        return None
    if dtype.kind == "b":
        return not largest
    if dtype.kind == "f":
        return -np.inf if largest else np.nan
    return np.iinfo(dtype).min if largest else np.iinfo(dtype).max


def _column(numbers: npt.NDArray[Any], valid: Mask | None) -> pa.Array:
    return pa.array(numbers, mask=None if valid is None else ~valid, from_pandas=False)
