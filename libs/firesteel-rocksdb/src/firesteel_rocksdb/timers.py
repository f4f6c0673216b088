"""Timers of which only the next ones are in memory.

Timers up to a *bound* in time are on the heap, as with ``hashmap``; later ones are in a table of the database, by key
group and then by time. The bound is the end of time until the heap is full: then its later half goes to the table. When
the timers on the heap have fired, the next ones are loaded from the table: the first entries of all key groups, in the
order of their timestamps. One timestamp may have more timers than memory has room for, so timers at the bound itself
may be in both places, each in one of them.

Timers of one timestamp fire in the order of registration as long as all of them are on the heap; those of the table
come after those on the heap, by key group and key.
"""

from __future__ import annotations

import heapq
import math
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final

from firesteel.state.backend import Timer, TimerQueue
from firesteel.state.heap_timers import HeapTimerQueue
from firesteel.state.snapshots import StateInfo
from firesteel.state.tables import MISSING
from firesteel_rocksdb.database import Pair
from firesteel_rocksdb.key_bytes import decode, decode_exactly, encode, encode_exactly
from firesteel_rocksdb.table import PREFIX, RocksTable, TableStore, place_of_group

_TIME: Final = struct.Struct(">Q")
_OFFSET: Final = 1 << 63
_FEWEST: Final = 4
"""Timers on the heap, however little memory there is."""
_MOST: Final = 1 << 15
"""Timers on the heap at most; half of them are moved between heap and table in one go."""
_TIMER: Final = 200
"""Bytes of a timer on the heap with its key."""

_Entry = tuple[int, Any, Any]
"""Timestamp, key, namespace of a timer."""


class TimerTable(RocksTable):
    """Timers of all key groups of a subtask, by key group and then by time."""

    fetches: ClassVar[bool] = False
    __slots__ = ()

    def _place(self, key: _Entry) -> bytes:
        return self._place_in(key, self._store.group_of(key[1]))[0]

    def _place_in(self, key: _Entry, group: int) -> tuple[bytes, bool]:
        timestamp, *timer = key
        data, exact = encode(tuple(timer))
        return place_of_group(self.number, group) + _TIME.pack(timestamp + _OFFSET) + data, exact

    def _pairs(self, entries: Sequence[tuple[Any, Any]]) -> list[Pair]:
        groups = self._store.groups_of([timer[1] for timer, _ in entries])
        return [self._pair(timer, value, group) for (timer, value), group in zip(entries, groups, strict=True)]

    def _pair(self, key: Any, value: Any, group: int) -> Pair:
        place, exact = self._place_in(key, group)
        if value is MISSING:
            return place, None
        return place, b"\0" if exact else b"\1" + encode_exactly(key[1:])

    def _key(self, place: bytes, data: bytes) -> Any:
        return timer_in(place, data)

    def _value(self, data: bytes) -> Any:
        return True

    def first(self, group: int, behind: bytes, most: int) -> list[tuple[bytes, bytes]]:
        """The next entries of a key group on disk: its first ones, or those behind a place."""
        start = place_of_group(self.number, group)
        stop = place_of_group(self.number, group + 1) if group < 0xFFFF else place_of_group(self.number + 1, 0)
        return self._store.database.read(behind + b"\0" if behind else start, stop, most)


def timer_in(place: bytes, data: bytes) -> _Entry:
    """Timer of an entry in the database."""
    (timestamp,) = _TIME.unpack_from(place, PREFIX)
    start = PREFIX + _TIME.size
    key, namespace = decode_exactly(data[1:]) if data[0] else decode(place[start:])
    return timestamp - _OFFSET, key, namespace


