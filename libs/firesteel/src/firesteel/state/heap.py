"""``hashmap``: keyed state on the heap, one dict for each name, from key to value.

Keys that are equal in Python are one key, as in the stable key hash. The key group of a key is computed when a job of
another parallelism reads the state, not when it is used or written: on the hot path a value costs one dict look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Final

import pyarrow as pa
from typing_extensions import override

from firesteel.core.call_each import call_each
from firesteel.core.errors import ProgramError, StateRestoreError
from firesteel.functions.functions import KeyedStateStore
from firesteel.functions.state import StateDescriptor
from firesteel.state.backend import KeyedStateBackend, KeyedStateParameters, StateBackend, TimerQueue
from firesteel.state.columnar.deltas import Deltas
from firesteel.state.columnar.row_table import RowTable
from firesteel.state.columnar.snapshots import REMOVED
from firesteel.state.columnar.store import ColumnarState, by_first
from firesteel.state.fitting import fits_as_it_is
from firesteel.state.heap_migration import adopt, converter_between, migration_of, together
from firesteel.state.heap_snapshot import GroupsOfKeys, OutgoingTable, decode
from firesteel.state.heap_states import STATES, HeapState, HeapValueState, Kind, kind_of, merge_values
from firesteel.state.heap_timers import KIND as TIMERS
from firesteel.state.heap_timers import HeapTimerQueue, OutgoingTimers, timers_by_group, timers_in
from firesteel.state.heap_ttl import TTL_ENTRIES, TTL_STATES, Life, Sweeper
from firesteel.state.keys import NO_KEY, NamespacedKey, NoKey
from firesteel.state.pickled_values import complete, holds_pickles, read
from firesteel.state.schema import schema_of
from firesteel.state.snapshots import (
    NO_CHECKPOINT,
    SEVERAL,
    SLICE_SECONDS,
    AttachedState,
    ByKeyGroup,
    Outgoing,
    Purpose,
    SlicedSnapshot,
    StateAmount,
    StateChunk,
    StateInfo,
    WrittenState,
)
from firesteel.state.stores import StateGetters
from firesteel.state.tables import MISSING, HeapTable, Table, TtlTable, drain
from firesteel.state.timelines import TIMELINE, HeapTimeline, Timeline, check_format, entries_of_tables, info_of

__all__ = ["NO_KEY", "HeapKeyedState", "HeapStateBackend", "HeapValueState", "NoKey"]

TABLE: Final = "table"
_OF_RUNTIME: Final = (TABLE, TIMELINE)
_SINGLE: Final = frozenset({"value", "reducing"})
"""Kinds whose values are of the descriptor's type."""
_MERGING: Final = frozenset({"list", "reducing", "aggregating"})


def place_of(info: StateInfo) -> tuple[str, str]:
    """Name of a state, and whether it is a table: tables and states may have the same name."""
    return info.name, info.kind if info.kind in _OF_RUNTIME else "namespaced" if info.namespaced else "plain"


class _Declared:
    """State that the program has declared.

    Attributes:
        kind: how it is stored, with its descriptor.
        life: its time-to-live, if it has one.
        state: the state without a namespace; its methods are bound anew when a snapshot begins or ends.
    """

    __slots__ = ("kind", "life", "state")

    def __init__(self, kind: Kind, life: Life | None) -> None:
        self.kind, self.life = kind, life
        self.state: HeapState | None = None


class SnapshotTable:
    """A table of heap state, with its description in snapshots."""

    __slots__ = ("info", "prune", "table")

    def __init__(self, info: StateInfo, table: Table, prune: Callable[[Any, int], Any] | None = None) -> None:
        self.info, self.table, self.prune = info, table, prune


