"""The state backend ``rocksdb``.

The kinds of state, their types, time-to-live and migration are those of ``hashmap``; only the tables below them are on
disk (``table.py``), and so is state in columns (``columns.py``). A database is created with the first table, or when
columns have to be written. The next timers (``timers.py``) and what operators attach are in memory, and in chunks of
a snapshot; everything else is in its files. Checkpoints name a file by the database that wrote it first and its name
there: RocksDB's file numbers repeat from attempt to attempt, with other contents.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar, Final

import pyarrow as pa
from typing_extensions import override

from firesteel.config import Settings
from firesteel.core.call_each import call_each
from firesteel.core.errors import CheckpointVersionError, ConfigurationError, StateMigrationError, StateRestoreError
from firesteel.functions.metrics import MetricGroup
from firesteel.functions.state import StateDescriptor
from firesteel.state.attempt_directories import attempt_directory
from firesteel.state.backend import KeyedStateParameters, StateBackend, TimerQueue
from firesteel.state.columnar.row_table import ROWS, RowLife, RowTable
from firesteel.state.columnar.snapshots import COLUMNS, GroupsOf
from firesteel.state.columnar.store import ColumnarState, by_first, one_group
from firesteel.state.heap import TABLE, HeapKeyedState, SnapshotTable, SweepsAtEachRecord, place_of
from firesteel.state.heap_migration import converter_between
from firesteel.state.heap_states import STATES, HeapState, Kind
from firesteel.state.heap_timers import KIND as TIMERS
from firesteel.state.heap_ttl import TTL_ENTRIES, Life
from firesteel.state.keys import NO_KEY
from firesteel.state.schema import LostKeysError
from firesteel.state.snapshots import (
    AttachedState,
    Outgoing,
    Purpose,
    SlicedSnapshot,
    SnapshotFiles,
    StateChunk,
    StateInfo,
    WrittenState,
)
from firesteel.state.timelines import TIMELINE, Timeline, entries_of_tables
from firesteel_rocksdb import key_bytes
from firesteel_rocksdb.canonical import OutgoingEntries
from firesteel_rocksdb.columns import ColumnsOnDisk
from firesteel_rocksdb.database import Linking, Pair, RocksDatabase
from firesteel_rocksdb.metrics import show
from firesteel_rocksdb.rows import RowsOnDisk
from firesteel_rocksdb.settings import RocksDBSettings, memory_of
from firesteel_rocksdb.table import OutgoingFiles, RocksTable, TableStore, TableSweeper, moved, range_of
from firesteel_rocksdb.timelines import TimelineTable
from firesteel_rocksdb.timers import RocksTimerQueue, TimerTable
from firesteel_rocksdb.value_state import RocksValueState

CONTENTS: Final = "firesteel-rocksdb.json"
"""The file of a snapshot that names all others."""
FORMAT: Final = 1
FORMAT_WITH_TIMERS: Final = 2
"""Format of snapshots whose timers are in tables; the others can still be read by versions without timers on disk."""
FORMAT_WITH_TIMELINES: Final = 3
"""Format of snapshots that have records by time (timelines)."""
FORMAT_WITH_ROWS: Final = 4
"""Format of snapshots that have tables of many rows for each key."""
_FORMATS: Final = (FORMAT, FORMAT_WITH_TIMERS, FORMAT_WITH_TIMELINES, FORMAT_WITH_ROWS)
_TOGETHER: Final = 256
"""Entries that are converted to another type at a time."""
_SNAPSHOT: Final = "snapshot-"
"""Prefix of folders with linked files."""


class RocksDBSnapshot(SlicedSnapshot):
    """A snapshot: chunks of what is only in memory, then the files of the database."""

    has_files: ClassVar[bool] = True

    def __init__(self, stores: Sequence[Outgoing], slice_seconds: float, files: OutgoingFiles, owner: Any) -> None:
        self._files, self._owner = files, owner
        self._complete = False
        super().__init__(stores, slice_seconds)

    def _slice(self, now: float) -> list[StateChunk] | None:
        chunks = super()._slice(now)
        self._complete = chunks is None
        return chunks

    def close(self) -> None:
        """Close the snapshot; linked files that nobody will ask for are removed."""
        if not self.closed and not self._complete and self._files.linking is not None:
            self._owner.discard(self._files.linking)
        super().close()

    def wait(self) -> None:
        """Wait until the database is no longer read."""
        if self._files.linking is not None:
            self._files.linking.wait()

    def write_files(self, files: SnapshotFiles) -> None:
        """Store the files that the base checkpoint does not have, and the contents file that names them all."""
        linking = self._files.linking
        assert linking is not None
        try:
            names: dict[str, str] = {}
            for local in linking.files():
                path = os.path.join(linking.path, local)
                names[local] = name = self._owner.stored_name(local)
                if not local.endswith(".sst"):
                    files.put(name, path)
                elif name in files.known:
                    if files.known[name] != os.path.getsize(path):
                        raise RuntimeError(
                            f"{path} has another size than the file {name!r} of the last checkpoint, which it should be"
                        )
                    files.keep(name)
                else:
                    files.put(name, path)
            contents = {
                "format": _format_of(self._files.states),
                "keys": key_bytes.VERSION,
                "tables": [
                    [number, info.to_json()]
                    for number, info in zip(self._files.numbers, self._files.states, strict=True)
                ],
                "columns": {str(number): plain for number, plain in self._files.columns.items()},
                "next": self._files.next_number,
                "files": names,
            }
            path = os.path.join(linking.path, CONTENTS)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(contents, file)
            files.put(CONTENTS, path)
            self.amounts = dict(enumerate(linking.seen()))
        finally:
            linking.remove()
            self._owner.links_removed()


def _format_of(states: Sequence[StateInfo]) -> int:
    """Lowest format that can hold all these states."""
    kinds = {info.kind for info in states}
    if ROWS in kinds:
        return FORMAT_WITH_ROWS
    return FORMAT_WITH_TIMELINES if TIMELINE in kinds else FORMAT_WITH_TIMERS if TIMERS in kinds else FORMAT


class _ChunksOf(WrittenState):
    """The chunks of a snapshot, without its files and the states in them.

    Args:
        written: the whole snapshot.
        tables: how many of its states are in files; they come first.
    """

    files: Mapping[str, int] = {}

    def __init__(self, written: WrittenState, tables: int) -> None:
        self.states, self.key_groups = written.states[tables:], written.key_groups
        self._written, self._tables = written, tables

    def chunks(self) -> Iterator[StateChunk]:
        for chunk in self._written.chunks():
            yield replace(chunk, state=chunk.state - self._tables)

    def fetch(self, name: str, path: str) -> None:
        raise AssertionError("it has no files")


class RocksDBKeyedState(HeapKeyedState):
    """All keyed state of one operator of one subtask."""

    fetches_ahead: ClassVar[bool] = True
    states: ClassVar[Mapping[str, type[HeapState]]] = {**STATES, "value": RocksValueState}
    __slots__ = (
        "_closed",
        "_columns",
        "_directory",
        "_discarded",
        "_in_use",
        "_incarnation",
        "_names",
        "_settings",
        "_store",
    )

    def __init__(self, parameters: KeyedStateParameters, settings: RocksDBSettings) -> None:
        super().__init__(parameters)
        self._settings = settings
        self._directory = ""
        self._store: TableStore | None = None
        self._incarnation = uuid.uuid4().hex[:16]
        self._names: dict[str, str] = {}
        self._closed = False
        self._in_use = threading.Lock()
        """Held while the database is closed, and while another thread moves entries into their new type."""
        self._columns: dict[str, ColumnsOnDisk | RowsOnDisk] = {}
        self._discarded: list[Linking] = []
        """Linked folders of snapshots that were given up, as long as their files may still exist."""

    @property
    def database(self) -> RocksDatabase | None:
        """The database; None before the first table."""
        return None if self._store is None else self._store.database

    def show_metrics(self, group: MetricGroup) -> None:
        """Show the database metrics that the settings ask for."""
        show(group, self._settings, self._property)

    def _property(self, name: str) -> str | None:
        database = self.database
        return None if database is None else database.property(name)

    # -- tables

    @override
    def fetch_ahead(self, keys: Callable[[], Sequence[Any]]) -> None:
        if self._store is not None:
            self._store.fetch(keys)

    def _open_store(self) -> TableStore:
        if self._store is None:
            self._store = self._open(exists=False)
        return self._store

    def _open(self, *, exists: bool, next_number: int = 1) -> TableStore:
        memory = memory_of(self._settings, self._parameters.memory)
        groups_of = self._parameters.key_groups_of_keys or self._groups_one_by_one
        database = RocksDatabase(
            self._attempt_directory(), self._parameters.operator, self._settings, memory, exists=exists
        )
        return TableStore(database, self._parameters.key_group_of, groups_of, memory.objects, next_number)

    def _groups_one_by_one(self, keys: Sequence[Any]) -> list[int]:
        return call_each(self._parameters.key_group_of, keys)

    def _attempt_directory(self) -> str:
        if not self._directory:
            directory = self._parameters.directory
            if self._settings.directories:
                directory = attempt_directory(self._settings.directories, self._parameters.operator)
            self._directory = directory or tempfile.mkdtemp(prefix="firesteel-rocksdb-")
            try:
                os.makedirs(self._directory, exist_ok=True)
            except OSError as error:
                raise ConfigurationError(f"RocksDB can't keep files in {self._directory}: {error}") from error
        return self._directory

    def _new_table(self, info: StateInfo) -> Any:
        return self._create_table(self._open_store(), info, 0)

    def _create_table(self, store: TableStore, info: StateInfo, number: int) -> RocksTable:
        number = number or store.new_number()
        return store.add_table((TimelineTable if info.kind == TIMELINE else RocksTable)(store, number, info))

    def _first_table(self, info: StateInfo, restored: Sequence[SnapshotTable]) -> Any:
        now = self._parameters.clock.epoch_ms()
        converters = [converter_between(part.info, info, now) for part in restored]
        if len(restored) == 1 and converters[0] is None:
            table = _table_of(restored[0])
            table.info = info
            return table
        merged = self._create_table(self._open_store(), info, 0)

        def fill() -> None:
            try:
                for part, convert in zip(restored, converters, strict=True):
                    self._bring(_table_of(part).entries(), convert, merged)
            except LostKeysError as error:
                raise StateMigrationError(info.name, error.field, error.reason) from None
            self._drop(restored)

        if restored:
            self._migrate(fill)
        return merged

    def _drop(self, parts: Sequence[SnapshotTable]) -> None:
        with self._in_use:
            if self._store is not None:
                for part in parts:
                    self._store.drop(_table_of(part))

    def _timeline_in(self, table: Any, former: Sequence[SnapshotTable]) -> Timeline:
        """The table itself, after the entries of the tables of format 1 were moved into it."""
        timeline: TimelineTable = table

        def fill() -> None:
            for part in former:
                self._bring(entries_of_tables(_table_of(part).entries()), None, timeline)
            self._drop(former)

        if former:
            self._migrate(fill)
        return timeline

    def _bring(
        self, entries: Iterator[tuple[Any, Any]], convert: Callable[[Any], Any] | None, target: RocksTable
    ) -> None:
        """Move entries into another table, some at a time.

        Between two turns another thread may close the database: nobody needs the rest then. The user's converters run
        without the lock, so that nobody waits for them.
        """
        while True:
            with self._in_use:
                entries_of_turn = list(islice(entries, _TOGETHER)) if self._store is not None else []
            converted = (
                entries_of_turn if convert is None else [(key, convert(value)) for key, value in entries_of_turn]
            )
            with self._in_use:
                if self._store is not None:
                    for key, value in converted:
                        target[key] = value
            if len(entries_of_turn) < _TOGETHER:
                return

    def _sweeper(self, table: Any, life: Life, kind: Kind) -> Any:
        return TableSweeper(table, life, TTL_ENTRIES[kind.name].drop)

    def _sweeping(self) -> Any:
        return _SweepingRocksDBKeyedState

    def drop_table(self, name: str) -> None:
        """Forget a table; a snapshot that has begun still has it."""
        parts = [*self._restored.pop((name, TABLE), ())]
        table = self._parts.pop((name, TABLE), None)
        for part in parts if table is None else [*parts, table]:
            self._open_store().drop(_table_of(part))

    def keys(self, descriptor: StateDescriptor | None = None) -> Iterator[Any]:
        """Each key that has state without a namespace, once; they are never all in memory."""
        self._catch_up()
        tables: list[Any] = []
        for part in self._all_parts():
            info = part.info
            if not info.namespaced and (descriptor is None or (info.name == descriptor.name and info.kind != TABLE)):
                tables.append(part.table)
        for number, table in enumerate(tables):
            for key in table:
                if not any(key in earlier for earlier in islice(tables, number)):
                    yield key

    # -- timers

    def _new_queue(self, name: str) -> TimerQueue:
        if not self._settings.timers_on_disk:
            return super()._new_queue(name)
        room = memory_of(self._settings, self._parameters.memory).objects.share // 3
        return RocksTimerQueue(StateInfo(name, TIMERS, {}), self._parameters.key_groups, self._open_store, room)

    def _outgoing_timers(self, name: str, queue: Any, purpose: Purpose) -> Outgoing:
        return super()._outgoing_timers(name, queue.head if isinstance(queue, RocksTimerQueue) else queue, purpose)

    def _timer_table(self, store: TableStore, info: StateInfo, number: int) -> TimerTable:
        """Table of timers in a database, which becomes the part of the queue that is on disk."""
        table, queue = store.add_table(TimerTable(store, number, info)), self.timers(info.name)
        if isinstance(queue, RocksTimerQueue):
            queue.adopt(table)
        return table

    # -- columns

    def columns(self, name: str, key_types: Sequence[pa.DataType], grouped: int | None = None) -> ColumnarState:
        """Create state in columns in front of the database."""
        parameters = self._parameters
        groups_of = by_first(parameters.key_groups_of, grouped)
        columns = ColumnsOnDisk(name, key_types, groups_of, parameters.key_groups, self._open_store)
        self.attach(columns)
        self._columns[name] = columns
        return columns

    @override
    def rows(
        self,
        name: str,
        key_types: Sequence[pa.DataType],
        schema: pa.Schema,
        numbers: Sequence[str] = (),
        groups_of: GroupsOf = one_group,
        key_groups: range = range(1),
        life: RowLife | None = None,
    ) -> RowTable:
        """Create state of many rows for each key in front of the database."""
        table = RowsOnDisk(name, key_types, schema, numbers, groups_of, key_groups, life, open_store=self._open_store)
        self.attach(table)
        self._columns[name] = table
        return table

    def _attached_in_chunks(self) -> list[AttachedState]:
        return [attached for name, attached in self._attached.items() if name not in self._columns]

    # -- snapshots

    def _outgoing_tables(self, purpose: Purpose) -> list[Outgoing]:
        for columns in self._columns.values():
            columns.home()
        if self._store is None:
            return []
        if purpose.canonical:
            return [OutgoingEntries(self._store)]
        path = os.path.join(self._directory, f"{_SNAPSHOT}{uuid.uuid4().hex[:16]}")
        return [OutgoingFiles(self._store, path, self._parameters.key_groups)]

    def _sliced(self, stores: Sequence[Outgoing], slice_seconds: float, purpose: Purpose) -> SlicedSnapshot:
        if purpose.canonical or not stores or not isinstance(stores[0], OutgoingFiles):
            return super()._sliced(stores, slice_seconds, purpose)
        snapshot = RocksDBSnapshot(stores, slice_seconds, stores[0], self)
        snapshot.shared = purpose.shares
        return snapshot

    def stored_name(self, local: str) -> str:
        """Name of a local file in checkpoints."""
        return self._names.get(local) or f"{self._incarnation}-{local}"

    def discard(self, linking: Linking) -> None:
        """Remove, on another thread, the linked files of a snapshot that was given up."""
        self._discarded = [earlier for earlier in self._discarded if not earlier.removed]
        self._discarded.append(linking)
        linking.remove_later(self.links_removed)

    def links_removed(self) -> None:
        """Note that the files of a snapshot are stored and their links removed. Called on any thread."""
        if self._closed:
            self._remove_directory()

    # -- restoring

    def restore(self, written: Sequence[WrittenState]) -> None:
        """Take over the files and chunks of snapshots."""
        files: list[tuple[WrittenState, dict[str, Any]]] = []
        chunks: list[WrittenState] = []
        try:
            for part in written:
                if CONTENTS not in part.files:
                    chunks.append(part)
                    continue
                contents = self._contents(part)
                files.append((part, contents))
                chunks.append(_ChunksOf(part, len(contents["tables"])))
            self._take_files(files)
            super().restore(chunks)
        except BaseException:
            self.close()
            raise

    def _contents(self, written: WrittenState) -> dict[str, Any]:
        directory = self._attempt_directory()
        path = os.path.join(directory, CONTENTS)
        written.fetch(CONTENTS, path)
        with open(path, encoding="utf-8") as file:
            contents: dict[str, Any] = json.load(file)
        os.unlink(path)
        if contents.get("format") not in _FORMATS or contents.get("keys") != key_bytes.VERSION:
            raise CheckpointVersionError(
                f"operator {self._parameters.operator!r}",
                f"its files of RocksDB have format {contents.get('format')} with keys of version "
                f"{contents.get('keys')}; this version reads {', '.join(map(str, _FORMATS))} with {key_bytes.VERSION}: "
                "restore with the version that wrote them",
            )
        missing = [name for name in contents["files"].values() if name not in written.files]
        if missing:
            raise StateRestoreError(
                f"operator {self._parameters.operator!r}: the checkpoint lacks files of RocksDB that it names: "
                f"{', '.join(missing)}"
            )
        return contents

    def _take_files(self, parts: list[tuple[WrittenState, dict[str, Any]]]) -> None:
        """Continue with the largest database, and copy the entries of the others into it."""
        if not parts:
            return
        parts = sorted(parts, key=lambda pair: -sum(pair[0].files.values()))
        (first, contents), others = parts[0], parts[1:]
        directory = self._attempt_directory()
        self._fetch(first, contents, os.path.join(directory, "db"))
        self._names = {local: name for local, name in contents["files"].items() if local.endswith(".sst")}
        store = self._store = self._open(exists=True, next_number=contents["next"])
        timers: dict[str, TimerTable] = {}
        for number, plain in contents["tables"]:
            info = StateInfo.from_json(plain)
            if info.kind in (COLUMNS, ROWS):
                if self._is_left_out(info):
                    store.database.forget_ranges([range_of(number, range(self._parameters.max_parallelism))])
                else:
                    self._columns_of(info).take_files(store, number, contents["columns"][str(number)])
                continue
            if info.kind == TIMERS:
                timers[info.name] = self._timer_table(store, info, number)
                continue
            restored_table: Any = self._create_table(store, info, number)
            self._restored.setdefault(place_of(info), []).append(SnapshotTable(info, restored_table))
        # The files have all key groups of the attempt that wrote them; those that moved to other subtasks are deleted.
        own_groups, stored_groups = self._parameters.key_groups, first.key_groups
        foreign = [
            groups
            for groups in (range(stored_groups.start, own_groups.start), range(own_groups.stop, stored_groups.stop))
            if groups
        ]
        numbers = [number for number, _ in contents["tables"]]
        store.database.forget_ranges([range_of(number, groups) for number in numbers for groups in foreign])
        for position, (part, part_contents) in enumerate(others):
            self._copy(store, part, part_contents, f"from-{position}", timers)
        for name, table in timers.items():
            if not isinstance(self.timers(name), RocksTimerQueue):  # the job keeps timers in memory from now on
                for timer in table:
                    self.timers(name).add(*timer)
                store.drop(table)

    def _fetch(self, written: WrittenState, contents: Mapping[str, Any], folder: str) -> None:
        os.makedirs(folder)
        for local, name in contents["files"].items():
            written.fetch(name, os.path.join(folder, os.path.basename(local)))

    def _copy(
        self,
        store: TableStore,
        written: WrittenState,
        contents: Mapping[str, Any],
        name: str,
        timers: dict[str, TimerTable],
    ) -> None:
        """Copy the entries of this subtask's key groups out of another database."""
        self._fetch(written, contents, os.path.join(self._directory, name))
        memory = memory_of(self._settings, self._parameters.memory)
        operator = self._parameters.operator
        source = RocksDatabase(self._directory, operator, self._settings, memory, exists=True, name=name)
        try:
            for number, plain in contents["tables"]:
                info = StateInfo.from_json(plain)
                if self._is_left_out(info):
                    continue
                if info.kind == TIMERS and info.name not in timers:
                    timers[info.name] = self._timer_table(store, info, store.new_number())
                entry_here = self._copier(info, contents.get("columns", {}).get(str(number)), timers)
                groups = range_of(number, self._parameters.key_groups)
                store.database.ingest(entry_here(place, data) for place, data in source.scan(*groups))
        finally:
            source.close()

    def _copier(
        self, info: StateInfo, plain: dict[str, Any] | None, timers: Mapping[str, TimerTable]
    ) -> Callable[[bytes, bytes], Pair]:
        """Function that turns an entry of another database into one of this database."""
        if info.kind in (COLUMNS, ROWS):
            assert plain is not None
            return self._columns_of(info).take_rows_of(plain)
        number = timers[info.name].number if info.kind == TIMERS else _table_of(self._restored_part(info)).number
        return lambda place, data: (moved(place, number), data)

    def _is_left_out(self, info: StateInfo) -> bool:
        """Whether columns are dropped, since nobody has requested them."""
        return self.drops_unknown_columns and info.kind in (COLUMNS, ROWS) and info.name not in self._columns

    def _columns_of(self, info: StateInfo) -> ColumnsOnDisk | RowsOnDisk:
        self._taker(info)  # refuses what does not fit
        if info.name not in self._columns:
            raise StateRestoreError(
                f"operator {self._parameters.operator!r}: its state {info.name!r} is on disk, and the operator has it "
                "in memory now: restore from a savepoint in canonical format"
            )
        return self._columns[info.name]

    # -- the end

    def close(self) -> None:
        """Forget everything, and remove the files."""
        if self._snapshot is not None:
            self._snapshot.close()
            if isinstance(self._snapshot, RocksDBSnapshot):
                self._snapshot.wait()
            self._snapshot = None
        for linking in self._discarded:
            linking.wait()
        self._discarded.clear()
        self._timelines.clear()
        for queue in self._timers.values():
            queue.clear()
        for attached in self._attached.values():
            attached.close()
        self._restored.clear()
        self._parts.clear()
        self._declared.clear()
        self.key = NO_KEY
        with self._in_use:
            store, self._store = self._store, None
            if store is not None:
                store.close()
        self._closed = True
        if self._directory:
            self._remove_directory()

    def _remove_directory(self) -> None:
        """Remove the directory, unless files of it are still being stored: then ``links_removed`` does it."""
        try:
            if not any(name.startswith(_SNAPSHOT) for name in os.listdir(self._directory)):
                shutil.rmtree(self._directory, ignore_errors=True)
        except FileNotFoundError:
            pass


def _table_of(part: SnapshotTable) -> RocksTable:
    table: Any = part.table
    assert isinstance(table, RocksTable)
    return table


class _SweepingRocksDBKeyedState(SweepsAtEachRecord, RocksDBKeyedState):
    __slots__ = ()


class RocksDBStateBackend(StateBackend):
    """The backend ``rocksdb``: state on local disks."""

    name = "rocksdb"

    def __init__(self) -> None:
        self._settings = RocksDBSettings()

    def configure(self, settings: Settings) -> None:
        """Take over the options ``state.backend.rocksdb.*`` of a job."""
        self._settings = RocksDBSettings.read(settings)

    def create_keyed_state(self, parameters: KeyedStateParameters) -> RocksDBKeyedState:
        return RocksDBKeyedState(parameters, self._settings)
