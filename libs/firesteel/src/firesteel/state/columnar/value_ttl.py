"""Value state of batches with time-to-live: as ``TtlValueState`` on the heap, for many keys at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.functions.batch_functions import Keys
from firesteel.functions.state import ValueStateDescriptor
from firesteel.state.columnar.value_states import TIME, BatchStates, ColumnValueState
from firesteel.state.heap_ttl import Life

Ints = npt.NDArray[np.int64]


class TtlColumnValueState(ColumnValueState):
    """Each value has the time of its last access beside it.

    What has expired is removed when it is read, and by a cursor that looks at ``cleanup_size`` slots with each access.
    What was restored without a time begins to live now.
    """

    def __init__(self, states: BatchStates, descriptor: ValueStateDescriptor, life: Life) -> None:
        name = descriptor.name + TIME
        known = name in states.state.columns
        super().__init__(states, descriptor)
        self._life = life
        self._time = states.state.column(name, pa.int64())
        self._cursor = 0
        if not known:
            slots = states.state.in_use()
            states.state.touch(slots)
            self._time.set(slots, life.now())

    def get(self, keys: Keys) -> pa.Array:
        life, now = self._life, self._life.now()
        slots = self._states.find(self._states.columns(keys))
        known = slots[slots >= 0]
        dead = self._expired(known)
        found = self.values_of(slots) if life.show_expired or not dead.size else None
        if life.on_read:
            self._states.state.touch(known)
            alive = known[self._there.get(known)]
            self._time.set(alive, now)
        self.drop(dead)
        if found is None:
            found = self.values_of(slots)
        self._sweep(len(slots))
        return found

    def put(self, keys: Keys, values: Any) -> None:
        super().put(keys, values)
        self._sweep(len(self._states.columns(keys)[0]))

    def clear(self, keys: Keys) -> None:
        super().clear(keys)
        self._sweep(len(self._states.columns(keys)[0]))

    def written(self, slots: Ints) -> None:
        """They live from now on."""
        self._time.set(slots, self._life.now())

    def saw(self, rows: int) -> None:
        """Look for what has expired, if that is to be done with each record."""
        if self._life.every_record:
            self._sweep(rows)

    def prune(self) -> None:
        """Leave out of a snapshot what has expired."""
        if self._life.drop_at_snapshot:
            self.drop(self._expired(self._states.state.in_use()))

    def _expired(self, slots: Ints) -> Ints:
        return slots[self._there.get(slots) & (self._time.get(slots) <= self._life.dead_before())]

    def _sweep(self, accesses: int) -> None:
        """Look at the slots behind those that were looked at last."""
        capacity = self._states.state.index.capacity
        end = min(capacity, self._cursor + accesses * self._life.cleanup_size)
        if end > self._cursor:
            self.drop(self._expired(np.arange(self._cursor, end)))
        self._cursor = 0 if end >= capacity else end
