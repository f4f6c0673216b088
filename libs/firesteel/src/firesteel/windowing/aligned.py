"""Tumbling and sliding event-time windows that fire at their end: the common case, and a fast one.

Such windows are the same for all keys, so each window has one table ``{key: contents}``. A record costs one look-up and
one store for each of its windows, and a queue holds one entry for each window instead of one timer for each key. All
timestamps of a *pane* (from one start or end of a window to the next) are in the same windows: as long as records stay
in a pane, nothing about windows is looked up at all.

The names of the tables say which windows there are, and which of them have been evaluated and are kept for late
records, so nothing else has to be restored. If the former subtasks differ in whether a window has been evaluated, it is
evaluated again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from firesteel.windowing.assigners import SlidingEventTimeWindows, TumblingEventTimeWindows
from firesteel.windowing.windows import MAX_TIMESTAMP, MIN_TIMESTAMP

__all__ = ["AlignedWindows", "Due", "PaneTables", "Tables"]

PREFIX: Final = "window-contents@"
EVALUATED_PREFIX: Final = "window-kept@"
"""Begin of the names of tables of windows that have been evaluated and are kept for late records."""
Table = MutableMapping[Any, Any]


@dataclass
class Tables:
    """The operator's access to its tables.

    Attributes:
        table: gives the table of a name, by key; makes it if there is none.
        drop: removes the table of a name.
        names: gives the names of all tables.
    """

    table: Callable[[str], Table]
    drop: Callable[[str], None]
    names: Callable[[], Iterable[str]]


class PaneTables(NamedTuple):
    """The tables of a pane: a range of timestamps that are in the same windows.

    Attributes:
        low, high: the first timestamp of the pane, and the first one behind it; epoch ms.
        tables: the tables of its windows, the latest window first; windows that are over are left out.
        starts: the starts of these windows, epoch ms.
        ended: the starts of those among them that have ended, but are kept for late records.
    """

    low: int
    high: int
    tables: tuple[Table, ...]
    starts: tuple[int, ...]
    ended: tuple[int, ...]


class Due(NamedTuple):
    """A window that the operator has to evaluate or to remove now.

    Attributes:
        start: the start of the window, epoch ms.
        table: the contents of the window, by key.
        table_for_late: the table that the operator has to move the contents to, since the window is evaluated now and
            then kept for late records; None if it is not.
        fires: the window is to be evaluated.
        ends: the window is over: the operator empties its table.
    """

    start: int
    table: Table
    table_for_late: Table | None
    fires: bool
    ends: bool


class AlignedWindows:
    """Tracks which windows are open, and when they fire and end.

    Args:
        assigner: tumbling or sliding event-time windows.
        allowed_lateness: how long windows are kept behind their end, ms.
        tables: the tables of the operator. Windows that have one already (restored state) are open from the beginning.
    """

    def __init__(
        self,
        assigner: TumblingEventTimeWindows | SlidingEventTimeWindows,
        allowed_lateness: int,
        tables: Tables,
    ) -> None:
        self.size, self._slide, self._offset = assigner.size, assigner.slide, assigner.offset
        self._step, self._lateness, self._tables = assigner.pane, allowed_lateness, tables
        self._open: dict[int, Table] = {}
        self._queue: list[tuple[int, int]] = []
        self._panes: dict[int, PaneTables] = {}
        self.watermark = MIN_TIMESTAMP
        self._evaluated: set[int] = set()
        names = set(tables.names())
        for name in sorted(names):
            if name.startswith(PREFIX):
                self._opened(int(name.removeprefix(PREFIX)))
            elif name.startswith(EVALUATED_PREFIX):
                start = int(name.removeprefix(EVALUATED_PREFIX))
                if f"{PREFIX}{start}" in names:
                    # The checkpoint was unaligned: only some of the former subtasks had evaluated the window. Both
                    # tables become one, and the window is evaluated for all its keys.
                    tables.table(f"{PREFIX}{start}").update(tables.table(name))
                    tables.drop(name)
                    continue
                self._open[start] = tables.table(name)
                self._evaluated.add(start)
                self._wait(self._cleanup_time(start), start)

    def __len__(self) -> int:
        return len(self._open)

    def pane(self, timestamp: int) -> PaneTables:
        """The pane of a timestamp; opens its windows. What it returns is valid until ``advance`` is called."""
        low = timestamp - (timestamp - self._offset) % self._step
        known_pane = self._panes.get(low)
        return known_pane if known_pane is not None else self._new_pane(low, timestamp)

    def _new_pane(self, low: int, timestamp: int) -> PaneTables:
        watermark, size, slide = self.watermark, self.size, self._slide
        last = timestamp - (timestamp - self._offset) % slide
        starts = range(last, timestamp - size, -slide)
        open_starts = tuple(start for start in starts if self._cleanup_time(start) > watermark)
        tables = tuple(self._open[start] if start in self._open else self._opened(start) for start in open_starts)
        ended = tuple(start for start in open_starts if start + size - 1 <= watermark or start in self._evaluated)
        pane = self._panes[low] = PaneTables(low, low + self._step, tables, open_starts, ended)
        return pane

    def _opened(self, start: int) -> Table:
        last = start + self.size - 1
        if last > self.watermark:
            self._wait(last, start)
        else:
            self._evaluated.add(start)  # the window has ended already: the operator evaluates it with each late record
        if last <= self.watermark or self._lateness:
            self._wait(self._cleanup_time(start), start)
        name = f"{EVALUATED_PREFIX if start in self._evaluated else PREFIX}{start}"
        table = self._open[start] = self._tables.table(name)
        return table

    def _wait(self, time: int, start: int) -> None:
        if time < MAX_TIMESTAMP:
            heapq.heappush(self._queue, (time, start))

    def _cleanup_time(self, start: int) -> int:
        return min(start + self.size - 1 + self._lateness, MAX_TIMESTAMP)

    def is_late(self, timestamp: int) -> bool:
        """Whether a record that no window took came too late.

        If it did not, there is no window at its time at all: sliding windows may leave gaps.
        """
        return timestamp + self._lateness <= self.watermark

    def advance(self, watermark: int) -> Iterator[Due]:
        """Take a new watermark (epoch ms); yields the windows to be evaluated or removed, in the order of time.

        The caller has to deal with a window before it pulls the next one: only then is the table of a window that ended
        dropped, and one that is kept for late records replaced.
        """
        self.watermark = watermark
        self._panes.clear()
        queue = self._queue
        while queue and queue[0][0] <= watermark:
            time, start = queue[0]
            # An evaluated window may have been restored from a job with a longer lateness, so that the queue holds a
            # time at which it neither fires nor ends.
            fires = time == start + self.size - 1 and start not in self._evaluated
            ends = time == self._cleanup_time(start)
            table_for_late = self._tables.table(f"{EVALUATED_PREFIX}{start}") if fires and not ends else None
            yield Due(start, self._open[start], table_for_late, fires, ends)
            heapq.heappop(queue)
            if table_for_late is not None:
                self._open[start] = table_for_late
                self._evaluated.add(start)
                self._tables.drop(f"{PREFIX}{start}")
            elif ends:
                del self._open[start]
                self._tables.drop(f"{EVALUATED_PREFIX if start in self._evaluated else PREFIX}{start}")
                self._evaluated.discard(start)
