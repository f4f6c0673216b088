"""Arrays by slot that begin with a value of their own, and flags for slots that hold nothing yet."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from firesteel.state.columnar.growing import GrowingArray
from firesteel.state.columnar.values import GrowingObjects

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Cells:
    """An array by slot.

    Args:
        dtype: of the elements; ``object`` for what is no number.
        fill: what new slots hold.
    """

    __slots__ = ("_array", "_fill", "_filled")

    def __init__(self, dtype: npt.DTypeLike, fill: Any = 0) -> None:
        self._array = GrowingObjects() if np.dtype(dtype) == object else GrowingArray(dtype)
        self._fill = fill
        self._filled = 0

    @property
    def values(self) -> npt.NDArray[Any]:
        """All elements there is room for; a view for the moment."""
        return self._array.values

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements."""
        return self._array.dtype

    def ensure(self, count: int) -> None:
        """Make room for so many slots."""
        if count <= self._filled:
            return
        self._array.ensure(count)
        values = self._array.values
        if self._fill != 0 or self._array.dtype == object:
            values[self._filled :] = self._fill
        self._filled = len(values)

    def get(self, slots: Ints) -> npt.NDArray[Any]:
        """The elements of slots."""
        return self._array.get(slots)

    def set(self, slots: Ints, values: Any) -> None:
        """Put elements; of equal slots the last one counts."""
        self._array.set(slots, values)


class Seen:
    """Which slots hold a value. As long as there are no nulls, all slots do, and nothing is kept."""

    __slots__ = ("_flags", "_known")

    def __init__(self) -> None:
        self._flags: Cells | None = None
        self._known = 0

    def mark(self, slots: Ints, valid: Mask | None, count: int) -> None:
        """Values have come to some slots.

        Args:
            slots: of the values that came, nulls among them.
            valid: which ones are no nulls; None = all.
            count: of all slots now. Each one has been among ``slots`` at least once when it was new.
        """
        if valid is not None and self._flags is None:
            self._flags = Cells(np.bool_)
            self._flags.ensure(count)
            self._flags.values[: self._known] = True
        if self._flags is None:
            self._known = count
            return
        self._flags.ensure(count)
        self._flags.values[slots if valid is None else slots[valid]] = True

    def keep_flags(self) -> None:
        """From now on slots may be there that no value has come to; before the first one."""
        self._flags = Cells(np.bool_)

    def of(self, slots: Ints) -> Mask | None:
        """Which slots hold a value; None = all."""
        return None if self._flags is None else self._flags.get(slots)
