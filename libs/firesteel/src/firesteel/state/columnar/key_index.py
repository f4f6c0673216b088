"""Numbers keys, which come as columns: each key's number is its slot in arrays of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from firesteel.state.columnar.dense import DenseTable
from firesteel.state.columnar.growing import GrowingArray
from firesteel.state.columnar.hash_table import HashTable, hash_words
from firesteel.state.columnar.key_columns import is_fixed, key_column

Ints = npt.NDArray[np.int64]

_PIECE: Final = 8192
"""Rows with unknown keys that are added together while there are few keys: most rows may be of one key."""


class KeyIndex:
    """Gives each key of one or several columns a number: its slot.

    Slots are dense, from 0, so that values can be stored in arrays. Nulls are keys, all NaN are one key, 0.0 equals
    -0.0, and a dictionary's values equal plain ones. Whole numbers in a small range are looked up in an array, all
    others by hashing; both grow in bounded pieces. A number takes 8 bytes, and 7 to 14 for the hashing; a text up to 31
    bytes takes 8, 16, 24 or 32, as many as the longest of these needs.

    Args:
        types: of the key's columns; columns may also be dictionaries of these types.

    Attributes:
        size: number of keys.
        capacity: one more than the highest slot that was ever in use.
        words: of the keys by slot, to be copied while keys change; ``columns`` turns them back into keys.
        null_slot: slot of null, if the key is a single column; -1 if it has none.
    """

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._columns = [key_column(data_type) for data_type in types]
        self._several = len(self._columns) > 1
        count = len(self._columns) + self._several  # with several columns the last word says which ones are null
        self.words = [GrowingArray(np.int64, 1024) for _ in range(count)]
        self._positions = [[index] for index in range(len(self._columns))]
        self._marks = count - 1
        self._table = HashTable(self.words)
        dense = not self._several and is_fixed(self._columns[0].data_type)
        self._dense = DenseTable(self.words[0], self._table) if dense else None
        self.null_slot = -1
        self._free: list[Ints] = []
        self._held: list[list[Ints]] | None = None
        self.size = 0
        self.capacity = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays in use; values that are no numbers are not counted."""
        dense = self._dense.nbytes if self._dense is not None else 0
        return self._table.nbytes + dense + sum(self.capacity * words.dtype.itemsize for words in self.words)

    def slots(self, columns: Sequence[pa.Array]) -> Ints:
        """Slot of each row's key; unknown keys get the next free slots, in order of their first appearance."""
        used = None if self._several else _used_values(columns[0])
        if used is not None:
            values, codes = used
            return self.slots([values]).take(codes)
        words, nulls = self._words_of(columns, add=True)
        # The first null gets its slot in order, too: after the new keys in front of it, before those behind it.
        if nulls is not None and self.null_slot < 0:
            first_null = int(nulls.argmax())
            head = self._slots([word[:first_null] for word in words], None)
            (self.null_slot,) = self._take(1)
            self.words[0].values[self.null_slot] = 0
            return np.concatenate([head, self._slots([word[first_null:] for word in words], nulls[first_null:])])
        return self._slots(words, nulls)

    def _slots(self, words: list[Ints], nulls: npt.NDArray[np.bool_] | None) -> Ints:
        slots = self._found(words, nulls)
        if slots.size and slots.min() < 0:
            missing = np.flatnonzero(slots < 0)
            start = 0
            while start < missing.size:
                rows = missing[start : start + max(_PIECE, self.size // 4)]
                slots[rows] = self._add([word[rows] for word in words], known_absent=start == 0)
                start += len(rows)
        self._table.advance(len(slots))
        return slots

    def find(self, columns: Sequence[pa.Array]) -> Ints:
        """Slot of each row's key; -1 for unknown keys."""
        return self._found(*self._words_of(columns, add=False))

    def keys(self, slots: Ints) -> list[pa.Array]:
        """Keys of slots that are in use, as columns."""
        return self.columns([array.get(slots) for array in self.words], slots == self.null_slot)

    def columns(self, words: Sequence[Ints], nulls: npt.NDArray[np.bool_]) -> list[pa.Array]:
        """Keys as columns from their words; ``nulls`` says for a single column which rows are null."""
        columns_ = []
        for index, column in enumerate(self._columns):
            if self._several:
                nulls = (words[self._marks] >> index & 1).astype(bool)
            parts = [words[position] for position in self._positions[index] if position < len(words)]
            columns_.append(column.column(parts, nulls if nulls.any() else None))
        return columns_

    def hold(self) -> None:
        """Keep the words of released keys readable from now on, until ``let_go``."""
        self._held = []

    def let_go(self) -> None:
        """End ``hold``: no snapshot reads the words of released keys any more."""
        released, self._held = self._held, None
        for words in released or ():
            self._count_uses(words, release=True)

    def release(self, slots: Ints) -> None:
        """Release the keys of slots that are in use; the slots are given to new keys. Repeated slots count once."""
        slots = np.unique(slots)
        if not slots.size:
            return
        self.size -= len(slots)
        self._free.append(slots[::-1].copy())
        if self.null_slot >= 0 and (slots == self.null_slot).any():
            slots = slots[slots != self.null_slot]
            self.null_slot = -1
        words = [array.get(slots) for array in self.words]
        if self._dense is not None:
            self._dense.remove(words, slots)
        else:
            self._table.remove(hash_words(words), slots)
        if self._held is None:
            self._count_uses(words, release=True)
        else:
            self._held.append(words)

    # -- inside

    def _words_of(self, columns: Sequence[pa.Array], *, add: bool) -> tuple[list[Ints], npt.NDArray[np.bool_] | None]:
        """Words of keys, and for a single column which rows are null."""
        count = len(columns[0])
        words: dict[int, Ints] = {}
        nulls = None
        marks = np.zeros(count, np.int64) if self._several else None
        for index, (handler, column) in enumerate(zip(self._columns, columns, strict=True)):
            parts, positions = handler.words(column, add=add), self._positions[index]
            # A longer text than ever needs more words; those of earlier keys are zero, which their hashes ignore.
            while len(positions) < len(parts):
                positions.append(len(self.words))
                self.words.append(GrowingArray(np.int64, max(self.capacity, 1024)))
            nulls = _nulls(column)
            # With several columns nulls are part of the key: a bit for each column in one more word, and zero in its
            # place.
            if marks is not None and nulls is not None:
                marks |= nulls.astype(np.int64) << index
                parts = [np.where(nulls, 0, part) for part in parts]
            words.update(zip(positions, parts, strict=False))
        if marks is not None:
            words[self._marks], nulls = marks, None
        return [
            words[position] if position in words else np.zeros(count, np.int64) for position in range(len(self.words))
        ], nulls

    def _found(self, words: list[Ints], nulls: npt.NDArray[np.bool_] | None) -> Ints:
        if self._dense is not None:
            slots = self._dense.find(words)
        else:
            slots = self._table.find(words, hash_words(words))
        if nulls is not None:
            slots[nulls] = self.null_slot
        return slots

    def _add(self, words: list[Ints], known_absent: bool) -> Ints:
        """Slots for keys that were unknown; other rows of the batch may have added some of them meanwhile."""
        slots = np.full(len(words[0]), -1, np.int64) if known_absent else self._found(words, None)
        rows = np.flatnonzero(slots < 0)
        if not rows.size:
            return slots
        words = [word[rows] for word in words]
        if self._dense is not None:
            first, put = self._dense.first_of_each(words, self.size)
        else:
            first, cells = self._table.first_of_each(words, hash_words(words))
            put = lambda winners, new_slots: self._table.fill(cells[winners], new_slots)  # noqa: E731
        # The first row of each unknown key gets a slot, and the other rows with this key the same one.
        winners = np.flatnonzero(first == np.arange(len(first)))
        new_slots = self._take(len(winners))
        new_words = [word[winners] for word in words]
        for array, word in zip(self.words, new_words, strict=True):
            array.values[new_slots] = word
        put(winners, new_slots)
        self._count_uses(new_words, release=False)
        of_row = np.empty(len(first), np.int64)
        of_row[winners] = new_slots
        slots[rows] = of_row[first]
        return slots

    def _take(self, count: int) -> Ints:
        """Free slots: those released last first, of these the lowest first; then new ones."""
        self.size += count
        parts: list[Ints] = []
        while count and self._free:
            last = self._free.pop()
            parts.append(last[::-1][:count])
            if len(last) > count:
                self._free.append(last[: len(last) - count])
            count -= len(parts[-1])
        if count:
            parts.append(np.arange(self.capacity, self.capacity + count))
            self.capacity += count
            for words in self.words:
                words.ensure(self.capacity)
        return parts[0] if len(parts) == 1 else np.concatenate([*parts, np.empty(0, np.int64)])

    def _count_uses(self, words: list[Ints], *, release: bool) -> None:
        """Tell the columns that store values elsewhere how often these are used."""
        for index, (column, word) in enumerate(zip(self._columns, words, strict=False)):
            if self._several:
                word = word[(words[self._marks] >> index & 1) == 0]
            column.release(word) if release else column.use(word)


def _used_values(column: pa.Array) -> tuple[pa.Array, Ints] | None:
    """Values of a dictionary that rows use, in the order of their first rows, and the position of each row's value.

    None if the column is no dictionary, or has nulls or too many values for its rows.
    """
    if not pt.is_dictionary(column.type) or column.null_count or column.dictionary.null_count:
        return None
    size = len(column.dictionary)
    if 2 * size > len(column):
        return None
    codes = column.indices.to_numpy(zero_copy_only=False)
    first = np.full(size, -1, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    used = np.flatnonzero(first >= 0)
    order = first.take(used)
    if (order[1:] < order[:-1]).any():
        used = used.take(np.argsort(order, kind="stable"))
    elif len(used) == size:
        return column.dictionary, codes
    number = np.empty(size, np.int64)
    number[used] = np.arange(len(used))
    return column.dictionary.take(pa.array(used)), number.take(codes)


def _nulls(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Which rows are null; None = none is."""
    if pa.types.is_dictionary(column.type) and column.dictionary.null_count:
        column = column.dictionary_decode()
    if not column.null_count:
        return None
    nulls: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return nulls
