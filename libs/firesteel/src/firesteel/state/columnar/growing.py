"""Arrays that grow in place."""

from __future__ import annotations

import mmap
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_SMALL: Final = 1 << 20
"""Bytes up to which a growing array is copied, which takes less than a tenth of a millisecond."""
_FIRST: Final = 1024


def private_memory(size: int, *, scattered: bool = False) -> mmap.mmap:
    """Zeroed memory of at least one byte; only pages that are written to take memory.

    Args:
        size: bytes.
        scattered: it will be written to everywhere at once, so that large pages are better, where there are some.
    """
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, max(size, 1))
    memory = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if scattered and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # a kernel without them
            pass
    return memory


class GrowingArray:
    """A one-dimensional array that is extended without a copy: its pages move, not their contents.

    New elements are zero. Capacity doubles; pages that were never written take no memory. Views of ``values`` are valid
    for the moment only: a view that still exists when the array grows forces a copy, and shows the old array
    afterwards.

    Args:
        dtype: of the elements, of fixed width and without Python objects.
        capacity: initial number of elements.
        scattered: it will be written to everywhere at once.

    Attributes:
        values: all elements there is room for.
    """

    __slots__ = ("_memory", "_scattered", "dtype", "values")

    def __init__(self, dtype: npt.DTypeLike, capacity: int = 0, *, scattered: bool = False) -> None:
        self._scattered = scattered
        self.dtype = np.dtype(dtype)
        self._memory: mmap.mmap | None = None
        self.values: npt.NDArray[Any] = np.zeros(0, self.dtype)
        if capacity:
            self.ensure(capacity)

    def __len__(self) -> int:
        return len(self.values)

    def ensure(self, count: int) -> None:
        """Make room for this many elements."""
        if count > len(self.values):
            self._grow(max(count, 2 * len(self.values), _FIRST))

    def _grow(self, count: int) -> None:
        size = count * self.dtype.itemsize
        if self._memory is not None:
            self.values = np.zeros(0, self.dtype)
            memory = self._memory
            try:
                memory.resize(size)
            except (BufferError, SystemError):  # somebody holds a view, or the platform can't
                self._memory = private_memory(size)
                self._memory[: len(memory)] = memory[:]
            self.values = np.frombuffer(self._memory, self.dtype)
            return
        previous = self.values
        if size > _SMALL:
            self._memory = private_memory(size, scattered=self._scattered)
            self.values = np.frombuffer(self._memory, self.dtype)
        else:
            self.values = np.zeros(count, self.dtype)
        self.values[: len(previous)] = previous

    def get(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """The elements of slots."""
        return self.values.take(slots)

    def set(self, slots: npt.NDArray[np.int64], values: Any) -> None:
        """Put elements into slots there is room for; of equal slots the last one counts."""
        self.values[slots] = values
