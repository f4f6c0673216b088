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
_FEWEST: Final = 2048
_MOST: Final = 1 << 15
"""Slots that are looked at for a chunk: so many that one takes a part of a slice."""
_GATHERING: Final = 0.6
"""Of a slice; then no further chunk is begun."""
_SHARE: Final = 0.3
"""Of a slice that one chunk should take; a chunk costs as much as some thousand of its rows."""
_WRITTEN: Final = -1
_NONE: Final = np.empty(0, np.int64)


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

    def arrays(self, position: int) -> tuple[Array, Array]:
        """An array as it is now, and the copies of what was in it."""
        return self._now[position], self._saved[position]

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

    def between(self, start: int, stop: int) -> Rows:
        """The slots from one to another, as they were."""
        where = self._where.values[start:stop]
        changed = np.flatnonzero(where > 0) if self.saved else _NONE
        return Rows(self, start, stop, changed, where[changed].astype(np.int64) - 1)

    def written(self, start: int, stop: int) -> None:
        """These are not needed any more."""
        self._where.values[start:stop] = _WRITTEN


class Rows:
    """What was in neighbouring slots; to be read before anything changes.

    Args:
        shadow: of the state.
        start: the first slot.
        stop: the one behind the last.
        changed: those that have changed since, counted from ``start``.
        saved: where in the copies these are.
    """

    def __init__(self, shadow: Shadow, start: int, stop: int, changed: Ints, saved: Ints) -> None:
        self._shadow, self._start, self._stop, self._changed, self._saved = shadow, start, stop, changed, saved

    def get(self, position: int, chosen: Ints | None = None) -> npt.NDArray[Any]:
        """What was in an array, given by its position; of all slots, or of those chosen, counted from the first."""
        now, copies = self._shadow.arrays(position)
        values = now.values[self._start : self._stop]
        if self._changed.size:
            values = values.copy()
            values[self._changed] = copies.get(self._saved)
        return values if chosen is None else values[chosen]


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

    def between(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Which slots have changed, from one to another."""
        changed: npt.NDArray[np.bool_] = self._stamps.values[start:stop] > self._since
        return changed


class ColumnarSnapshot(KeyedSnapshot):
    """Writes the slots one after the other.

    Args:
        info: what the snapshot says about the state.
        shadow: the arrays as they are now.
        index: makes columns of the words of keys.
        slice_seconds: how long a slice may work.
        on_end: called once, at the end.
        changes: only these are written; None = everything.
        now: seconds of work; time in which others had the processor must not make slices smaller.
    """

    def __init__(
        self,
        info: StateInfo,
        shadow: Shadow,
        index: KeyIndex,
        slice_seconds: float,
        on_end: Callable[[], None],
        changes: Changes | None = None,
        now: Callable[[], float] = time.thread_time,
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
        start, self._position = self._position, stop
        full = stop - start == self._rows
        chunk = self._write(start, stop)
        took = self._clock() - began
        if full and took < _SHARE / 2 * self._slice_seconds:
            self._rows = min(2 * self._rows, _MOST)
        elif full and took > _SHARE * self._slice_seconds:
            self._rows = max(self._rows // 2, _FEWEST // 64)
        return chunk

    def _write(self, start: int, stop: int) -> StateChunk:
        """These slots, as far as they are in use and wanted."""
        shadow, changes = self._shadow, self._changes
        rows = shadow.between(start, stop)
        wanted = rows.get(shadow.owner) > 0
        if changes is not None:
            wanted &= changes.between(start, stop)
        count = int(np.count_nonzero(wanted))
        if not count:
            return StateChunk(0, SEVERAL, 0, b"")
        chosen = None if count == stop - start else np.flatnonzero(wanted)
        words = [rows.get(position, chosen) for position in range(shadow.words)]
        slots = np.arange(start, stop) if chosen is None else chosen + start
        arrays = self._index.columns(words, slots == self._null_slot)
        for position, column in enumerate(shadow.columns, shadow.owner + 1):
            arrays.append(column.codec.column(rows.get(position, chosen), None))
        shadow.written(start, stop)
        return StateChunk(0, SEVERAL, count, _stream(arrays, self._names))

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
