"""Finds whole numbers of a small range in an array by their value, and all others by hashing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from firesteel.state.columnar.growing import GrowingArray
from firesteel.state.columnar.hash_table import HashTable, hash_words

Ints = npt.NDArray[np.int64]

_ALWAYS: Final = 1 << 16
"""Range that gets an array however few keys are in it; a larger one needs a key for each four places."""
_SHIFTED: Final = 1 << 20
"""Places of an array from which on it is not moved to make room in front of it."""


class DenseTable:
    """A window of numbers around the first keys, which is extended as long as it is dense.

    Args:
        keys: the keys by slot.
        others: table of the keys outside the window.
    """

    def __init__(self, keys: GrowingArray, others: HashTable) -> None:
        self._keys, self._others = keys, others
        self._slots = GrowingArray(np.int32)  # slot + 1; 0 where there is none
        self._base = 0
        self._span = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return 4 * self._span

    def _places(self, keys: Ints) -> npt.NDArray[np.uint64]:
        """Places of keys in the window; keys outside of it get numbers that are too high."""
        return keys.view(np.uint64) - np.uint64(self._base & 0xFFFFFFFFFFFFFFFF)

    def find(self, words: list[Ints]) -> Ints:
        """Slot of each key; -1 for unknown ones."""
        keys = words[0]
        if not self._span:
            return self._others.find(words, hash_words(words))
        places = self._places(keys)
        if places.size and places.max() >= self._span:
            inside = places < self._span
            slots = np.full(len(keys), -1, np.int64)
            slots[inside] = self._slots.values.take(places[inside].view(np.int64))
            slots[inside] -= 1
            if self._others.count:
                outside = np.flatnonzero(~inside)
                outside_words = [keys[outside]]
                slots[outside] = self._others.find(outside_words, hash_words(outside_words))
            return slots
        slots = self._slots.values.take(places.view(np.int64)).astype(np.int64)
        slots -= 1
        return slots

    def first_of_each(self, words: list[Ints], size: int) -> tuple[Ints, Callable[[Ints, Ints], None]]:
        """Find equal keys among unknown ones.

        Returns:
            For each key the position of the first key that is equal to it, and a function that puts in the slots of
            these first keys; it takes their positions and the slots.
        """
        keys = words[0]
        self._extend(keys, size)
        places = self._places(keys)
        inside = places < self._span
        first = np.empty(len(keys), np.int64)
        rows = np.flatnonzero(inside)
        if rows.size:
            # Each key claims its place with -1 - row; written backwards, so that the first of equal keys remains.
            indices = places[rows].view(np.int64)
            array = self._slots.values
            array[indices[::-1]] = -1 - rows[::-1]
            first[rows] = -1 - array.take(indices).astype(np.int64)
        outside = np.flatnonzero(~inside)
        cells = np.zeros(len(keys), np.int64)
        # Keys outside of the window are in the hash table, which finds equal ones in the same way.
        if outside.size:
            outside_words = [keys[outside]]
            first_outside, cells[outside] = self._others.first_of_each(outside_words, hash_words(outside_words))
            first[outside] = outside[first_outside]

        def put(winners: Ints, slots: Ints) -> None:
            here = inside[winners]
            self._slots.values[places[winners[here]].view(np.int64)] = slots[here] + 1
            if outside.size:
                self._others.fill(cells[winners[~here]], slots[~here])

        return first, put

    def remove(self, words: list[Ints], slots: Ints) -> None:
        """Remove keys, which are in the table with these slots."""
        places = self._places(words[0])
        inside = places < self._span
        self._slots.values[places[inside].view(np.int64)] = 0
        outside = ~inside
        if outside.any():
            self._others.remove(hash_words([words[0][outside]]), slots[outside])

    def _extend(self, keys: Ints, size: int) -> None:
        """Widen the window to these keys, unless it would be too sparse, or other keys are hashed already."""
        if self._others.count:
            return
        low, high = int(keys.min()), int(keys.max())
        if self._span:
            low, high = min(low, self._base), max(high, self._base + self._span - 1)
        span = high - low + 1
        if span > max(_ALWAYS, 4 * (size + len(keys))) or span >= 1 << 31:
            return
        if not self._span:
            self._base = low
        elif low < self._base:
            if self._span > _SHIFTED:
                return
            room = min(self._span, _ALWAYS, low + (1 << 63))  # more than is needed, so that this happens rarely
            shift = self._base - low + room
            wider = GrowingArray(np.int32, self._span + shift)
            wider.values[shift : shift + self._span] = self._slots.values[: self._span]
            self._slots, self._base, span = wider, low - room, span + room
        self._slots.ensure(span)
        self._span = span
