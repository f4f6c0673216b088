"""Records by key and time, in the order of time: joins look for partners in them.

The records of a key and a time are one entry, so that the cost of an access does not grow with the key's other records.
In snapshots an entry has the key and the time, in the place of a namespace, in front of a list of records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any, Final

from firesteel.core.errors import StateRestoreError
from firesteel.state.snapshots import StateInfo
from firesteel.state.tables import HeapTable, peek

TIMELINE: Final = "timeline"
"""Kind of such states."""
FORMAT: Final = 2
"""Format of the entries. In format 1 all records of a key were one value of a table: a dict of lists by time."""
_TIDIED: Final = 32
"""Removed times at the beginning that are deleted together: to delete one moves all behind it."""


class Timeline(ABC):
    """Records of each key in the order of their timestamps (``KeyedStateBackend.timeline``)."""

    __slots__ = ()

    @abstractmethod
    def add(self, key: Any, time: int, record: Any) -> None:
        """Add a record, behind those of the same time."""

    @abstractmethod
    def between(self, key: Any, first: int, last: int) -> Iterator[tuple[int, Any]]:
        """Times and records of a key from the first time to the last, both included; the earliest first.

        Neither the records nor the timeline may be changed while they are read.
        """

    @abstractmethod
    def remove(self, key: Any, time: int) -> None:
        """Forget the records of a time, if there are any."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of pairs of key and time that have records; all entries may have to be read."""


def info_of(name: str) -> StateInfo:
    """Description of a timeline in snapshots."""
    return StateInfo(name, TIMELINE, {"format": FORMAT}, namespaced=True)


def check_format(info: StateInfo, operator: str) -> None:
    """Check that this version reads a timeline.

    Raises:
            StateRestoreError: its format is that of a later version.
    """
    if info.schema.get("format") != FORMAT:
        raise StateRestoreError(
            f"operator {operator!r}: records by time {info.name!r} have format {info.schema.get('format')}, and this "
            f"version reads {FORMAT} and those before: restore with the version that has written them, or a later one"
        )


def entries_of_tables(
    tables: Iterator[tuple[Any, dict[int, list[Any]]]],
) -> Iterator[tuple[tuple[Any, int], list[Any]]]:
    """Entries of format 1, in the current format."""
    return (((key, time), records) for key, by_time in tables for time, records in by_time.items())


class Times:
    """Times in order, each once: a sorted list, from whose beginning times are removed without moving the others.

    Nearly all times are added at the end and removed at the beginning, which costs next to nothing here; only a late
    record has to be inserted.
    """

    __slots__ = ("_start", "_times")

    def __init__(self) -> None:
        self._times: list[int] = []
        self._start = 0  # times before it are forgotten; joins forget the earliest first

    def __len__(self) -> int:
        return len(self._times) - self._start

    def __contains__(self, time: int) -> bool:
        times = self._times
        position = bisect_left(times, time, self._start)
        return position < len(times) and times[position] == time

    def add(self, time: int) -> None:
        """Add a time, if it is missing."""
        times = self._times
        if len(times) == self._start or time > times[-1]:
            times.append(time)
            return
        position = bisect_left(times, time, self._start)
        if times[position] != time:
            insort(times, time, self._start)

    def discard(self, time: int) -> None:
        """Remove a time, if it exists."""
        times, start = self._times, self._start
        position = bisect_left(times, time, start)
        if position == len(times) or times[position] != time:
            return
        if position > start:
            del times[position]
            return
        self._start = start = start + 1
        if start >= _TIDIED and 2 * start > len(times):
            del times[:start]
            self._start = 0

    def between(self, first: int, last: int) -> list[int]:
        """Times from the first to the last, both included."""
        times, start = self._times, self._start
        return times[bisect_left(times, first, start) : bisect_right(times, last, start)]


class HeapTimeline(Timeline):
    """Records in a table on the heap.

    Args:
        table: lists of records by key and time; entries that it has already are visible only after ``fill``.
    """

    __slots__ = ("_table", "_times")

    def __init__(self, table: HeapTable) -> None:
        self._table = table
        self._times: dict[Any, Times] = {}

    def fill(self, entries: Iterator[tuple[tuple[Any, int], list[Any]]]) -> None:
        """Add entries, and make those that the table has already visible behind them."""
        self._table.update(entries)
        for key, time in sorted(self._table, key=_time_of):
            self._times_of(key).add(time)

    def _times_of(self, key: Any) -> Times:
        times = self._times.get(key)
        if times is None:
            times = self._times[key] = Times()
        return times

    def add(self, key: Any, time: int, record: Any) -> None:
        table, place = self._table, (key, time)
        records = table.get(place)
        if records is None:
            table[place] = [record]
            self._times_of(key).add(time)
        else:
            records.append(record)
            table[place] = records

    def between(self, key: Any, first: int, last: int) -> Iterator[tuple[int, Any]]:
        times, table = self._times.get(key), self._table
        if times is not None:
            for time in times.between(first, last):
                for record in peek(table, (key, time)):
                    yield time, record

    def remove(self, key: Any, time: int) -> None:
        """Forget the records of a time."""
        times = self._times.get(key)
        if times is not None:
            self._table.pop((key, time), None)
            times.discard(time)
            if not times:
                del self._times[key]

    def __len__(self) -> int:
        return len(self._table)

    def clear(self) -> None:
        """Forget everything; the caller clears the table."""
        self._times.clear()


def _time_of(place: tuple[Any, int]) -> int:
    return place[1]
