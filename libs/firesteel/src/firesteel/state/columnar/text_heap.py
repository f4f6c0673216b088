"""Texts and bytes by row number, without Python objects.

A text is a view of 16 bytes, as in Arrow's ``string_view``: up to 12 bytes are in the view itself, longer ones in
blocks of memory. Arrow reads any choice of views together with the blocks, so that taking rows copies each text once.
"""

from __future__ import annotations

import mmap
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from firesteel.state.columnar.growing import GrowingArray, private_memory
from firesteel.state.columnar.packed_text import lengths_of

Ints = npt.NDArray[np.int64]

_VIEW: Final = np.dtype([("length", "<i4"), ("prefix", "<u4"), ("block", "<i4"), ("start", "<i4")])
_INLINE: Final = 12
_BLOCK: Final = 1 << 24
"""Bytes of a block; pages that were never written take no memory."""
_PIECE: Final = 8192
"""Texts that move together when blocks are emptied."""


class TextHeap:
    """The texts of rows, or their bytes; those of rows that were never set are empty.

    Args:
        data_type: ``string`` or ``binary``.
    """

    block_size: int = _BLOCK

    def __init__(self, data_type: pa.DataType) -> None:
        self._type = data_type
        self._view_type = pa.string_view() if pt.is_string(data_type) else pa.binary_view()
        self._views = GrowingArray(_VIEW)
        self._blocks: list[mmap.mmap | None] = []
        self._buffers: list[pa.Buffer] = []
        self._used: list[int] = []  # bytes that were written to each block
        self._live = np.zeros(0, np.int64)  # bytes of each block that texts still use
        self._current = -1

    @property
    def nbytes(self) -> int:
        """Bytes of views, and of blocks as far as they were written."""
        return _VIEW.itemsize * len(self._views) + sum(self._used)

    @property
    def live_bytes(self) -> int:
        """Bytes of the texts that are not in their views."""
        return int(self._live.sum())

    def ensure(self, rows: int) -> None:
        """Make room for this many rows."""
        self._views.ensure(rows)

    def set(self, rows: Ints, texts: pa.Array) -> None:
        """Put texts into rows that have none."""
        views = self._views_of(texts)
        if texts.null_count:
            views[texts.is_null().to_numpy(zero_copy_only=False)] = 0
        long = np.flatnonzero(views["length"] > _INLINE)
        if long.size:
            starts, lengths, content = lengths_of(texts if len(long) == len(texts) else texts.take(pa.array(long)))
            block, first = self._write(content)
            self._live[block] += int(lengths.sum())
            views["block"][long] = block
            views["start"][long] = first + starts
        self._views.set(rows, views)

    def take(self, rows: Ints, valid: pa.Buffer | None = None) -> pa.Array:
        """Texts of rows; null where a bit of ``valid`` is not set."""
        views = pa.py_buffer(np.ascontiguousarray(self._views.get(rows)))
        return pa.Array.from_buffers(self._view_type, len(rows), [valid, views, *self._buffers]).cast(self._type)

    def clear(self, rows: Ints) -> None:
        """Forget the texts of rows."""
        views = self._views.get(rows)
        long = views[views["length"] > _INLINE]
        self._views.values[rows] = 0
        if len(long):
            np.subtract.at(self._live, long["block"], long["length"])
            self._tidy()

    # -- inside

    def _views_of(self, texts: pa.Array) -> npt.NDArray[np.void]:
        if not len(texts):
            return np.zeros(0, _VIEW)
        views = texts.cast(self._view_type)
        return np.frombuffer(views.buffers()[1], _VIEW, len(texts), views.offset * _VIEW.itemsize).copy()

    def _write(self, content: npt.NDArray[np.uint8]) -> tuple[int, int]:
        """Append bytes to a block; returns its number, and where they begin."""
        size, block = len(content), self._current
        if block < 0 or self._used[block] + size > len(self._buffers[block]):
            block = self._current = self._new_block(max(size, self.block_size))
        first = self._used[block]
        memory = self._blocks[block]
        assert memory is not None
        np.frombuffer(memory, np.uint8)[first : first + size] = content
        self._used[block] += size
        return block, first

    def _new_block(self, size: int) -> int:
        memory = private_memory(size)
        if None in self._blocks:
            block = self._blocks.index(None)
        else:
            block = len(self._blocks)
            self._blocks.append(None)
            self._buffers.append(pa.py_buffer(b""))
            self._used.append(0)
            self._live = np.append(self._live, 0)
        self._blocks[block], self._buffers[block] = memory, pa.py_buffer(memory)
        return block

    def _tidy(self) -> None:
        """Free blocks without texts; once more than half of all bytes are garbage, empty the blocks that have most."""
        for block, used in enumerate(self._used):
            if used and not self._live[block]:
                self._free(block)
        if sum(self._used) <= max(2 * int(self._live.sum()), self.block_size >> 4):
            return
        sparse = 2 * self._live < np.array(self._used)
        if sparse[self._current]:
            self._current = -1  # its texts go to a new one
        views = self._views.values
        rows = np.flatnonzero(views["length"] > _INLINE)  # the views of others have text where these have a block
        rows = rows[sparse.take(views["block"].take(rows))]
        for first in range(0, len(rows), _PIECE):
            piece = rows[first : first + _PIECE]
            self.set(piece, self.take(piece))
        self._live[np.flatnonzero(sparse)] = 0
        for block in np.flatnonzero(sparse).tolist():
            self._free(block)

    def _free(self, block: int) -> None:
        self._blocks[block], self._buffers[block], self._used[block] = None, pa.py_buffer(b""), 0
        if block == self._current:
            self._current = -1
