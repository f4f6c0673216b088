"""State in columns on disk, with the rows that are in use in arrays in front of it.

The arrays are those of ``state/columnar/store.py``; here they hold as many keys as memory allows. Keys that are not in
them are looked up in the database, those of a batch together. Where room is needed a hand goes round the slots, and
takes those that nobody has used since it was there two rounds ago; what was changed is written then, sorted. As long as
everything fits, the database is written to at checkpoints only, and never read.

For a snapshot the rows that have changed are written to the database some at a time; those that are about to change
before are copied. Until the files are linked nothing else is written: only rows that are as in the database leave
memory, and where it would be too much the task waits.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from firesteel.state.columnar.growing import GrowingArray
from firesteel.state.columnar.snapshots import COLUMNS, Columns, GroupsOf, Rows, stream_of
from firesteel.state.columnar.store import ColumnarState, SlotCursor, described
from firesteel.state.columnar.values import StateColumn
from firesteel.state.snapshots import Block, StateInfo
from firesteel_rocksdb.column_rows import KeyBytes, RowLayout, layout_of, with_layout
from firesteel_rocksdb.database import Pair, RocksDatabase
from firesteel_rocksdb.table import TableStore, moved, range_of

Ints = npt.NDArray[np.int64]

_WINDOW: Final = 8192
"""Slots that the hand looks at in one go."""
_SLOT: Final = 40
"""Bytes of a slot beyond its key and its values: hash table, marks, copies."""
_OBJECT: Final = 80
"""Bytes of a value that is no number, beyond those that it is written as."""
_PIECE: Final = 4096
"""Rows that are read or written in one go."""
_REMOVED: Final = 4096
"""So many keys that were removed are remembered before the database is told."""
_SWEPT: Final = 256
"""Rows on disk that are looked at together as state is cleaned up."""


class ColumnsOnDisk(ColumnarState):
    """The state of one operator of one subtask.

    Args:
        name: of the state, in snapshots and errors.
        key_types: of the key's columns.
        groups_of: the key groups of keys, given as columns.
        key_groups: those that the subtask owns.
        opened: opens the database.

    Attributes:
        number: of the state in the database.
    """

    evicts: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        key_types: Sequence[pa.DataType],
        groups_of: GroupsOf,
        key_groups: range,
        opened: Callable[[], TableStore],
    ) -> None:
        super().__init__(name, key_types, groups_of, key_groups)
        self.track_changes()  # of a slot that is as in the database the mark is 0
        self.number = 0
        self._opened = opened
        self._home: TableStore | None = None
        self._keys = KeyBytes(key_types)
        self._layouts: list[RowLayout] = []
        self._fills: dict[str, int] = {}
        self._whole = True  # everything is in memory
        self._gone: dict[bytes, None] = {}  # keys that were removed, of which the database does not know
        self._leaving: dict[bytes, None] = {}  # those of the snapshot that is made
        self._used = GrowingArray(np.int32)  # in which call a slot was used last
        self._tick = self._hand = self._lap = self._lap_before = 0
        self._shown: list[tuple[str, pa.DataType]] = []  # the columns of a snapshot
        self._object_bytes = 0.0
        self._limit = 0
        self._limited_at = 0

    # -- where it is

    def home(self) -> TableStore:
        """Where it is kept; opened when it is not."""
        if self._home is None:
            self._home = self._opened()
            self.number = self._home.add_columns(self)
        return self._home

    @property
    def _database(self) -> RocksDatabase:
        return self.home().database

    @property
    def limit(self) -> int:
        """How many keys may be in memory."""
        store = self.home()
        if self._limit and self._limited_at == store.shares:
            return self._limit
        numbers = sum(column.codec.dtype.itemsize for column in self.columns.values() if column.codec.fixed)
        objects = sum(not column.codec.fixed for column in self.columns.values())
        each = _SLOT + 8 * len(self.index.words) + numbers + objects * (_OBJECT + 2 * self._object_bytes)
        self._limit, self._limited_at = max(int(store.share // each), 1), store.shares
        return self._limit

    # -- keys

    def slots(self, columns: Sequence[pa.Array]) -> Ints:
        """See ``ColumnarState``; those of earlier calls are not valid any more."""
        self._tick += 1
        self._bring(columns)
        slots = super().slots(columns)
        self._used.set(slots, self._tick)
        return slots

    def find(self, columns: Sequence[pa.Array]) -> Ints:
        """See ``ColumnarState``; the slots of earlier calls are not valid any more."""
        self._tick += 1
        return self._bring(columns, new=False)

    def _bring(self, columns: Sequence[pa.Array], *, new: bool = True) -> Ints:
        """Read the rows of keys that are not in memory, and make room; the slots of those that are there then."""
        found = self.index.find(columns)
        missing = np.flatnonzero(found < 0)
        self._used.set(found if not missing.size else found[found >= 0], self._tick)
        if not missing.size:
            return found
        if self._whole and (not new or self.index.size + len(missing) <= self._most_in_memory()):
            return found
        columns = [column.take(pa.array(missing)) for column in columns]
        home = self.home()
        groups = self._groups_of(columns)
        places = self._keys.of(self.number, columns, groups)
        row_of = dict(zip(places, range(len(places)), strict=True))
        wanted = sorted(row_of)
        if new:
            self._make_room_for(len(wanted))
        if self._whole:
            return found
        if self._gone or self._leaving:
            wanted = [place for place in wanted if place not in self._gone and place not in self._leaving]
        values = home.database.get_many(wanted)
        there = [(place, value) for place, value in zip(wanted, values, strict=True) if value is not None]
        if not there:
            return found
        if not new:
            self._make_room_for(len(there))
        rows = np.fromiter((row_of[place] for place, _ in there), np.int64, len(there))
        at = pa.array(rows)
        self._load([column.take(at) for column in columns], groups[rows], [value for _, value in there])
        found[missing] = self.index.find(columns)
        return found

    def _most_in_memory(self) -> int:
        """Without opening a database for a handful of keys."""
        return self.limit if self._home is not None or self.index.size >= _PIECE else _PIECE

    def _load(self, columns: Sequence[pa.Array], groups: Any, values: Sequence[bytes]) -> None:
        """Put rows of the database into slots."""
        slots = self.index.slots(columns)
        if self.index.capacity > self._room:
            self._make_room(self.index.capacity)
        if self._rows is not None:
            self._rows.save(slots)
        assert self._changed is not None
        self._changed.set(slots, 0)
        self._owner.set(slots, groups + 1)
        self._used.set(slots, self._tick)
        self._unpack(values, slots, self.columns)

    def _unpack(self, values: Sequence[bytes], slots: Ints, columns: Mapping[str, StateColumn]) -> None:
        """Put rows of any layout into slots of columns."""
        numbers = {layout_of(value) for value in values}
        for number in numbers:
            if len(numbers) == 1:
                self._unpack_layout(self._layouts[number], values, slots, columns)
            else:
                rows = [row for row, value in enumerate(values) if layout_of(value) == number]
                self._unpack_layout(self._layouts[number], [values[row] for row in rows], slots[rows], columns)

    def _unpack_layout(
        self, layout: RowLayout, values: Sequence[bytes], slots: Ints, columns: Mapping[str, StateColumn]
    ) -> None:
        there = set()
        for (name, _), codec, numbers in zip(layout.fields, layout.codecs, layout.read(values), strict=True):
            there.add(name)
            column = columns.get(name)
            if column is None:
                continue
            wanted = column.codec
            if wanted.data_type != codec.data_type:
                numbers = wanted.numbers(codec.column(numbers, None).cast(wanted.data_type))
            column.set(slots, numbers)
        for name, value in self._fills.items():
            if name not in there and name in columns:
                columns[name].set(slots, value)

    def _make_room(self, capacity: int) -> None:
        super()._make_room(capacity)
        self._used.ensure(self._room)

    # -- values

    @override
    def column(self, name: str, data_type: pa.DataType) -> StateColumn:
        self._limit = 0
        return super().column(name, data_type)

    def fill(self, column: StateColumn, value: int) -> None:
        """See ``ColumnarState``; rows on disk get it as they are read."""
        super().fill(column, value)
        if not self._whole:
            self._fills[column.name] = value

    @override
    def pieces(self) -> Iterator[Ints]:
        if self._whole:
            yield self.in_use()
            return
        home = self.home()
        home.wait_until_free()
        self._write_changed()
        start, stop = range_of(self.number, self._key_groups)
        while found := home.database.read(start, stop, _PIECE):
            slots = self.find(self._keys.columns([place for place, _ in found]))
            yield slots[slots >= 0]
            start = found[-1][0] + b"\0"

    @override
    def cursor(self) -> SlotCursor:
        return _DiskCursor(self)

    def read_behind(self, place: bytes) -> tuple[bytes, Ints]:
        """The slots of some rows on disk behind a place, which are in memory then, and the place behind them."""
        if self._whole:
            return b"", np.empty(0, np.int64)
        start, stop = range_of(self.number, self._key_groups)
        found = self._database.read(max(start, place), stop, _SWEPT)
        if not found:
            return b"", np.empty(0, np.int64)
        slots = self.find(self._keys.columns([place for place, _ in found]))
        return (found[-1][0] + b"\0" if len(found) == _SWEPT else b""), slots[slots >= 0]

    # -- leaving memory

    def _make_room_for(self, count: int) -> None:
        over = self.index.size + count - self.limit
        if over <= 0:
            return
        home = self.home()
        if not home.free and (over > self.limit // 4 or len(self._gone) > self.limit):
            home.wait_until_free()
        free = home.free
        if free:
            self._forget_removed()  # before rows of the same keys are written
        self._evict(min(over, self.index.size), free)

    def _evict(self, count: int, free: bool) -> None:
        """So many keys leave memory; none of those that are used in this call."""
        assert self._changed is not None
        parts: list[Ints] = []
        rounds = 0
        while count > 0 and rounds < 3:
            start, stop = self._hand, min(self._hand + _WINDOW, self.index.capacity)
            out = self._owner.values[start:stop] > 0
            out &= self._used.values[start:stop] < self._lap_before
            if not free:
                out &= self._changed.values[start:stop] == 0
            found = np.flatnonzero(out)[:count] + start
            if found.size:
                parts.append(found)
                count -= len(found)
            self._hand = stop if count else int(found[-1]) + 1
            if self._hand >= self.index.capacity:
                self._hand, rounds = 0, rounds + 1
                self._lap_before, self._lap = self._lap, self._tick
        if not parts:
            return
        slots = np.unique(np.concatenate(parts))
        changed = slots[self._changed.get(slots) > 0]
        if changed.size:
            self._write(changed)
        if self._rows is not None:
            self._rows.save(slots)
        self.index.release(slots)
        self._owner.set(slots, 0)
        for column in self.columns.values():
            column.clear(slots)
        self._whole = False

    def _write_changed(self) -> None:
        """Everything that has changed."""
        assert self._changed is not None
        self._forget_removed()
        slots = self.in_use()
        slots = slots[self._changed.get(slots) > 0]
        for start in range(0, len(slots), _PIECE):
            self._write(slots[start : start + _PIECE])

    def _write(self, slots: Ints) -> None:
        assert self._changed is not None
        columns = [column.get(slots) for column in self.columns.values()]
        self.put(self.index.keys(slots), self._owner.get(slots), self.layout_of_now(), columns)
        self._changed.set(slots, 0)

    def put(
        self, keys: Sequence[pa.Array], owners: Any, layout: RowLayout, columns: Sequence[npt.NDArray[Any]]
    ) -> None:
        """Write rows to the database."""
        database = self._database
        places = self._keys.of(self.number, keys, owners.astype(np.int32) - 1)
        rows = layout.write(columns) if layout.fields else [with_layout(b"\0\0", layout.number)] * len(places)
        if len(layout.fields) > sum(codec.fixed for codec in layout.codecs):
            size = sum(map(len, rows)) / len(rows)
            self._object_bytes, self._limit = max(self._object_bytes, size), 0
        pairs: list[Pair] = sorted(zip(places, rows, strict=True))
        for start in range(0, len(pairs), _PIECE):
            database.write(pairs[start : start + _PIECE])

    def layout_of_now(self) -> RowLayout:
        """That of the columns of now."""
        return self.layout([(name, column.codec.data_type) for name, column in self.columns.items()])

    def layout(self, fields: list[tuple[str, pa.DataType]]) -> RowLayout:
        """That of some fields; a new one if there is none."""
        for known in reversed(self._layouts):
            if known.fields == fields:
                return known
        self._layouts.append(RowLayout(len(self._layouts), fields))
        return self._layouts[-1]

    def _remember_removed(self, slots: Ints) -> None:
        if self._home is None:
            return
        places = self._keys.of(self.number, self.index.keys(slots), self._owner.get(slots).astype(np.int32) - 1)
        self._gone.update(dict.fromkeys(places))
        if len(self._gone) > _REMOVED and self._home.free:
            self._forget_removed()

    def _forget_removed(self) -> None:
        """Tell the database which keys were removed."""
        gone = list(self._gone)
        for start in range(0, len(gone), _PIECE):
            self._database.write([(place, None) for place in gone[start : start + _PIECE]])
        self._gone.clear()

    # -- snapshots

    def begin(self) -> ChangedSlots:
        """What has changed until now, on its way into the database."""
        assert self._changed is not None
        schema = described(self.key_types, {name: column.codec.data_type for name, column in self.columns.items()})
        self.info = StateInfo(self.name, COLUMNS, schema)
        self._shown = [(name, column.codec.data_type) for name, column in self.columns.items()]
        rows = ChangedSlots(self, self.index, self._owner, list(self.columns.values()), self._changed, self.mark)
        self._leaving, self._gone = self._gone, {}
        self.index.hold()
        self._rows = rows
        self.mark += 1
        return rows

    def write_removed(self, most: int) -> bool:
        """Tell the database of some keys that had been removed when the snapshot began; whether there are any."""
        some = list(self._leaving)[:most]
        if not some:
            return False
        self._database.write([(place, None) for place in some])
        for place in some:
            del self._leaving[place]
        return True

    def written(self, slots: Ints, mark: int) -> None:
        """The rows of slots are in the database as they were when a snapshot began."""
        assert self._changed is not None
        self._changed.set(slots[self._changed.get(slots) <= mark], 0)

    def end(self) -> None:
        """The snapshot is in the database, or was given up."""
        if self._rows is not None:
            self._rows.close()
            self._ended()
        self._gone = {**self._leaving, **self._gone}
        self._leaving = {}

    def to_json(self) -> dict[str, Any]:
        """What files have to say beside the rows."""
        schemas = [pa.schema(layout.fields).serialize().to_pybytes() for layout in self._layouts]
        return {"layouts": [base64.b64encode(data).decode() for data in schemas], "fills": self._fills}

    def stream_of(self, entries: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Rows of the database as a chunk has them: with the columns that a snapshot began with."""
        columns = {name: StateColumn(name, data_type, len(entries)) for name, data_type in self._shown}
        at = np.arange(len(entries))
        self._unpack([row for _, row in entries], at, columns)
        arrays = self._keys.columns([place for place, _ in entries])
        names = [*(f"key{position}" for position in range(len(arrays))), *columns]
        arrays += [column.codec.column(column.get(at), None) for column in columns.values()]
        return stream_of(pa.RecordBatch.from_arrays(arrays, names=names))

    # -- restoring

    def take_files(self, home: TableStore, number: int, plain: dict[str, Any]) -> None:
        """The rows are in a database already."""
        self._home, self.number = home, number
        home.add_columns(self, number)
        self._whole = False
        for fields in _fields_of(plain):
            self._layouts.append(RowLayout(len(self._layouts), fields))
        self._take_columns(plain)

    def take_rows_of(self, plain: dict[str, Any]) -> Callable[[bytes, bytes], Pair]:
        """Rows of another database are about to be copied: what they are here."""
        self._whole = False
        self.home()
        numbers = [self.layout(fields).number for fields in _fields_of(plain)]
        self._take_columns(plain)
        return lambda place, row: (moved(place, self.number), with_layout(row, numbers[layout_of(row)]))

    def _take_columns(self, plain: dict[str, Any]) -> None:
        for fields in _fields_of(plain):
            self._check_aggregates({name: str(data_type) for name, data_type in fields})
            for name, data_type in fields:
                self._restored_column(name, data_type)
        self._fills.update(plain["fills"])

    def close(self) -> None:
        """Forget everything; idempotent."""
        super().close()
        self.track_changes()
        self._gone, self._leaving = {}, {}
        self._used = GrowingArray(np.int32)


