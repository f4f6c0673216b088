"""State tables on disk, with the objects that are in use in memory in front of them.

Writes go into a dict, the *young* one. When it is full it becomes a *layer*, and a new young dict begins. Layers are
written to the database a few entries at a time, and what was written stays in memory, as *clean* entries, until the
next turn: so keys that come often are always in memory, one look-up away. Values are serialised when they leave memory.

A value that can be changed in place counts as written once it has been handed out: its changes are then part of the
young dict, and snapshots hold what readers see.

While a snapshot is taken its layers are written to the database, and then its files are linked. Until both are done,
later writes stay in memory; the task waits when they need too much of it.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, ItemsView, Iterator, MutableMapping, Sequence, ValuesView
from contextlib import suppress
from operator import itemgetter
from typing import Any, ClassVar, Final, Protocol, TypeVar

from firesteel.common.own_copies import ATOMS
from firesteel.core.errors import TaskInterrupt
from firesteel.core.short_repr import short_repr
from firesteel.state.backend import FETCHED_TOGETHER
from firesteel.state.heap_snapshot import dumps
from firesteel.state.heap_ttl import Drop, Life
from firesteel.state.snapshots import Block, Outgoing, StateInfo
from firesteel.state.tables import MISSING, is_frozen
from firesteel_rocksdb.amounts import Amounts
from firesteel_rocksdb.database import Linking, Pair, RocksDatabase
from firesteel_rocksdb.key_bytes import decode, decode_exactly, encode, encode_exactly
from firesteel_rocksdb.settings import ObjectMemory

ABSENT: Final = object()
_place_of: Final = itemgetter(0)
_NUMBER: Final = struct.Struct(">I")
_GROUP: Final = struct.Struct(">H")
PREFIX: Final = _NUMBER.size + _GROUP.size
"""Bytes of a database key in front of the state's key: the number of the table and the key group."""
_LENGTH: Final = struct.Struct(">I")
_INT_PLACE: Final = struct.Struct(">IHcq").pack
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_TO_BE_DRAINED: Final = 128
"""New entries between two times that older entries are drained into the database."""
_DRAINED: Final = 512
"""Entries drained at a time; more would keep records waiting."""
_KEPT_AT_LEAST: Final = 256
"""Entries in memory below which no clean entries are kept: there is no room for them."""
_ENTRY: Final = 200
"""Bytes of an object in memory with its key, beyond its serialised size."""
_UNKNOWN: Final = 4096
"""Entries of the first young dict, before their size is known."""
_SWEPT: Final = 64
"""Entries checked together for their time-to-live."""
_SKIPPED: Final = 63
"""Batches for which nothing is read ahead after reading ahead was of no use."""


AnyTable = TypeVar("AnyTable", bound="RocksTable")


class PackedValue(bytes):
    """A value of a layer that was serialised when it was handed out."""


class OutgoingRows(Protocol):
    """Rows on their way into the database for a snapshot."""

    def take(self, most: int) -> Block | None:
        """Write some rows, ``most`` at most; None = none are left."""


