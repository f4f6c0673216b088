"""Slots of keys, also where there is one key for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from firesteel.state.columnar.aggregate_fields import Ints
from firesteel.state.columnar.key_index import KeyIndex

Keys = Sequence[pa.Array]


class Index(Protocol):
    """What windows need of ``firesteel.state.columnar.key_index.KeyIndex``."""

    @property
    def size(self) -> int: ...

    @property
    def capacity(self) -> int:
        """Slots, those in use and others."""

    def slots(self, columns: Keys) -> Ints:
        """The slot of each row's key; new ones get slots."""

    def find(self, columns: Keys) -> Ints:
        """The slot of each row's key, or -1."""

    def keys(self, slots: Ints) -> list[pa.Array]:
        """The keys of slots."""

    def release(self, slots: Ints) -> None: ...


class OneKeyIndex:
    """All rows have the same key, which stands in no column. A position is needed to know how many there are."""

    def __init__(self) -> None:
        self.size = self.capacity = 0

    def slots(self, columns: Keys) -> Ints:
        """Slot 0."""
        self.size = self.capacity = 1
        return np.zeros(len(columns[0]), np.int64)

    def find(self, columns: Keys) -> Ints:
        """Slot 0, once it is there."""
        return np.full(len(columns[0]), self.size - 1, np.int64)

    def keys(self, slots: Ints) -> list[pa.Array]:
        """A column that says nothing."""
        return [pa.repeat(pa.scalar(0, pa.int8()), len(slots))]

    def release(self, slots: Ints) -> None:
        if len(slots):
            self.size = 0


def index_maker(types: Sequence[pa.DataType]) -> Callable[[], Index]:
    """What makes indexes for keys of these columns; of no columns: one key for all."""
    if not types:
        return OneKeyIndex
    return lambda: KeyIndex(types)
