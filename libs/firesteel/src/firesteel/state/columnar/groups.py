"""Rows of a batch grouped by slot, and running results within each group."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Groups:
    """The rows of a batch, those of one slot together, in their order.

    Values per row are computed in this **grouped order**; ``to_rows`` brings them back to the order of the batch.

    Args:
        rows: the slot of each row.

    Attributes:
        order: positions of the rows in grouped order.
        starts: position of each group's first row in it.
        slots: of the groups, ascending.
    """

    def __init__(self, rows: Ints) -> None:
        self.count = len(rows)
        self.order = _order(rows)
        grouped = rows.take(self.order)
        is_start = np.empty(self.count, bool)
        is_start[:1] = True
        np.not_equal(grouped[1:], grouped[:-1], out=is_start[1:])
        self.starts: Ints = np.flatnonzero(is_start)
        self.slots: Ints = grouped.take(self.starts)

    @cached_property
    def ends(self) -> Ints:
        """Position of each group's last row, in grouped order."""
        return np.append(self.starts[1:], self.count) - 1

    @cached_property
    def lengths(self) -> Ints:
        """Number of rows of each group."""
        return np.diff(self.starts, append=self.count)

    @cached_property
    def longest(self) -> int:
        """Number of rows of the largest group."""
        return int(self.lengths.max(initial=0))

    @cached_property
    def group_of_row(self) -> Ints:
        """Number of the group of each row."""
        return np.repeat(np.arange(len(self.starts)), self.lengths)

    @cached_property
    def position(self) -> Ints:
        """Position of each row within its group, from 0."""
        return np.arange(self.count) - np.repeat(self.starts, self.lengths)

    def spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Value of its group for each row."""
        return np.repeat(values, self.lengths)

    def to_rows(self, grouped: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values in the order of the batch."""
        result = np.empty_like(grouped)
        result[self.order] = grouped
        return result


def _order(rows: Ints) -> Ints:
    """Order that sorts rows by slot and keeps the order of equal ones: a radix sort of 16 bits at a time."""
    highest = int(rows.max(initial=0))
    order: Ints = np.argsort(rows.astype(np.uint16), kind="stable")
    shift = 16
    while highest >> shift:
        upper = (rows >> shift).astype(np.uint16).take(order)
        order = order.take(np.argsort(upper, kind="stable"))
        shift += 16
    return order


def running_sums(groups: Groups, values: npt.NDArray[Any], initial: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Sums within groups, as if each value was added to the sum before it.

    Args:
        groups: of the rows.
        values: in grouped order; int64, where sums wrap around, or float64.
        initial: the sum that each group begins with.
    """
    if values.dtype.kind == "f":
        return _floating_sums(groups, values, initial)
    sums = np.cumsum(values)
    sums += groups.spread(initial - sums.take(groups.starts) + values.take(groups.starts))
    return sums


_ROUNDS = 48
"""Groups up to this size are summed side by side, one row of each at a time; larger ones one after the other."""


def _floating_sums(
    groups: Groups, values: npt.NDArray[np.float64], initial: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Sums by one addition after the other: a difference of sums over all groups would lose digits."""
    sums = values.copy()
    sums[groups.starts] += initial
    # One addition per row of a large group; small groups are summed side by side, since there may be very many of them.
    small = groups.lengths <= _ROUNDS
    for group in np.flatnonzero(~small).tolist():
        part = sums[groups.starts[group] : groups.ends[group] + 1]
        np.add.accumulate(part, out=part)
    starts, lengths = groups.starts[small], groups.lengths[small]
    step = 1
    while starts.size:
        longer = lengths > step
        starts, lengths = starts[longer], lengths[longer]
        rows = starts + step
        sums[rows] += sums[rows - 1]
        step += 1
    return sums


def in_words(values: Ints) -> tuple[Ints, Ints]:
    """The lower 32 bits and those above them, so that sums of both hold what 64 bits don't."""
    return values & 0xFFFFFFFF, values >> 32


def fits(upper: Ints) -> Mask:
    """Whether numbers fit 64 bits, by their upper words."""
    fitting: Mask = (upper < 1 << 31) & (upper >= -(1 << 31))
    return fitting


def first_overflow(groups: Groups, values: Ints, initial: Ints) -> tuple[int, int] | None:
    """First row of the batch whose running sum does not fit 64 bits, and that sum. Arguments as in ``running_sums``."""
    if not values.size:
        return None
    # A cheap bound first: no sum can be greater than the largest value times the longest group.
    bound = max(int(values.max()), -int(values.min())) * groups.longest
    if bound + max(int(initial.max()), -int(initial.min())) < 1 << 63:
        return None
    # Sums of the lower and the upper words can't overflow; what the lower ones carry is added to the upper ones.
    (low, high), (low_before, high_before) = in_words(values), in_words(initial)
    low = running_sums(groups, low, low_before)
    high = running_sums(groups, high, high_before) + (low >> 32)
    bad = np.flatnonzero(~fits(high))
    if not bad.size:
        return None
    first_bad = bad[np.argmin(groups.order[bad])]
    return int(groups.order[first_bad]), (int(high[first_bad]) << 32) + (int(low[first_bad]) & 0xFFFFFFFF)


def running_extremes(
    groups: Groups, values: npt.NDArray[Any], initial: npt.NDArray[Any], *, largest: bool
) -> npt.NDArray[Any]:
    """Minima or maxima within groups; NaN is above all numbers.

    Args:
        groups: of the rows.
        values: in grouped order; int64 or floating. A value that does not count is one that every other replaces.
        initial: the extreme that each group begins with.
        largest: compute maxima.
    """
    better = np.maximum if largest else np.fmin if values.dtype.kind == "f" else np.minimum
    extremes = values.copy()
    extremes[groups.starts] = better(extremes.take(groups.starts), initial)
    if groups.longest <= 1:
        return extremes
    if values.dtype.kind == "i":
        packed = _packed_extremes(groups, extremes, largest)
        if packed is not None:
            return packed
    step = 1
    position = groups.position
    while step < groups.longest:  # after each round a row covers twice as many of the rows before it
        np.copyto(extremes[step:], better(extremes[step:], extremes[:-step]), where=position[step:] >= step)
        step *= 2
    return extremes


def _packed_extremes(groups: Groups, values: Ints, largest: bool) -> Ints | None:
    """Extremes by one pass over numbers made of group and value; None if these need more than 63 bits."""
    low, high = int(values.min()), int(values.max())
    bits = (high - low).bit_length()
    if bits + len(groups.starts).bit_length() > 63:
        return None
    # The number of the group is above all values, so that one running maximum never crosses into the next group.
    packed = values - low if largest else high - values
    packed += groups.group_of_row << bits
    np.maximum.accumulate(packed, out=packed)
    packed &= (1 << bits) - 1
    packed = packed + low if largest else high - packed
    return packed


def first_valid(groups: Groups, valid: Mask | None) -> Ints:
    """First row of each group that counts, in grouped order; the number of all rows if there is none."""
    if valid is None:
        return groups.starts
    positions = np.where(valid, np.arange(groups.count), groups.count)
    return np.minimum.reduceat(positions, groups.starts) if groups.count else positions


def last_valid(groups: Groups, valid: Mask | None) -> Ints:
    """Index, for each row, of the last row of its group up to it that counts, in grouped order; -1 if there is none."""
    rows = np.arange(groups.count)
    if valid is None:
        return rows
    positions = np.maximum.accumulate(np.where(valid, rows, -1))
    return np.where(positions >= groups.spread(groups.starts), positions, -1)
