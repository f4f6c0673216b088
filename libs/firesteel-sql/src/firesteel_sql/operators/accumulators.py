"""Aggregate functions over changing rows: what is stored for each group, and the result that follows from it.

A row that comes adds to the numbers of its group, one that goes subtracts. Functions whose result does not follow from
such numbers (MIN of rows that may go, LISTAGG) store the rows themselves (``row_accumulators.py``).
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from typing_extensions import override

from firesteel.state.columnar.groups import Groups
from firesteel.state.columnar.store import ColumnarState
from firesteel.state.columnar.values import Codec, StateColumn
from firesteel_sql.operators import decimal_sums
from firesteel_sql.operators.group_results import Ints, Mask

_DIGITS: Final = Context(prec=80, rounding=ROUND_HALF_UP)


@dataclass(frozen=True)
class ArgumentChanges:
    """Changes of the arguments of an aggregate function, by group.

    Attributes:
        groups: the rows by the slots of their groups.
        weights: of the rows, in grouped order; 0 for rows that do not count.
        arguments: columns in the order of the batch.
    """

    groups: Groups
    weights: Ints
    arguments: Sequence[pa.Array]

    @property
    def slots(self) -> Ints:
        """The groups with rows."""
        return self.groups.slots

    def sums(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sums of numbers, one for each row in grouped order, by group."""
        sums: npt.NDArray[Any] = np.add.reduceat(numbers, self.groups.starts)
        return sums

    def grouped(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values of rows, in grouped order."""
        return values.take(self.groups.order)

    def without(self, mask: Mask) -> ArgumentChanges:
        """The changes without the rows (in the order of the batch) for which a mask is true."""
        return replace(self, weights=np.where(self.grouped(mask), 0, self.weights))

    def without_nulls(self) -> ArgumentChanges:
        """The changes without rows of which an argument is NULL."""
        changes = self
        for argument in self.arguments:
            if argument.null_count:
                changes = changes.without(argument.is_null().to_numpy(zero_copy_only=False))
        return changes

    def counted(self, column: pa.Array) -> tuple[pa.Array, Ints, Ints]:
        """Values of a column of the rows that count, the slots of their groups, and their weights, in grouped order."""
        chosen = np.flatnonzero(self.weights)
        values = column.take(pa.array(self.groups.order.take(chosen)))
        return values, self.groups.spread(self.groups.slots)[chosen], self.weights[chosen]


@dataclass(frozen=True)
class Storage:
    """Where an aggregate function stores its numbers.

    Attributes:
        state: of the groups.
        name: of the call, unique among all calls.
        arguments: types of the arguments.
        result: type of the result.
        insert_only: no row ever goes.
    """

    state: ColumnarState
    name: str
    arguments: Sequence[pa.DataType]
    result: pa.DataType
    insert_only: bool

    def column(self, name: str, data_type: pa.DataType) -> StateColumn:
        """A value for each group."""
        return self.state.column(f"{self.name}.{name}", data_type)


class GroupAccumulator(ABC):
    """What an aggregate function stores for each group."""

    @abstractmethod
    def add(self, changes: ArgumentChanges) -> None:
        """Add changes of the arguments; the groups have been touched."""

    @abstractmethod
    def results(self, slots: Ints) -> pa.Array:
        """The results of groups."""


class Count(GroupAccumulator):
    """COUNT: of rows, or of rows whose argument is not NULL."""

    def __init__(self, storage: Storage) -> None:
        self._count = storage.column("count", pa.int64())

    @override
    def add(self, changes: ArgumentChanges) -> None:
        added = changes.sums(changes.without_nulls().weights)
        self._count.set(changes.slots, self._count.get(changes.slots) + added)

    @override
    def results(self, slots: Ints) -> pa.Array:
        return pa.array(self._count.get(slots), pa.int64())


class RowCount(GroupAccumulator):
    """COUNT(*), which the operator knows of each group anyway.

    Args:
        rows: numbers of rows.
    """

    def __init__(self, rows: StateColumn) -> None:
        self._rows = rows

    @override
    def add(self, changes: ArgumentChanges) -> None: ...

    @override
    def results(self, slots: Ints) -> pa.Array:
        return pa.array(self._rows.get(slots), pa.int64())


class WholeSum(GroupAccumulator):
    """SUM of whole numbers, which wraps around as Flink's does."""

    def __init__(self, storage: Storage) -> None:
        self._result, self._codec = storage.result, Codec(storage.arguments[0])
        self.sum, self.count = storage.column("sum", pa.int64()), storage.column("count", pa.int64())

    @override
    def add(self, changes: ArgumentChanges) -> None:
        changes = changes.without_nulls()
        numbers = changes.grouped(self._codec.numbers(changes.arguments[0]).astype(np.int64, copy=False))
        slots = changes.slots
        self.sum.set(slots, self.sum.get(slots) + changes.sums(numbers * changes.weights))
        self.count.set(slots, self.count.get(slots) + changes.sums(changes.weights))

    @override
    def results(self, slots: Ints) -> pa.Array:
        numbers = self.sum.get(slots).astype(self._result.to_pandas_dtype())
        return pa.array(numbers, self._result, mask=self.count.get(slots) <= 0)

    def means(self, slots: Ints) -> pa.Array:
        """Sums divided by counts, cut to whole numbers."""
        sums, counts = self.sum.get(slots), self.count.get(slots)
        divisors = np.maximum(counts, 1)
        means = np.abs(sums) // divisors * np.sign(sums)
        return pa.array(means.astype(self._result.to_pandas_dtype()), self._result, mask=counts <= 0)


class FloatingSum(GroupAccumulator):
    """SUM of FLOAT and DOUBLE.

    Numbers that are not finite are counted, so that the sum is right again once they have gone.
    """

    def __init__(self, storage: Storage) -> None:
        self._result, self._codec = storage.result, Codec(storage.arguments[0])
        self.sum, self.count = storage.column("sum", pa.float64()), storage.column("count", pa.int64())
        self._special = [storage.column(name, pa.int64()) for name in ("nan", "infinite", "minus_infinite")]

    @override
    def add(self, changes: ArgumentChanges) -> None:
        changes = changes.without_nulls()
        weights, slots = changes.weights, changes.slots
        numbers = changes.grouped(self._codec.numbers(changes.arguments[0]).astype(np.float64))
        finite = np.isfinite(numbers)
        if not finite.all():
            masks = (np.isnan(numbers), numbers == np.inf, numbers == -np.inf)
            for column, mask in zip(self._special, masks, strict=True):
                column.set(slots, column.get(slots) + changes.sums(np.where(mask, weights, 0)))
            numbers = np.where(finite, numbers, 0.0)
        counts = self.count.get(slots) + changes.sums(weights)
        sums = self.sum.get(slots) + changes.sums(numbers * weights)
        self.count.set(slots, counts)
        self.sum.set(slots, np.where(counts == 0, 0.0, sums))  # without the rounding of what has gone

    def sums(self, slots: Ints) -> npt.NDArray[np.float64]:
        """The sums; of groups without a value they are 0."""
        nan, infinite, minus_infinite = (column.get(slots) > 0 for column in self._special)
        sums = np.where(infinite, np.inf, np.where(minus_infinite, -np.inf, self.sum.get(slots)))
        result: npt.NDArray[np.float64] = np.where(nan | (infinite & minus_infinite), np.nan, sums)
        return result

    def _column(self, numbers: npt.NDArray[np.float64], slots: Ints) -> pa.Array:
        with np.errstate(over="ignore"):
            fitted = numbers.astype(self._result.to_pandas_dtype())
        return pa.array(fitted, self._result, mask=self.count.get(slots) <= 0, from_pandas=False)

    @override
    def results(self, slots: Ints) -> pa.Array:
        return self._column(self.sums(slots), slots)

    def means(self, slots: Ints) -> pa.Array:
        """Sums divided by counts."""
        return self._column(self.sums(slots) / np.maximum(self.count.get(slots), 1), slots)


class DecimalSum(GroupAccumulator):
    """SUM of DECIMAL, which is NULL where it has more than 38 digits."""

    def __init__(self, storage: Storage) -> None:
        self._result, self._scale = storage.result, storage.arguments[0].scale
        self._words = [
            storage.column(f"word{place} scale {self._scale}", pa.int64()) for place in range(decimal_sums.WORDS)
        ]
        self.count = storage.column("count", pa.int64())

    @override
    def add(self, changes: ArgumentChanges) -> None:
        changes = changes.without_nulls()
        slots, weights = changes.slots, changes.weights
        parts = decimal_sums.words_of(changes.arguments[0])
        sums = [changes.sums(changes.grouped(part) * weights) for part in parts]
        words = decimal_sums.carried([word.get(slots) + part for word, part in zip(self._words, sums, strict=True)])
        for column, word in zip(self._words, words, strict=True):
            column.set(slots, word)
        self.count.set(slots, self.count.get(slots) + changes.sums(weights))

    def sums(self, slots: Ints) -> pa.Array:
        """The sums as DECIMAL(38, scale of the argument)."""
        words = [word.get(slots) for word in self._words]
        return decimal_sums.column_of(words, self._scale, self.count.get(slots) > 0)

    @override
    def results(self, slots: Ints) -> pa.Array:
        sums = self.sums(slots)
        return sums if sums.type == self._result else _rescaled(sums.to_pylist(), self._result)

    def means(self, slots: Ints) -> pa.Array:
        """Sums divided by counts, rounded to the digits of the result."""
        pairs = zip(self.sums(slots).to_pylist(), self.count.get(slots).tolist(), strict=True)
        return _rescaled(
            [None if total is None else _DIGITS.divide(total, Decimal(count)) for total, count in pairs], self._result
        )


def _rescaled(numbers: list[Decimal | None], data_type: pa.DataType) -> pa.Array:
    """A DECIMAL column; NULL where a number has too many digits."""
    step = Decimal(1).scaleb(-data_type.scale)
    limit = Decimal(10) ** (data_type.precision - data_type.scale)
    rounded = [None if number is None else number.quantize(step, context=_DIGITS) for number in numbers]
    # Compared without abs(), which rounds numbers of more than 28 digits.
    return pa.array(
        [number if number is not None and -limit < number < limit else None for number in rounded], data_type
    )


def sum_of(storage: Storage) -> WholeSum | FloatingSum | DecimalSum:
    """SUM of the argument's type."""
    if pt.is_decimal(storage.arguments[0]):
        return DecimalSum(storage)
    return FloatingSum(storage) if pt.is_floating(storage.arguments[0]) else WholeSum(storage)


class Mean(GroupAccumulator):
    """AVG: a sum and a count."""

    def __init__(self, storage: Storage) -> None:
        self._sum = sum_of(storage)

    @override
    def add(self, changes: ArgumentChanges) -> None:
        self._sum.add(changes)

    @override
    def results(self, slots: Ints) -> pa.Array:
        return self._sum.means(slots)


class SumOrZero(GroupAccumulator):
    """$SUM0: the sum, which is 0 without any value."""

    def __init__(self, storage: Storage) -> None:
        self._sum, self._zero = sum_of(storage), pa.scalar(0).cast(storage.result)

    @override
    def add(self, changes: ArgumentChanges) -> None:
        self._sum.add(changes)

    @override
    def results(self, slots: Ints) -> pa.Array:
        return pc.fill_null(self._sum.results(slots), self._zero)


class Deviation(GroupAccumulator):
    """VAR_POP, VAR_SAMP and their roots: number, mean, and sum of squared distances from the mean.

    Sums of squares would lose all digits where numbers are large and near each other.

    Args:
        storage: of the numbers.
        sample: divide by the number less one.
        root: the square root of the variance.
    """

    def __init__(self, storage: Storage, *, sample: bool, root: bool) -> None:
        self._result, self._sample, self._root = storage.result, sample, root
        self._count = storage.column("count", pa.int64())
        self._mean, self._squares = storage.column("mean", pa.float64()), storage.column("squares", pa.float64())

    @override
    def add(self, changes: ArgumentChanges) -> None:
        changes = changes.without_nulls()
        slots = changes.slots
        numbers = changes.grouped(changes.arguments[0].cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))
        state = self._count.get(slots).astype(np.float64), self._mean.get(slots), self._squares.get(slots)
        for weights in (np.maximum(changes.weights, 0), np.minimum(changes.weights, 0)):
            if weights.any():
                state = _merged(state, self._moments(changes, numbers, weights))
        count, mean, squares = state
        self._count.set(slots, count.astype(np.int64))
        self._mean.set(slots, np.where(count <= 0, 0.0, mean))
        self._squares.set(slots, np.where(count <= 1, 0.0, np.maximum(squares, 0.0)))

    @staticmethod
    def _moments(changes: ArgumentChanges, numbers: npt.NDArray[Any], weights: Ints) -> tuple[Any, Any, Any]:
        """Number, mean and squared distances of rows that all come, or all go."""
        counts = changes.sums(weights).astype(np.float64)
        means = changes.sums(np.where(weights == 0, 0.0, numbers) * weights) / np.where(counts == 0, 1.0, counts)
        distances = np.where(weights == 0, 0.0, numbers - changes.groups.spread(means))
        return counts, means, changes.sums(distances * distances * weights)

    @override
    def results(self, slots: Ints) -> pa.Array:
        counts = self._count.get(slots)
        divisors = counts - 1 if self._sample else counts
        values = self._squares.get(slots) / np.maximum(divisors, 1)
        values = np.sqrt(values) if self._root else values
        return pa.array(values, pa.float64(), mask=divisors <= 0, from_pandas=False).cast(self._result)


