"""State with any number of rows for each key: the rows of a join's input, of a partition, of a collection.

A key has a slot, a slot has a list of row numbers, and a row's values stand in arrays under its number. Numbers of rows
that were dropped are given to later ones. A row that is deleted is found by a hash of its content, in an index that is
built when the first one is looked for: tables that only grow have none.

It is state of a backend whose chunks are streams of Arrow with the columns of the key, then those of the rows, and then
the numbers that the operator keeps beside each row. Rows that change while a snapshot runs are copied first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from firesteel.state.columnar.growing import GrowingArray
from firesteel.state.columnar.key_index import KeyIndex
from firesteel.state.columnar.row_columns import row_column
from firesteel.state.columnar.row_contents import content_hashes, equal_rows
from firesteel.state.columnar.slot_lists import SlotLists, runs, spread
from firesteel.state.columnar.snapshots import (
    DONE,
    AttachedColumns,
    Columns,
    GroupsOf,
    OutgoingRows,
    Rows,
    stream_of,
)
from firesteel.state.columnar.store import described, one_group
from firesteel.state.snapshots import Block, StateInfo

Ints = npt.NDArray[np.int64]

ROWS: Final = "rows"
"""Kind of the state in snapshots."""
_PIECE: Final = 1 << 14
"""Rows whose contents are hashed together when the index of contents is built."""


class RowTable(AttachedColumns):
    """Rows by key.

    Slots stay valid until ``slots`` is called again: it forgets the keys that have no rows any more. A number of a row
    stays valid until the row is dropped.

    Args:
        name: of the state, in snapshots and errors.
        key_types: of the key's columns.
        schema: of the rows; NULL is allowed everywhere.
        numbers: names of the numbers beside each row, 0 at first; ``touch`` comes before they are written.
        groups_of: computes the key groups of keys, which come as columns.
        key_groups: those that the subtask owns.

    Attributes:
        index: the slots of keys.
        lists: the rows of slots.
        numbers: beside the rows, by name and row.
    """

    def __init__(
        self,
        name: str,
        key_types: Sequence[pa.DataType],
        schema: pa.Schema,
        numbers: Sequence[str] = (),
        groups_of: GroupsOf = one_group,
        key_groups: range = range(1),
    ) -> None:
        columns = {f"{position}.{field.name}": field.type for position, field in enumerate(schema)}
        kinds = {f".{number}": pa.int64() for number in numbers}
        info = StateInfo(name, ROWS, described(key_types, columns | kinds))
        super().__init__(info, len(key_types), groups_of, key_groups)
        self.name, self.key_types, self.schema = name, tuple(key_types), schema
        self._column_names = [f"key{position}" for position in range(len(key_types))] + [*columns, *kinds]
        self._number_names = tuple(numbers)
        self._rows: _TableRows | None = None  # of the snapshot that is being written
        self._create()

    def _create(self) -> None:
        self.index, self.lists = KeyIndex(self.key_types), SlotLists()
        self._columns = [row_column(field.type) for field in self.schema]
        self.numbers: Mapping[str, GrowingArray] = {name: GrowingArray(np.int64) for name in self._number_names}
        self._contents: _ContentIndex | None = None
        self._emptied: list[Ints] = []  # slots without rows, whose keys are to be forgotten
        self._free: list[Ints] = []  # numbers of dropped rows
        self._capacity = 0
        self.size = 0

    @property
    def nbytes(self) -> int:
        """Bytes in use; of nested values only the references count."""
        parts = sum(column.nbytes for column in self._columns) + self.lists.nbytes + self.index.nbytes
        contents = 0 if self._contents is None else self._contents.nbytes
        return parts + contents + 8 * self._capacity * len(self.numbers)

    # -- rows

    def slots(self, keys: Sequence[pa.Array]) -> Ints:
        """Slot of each key, to add rows to."""
        if self._emptied:
            slots = np.unique(np.concatenate(self._emptied))
            self._emptied = []
            self.index.release(slots[self.lists.counts(slots) == 0])
        return self.index.slots(keys)

    def forget_unused(self, slots: Ints) -> None:
        """Note slots to which no rows may have been added: the keys of those without any are forgotten."""
        self._emptied.append(slots)

    def find(self, keys: Sequence[pa.Array]) -> Ints:
        """Slot of each key; -1 for keys without rows, which may also have a slot that is empty."""
        return self.index.find(keys)

    def add(self, slots: Ints, columns: Sequence[pa.Array]) -> Ints:
        """Add rows to slots; returns their numbers."""
        rows = self._take_numbers(len(slots))
        if self._rows is not None:
            self._rows.leave_out(rows)
        for column, values in zip(self._columns, columns, strict=True):
            column.set(rows, values)
        for numbers in self.numbers.values():
            numbers.set(rows, 0)
        self.lists.append(slots, rows)
        if self._contents is not None:
            self._contents.add(slots, rows, content_hashes(columns) if columns else np.zeros(len(rows), np.int64))
        return rows

    def match(self, slots: Ints, columns: Sequence[pa.Array]) -> Ints:
        """Find a row of each slot with this content, another one for each of equal rows; -1 where there is none."""
        if not len(slots):
            return np.empty(0, np.int64)
        if self._contents is None:
            self._contents = _ContentIndex(self)
        hashes = content_hashes(columns) if columns else np.zeros(len(slots), np.int64)
        return self._contents.match(slots, hashes, columns)

    def drop(self, rows: Ints) -> None:
        """Forget rows, each once."""
        if not len(rows):
            return
        self.touch(rows)
        if self._contents is not None:
            self._contents.remove(rows)
        self._emptied.append(self.lists.remove(rows))
        for column in self._columns:
            column.clear(rows)
        self._free.append(rows)
        self.size -= len(rows)

    def rows_of(self, slots: Ints) -> tuple[Ints, Ints]:
        """All rows of slots: for each the position of its slot in ``slots``, and its number; a slot -1 has none."""
        return self.lists.gather(slots)

    def slots_of(self, rows: Ints) -> Ints:
        """The slot of each row."""
        return self.lists.owners.get(rows).astype(np.int64) - 1

    def all_rows(self) -> Ints:
        """Numbers of all rows."""
        return np.flatnonzero(self.lists.owners.values[: self._capacity])

    def take(self, rows: Ints, places: Sequence[int] | None = None) -> list[pa.Array]:
        """Columns of rows; those at some places of the schema if these are named."""
        columns = self._columns if places is None else [self._columns[place] for place in places]
        return [column.take(rows) for column in columns]

    def touch(self, rows: Ints) -> None:
        """Prepare rows for a change of their numbers."""
        if self._rows is not None:
            self._rows.save(rows)

    def _take_numbers(self, count: int) -> Ints:
        self.size += count
        parts: list[Ints] = []
        while count and self._free:
            last = self._free.pop()
            parts.append(last[:count])
            if len(last) > count:
                self._free.append(last[count:])
            count -= len(parts[-1])
        if count:
            parts.append(np.arange(self._capacity, self._capacity + count))
            self._capacity += count
            for column in self._columns:
                column.ensure(self._capacity)
            for numbers in self.numbers.values():
                numbers.ensure(self._capacity)
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    # -- snapshots

    @override
    def outgoing(self) -> OutgoingRows:
        self._rows = _TableRows(self, self._capacity)
        return OutgoingRows([self.info], [self._rows], on_end=self._ended)

    def _ended(self) -> None:
        self._rows = None

    @override
    def take_rows(self, info: StateInfo, batch: pa.RecordBatch) -> None:
        width = len(self.key_types)
        end = width + len(self._columns)
        rows = self.add(self.slots(batch.columns[:width]), batch.columns[width:end])
        for numbers, column in zip(self.numbers.values(), batch.columns[end:], strict=True):
            numbers.set(rows, column.to_numpy(zero_copy_only=False))

    @override
    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()
            self._rows = None
        self._create()

    def written_columns(self, rows: Ints) -> Columns:
        """The columns of a snapshot for rows that exist."""
        keys = self.index.keys(self.slots_of(rows))
        return [*keys, *self.take(rows), *(numbers.get(rows) for numbers in self.numbers.values())]

    def block(self, columns: Columns) -> Block:
        """A block of a snapshot."""
        arrays = [column if isinstance(column, pa.Array) else pa.array(column) for column in columns]
        return Block(len(arrays[0]), stream_of(pa.RecordBatch.from_arrays(arrays, names=self._column_names)))


class _TableRows(Rows):
    """The rows of a table at the moment a snapshot begins; numbers that no row has are left out.

    Args:
        table: the rows.
        count: their numbers are below it.
    """

    def __init__(self, table: RowTable, count: int) -> None:
        super().__init__(count)
        self._table = table
        self._marks.values[np.flatnonzero(table.lists.owners.values[:count] == 0)] = DONE

    def leave_out(self, rows: Ints) -> None:
        """Note that rows are new."""
        if not self.closed:
            self._marks.values[rows[rows < self._count]] = DONE

    @override
    def copy(self, positions: Ints) -> Columns:
        return self._table.written_columns(positions)

    @override
    def write(self, positions: Ints, columns: Columns) -> Block:
        return self._table.block(columns)


class _ContentIndex:
    """Finds rows of slots by content.

    Args:
        table: the rows.
    """

    def __init__(self, table: RowTable) -> None:
        self._table = table
        self._index, self._lists = KeyIndex([pa.int64()]), SlotLists()
        rows = table.all_rows()
        for start in range(0, len(rows), _PIECE):
            piece = rows[start : start + _PIECE]
            columns = table.take(piece)
            hashes = content_hashes(columns) if columns else np.zeros(len(piece), np.int64)
            self.add(table.slots_of(piece), piece, hashes)

    @property
    def nbytes(self) -> int:
        return self._index.nbytes + self._lists.nbytes

    def add(self, slots: Ints, rows: Ints, hashes: Ints) -> None:
        """Note new rows of slots."""
        self._lists.append(self._index.slots([self._key(slots, hashes)]), rows)

    def remove(self, rows: Ints) -> None:
        """Forget rows."""
        self._index.release(self._lists.remove(rows))

    def match(self, slots: Ints, hashes: Ints, columns: Sequence[pa.Array]) -> Ints:
        """A row of each slot with this content; -1 where there is none."""
        buckets = np.where(slots >= 0, self._index.find([self._key(slots, hashes)]), -1)
        # Of equal rows in the batch the first gets the first row of the bucket, the second the next one.
        order = np.argsort(buckets, kind="stable")
        starts, counts = runs(buckets[order])
        numbers = np.empty(len(order), np.int64)
        numbers[order] = spread(np.zeros(len(starts), np.int64), counts)
        rows = self._lists.nth(buckets, numbers)
        known = np.flatnonzero(rows >= 0)
        is_right = self._is_right(slots[known], [column.take(pa.array(known)) for column in columns], rows[known])
        wrong = known[~is_right]
        if wrong.size:
            # Different rows have one hash, which happens to one of 2 ** 64 pairs: look at each row of their buckets.
            rows[np.isin(buckets, buckets[wrong])] = -1
            used: set[int] = set()
            for position in np.flatnonzero((rows < 0) & np.isin(buckets, buckets[wrong])).tolist():
                rows[position] = self._search(buckets[position], slots[position], columns, position, used)
        return rows

    def _search(self, bucket: int, slot: int, columns: Sequence[pa.Array], position: int, used: set[int]) -> int:
        _, candidates = self._lists.gather(np.array([bucket]))
        for row in candidates.tolist():
            content = [column.slice(position, 1) for column in columns]
            if row not in used and self._is_right(np.array([slot]), content, np.array([row])).all():
                used.add(row)
                return int(row)
        return -1

    def _is_right(self, slots: Ints, columns: Sequence[pa.Array], rows: Ints) -> npt.NDArray[Any]:
        is_same_slot: npt.NDArray[np.bool_] = self._table.slots_of(rows) == slots
        return is_same_slot & equal_rows(self._table.take(rows), columns) if columns else is_same_slot

    @staticmethod
    def _key(slots: Ints, hashes: Ints) -> pa.Array:
        """One word for a slot and the hash of a content."""
        return pa.array(hashes ^ (slots * np.int64(-7046029254386353131)))