class StoredColumns(Protocol):
    """State in columns whose rows are in the same database."""

    number: int
    info: StateInfo

    def begin(self) -> OutgoingRows:
        """Begin a snapshot: the rows that have changed since the last one, on their way into the database."""

    def write_removed(self, most: int) -> bool:
        """Delete up to ``most`` keys in the database that had been removed when the snapshot began; False = none was
        left.
        """

    def end(self) -> None:
        """End the snapshot, whose rows are all in the database, or which was given up."""

    def to_json(self) -> dict[str, Any]:
        """What a snapshot's contents file says of the state beside its rows."""

    def stream_of(self, entries: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Rows of the database in the form of a chunk."""


class TableStore:
    """The tables and columns of one database, and what they share.

    Args:
        database: their entries.
        group_of: the key group of a key.
        groups_of: the key groups of many.
        memory: for objects, of all databases.
        next_number: of a table.

    Attributes:
        memory: for objects in front of all databases.
        linking: files are linked, and nothing may be written to the database until they are.
        amounts: how many entries the tables have, for people.
        outgoing: a snapshot is made, and its layers are brought into the database.
    """

    def __init__(
        self,
        database: RocksDatabase,
        group_of: Callable[[Any], int],
        groups_of: Callable[[Sequence[Any]], Sequence[int]],
        memory: ObjectMemory,
        next_number: int = 1,
    ) -> None:
        self.database, self.group_of, self.groups_of = database, group_of, groups_of
        self.tables: dict[int, RocksTable] = {}
        self.columns: dict[int, StoredColumns] = {}
        self.next_number = next_number
        self.linking: Linking | None = None
        self.amounts = Amounts(
            lambda number, groups, most: database.count(*range_of(number, groups), most),
            lambda: int(database.property("rocksdb.estimate-num-keys") or 0),
        )
        self.outgoing: OutgoingFiles | None = None
        self.memory = memory
        self._dropped: list[int] = []

    def add_table(self, table: AnyTable) -> AnyTable:
        self.memory.join()
        self.tables[table.number] = table
        return table

    def add_columns(self, columns: StoredColumns, number: int = 0) -> int:
        """Add state in columns, and return its number: a new one if none is passed."""
        number = number or self.new_number()
        self.columns[number] = columns
        self.memory.join()
        return number

    def fetch(self, keys: Callable[[], Sequence[Any]]) -> None:
        """Let tables read their entries of the keys that the next records have; ``keys`` is called only if one wants
        to.
        """
        keyed_tables = [table for table in self.tables.values() if table.fetches and not table.info.namespaced]
        if readers := [table for table in keyed_tables if not table.skips_batch()]:
            key_list = keys()
            for table in readers:
                table.fetch(key_list)

    def new_number(self) -> int:
        """Number for a new table."""
        number, self.next_number = self.next_number, self.next_number + 1
        return number

    def close(self) -> None:
        """Close the database and remove its folder."""
        self.memory.join(-len(self.tables) - len(self.columns))
        self.tables, self.columns = {}, {}
        self.database.close()

    def drop(self, table: RocksTable) -> None:
        """Forget a table with all its entries; a snapshot that has begun still has them."""
        del self.tables[table.number]
        self.memory.join(-1)
        self._dropped.append(table.number)
        self.tidy()

    @property
    def free(self) -> bool:
        """Whether later changes may be written to the database."""
        if self.linking is not None and self.linking.done:
            self.linking = None
        return self.linking is None and self.outgoing is None

    def tidy(self) -> None:
        """Delete the entries of dropped tables."""
        if self._dropped and self.free:
            for number in self._dropped:
                self.database.delete_range(_NUMBER.pack(number), _NUMBER.pack(number + 1))
            self._dropped.clear()

    def wait_until_free(self) -> None:
        """Write to the database what the current snapshot still has to, and wait until its files are linked."""
        if self.outgoing is not None:
            self.outgoing.finish()
        if self.linking is not None:
            self.linking.wait()
        self.tidy()

    def room_of(self, entry: int) -> int:
        """Entries of this size (bytes) that a young dict may have."""
        return max(self.memory.share // 3 // entry, 1)


class RocksTable(MutableMapping[Any, Any]):
    """The entries of one state, by key or by key and namespace.

    Args:
        store: has the database.
        number: of the table in it.
        info: what snapshots say about it.

    Attributes:
        young: what was written or handed out last, or ``MISSING``; who sets an entry here asks ``full_at``.
        full_at: with so many young entries ``grown`` is to be called.
    """

    __slots__ = (
        "_clean",
        "_cursor",
        "_entry",
        "_fetched",
        "_layers",
        "_limit",
        "_prefix",
        "_store",
        "_sweeping",
        "_to_skip",
        "full_at",
        "info",
        "number",
        "young",
    )
    writing: ClassVar[None] = None
    fetches: ClassVar[bool] = True
    """Whether entries can be read ahead by the keys of records."""

    def __init__(self, store: TableStore, number: int, info: StateInfo) -> None:
        self._store, self.number, self.info = store, number, info
        self._prefix = _NUMBER.pack(number)
        self.young: dict[Any, Any] = {}
        self._layers: list[dict[Any, Any]] = []  # the oldest one first
        self._clean: dict[Any, Any] = {}  # as they are in the database
        self._fetched: dict[Any, bytes | None] = {}  # what it has of keys that will be asked for, None = nothing
        self._to_skip = 0
        self._entry = 0.0
        self._limit = min(_UNKNOWN, store.room_of(_ENTRY))
        self.full_at = min(self._limit, _TO_BE_DRAINED)
        self._cursor = self._prefix
        self._sweeping: list[Any] = []

    # -- one entry

    def get(self, key: Any, default: Any = None) -> Any:
        """Value of a key."""
        value = self.young.get(key, ABSENT)
        if value is ABSENT:
            value = self.find(key)
        return default if value is MISSING else value

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key, MISSING)
        if value is MISSING:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        young = self.young
        young[key] = value
        if len(young) >= self.full_at:
            self.grown()

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        self[key] = MISSING

    def pop(self, key: Any, *default: Any) -> Any:
        """Remove a key, and return its value."""
        value = self.get(key, MISSING)
        if value is MISSING:
            if default:
                return default[0]
            raise KeyError(key)
        self[key] = MISSING
        return value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Value of a key; if it has none, this default becomes its value."""
        value = self.get(key, MISSING)
        if value is MISSING:
            self._hand_out(key, default)
            return default
        return value

    def __contains__(self, key: object) -> bool:
        for entries in (self.young, *reversed(self._layers), self._clean):
            value = entries.get(key, ABSENT)
            if value is not ABSENT:
                return value is not MISSING
        return self._store.database.get(self._place(key)) is not None

    def touch(self, key: Any) -> None:
        """Do nothing: entries on disk have no order of use."""

    def find(self, key: Any) -> Any:
        """Hand out a value that is not in the young dict; MISSING if there is none."""
        for layer in reversed(self._layers):
            value = layer.get(key, ABSENT)
            if value is not ABSENT:
                if value is not MISSING and not is_frozen(value):
                    # The snapshot writes this layer later, when the receiver may have changed the value: it is
                    # serialised now.
                    outgoing = self._store.outgoing
                    if outgoing is not None and self in outgoing:
                        layer[key] = outgoing.packed_early(self, key, value)
                    self._hand_out(key, value)
                return value
        value = self._clean.get(key, ABSENT)
        if value is ABSENT:
            data: Any = self._fetched.pop(key, ABSENT) if self._fetched else ABSENT
            if data is ABSENT:
                data = self._store.database.get(self._place(key))
            if data is None:
                return MISSING
            value = pickle.loads(data[1:] if not data[0] else payload_of(data))
            # Frozen values can't change unnoticed, so they stay clean; all others count as written from here on.
            if value.__class__ in ATOMS or is_frozen(value):
                if len(self._clean) >= self._limit:
                    self._forget_clean()
                self._clean[key] = value
                return value
        elif is_frozen(value):
            return value
        self._hand_out(key, value)
        return value

    def _hand_out(self, key: Any, value: Any) -> None:
        """Put a value into the young dict, since its receiver may change it; it leaves memory at the next access at
        the earliest.
        """
        if len(self.young) >= self.full_at:
            self.grown()
        self.young[key] = value

    def skips_batch(self) -> bool:
        """Whether this batch is not read ahead, since that was of no use lately."""
        if not self._to_skip:
            return False
        self._to_skip -= 1
        self._fetched = {}
        return True

    def fetch(self, keys: Sequence[Any]) -> None:
        """Read the entries of these keys that are not in memory, all together: the next records will ask for them.

        An entry that was read ahead serves one access, and is dropped when the key is written. After batches whose keys
        were in memory anyway, or were not asked for, nothing is read ahead for some time.
        """
        unasked, self._fetched = len(self._fetched), {}
        missing = [key for key in dict.fromkeys(keys) if key not in self.young and key not in self._clean]
        for layer in self._layers:
            missing = [key for key in missing if key not in layer]
        # Few keys are not worth a joint read; many keys of the last read that nobody asked for mean that it was of no
        # use.
        if len(missing) < FETCHED_TOGETHER or 2 * unasked > len(missing):
            self._to_skip = _SKIPPED
            return
        # Keys in the order of the database share blocks.
        placed = sorted(zip(self._places(missing), missing, strict=True), key=_place_of)
        values = self._store.database.get_many([place for place, _ in placed])
        self._fetched = dict(zip([key for _, key in placed], values, strict=True))

    # -- all entries

    def changes(self) -> dict[Any, Any]:
        """Entries that differ from the database; MISSING for those that it still has but that were removed."""
        changes: dict[Any, Any] = {}
        for layer in self._layers:
            changes.update(layer)
        changes.update(self.young)
        return changes

    def entries(self) -> Iterator[tuple[Any, Any]]:
        """All entries of this moment; mutable values are copies, whose changes are lost."""
        changes = self.changes()
        for place, data in self._store.database.scan(self._prefix, _NUMBER.pack(self.number + 1)):
            key = self._key(place, data)
            if key not in changes:
                yield key, self._value(data)
        for key, value in changes.items():
            if value is not MISSING:
                yield key, pickle.loads(value) if value.__class__ is PackedValue else value

    def __iter__(self) -> Iterator[Any]:
        changes = self.changes()
        for place, data in self._store.database.scan(self._prefix, _NUMBER.pack(self.number + 1)):
            key = self._key(place, data)
            if key not in changes:
                yield key
        for key, value in changes.items():
            if value is not MISSING:
                yield key

    def items(self) -> ItemsView[Any, Any]:
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        return _Values(self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return any(True for _ in self)

    def clear(self) -> None:
        for key in self:
            self[key] = MISSING

    # -- into the database

    def _place(self, key: Any) -> bytes:
        group = self._store.group_of(key[0] if self.info.namespaced else key)
        if key.__class__ is int and _LOWEST <= key <= _HIGHEST:  # as ``encode``, in one go
            return _INT_PLACE(self.number, group, b"i", key)
        return self._prefix + _GROUP.pack(group) + encode(key)[0]

    def _places(self, keys: Sequence[Any]) -> list[bytes]:
        groups = self._store.groups_of(keys)
        if {int}.issuperset(map(type, keys)):
            with suppress(struct.error):  # an integer of more than 64 bits
                return [_INT_PLACE(self.number, group, b"i", key) for key, group in zip(keys, groups, strict=True)]
        return [self._prefix + _GROUP.pack(group) + encode(key)[0] for key, group in zip(keys, groups, strict=True)]

    def _pairs(self, entries: Sequence[tuple[Any, Any]]) -> list[Pair]:
        """Entries in the form of the database.

        Raises:
            SerializationError: an entry can't be serialised.
        """
        keys: list[Any] = [key for key, _ in entries]
        groups = self._store.groups_of([key[0] for key in keys] if self.info.namespaced else keys)
        if not {int}.issuperset(map(type, keys)):
            return [self._pair(key, value, group) for (key, value), group in zip(entries, groups, strict=True)]
        number, dumps = self.number, pickle.dumps
        try:
            return [
                (
                    _INT_PLACE(number, group, b"i", key),
                    b"\0" + dumps(value, 5)
                    if value is not MISSING and value.__class__ is not PackedValue
                    else self._pair(key, value, group)[1],
                )
                for (key, value), group in zip(entries, groups, strict=True)
            ]
        except TaskInterrupt:
            raise
        except BaseException:  # an integer of more than 64 bits, or a value whose code raises what it likes
            return [self._pair(key, value, group) for (key, value), group in zip(entries, groups, strict=True)]

    def _pair(self, key: Any, value: Any, group: int) -> Pair:
        data, exact = encode(key)
        place = self._prefix + _GROUP.pack(group) + data
        if value is MISSING:
            return place, None
        payload = value if value.__class__ is PackedValue else self.packed(key, value)
        if exact:
            return place, b"\0" + payload
        return place, self._beside(key) + payload

    def _beside(self, key: Any) -> bytes:
        """Header of a value whose key can't be read from its place: the key, pickled."""
        whole = encode_exactly(key)
        return b"\1" + _LENGTH.pack(len(whole)) + whole

    def _key(self, place: bytes, data: bytes) -> Any:
        return _key(place, data)

    def _value(self, data: bytes) -> Any:
        return pickle.loads(payload_of(data))

    def packed(self, key: Any, value: Any) -> bytes:
        """Value, serialised.

        Raises:
            SerializationError: the value can't be serialised.
        """
        return dumps(lambda: f"state {self.info.name!r} of key {short_repr(key, 40)}", value)

    def grown(self) -> None:
        """Make room for new entries: drain some older ones into the database, or turn the young dict into a layer."""
        store, young = self._store, self.young
        if len(young) < self._limit:
            self.full_at = min(self._limit, len(young) + _TO_BE_DRAINED)
            if self._layers and store.free:
                self.drain(_DRAINED)
            return
        # The young dict is full: everything older has to be in the database before it becomes the next layer.
        if not store.free:
            store.wait_until_free()
        while self._layers:
            self.drain(_DRAINED)
        self.turn()
        self._forget_clean()
        if self._limit < _KEPT_AT_LEAST:  # so little memory, or such large values, that nothing is to stay
            while self._layers:
                self.drain(_DRAINED)

    def _forget_clean(self) -> None:
        """Drop the clean entries: the database has them."""
        self._clean.clear()

    def turn(self) -> None:
        """Turn the young dict into a layer."""
        if self.young:
            self._layers.append(self.young)
            self.young = {}
        self.full_at = min(self._limit, _TO_BE_DRAINED)

    @property
    def layers(self) -> int:
        """Number of layers that are not wholly in the database."""
        return len(self._layers)

    def drain(self, most: int) -> None:
        """Write entries of the oldest layer to the database.

        Entries that were written again since are left out: their newer values are drained later.

        Raises:
            SerializationError: an entry can't be serialised; the layer still has all of them.
        """
        layer, *newer = self._layers
        drained = [layer.popitem() for _ in range(min(most, len(layer)))]
        outgoing = self._store.outgoing
        # A snapshot needs the value that the layer has, even where the young dict, which is none of it, has a
        # newer one.
        if outgoing is None or self not in outgoing:
            newer.append(self.young)
        for later in newer:
            drained = [pair for pair in drained if pair[0] not in later]
        try:
            pairs = self._pairs(drained)
            written = self._store.database.write(pairs)
        except BaseException:
            layer.update(reversed(drained))
            raise
        # The young dict's newer values do not count here: look-ups go there first.
        clean = self._clean
        if self._fetched:
            for key, _ in drained:
                self._fetched.pop(key, None)
        live = [pair for pair in drained if pair[1] is not MISSING and pair[1].__class__ is not PackedValue]
        clean.update(live)
        if len(live) < len(drained):
            for key, value in drained:
                if value is MISSING or value.__class__ is PackedValue:
                    clean.pop(key, None)
        if pairs:
            size = written / len(pairs)
            # Moving average, so that one large value does not empty the memory.
            self._entry = size if not self._entry else self._entry + (size - self._entry) / 8
            self._limit = self._store.room_of(int(2 * self._entry) + _ENTRY)
            if self._limit < _KEPT_AT_LEAST:
                self._forget_clean()
        if not layer:
            del self._layers[0]

    # -- time-to-live

    def sweep(self, drop: Drop, dead: int) -> None:
        """Remove expired entries among some that are on disk and some that are in memory."""
        if not self._sweeping:
            self._sweeping = list(self.young)
        for _ in range(min(_SWEPT, len(self._sweeping))):
            key = self._sweeping.pop()
            value = self.young.get(key, MISSING)
            if value is not MISSING and drop(value, dead, _SWEPT):
                self[key] = MISSING
        entries = self._store.database.read(self._cursor, _NUMBER.pack(self.number + 1), _SWEPT)
        self._cursor = entries[-1][0] + b"\0" if len(entries) == _SWEPT else self._prefix
        for place, data in entries:
            key = self._key(place, data)
            if key in self.young or any(key in layer for layer in self._layers):
                continue
            value = pickle.loads(payload_of(data))
            size_before = len(value)
            if drop(value, dead, _SWEPT):
                self[key] = MISSING
            elif len(value) < size_before:
                self[key] = value


class _Items(ItemsView[Any, Any]):
    _mapping: RocksTable

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._mapping.entries()


class _Values(ValuesView[Any]):
    _mapping: RocksTable

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._mapping.entries())


def payload_of(data: bytes) -> bytes:
    """Serialised value in the database's bytes of an entry."""
    if not data[0]:
        return data[1:]
    (size,) = _LENGTH.unpack_from(data, 1)
    return data[1 + _LENGTH.size + size :]


def _key(place: bytes, data: bytes) -> Any:
    if not data[0]:
        return decode(place[PREFIX:])
    (size,) = _LENGTH.unpack_from(data, 1)
    start = 1 + _LENGTH.size
    return decode_exactly(data[start : start + size])


def entry_in(place: bytes, data: bytes) -> tuple[Any, bytes]:
    """Key of an entry, and its serialised value."""
    return _key(place, data), payload_of(data)


def place_of_group(number: int, group: int) -> bytes:
    """First place of the entries of a table and a key group."""
    return _NUMBER.pack(number) + _GROUP.pack(group)


def range_of(number: int, groups: range) -> tuple[bytes, bytes]:
    """First place of the entries of a table in these key groups, and the place behind the last."""
    prefix = _NUMBER.pack(number)
    if groups.stop > 0xFFFF:
        return prefix + _GROUP.pack(groups.start), _NUMBER.pack(number + 1)
    return prefix + _GROUP.pack(groups.start), prefix + _GROUP.pack(groups.stop)


def moved(place: bytes, number: int) -> bytes:
    """Place of an entry in another table."""
    return _NUMBER.pack(number) + place[_NUMBER.size :]


class TableSweeper:
    """Removes expired entries of a table: every access owes a few checks, and many are made together."""

    __slots__ = ("_drop", "_life", "_owed", "_table")

    def __init__(self, table: RocksTable, life: Life, drop: Drop) -> None:
        self._table, self._life, self._drop = table, life, drop
        self._owed = 0

    def sweep(self) -> None:
        self._owed += self._life.cleanup_size
        if self._owed >= _SWEPT:
            self._owed = 0
            self._table.sweep(self._drop, self._life.dead_before())


class OutgoingFiles(Outgoing):
    """All tables and columns on their way into the database, and from there into a folder of linked files.

    Args:
        store: has the tables.
        path: of the folder.
        groups: key groups of the subtask.
    """

    fewest: ClassVar[int] = 128
    most: ClassVar[int] = 4096
    share: ClassVar[float] = 0.5

    def __init__(self, store: TableStore, path: str, groups: range) -> None:
        store.wait_until_free()
        self._columns: list[tuple[StoredColumns, OutgoingRows]] = [
            (columns, columns.begin()) for columns in store.columns.values()
        ]
        self.states = [table.info for table in store.tables.values()]
        self.states += [columns.info for columns in store.columns.values()]
        self.numbers = [*store.tables, *store.columns]
        self.columns: dict[int, Any] = {}
        self.next_number = store.next_number
        self.error: BaseException | None = None
        self.linking: Linking | None = None
        self._store, self._path, self._groups = store, path, groups
        for table in store.tables.values():
            table.turn()
        self._undrained = {id(table): table for table in store.tables.values() if table.layers}
        store.outgoing = self

    def __contains__(self, table: RocksTable) -> bool:
        return id(table) in self._undrained

    def packed_early(self, table: RocksTable, key: Any, value: Any) -> Any:
        """Serialise a value that the snapshot has not written yet and that is about to be handed out."""
        try:
            return PackedValue(table.packed(key, value))
        except TaskInterrupt:
            raise
        except BaseException as error:
            self.error = self.error or error
            return value

    def drain(self, entries: int) -> bool:
        """Write some entries to the database; False = all of them are there."""
        for table in self._undrained.values():
            table.drain(entries)
            if not table.layers:
                del self._undrained[id(table)]
            return True
        while self._columns:
            columns, rows = self._columns[-1]
            if columns.write_removed(entries) or rows.take(entries) is not None:
                return True
            columns.end()
            self.columns[columns.number] = columns.to_json()
            self._columns.pop()
        return False

    def next_block(self, entries: int) -> Block | None:
        """Write some entries to the database; it has no chunks of its own."""
        if self.drain(entries):
            return Block(0, b"")
        # Everything of the snapshot is in the database: later writes have to wait until the files are linked.
        if self._store.outgoing is self:
            self._store.outgoing = None
            self.linking = self._store.linking = Linking(
                self._store.database, self._path, lambda: self._store.amounts.of(self.numbers, self._groups)
            )
        return None

    def finish(self) -> None:
        """Write everything to the database at once; a failure ends the snapshot, not the task."""
        try:
            while self.next_block(self.most) is not None:
                pass
        except TaskInterrupt:
            raise
        except BaseException as error:
            self.error = self.error or error
            self.end()

    def end(self) -> None:
        """Stop writing for this snapshot."""
        self._undrained = {}
        for columns, _ in self._columns:
            columns.end()
        self._columns = []
        if self._store.outgoing is self:
            self._store.outgoing = None
