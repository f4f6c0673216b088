"""Lists of row numbers by slot, contiguous in one array.

The rows of a slot are found by one addition, so that probing many slots is ``repeat`` and ``arange`` in numpy, however
many rows a slot has. A list that is full moves to a place of twice the size; places are used again.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from firesteel.state.columnar.growing import GrowingArray

Ints = npt.NDArray[np.int64]

_CLASSES: Final = 32
"""Places have sizes of powers of two, up to 2 ** 31."""


def runs(ordered: Ints) -> tuple[Ints, Ints]:
    """Starts and lengths of the runs of equal values in an array."""
    if not len(ordered):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    return starts, np.diff(np.append(starts, len(ordered)))


def spread(starts: Ints, counts: Ints) -> Ints:
    """The numbers ``start, start + 1, ...``, as many as counted, of each start."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    numbers: Ints = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return numbers


class SlotLists:
    """A list of row numbers for each slot, in no particular order; a row is in one list.

    Attributes:
        owners: the slot of each row, plus one; 0 = the row is in no list.
    """

    def __init__(self) -> None:
        self._starts = GrowingArray(np.int64)
        self._counts = GrowingArray(np.int32)
        self._classes = GrowingArray(np.int8)  # of the place's size, plus one; 0 = there is no place
        self._slab = GrowingArray(np.int32)
        self._end = 0
        self._free: list[list[Ints]] = [[] for _ in range(_CLASSES)]
        self.owners = GrowingArray(np.int32)
        self._places = GrowingArray(np.int64)  # of each row in the slab

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays in use."""
        return 13 * len(self._starts) + 4 * self._end + 12 * len(self.owners)

    def append(self, slots: Ints, rows: Ints) -> None:
        """Add rows, which are in no list, to the lists of slots."""
        if not len(slots):
            return
        self._ensure(int(slots.max()) + 1, int(rows.max()) + 1)
        order = np.argsort(slots, kind="stable")
        starts, added = runs(slots[order])
        touched = slots[order[starts]]
        before = self._counts.get(touched).astype(np.int64)
        after = before + added
        sizes = (1 << self._classes.get(touched).astype(np.int64)) >> 1
        full = np.flatnonzero(after > sizes)
        if full.size:
            self._move(touched[full], before[full], after[full])
        places = spread(self._starts.get(touched) + before, added)
        self._slab.values[places] = rows[order]
        self._places.set(rows[order], places)
        self.owners.set(rows, slots + 1)
        self._counts.set(touched, after)

    def remove(self, rows: Ints) -> Ints:
        """Remove rows, which are in lists, each once; returns the slots whose lists are empty now."""
        if not len(rows):
            return np.empty(0, np.int64)
        slots, removed = np.unique(self.owners.get(rows) - 1, return_counts=True)
        after = self._counts.get(slots) - removed
        # Each list loses its tail; a row of the tail that stays moves into the hole that a removed one leaves. There
        # are as many of these as holes, and lists do not overlap, so sorting both by place pairs them.
        tails = np.sort(spread(self._starts.get(slots) + after, removed))
        places = np.sort(self._places.get(rows))
        holes = np.setdiff1d(places, tails, assume_unique=True)
        if holes.size:
            movers = np.setdiff1d(tails, places, assume_unique=True)
            moved = self._slab.get(movers)
            self._slab.values[holes] = moved
            self._places.values[moved] = holes
        self.owners.set(rows, 0)
        self._counts.set(slots, after)
        empty: Ints = slots[after == 0].astype(np.int64)
        self._release(empty)
        return empty

    def counts(self, slots: Ints) -> Ints:
        """Number of rows of each slot; 0 for -1."""
        known = np.flatnonzero((slots >= 0) & (slots < len(self._counts)))
        counts = np.zeros(len(slots), np.int64)
        counts[known] = self._counts.get(slots[known])
        return counts

    def gather(self, slots: Ints) -> tuple[Ints, Ints]:
        """All rows of slots: for each the position of its slot in ``slots``, and its number; a slot -1 has none."""
        counts = self.counts(slots)
        known = np.flatnonzero(counts)
        counts = counts[known]
        rows = self._slab.get(spread(self._starts.get(slots[known]), counts)).astype(np.int64)
        return np.repeat(known, counts), rows

    def nth(self, slots: Ints, numbers: Ints) -> Ints:
        """The row with a number in the list of each slot, from 0; -1 where the list is shorter."""
        rows = np.full(len(slots), -1, np.int64)
        known = np.flatnonzero(numbers < self.counts(slots))
        rows[known] = self._slab.get(self._starts.get(slots[known]) + numbers[known])
        return rows

    # -- inside

    def _ensure(self, slots: int, rows: int) -> None:
        for array in (self._starts, self._counts, self._classes):
            array.ensure(slots)
        self.owners.ensure(rows)
        self._places.ensure(rows)

    def _move(self, slots: Ints, before: Ints, after: Ints) -> None:
        """Move the lists of slots to places with room for more rows."""
        classes = np.ceil(np.log2(after)).astype(np.int64)
        places = np.empty(len(slots), np.int64)
        for size_class in np.unique(classes).tolist():
            chosen = np.flatnonzero(classes == size_class)
            places[chosen] = self._take_places(size_class, len(chosen))
        targets = spread(places, before)
        if targets.size:
            rows = self._slab.get(spread(self._starts.get(slots), before))
            self._slab.values[targets] = rows
            self._places.values[rows] = targets
        self._release(slots)
        self._starts.set(slots, places)
        self._classes.set(slots, classes + 1)

    def _take_places(self, size_class: int, count: int) -> Ints:
        parts = []
        free = self._free[size_class]
        while count and free:
            last = free.pop()
            parts.append(last[:count])
            if len(last) > count:
                free.append(last[count:])
            count -= len(parts[-1])
        if count:
            size = 1 << size_class
            parts.append(self._end + size * np.arange(count))
            self._end += size * count
            self._slab.ensure(self._end)
        return np.concatenate(parts)

    def _release(self, slots: Ints) -> None:
        """Give the places of lists back."""
        classes = self._classes.get(slots)
        for size_class in np.unique(classes[classes > 0]).tolist():
            self._free[size_class - 1].append(self._starts.get(slots[classes == size_class]))
        self._classes.set(slots, 0)
