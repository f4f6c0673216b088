"""Records by key and time in a database.

The place of an entry is its key and time, so that one scan reads a range of time. The times of a key's entries in
memory are indexed. A scan that reaches the end of a key tells from which time on the database has nothing of it; what
is written there later stays in memory for a while, as in any table. So records that come roughly in the order of time
rarely need the database.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import Any, ClassVar, Final

from firesteel.state.snapshots import StateInfo
from firesteel.state.tables import MISSING
from firesteel.state.timelines import Timeline, Times
from firesteel_rocksdb.database import Pair
from firesteel_rocksdb.key_bytes import encode
from firesteel_rocksdb.table import ABSENT, PackedValue, RocksTable, TableStore, payload_of, place_of_group

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_pack_time: Final = struct.Struct(">q").pack
_time_in: Final = struct.Struct(">q").unpack_from
_LENGTH: Final = struct.Struct(">I")
_BEFORE_TIME: Final = encode((b"", 0))[0][-_LENGTH.size - 9 : -8]
"""Bytes between a key and a time in a place: the length of the time's bytes, and their tag."""
_FEWEST: Final = 1024
"""Keys that are remembered in ``_complete_from`` and ``_heads``, however little memory there is."""


class TimelineTable(RocksTable, Timeline):
    """Lists of records of one state, by key and time."""

    fetches: ClassVar[bool] = False
    __slots__ = ("_complete_from", "_heads", "_times")

    def __init__(self, store: TableStore, number: int, info: StateInfo) -> None:
        super().__init__(store, number, info)
        self._times: dict[Any, Times] = {}  # times of all entries in memory, by key
        self._heads: dict[Any, tuple[bytes, bool]] = {}  # cache of ``_head``
        self._complete_from: dict[Any, int] = {}  # by key: memory has all that the database has from this time on

    def add(self, key: Any, time: int, record: Any) -> None:
        place = key, time
        records = self.young.get(place, ABSENT)
        if records is ABSENT:
            times, complete_from = self._times.get(key), self._complete_from.get(key)
            may_exist = complete_from is None or time < complete_from or (times is not None and time in times)
            records = self.find(place) if may_exist else MISSING
        if records is MISSING:
            self[place] = [record]
        else:
            records.append(record)
            self[place] = records

    def remove(self, key: Any, time: int) -> None:
        """Forget the records of a time; nothing is read for it."""
        place = key, time
        if time >= self._complete_from.get(key, _HIGHEST) and not any(
            place in entries for entries in (self._clean, *self._layers)
        ):
            self.young.pop(place, None)  # the database never got it
            self._forget_time(place)
        else:
            self[place] = MISSING

    def between(self, key: Any, first: int, last: int) -> Iterator[tuple[int, Any]]:
        times = self._times.get(key)
        # Looked up before any record is handed out: its receiver may write other state, which may have a snapshot
        # write all its entries to the database, and then they may leave memory.
        in_memory: list[tuple[int, Sequence[Any]]] = []
        if times is not None:
            for time in times.between(first, last):  # faster than a comprehension for the few times of most calls
                in_memory.append((time, self._in_memory(key, time)))
        complete_from = self._complete_from.get(key, _HIGHEST)
        position, end = 0, len(in_memory)
        if first < complete_from:
            for time, data in self._on_disk(key, max(first, _LOWEST), min(last, _HIGHEST)):
                while position < end and in_memory[position][0] < time:
                    yield from _with_time(*in_memory[position])
                    position += 1
                if position < end and in_memory[position][0] == time:
                    yield from _with_time(*in_memory[position])
                    position += 1
                    continue
                yield from _with_time(time, pickle.loads(payload_of(data)))
        for time, records in in_memory[position:]:
            for record in records:
                yield time, record

    def _in_memory(self, key: Any, time: int) -> Any:
        """Records of a time that memory has, as a look-up would return them; the caller must not change them."""
        place = key, time
        records = self.young.get(place, ABSENT)
        if records is ABSENT:
            for entries in (*reversed(self._layers), self._clean):
                records = entries.get(place, ABSENT)
                if records is not ABSENT:
                    break
        if records.__class__ is list:
            return records
        return () if records is MISSING else pickle.loads(records)

    # -- what the database has

    def _on_disk(self, key: Any, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Times of a key on disk with their entries, in the order of time."""
        head, _ = self._head(key)
        time_offset, database = len(head), self._store.database
        if first < 0:  # as bytes, negative numbers sort behind the others
            for place, data in database.scan(head + _pack_time(first), head + _pack_time(min(last, -1)) + b"\0"):
                yield _time_in(place, time_offset)[0], data
        start, end = max(first, 0), head + _pack_time(_HIGHEST) + b"\0"
        while start <= last:
            pairs, whole = database.read_to(head + _pack_time(start), head + _pack_time(last) + b"\0", end)
            entries = [(_time_in(place, time_offset)[0], data) for place, data in pairs]
            if entries:
                start = entries[-1][0] + 1
            # The scan goes to the end of the key if nothing follows: then later calls need no scan of that time. This
            # is noted before any record is handed out, since its receiver may have more written to the database.
            if whole:
                self._learn(key, start)
            yield from entries
            if whole or not entries:
                return

    def _learn(self, key: Any, time: int) -> None:
        """Note that the database has nothing of a key from a time on."""
        if self._complete_from.get(key, _HIGHEST) < time:
            return
        if len(self._complete_from) >= max(self._limit, _FEWEST):
            self._complete_from.clear()
        self._complete_from[key] = time

    def _head(self, key: Any) -> tuple[bytes, bool]:
        """First bytes of the places of a key, in front of the time; and whether the key can be read from them."""
        head = self._heads.get(key)
        if head is None:
            data, exact = encode(key)
            group = place_of_group(self.number, self._store.group_of(key))
            head = b"".join((group, b"t", _LENGTH.pack(len(data)), data, _BEFORE_TIME)), exact
            if len(self._heads) >= max(self._limit, _FEWEST):
                self._heads.clear()
            self._heads[key] = head
        return head

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
        self._index_time(place)
        super().__setitem__(place, records)

    def _hand_out(self, place: Any, records: Any) -> None:
        super()._hand_out(place, records)  # this may drain an older layer that has the entry
        self._index_time(place)

    def _index_time(self, place: tuple[Any, int]) -> None:
        key, time = place
        times = self._times.get(key)
        if times is None:
            times = self._times[key] = Times()
        times.add(time)

    def _forget_time(self, place: tuple[Any, int]) -> None:
        """Forget an entry's time if the entry has left memory."""
        if place not in self._clean and place not in self.young and not any(place in layer for layer in self._layers):
            key, time = place
            times = self._times.get(key)
            if times is not None:
                times.discard(time)
                if not times:
                    del self._times[key]

    def _forget_clean(self) -> None:
        forgotten, self._clean, complete_from = self._clean, {}, self._complete_from
        for place in forgotten:
            key, time = place
            # What is dropped here is on disk, so that from now on memory is complete only behind it.
            if time >= complete_from.get(key, _HIGHEST):
                complete_from[key] = time + 1
            self._forget_time(place)

    def drain(self, most: int) -> None:
        """Write entries of the oldest layer to the database."""
        drained = list(islice(reversed(self._layers[0].items()), most))
        early = [place for place, records in drained if records.__class__ is PackedValue]
        super().drain(most)
        for key, time in early:
            # The snapshot's value is on disk now, while memory has a newer one, which does not tell that: so memory is
            # complete only behind it, and ``remove`` has to delete it on disk, too.
            if time >= self._complete_from.get(key, _HIGHEST):
                self._complete_from[key] = time + 1
        for place, _ in drained:
            self._forget_time(place)


def _with_time(time: int, records: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    return zip(repeat(time), records)
