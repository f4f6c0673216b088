"""Writes columnar state out in slices."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from firesteel.state.backend import SEVERAL, KeyedSnapshot, StateChunk, StateInfo
from firesteel.state.columnar.growing import GrowingArray
from firesteel.state.columnar.key_index import KeyIndex
from firesteel.state.columnar.values import Array, StateColumn

Ints = npt.NDArray[np.int64]

COLUMNS: Final = "columns"
"""The kind of such states."""
REMOVED: Final = "columns-removed"
"""The kind of what changes hold beside them: keys that were there before, and were forgotten."""
_FEWEST: Final = 256
_MOST: Final = 1 << 15
"""Slots that are looked at for a chunk: so many that one takes a part of a slice."""
_GATHERING: Final = 0.6
"""Of a slice; then no further chunk is begun."""
_SHARE: Final = 0.2
"""Of a slice that one chunk should take."""
_WRITTEN: Final = -1


def widened(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether each value of a type is one of the other, too."""
    if old == new:
        return True
    if pt.is_signed_integer(old) and pt.is_signed_integer(new):
        return bool(old.bit_width < new.bit_width)
    return bool(old == pa.float32() and new == pa.float64())


class Shadow:
    """Arrays as they were at a moment: what is about to change is copied first.

    Args:
        keys: words of the keys, and at last who owns them.
        columns: the values.
        count: slots that count.
    """

    def __init__(self, keys: Sequence[GrowingArray], columns: Sequence[StateColumn], count: int) -> None:
        self.columns, self.count = columns, count
        self.owner, self.words = len(keys) - 1, len(keys) - 1
        self._now: list[Array] = [*keys, *(column.array for column in columns)]
        self._saved = [_like(array) for array in self._now]
        self.saved = 0
        self._where = GrowingArray(np.int32, count, scattered=True)  # 1 + the position in what was saved, or _WRITTEN

    def save(self, slots: Ints) -> None:
        """Copy what is in slots, unless that was done or is not needed."""
        slots = slots[slots < self.count]
        slots = slots[self._where.get(slots) == 0]
        if not slots.size:
            return
        start, end = self.saved, self.saved + len(slots)
        for saved, now in zip(self._saved, self._now, strict=True):
            saved.ensure(end)
            saved.values[start:end] = now.get(slots)
        self._where.set(slots, np.arange(start + 1, end + 1))
        self.saved = end

    def get(self, position: int, slots: Ints) -> npt.NDArray[Any]:
        """What was in an array, given by its position."""
        values = self._now[position].get(slots)
        if self.saved:
            where = self._where.get(slots)
            changed = where > 0
            if changed.any():
                values[changed] = self._saved[position].get(where[changed].astype(np.int64) - 1)
        return values

    def written(self, slots: Ints) -> None:
        """These are not needed any more."""
        self._where.set(slots, _WRITTEN)


def _like(array: Array) -> Array:
    return GrowingArray(array.dtype) if isinstance(array, GrowingArray) else type(array)()


class Changes:
    """What has changed since an earlier moment.

    Args:
        stamps: by slot: when it was changed last. What changes later counts, too.
        since: slots with higher stamps have changed.
        removed: keys that were forgotten, as columns; some of them may be there again.
    """

    def __init__(self, stamps: GrowingArray, since: int, removed: Sequence[Sequence[pa.Array]]) -> None:
        self._stamps, self._since, self.removed = stamps, since, list(reversed(removed))

    def among(self, slots: Ints) -> Ints:
        """The slots that have changed."""
        return slots[self._stamps.get(slots) > self._since]


class ColumnarSnapshot(KeyedSnapshot):
    """Writes the slots one after the other.

    Args:
        info: what the snapshot says about the state.
        shadow: the arrays as they are now.
        index: makes columns of the words of keys.
        slice_seconds: how long a slice may work.
        on_end: called once, at the end.
        changes: only these are written; None = everything.
        now: seconds, monotonic.
    """

    def __init__(
        self,
        info: StateInfo,
        shadow: Shadow,
        index: KeyIndex,
        slice_seconds: float,
        on_end: Callable[[], None],
        changes: Changes | None = None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.states = [info]
        if changes is not None:
            self.states.append(StateInfo(info.name, REMOVED, {"keys": info.schema["keys"]}))
        self._shadow, self._index, self._slice_seconds = shadow, index, slice_seconds
        self._on_end, self._clock, self._changes = on_end, now, changes
        self._null_slot = index.null_slot
        names = [f"key{position}" for position in range(len(index.keys(np.empty(0, np.int64))))]
        self._keys, self._names = names, [*names, *(column.name for column in shadow.columns)]
        self._position = 0
        self._rows = _FEWEST
        self.closed = False

    def save(self, slots: Ints) -> None:
        """Slots that are about to change."""
        self._shadow.save(slots)

    def __next__(self) -> list[StateChunk]:
        if self.closed:
            raise StopIteration
        deadline = self._clock() + self._slice_seconds * _GATHERING
        chunks: list[StateChunk] = []
        try:
            while (chunk := self._next_chunk()) is not None:
                if chunk.count:
                    chunks.append(chunk)
                if self._clock() >= deadline:
                    return chunks
        except BaseException:
            self.close()
            raise
        if chunks:
            return chunks
        self.close()
        raise StopIteration

    def _next_chunk(self) -> StateChunk | None:
        """What comes next, which may be empty; None at the end."""
        changes = self._changes
        if changes is not None and changes.removed:
            columns = list(changes.removed.pop())
            return StateChunk(1, SEVERAL, len(columns[0]), _stream(columns, self._keys))
        if self._position >= self._shadow.count:
            return None
        began = self._clock()
        stop = min(self._position + self._rows, self._shadow.count)
        slots = np.arange(self._position, stop)
        self._position = stop
        full = len(slots) == self._rows
        if changes is not None:
            slots = changes.among(slots)
        chunk = self._write(slots[self._shadow.get(self._shadow.owner, slots) > 0])
        took = self._clock() - began
        if full and took < _SHARE / 2 * self._slice_seconds:
            self._rows = min(2 * self._rows, _MOST)
        elif full and took > _SHARE * self._slice_seconds:
            self._rows = max(self._rows // 2, _FEWEST // 8)
        return chunk

    def _write(self, slots: Ints) -> StateChunk:
        """These slots."""
        if not slots.size:
            return StateChunk(0, SEVERAL, 0, b"")
        shadow = self._shadow
        words = [shadow.get(position, slots) for position in range(shadow.words)]
        arrays = self._index.columns(words, slots == self._null_slot)
        for position, column in enumerate(shadow.columns, shadow.owner + 1):
            arrays.append(column.codec.column(shadow.get(position, slots), None))
        shadow.written(slots)
        return StateChunk(0, SEVERAL, len(slots), _stream(arrays, self._names))

    def close(self) -> None:
        """Give up, or say that it is over; idempotent."""
        if not self.closed:
            self.closed = True
            self._changes = None
            self._on_end()


def _stream(columns: Sequence[pa.Array], names: Sequence[str]) -> bytes:
    batch = pa.RecordBatch.from_arrays(list(columns), names=list(names))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