class RocksTimerQueue(TimerQueue):
    """Timers of one name in a subtask, the next of them on the heap and the others in a table.

    Args:
        info: describes the table in snapshots.
        groups: key groups of the subtask.
        open_store: opens the database's store, or returns it; called when the heap is full.
        room: bytes of memory for timers.

    Attributes:
        head: the next timers.
        table: the later timers; None as long as there are none.
    """

    __slots__ = ("_bound", "_groups", "_info", "_most", "_open_store", "_read_to", "_stored", "head", "table")

    def __init__(self, info: StateInfo, groups: range, open_store: Callable[[], TableStore], room: int) -> None:
        self._info, self._groups, self._open_store = info, groups, open_store
        self._most = max(_FEWEST, min(room // _TIMER, _MOST))
        self.head = HeapTimerQueue()
        self.table: TimerTable | None = None
        self._bound: float = math.inf  # an int, or the end of time
        self._stored: int | None = 0  # timers in the table; None = not counted yet
        self._read_to: dict[int, bytes] = {}  # by key group: no timer is on disk up to this place

    # -- as any queue

    def __len__(self) -> int:
        if self._stored is None:
            assert self.table is not None
            self._stored = len(self.table)
        return len(self.head) + self._stored

    def __iter__(self) -> Iterator[Timer]:
        yield from self.head
        if self.table is not None:
            for timer in self.table:
                yield Timer(*timer)

    def add(self, timestamp: int, key: Any, namespace: Any) -> bool:
        """Register a timer; False = it was registered before."""
        if timestamp < self._bound:
            head = self.head
            if not head.add(timestamp, key, namespace):
                return False
            if len(head) > self._most:
                self._spill()
            return True
        if timestamp == self._bound and self.head.holds(timestamp, key, namespace):
            return False
        timer = (timestamp, key, namespace)
        assert self.table is not None
        if timer in self.table:
            return False
        self._put(timer)
        return True

    def discard(self, timestamp: int, key: Any, namespace: Any) -> bool:
        """Forget a timer; False = there was none."""
        if timestamp <= self._bound and self.head.discard(timestamp, key, namespace):
            return True
        table, timer = self.table, (timestamp, key, namespace)
        if timestamp < self._bound or table is None or timer not in table:
            return False
        self._remove(timer)
        return True

    @property
    def earliest(self) -> int | None:
        """Smallest timestamp that has a timer; None = there is no timer."""
        earliest = self.head.earliest
        if earliest is None and self._load():
            earliest = self.head.earliest
        return earliest

    def due(self, until: int) -> Iterator[Timer]:
        """Remove and yield all timers up to a timestamp, including those added meanwhile."""
        while True:
            yield from self.head.due(until)
            if self._bound > until or not self._load():
                return

    def clear(self) -> None:
        self.head.clear()
        self.table, self._bound, self._stored = None, math.inf, 0

    # -- between heap and table

    def adopt(self, table: TimerTable) -> None:
        """Continue with the timers of a database, before any other timer is added."""
        self.table, self._stored, self._bound = table, None, -math.inf
        self._read_to.clear()

    def _put(self, timer: _Entry) -> None:
        assert self.table is not None
        self.table[timer] = True
        if self._stored is not None:
            self._stored += 1
        if timer[0] == self._bound:
            self._read_to.clear()  # its place may lie before those of this timestamp that were loaded already

    def _remove(self, timer: _Entry) -> None:
        assert self.table is not None
        self.table[timer] = MISSING
        if self._stored is not None:
            self._stored -= 1

    def _spill(self) -> None:
        """Move the later half of the full heap to the table."""
        if self.table is None:
            store = self._open_store()
            self.table = store.add_table(TimerTable(store, store.new_number(), self._info))
        timers = sorted(self.head, key=_time_of)
        split = len(timers) // 2
        self._bound = timers[split].timestamp
        self._read_to.clear()
        for timer in timers[split:]:
            self.head.discard(*timer)
            self._put(timer)

    def _load(self) -> bool:
        """Load the next timers of the table onto the heap; False = there were none."""
        table = self.table
        if table is None or self._bound == math.inf:
            return False
        changes = table.changes()
        written = sorted((timer for timer, value in changes.items() if value is not MISSING), key=_time_of)
        most, loaded = self._most // 2, set[_Entry]()
        for timer in heapq.merge(self._on_disk(table, changes), written, key=_time_of):
            if timer in loaded:
                continue  # it is on disk and was written again: both iterators have it
            if len(loaded) >= most:
                if any(other[0] == self._bound and other not in loaded for other in written):
                    self._read_to.clear()  # their places on disk may lie before those that were loaded
                return True
            self._bound = timer[0]
            self._remove(timer)
            self.head.add(*timer)
            loaded.add(timer)
        self._bound, self._stored = math.inf, 0
        self._read_to.clear()
        return bool(loaded)

    def _on_disk(self, table: TimerTable, changes: dict[Any, Any]) -> Iterator[_Entry]:
        """Timers of all key groups in the order of their timestamps, without those that were removed since.

        The caller moves a timer to the heap before it takes the next one from this iterator: so places up to it are
        never read again.
        """
        ahead = max(8, self._most // len(self._groups))
        waiting: dict[int, deque[tuple[bytes, bytes]]] = {}
        order: list[tuple[int, int]] = []

        def read_on(group: int, behind: bytes) -> None:
            entries = waiting[group] = deque(table.first(group, behind, ahead))
            if entries:
                heapq.heappush(order, (_TIME.unpack_from(entries[0][0], PREFIX)[0], group))

        for group in self._groups:
            read_on(group, self._read_to.get(group, b""))
        while order:
            _, group = heapq.heappop(order)
            entries = waiting[group]
            place, data = entries.popleft()
            timer = timer_in(place, data)
            if changes.get(timer) is not MISSING:
                yield timer
                self._read_to[group] = place
            if entries:
                heapq.heappush(order, (_TIME.unpack_from(entries[0][0], PREFIX)[0], group))
            else:
                read_on(group, place)


def _time_of(timer: Any) -> int:
    timestamp: int = timer[0]
    return timestamp
