"""Writes windows over columns out in slices, and reads them again.

What a window operation holds is written in blocks: a pane, or all sessions. Rows of a block are made into columns when
their turn has come, or before they change for the first time. Chunks are streams of Arrow: the key's columns, then the
block's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.core.errors import StateMigrationError
from firesteel.state.backend import SEVERAL, KeyedSnapshot, StateChunk, StateInfo

COLUMNS: Final = "columns"
"""The kind of such states."""
WATERMARK: Final = b"firesteel.watermark"
"""Key of a chunk's metadata: how far time had come."""
_FEWEST: Final = 2048
_MOST: Final = 1 << 15
"""Rows of a chunk: so many that one takes a part of a slice."""
_GATHERING: Final = 0.6
"""Of a slice; then no further chunk is begun."""
_SHARE: Final = 0.3
"""Of a slice that one chunk should take."""
Ints = npt.NDArray[np.int64]
GroupsOf = Callable[[Sequence[pa.Array]], npt.NDArray[np.signedinteger[Any]]]


class Block:
    """A part of the state of a moment: rows by position.

    Args:
        count: of rows.
        make: gives the rows of some positions as columns, the keys first.
        watermark: how far time has come for these rows.
    """

    __slots__ = ("_count", "_done", "_make", "_position", "_saved", "closed", "watermark")

    def __init__(self, count: int, make: Callable[[Ints], pa.RecordBatch], watermark: int) -> None:
        self._count, self._make, self.watermark = count, make, watermark
        self._done = np.zeros(count, np.bool_)
        self._saved: list[pa.RecordBatch] = []
        self._position = 0
        self.closed = False

    def save(self, positions: Ints) -> None:
        """These are about to change; those that are none of its rows are left out."""
        if self.closed:
            return
        positions = positions[positions < self._count]
        positions = positions[~self._done[positions]]
        if positions.size:
            positions = np.unique(positions)
            self._done[positions] = True
            self._saved.append(self._make(positions))

    def take(self, most: int) -> pa.RecordBatch | None:
        """The next rows, so many at most; None at the end."""
        if self._saved:
            saved = self._saved.pop()
            if saved.num_rows > most:
                self._saved.append(saved.slice(most))
            return saved.slice(0, most)
        while self._position < self._count:
            positions = np.arange(self._position, min(self._position + most, self._count))
            self._position += len(positions)
            positions = positions[~self._done[positions]]
            if positions.size:
                self._done[positions] = True
                return self._make(positions)
        return None

    def close(self) -> None:
        """Nobody needs the rest."""
        self.closed = True
        self._saved = []


class WindowSnapshot(KeyedSnapshot):
    """Writes block after block.

    Args:
        info: what the snapshot says about the state.
        blocks: all of it.
        slice_seconds: how long a slice may work.
        on_end: called once, at the end.
        now: seconds of work; time in which others had the processor must not make slices smaller.
    """

    def __init__(
        self,
        info: StateInfo,
        blocks: Sequence[Block],
        slice_seconds: float,
        on_end: Callable[[], None],
        now: Callable[[], float] = time.thread_time,
    ) -> None:
        self.states = [info]
        self._blocks = list(reversed(blocks))
        self._slice_seconds, self._on_end, self._now = slice_seconds, on_end, now
        self._rows = _FEWEST
        self.closed = False

    def __next__(self) -> list[StateChunk]:
        if self.closed:
            raise StopIteration
        now = self._now()
        deadline = now + self._slice_seconds * _GATHERING
        chunks: list[StateChunk] = []
        try:
            while self._blocks:
                batch = self._blocks[-1].take(self._rows)
                if batch is None:
                    self._blocks.pop().close()
                    continue
                chunks.append(self._chunk(batch, self._blocks[-1].watermark))
                before, now = now, self._now()
                self._adapt(batch.num_rows, now - before)
                if now >= deadline:
                    return chunks
        except BaseException:
            self.close()
            raise
        if chunks:
            return chunks
        self.close()
        raise StopIteration

    def _chunk(self, batch: pa.RecordBatch, watermark: int) -> StateChunk:
        batch = batch.replace_schema_metadata({WATERMARK: str(watermark)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return StateChunk(0, SEVERAL, batch.num_rows, sink.getvalue().to_pybytes())

    def _adapt(self, rows: int, took: float) -> None:
        """A chunk should take a part of a slice."""
        if took > _SHARE * self._slice_seconds:
            self._rows = max(self._rows // 2, _FEWEST // 64)
        elif rows == self._rows and took < _SHARE / 2 * self._slice_seconds:
            self._rows = min(2 * self._rows, _MOST)

    def close(self) -> None:
        """Give up, or say that it is over; idempotent."""
        if not self.closed:
            self.closed = True
            for block in self._blocks:
                block.close()
            self._blocks = []
            self._on_end()


class Written:
    """The state of a window operation as a part of snapshots. See ``firesteel.state.backend``.

    Args:
        name: of the state.
        schema: what has to be the same where it is restored.
        keys: how many columns the key has.
        groups_of: the key groups of keys.
        key_groups: those that the subtask owns.
    """

    def __init__(self, name: str, schema: dict[str, Any], keys: int, groups_of: GroupsOf, key_groups: range) -> None:
        self.info = StateInfo(name, COLUMNS, schema)
        self.keys, self.groups_of, self.key_groups = keys, groups_of, key_groups
        self.running: WindowSnapshot | None = None

    def begin(self, blocks: Sequence[Block], slice_seconds: float) -> WindowSnapshot:
        """Begin to write.

        Raises:
            RuntimeError: a snapshot is being written already.
        """
        if self.running is not None:
            raise RuntimeError(f"state {self.info.name!r}: a snapshot is running; end or close it first")
        self.running = WindowSnapshot(self.info, blocks, slice_seconds, self._ended)
        return self.running

    def _ended(self) -> None:
        self.running = None

    def read(self, states: Sequence[StateInfo], chunks: Iterable[StateChunk]) -> Iterator[tuple[pa.RecordBatch, int]]:
        """What is the own, with the watermark.

        Raises:
            StateMigrationError: it was written by windows of another kind.
        """
        mine = [info.name == self.info.name and info.kind == COLUMNS for info in states]
        for info, own in zip(states, mine, strict=True):
            if own and info.schema != self.info.schema:
                changed = [name for name, what in self.info.schema.items() if info.schema.get(name) != what]
                shown = "; ".join(
                    f"{name} were {info.schema.get(name)} and are {self.info.schema[name]}" for name in changed
                )
                raise StateMigrationError(info.name, "", shown or "it was written by another version")
        for chunk in chunks:
            if mine[chunk.state] and (chunk.key_group in self.key_groups or chunk.key_group == SEVERAL):
                with pa.ipc.open_stream(chunk.data) as reader:
                    for batch in reader:
                        own = self._own(batch) if chunk.key_group == SEVERAL else batch
                        if own.num_rows:
                            yield own, int(reader.schema.metadata[WATERMARK])

    def _own(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of own keys."""
        own, groups = self.key_groups, self.groups_of(batch.columns[: self.keys])
        mine = (groups >= own.start) & (groups < own.stop)
        return batch if mine.all() else batch.filter(pa.array(mine))

    def close(self) -> None:
        """Give a running snapshot up."""
        if self.running is not None:
            self.running.close()
