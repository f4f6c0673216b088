"""State with any number of rows for each key: the rows of a join's input, of a partition, of a collection.

A key has a slot, a slot has a list of row numbers, and a row's values stand in arrays under its number. Numbers of rows
that were dropped are given to later ones. A row that is deleted is found by a hash of its content, in an index that is
built when the first one is looked for: tables that only grow have none.

It is state of a backend whose chunks are streams of Arrow with the columns of the key, then those of the rows, and then
the numbers that the operator keeps beside each row. Rows that change while a snapshot runs are copied first. A snapshot
of changes has the rows that changed, each with its number behind the other columns, and a list of the numbers that have
no row any more: a row with a number replaces the one that had it in the snapshot before.

**Time-to-live.** Beside each row stands when it was written last. Expired rows are dropped when their keys are looked
up, so nobody sees them, and by a cursor that checks a bounded number of rows before each batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from firesteel.core.errors import StateMigrationError
from firesteel.state.columnar.growing import GrowingArray
from firesteel.state.columnar.key_index import KeyIndex
from firesteel.state.columnar.row_columns import row_column
from firesteel.state.columnar.row_contents import content_hashes, equal_rows
from firesteel.state.columnar.slot_lists import SlotLists, runs, spread
from firesteel.state.columnar.snapshots import (
    DONE,
    REMOVED,
    AttachedColumns,
    Columns,
    GroupsOf,
    OutgoingRows,
    Rows,
    stream_of,
)
from firesteel.state.columnar.store import described, lost, one_group, types_of
from firesteel.state.snapshots import SEVERAL, Block, StateChunk, StateInfo

Ints = npt.NDArray[np.int64]


def unique_names(names: Sequence[str]) -> list[str]:
    """Names of columns, where one that occurs again gets its number."""
    seen: Counter[str] = Counter()
    unique: list[str] = []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return unique


def _former_name(name: str, among: Collection[str]) -> str | None:
    """The name of a column in a snapshot, some of which have its place in front: ``0.price``; None = it has none."""
    if name in among:
        return name
    return next((former for former in among if former.partition(".")[2] == name and former[:1].isdigit()), None)


ROWS: Final = "rows"
"""Kind of the state in snapshots."""
_PIECE: Final = 1 << 14
"""Rows whose contents are hashed together when the index of contents is built."""
_WRITTEN: Final = "written"
"""Number beside each row of a table with a time-to-live: when it was written last, epoch ms."""
_NUMBERED: Final = "numbered"
"""Key of a schema in snapshots: the last column is the number of each row."""
_ROW_NUMBER: Final = "row"
_NEVER: Final = 1 << 62
_LEAST_SWEPT: Final = 1024
_SWEPT_PER_ROW: Final = 4
"""Rows checked for their time-to-live before each batch, at least and for each of its rows: more than can be added."""
_NO_ROWS: Final = np.empty(0, np.int64)


@dataclass(frozen=True)
class RowLife:
    """Time-to-live of the rows of a table.

    Attributes:
        ttl: ms from the last write of a row until it expires.
        now: the clock, epoch ms.
    """

    ttl: int
    now: Callable[[], int]


class RowTable(AttachedColumns):
    """Rows by key.

    Slots stay valid until ``slots`` is called again: it forgets the keys that have no rows any more. A number of a row
    stays valid until the row is dropped. Tables with a time-to-live, and those on disk, also let rows go at
    ``begin_batch``, and expired ones of keys that are looked up; ``on_leaving`` says which.

    Args:
        name: of the state, in snapshots and errors.
        key_types: of the key's columns.
        schema: of the rows; NULL is allowed everywhere. State is found again by the names of its columns.
        numbers: names of the numbers beside each row, 0 at first; ``touch`` comes before they are written.
        groups_of: computes the key groups of keys, which come as columns.
        key_groups: those that the subtask owns.
        life: time-to-live of the rows; None = they stay until they are dropped.

    Attributes:
        index: the slots of keys.
        lists: the rows of slots.
        numbers: beside the rows, by name and row.
        life: time-to-live of the rows.
        expired: number of rows that have expired.
        mark: number that later changes are marked with; goes up with each snapshot.
        on_expiry: called with rows that expire, before they go.
        on_leaving: called with rows that expire or leave memory, before they go.
        on_arrival: called with rows that came back into memory.
    """

    def __init__(
        self,
        name: str,
        key_types: Sequence[pa.DataType],
        schema: pa.Schema,
        numbers: Sequence[str] = (),
        groups_of: GroupsOf = one_group,
        key_groups: range = range(1),
        life: RowLife | None = None,
    ) -> None:
        numbers = [*numbers, *([_WRITTEN] if life is not None else [])]
        names = unique_names([field.name for field in schema])
        columns = {name: field.type for name, field in zip(names, schema, strict=True)}
        kinds = {f".{number}": pa.int64() for number in numbers}
        self._types = columns | kinds
        info = StateInfo(name, ROWS, described(key_types, columns | kinds), ttl=life is not None)
        super().__init__(info, len(key_types), groups_of, key_groups)
        self.name, self.key_types, self.schema = name, tuple(key_types), schema
        self._column_names = [f"key{position}" for position in range(len(key_types))] + [*columns, *kinds]
        self._number_names = tuple(numbers)
        self.life, self.expired, self.mark = life, 0, 1
        self._time = 0 if life is None else life.now()
        self.on_expiry: Callable[[Ints], None] = _ignore
        self.on_leaving: Callable[[Ints], None] = _ignore
        self.on_arrival: Callable[[Ints], None] = _ignore
        self._rows: _TableRows | None = None  # of the snapshot that is being written
        self._create()

    def _create(self) -> None:
        self.index, self.lists = KeyIndex(self.key_types), SlotLists()
        self._columns = [row_column(field.type) for field in self.schema]
        self.numbers: Mapping[str, GrowingArray] = {name: GrowingArray(np.int64) for name in self._number_names}
        self._contents: _ContentIndex | None = None
        self._emptied: list[Ints] = []  # slots without rows, whose keys are to be forgotten
        self._free: list[Ints] = []  # numbers of dropped rows
        self._capacity = self._swept = 0
        self._changed: GrowingArray | None = None  # mark of the last change of each row number
        self._restored: GrowingArray | None = None  # row of each number of the former subtask, plus one
        self.size = 0

    @property
    def declared_columns(self) -> dict[str, str]:
        """Types of the columns, by name."""
        return {name: str(data_type) for name, data_type in self._types.items()}

    @property
    def nbytes(self) -> int:
        """Bytes in use; of nested values only the references count."""
        parts = sum(column.nbytes for column in self._columns) + self.lists.nbytes + self.index.nbytes
        contents = 0 if self._contents is None else self._contents.nbytes
        changed = 0 if self._changed is None else 4 * self._capacity
        return parts + contents + changed + 8 * self._capacity * len(self.numbers)

    # -- rows

    def begin_batch(self, rows: int) -> None:
        """Note that a batch of rows comes: the time of the table is now, and some rows that have expired go.

        All rows of keys that are looked up later in the batch stay until the next one.
        """
        if self.life is None:
            return
        self._time = self.life.now()
        start = self._swept
        stop = min(start + max(_LEAST_SWEPT, _SWEPT_PER_ROW * rows), self._capacity)
        self._swept = 0 if stop == self._capacity else stop
        written = self.numbers[_WRITTEN].values[start:stop]
        is_expired = (self.lists.owners.values[start:stop] > 0) & (written <= self._time - self.life.ttl)
        self._expire(np.flatnonzero(is_expired) + start)

    def _expire(self, rows: Ints) -> None:
        if len(rows):
            self.on_expiry(rows)
            self.on_leaving(rows)
            self.expired += len(rows)
            self.drop(rows)

    def hold(self, rows: Ints) -> None:
        """Let new rows stay until they are written again."""
        if self.life is not None:
            self.numbers[_WRITTEN].set(rows, _NEVER)

    def drop_expired(self, slots: Ints) -> None:
        """Drop the expired rows of slots."""
        if self.life is not None:
            _, rows = self.lists.gather(np.unique(slots[slots >= 0]))
            self._expire(rows[self.numbers[_WRITTEN].get(rows) <= self._time - self.life.ttl])

    def slots(self, keys: Sequence[pa.Array]) -> Ints:
        """Slot of each key, to add rows to."""
        self._release_emptied()
        slots = self.index.slots(keys)
        self.drop_expired(slots)
        return slots

    def _release_emptied(self) -> None:
        """Forget the keys that have no rows any more."""
        if self._emptied:
            slots = np.unique(np.concatenate(self._emptied))
            self._emptied = []
            self.index.release(self._forgettable(slots[self.lists.counts(slots) == 0]))

    def _forgettable(self, slots: Ints) -> Ints:
        """Those of slots without rows whose keys may be forgotten."""
        return slots

    def forget_unused(self, slots: Ints) -> None:
        """Note slots to which no rows may have been added: the keys of those without any are forgotten."""
        self._emptied.append(slots)

    def find(self, keys: Sequence[pa.Array]) -> Ints:
        """Slot of each key; -1 for keys without rows, which may also have a slot that is empty."""
        slots = self.index.find(keys)
        self.drop_expired(slots)
        return slots

    def add(self, slots: Ints, columns: Sequence[pa.Array]) -> Ints:
        """Add rows to slots; returns their numbers."""
        rows = self._take_numbers(len(slots))
        if self._rows is not None:
            self._rows.leave_out(rows)
        for column, values in zip(self._columns, columns, strict=True):
            column.set(rows, values)
        for numbers in self.numbers.values():
            numbers.set(rows, 0)
        if self.life is not None:
            self.numbers[_WRITTEN].set(rows, self._time)
        if self._changed is not None:
            self._changed.set(rows, self.mark)
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
        self.touch(rows, is_write=False)
        self._emptied.append(self._remove(rows))

    def _remove(self, rows: Ints) -> Ints:
        """Remove rows from memory; returns the slots that have none any more."""
        if self._contents is not None:
            self._contents.remove(rows)
        emptied = self.lists.remove(rows)
        for column in self._columns:
            column.clear(rows)
        self._free.append(rows)
        self.size -= len(rows)
        return emptied

    def rows_of(self, slots: Ints) -> tuple[Ints, Ints]:
        """All rows of slots: for each the position of its slot in ``slots``, and its number; a slot -1 has none."""
        return self.lists.gather(slots)

    def slots_of(self, rows: Ints) -> Ints:
        """The slot of each row."""
        return self.lists.owners.get(rows).astype(np.int64) - 1

    def all_rows(self) -> Ints:
        """Numbers of all rows in memory."""
        return np.flatnonzero(self.lists.owners.values[: self._capacity])

    def highest(self, number: str) -> int:
        """The highest value of a number beside rows, also of rows that are not in memory; -1 without rows."""
        return int(self.numbers[number].get(self.all_rows()).max(initial=-1))

    def take(self, rows: Ints, places: Sequence[int] | None = None) -> list[pa.Array]:
        """Columns of rows; those at some places of the schema if these are named."""
        columns = self._columns if places is None else [self._columns[place] for place in places]
        return [column.take(rows) for column in columns]

    def touch(self, rows: Ints, *, is_write: bool = True) -> None:
        """Prepare rows for a change of their numbers.

        Args:
            rows: that change.
            is_write: the life of the rows begins anew.
        """
        if self._rows is not None:
            self._rows.save(rows)
        if self._changed is not None:
            self._changed.set(rows, self.mark)
        if is_write and self.life is not None:
            self.numbers[_WRITTEN].set(rows, self._time)

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
            if self._changed is not None:
                self._changed.ensure(self._capacity)
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    # -- snapshots

    def track_changes(self) -> None:
        """Track changes from now on, for snapshots of changes only; everything that exists counts as changed."""
        if self._changed is None:
            self._changed = GrowingArray(np.int32, self._capacity)
            self._changed.values[:] = self.mark

    def changed(self, since: int) -> int | None:
        """Number of changes since the snapshot of a mark; None = unknown."""
        if self._changed is None:
            return None
        return int(np.count_nonzero(self._changed.values[: self._capacity] > since))

    def forget_changes(self, last_mark: int) -> None:
        """Note that no later snapshot asks for changes since an earlier mark; nothing is remembered for that."""

    @override
    def outgoing(self, since: int | None = None, *, is_base: bool = False) -> OutgoingRows:
        """Begin to write the current state.

        Args:
            since: write only what has changed after the snapshot of this mark.
            is_base: later snapshots may hold only what has changed since this one.
        """
        is_numbered, first = is_base or since is not None, list[Block]()
        info = replace(self.info, schema={**self.info.schema, _NUMBERED: True}) if is_numbered else self.info
        states, names = [info], self._column_names
        rows = _TableRows(self, self._capacity, since, names=[*names, _ROW_NUMBER] if is_numbered else names)
        if is_numbered:  # the states of all snapshots that build on each other have one order
            states.append(StateInfo(self.name, REMOVED, {_NUMBERED: True}))
        if since is not None:
            gone = rows.gone()
            batch = pa.RecordBatch.from_arrays([pa.array(gone, pa.int32())], names=[_ROW_NUMBER])
            first.append(Block(len(gone), stream_of(batch), 1))
        self._rows = rows
        self.mark += 1
        return OutgoingRows(states, [rows], iter(first), on_end=self._ended)

    def _ended(self) -> None:
        self._rows = None

    @override
    def expect(self, info: StateInfo) -> None:
        """Check a restored schema: columns are found by name, and may go, but none may come: rows lack its values.

        Raises:
            StateMigrationError: a column is not there, or has values that are not of its type.
        """
        if info.kind == REMOVED:
            return
        was, now = info.schema.get("keys"), self.info.schema["keys"]
        if was != now:
            raise StateMigrationError(self.name, "", f"its keys were {was}, and are {now}")
        before, types_before = info.schema.get("columns", {}), types_of(info.schema)
        for name, data_type in self._types.items():
            if name == f".{_WRITTEN}":  # a time-to-live may come and go between two runs
                continue
            former = _former_name(name, before)
            if former is None:
                raise StateMigrationError(
                    self.name, name, "the rows of before do not have it", "leave it out, or begin without this state"
                )
            type_before = types_before.get(former)
            if type_before is None and before[former] == str(data_type):
                continue
            loss = (name, f"its values were {before[former]}, are {data_type}")
            if type_before is None or lost(type_before, data_type, name) is not None:
                raise StateMigrationError(self.name, *loss)

    @override
    def take_back(self, info: StateInfo, chunk: StateChunk) -> None:
        with pa.ipc.open_stream(chunk.data) as reader:
            for batch in reader:
                if _NUMBERED not in info.schema:
                    own = self._own(batch) if chunk.key_group == SEVERAL else batch
                    self.take_rows(info, own)
                    continue
                if self._restored is None:
                    self._restored = GrowingArray(np.int32)
                restored, last = self._restored, batch.num_columns - 1
                self._drop_restored(restored, batch.column(last).to_numpy().astype(np.int64))
                if info.kind != REMOVED:
                    own = self._own(batch)
                    rows = self._take_rows(own.select(range(last)))
                    numbers = own.column(last).to_numpy().astype(np.int64)
                    restored.ensure(int(numbers.max(initial=-1)) + 1)
                    restored.set(numbers, rows + 1)

    @override
    def taken_back(self) -> None:
        self._restored = None

    def _drop_restored(self, restored: GrowingArray, numbers: Ints) -> None:
        """Drop the rows that have these numbers in earlier snapshots of the former subtask."""
        numbers = numbers[numbers < len(restored)]
        rows = restored.get(numbers).astype(np.int64) - 1
        self.drop(rows[rows >= 0])
        restored.set(numbers, 0)

    @override
    def take_rows(self, info: StateInfo, batch: pa.RecordBatch) -> None:
        self._take_rows(batch)

    def _take_rows(self, batch: pa.RecordBatch) -> Ints:
        """Add restored rows of own keys; returns their numbers."""
        if not batch.num_rows:
            return _NO_ROWS
        width = len(self.key_types)
        columns: list[pa.Array] = []
        for name, data_type in self._types.items():
            former = _former_name(name, batch.schema.names)
            # Rows that were written without a time-to-live count as written now.
            if former is not None:
                column = batch.column(former)
                columns.append(column if column.type == data_type else column.cast(data_type))
        end = len(self._columns)
        rows = self.add(self.slots(batch.columns[:width]), columns[:end])
        for name, column in zip(self.numbers, columns[end:], strict=False):
            self.numbers[name].set(rows, column.to_numpy(zero_copy_only=False))
        return rows

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

    def changed_since(self, since: int) -> npt.NDArray[np.bool_]:
        """Which row numbers have changed after the snapshot of a mark."""
        assert self._changed is not None
        changed: npt.NDArray[np.bool_] = self._changed.values[: self._capacity] > since
        return changed


def _ignore(rows: Ints) -> None:
    """Do nothing about rows that come or go."""


class _TableRows(Rows):
    """The rows of a table at the moment a snapshot begins; numbers that no row has are left out.

    Args:
        table: the rows.
        count: their numbers are below it.
        since: only rows that changed after the snapshot of this mark are written; None = all.
        names: of the columns, with the number of each row if there is one more.
    """

    def __init__(self, table: RowTable, count: int, since: int | None, names: Sequence[str]) -> None:
        super().__init__(count)
        self._table, self._names = table, names
        is_free = table.lists.owners.values[:count] == 0
        is_changed = None if since is None else table.changed_since(since)
        self._gone = _NO_ROWS if is_changed is None else np.flatnonzero(is_free & is_changed)
        self._marks.values[np.flatnonzero(is_free if is_changed is None else is_free | ~is_changed)] = DONE

    def gone(self) -> Ints:
        """Numbers that have changed, and that no row has."""
        return self._gone

    def leave_out(self, rows: Ints) -> None:
        """Note that rows are new."""
        if not self.closed:
            self._marks.values[rows[rows < self._count]] = DONE

    @override
    def copy(self, positions: Ints) -> Columns:
        return self._table.written_columns(positions)

    @override
    def write(self, positions: Ints, columns: Columns) -> Block:
        arrays = [column if isinstance(column, pa.Array) else pa.array(column) for column in columns]
        if len(self._names) > len(arrays):
            arrays.append(pa.array(positions, pa.int32()))
        return Block(len(arrays[0]), stream_of(pa.RecordBatch.from_arrays(arrays, names=list(self._names))))


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
        """Forget some rows, which exist."""
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
