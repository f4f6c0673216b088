"""Keyed state in arrays: one row of values for each key.

An operator gets the slots of a batch's keys from ``slots``, calls ``touch`` before it writes values of slots, and then
reads and writes the arrays of its columns freely. ``release`` forgets keys. Slots are valid until keys are looked up
again: some backends store rows elsewhere, and have only some of them in slots.

It is state of a backend (``state/backend.py``) whose chunks are streams of Arrow, with the columns of the key and then
those of the values. Rows that are written while a snapshot runs are copied first, and only these.
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
"""Removed keys that are remembered; more if the state has more keys."""
_REMOVALS: Final = 256
"""Pieces in which they are remembered."""


def one_group(columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
    """Put all keys into key group 0."""
    return np.zeros(len(columns[0]), np.int32)


def by_first(groups_of: GroupsOf, count: int | None) -> GroupsOf:
    """Key groups by the first columns of a key; by all of them for None."""
    if count is None:
        return groups_of
    return lambda columns: groups_of(columns[:count])


def widened(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of a type is also one of the other type."""
    return lost(old, new) is None


def lost(old: pa.DataType, new: pa.DataType, field: str = "") -> tuple[str, str] | None:
    """Why a value of a type may be none of another one: the path of the field in it, and the reason. None = all are.

    A field that could not be null may become nullable, but not the other way round: there may be nulls already.
    """
    if old == new:
        return None
    if pt.is_signed_integer(old) and pt.is_signed_integer(new) and old.bit_width < new.bit_width:
        return None
    if old == pa.float32() and new == pa.float64():
        return None
    parts: list[tuple[str, pa.Field, pa.Field]] = []
    if pt.is_struct(old) and pt.is_struct(new) and [part.name for part in old] == [part.name for part in new]:
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
        loss = lost(was.type, now.type, field + path)
        if loss is not None:
            return loss
    return None if parts else (field, f"its values were {old}, and are to be {new}")


def described(key_types: Sequence[pa.DataType], columns: Mapping[str, pa.DataType]) -> dict[str, Any]:
    """Schema of columns in snapshots; types without a short name are also in ``types``."""
    plain = {"keys": [str(key) for key in key_types], "columns": {name: str(kind) for name, kind in columns.items()}}
    nested = [(name, kind) for name, kind in columns.items() if _by_name(str(kind)) is None]
    if not nested:
        return plain
    return {**plain, "types": pa.schema(nested).serialize().to_pybytes().hex()}


def types_of(schema: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """Types of the columns that a snapshot describes, as far as they are known before rows are read."""
    types = {name: _by_name(written) for name, written in schema.get("columns", {}).items()}
    if "types" in schema:
        types |= {field.name: field.type for field in pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(schema["types"])))}
    return {name: kind for name, kind in types.items() if kind is not None}


