"""Operator state on the heap: lists that are dealt out anew, lists that all subtasks see whole, broadcast state.

Lists are tables by position and broadcast state is a table by its key, so all of it is written as keyed state is: in
slices, while it is in use (``state/tables.py``). Only values that can be changed in place are serialised at once: a
function may add the very object that it goes on changing, which is what ``snapshot_state`` is for. A snapshot belongs
to one subtask; ``restore`` gets those of all subtasks, and takes the elements of its own. So coordinators move bytes
and never look into them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from firesteel.common.nan_keys import with_one_nan
from firesteel.common.typeinfo import BasicTypeInfo, TupleTypeInfo
from firesteel.core.errors import ProgramError, StateMigrationError
from firesteel.functions.state import (
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateStore,
    ReadOnlyBroadcastState,
    StateDescriptor,
)
from firesteel.state.heap_migration import compatibility, migration_of
from firesteel.state.heap_snapshot import OutgoingTable, decode
from firesteel.state.heap_states import Kind, element_of, elements_of, entries_of, kind_of
from firesteel.state.pickled_values import complete, holds_pickles, read
from firesteel.state.schema import LostKeysError, SchemaCompatibility, schema_of
from firesteel.state.snapshots import SLICE_SECONDS, KeyedSnapshot, SlicedSnapshot, StateChunk, StateInfo
from firesteel.state.tables import HeapTable, drain, save_changeable

SPLIT: Final = "split"
UNION: Final = "union"
BROADCAST: Final = "broadcast"
_READ_ONLY: Final = (
    "broadcast state can be changed in process_broadcast_element() only: all subtasks have to change it alike"
)


@dataclass
class OperatorSnapshot:
    """The operator state that one subtask wrote."""

    states: Sequence[StateInfo]
    chunks: Sequence[StateChunk]


class HeapOperatorListState(ListState[Any]):
    """A list of the subtask. Nothing else changes its table, so it counts the length, which is slow while it is
    written.
    """

    __slots__ = ("_kind", "_length", "_table")

    def __init__(self, table: HeapTable, kind: Kind) -> None:
        self._table, self._kind, self._length = table, kind, len(table)

    def get(self) -> list[Any]:
        """Return the elements, as a new list."""
        table = self._table
        return [table[position] for position in range(self._length)]

    def add(self, value: Any) -> None:
        self._table[self._length] = element_of(self._kind, value)
        self._length += 1

    def add_all(self, values: Iterable[Any]) -> None:
        """Add elements: all or, if one does not fit, none."""
        for value in elements_of(self._kind, "add_all", values):
            self._table[self._length] = value
            self._length += 1

    def update(self, values: Iterable[Any]) -> None:
        fitted = elements_of(self._kind, "update", values)
        self.clear()
        self.add_all(fitted)

    def clear(self) -> None:
        self._table.clear()
        self._length = 0


class _ReadableBroadcastState(ReadOnlyBroadcastState[Any, Any]):
    """Broadcast state as both sides read it: a table by key.

    A function that yields may be suspended in an iteration, and a snapshot may end meanwhile, which puts changes back
    into the table: so while a snapshot runs, keys and values are returned as lists. None begins meanwhile.
    """

    __slots__ = ("_table",)

    def __init__(self, table: HeapTable) -> None:
        self._table = table

    def get(self, key: Any) -> Any:
        """Value under a key; None = there is none."""
        return self._table.get(with_one_nan(key))

    def contains(self, key: Any) -> bool:
        """Whether there is a value under a key."""
        return with_one_nan(key) in self._table

    def items(self) -> Iterable[tuple[Any, Any]]:
        table = self._table
        return table.items() if table.writing is None else [(key, table[key]) for key in list(table)]

    def keys(self) -> Iterable[Any]:
        return self._table.keys() if self._table.writing is None else list(self._table)

    def values(self) -> Iterable[Any]:
        table = self._table
        return table.values() if table.writing is None else [table[key] for key in list(table)]

    def is_empty(self) -> bool:
        """Whether there is no entry."""
        return not self._table


class HeapReadOnlyBroadcastState(_ReadableBroadcastState):
    """Broadcast state as the side that is not broadcast sees it."""

    __slots__ = ()

    def clear(self) -> None:
        """Raise ``ProgramError``: this side can't change broadcast state."""
        raise ProgramError(_READ_ONLY)

    def __getattr__(self, name: str) -> Any:
        if name in ("put", "put_all", "remove"):
            raise ProgramError(_READ_ONLY)
        raise AttributeError(name)


