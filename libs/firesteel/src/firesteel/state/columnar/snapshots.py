"""Rows of columns on their way out of a store: those that are about to change are copied first.

A store in arrays knows its rows by position. When a snapshot begins it makes ``Rows``, calls ``save`` before it changes
some of them, and goes on. Chunks are streams of Arrow.
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
"""Arrays of numpy or of Arrow, all of them of one length."""
GroupsOf = Callable[[Sequence[pa.Array]], npt.NDArray[np.signedinteger[Any]]]

COLUMNS: Final = "columns"
"""The kind of such states."""
REMOVED: Final = "columns-removed"
"""The kind of what changes hold beside them: keys that were there before, and were forgotten."""
_DONE: Final = -1


class Rows(ABC):
    """The rows of a moment, by position.

    Args:
        count: of rows; later positions are none of them.

    Attributes:
        closed: nobody needs the rest.
    """

    def __init__(self, count: int) -> None:
        self._count, self._position = count, 0
        self._marks = GrowingArray(np.int32, count, scattered=True)  # 0 for rows that neither were copied nor written
        self._saved: list[tuple[Ints, Columns]] = []
        self.closed = False

    @abstractmethod
    def copy(self, positions: Ints) -> Columns:
        """What stands at positions, as it is now."""

    def between(self, start: int, stop: int) -> Columns:
        """The same for neighbours; it is used before anything changes."""
        return self.copy(np.arange(start, stop))

    @abstractmethod
    def write(self, positions: Ints, columns: Columns) -> Block:
        """A block of what ``copy`` or ``between`` gave; it may leave out rows."""

    def save(self, positions: Ints) -> None:
        """These are about to change; those that are none of the rows are left out, and repeated ones count once."""
        if self.closed:
            return
        positions = positions[positions < self._count]
        marks = self._marks.values
        positions = positions[marks[positions] == 0]
        if not positions.size:
            return
        numbers = np.arange(1, len(positions) + 1, dtype=np.int32)
        marks[positions] = numbers
        positions = positions[marks[positions] == numbers]
        self._saved.append((positions, self.copy(positions)))

    def take(self, most: int) -> Block | None:
        """The next rows, so many at most; None at the end."""
        if self._saved:
            return self.write(*self._copies(most))
        while self._position < self._count:
            start, stop = self._position, min(self._position + most, self._count)
            self._position = stop
            marks = self._marks.values[start:stop]
            left = np.flatnonzero(marks == 0)
            marks[:] = _DONE
            if len(left) == stop - start:
                return self.write(left + start, self.between(start, stop))
            if left.size:
                return self.write(left + start, self.copy(left + start))
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
        columns = [_joined(some) for some in zip(*(columns for _, columns in parts), strict=True)]
        return np.concatenate([positions for positions, _ in parts]), columns

    def close(self) -> None:
        """Nobody needs the rest."""
        self.closed = True
        self._saved = []


def _joined(parts: Sequence[Any]) -> Any:
    return pa.concat_arrays(parts) if isinstance(parts[0], pa.Array) else np.concatenate(parts)


class OutgoingRows(Outgoing):
    """Rows that are written out.

    Args:
        states: what is in it.
        rows: in several parts.
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
        first: Iterator[Block] = iter(()),  # noqa: B008 # it has no end to come to
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.states, self._rows, self._first, self._on_end = states, list(reversed(rows)), first, on_end
        self._ended = False

    def next_block(self, entries: int) -> Block | None:
        for block in self._first:
            return block
        while self._rows:
            found = self._rows[-1].take(entries)
            if found is not None:
                return found
            self._rows.pop().close()
        return None

    def end(self) -> None:
        """Nobody needs the rest."""
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
    """State by key whose chunks are streams of Arrow, the columns of the key in front.

    Args:
        info: what snapshots say about it.
        keys: how many columns the key has.
        groups_of: the key groups of keys.
        key_groups: those that the subtask owns.
    """

    def __init__(self, info: StateInfo, keys: int, groups_of: GroupsOf, key_groups: range) -> None:
        self.info, self.key_width, self._groups_of, self._key_groups = info, keys, groups_of, key_groups

    def expect(self, info: StateInfo) -> None:
        """See ``AttachedState``: the schema has to be the same."""
        if info.schema != self.info.schema:
            changed = [name for name, what in self.info.schema.items() if info.schema.get(name) != what]
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
                found, starts = np.unique(groups[order], return_index=True)
                for group, start, stop in zip(found, starts, [*starts[1:], len(order)], strict=True):
                    part = ordered.slice(int(start), int(stop - start))
                    yield Block(part.num_rows, stream_of(part), block.state, int(group))

    @override
    def take_back(self, info: StateInfo, chunk: StateChunk) -> None:
        with pa.ipc.open_stream(chunk.data) as reader:
            for batch in reader:
                own = self._own(batch) if chunk.key_group == SEVERAL else batch
                if own.num_rows:
                    self.take_rows(info, own)

    @abstractmethod
    def take_rows(self, info: StateInfo, batch: pa.RecordBatch) -> None:
        """Take over rows of own keys."""

    @override
    def taken_back(self) -> None: ...

    def _own(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of own keys."""
        own, groups = self._key_groups, self._groups_of(batch.columns[: self.key_width])
        mine = (groups >= own.start) & (groups < own.stop)
        return batch if mine.all() else batch.filter(pa.array(mine))
