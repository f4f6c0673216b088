"""Tumbling and sliding windows over columns: each row is added once, to the pane of its time.

Timestamps from one start or end of a window to the next are a pane: they are in the same windows. A pane has an index
of its keys and accumulators by slot, and is forgotten as a whole when the last of its windows is over. Windows of
several panes are brought together when they are evaluated.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from firesteel.expressions.aggregates import BoundAggregate
from firesteel.runtime.columnar_windows.chains import accumulate
from firesteel.runtime.columnar_windows.keys import Index, Keys
from firesteel.runtime.columnar_windows.results import Results, Work, concatenated, pieces
from firesteel.runtime.columnar_windows.snapshots import StoredAs, WindowRows, WindowState
from firesteel.state.columnar.aggregate_fields import Ints
from firesteel.state.columnar.aggregate_kernels import Accumulators, Values
from firesteel.state.columnar.groups import Groups
from firesteel.windowing.windows import MAX_TIMESTAMP, MIN_TIMESTAMP

LOW: Final = "pane"
"""Column of the first timestamp of a pane, in snapshots."""
_FEW: Final = 8
"""So many panes of a batch are looked for one after the other."""


class Pane:
    """What the windows of some time hold.

    Attributes:
        low: the first timestamp.
        index: slots of the keys.
        accumulators: by slot.
        ahead: how far time had come for its rows when they were restored, if it is further than for all others:
            windows that had ended by then have been evaluated with them.
    """

    __slots__ = ("_rows", "accumulators", "ahead", "index", "low")

    def __init__(self, low: int, index: Index, accumulators: Accumulators) -> None:
        self.low, self.index, self.accumulators = low, index, accumulators
        self.ahead = MIN_TIMESTAMP
        self._rows: WindowRows | None = None

    def add(self, keys: Keys, given: Sequence[Values], order: Ints) -> None:
        slots = self.index.slots(keys)
        if self._rows is not None:
            if self._rows.closed:
                self._rows = None
            else:
                self._rows.save(slots)
        self.accumulators.add(slots, given, order, self.index.capacity)

    def restore(self, batch: pa.RecordBatch, keys: int, empty: Accumulators) -> None:
        """Take over what ``rows`` gave, of keys in so many columns."""
        known = self.index.capacity
        slots = self.index.slots(batch.columns[:keys])
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if int(slots.min()) >= known:
            self.accumulators.load(slots, columns, self.index.capacity)
            return
        self._merge(slots, columns, empty)  # keys had rows in two panes of one time

    def add_parts(self, batch: pa.RecordBatch, keys: int, empty: Accumulators) -> None:
        """Add what other panes of this time gave (``dump``), of keys in so many columns; a key may be there often."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        self._merge(self.index.slots(batch.columns[:keys]), columns, empty)

    def _merge(self, slots: Ints, columns: dict[str, pa.Array], empty: Accumulators) -> None:
        rows = np.arange(len(slots))
        empty.load(rows, columns, len(rows))
        self.accumulators.merge(slots, empty, rows, self.index.capacity)

    def rows(self, watermark: int) -> WindowRows:
        """For a snapshot, with how far time has come."""
        self._rows = WindowRows(self.index.capacity, self.dump, max(watermark, self.ahead))
        return self._rows

    def dump(self, slots: Ints) -> pa.RecordBatch:
        """What slots hold: their keys, the time of the pane, and what the accumulators give."""
        keys = {f"key{position}": column for position, column in enumerate(self.index.keys(slots))}
        lows = {LOW: pa.repeat(pa.scalar(self.low, pa.int64()), len(slots))}
        return pa.RecordBatch.from_pydict({**keys, **lows, **self.accumulators.dump(slots)})