class ColumnarState(AttachedColumns):
    """State in columns of one operator in one subtask.

    Args:
        name: of the state, in snapshots and errors.
        key_types: of the key's columns.
        groups_of: computes the key groups of keys, which come as columns.
        key_groups: those that the subtask owns.

    Attributes:
        evicts: looking up keys may give slots to other keys.
        index: the slots of keys.
        columns: by name.
        mark: number that later changes are marked with; goes up with each snapshot.
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
        self._unasked: set[str] = set()  # restored columns that the program has not declared yet
        self._restored_names: set[str] | None = None  # columns that were restored; None = nothing was
        self._owner = GrowingArray(np.uint16)  # key group + 1; 0 for slots that are not in use
        self._room = 0
        self._rows: Rows | None = None  # of the snapshot that is being written
        self._changed: GrowingArray | None = None  # mark of the last change of each slot
        self._removed: list[tuple[int, list[pa.Array]]] = []  # marks and columns of removed keys
        self._whole_before = self._removed_count = 0  # removed keys of marks before the first are not remembered
        self.mark = 1

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays in use; of values that are no numbers only the references count."""
        each = sum(column.codec.dtype.itemsize for column in self.columns.values()) + self._owner.dtype.itemsize
        return self.index.nbytes + self.index.capacity * each

    @property
    def size(self) -> int:
        return self.index.size

    def column(self, name: str, data_type: pa.DataType) -> StateColumn:
        """Column of a name; zero or None for keys that were never written.

        Raises:
            StateMigrationError: it was restored with a type whose values are not all of this type.
        """
        self._unasked.discard(name)
        existing = self.columns.get(name)
        if existing is not None:
            if existing.codec.data_type == data_type:
                return existing
            self._refuse_lost(name, existing.codec.data_type, data_type)
        column = self.columns[name] = StateColumn(name, data_type, self._room)
        if existing is not None:
            slots = np.arange(self.index.capacity)
            column.set(slots, column.codec.numbers(existing.codec.column(existing.get(slots), None).cast(data_type)))
        return column

    @property
    def declared_columns(self) -> dict[str, str]:
        """Types of the columns that were declared, by name."""
        return {name: str(column.codec.data_type) for name, column in self.columns.items() if name not in self._unasked}

    @property
    def added_columns(self) -> list[str]:
        """Columns that restored state did not have: they are empty for the keys that were restored."""
        if self._restored_names is None:
            return []
        return [name for name in self.columns if name not in self._restored_names]

    def drop_undeclared(self) -> None:
        """Drop restored columns that were not declared."""
        for name in self._unasked:
            del self.columns[name]
        self._unasked = set()

    # -- keys

    def slots(self, columns: Sequence[pa.Array]) -> Ints:
        """Slots of keys, which come as columns; new keys get new slots, with room in all arrays.

        Raises:
            ProgramError: a new key belongs to another subtask.
        """
        index = self.index
        size = index.size
        slots = index.slots(columns)
        if index.size > size:
            if index.capacity > self._room:
                self._make_room(index.capacity)
            new_rows = np.flatnonzero(self._owner.get(slots) == 0)
            try:
                groups = self.refuse_foreign(columns, new_rows)
            except ProgramError:
                index.release(slots[new_rows])
                raise
            if self._rows is not None:
                self._rows.save(slots[new_rows])
            if self._changed is not None:
                self._changed.set(slots[new_rows], self.mark)
            self._owner.set(slots[new_rows], groups + 1)
        return slots

    def find(self, columns: Sequence[pa.Array]) -> Ints:
        """Slots of keys; -1 for unknown ones."""
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
        """Prepare slots for a change; to be called before their values are written."""
        if self._rows is not None:
            self._rows.save(slots)
        if self._changed is not None:
            self._changed.set(slots, self.mark)

    def fill(self, column: StateColumn, value: int) -> None:
        """Set a column that no key has had until now, for all current keys."""
        slots = self.in_use()
        self.touch(slots)
        column.set(slots, value)

    def pieces(self) -> Iterator[Ints]:
        """Slots of all keys, some at a time; they are valid until the next ones are taken."""
        yield self.in_use()

    def cursor(self) -> SlotCursor:
        """Cursor that goes round all keys."""
        return SlotCursor(self)

    def is_used(self, slots: Ints) -> npt.NDArray[np.bool_]:
        """Which slots have a key."""
        used: npt.NDArray[np.bool_] = self._owner.get(slots) > 0
        return used

    def in_use(self) -> Ints:
        """Slots of all keys in memory."""
        return np.flatnonzero(self._owner.values[: self.index.capacity])

    def _make_room(self, capacity: int) -> None:
        self._owner.ensure(capacity)
        if self._changed is not None:
            self._changed.ensure(capacity)
        for column in self.columns.values():
            column.array.ensure(capacity)
        self._room = capacity

    def refuse_foreign(self, columns: Sequence[pa.Array], rows: Ints) -> npt.NDArray[np.signedinteger[Any]]:
        """Key groups of the keys of some rows.

        Raises:
            ProgramError: a key belongs to another subtask.
        """
        own_groups = self._key_groups
        groups = self._groups_of([column.take(pa.array(rows)) for column in columns])
        if not groups.size or (groups.min() >= own_groups.start and groups.max() < own_groups.stop):
            return groups
        bad = int(np.flatnonzero((groups < own_groups.start) | (groups >= own_groups.stop))[0])
        row = int(rows[bad])
        key = tuple(column[row].as_py() for column in columns)
        raise ProgramError(
            f"state {self.name!r}: the key {short_repr(key[0] if len(key) == 1 else key)} belongs to key group "
            f"{groups[bad]}, which another subtask owns (this one has {own_groups.start} to {own_groups.stop - 1}): "
            "use the keys of the current batch only"
        )

    # -- snapshots

    def track_changes(self) -> None:
        """Track changes from now on, for snapshots of changes only; everything that exists counts as changed."""
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
        parts = [columns for removed_mark, columns in self._removed if removed_mark == mark]
        return [pa.concat_arrays(column) for column in zip(*parts, strict=True)]

    def changed(self, since: int) -> int | None:
        """Number of changes, removed keys among them, since the snapshot of a mark; None = unknown."""
        if self._changed is None or since < self._whole_before:
            return None
        return int(np.count_nonzero(self._changed.values[: self.index.capacity] > since)) + self._removed_count

    def forget_changes(self, last_mark: int) -> None:
        """Drop removed keys up to a mark: no later snapshot asks for changes since an earlier one."""
        self._removed = [(mark, columns) for mark, columns in self._removed if mark > last_mark]
        self._removed_count = sum(len(columns[0]) for _, columns in self._removed)

    def outgoing(self, since: int | None = None, *, is_base: bool = False) -> OutgoingRows:
        """Begin to write the current state.

        Args:
            since: write only what has changed after the snapshot of this mark; ``changed`` must know of it.
            is_base: later snapshots may hold only what has changed since this one.
        """
        schema = described(self.key_types, {name: column.codec.data_type for name, column in self.columns.items()})
        self.info = StateInfo(self.name, COLUMNS, schema)
        states, removed, changed = [self.info], list[list[pa.Array]](), None
        if is_base or since is not None:  # the states of all snapshots that build on each other have one order
            states.append(StateInfo(self.name, REMOVED, {"keys": schema["keys"]}))
        if since is not None:
            assert self._changed is not None
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
        """Check a restored schema: the keys must have the same types; values are widened to their current types, or
        refused.
        """
        was, now = info.schema.get("keys"), [str(key) for key in self.key_types]
        if was != now:
            raise StateMigrationError(self.name, "", f"its keys were {was}, and are {now}")
        self._check_aggregates(info.schema.get("columns", {}))
        for name, data_type in types_of(info.schema).items():
            self._restored_column(name, data_type)

    def _check_aggregates(self, restored: Mapping[str, str]) -> None:
        """Check that restored columns are those of the aggregates: with others, results would cover a part of the rows.

        Raises:
            StateMigrationError: an aggregate of this name has other columns now.
        """
        self._restored_names = {*(self._restored_names or ()), *restored}
        declared = self.columns.keys() - self._unasked
        for name in dict.fromkeys(column.rpartition(".")[0] for column in declared):
            columns_now, columns_before = (
                {column for column in names if column.rpartition(".")[0] == name} for names in (declared, restored)
            )
            if name and columns_before and columns_now - columns_before:
                names_before, names_now = (
                    ", ".join(sorted(column.rpartition(".")[2] for column in names))
                    for names in (columns_before, columns_now)
                )
                raise StateMigrationError(
                    self.name,
                    name,
                    f"it was computed from {names_before} and is from {names_now} now: give it another name",
                )

    def take_rows(self, info: StateInfo, batch: pa.RecordBatch) -> None:
        """Add restored rows of own keys, or remove the keys that a snapshot of changes lists.

        Raises:
            StateMigrationError: values are not all of the current types.
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
        """Column for restored values of a type.

        Raises:
            StateMigrationError: they are not all of the current type.
        """
        column = self.columns.get(name)
        if column is None or (name in self._unasked and widened(column.codec.data_type, data_type)):
            column = self.column(name, data_type)  # the subtasks that wrote it may differ in the type
            self._unasked.add(name)
        self._refuse_lost(name, data_type, column.codec.data_type)
        return column

    def _refuse_lost(self, name: str, old: pa.DataType, new: pa.DataType) -> None:
        loss = lost(old, new, name)
        if loss is not None:
            raise StateMigrationError(self.name, *loss)

    def close(self) -> None:
        """Forget everything. May be called twice."""
        if self._rows is not None:
            self._rows.close()
            self._rows = None
        self.index = KeyIndex(self.key_types)
        self.columns, self._owner, self._room = {}, GrowingArray(np.uint16), 0
        self._changed, self._removed, self._removed_count = None, [], 0


def _by_name(written: str) -> pa.DataType | None:
    """Type of a short name; None = there is no such name."""
    try:
        return pa.type_for_alias(written)
    except ValueError:
        return None


class SlotCursor:
    """Goes round the slots of a state, some at a time.

    Args:
        state: it goes round in.
    """

    def __init__(self, state: ColumnarState) -> None:
        self._state, self._at = state, 0

    def next(self, count: int) -> Ints:
        """The next slots; some of them may not be in use."""
        capacity = self._state.index.capacity
        start = min(self._at, capacity)
        end = min(capacity, start + count)
        self._at = 0 if end >= capacity else end
        return np.arange(start, end)


class _Slots(Rows):
    """The slots at the moment a snapshot begins.

    Args:
        index: the keys of slots.
        owner: key group of each slot, plus one; 0 = the slot is free.
        columns: values of the slots.
        changed: mark of the last change of each slot; None = all slots are written.
        since: only slots with a later mark are written; changes while they are written count, too.
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
        chosen = columns[self._words] > 0
        if self._changed is not None:
            chosen &= self._changed.get(positions) > self._since
        count = int(np.count_nonzero(chosen))
        if not count:
            return Block(0, b"")
        if count < len(positions):
            positions, columns = positions[chosen], [column[chosen] for column in columns]
        arrays = self._index.columns(columns[: self._words], positions == self._null_slot)
        for column, values in zip(self._columns, columns[self._words + 1 :], strict=True):
            arrays.append(column.codec.column(values, None))
        return Block(count, stream_of(pa.RecordBatch.from_arrays(arrays, names=self._names)))

    def removed(self, parts: Sequence[list[pa.Array]]) -> Iterator[Block]:
        """Removed keys; some of them may have been added again."""
        for columns in parts:
            yield Block(len(columns[0]), stream_of(pa.RecordBatch.from_arrays(columns, names=self._keys)), 1)