class HeapBroadcastState(_ReadableBroadcastState, BroadcastState[Any, Any]):
    """Broadcast state as the broadcast side sees it."""

    __slots__ = ("_kind",)

    def __init__(self, table: HeapTable, kind: Kind) -> None:
        super().__init__(table)
        self._kind = kind

    def put(self, key: Any, value: Any) -> None:
        """Set the value under a key."""
        self.put_all({key: value})

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        """Set several values: all or, if one does not fit, none."""
        for key, value in entries_of(self._kind, dict_value).items():
            self._table[with_one_nan(key)] = value

    def remove(self, key: Any) -> None:
        """Remove the value under a key."""
        self._table.pop(with_one_nan(key), None)

    def clear(self) -> None:
        self._table.clear()


class _NamedState:
    """A table, with the descriptor under which the program declared it, if it did."""

    __slots__ = ("info", "kind", "list_state", "others", "table")

    def __init__(self, info: StateInfo, table: HeapTable, kind: Kind | None = None) -> None:
        self.info, self.table, self.kind = info, table, kind
        self.others: list[_NamedState] = []  # restored from subtasks with another type of this state
        self.list_state = None if kind is None or kind.name != "list" else HeapOperatorListState(table, kind)

    @property
    def changeable(self) -> bool:
        """Whether values may be changed in place: the program holds them, and their type allows it."""
        return self.kind is not None and not _always_frozen(self.kind.descriptor)


