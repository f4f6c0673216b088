"""Keyed state in arrays: one row of values for each key.

An operator finds the slots of a batch's keys with ``slots``, calls ``touch`` before it writes to values of slots, and
then reads and writes the arrays of its columns as it likes. ``release`` forgets keys. Slots are good until keys are
looked for again: some backends keep rows elsewhere, and have some of them in slots only.

It is state of a backend (``state/backend.py``), with chunks that are streams of Arrow: what is written while a snapshot
runs is copied first, for the slots at hand only. The columns of a chunk are those of the key and then those of the
values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from firesteel.core.errors import ProgramError, StateMigrationError
from firesteel.core.short_repr import short_repr
from firesteel.state.columnar.growing import GrowingArray
from firesteel.state.columnar.key_index import KeyIndex
from firesteel.state.columnar.snapshots import (
    COLUMNS,
    REMOVED,
    AttachedColumns,
    Columns,
    GroupsOf,
    OutgoingRows,
    Rows,
    stream_of,
)
from firesteel.state.columnar.values import StateColumn
from firesteel.state.snapshots import Block, StateInfo

Ints = npt.NDArray[np.int64]
_REMOVED: Final = 1 << 16
"""So many keys that were removed are remembered, or as many as there are."""
_REMOVALS: Final = 256
"""In so many pieces."""


def one_group(columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
    """All keys in key group 0."""
    return np.zeros(len(columns[0]), np.int32)


def widened(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether each value of a type is one of the other, too."""
    return lost(old, new) is None


def lost(old: pa.DataType, new: pa.DataType, field: str = "") -> tuple[str, str] | None:
    """Why values of a type are not all of another one: the path of the field in them, and what of it; None = they are.

    Fields that could not be null may be so now; the other way round there may be nulls already.
    """
    if old == new:
        return None
    if pt.is_signed_integer(old) and pt.is_signed_integer(new) and old.bit_width < new.bit_width:
        return None
    if old == pa.float32() and new == pa.float64():
        return None
    parts: list[tuple[str, pa.Field, pa.Field]] = []
    if pt.is_struct(old) and pt.is_struct(new) and [one.name for one in old] == [one.name for one in new]:
        parts = [(f".{was.name}", was, now) for was, now in zip(old, new, strict=True)]
    elif any(kind(old) and kind(new) for kind in (pt.is_list, pt.is_large_list, pt.is_fixed_size_list)) and (
        getattr(old, "list_size", 0) == getattr(new, "list_size", 0)
    ):
        parts = [("[]", old.value_field, new.value_field)]
    elif pt.is_map(old) and pt.is_map(new) and old.key_type == new.key_type and old.keys_sorted == new.keys_sorted:
        parts = [("[value]", old.item_field, new.item_field)]
    for path, was, now in parts:
        if was.nullable and not now.nullable:
            return field + path, "it could be null, and can't be any more"
        found = lost(was.type, now.type, field + path)
        if found is not None:
            return found
    return None if parts else (field, f"its values were {old}, and are to be {new}")


def described(key_types: Sequence[pa.DataType], columns: Mapping[str, pa.DataType]) -> dict[str, Any]:
    """What snapshots say about columns; types that have no short name stand in ``types`` as well."""
    plain = {"keys": [str(key) for key in key_types], "columns": {name: str(kind) for name, kind in columns.items()}}
    nested = [(name, kind) for name, kind in columns.items() if _by_name(str(kind)) is None]
    if not nested:
        return plain
    return {**plain, "types": pa.schema(nested).serialize().to_pybytes().hex()}


def _types_of(schema: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """The types of columns that a snapshot describes, as far as they are known before there are rows."""
    found = {name: _by_name(written) for name, written in schema.get("columns", {}).items()}
    if "types" in schema:
        found |= {one.name: one.type for one in pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(schema["types"])))}
    return {name: kind for name, kind in found.items() if kind is not None}