def _merged(one: tuple[Any, Any, Any], other: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """Number, mean and squared distances of two sets of rows together; the second one may be of rows that go.

    Source: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
    """
    (count, mean, squares), (more, other_mean, other_squares) = one, other
    total = count + more
    divisor = np.where(total == 0, 1.0, total)
    distance = other_mean - mean
    merged_mean = np.where(count == 0, other_mean, mean + distance * more / divisor)
    merged_squares = squares + other_squares + distance * distance * count * more / divisor
    return total, merged_mean, np.where(count == 0, other_squares, merged_squares)


class Extreme(GroupAccumulator):
    """MIN or MAX of rows that never go."""

    def __init__(self, storage: Storage, *, largest: bool) -> None:
        self._result, self._largest = storage.result, largest
        self.value, self.is_set = storage.column("value", storage.result), storage.column("seen", pa.bool_())

    @override
    def add(self, changes: ArgumentChanges) -> None:
        column, slots, _ = changes.without_nulls().counted(changes.arguments[0])
        if not len(column):
            return
        values = self.value.codec.numbers(column)
        starts = np.flatnonzero(np.r_[True, slots[1:] != slots[:-1]])
        self.combine(slots[starts], extremes_by_run(values, starts, largest=self._largest))

    def combine(self, slots: Ints, values: npt.NDArray[Any]) -> None:
        """Keep the greater, or the less, of the current value and another one, for groups that occur once each."""
        current, is_set = self.value.get(slots), self.is_set.get(slots)
        better = ~is_set
        better[is_set] = exceeds(values[is_set], current[is_set], largest=self._largest)
        self.put(slots[better], values[better])

    def put(self, slots: Ints, values: npt.NDArray[Any]) -> None:
        self.value.set(slots, values)
        self.is_set.set(slots, True)

    def clear(self, slots: Ints) -> None:
        """Forget the values of groups."""
        self.value.clear(slots)
        self.is_set.set(slots, False)

    @override
    def results(self, slots: Ints) -> pa.Array:
        return self.value.codec.column(self.value.get(slots), self.is_set.get(slots))


def exceeds(values: npt.NDArray[Any], others: npt.NDArray[Any], *, largest: bool) -> Mask:
    """Where a value is greater (or less) than another; NaN is above all numbers."""
    if values.dtype.kind == "f":
        nan, other_nan = np.isnan(values), np.isnan(others)
        mask: Mask = (values > others) | (nan & ~other_nan) if largest else (values < others) | (other_nan & ~nan)
        return mask
    mask = (values > others if largest else values < others).astype(bool)
    return mask


def extremes_by_run(values: npt.NDArray[Any], starts: Ints, *, largest: bool) -> npt.NDArray[Any]:
    """The greatest, or least, value of each run; runs begin at ``starts``."""
    if values.dtype == object:
        bounds = [*starts.tolist(), len(values)]
        extreme = max if largest else min
        extremes = np.empty(len(starts), object)
        extremes[:] = [extreme(values[start:stop]) for start, stop in itertools.pairwise(bounds)]
        return extremes
    if values.dtype == bool:
        reduced = np.logical_or if largest else np.logical_and
        return reduced.reduceat(values, starts)
    # NaN is the greatest: maximum passes it on, fmin gives it only where there is nothing else.
    return (np.maximum if largest else np.fmin).reduceat(values, starts)


class FirstOrLast(GroupAccumulator):
    """FIRST_VALUE or LAST_VALUE of rows that never go, in the order in which they come; NULLs are skipped."""

    def __init__(self, storage: Storage, *, last: bool) -> None:
        self._last = last
        self._value, self._is_set = storage.column("value", storage.result), storage.column("seen", pa.bool_())

    @override
    def add(self, changes: ArgumentChanges) -> None:
        column, slots, _ = changes.without_nulls().counted(changes.arguments[0])
        if not len(column):
            return
        is_start = np.r_[True, slots[1:] != slots[:-1]]
        chosen = np.flatnonzero(np.r_[is_start[1:], True] if self._last else is_start)
        if not self._last:
            chosen = chosen[~self._is_set.get(slots[chosen])]
        self._value.set(slots[chosen], self._value.codec.numbers(column.take(pa.array(chosen))))
        self._is_set.set(slots[chosen], True)

    @override
    def results(self, slots: Ints) -> pa.Array:
        return self._value.codec.column(self._value.get(slots), self._is_set.get(slots))


NUMERIC: Final[Mapping[str, Callable[[Storage], GroupAccumulator]]] = {
    "COUNT": Count,
    "SUM": sum_of,
    "$SUM0": SumOrZero,
    "AVG": Mean,
    "VAR_POP": lambda storage: Deviation(storage, sample=False, root=False),
    "VAR_SAMP": lambda storage: Deviation(storage, sample=True, root=False),
    "VARIANCE": lambda storage: Deviation(storage, sample=True, root=False),
    "STDDEV_POP": lambda storage: Deviation(storage, sample=False, root=True),
    "STDDEV_SAMP": lambda storage: Deviation(storage, sample=True, root=True),
}
"""Functions whose results follow from numbers, whatever rows come and go."""
INSERT_ONLY: Final[Mapping[str, Callable[[Storage], GroupAccumulator]]] = {
    "MIN": lambda storage: Extreme(storage, largest=False),
    "MAX": lambda storage: Extreme(storage, largest=True),
    "FIRST_VALUE": lambda storage: FirstOrLast(storage, last=False),
    "LAST_VALUE": lambda storage: FirstOrLast(storage, last=True),
}
"""Functions that need no rows as long as none goes."""
