"""Rows of a batch by slot, and running results within each group."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Groups:
    """The rows of a batch, those of one slot together and in their order.

    What is computed per row here is in this **grouped order**; ``to_rows`` brings it back to that of the batch.

    Args:
        rows: the slot of each row.

    Attributes:
        order: positions of the rows in grouped order.
        starts: where each group begins in it.
        slots: of the groups, ascending.
    """

    def __init__(self, rows: Ints) -> None:
        self.count = len(rows)
        self.order = _order(rows)
        grouped = rows.take(self.order)
        new = np.empty(self.count, bool)
        new[:1] = True
        np.not_equal(grouped[1:], grouped[:-1], out=new[1:])
        self.starts: Ints = np.flatnonzero(new)
        self.slots: Ints = grouped.take(self.starts)

    @cached_property
    def ends(self) -> Ints:
        """The last row of each group."""
        return np.append(self.starts[1:], self.count) - 1

    @cached_property
    def lengths(self) -> Ints:
        """Rows of each group."""
        return np.diff(self.starts, append=self.count)

    @cached_property
    def longest(self) -> int:
        """Rows of the largest group."""
        return int(self.lengths.max(initial=0))

    @cached_property
    def group_of_row(self) -> Ints:
        """The number of each row's group."""
        return np.repeat(np.arange(len(self.starts)), self.lengths)

    @cached_property
    def position(self) -> Ints:
        """Of each row within its group, from 0."""
        return np.arange(self.count) - np.repeat(self.starts, self.lengths)

    def spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The value of its group for each row."""
        return np.repeat(values, self.lengths)

    def to_rows(self, grouped: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """From grouped order to that of the batch."""
        result = np.empty_like(grouped)
        result[self.order] = grouped
        return result


def _order(rows: Ints) -> Ints:
    """What sorts rows by slot and keeps the order of equal ones: a radix sort of 16 bits at a time."""
    highest = int(rows.max(initial=0))
    order: Ints = np.argsort(rows.astype(np.uint16), kind="stable")
    shift = 16
    while highest >> shift:
        upper = (rows >> shift).astype(np.uint16).take(order)
        order = order.take(np.argsort(upper, kind="stable"))
        shift += 16
    return order


def running_sums(groups: Groups, values: npt.NDArray[Any], before: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Sums within groups, as if each value was added to the last sum.

    Args:
        groups: of the rows.
        values: in grouped order; int64, where sums wrap around, or float64.
        before: what each group begins with.
    """
    if values.dtype.kind == "f":
        return _floating_sums(groups, values, before)
    sums = np.cumsum(values)
    sums += groups.spread(before - sums.take(groups.starts) + values.take(groups.starts))
    return sums


_ROUNDS = 48
"""Groups up to this size are summed side by side, one row of each at a time; larger ones one after the other."""


def _floating_sums(
    groups: Groups, values: npt.NDArray[np.float64], before: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """One addition after the other: a difference of sums over all groups would lose digits."""
    sums = values.copy()
    sums[groups.starts] += before
    small = groups.lengths <= _ROUNDS
    for group in np.flatnonzero(~small).tolist():
        part = sums[groups.starts[group] : groups.ends[group] + 1]
        np.add.accumulate(part, out=part)
    starts, lengths = groups.starts[small], groups.lengths[small]
    step = 1
    while starts.size:
        longer = lengths > step
        starts, lengths = starts[longer], lengths[longer]
        at = starts + step
        sums[at] += sums[at - 1]
        step += 1
    return sums


def in_words(values: Ints) -> tuple[Ints, Ints]:
    """The lower 32 bits and what is above them, so that sums of both hold what 64 bits don't."""
    return values & 0xFFFFFFFF, values >> 32


def fits(upper: Ints) -> Mask:
    """Whether numbers fit 64 bits, by the upper ones of their words."""
    fitting: Mask = (upper < 1 << 31) & (upper >= -(1 << 31))
    return fitting


def first_overflow(groups: Groups, values: Ints, before: Ints) -> tuple[int, int] | None:
    """The first row of the batch whose running sum does not fit 64 bits, and that sum. Arguments as above."""
    if not values.size:
        return None
    bound = max(int(values.max()), -int(values.min())) * groups.longest
    if bound + max(int(before.max()), -int(before.min())) < 1 << 63:
        return None
    (low, high), (low_before, high_before) = in_words(values), in_words(before)
    low = running_sums(groups, low, low_before)
    high = running_sums(groups, high, high_before) + (low >> 32)
    bad = np.flatnonzero(~fits(high))
    if not bad.size:
        return None
    at = bad[np.argmin(groups.order[bad])]
    return int(groups.order[at]), (int(high[at]) << 32) + (int(low[at]) & 0xFFFFFFFF)


def running_extremes(
    groups: Groups, values: npt.NDArray[Any], before: npt.NDArray[Any], *, largest: bool
) -> npt.NDArray[Any]:
    """Minima or maxima within groups; NaN is above all numbers.

    Args:
        groups: of the rows.
        values: in grouped order; int64 or floating. What does not count is what no other value loses to.
        before: what each group begins with.
        largest: maxima.
    """
    better = np.maximum if largest else np.fmin if values.dtype.kind == "f" else np.minimum
    found = values.copy()
    found[groups.starts] = better(found.take(groups.starts), before)
    if groups.longest <= 1:
        return found
    if values.dtype.kind == "i":
        packed = _packed_extremes(groups, found, largest)
        if packed is not None:
            return packed
    step = 1
    position = groups.position
    while step < groups.longest:  # after each turn a row knows twice as many of those before it
        np.copyto(found[step:], better(found[step:], found[:-step]), where=position[step:] >= step)
        step *= 2
    return found


def _packed_extremes(groups: Groups, values: Ints, largest: bool) -> Ints | None:
    """In one pass over numbers of group and value; None if these need more than 63 bits."""
    low, high = int(values.min()), int(values.max())
    bits = (high - low).bit_length()
    if bits + len(groups.starts).bit_length() > 63:
        return None
    packed = values - low if largest else high - values
    packed += groups.group_of_row << bits
    np.maximum.accumulate(packed, out=packed)
    packed &= (1 << bits) - 1
    packed = packed + low if largest else high - packed
    return packed


def first_valid(groups: Groups, valid: Mask | None) -> Ints:
    """The first row of each group that counts, in grouped order; the number of all rows if there is none."""
    if valid is None:
        return groups.starts
    at = np.where(valid, np.arange(groups.count), groups.count)
    return np.minimum.reduceat(at, groups.starts) if groups.count else at


def last_valid(groups: Groups, valid: Mask | None) -> Ints:
    """For each row the last one of its group, up to it, that counts, in grouped order; -1 if there is none."""
    rows = np.arange(groups.count)
    if valid is None:
        return rows
    at = np.maximum.accumulate(np.where(valid, rows, -1))
    return np.where(at >= groups.spread(groups.starts), at, -1)