class FixedWindows(WindowState):
    """Windows of one size.

    Args:
        size: of windows, ms.
        slide: from one start to the next, ms.
        offset: one of them starts there, ms.
        lateness: how long they are kept behind their end, ms.
        make_index: an index of keys.
        bound: the aggregates.
        stored: how it is written.

    Attributes:
        panes: by their first timestamp.
        watermark: how far time has come.
        latest: how far it has come for any of the panes; by the clock, subtasks that were restored differ in it.
    """

    def __init__(
        self,
        size: int,
        slide: int,
        offset: int,
        lateness: int,
        make_index: Callable[[], Index],
        bound: Sequence[BoundAggregate],
        stored: StoredAs,
    ) -> None:
        super().__init__(stored)
        self._size, self._slide, self._offset, self._lateness = size, slide, offset, lateness
        self._step = math.gcd(size, slide)
        self._make_index, self._bound = make_index, bound
        self.panes: dict[int, Pane] = {}
        self._ahead: dict[int, list[Pane]] = {}
        self._open: set[int] = set()
        self._queue: list[tuple[int, int]] = []
        self._kept: dict[int, tuple[int, ...]] = {}
        self.watermark = self.latest = MIN_TIMESTAMP

    # -- rows

    def add(self, keys: Keys, given: Sequence[Values], stamps: Ints, order: Ints) -> Iterator[Results | Ints | None]:
        """Add rows; gives results of windows that have ended but are kept, and positions of rows that are late."""
        late: list[Ints] = []
        again: list[tuple[int, Ints]] = []
        for low, rows in self._by_pane(stamps):
            kept = self._windows(low)
            if not kept:
                chosen = np.arange(len(stamps)) if rows is None else rows
                late.append(chosen[stamps[chosen] + self._lateness <= self.watermark])
            elif kept[-1] + self._size - 1 <= self.watermark:
                again.append((low, np.arange(len(stamps)) if rows is None else rows))
            elif rows is None:
                self.pane(low).add(keys, given, order)
            else:
                self.pane(low).add([key.take(rows) for key in keys], [one.take(rows) for one in given], order[rows])
        if again:
            yield from self._one_after_the_other(again, keys, given, order)
        if late and sum(map(len, late)):
            yield np.sort(np.concatenate(late))

    def _by_pane(self, stamps: Ints) -> Iterator[tuple[int, Ints | None]]:
        """Panes and the positions of their rows, ascending; None = all rows."""
        lowest, highest = int(stamps.min()), int(stamps.max())
        first = lowest - (lowest - self._offset) % self._step
        count = (highest - first) // self._step + 1
        if count == 1:
            yield first, None
            return
        numbers = (stamps - first) // self._step
        if count <= _FEW:
            for number in range(count):
                rows = np.flatnonzero(numbers == number)
                if rows.size:
                    yield first + number * self._step, rows
            return
        groups = Groups(numbers)
        for number, start, end in zip(
            groups.slots.tolist(), groups.starts.tolist(), (groups.ends + 1).tolist(), strict=True
        ):
            yield first + number * self._step, groups.order[start:end]

    def _windows(self, low: int) -> tuple[int, ...]:
        """Starts of the windows of a pane that are not over, the latest first; they are opened."""
        found = self._kept.get(low)
        if found is None:
            last = low - (low - self._offset) % self._slide
            starts = range(last, low - self._size, -self._slide)
            found = self._kept[low] = tuple(start for start in starts if self._cleanup_time(start) > self.watermark)
            for start in found:
                self._opened(start)
        return found

    def pane(self, low: int) -> Pane:
        """The pane of a time; made when it is not there."""
        pane = self.panes.get(low)
        if pane is None:
            pane = self.panes[low] = Pane(low, self._make_index(), Accumulators(self._bound))
        return pane

    def _opened(self, start: int) -> None:
        if start in self._open:
            return
        self._open.add(start)
        last = start + self._size - 1
        for time in {last, self._cleanup_time(start)}:
            if self.watermark < time < MAX_TIMESTAMP:
                heapq.heappush(self._queue, (time, start))

    def _cleanup_time(self, start: int) -> int:
        return min(start + self._size - 1 + self._lateness, MAX_TIMESTAMP)

    def _one_after_the_other(
        self, again: Sequence[tuple[int, Ints]], keys: Keys, given: Sequence[Values], order: Ints
    ) -> Iterator[Results | None]:
        """Rows of windows that have ended: each one gives results, with the rows of its window in front of it."""
        most = self._size // self._slide + 1  # windows of a record
        rows_of: dict[int, list[Ints]] = {}
        places_of: dict[int, list[Ints]] = {}  # of the results: by row, the latest window first
        for low, chosen in again:
            for place, start in enumerate(self._windows(low)):
                if start + self._size - 1 <= self.watermark:
                    rows_of.setdefault(start, []).append(chosen)
                    places_of.setdefault(start, []).append(chosen * most + place)
        found: list[Results] = []
        places: list[Ints] = []
        for start, parts in rows_of.items():
            rows, own_places = np.concatenate(parts), np.concatenate(places_of[start])
            arrival = np.argsort(rows)
            rows = rows[arrival]
            found.append(self._running(start, rows, keys, given, order))
            places.append(own_places[arrival])
            yield None
        for low, chosen in again:
            own = [key.take(chosen) for key in keys]
            self.pane(low).add(own, [one.take(chosen) for one in given], order[chosen])
        yield concatenated(found, np.argsort(np.concatenate(places), kind="stable"))

    def _running(self, start: int, rows: Ints, keys: Keys, given: Sequence[Values], order: Ints) -> Results:
        """What a window holds of the key of each of these rows, with this row and those in front of it."""
        own, count = [key.take(rows) for key in keys], len(rows)
        groups = Groups(self._make_index().slots(own))
        accumulators = Accumulators(self._bound, sparse=True)  # a slot for each row
        accumulators.add(np.arange(count), [one.take(rows) for one in given], order[rows], count)
        firsts = groups.order[groups.starts]
        first_keys = [key.take(firsts) for key in own]
        for pane in self._panes_of(start):
            others = pane.index.find(first_keys)
            there = others >= 0
            accumulators.merge(firsts[there], pane.accumulators, others[there], count)
        accumulate(accumulators, groups.order, groups.position, count)
        return self._results(start, own, accumulators, np.arange(count))

    # -- time

    @property
    def next_time(self) -> int | None:
        """When something is to be done next."""
        return self._queue[0][0] if self._queue else None

    def advance(self, watermark: int) -> Work:
        """Time has come so far: results of the windows that end, in the order of time."""
        if watermark <= self.watermark:
            return
        self.watermark, self.latest = watermark, max(self.latest, watermark)
        self._kept.clear()
        queue = self._queue
        while queue and queue[0][0] <= watermark:
            time, start = queue[0]
            if time == start + self._size - 1:
                yield from self._evaluated(start)
            heapq.heappop(queue)
            if time == self._cleanup_time(start):
                self._open.discard(start)
                self._forget(start)

    def _forget(self, start: int) -> None:
        """A window is over: panes that are in no other open one are not needed any more."""
        for low in range(start, start + self._size, self._step):
            last = low - (low - self._offset) % self._slide
            if not any(other in self._open for other in range(last, low - self._size, -self._slide)):
                self._drop(low)

    def _drop(self, low: int) -> None:
        self.panes.pop(low, None)
        self._ahead.pop(low, None)

    def _panes_of(self, start: int) -> list[Pane]:
        if self._size == self._step:
            found = [self.panes[start]] if start in self.panes else []
        else:
            found = [self.panes[low] for low in range(start, start + self._size, self._step) if low in self.panes]
        if self._ahead:
            for low in range(start, start + self._size, self._step):
                found += [pane for pane in self._ahead.get(low, ()) if pane.ahead < start + self._size - 1]
        return found

    def _all_panes(self) -> list[Pane]:
        return [*self.panes.values(), *(pane for panes in self._ahead.values() for pane in panes)]

    def _evaluated(self, start: int) -> Work:
        panes = self._panes_of(start)
        if len(panes) == 1:
            index, accumulators = panes[0].index, panes[0].accumulators
        else:
            index, accumulators = self._make_index(), Accumulators(self._bound)
            for pane in panes:
                for others in pieces(pane.index.capacity):
                    slots = index.slots(pane.index.keys(others))
                    accumulators.merge(slots, pane.accumulators, others, index.capacity)
                    yield None
        for slots in pieces(index.capacity):
            yield self._results(start, index.keys(slots), accumulators, slots)

    def _results(self, start: int, keys: Keys, accumulators: Accumulators, slots: Ints) -> Results:
        starts = np.full(len(slots), start, np.int64)
        return Results(list(keys), starts, starts + self._size, accumulators.results(slots, keys))

    # -- snapshots

    def rows(self) -> Sequence[WindowRows]:
        """The panes of now, to be written."""
        return [pane.rows(self.watermark) for pane in self._all_panes()]

    def restore_rows(self, batch: pa.RecordBatch, watermark: int) -> None:
        """Take over rows of a pane, and how far time had come."""
        pane = self._restored(batch.column(LOW)[0].as_py(), watermark)
        pane.restore(batch, self.key_width, Accumulators(self._bound))

    def dump(self) -> Iterator[pa.RecordBatch]:
        """All panes, piece by piece; without those that were restored ahead of the others."""
        for pane in self.panes.values():
            for slots in pieces(pane.index.capacity):
                yield pane.dump(slots)

    def add_parts(self, batch: pa.RecordBatch) -> None:
        """Add what other windows gave (``dump``), put together in any way; none of their time is over."""
        lows = batch.column(LOW).to_numpy()
        for low in np.unique(lows).tolist():
            part = batch if lows[0] == low and bool((lows == low).all()) else batch.filter(pa.array(lows == low))
            self._windows(low)
            self.pane(low).add_parts(part, self.key_width, Accumulators(self._bound))

    def taken_back(self) -> None:
        """Open the windows that are not over."""
        self._kept.clear()
        self._open, self._queue = set(), []
        for low in {*self.panes, *self._ahead}:
            if not self._windows(low):  # they were kept for late rows longer than now
                self._drop(low)

    def _restored(self, low: int, watermark: int) -> Pane:
        """The pane for rows that were written when time had come so far.

        Time had come differently far by the clock, and where barriers are not aligned. What had ended for one of the
        subtasks and not for another is evaluated now, with the rows of the other one. Windows that are kept for late
        rows are evaluated with all their rows each time.
        """
        self.latest = max(self.latest, watermark)
        empty = not (self.panes or self._ahead)
        if empty or watermark < self.watermark:
            if not self._lateness:
                for pane in self.panes.values():
                    pane.ahead = self.watermark
                    self._ahead.setdefault(pane.low, []).append(pane)
                self.panes = {}
            self.watermark = watermark
        if watermark == self.watermark or self._lateness:
            return self.pane(low)
        others = self._ahead.setdefault(low, [])
        for pane in others:
            if pane.ahead == watermark:
                return pane
        pane = Pane(low, self._make_index(), Accumulators(self._bound))
        pane.ahead = watermark
        others.append(pane)
        return pane

    @property
    def rows_seen(self) -> int:
        """The highest number that a row had, plus 1."""
        return max((pane.accumulators.rows_seen for pane in self._all_panes()), default=0)

    def close(self) -> None:
        """Forget everything; idempotent."""
        self.panes, self._ahead, self._open, self._queue = {}, {}, set(), []
