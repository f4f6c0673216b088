"""Time-to-live of rows of state in columns: of groups, and of different values."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.runtime.operators.changelog import ChangelogStates
from firesteel.state.columnar.store import ColumnarState

Ints = npt.NDArray[np.int64]
_WRITTEN: Final = ".written"
_LEAST_SWEPT: Final = 1024
_SWEPT_PER_ROW: Final = 4


class SlotLife:
    """When each row of a state in columns was written last.

    Rows that were restored without a time live from the moment when they are looked at first.

    Args:
        states: of the operator.
        state: the rows.
        ttl: ms from the last write of a row until it expires; 0 = never.

    Attributes:
        ttl: as above.
    """

    def __init__(self, states: ChangelogStates, state: ColumnarState, ttl: int) -> None:
        self.ttl, self._state, self._now = ttl, state, states.parameters.clock.epoch_ms
        self._written = state.column(_WRITTEN, pa.int64()) if ttl else None
        self._cursor = state.cursor() if ttl else None
        self._time = self._now()

    def begin_batch(self, rows: int) -> Ints:
        """Take the time of a batch of rows; returns slots that have expired, which are to be released."""
        if self._cursor is None:
            return np.empty(0, np.int64)
        self._time = self._now()
        slots = self._cursor.next(max(_LEAST_SWEPT, _SWEPT_PER_ROW * rows))
        slots = slots[self._state.is_used(slots)]
        return slots[self.expired(slots)]

    def expired(self, slots: Ints) -> npt.NDArray[np.bool_]:
        """Which slots have expired."""
        if self._written is None or not len(slots):
            return np.zeros(len(slots), bool)
        written = self._written.get(slots)
        unknown = slots[written == 0]
        if unknown.size:
            self._state.touch(unknown)
            self._written.set(unknown, self._time)
        is_expired: npt.NDArray[np.bool_] = (written > 0) & (written <= self._time - self.ttl)
        return is_expired

    def written(self, slots: Ints) -> None:
        """Note that slots, which have been touched, are written now."""
        if self._written is not None:
            self._written.set(slots, self._time)
