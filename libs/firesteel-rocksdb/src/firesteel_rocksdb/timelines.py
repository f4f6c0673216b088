"""Records by key and time in a database.

An entry is in the place of its key and time, so a range of time is read by one scan. What memory has of a key is found
by its times. A scan that meets the end of a key says from when on the database has nothing; what it gets later stays in
memory for a while, as of any table. So what comes in about the order of time meets the database seldom.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, Final

from firesteel.state.snapshots import StateInfo
from firesteel.state.tables import MISSING
from firesteel.state.timelines import Timeline, Times
from firesteel_rocksdb.database import Pair
from firesteel_rocksdb.key_bytes import encode
from firesteel_rocksdb.table import ABSENT, RocksTable, TableStore, payload_of, place_of_group

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_pack_time: Final = struct.Struct(">q").pack
_time_in: Final = struct.Struct(">q").unpack_from
_LENGTH: Final = struct.Struct(">I")
_BEFORE_TIME: Final = encode((b"", 0))[0][-_LENGTH.size - 9 : -8]
"""What stands between a key and a time: the length of a time, and what it is."""
_FEWEST: Final = 1024
"""Keys of which something is known, however little memory there is."""


class TimelineTable(RocksTable, Timeline):
    """Lists of records by key and time."""

    fetches: ClassVar[bool] = False
    __slots__ = ("_heads", "_known", "_times")

    def __init__(self, store: TableStore, number: int, info: StateInfo) -> None:
        super().__init__(store, number, info)
        self._times: dict[Any, Times] = {}  # of all entries that memory has
        self._heads: dict[Any, tuple[bytes, bool]] = {}  # as ``_head``, of some keys
        self._known: dict[Any, int] = {}  # of some keys: what the database has from this time on, memory has as well

    def add(self, key: Any, time: int, record: Any) -> None:
        place = key, time
        records = self.young.get(place, ABSENT)
        if records is ABSENT:
            times, known = self._times.get(key), self._known.get(key)
            there = known is None or time < known or (times is not None and time in times)
            records = self.find(place) if there else MISSING
        if records is MISSING:
            self[place] = [record]
        else:
            records.append(record)
            self[place] = records

    def remove(self, key: Any, time: int) -> None:
        """Forget the records of a time; nothing is read for that."""
        place = key, time
        if time >= self._known.get(key, _HIGHEST) and not any(place in some for some in (self._old, *self._layers)):
            self.young.pop(place, None)  # the database has never heard of it
            self._gone(place)
        else:
            self[place] = MISSING

    def between(self, key: Any, first: int, last: int) -> Iterator[tuple[int, Any]]:
        times = self._times.get(key)
        in_memory = [] if times is None else times.between(first, last)
        known = self._known.get(key, _HIGHEST)
        at, end = 0, len(in_memory)
        if first < known:
            for time, data in self._on_disk(key, max(first, _LOWEST), min(last, _HIGHEST)):
                while at < end and in_memory[at] < time:
                    yield from self._in_memory(key, in_memory[at])
                    at += 1
                if at < end and in_memory[at] == time:
                    yield from self._in_memory(key, time)
                    at += 1
                    continue
                for record in pickle.loads(payload_of(data)):
                    yield time, record
        for time in in_memory[at:]:
            yield from self._in_memory(key, time)

    def _in_memory(self, key: Any, time: int) -> Iterator[tuple[int, Any]]:
        """What a look-up would give, not to be changed."""
        place = key, time
        records = self.young.get(place, ABSENT)
        if records is ABSENT:
            for known in (*reversed(self._layers), self._old):
                records = known.get(place, ABSENT)
                if records is not ABSENT:
                    break
        if records is not MISSING:
            for record in pickle.loads(records) if isinstance(records, bytes) else records:
                yield time, record

    # -- what the database has

    def _on_disk(self, key: Any, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Times and what the database has of them, in the order of time."""
        head, _ = self._head(key)
        before, database = len(head), self._store.database
        if first < 0:  # in the order of bytes negative numbers stand behind the others
            for place, data in database.scan(head + _pack_time(first), head + _pack_time(min(last, -1)) + b"\0"):
                yield _time_in(place, before)[0], data
        first = start = max(first, 0)
        whole, end = start <= last, head + _pack_time(_HIGHEST) + b"\0"
        while start <= last:
            found, whole = database.read_to(head + _pack_time(start), head + _pack_time(last) + b"\0", end)
            for place, data in found:
                start = _time_in(place, before)[0] + 1
                yield start - 1, data
            if whole or not found or start > last:
                break
        if whole:
            self._learn(key, start)

    def _learn(self, key: Any, time: int) -> None:
        """The database has nothing of this time and later."""
        if self._known.get(key, _HIGHEST) < time:
            return
        if len(self._known) >= max(self._limit, _FEWEST):
            self._known.clear()
        self._known[key] = time

    def _head(self, key: Any) -> tuple[bytes, bool]:
        """What places of a key begin with, in front of the time; and whether the key can be read from it."""
        found = self._heads.get(key)
        if found is None:
            data, exact = encode(key)
            group = place_of_group(self.number, self._store.group_of(key))
            found = b"".join((group, b"t", _LENGTH.pack(len(data)), data, _BEFORE_TIME)), exact
            if len(self._heads) >= max(self._limit, _FEWEST):
                self._heads.clear()
            self._heads[key] = found
        return found

    def _place(self, key: Any) -> bytes:
        return self._head(key[0])[0] + _pack_time(key[1])

    def _pairs(self, entries: Sequence[tuple[Any, Any]]) -> list[Pair]:
        return [self._pair(place, records, 0) for place, records in entries]

    def _pair(self, key: Any, value: Any, group: int) -> Pair:
        head, exact = self._head(key[0])
        place = head + _pack_time(key[1])
        if value is MISSING:
            return place, None
        payload = value if isinstance(value, bytes) else self.packed(key, value)
        return place, b"\0" + payload if exact else self._beside(key) + payload

    # -- what memory has

    def __setitem__(self, place: Any, records: Any) -> None:
        self._noted(place)
        super().__setitem__(place, records)

    def _hand_out(self, place: Any, records: Any) -> None:
        super()._hand_out(place, records)  # which may bring an older layer with this entry to the database
        self._noted(place)

    def _noted(self, place: tuple[Any, int]) -> None:
        key, time = place
        times = self._times.get(key)
        if times is None:
            times = self._times[key] = Times()
        times.add(time)

    def _gone(self, place: tuple[Any, int]) -> None:
        """It was in memory; if it is nowhere now, it is forgotten."""
        if place not in self._old and place not in self.young and not any(place in layer for layer in self._layers):
            key, time = place
            times = self._times.get(key)
            if times is not None:
                times.discard(time)
                if not times:
                    del self._times[key]

    def _forget_old(self) -> None:
        forgotten, self._old, known = self._old, {}, self._known
        for place in forgotten:
            key, time = place
            if time >= known.get(key, _HIGHEST):
                known[key] = time + 1
            self._gone(place)

    def drain(self, most: int) -> None:
        """Bring entries of the oldest layer into the database."""
        taken = list(islice(reversed(self._layers[0]), most))
        super().drain(most)
        for place in taken:
            self._gone(place)