class HeapKeyedState(StateGetters, KeyedStateBackend):
    """All keyed state of one operator in one subtask.

    Attributes:
        key: of the record being processed; set by the operator, read by the states.
    """

    states: ClassVar[Mapping[str, type[HeapState]]] = STATES
    """State classes by kind, without time-to-live."""

    __slots__ = (
        "_attached",
        "_declared",
        "_defers",
        "_deltas",
        "_every_record",
        "_later",
        "_parameters",
        "_parts",
        "_restored",
        "_snapshot",
        "_timelines",
        "_timers",
        "drops_unknown_columns",
        "key",
    )

    def __init__(self, parameters: KeyedStateParameters | None = None, *, strict_integers: bool = False) -> None:
        self.key: Any = NO_KEY
        self._parameters = parameters or KeyedStateParameters(strict_integers=strict_integers)
        self._declared: dict[str, _Declared] = {}
        self._parts: dict[tuple[str, str], SnapshotTable] = {}
        self._restored: dict[
            tuple[str, str], list[SnapshotTable]
        ] = {}  # several where subtasks of before differ in the type
        self._every_record: list[Sweeper] = []
        self._timers: dict[str, Any] = {}
        self._timelines: dict[str, Any] = {}
        self._attached: dict[str, AttachedState] = {}
        self.drops_unknown_columns = False
        self._deltas: Deltas | None = None
        self._snapshot: SlicedSnapshot | None = None
        self._defers, self._later = False, list[Callable[[], None]]()

    # -- states

    def store(self, namespace: Any = None) -> KeyedStateStore:
        """The states of the current key and a namespace."""
        return self if namespace is None else _NamespaceStore(self, namespace)

    def _state(self, descriptor: Any, descriptor_class: type[StateDescriptor], method: str) -> Any:
        declared = self._declare(descriptor, descriptor_class, method)
        if declared.state is None:
            declared.state = self._make(declared, self, namespaced=False)
        return declared.state

    def namespaced_state(
        self, descriptor: Any, descriptor_class: type[StateDescriptor], method: str, namespace: Any
    ) -> Any:
        """State of the current key and a namespace."""
        return self._make(
            self._declare(descriptor, descriptor_class, method), NamespacedKey(self, namespace), namespaced=True
        )

    def _declare(self, descriptor: Any, descriptor_class: type[StateDescriptor], method: str) -> _Declared:
        if not isinstance(descriptor, descriptor_class):
            raise ProgramError(f"{method}() takes a {descriptor_class.__name__}, not {descriptor!r}")
        name = descriptor.name
        declared = self._declared.get(name)
        if declared is None:
            config = descriptor.ttl_config
            life = Life(config, self._parameters.clock) if config is not None and config.is_enabled() else None
            kind = kind_of(descriptor, strict_integers=self._parameters.strict_integers)
            declared = self._declared[name] = _Declared(kind, life)
        elif declared.kind.descriptor is not descriptor and declared.kind.descriptor != descriptor:
            raise ProgramError(
                f"state {name!r} was asked for as {declared.kind.descriptor!r} before and is asked for as "
                f"{descriptor!r} now: give each state of a function a name of its own"
            )
        return declared

    def _make(self, declared: _Declared, keyed: Any, *, namespaced: bool) -> HeapState:
        kind, life = declared.kind, declared.life
        table = self._part(declared, namespaced=namespaced).table
        if life is None:
            return self.states[kind.name](keyed, table, kind)
        sweep = self._sweeper(table, life, kind).sweep if life.cleanup_size else _nothing
        return TTL_STATES[kind.name](keyed, table, kind, life, TTL_ENTRIES[kind.name].drop, sweep)

    def _part(self, declared: _Declared, *, namespaced: bool) -> SnapshotTable:
        kind, life = declared.kind, declared.life
        name = kind.descriptor.name
        place = (name, "namespaced" if namespaced else "plain")
        part = self._parts.get(place)
        if part is None:
            migration = migration_of(kind.descriptor, strict_integers=self._parameters.strict_integers)
            info = StateInfo(
                name,
                kind.name,
                schema_of(kind.descriptor.type_info),
                namespaced,
                life is not None,
                0 if migration is None else migration.version,
                migration,
            )
            table = self._first_table(info, self._restored.get(place, ()))
            prune = TTL_ENTRIES[kind.name].alive if life is not None and life.drop_at_snapshot else None
            self._restored.pop(place, None)
            part = self._parts[place] = SnapshotTable(info, table, prune)
            if life is not None and life.every_record and life.cleanup_size:
                self._every_record.append(self._sweeper(table, life, kind))
                self.__class__ = self._sweeping()
        return part

    # -- what tables are: others keep theirs elsewhere

    def _new_table(self, info: StateInfo) -> Any:
        """Create an empty table; restored entries go into it as they were written."""
        return HeapTable()

    def _first_table(self, info: StateInfo, restored: Sequence[SnapshotTable]) -> Any:
        """Create the table of a state that is declared now, with the entries restored for it.

        Raises:
            StateMigrationError: the entries can't become entries of the declared type.
        """
        now = self._parameters.clock.epoch_ms()
        converters = [converter_between(part.info, info, now) for part in restored]
        if converters == [None] and not info.ttl:
            if holds_pickles(info.schema):
                self._migrate(lambda: complete(info.name, restored[0].table.values()))
            return restored[0].table
        table = TtlTable() if info.ttl else HeapTable()

        def fill() -> None:
            table.update(together(info, [adopt(part.info, part.table, info, now) for part in restored]).items())
            if holds_pickles(info.schema):
                complete(info.name, table.values())

        if restored:
            self._migrate(fill)
        return table

    def _migrate(self, work: Callable[[], None]) -> None:
        """Convert restored entries to the current type: at once, or later on a thread that may block."""
        if self._defers:
            self._later.append(work)
        else:
            work()

    @override
    def defer_migrations(self) -> None:
        self._defers = True

    @override
    def take_migrations(self) -> Sequence[Callable[[], None]]:
        self._defers = False
        later, self._later = self._later, []
        return later

    def _catch_up(self) -> None:
        """Run all migrations that are still waiting."""
        for work in self.take_migrations():
            work()

    def _sweeper(self, table: Any, life: Life, kind: Kind) -> Any:
        """Create what removes expired entries of a table."""
        return Sweeper(table, life, TTL_ENTRIES[kind.name].drop)

    def _sweeping(self) -> Any:
        """Class of backends that remove expired entries with each record."""
        return _SweepingKeyedState

    # -- namespaces and tables

    def clear_namespace(self, namespace: Any) -> None:
        """Forget all states of the current key and a namespace."""
        place = (self.key, namespace)
        for part in self._all_parts():
            if part.info.namespaced and part.info.kind != TIMELINE:
                part.table.pop(place, None)

    def merge_namespaces(self, descriptor: StateDescriptor, target: Any, sources: Iterable[Any]) -> None:
        """Merge the state of some namespaces into that of another one."""
        declared = self._declare(descriptor, StateDescriptor, "merge_namespaces")
        kind, life = declared.kind, declared.life
        if kind.name not in _MERGING:
            raise ProgramError(f"state {descriptor.name!r} is {kind.name} state, which can't be merged")
        table = self._part(declared, namespaced=True).table
        place = (self.key, target)
        for source in sources:
            source_value: Any = MISSING if source == target else table.pop((self.key, source), MISSING)
            if source_value is MISSING:
                continue
            value: Any = table.get(place, MISSING)
            if value is MISSING:
                merged = source_value
            elif life is None:
                merged = merge_values(kind, value, source_value)
            elif kind.name == "list":
                merged = sorted([*value, *source_value], key=_stamp_of)
            else:
                merged = (merge_values(kind, value[0], source_value[0]), max(value[1], source_value[1]))
            table[place] = merged
            table.touch(place)

    def table(self, name: str) -> MutableMapping[Any, Any]:
        """Values of a name by key; the table is created if there is none."""
        place = (name, TABLE)
        part = self._parts.get(place)
        if part is None:
            before = self._restored.pop(place, None)
            info = StateInfo(name, TABLE, {})
            part = self._parts[place] = before[0] if before else SnapshotTable(info, self._new_table(info))
        return part.table

    def table_names(self) -> list[str]:
        return list(dict.fromkeys(name for name, area in (*self._restored, *self._parts) if area == TABLE))

    def drop_table(self, name: str) -> None:
        """Forget a table; a snapshot that has begun goes on reading it."""
        self._restored.pop((name, TABLE), None)
        self._parts.pop((name, TABLE), None)

    def timeline(self, name: str) -> Timeline:
        """Records of a name by key and time; created if there are none."""
        timeline: Timeline | None = self._timelines.get(name)
        if timeline is None:
            timeline = self._timelines[name] = self._make_timeline(name)
        return timeline

    def _make_timeline(self, name: str) -> Timeline:
        restored, former = (self._restored.pop((name, area), []) for area in (TIMELINE, TABLE))
        for part in restored:
            check_format(part.info, self._parameters.operator)
        info = info_of(name)
        part = self._parts[name, TIMELINE] = restored[0] if restored else SnapshotTable(info, self._new_table(info))
        return self._timeline_in(part.table, former)

    def _timeline_in(self, table: Any, former: Sequence[SnapshotTable]) -> Timeline:
        """Timeline of a table, with the records of tables that were written in format 1."""
        timeline = HeapTimeline(table)

        def fill() -> None:
            timeline.fill(entries_of_tables(chain.from_iterable(part.table.items() for part in former)))

        if table or former:
            self._migrate(fill)
        return timeline

    def keys(self, descriptor: StateDescriptor | None = None) -> Iterator[Any]:
        """Each key that has state without a namespace at this moment, once."""
        self._catch_up()
        keys: dict[Any, None] = {}
        for part in self._all_parts():
            info = part.info
            if not info.namespaced and (descriptor is None or (info.name == descriptor.name and info.kind != TABLE)):
                keys.update(dict.fromkeys(part.table))
        return iter(keys)

    def forget(self) -> None:
        """Forget the states of all keys: none of these keys comes again, and no snapshot is running."""
        for part in self._all_parts():
            part.table.clear()
        for timeline in self._timelines.values():
            timeline.clear()

    def _all_parts(self) -> list[SnapshotTable]:
        return [*self._parts.values(), *(part for parts in self._restored.values() for part in parts)]

    # -- timers and columns

    def timers(self, name: str) -> Any:
        """Timers of a name; the queue is created if there is none."""
        queue = self._timers.get(name)
        if queue is None:
            queue = self._timers[name] = self._new_queue(name)
        return queue

    def _new_queue(self, name: str) -> TimerQueue:
        """Create a queue of timers."""
        return HeapTimerQueue()

    def columns(self, name: str, key_types: Sequence[pa.DataType], grouped: int | None = None) -> ColumnarState:
        """Create state in columns."""
        groups_of = by_first(self._parameters.key_groups_of, grouped)
        columns = ColumnarState(name, key_types, groups_of, self._parameters.key_groups)
        self.attach(columns)
        return columns

    def attach(self, state: AttachedState) -> None:
        """Write and restore this state with the rest."""
        if state.info.name in self._attached:
            raise RuntimeError(f"there are columns of the name {state.info.name!r} already")
        self._attached[state.info.name] = state

    # -- snapshots

    def snapshot(self, slice_seconds: float = SLICE_SECONDS, purpose: Purpose = NO_CHECKPOINT) -> SlicedSnapshot:
        """Begin to write the current state."""
        before = self._snapshot
        if before is not None and not before.closed:
            raise RuntimeError("a snapshot is running, and there is one at a time: end or close it first")
        stores = self._outgoing_tables(purpose)
        stores += [self._outgoing_timers(name, queue, purpose) for name, queue in self._timers.items()]
        base, shared, amounts = None, False, dict[int, StateAmount]()
        in_columns = [state for state in self._attached.values() if isinstance(state, (ColumnarState, RowTable))]
        # Other state has nothing that says what has changed.
        if purpose.shares and not stores and in_columns and len(in_columns) == len(self._attached):
            self._deltas = self._deltas or Deltas(in_columns)
            marks, base = self._deltas.begin(purpose)
            shared = True
            first = 0
            for state, since in zip(in_columns, marks, strict=True):
                stores.append(state.outgoing(since, is_base=True))
                if base is not None:  # the chunks have only what has changed
                    amounts[first] = StateAmount(state.size, state.nbytes, counted=True)
                first += len(stores[-1].states)
        if not shared:
            for attached in self._attached_in_chunks():
                store = attached.outgoing()
                stores.append(ByKeyGroup(store, attached.divide) if purpose.canonical else store)
        self._snapshot = self._sliced(stores, slice_seconds, purpose)
        self._snapshot.base, self._snapshot.shared = base, shared or self._snapshot.shared
        self._snapshot.amounts = amounts or self._snapshot.amounts
        self._bind()
        return self._snapshot

    def _attached_in_chunks(self) -> list[AttachedState]:
        """Attached state that is written in chunks of its own."""
        return list(self._attached.values())

    def _outgoing_tables(self, purpose: Purpose) -> list[Outgoing]:
        """All tables, to be written."""
        return [self._outgoing_table(part, purpose) for part in self._all_parts()]

    def _outgoing_timers(self, name: str, queue: HeapTimerQueue, purpose: Purpose) -> Outgoing:
        store = OutgoingTimers(name, queue)
        if not purpose.canonical:
            return store
        return ByKeyGroup(store, partial(timers_by_group, groups_of=self._groups_of(namespaced=False)))

    def _groups_of(self, *, namespaced: bool) -> GroupsOfKeys:
        """Function that computes the key groups of a table's keys."""
        group_of, groups_of = self._parameters.key_group_of, self._parameters.key_groups_of_keys
        of_all = groups_of if groups_of is not None else lambda keys: call_each(group_of, keys)
        return (lambda keys: of_all([key for key, _ in keys])) if namespaced else of_all

    def _sliced(self, stores: Sequence[Outgoing], slice_seconds: float, purpose: Purpose) -> SlicedSnapshot:
        """Snapshot of these stores."""
        return SlicedSnapshot(stores, slice_seconds)

    def _outgoing_table(self, part: SnapshotTable, purpose: Purpose) -> OutgoingTable:
        table = part.table
        drain(table, len(table.writing.changes) if table.writing is not None else 0)
        prune = None
        if part.prune is not None:
            prune = partial(_prune, part.prune, self._parameters.clock.epoch_ms() - self._ttl_of(part))
        groups_of = self._groups_of(namespaced=part.info.namespaced) if purpose.canonical else None
        return OutgoingTable(
            part.info, table, self._bind, prune, numbers=self._holds_numbers(part), groups_of=groups_of
        )

    def _holds_numbers(self, part: SnapshotTable) -> bool:
        """Whether all values are small numbers."""
        declared = self._declared.get(part.info.name)
        if declared is None or declared.life is not None or part is not self._parts.get((part.info.name, "plain")):
            return False
        exact, _, _ = fits_as_it_is(declared.kind.descriptor.type_info)
        return declared.kind.name in _SINGLE and exact in (int, float, bool)

    def _ttl_of(self, part: SnapshotTable) -> int:
        life = self._declared[part.info.name].life
        assert life is not None
        return life.ttl

    def _bind(self) -> None:
        """Bind the methods of the tables anew: their classes have changed."""
        for declared in self._declared.values():
            if declared.state is not None:
                declared.state.bind()

    def restore(self, written: Sequence[WrittenState]) -> None:
        """Take over what former subtasks have written, as far as it belongs to the own key groups."""
        if self._declared or self._parts:
            raise RuntimeError("state is restored before any is asked for")
        for former in written:
            if former.files:
                raise StateRestoreError(
                    f"operator {self._parameters.operator!r}: its state is in files of another state backend "
                    f"({', '.join(sorted(former.files)[:3])}, ...): restore with the one that has written them "
                    "(state.backend.type)"
                )
            takers = [self._taker(info) for info in former.states]
            for chunk in former.chunks():
                takers[chunk.state](chunk)
            for attached in self._attached.values():
                attached.taken_back()

    def _taker(self, info: StateInfo) -> Callable[[StateChunk], None]:
        """Find what restores chunks of a state with this description."""
        if info.kind == TIMERS:
            return partial(self._take_timers, self.timers(info.name))
        if info.kind in _OF_RUNTIME or info.kind in STATES:
            return partial(self._take_entries, self._restored_part(info))
        attached = self._attached.get(info.name)
        if attached is None and self.drops_unknown_columns:
            return _leave_out
        if attached is None or info.kind not in (attached.info.kind, REMOVED):
            raise StateRestoreError(
                f"operator {self._parameters.operator!r}: the checkpoint has state {info.name!r} in {info.kind}, which "
                "the operator does not have any more. It was written by an operator of another kind: give the new one "
                "another uid."
            )
        attached.expect(info)
        return partial(self._take_attached, attached, info)

    def _restored_part(self, info: StateInfo) -> SnapshotTable:
        former = self._restored.setdefault(place_of(info), [])
        for part in former:
            if part.info == info:
                return part
        # of two subtasks only one may have asked for it since its type changed
        former.append(SnapshotTable(info, self._new_table(info)))
        return former[-1]

    def _take_entries(self, part: SnapshotTable, chunk: StateChunk) -> None:
        if chunk.key_group in self._parameters.key_groups:
            part.table.update(read(part.info.name, decode(chunk.data)))
        elif chunk.key_group == SEVERAL:
            entries = read(part.info.name, decode(chunk.data))
            part.table.update(self._own_entries(entries, namespaced=part.info.namespaced))

    def _take_timers(self, queue: TimerQueue, chunk: StateChunk) -> None:
        group_of, own = self._parameters.key_group_of, self._parameters.key_groups
        mixed = chunk.key_group == SEVERAL
        if mixed or chunk.key_group in own:
            for timestamp, key, namespace in timers_in(chunk.data):
                if not mixed or group_of(key) in own:
                    queue.add(timestamp, key, namespace)

    def _take_attached(self, attached: AttachedState, info: StateInfo, chunk: StateChunk) -> None:
        if chunk.key_group == SEVERAL or chunk.key_group in self._parameters.key_groups:
            attached.take_back(info, chunk)

    def _own_entries(self, entries: Iterable[tuple[Any, Any]], *, namespaced: bool) -> Iterator[tuple[Any, Any]]:
        group_of, own = self._parameters.key_group_of, self._parameters.key_groups
        for key, value in entries:
            if group_of(key[0] if namespaced else key) in own:
                yield key, value

    def close(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None
        for part in self._all_parts():
            writing = part.table.writing
            if writing is not None:
                drain(part.table, len(writing.changes))
            part.table.clear()
        self._timelines.clear()
        for queue in self._timers.values():
            queue.clear()
        for attached in self._attached.values():
            attached.close()
        self._restored.clear()
        self.key = NO_KEY


def _leave_out(chunk: StateChunk) -> None:
    """Restore nothing of a chunk: its state is not there any more."""


def _nothing() -> None:
    """Do nothing: this state is not cleaned up at access."""


def _stamp_of(pair: tuple[Any, int]) -> int:
    return pair[1]


def _prune(prune: Callable[[Any, int], Any], dead: int, entry: Any) -> Any:
    return prune(entry, dead)


_KEY: Final[Any] = HeapKeyedState.__dict__["key"]


class SweepsAtEachRecord:
    """Cleans up state with each record; a class of its own, so that only such operators pay for it."""

    __slots__ = ()

    @property
    def key(self: Any) -> Any:
        return _KEY.__get__(self, HeapKeyedState)

    @key.setter
    def key(self: Any, key: Any) -> None:
        _KEY.__set__(self, key)
        for sweeper in self._every_record:
            sweeper.sweep()


class _SweepingKeyedState(SweepsAtEachRecord, HeapKeyedState):
    __slots__ = ()


class _NamespaceStore(StateGetters):
    """The states of the current key and a namespace."""

    __slots__ = ("_keyed", "_namespace")

    def __init__(self, keyed: HeapKeyedState, namespace: Any) -> None:
        self._keyed, self._namespace = keyed, namespace

    def _state(self, descriptor: Any, descriptor_class: type[StateDescriptor], method: str) -> Any:
        return self._keyed.namespaced_state(descriptor, descriptor_class, method, self._namespace)


class HeapStateBackend(StateBackend):
    """The backend ``hashmap``: state on the heap."""

    name = "hashmap"

    def create_keyed_state(self, parameters: KeyedStateParameters) -> HeapKeyedState:
        return HeapKeyedState(parameters)


class FileSystemStateBackend(HeapStateBackend):
    """The backend ``filesystem``: state on the heap, snapshots in files, however small."""

    name = "filesystem"
    snapshots_in_files = True
