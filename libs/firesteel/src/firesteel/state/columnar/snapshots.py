"""Rows of columns on their way into a snapshot; rows that change before their turn are copied first.

A store in arrays knows its rows by position. When a snapshot begins it creates ``Rows`` and goes on working; before it
changes rows it calls ``save``. Chunks are streams of Arrow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from firesteel.core.errors import StateMigrationError
from firesteel.state.columnar.growing import GrowingArray
from firesteel.state.snapshots import SEVERAL, AttachedState, Block, Outgoing, StateChunk, StateInfo

Ints = npt.NDArray[np.int64]
Columns = list[Any]
"""Arrays of numpy or Arrow, all of one length."""
GroupsOf = Callable[[Sequence[pa.Array]], npt.NDArray[np.signedinteger[Any]]]

COLUMNS: Final = "columns"
"""Kind of states in columns."""
REMOVED: Final = "columns-removed"
"""Kind of the list of removed keys in a snapshot of changes."""
DONE: Final = -1
"""Mark of a row that was written, or is no part of the snapshot."""


class Rows(ABC):
    """The rows of a store at the moment a snapshot begins, by position.

    Args:
        count: number of rows; later positions are not part of them.

    Attributes:
        closed: the snapshot needs no more rows.
    """

    def __init__(self, count: int) -> None:
        self._count, self._position = count, 0
        self._marks = GrowingArray(np.int32, count, scattered=True)  # 0 = neither copied nor written yet
        self._saved: list[tuple[Ints, Columns]] = []
        self.closed = False

    @abstractmethod
    def copy(self, positions: Ints) -> Columns:
        """Contents of positions, as they are now."""

    def between(self, start: int, stop: int) -> Columns:
        """Contents of neighbouring positions, without a copy: they are used before anything changes."""
        return self.copy(np.arange(start, stop))

    @abstractmethod
    def write(self, positions: Ints, columns: Columns) -> Block:
        """Block of what ``copy`` or ``between`` returned; rows may be left out."""

    def save(self, positions: Ints) -> None:
        """Copy rows that are about to change, once each; positions that are none of the rows are ignored."""
        if self.closed:
            return
        positions = positions[positions < self._count]
        marks = self._marks.values
        positions = positions[marks[positions] == 0]
        if not positions.size:
            return
        # Of repeated positions one number remains in the marks, so that each row is copied once.
        numbers = np.arange(1, len(positions) + 1, dtype=np.int32)
        marks[positions] = numbers
        positions = positions[marks[positions] == numbers]
        self._saved.append((positions, self.copy(positions)))

    def take(self, most: int) -> Block | None:
        """Block of the next rows, ``most`` of them at most; None at the end."""
        # Copies first: they take memory until they are written.
        if self._saved:
            return self.write(*self._copies(most))
        while self._position < self._count:
            start, stop = self._position, min(self._position + most, self._count)
            self._position = stop
            marks = self._marks.values[start:stop]
            # Rows with a mark were copied, and are written from there.
            unwritten = np.flatnonzero(marks == 0)
            marks[:] = DONE
            if len(unwritten) == stop - start:
                return self.write(unwritten + start, self.between(start, stop))
            if unwritten.size:
                return self.write(unwritten + start, self.copy(unwritten + start))
        return None

    def _copies(self, most: int) -> tuple[Ints, Columns]:
        parts: list[tuple[Ints, Columns]] = []
        while self._saved and most > 0:
            positions, columns = self._saved.pop()
            if len(positions) > most:
                self._saved.append((positions[most:], [column[most:] for column in columns]))
                positions, columns = positions[:most], [column[:most] for column in columns]
            most -= len(positions)
            parts.append((positions, columns))
        if len(parts) == 1:
            return parts[0]
        columns = [_joined(column_parts) for column_parts in zip(*(columns for _, columns in parts), strict=True)]
        return np.concatenate([positions for positions, _ in parts]), columns

    def close(self) -> None:
        """Stop: the snapshot needs no more rows."""
        self.closed = True
        self._saved = []


def _joined(parts: Sequence[Any]) -> Any:
    return pa.concat_arrays(parts) if isinstance(parts[0], pa.Array) else np.concatenate(parts)


class OutgoingRows(Outgoing):
    """Rows of one or more stores as part of a snapshot.

    Args:
        states: what they belong to.
        rows: of the stores.
        first: blocks that come before them.
        on_end: called once, at the end.
    """

    fewest: ClassVar[int] = 2048
    most: ClassVar[int] = 1 << 15
    share: ClassVar[float] = 0.3  # a block costs as much as some thousand of its rows
    joined: ClassVar[bool] = False

    def __init__(
        self,
        states: Sequence[StateInfo],
        rows: Sequence[Rows],
        first: Iterator[Block] = iter(()),  # noqa: B008 # an empty iterator can be shared
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.states, self._rows, self._first, self._on_end = states, list(reversed(rows)), first, on_end
        self._ended = False

    def next_block(self, entries: int) -> Block | None:
        for block in self._first:
            return block
        while self._rows:
            next_rows = self._rows[-1].take(entries)
            if next_rows is not None:
                return next_rows
            self._rows.pop().close()
        return None

    def end(self) -> None:
        """Stop: the snapshot needs no more blocks."""
        if not self._ended:
            self._ended = True
            for rows in self._rows:
                rows.close()
            self._rows = []
            self._first = iter(())
            self._on_end()


def stream_of(batch: pa.RecordBatch) -> bytes:
    """A batch as a stream of Arrow."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


