"""Whole numbers in a small range, looked up in an array by their value; all others by hashing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from firesteel.state.columnar.growing import GrowingArray
from firesteel.state.columnar.hash_table import HashTable, hash_words

Ints = npt.NDArray[np.int64]

_ALWAYS: Final = 1 << 16
"""A range of this size is an array however few keys are in it; one with more needs a key for each four places."""
_SHIFTED: Final = 1 << 20
"""An array of this size is not moved to make room in front of it."""


class DenseTable:
    """A window of numbers around those that came first; it is extended as long as it is dense.

    Args:
        keys: the keys by slot.
        others: takes the keys outside.
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
        """Where keys are in the window; those outside give numbers that are too high."""
        return keys.view(np.uint64) - np.uint64(self._base & 0xFFFFFFFFFFFFFFFF)

    def find(self, words: list[Ints]) -> Ints:
        """The slot of each key; -1 for unknown ones."""
        keys = words[0]
        if not self._span:
            return self._others.find(words, hash_words(words))
        places = self._places(keys)
        if places.size and places.max() >= self._span:
            inside = places < self._span
            found = np.full(len(keys), -1, np.int64)
            found[inside] = self._slots.values.take(places[inside].view(np.int64))
            found[inside] -= 1
            if self._others.count:
                outside = np.flatnonzero(~inside)
                others = [keys[outside]]
                found[outside] = self._others.find(others, hash_words(others))
            return found
        found = self._slots.values.take(places.view(np.int64)).astype(np.int64)
        found -= 1
        return found

    def first_of_each(self, words: list[Ints], size: int) -> tuple[Ints, Callable[[Ints, Ints], None]]:
        """For each of some unknown keys the first that is equal to it.

        Returns:
            Positions, and what puts slots in for the first ones (their positions, and slots).
        """
        keys = words[0]
        self._extend(keys, size)
        places = self._places(keys)
        inside = places < self._span
        first = np.empty(len(keys), np.int64)
        rows = np.flatnonzero(inside)
        if rows.size:
            at = places[rows].view(np.int64)
            array = self._slots.values
            array[at[::-1]] = -1 - rows[::-1]
            first[rows] = -1 - array.take(at).astype(np.int64)
        outside = np.flatnonzero(~inside)
        cells = np.zeros(len(keys), np.int64)
        if outside.size:
            others = [keys[outside]]
            among, cells[outside] = self._others.first_of_each(others, hash_words(others))
            first[outside] = outside[among]

        def put(winners: Ints, slots: Ints) -> None:
            here = inside[winners]
            self._slots.values[places[winners[here]].view(np.int64)] = slots[here] + 1
            if outside.size:
                self._others.fill(cells[winners[~here]], slots[~here])

        return first, put

    def remove(self, words: list[Ints], slots: Ints) -> None:
        """Forget keys that are in it."""
        places = self._places(words[0])
        inside = places < self._span
        self._slots.values[places[inside].view(np.int64)] = 0
        outside = ~inside
        if outside.any():
            self._others.remove(hash_words([words[0][outside]]), slots[outside])

    def _extend(self, keys: Ints, size: int) -> None:
        """Widen the window over these keys, unless it would be too sparse or others are hashed already."""
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
            room = min(self._span, _ALWAYS, low + (1 << 63))  # some more than is asked for, so that it is done seldom
            shift = self._base - low + room
            wider = GrowingArray(np.int32, self._span + shift)
            wider.values[shift : shift + self._span] = self._slots.values[: self._span]
            self._slots, self._base, span = wider, low - room, span + room
        self._slots.ensure(span)
        self._span = span
