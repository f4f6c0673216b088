"""Tumbling and sliding event-time windows that fire at their end: the common case, and a fast one.

Such windows are the same for all keys. So what they hold is kept window by window, ``{key: contents}`` in a table for
each; a record costs one look-up and one store for each of its windows, and there is one entry in a queue for each
window instead of a timer for each key. Timestamps of one *pane* (from one start or end of a window to the next) are in
the same windows: as long as records stay in a pane, nothing about windows is looked up at all.

Which windows there are, and which of them have been evaluated and are kept for late records, is read from the names of
the tables, so nothing else has to be restored. Where subtasks of before differ in it, a window is evaluated again.
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
KEPT: Final = "window-kept@"
"""Of windows that have been evaluated."""
Table = MutableMapping[Any, Any]


@dataclass
class Tables:
    """Where windows keep what they hold.

    Attributes:
        table: the table of a name, by key; made when it is not there.
        drop: forgets the table of a name.
        names: of all tables there are.
    """

    table: Callable[[str], Table]
    drop: Callable[[str], None]
    names: Callable[[], Iterable[str]]


class PaneTables(NamedTuple):
    """The tables of a pane: of timestamps that are in the same windows.

    Attributes:
        low, high: the first one, and the first one behind it.
        tables: of the windows, the latest first; those that are over are not among them.
        starts: of these windows.
        past: starts of those among them that have ended, but are kept for late records.
    """

    low: int
    high: int
    tables: tuple[Table, ...]
    starts: tuple[int, ...]
    past: tuple[int, ...]


class Due(NamedTuple):
    """A window whose time has come.

    Attributes:
        start: of the window.
        table: what it holds.
        kept: where what it holds is to be moved, since it is evaluated and goes on; else None.
        fires: it is to be evaluated.
        ends: it is over, and its table to be dropped.
    """

    start: int
    table: Table
    kept: Table | None
    fires: bool
    ends: bool


class AlignedWindows:
    """Which windows are open, and when they fire and end.

    Args:
        assigner: tumbling or sliding event-time windows.
        allowed_lateness: how long windows are kept behind their end, ms.
        tables: where they keep what they hold. Windows that are there already (restored state) are taken over.
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
            elif name.startswith(KEPT):
                start = int(name.removeprefix(KEPT))
                if f"{PREFIX}{start}" in names:
                    # barriers were not aligned, and only some of the former subtasks had evaluated it
                    tables.table(f"{PREFIX}{start}").update(tables.table(name))
                    tables.drop(name)
                    continue
                self._open[start] = tables.table(name)
                self._evaluated.add(start)
                self._wait(self._cleanup_time(start), start)

    def __len__(self) -> int:
        return len(self._open)

    def pane(self, timestamp: int) -> PaneTables:
        """The pane of a timestamp. Its windows are opened. Holds until ``advance`` is called."""
        low = timestamp - (timestamp - self._offset) % self._step
        found = self._panes.get(low)
        return found if found is not None else self._new_pane(low, timestamp)

    def _new_pane(self, low: int, timestamp: int) -> PaneTables:
        watermark, size, slide = self.watermark, self.size, self._slide
        last = timestamp - (timestamp - self._offset) % slide
        starts = range(last, timestamp - size, -slide)
        kept = tuple(start for start in starts if self._cleanup_time(start) > watermark)
        tables = tuple(self._open[start] if start in self._open else self._opened(start) for start in kept)
        past = tuple(start for start in kept if start + size - 1 <= watermark or start in self._evaluated)
        found = self._panes[low] = PaneTables(low, low + self._step, tables, kept, past)
        return found

    def _opened(self, start: int) -> Table:
        last = start + self.size - 1
        if last > self.watermark:
            self._wait(last, start)
        else:
            self._evaluated.add(start)  # each record is evaluated when it comes
        if last <= self.watermark or self._lateness:
            self._wait(self._cleanup_time(start), start)
        name = f"{KEPT if start in self._evaluated else PREFIX}{start}"
        table = self._open[start] = self._tables.table(name)
        return table

    def _wait(self, time: int, start: int) -> None:
        if time < MAX_TIMESTAMP:
            heapq.heappush(self._queue, (time, start))

    def _cleanup_time(self, start: int) -> int:
        return min(start + self.size - 1 + self._lateness, MAX_TIMESTAMP)

    def is_late(self, timestamp: int) -> bool:
        """Whether a record that no window took came too late; else there is no window at its time at all."""
        return timestamp + self._lateness <= self.watermark

    def advance(self, watermark: int) -> Iterator[Due]:
        """Event time has come so far: windows to be evaluated or dropped, in the order of time.

        What comes next is taken only when the one before has been dealt with; a window that ends is dropped then.
        """
        self.watermark = watermark
        self._panes.clear()
        queue = self._queue
        while queue and queue[0][0] <= watermark:
            time, start = queue[0]
            # windows that were evaluated may have been kept for longer than they are now
            fires = time == start + self.size - 1 and start not in self._evaluated
            ends = time == self._cleanup_time(start)
            kept = self._tables.table(f"{KEPT}{start}") if fires and not ends else None
            yield Due(start, self._open[start], kept, fires, ends)
            heapq.heappop(queue)
            if kept is not None:
                self._open[start] = kept
                self._evaluated.add(start)
                self._tables.drop(f"{PREFIX}{start}")
            elif ends:
                del self._open[start]
                self._tables.drop(f"{KEPT if start in self._evaluated else PREFIX}{start}")
                self._evaluated.discard(start)