def _fields_of(plain: dict[str, Any]) -> list[list[tuple[str, pa.DataType]]]:
    schemas = [pa.ipc.read_schema(pa.py_buffer(base64.b64decode(data))) for data in plain["layouts"]]
    return [[(field.name, field.type) for field in schema] for schema in schemas]


class _DiskCursor(SlotCursor):
    """Goes round the slots in memory, and at the same time round the rows on disk."""

    def __init__(self, state: ColumnsOnDisk) -> None:
        super().__init__(state)
        self._disk, self._place = state, b""

    def next(self, count: int) -> Ints:
        """The next ones; those of earlier calls are not valid any more."""
        self._place, read = self._disk.read_behind(self._place)
        return np.unique(np.concatenate([super().next(count), read]))


class ChangedSlots(Rows):
    """The slots of a moment that are not as in the database.

    Args:
        state: whose.
        index: the keys of slots.
        owner: who owns them.
        columns: their values.
        changed: when they were changed last.
        mark: later ones are those of what has changed since.
    """

    def __init__(
        self,
        state: ColumnsOnDisk,
        index: Any,
        owner: GrowingArray,
        columns: Sequence[StateColumn],
        changed: GrowingArray,
        mark: int,
    ) -> None:
        super().__init__(index.capacity)
        self._state, self._index, self._mark, self._layout = state, index, mark, state.layout_of_now()
        self._words, self._null_slot = len(index.words), index.null_slot
        self._arrays = [*index.words, owner, *(column.array for column in columns), changed]

    def copy(self, positions: Ints) -> Columns:
        return [array.get(positions) for array in self._arrays]

    def between(self, start: int, stop: int) -> Columns:
        return [array.values[start:stop] for array in self._arrays]

    def write(self, positions: Ints, columns: Columns) -> Block:
        wanted = (columns[self._words] > 0) & (columns[-1] > 0)
        if not wanted.all():
            positions, columns = positions[wanted], [column[wanted] for column in columns]
        if positions.size:
            keys = self._index.columns(columns[: self._words], positions == self._null_slot)
            self._state.put(keys, columns[self._words], self._layout, columns[self._words + 1 : -1])
            self._state.written(positions, self._mark)
        return Block(0, b"")