class AttachedColumns(AttachedState):
    """State by key whose chunks are streams of Arrow, with the columns of the key first.

    Args:
        info: describes it in snapshots.
        keys: number of the key's columns.
        groups_of: computes the key groups of keys.
        key_groups: those that the subtask owns.
    """

    def __init__(self, info: StateInfo, keys: int, groups_of: GroupsOf, key_groups: range) -> None:
        self.info, self.key_width, self._groups_of, self._key_groups = info, keys, groups_of, key_groups

    def expect(self, info: StateInfo) -> None:
        """Check a restored schema, which has to be the same."""
        if info.schema != self.info.schema:
            changed = [name for name, value in self.info.schema.items() if info.schema.get(name) != value]
            shown = "; ".join(
                f"{name} were {info.schema.get(name)} and are {self.info.schema[name]}" for name in changed
            )
            raise StateMigrationError(info.name, "", shown or "it was written by another version")

    @override
    def divide(self, block: Block) -> Iterator[Block]:
        with pa.ipc.open_stream(block.data) as reader:
            for batch in reader:
                groups = self._groups_of(batch.columns[: self.key_width])
                order = np.argsort(groups, kind="stable")
                ordered = batch.take(pa.array(order))
                group_numbers, starts = np.unique(groups[order], return_index=True)
                for group, start, stop in zip(group_numbers, starts, [*starts[1:], len(order)], strict=True):
                    part = ordered.slice(int(start), int(stop - start))
                    yield Block(part.num_rows, stream_of(part), block.state, int(group))

    @override
    def take_back(self, info: StateInfo, chunk: StateChunk) -> None:
        with pa.ipc.open_stream(chunk.data) as reader:
            for batch in reader:
                rows = self._own(batch) if chunk.key_group == SEVERAL else batch
                if rows.num_rows:
                    self.take_rows(info, rows)

    @abstractmethod
    def take_rows(self, info: StateInfo, batch: pa.RecordBatch) -> None:
        """Add restored rows of own keys."""

    @override
    def taken_back(self) -> None: ...

    def _own(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of own keys."""
        own_groups, groups = self._key_groups, self._groups_of(batch.columns[: self.key_width])
        is_own = (groups >= own_groups.start) & (groups < own_groups.stop)
        return batch if is_own.all() else batch.filter(pa.array(is_own))
