"""Indexes that give each key a slot in the arrays of accumulators, also where all rows have one key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from firesteel.state.columnar.aggregate_fields import Ints
from firesteel.state.columnar.key_index import KeyIndex

Keys = Sequence[pa.Array]


class Index(Protocol):
    """The part of ``firesteel.state.columnar.key_index.KeyIndex`` that windows use."""

    @property
    def size(self) -> int: ...

    @property
    def capacity(self) -> int:
        """Number of slots, whether they are in use or free."""

    def slots(self, columns: Keys) -> Ints:
        """The slot of each row's key; new keys get slots."""

    def find(self, columns: Keys) -> Ints:
        """The slot of each row's key, or -1 if the key has none."""

    def keys(self, slots: Ints) -> list[pa.Array]:
        """The columns of the keys of slots."""

    def release(self, slots: Ints) -> None:
        """Free slots, for other keys."""


class OneKeyIndex:
    """The index where all rows have one key, which has no columns; any column tells it the number of rows."""

    def __init__(self) -> None:
        self.size = self.capacity = 0

    def slots(self, columns: Keys) -> Ints:
        self.size = self.capacity = 1
        return np.zeros(len(columns[0]), np.int64)

    def find(self, columns: Keys) -> Ints:
        return np.full(len(columns[0]), self.size - 1, np.int64)

    def keys(self, slots: Ints) -> list[pa.Array]:
        """A column of zeros, of the right length."""
        return [pa.repeat(pa.scalar(0, pa.int8()), len(slots))]

    def release(self, slots: Ints) -> None:
        if len(slots):
            self.size = 0


def index_maker(types: Sequence[pa.DataType]) -> Callable[[], Index]:
    """A function that creates indexes for keys with these columns; without columns there is one key for all rows."""
    if not types:
        return OneKeyIndex
    return lambda: KeyIndex(types)