class HeapOperatorState(OperatorStateStore):
    """All operator state of one operator in one subtask.

    Args:
        operator: its name, for errors.
        strict_integers: integers that do not fit their type are an error instead of wrapping.
    """

    def __init__(self, operator: str = "", *, strict_integers: bool = False) -> None:
        self._operator, self._strict = operator, strict_integers
        self._parts: dict[str, _NamedState] = {}
        self._snapshot: SlicedSnapshot | None = None

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return the list whose elements are redistributed when the parallelism changes."""
        part = self._part(state_descriptor, ListStateDescriptor, "get_list_state", SPLIT)
        assert part.list_state is not None
        return part.list_state

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return the list that each subtask gets whole after a restore."""
        part = self._part(state_descriptor, ListStateDescriptor, "get_union_list_state", UNION)
        assert part.list_state is not None
        return part.list_state

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """Return the map that is the same in all subtasks."""
        part = self._part(state_descriptor, MapStateDescriptor, "get_broadcast_state", BROADCAST)
        assert part.kind is not None
        return HeapBroadcastState(part.table, part.kind)

    def read_only(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
        """Return broadcast state that can only be read."""
        return HeapReadOnlyBroadcastState(
            self._part(state_descriptor, MapStateDescriptor, "get_broadcast_state", BROADCAST).table
        )

    def get_registered_state_names(self) -> set[str]:
        return {name for name, part in self._parts.items() if part.kind is not None and part.info.kind != BROADCAST}

    def get_registered_broadcast_state_names(self) -> set[str]:
        return {name for name, part in self._parts.items() if part.kind is not None and part.info.kind == BROADCAST}

    def _part(self, descriptor: Any, descriptor_class: type[StateDescriptor], method: str, mode: str) -> _NamedState:
        if not isinstance(descriptor, descriptor_class):
            raise ProgramError(f"{method}() takes a {descriptor_class.__name__}, not {descriptor!r}")
        name = descriptor.name
        part = self._parts.get(name)
        if part is None or part.kind is None:
            if descriptor.ttl_config is not None:
                raise ProgramError(f"operator {self._operator!r}: operator state {name!r} can't have a time-to-live")
            migration = migration_of(descriptor, strict_integers=self._strict)
            version = 0 if migration is None else migration.version
            info = StateInfo(name, mode, schema_of(descriptor.type_info), version=version, migration=migration)
            kind = kind_of(descriptor, strict_integers=self._strict)
            table = HeapTable() if part is None else _merged_table(part, info)
            part = self._parts[name] = _NamedState(info, table, kind)
        elif part.info.kind != mode or (part.kind is not None and part.kind.descriptor != descriptor):
            before = part.kind.descriptor if part.kind is not None else None
            raise ProgramError(
                f"operator {self._operator!r}: {part.info.kind} state {name!r} was asked for as {before!r} before and "
                f"is asked for as {mode} state {descriptor!r} now: give each state of an operator a name of its own"
            )
        return part

    # -- snapshots

    def snapshot(self, slice_seconds: float = SLICE_SECONDS) -> KeyedSnapshot:
        """Begin to write the current state, by the rules of keyed state."""
        before = self._snapshot
        if before is not None and not before.closed:
            raise RuntimeError("a snapshot is running, and there is one at a time: end or close it first")
        parts = [typed for part in self._parts.values() for typed in (part, *part.others)]
        for part in parts:
            drain(part.table, 0 if part.table.writing is None else len(part.table.writing.changes))
        self._snapshot = SlicedSnapshot(
            [OutgoingTable(part.info, part.table, _nothing) for part in parts], slice_seconds
        )
        for part in parts:
            if part.changeable:
                save_changeable(part.table)
        return self._snapshot

    def restore(self, snapshots: Sequence[OperatorSnapshot], subtask: int, parallelism: int) -> None:
        """Take over this subtask's part of what all subtasks wrote, before any state is declared.

        Args:
            snapshots: one of each subtask at the time of the snapshot, in their order.
            subtask: number of this one.
            parallelism: the current one.
        """
        if self._parts:
            raise RuntimeError("state must be restored before any is declared")
        # Elements of each split list so far, of all writers: their numbers decide which subtask gets them.
        dealt: dict[str, int] = {}
        for writer, snapshot in enumerate(snapshots):
            contents: list[dict[Any, Any]] = [{} for _ in snapshot.states]
            for chunk in snapshot.chunks:
                contents[chunk.state].update(read(snapshot.states[chunk.state].name, decode(chunk.data)))
            for info, content in zip(snapshot.states, contents, strict=True):
                # Broadcast state is the same in all: with more subtasks than writers they share what these wrote.
                if info.kind == BROADCAST and writer != subtask % len(snapshots):
                    continue
                part = self._restored(info)
                if info.kind == BROADCAST:
                    part.table.update(content)
                    continue
                elements = [content[position] for position in range(len(content))]
                if info.kind == SPLIT:
                    first = dealt.get(info.name, 0)
                    dealt[info.name] = first + len(elements)
                    # With the same parallelism each gets its own back; else elements are dealt out in turn.
                    same = parallelism == len(snapshots)
                    elements = [
                        element
                        for number, element in enumerate(elements, first)
                        if (writer if same else number % parallelism) == subtask
                    ]
                part.table.update(enumerate(elements, len(part.table)))

    def _restored(self, info: StateInfo) -> _NamedState:
        """The state that takes restored entries of this type; created for the first of them."""
        part = self._parts.setdefault(info.name, _NamedState(info, HeapTable()))
        for candidate in (part, *part.others):
            if candidate.info == info:
                return candidate
        part.others.append(_NamedState(info, HeapTable()))
        return part.others[-1]

    def close(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()
        self._parts.clear()


def _merged_table(restored: _NamedState, info: StateInfo) -> HeapTable:
    """Restored entries in the current type; where subtasks differed in the type, their entries are concatenated."""
    tables = [_converted_table(typed, info) for typed in (restored, *restored.others)]
    if len(tables) == 1:
        return tables[0]
    table = HeapTable()
    for adopted in tables:  # lists are tables by position
        table.update(enumerate([adopted[position] for position in range(len(adopted))], len(table)))
    return table


def _converted_table(restored: _NamedState, info: StateInfo) -> HeapTable:
    """Restored entries, converted to the current type."""
    compatible = compatibility(restored.info, info)
    if compatible.answer is SchemaCompatibility.INCOMPATIBLE:
        raise StateMigrationError(info.name, compatible.field, compatible.reason)
    convert = compatible.convert
    if convert is None:
        if holds_pickles(info.schema):
            complete(info.name, restored.table.values())
        return restored.table
    table = HeapTable()
    try:
        if info.kind == BROADCAST:
            table.update(convert(dict(restored.table)))
        else:
            table.update([(position, convert(value)) for position, value in restored.table.items()])
    except LostKeysError as error:
        raise StateMigrationError(info.name, error.field, error.reason) from None
    return table


def _always_frozen(descriptor: StateDescriptor) -> bool:
    """Whether the type allows only numbers, text and tuples of these."""
    type_info = descriptor.value_type_info if isinstance(descriptor, MapStateDescriptor) else descriptor.type_info
    types = type_info.field_types if isinstance(type_info, TupleTypeInfo) else [type_info]
    return all(isinstance(part, BasicTypeInfo) for part in types)


def _nothing() -> None:
    """Do nothing: states of operators look up their table each time."""