class ColumnarState(AttachedColumns):
    """The state of one operator of one subtask.

    Args:
        name: of the state, in snapshots and errors.
        key_types: of the key's columns.
        groups_of: the key groups of keys, given as columns.
        key_groups: those that the subtask owns.

    Attributes:
        evicts: slots may be given to other keys when keys are looked for.
        index: the slots of keys.
        columns: by name.
        mark: what is changed from now on is marked with it; goes up with each snapshot.
    """

    evicts: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        key_types: Sequence[pa.DataType],
        groups_of: GroupsOf = one_group,
        key_groups: range = range(1),
    ) -> None:
        super().__init__(StateInfo(name, COLUMNS, {}), len(key_types), groups_of, key_groups)
        self.name, self.key_types = name, tuple(key_types)
        self.index = KeyIndex(self.key_types)
        self.columns: dict[str, StateColumn] = {}
        self._unasked: set[str] = set()  # columns that were restored
        self._owner = GrowingArray(np.uint16)  # key group + 1; 0 for slots that are not in use
        self._room = 0
        self._rows: Rows | None = None  # of a snapshot that is being written
        self._changed: GrowingArray | None = None  # when a slot was changed last
        self._removed: list[tuple[int, list[pa.Array]]] = []
        self._whole_before = self._removed_count = 0
        self.mark = 1

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, as far as they are in use; of values that are no numbers the references only."""
        each = sum(column.codec.dtype.itemsize for column in self.columns.values()) + self._owner.dtype.itemsize
        return self.index.nbytes + self.index.capacity * each

    @property
    def size(self) -> int:
        return self.index.size

    def column(self, name: str, data_type: pa.DataType) -> StateColumn:
        """The values of a name; zero or None for keys that were never written.

        Raises:
            StateMigrationError: it was restored with a type that does not become this one.
        """
        self._unasked.discard(name)
        known = self.columns.get(name)
        if known is not None:
            if known.codec.data_type == data_type:
                return known
            self._refuse_lost(name, known.codec.data_type, data_type)
        made = self.columns[name] = StateColumn(name, data_type, self._room)
        if known is not None:
            slots = np.arange(self.index.capacity)
            made.set(slots, made.codec.numbers(known.codec.column(known.get(slots), None).cast(data_type)))
        return made

    # -- keys

    def slots(self, columns: Sequence[pa.Array]) -> Ints:
        """The slots of keys, given as columns; of new keys new ones, with room in all arrays.

        Raises:
            ProgramError: a new key belongs to another subtask.
        """
        index = self.index
        size = index.size
        slots = index.slots(columns)
        if index.size > size:
            if index.capacity > self._room:
                self._make_room(index.capacity)
            new = np.flatnonzero(self._owner.get(slots) == 0)
            try:
                groups = self.refuse_foreign(columns, new)
            except ProgramError:
                index.release(slots[new])
                raise
            if self._rows is not None:
                self._rows.save(slots[new])
            if self._changed is not None:
                self._changed.set(slots[new], self.mark)
            self._owner.set(slots[new], groups + 1)
        return slots

    def find(self, columns: Sequence[pa.Array]) -> Ints:
        """The slots of keys; -1 for unknown ones."""
        return self.index.find(columns)

    def release(self, slots: Ints) -> None:
        """Forget keys with all their values."""
        if not slots.size:
            return
        self.touch(slots)
        if self._changed is not None:
            self._remember_removed(np.unique(slots))
        self.index.release(slots)
        self._owner.set(slots, 0)
        for column in self.columns.values():
            column.clear(slots)

    def touch(self, slots: Ints) -> None:
        """To be called before values of slots are written."""
        if self._rows is not None:
            self._rows.save(slots)
        if self._changed is not None:
            self._changed.set(slots, self.mark)

    def fill(self, column: StateColumn, value: int) -> None:
        """Give all keys of now a value in a column that none of them had until now."""
        slots = self.in_use()
        self.touch(slots)
        column.set(slots, value)

    def pieces(self) -> Iterator[Ints]:
        """The slots of all keys, some at a time; they are good until the next ones are asked for."""
        yield self.in_use()

    def cursor(self) -> SlotCursor:
        """Goes round all keys."""
        return SlotCursor(self)

    def in_use(self) -> Ints:
        """The slots of all keys that have one."""
        return np.flatnonzero(self._owner.values[: self.index.capacity])

    def _make_room(self, capacity: int) -> None:
        self._owner.ensure(capacity)
        if self._changed is not None:
            self._changed.ensure(capacity)
        for column in self.columns.values():
            column.array.ensure(capacity)
        self._room = capacity

    def refuse_foreign(self, columns: Sequence[pa.Array], rows: Ints) -> npt.NDArray[np.signedinteger[Any]]:
        """The key groups of some rows' keys.

        Raises:
            ProgramError: a key belongs to another subtask.
        """
        own = self._key_groups
        groups = self._groups_of([column.take(pa.array(rows)) for column in columns])
        if not groups.size or (groups.min() >= own.start and groups.max() < own.stop):
            return groups
        bad = int(np.flatnonzero((groups < own.start) | (groups >= own.stop))[0])
        row = int(rows[bad])
        key = tuple(column[row].as_py() for column in columns)
        raise ProgramError(
            f"state {self.name!r}: the key {short_repr(key[0] if len(key) == 1 else key)} belongs to key group "
            f"{groups[bad]}, which another subtask owns (this one has {own.start} to {own.stop - 1}): use the keys of "
            "the batch at hand only"
        )

    # -- snapshots

    def track_changes(self) -> None:
        """From now on there may be snapshots of changes; everything there is counts as changed."""
        if self._changed is None:
            self._changed = GrowingArray(np.int32, self._room)
            self._changed.values[:] = self.mark

    def _remember_removed(self, slots: Ints) -> None:
        self._removed.append((self.mark, self.index.keys(slots)))
        self._removed_count += len(slots)
        if self._removed_count > max(self.index.size, _REMOVED):
            self._whole_before, self._removed, self._removed_count = self.mark, [], 0
        elif len(self._removed) > _REMOVALS:
            self._removed = [(mark, self._removed_at(mark)) for mark in dict(self._removed)]

    def _removed_at(self, mark: int) -> list[pa.Array]:
        parts = [columns for at, columns in self._removed if at == mark]
        return [pa.concat_arrays(column) for column in zip(*parts, strict=True)]

    def changed(self, since: int) -> int | None:
        """How many slots have changed after the snapshot of a mark, and keys were removed; None = it is not known."""
        if self._changed is None or since < self._whole_before:
            return None
        return int(np.count_nonzero(self._changed.values[: self.index.capacity] > since)) + self._removed_count

    def forget_changes(self, until: int) -> None:
        """Nobody will ask for changes since an earlier snapshot than that of this mark."""
        self._removed = [(mark, columns) for mark, columns in self._removed if mark > until]
        self._removed_count = sum(len(columns[0]) for _, columns in self._removed)

    def outgoing(self, since: int | None = None) -> OutgoingRows:
        """The state of now, to be written.

        Args:
            since: write only what has changed after the one that was made when ``mark`` was this; it must be known what
                that is (``changed``).
        """
        schema = described(self.key_types, {name: column.codec.data_type for name, column in self.columns.items()})
        self.info = StateInfo(self.name, COLUMNS, schema)
        states, removed, changed = [self.info], list[list[pa.Array]](), None
        if since is not None:
            assert self._changed is not None
            states.append(StateInfo(self.name, REMOVED, {"keys": schema["keys"]}))
            removed, changed = [columns for mark, columns in self._removed if mark > since], self._changed
        rows = _Slots(self.index, self._owner, list(self.columns.values()), changed, since or 0)
        self.index.hold()
        self._rows = rows
        self.mark += 1
        return OutgoingRows(states, [rows], rows.removed(removed), self._ended)

    def _ended(self) -> None:
        self._rows = None
        self.index.let_go()

    def expect(self, info: StateInfo) -> None:
        """See ``AttachedState``: the keys have to be of the same types; values become those of now, or are refused."""
        was, now = info.schema.get("keys"), [str(key) for key in self.key_types]
        if was != now:
            raise StateMigrationError(self.name, "", f"its keys were {was}, and are {now}")
        self._check_aggregates(info.schema.get("columns", {}))
        for name, data_type in _types_of(info.schema).items():
            self._restored_column(name, data_type)

    def _check_aggregates(self, restored: Mapping[str, str]) -> None:
        """The columns of an aggregate belong together: with other ones its results would be of a part of its rows.

        Raises:
            StateMigrationError: an aggregate of this name has other columns now.
        """
        asked = self.columns.keys() - self._unasked
        for name in dict.fromkeys(column.rpartition(".")[0] for column in asked):
            mine, was = ({column for column in some if column.rpartition(".")[0] == name} for some in (asked, restored))
            if name and was and mine - was:
                before, after = (", ".join(sorted(one.rpartition(".")[2] for one in some)) for some in (was, mine))
                raise StateMigrationError(
                    self.name, name, f"it was computed from {before} and is from {after} now: give it another name"
                )

    def take_rows(self, info: StateInfo, batch: pa.RecordBatch) -> None:
        """Take over rows of own keys, or forget these.

        Raises:
            StateMigrationError: the types of values do not become those of now.
        """
        if info.kind == COLUMNS:
            self._restore(batch)
        else:
            self._restore_removed(batch)

    def _restore_removed(self, batch: pa.RecordBatch) -> None:
        slots = self.index.find(batch.columns)
        self.release(slots[slots >= 0])

    def _restore(self, batch: pa.RecordBatch) -> None:
        width = len(self.key_types)
        slots = self.slots(batch.columns[:width])
        self.touch(slots)
        for field, values in zip(list(batch.schema)[width:], batch.columns[width:], strict=True):
            column = self._restored_column(field.name, field.type)
            if field.type != column.codec.data_type:
                values = values.cast(column.codec.data_type)
            column.set(slots, column.codec.numbers(values))

    def _restored_column(self, name: str, data_type: pa.DataType) -> StateColumn:
        """The column for values that were written with a type.

        Raises:
            StateMigrationError: they do not become those of now.
        """
        column = self.columns.get(name)
        if column is None or (name in self._unasked and widened(column.codec.data_type, data_type)):
            column = self.column(name, data_type)  # subtasks of before may differ in the type
            self._unasked.add(name)
        self._refuse_lost(name, data_type, column.codec.data_type)
        return column

    def _refuse_lost(self, name: str, old: pa.DataType, new: pa.DataType) -> None:
        found = lost(old, new, name)
        if found is not None:
            raise StateMigrationError(self.name, *found)

    def close(self) -> None:
        """Forget everything; idempotent."""
        if self._rows is not None:
            self._rows.close()
            self._rows = None
        self.index = KeyIndex(self.key_types)
        self.columns, self._owner, self._room = {}, GrowingArray(np.uint16), 0
        self._changed, self._removed, self._removed_count = None, [], 0


def _by_name(written: str) -> pa.DataType | None:
    """The type of a short name; None = it has none."""
    try:
        return pa.type_for_alias(written)
    except ValueError:
        return None


class SlotCursor:
    """Goes round the slots of a state, some at a time.

    Args:
        state: whose.
    """

    def __init__(self, state: ColumnarState) -> None:
        self._state, self._at = state, 0

    def next(self, count: int) -> Ints:
        """The next ones; some of them may be in no use."""
        capacity = self._state.index.capacity
        start = min(self._at, capacity)
        end = min(capacity, start + count)
        self._at = 0 if end >= capacity else end
        return np.arange(start, end)


class _Slots(Rows):
    """The slots of a moment.

    Args:
        index: the keys of slots.
        owner: who owns them.
        columns: their values.
        changed: when they were changed last; None = all are written.
        since: others are those that were changed later. What changes while they are written counts, too.
    """

    def __init__(
        self,
        index: KeyIndex,
        owner: GrowingArray,
        columns: Sequence[StateColumn],
        changed: GrowingArray | None,
        since: int,
    ) -> None:
        super().__init__(index.capacity)
        self._index, self._columns, self._changed, self._since = index, columns, changed, since
        self._words, self._null_slot = len(index.words), index.null_slot
        self._arrays = [*index.words, owner, *(column.array for column in columns)]
        self._keys = [f"key{position}" for position in range(len(index.keys(np.empty(0, np.int64))))]
        self._names = [*self._keys, *(column.name for column in columns)]

    def copy(self, positions: Ints) -> Columns:
        return [array.get(positions) for array in self._arrays]

    def between(self, start: int, stop: int) -> Columns:
        return [array.values[start:stop] for array in self._arrays]

    def write(self, positions: Ints, columns: Columns) -> Block:
        wanted = columns[self._words] > 0
        if self._changed is not None:
            wanted &= self._changed.get(positions) > self._since
        count = int(np.count_nonzero(wanted))
        if not count:
            return Block(0, b"")
        if count < len(positions):
            positions, columns = positions[wanted], [column[wanted] for column in columns]
        arrays = self._index.columns(columns[: self._words], positions == self._null_slot)
        for column, values in zip(self._columns, columns[self._words + 1 :], strict=True):
            arrays.append(column.codec.column(values, None))
        return Block(count, stream_of(pa.RecordBatch.from_arrays(arrays, names=self._names)))

    def removed(self, parts: Sequence[list[pa.Array]]) -> Iterator[Block]:
        """Keys that were forgotten; some of them may be there again."""
        for columns in parts:
            yield Block(len(columns[0]), stream_of(pa.RecordBatch.from_arrays(columns, names=self._keys)), 1)
