"""State in columns on disk, with the rows that are in use in arrays in front of it.

The arrays are those of ``state/columnar/store.py``; here they hold as many keys as memory allows. Keys that are not in
the arrays are looked up in the database, all those of a batch together. To make room a clock hand goes round the slots
and evicts those that were not used in its last two rounds; changed rows are written then, sorted. As long as everything
fits, the database is written only at checkpoints and never read.

For a snapshot the changed rows are written to the database some at a time; rows that change again before their turn are
copied first. Until the files are linked nothing else is written: only rows that equal those of the database leave
memory, and the task waits when too much would have to stay.
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
"""Slots that the clock hand checks in one go."""
_SLOT: Final = 40
"""Bytes of a slot beyond its key and its values: hash table, marks, copies."""
_OBJECT: Final = 80
"""Bytes of a value that is no number, beyond its serialised size."""
_PIECE: Final = 4096
"""Rows that are read or written in one go."""
_REMOVED: Final = 4096
"""Removed keys that are remembered before they are deleted in the database."""
_DROPPED: Final = "dropped "
"""In front of the name of a column that rows on disk have, and nobody reads any more."""
_SWEPT: Final = 256
"""Rows on disk that are checked together for their time-to-live."""


class ColumnsOnDisk(ColumnarState):
    """Columns of one operator's state in one subtask, on disk.

    Args:
        name: of the state, in snapshots and errors.
        key_types: of the key's columns.
        groups_of: computes the key groups of keys, which come as columns.
        key_groups: those that the subtask owns.
        open_store: opens the database, or returns it if it is open.

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
        open_store: Callable[[], TableStore],
    ) -> None:
        super().__init__(name, key_types, groups_of, key_groups)
        self.track_changes()  # mark 0 = the slot's row equals that of the database
        self.number = 0
        self._open_store = open_store
        self._home: TableStore | None = None
        self._keys = KeyBytes(key_types)
        self._layouts: list[RowLayout] = []
        self._fills: dict[str, int] = {}
        self._whole = True  # everything is in memory
        self._removed_places: dict[bytes, None] = {}  # removed keys that the database still has
        self._places_leaving: dict[bytes, None] = {}  # those of them that the current snapshot is to delete
        self._used = GrowingArray(np.int32)  # tick at which a slot was last used
        self._tick = self._hand = self._lap = self._lap_before = 0
        self._shown: list[tuple[str, pa.DataType]] = []  # columns of the current snapshot
        self._object_bytes = 0.0
        self._limit = 0
        self._limited_at = 0

    # -- where it is

    def home(self) -> TableStore:
        """Store of the database, which is opened on first use."""
        if self._home is None:
            self._home = self._open_store()
            self.number = self._home.add_columns(self)
        return self._home

    @property
    def _database(self) -> RocksDatabase:
        return self.home().database

    @property
    def limit(self) -> int:
        """Number of keys that may be in memory."""
        store = self.home()
        if self._limit and self._limited_at == store.memory.shares:
            return self._limit
        numbers = sum(column.codec.dtype.itemsize for column in self.columns.values() if column.codec.fixed)
        objects = sum(not column.codec.fixed for column in self.columns.values())
        each = _SLOT + 8 * len(self.index.words) + numbers + objects * (_OBJECT + 2 * self._object_bytes)
        self._limit, self._limited_at = max(int(store.memory.share // each), 1), store.memory.shares
        return self._limit

    # -- keys

    def slots(self, columns: Sequence[pa.Array]) -> Ints:
        """Slots of keys, which get new ones where they have none. Slots that earlier calls returned are no longer
        valid.
        """
        self._tick += 1
        self._bring(columns)
        slots = super().slots(columns)
        self._used.set(slots, self._tick)
        return slots

    def find(self, columns: Sequence[pa.Array]) -> Ints:
        """Slots of keys, -1 for keys without state. Slots that earlier calls returned are no longer valid."""
        self._tick += 1
        return self._bring(columns, new=False)

    def _bring(self, columns: Sequence[pa.Array], *, new: bool = True) -> Ints:
        """Read rows of keys that are not in memory into slots, evicting others where there is no room.

        Args:
            columns: of the keys.
            new: keys that have no state get slots next, so that there must be room for them, too.

        Returns:
            The slots of the keys, -1 for those without state.
        """
        slots = self.index.find(columns)
        missing = np.flatnonzero(slots < 0)
        self._used.set(slots if not missing.size else slots[slots >= 0], self._tick)
        if not missing.size:
            return slots
        # Without rows on disk a missing key has no state; and as long as all keys fit, nothing has to leave memory.
        if self._whole and (not new or self.index.size + len(missing) <= self._most_in_memory()):
            return slots
        columns = [column.take(pa.array(missing)) for column in columns]
        home = self.home()
        groups = self._groups_of(columns)
        places = self._keys.encode(self.number, columns, groups)
        row_of = dict(zip(places, range(len(places)), strict=True))
        places_to_read = sorted(row_of)
        # Room first: to evict rows may make this state have rows on disk, some of these keys among them.
        if new:
            self._make_room_for(len(places_to_read))
        if self._whole:
            return slots
        # The database still has rows of keys that were removed here.
        if self._removed_places or self._places_leaving:
            places_to_read = [
                place
                for place in places_to_read
                if place not in self._removed_places and place not in self._places_leaving
            ]
        values = home.database.get_many(places_to_read)
        stored_rows = [(place, value) for place, value in zip(places_to_read, values, strict=True) if value is not None]
        if not stored_rows:
            return slots
        if not new:
            self._make_room_for(len(stored_rows))
        rows = np.fromiter((row_of[place] for place, _ in stored_rows), np.int64, len(stored_rows))
        positions = pa.array(rows)
        self._load([column.take(positions) for column in columns], groups[rows], [value for _, value in stored_rows])
        slots[missing] = self.index.find(columns)
        return slots

    def _most_in_memory(self) -> int:
        """Number of keys up to which all stay in memory; a handful of keys needs no database."""
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
        read_names = set()
        for (name, _), codec, numbers in zip(layout.fields, layout.codecs, layout.read(values), strict=True):
            read_names.add(name)
            column = columns.get(name)
            if column is None:
                continue
            target_codec = column.codec
            if target_codec.data_type != codec.data_type:
                numbers = target_codec.numbers(codec.column(numbers, None).cast(target_codec.data_type))
            column.set(slots, numbers)
        for name, value in self._fills.items():
            if name not in read_names and name in columns:
                columns[name].set(slots, value)

    def _make_room(self, capacity: int) -> None:
        super()._make_room(capacity)
        self._used.ensure(self._room)

    # -- values

    @override
    def column(self, name: str, data_type: pa.DataType) -> StateColumn:
        self._limit = 0
        return super().column(name, data_type)

    @override
    def drop_undeclared(self) -> None:
        """Drop restored columns that were not declared; rows on disk keep them under a name that nobody declares, so
        that a column which comes back under the same name later begins empty.
        """
        dropped = {name for name in self._unasked if not name.startswith(_DROPPED)}
        for layout in self._layouts:
            layout.fields[:] = [
                (f"{_DROPPED}{name}" if name in dropped else name, data_type) for name, data_type in layout.fields
            ]
        super().drop_undeclared()

    def fill(self, column: StateColumn, value: int) -> None:
        """Set a column in all rows; rows on disk get the value as they are read."""
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
        while entries := home.database.read(start, stop, _PIECE):
            slots = self.find(self._keys.decode([place for place, _ in entries]))
            yield slots[slots >= 0]
            start = entries[-1][0] + b"\0"

    @override
    def cursor(self) -> SlotCursor:
        return _DiskCursor(self)

    def read_behind(self, place: bytes) -> tuple[bytes, Ints]:
        """Read some rows behind a place on disk into memory: the place behind them (empty at the end), and their
        slots.
        """
        if self._whole:
            return b"", np.empty(0, np.int64)
        start, stop = range_of(self.number, self._key_groups)
        entries = self._database.read(max(start, place), stop, _SWEPT)
        if not entries:
            return b"", np.empty(0, np.int64)
        slots = self.find(self._keys.decode([place for place, _ in entries]))
        return (entries[-1][0] + b"\0" if len(entries) == _SWEPT else b""), slots[slots >= 0]

    # -- leaving memory

    def _make_room_for(self, count: int) -> None:
        over = self.index.size + count - self.limit
        if over <= 0:
            return
        home = self.home()
        # Changed rows can't leave memory while a snapshot is linked, so that waiting is the only way once too much
        # piles up.
        if not home.free and (over > self.limit // 4 or len(self._removed_places) > self.limit):
            home.wait_until_free()
        free = home.free
        if free:
            self._forget_removed()  # before rows of the same keys are written
        self._evict(min(over, self.index.size), free)

    def _evict(self, count: int, free: bool) -> None:
        """Move ``count`` keys out of memory, but none that this call uses; ``free`` = changed rows may be written."""
        assert self._changed is not None
        parts: list[Ints] = []
        rounds = 0
        # Three rounds: a slot may have to be met twice before it counts as unused; then only slots in use are left.
        while count > 0 and rounds < 3:
            start, stop = self._hand, min(self._hand + _WINDOW, self.index.capacity)
            evictable = self._owner.values[start:stop] > 0
            evictable &= self._used.values[start:stop] < self._lap_before
            if not free:
                evictable &= self._changed.values[start:stop] == 0
            candidates = np.flatnonzero(evictable)[:count] + start
            if candidates.size:
                parts.append(candidates)
                count -= len(candidates)
            self._hand = stop if count else int(candidates[-1]) + 1
            if self._hand >= self.index.capacity:
                self._hand, rounds = 0, rounds + 1
                self._lap_before, self._lap = self._lap, self._tick
        if not parts:
            return
        # Rows of a snapshot that has not been written yet are saved before their slots get other keys.
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
        """Write all rows that have changed."""
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
        places = self._keys.encode(self.number, keys, owners.astype(np.int32) - 1)
        rows = layout.write(columns) if layout.fields else [with_layout(b"\0\0", layout.number)] * len(places)
        if len(layout.fields) > sum(codec.fixed for codec in layout.codecs):
            size = sum(map(len, rows)) / len(rows)
            self._object_bytes, self._limit = max(self._object_bytes, size), 0
        pairs: list[Pair] = sorted(zip(places, rows, strict=True))
        for start in range(0, len(pairs), _PIECE):
            database.write(pairs[start : start + _PIECE])

    def layout_of_now(self) -> RowLayout:
        """Layout of the current columns."""
        return self.layout([(name, column.codec.data_type) for name, column in self.columns.items()])

    def layout(self, fields: list[tuple[str, pa.DataType]]) -> RowLayout:
        """Layout of these fields; a new one if there is none yet."""
        for layout in reversed(self._layouts):
            if layout.fields == fields:
                return layout
        self._layouts.append(RowLayout(len(self._layouts), fields))
        return self._layouts[-1]

    def _remember_removed(self, slots: Ints) -> None:
        if self._home is None:
            return
        places = self._keys.encode(self.number, self.index.keys(slots), self._owner.get(slots).astype(np.int32) - 1)
        self._removed_places.update(dict.fromkeys(places))
        if len(self._removed_places) > _REMOVED and self._home.free:
            self._forget_removed()

    def _forget_removed(self) -> None:
        """Delete the removed keys in the database."""
        places = list(self._removed_places)
        for start in range(0, len(places), _PIECE):
            self._database.write([(place, None) for place in places[start : start + _PIECE]])
        self._removed_places.clear()

    # -- snapshots

    def begin(self) -> ChangedSlots:
        """Begin a snapshot: the rows that have changed since the last one, on their way into the database."""
        assert self._changed is not None
        schema = described(self.key_types, {name: column.codec.data_type for name, column in self.columns.items()})
        self.info = StateInfo(self.name, COLUMNS, schema)
        self._shown = [(name, column.codec.data_type) for name, column in self.columns.items()]
        rows = ChangedSlots(self, self.index, self._owner, list(self.columns.values()), self._changed, self.mark)
        # Keys removed up to now have to be deleted before the files are linked; later ones belong to the next snapshot.
        self._places_leaving, self._removed_places = self._removed_places, {}
        self.index.hold()
        self._rows = rows
        self.mark += 1
        return rows

    def write_removed(self, most: int) -> bool:
        """Delete up to ``most`` keys in the database that had been removed when the snapshot began; False = none was
        left.
        """
        places = list(self._places_leaving)[:most]
        if not places:
            return False
        self._database.write([(place, None) for place in places])
        for place in places:
            del self._places_leaving[place]
        return True

    def written(self, slots: Ints, mark: int) -> None:
        """Mark slots as equal to the database, unless they changed after the snapshot began."""
        assert self._changed is not None
        self._changed.set(slots[self._changed.get(slots) <= mark], 0)

    def end(self) -> None:
        """End the snapshot, whose rows are all in the database, or which was given up."""
        if self._rows is not None:
            self._rows.close()
            self._ended()
        self._removed_places = {**self._places_leaving, **self._removed_places}
        self._places_leaving = {}

    def to_json(self) -> dict[str, Any]:
        """What the contents file says of this state beside its rows."""
        schemas = [pa.schema(layout.fields).serialize().to_pybytes() for layout in self._layouts]
        return {"layouts": [base64.b64encode(data).decode() for data in schemas], "fills": self._fills}

    def stream_of(self, entries: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Rows of the database in the form of a chunk: with the columns that the snapshot began with."""
        columns = {name: StateColumn(name, data_type, len(entries)) for name, data_type in self._shown}
        slots = np.arange(len(entries))
        self._unpack([row for _, row in entries], slots, columns)
        arrays = self._keys.decode([place for place, _ in entries])
        names = [*(f"key{position}" for position in range(len(arrays))), *columns]
        arrays += [column.codec.column(column.get(slots), None) for column in columns.values()]
        return stream_of(pa.RecordBatch.from_arrays(arrays, names=names))

    # -- restoring

    def take_files(self, home: TableStore, number: int, plain: dict[str, Any]) -> None:
        """Take over rows that are in the database already."""
        self._home, self.number = home, number
        home.add_columns(self, number)
        self._whole = False
        for fields in _fields_of(plain):
            self._layouts.append(RowLayout(len(self._layouts), fields))
        self._take_columns(plain)

    def take_rows_of(self, plain: dict[str, Any]) -> Callable[[bytes, bytes], Pair]:
        """Prepare for rows that are copied from another database; the function returned turns its rows into rows of
        this one.
        """
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
        """Forget everything. May be called twice."""
        super().close()
        self.track_changes()
        self._removed_places, self._places_leaving = {}, {}
        self._used = GrowingArray(np.int32)


def _fields_of(plain: dict[str, Any]) -> list[list[tuple[str, pa.DataType]]]:
    schemas = [pa.ipc.read_schema(pa.py_buffer(base64.b64decode(data))) for data in plain["layouts"]]
    return [[(field.name, field.type) for field in schema] for schema in schemas]


class _DiskCursor(SlotCursor):
    """Visits the slots in memory and the rows on disk at the same time."""

    def __init__(self, state: ColumnsOnDisk) -> None:
        super().__init__(state)
        self._disk, self._place = state, b""

    def next(self, count: int) -> Ints:
        """The next slots. Slots that earlier calls returned are no longer valid."""
        self._place, read = self._disk.read_behind(self._place)
        return np.unique(np.concatenate([super().next(count), read]))


class ChangedSlots(Rows):
    """The slots whose rows differ from the database, at the moment a snapshot begins.

    Args:
        state: the state they belong to.
        index: the keys of slots.
        owner: key group of each slot, plus one; 0 = the slot is free.
        columns: values of the slots.
        changed: mark of the last change of each slot.
        mark: the snapshot's; changes with a later mark are not part of it.
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
        to_write = (columns[self._words] > 0) & (columns[-1] > 0)
        if not to_write.all():
            positions, columns = positions[to_write], [column[to_write] for column in columns]
        if positions.size:
            keys = self._index.columns(columns[: self._words], positions == self._null_slot)
            self._state.put(keys, columns[self._words], self._layout, columns[self._words + 1 : -1])
            self._state.written(positions, self._mark)
        return Block(0, b"")
