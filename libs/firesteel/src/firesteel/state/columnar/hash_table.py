"""Open addressing in numpy: hashes and keys of whole batches to slot numbers, with growth in bounded pieces.

A cell holds 0 (empty), 1 (its key was removed) or slot + 2. Keys are not in the cells: they are stored in arrays by
slot, so that a cell takes four bytes. While the table grows there are two: the cells of the old one are copied to the
new one a piece at a time, and until that is done, keys that the new one lacks are looked up in the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from firesteel.state.columnar.growing import GrowingArray

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_SMALLEST_BITS: Final = 10
_FULL: Final = 0.6
"""Share of the cells that may be in use."""
_GONE: Final = 1
_OFFSET: Final = 2
_PIECE: Final = 8192
"""Cells that are moved at least with each batch while the table grows."""
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
_FACTORS: Final = [np.uint64(pow(0xD6E8FEB86659FD93, power, 1 << 64)) for power in range(1, 65)]
_HALF: Final = np.uint64(32)


def hash_words(words: Sequence[Ints]) -> Hashes:
    """Hashes of 64 bits of keys, whose words come in several arrays; the upper bits are mixed best.

    Further words of zero change nothing, so that keys may get more words later.
    """
    hashes = _mixed(words[0].view(np.uint64))
    for factor, word in zip(_FACTORS, words[1:], strict=False):
        hashes ^= _mixed(word.view(np.uint64) * factor)
    for word in words[len(_FACTORS) + 1 :]:
        hashes ^= _mixed(word.view(np.uint64))
    return hashes


def _mixed(word: npt.NDArray[np.uint64]) -> Hashes:
    mixed = word >> _HALF
    mixed ^= word
    mixed *= _MULTIPLIER
    return mixed


class _Cells:
    """The cells of one table.

    Attributes:
        used: cells that are not empty.
    """

    __slots__ = ("cells", "limit", "mask", "shift", "used")

    def __init__(self, bits: int) -> None:
        self.cells = GrowingArray(np.int32, 1 << bits).values
        self.mask = (1 << bits) - 1
        self.shift = np.uint64(64 - bits)
        self.limit = int((1 << bits) * _FULL)
        self.used = 0

    def home(self, hashes: Hashes) -> Ints:
        return (hashes >> self.shift).view(np.int64)


def _bits_for(count: int) -> int:
    bits = _SMALLEST_BITS
    while (1 << bits) * _FULL < count:
        bits += 1
    return bits


class HashTable:
    """Finds slots by keys.

    Args:
        keys: words of the keys by slot; whoever assigns slots writes them.

    Attributes:
        count: number of keys.
    """

    def __init__(self, keys: Sequence[GrowingArray]) -> None:
        self._keys = keys
        self._cells = _Cells(_SMALLEST_BITS)
        self._old: _Cells | None = None
        self._moved = 0
        self.count = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the cells."""
        return int(self._cells.cells.nbytes + (self._old.cells.nbytes if self._old is not None else 0))

    def find(self, words: Sequence[Ints], hashes: Hashes) -> Ints:
        """Slot of each key; -1 for unknown ones."""
        slots = self._look_up(self._cells, words, hashes)
        if self._old is not None:
            missing = np.flatnonzero(slots < 0)
            if missing.size:
                slots[missing] = self._look_up(self._old, [word[missing] for word in words], hashes[missing])
        return slots

    def _look_up(self, table: _Cells, words: Sequence[Ints], hashes: Hashes) -> Ints:
        cell = table.home(hashes)
        slots = table.cells.take(cell).astype(np.int64)
        slots -= _OFFSET
        unsettled = slots >= 0
        unsettled &= self._differ(slots, words)
        unsettled |= slots == _GONE - _OFFSET
        rows = np.flatnonzero(unsettled)
        # Probing by growing steps (1, 2, 3, ...) visits every cell of a table whose size is a power of two.
        step = 0
        while rows.size:
            step += 1
            cell_of = cell[rows]
            cell_of += step
            cell_of &= table.mask
            cell[rows] = cell_of
            looked_up = table.cells.take(cell_of).astype(np.int64)
            looked_up -= _OFFSET
            slots[rows] = looked_up
            unsettled = looked_up >= 0
            unsettled &= self._differ(looked_up, [word[rows] for word in words])
            unsettled |= looked_up == _GONE - _OFFSET
            rows = rows[unsettled]
        np.maximum(slots, -1, out=slots)
        return slots

    def _differ(self, slots: Ints, words: Sequence[Ints]) -> npt.NDArray[np.bool_]:
        """Where the key of a slot is another one; arbitrary where there is no slot."""
        differ: npt.NDArray[np.bool_] = self._keys[0].values.take(slots, mode="wrap") != words[0]
        for array, word in zip(self._keys[1:], words[1:], strict=True):
            differ |= array.values.take(slots, mode="wrap") != word
        return differ

    def first_of_each(self, words: Sequence[Ints], hashes: Hashes) -> tuple[Ints, Ints]:
        """Claim cells for keys that are not in the table.

        Args:
            words: of the keys, some of which may be equal.
            hashes: of the keys.

        Returns:
            For each key the position of the first key that is equal to it, and the cell claimed for that one. ``fill``
            must put slots into these cells before the table is used again.
        """
        self._make_room(len(hashes))
        table = self._cells
        cells, mask = table.cells, table.mask
        rows = np.arange(len(hashes))
        first = np.empty(len(hashes), np.int64)
        cell = table.home(hashes)
        step = 0
        while rows.size:
            probed = cell[rows]
            contents = cells.take(probed).astype(np.int64)
            # A claimed cell has -1 - row for now, so that equal keys of the batch find each other there.
            empty = np.flatnonzero(contents == 0)
            if empty.size:
                at = probed[empty]
                cells[at[::-1]] = -1 - rows[empty][::-1]  # if several rows want a cell, the first one gets it
                contents[empty] = cells.take(at)
            claimed_by = -1 - contents
            settled = contents < 0
            for word in words:
                settled &= word.take(claimed_by, mode="wrap") == word[rows]
            first[rows[settled]] = claimed_by[settled]
            rows = rows[~settled]
            step += 1
            cell[rows] = (cell[rows] + step) & mask
        return first, cell

    def fill(self, cells: Ints, slots: Ints) -> None:
        """Put slots into cells that ``first_of_each`` claimed."""
        self._cells.cells[cells] = slots + _OFFSET
        self._cells.used += len(slots)
        self.count += len(slots)

    def remove(self, hashes: Hashes, slots: Ints) -> None:
        """Remove keys, which are in the table with these slots."""
        self._erase(self._cells, hashes, slots)
        if self._old is not None:
            self._erase(self._old, hashes, slots)
        self.count -= len(slots)

    @staticmethod
    def _erase(table: _Cells, hashes: Hashes, slots: Ints) -> None:
        cell, entries = table.home(hashes), slots + _OFFSET
        step = 0
        while cell.size:
            contents = table.cells.take(cell)
            hit = contents == entries
            table.cells[cell[hit]] = _GONE
            unsettled = ~hit & (contents != 0)
            step += 1
            cell, entries = (cell[unsettled] + step) & table.mask, entries[unsettled]

    # -- growth

    def advance(self, rows: int) -> None:
        """Move a piece of the old table, in proportion to the rows of the batch."""
        if self._old is not None:
            self._move(max(_PIECE, 4 * rows))

    def _make_room(self, count: int) -> None:
        if self._cells.used + count <= self._cells.limit:
            return
        # Three tables are never needed: the last growth is finished before the next one begins.
        if self._old is not None:
            self._move(len(self._old.cells))
            if self._cells.used + count <= self._cells.limit:
                return
        full = self._cells
        # While all old cells are moved, four with each new row, at most a quarter as many keys can be added.
        self._cells = _Cells(_bits_for(self.count + len(full.cells) // 4 + count))
        self._old, self._moved = (full, 0) if self.count else (None, 0)

    def _move(self, count: int) -> None:
        """Copy the next cells of the old table; the cells of both are in the order of hashes."""
        source = self._old
        assert source is not None
        piece = source.cells[self._moved : self._moved + count]
        entries = piece[piece >= _OFFSET].astype(np.int64)
        self._moved += len(piece)
        if entries.size:
            slots = entries - _OFFSET
            self._place(hash_words([array.get(slots) for array in self._keys]), entries)
        if self._moved >= len(source.cells):
            self._old = None

    def _place(self, hashes: Hashes, entries: Ints) -> None:
        table = self._cells
        table.used += len(entries)
        cells, cell = table.cells, table.home(hashes)
        step = 0
        while cell.size:
            empty = np.flatnonzero(cells.take(cell) == 0)
            cells[cell[empty]] = entries[empty]
            unplaced = cells.take(cell) != entries
            step += 1
            cell, entries = (cell[unplaced] + step) & table.mask, entries[unplaced]
