"""Tumbling and sliding windows over columns: each row is added once, to the pane of its time.

A pane is the time from one start or end of a window to the next, so that all its timestamps are in the same windows
(Li et al., "No pane, no gain", 2005). It has an index of its keys and accumulators by slot, and is dropped as a whole
when the last of its windows is over. A window of several panes is computed from these when it is evaluated.
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
"""Name of the column with the first timestamp of a pane, in snapshots."""
_FEW: Final = 8
"""Up to this many panes, the rows of each pane are searched for; beyond, all rows are grouped by pane once."""


class Pane:
    """The accumulators of all keys for the time of one pane.

    Attributes:
        low: first timestamp of the pane.
        index: index of the keys.
        accumulators: accumulators by slot of the key.
        ahead: watermark at which the rows were written to the checkpoint, if it is ahead of that of other rows: windows
            that had ended by then have been evaluated with these rows already.
    """

    __slots__ = ("_rows", "accumulators", "ahead", "index", "low")

    def __init__(self, low: int, index: Index, accumulators: Accumulators) -> None:
        self.low, self.index, self.accumulators = low, index, accumulators
        self.ahead = MIN_TIMESTAMP
        self._rows: WindowRows | None = None

    def add(self, keys: Keys, inputs: Sequence[Values], order: Ints) -> None:
        """Add rows: their keys, the inputs of the aggregates, and their positions in the input of the operator."""
        slots = self.index.slots(keys)
        if self._rows is not None:
            if self._rows.closed:
                self._rows = None
            else:
                # A snapshot is under way: let it copy these slots before they change, if it has not written them.
                self._rows.save(slots)
        self.accumulators.add(slots, inputs, order, self.index.capacity)

    def restore(self, batch: pa.RecordBatch, keys: int, empty: Accumulators) -> None:
        """Take over rows of a snapshot, whose first ``keys`` columns are the key."""
        capacity = self.index.capacity
        slots = self.index.slots(batch.columns[:keys])
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if int(slots.min()) >= capacity:  # all keys are new
            self.accumulators.load(slots, columns, self.index.capacity)
            return
        self._merge(slots, columns, empty)  # keys had rows in two panes of the same time

    def add_parts(self, batch: pa.RecordBatch, keys: int, empty: Accumulators) -> None:
        """Add rows that other panes of this time have dumped; a key may occur several times.

        The first ``keys`` columns are the key.
        """
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        self._merge(self.index.slots(batch.columns[:keys]), columns, empty)

    def _merge(self, slots: Ints, columns: dict[str, pa.Array], empty: Accumulators) -> None:
        rows = np.arange(len(slots))
        empty.load(rows, columns, len(rows))
        self.accumulators.merge(slots, empty, rows, self.index.capacity)

    def rows(self, watermark: int) -> WindowRows:
        """The rows of this moment for a snapshot, with the watermark."""
        self._rows = WindowRows(self.index.capacity, self.dump, max(watermark, self.ahead))
        return self._rows

    def dump(self, slots: Ints) -> pa.RecordBatch:
        """Slots as rows: columns of the keys, the first timestamp of the pane, and columns of the accumulators."""
        keys = {f"key{position}": column for position, column in enumerate(self.index.keys(slots))}
        lows = {LOW: pa.repeat(pa.scalar(self.low, pa.int64()), len(slots))}
        return pa.RecordBatch.from_pydict({**keys, **lows, **self.accumulators.dump(slots)})


class FixedWindows(WindowState):
    """Tumbling or sliding windows: windows of one size.

    Args:
        size: size of a window, ms.
        slide: time from one start of a window to the next, ms.
        offset: a time at which a window starts, ms.
        lateness: how long windows are kept for late rows after their end, ms.
        make_index: creates an index of keys.
        bound: the aggregates, bound to the columns.
        stored: how the state is written.

    Attributes:
        panes: panes by their first timestamp.
        watermark: the current watermark, or time of the clock.
        latest: the highest watermark of all rows; after a restore by the clock, former subtasks differ in it.
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
        self._ahead: dict[int, list[Pane]] = {}  # restored panes whose ``ahead`` is set, by first timestamp
        self._open: set[int] = set()  # starts of windows that are not over
        self._queue: list[tuple[int, int]] = []  # heap of (time at which a window ends or is over, its start)
        self._open_windows: dict[int, tuple[int, ...]] = {}  # cache of ``_windows``, emptied when time advances
        self.watermark = self.latest = MIN_TIMESTAMP

    # -- rows

    def add(self, keys: Keys, inputs: Sequence[Values], stamps: Ints, order: Ints) -> Iterator[Results | Ints | None]:
        """Add rows; yields results of ended windows that are kept for late rows, and positions of rows that are late.

        Args:
            keys: columns of the keys.
            inputs: inputs of the aggregates.
            stamps: timestamps of the rows, epoch ms.
            order: positions of the rows in the input of the operator.
        """
        late: list[Ints] = []
        fire_again: list[tuple[int, Ints]] = []  # panes with an ended window, and their rows
        for low, rows in self._by_pane(stamps):
            windows = self._windows(low)
            if not windows:
                chosen = np.arange(len(stamps)) if rows is None else rows
                late.append(chosen[stamps[chosen] + self._lateness <= self.watermark])
            elif windows[-1] + self._size - 1 <= self.watermark:
                fire_again.append((low, np.arange(len(stamps)) if rows is None else rows))
            elif rows is None:
                self.pane(low).add(keys, inputs, order)
            else:
                self.pane(low).add([key.take(rows) for key in keys], [each.take(rows) for each in inputs], order[rows])
        if fire_again:
            yield from self._fire_again(fire_again, keys, inputs, order)
        if late and sum(map(len, late)):
            yield np.sort(np.concatenate(late))

    def _by_pane(self, stamps: Ints) -> Iterator[tuple[int, Ints | None]]:
        """Yield the first timestamp of each pane, and the positions of its rows, ascending; None = all rows."""
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
        """Starts of the windows of a pane that are not over, the latest first; those that are new are opened."""
        windows = self._open_windows.get(low)
        if windows is None:
            last = low - (low - self._offset) % self._slide
            starts = range(last, low - self._size, -self._slide)
            windows = tuple(start for start in starts if self._cleanup_time(start) > self.watermark)
            self._open_windows[low] = windows
            for start in windows:
                self._opened(start)
        return windows

    def pane(self, low: int) -> Pane:
        """The pane with this first timestamp; created if there is none."""
        pane = self.panes.get(low)
        if pane is None:
            pane = self.panes[low] = Pane(low, self._make_index(), Accumulators(self._bound))
        return pane

    def _opened(self, start: int) -> None:
        """Note a window, and the times at which it ends and is over; they differ by the allowed lateness."""
        if start in self._open:
            return
        self._open.add(start)
        last = start + self._size - 1
        for time in {last, self._cleanup_time(start)}:
            if self.watermark < time < MAX_TIMESTAMP:
                heapq.heappush(self._queue, (time, start))

    def _cleanup_time(self, start: int) -> int:
        return min(start + self._size - 1 + self._lateness, MAX_TIMESTAMP)

    def _fire_again(
        self, fire_again: Sequence[tuple[int, Ints]], keys: Keys, inputs: Sequence[Values], order: Ints
    ) -> Iterator[Results | None]:
        """Add rows to windows that have ended; each row makes such a window fire again, with the rows before it.

        All results of a window are computed together, window by window, and then put into the order in which rows
        would have made them one after the other: by row, the latest window of a row first.
        """
        max_windows = self._size // self._slide + 1  # of one row
        rows_of: dict[int, list[Ints]] = {}
        places_of: dict[int, list[Ints]] = {}  # sort keys of the results
        for low, chosen in fire_again:
            for place, start in enumerate(self._windows(low)):
                if start + self._size - 1 <= self.watermark:
                    rows_of.setdefault(start, []).append(chosen)
                    places_of.setdefault(start, []).append(chosen * max_windows + place)
        results: list[Results] = []
        places: list[Ints] = []
        for start, parts in rows_of.items():
            rows, window_places = np.concatenate(parts), np.concatenate(places_of[start])
            arrival = np.argsort(rows)
            rows = rows[arrival]
            results.append(self._running(start, rows, keys, inputs, order))
            places.append(window_places[arrival])
            yield None
        # Only now the panes: the running results above are those of the panes before, and of the rows one by one.
        for low, chosen in fire_again:
            pane_keys = [key.take(chosen) for key in keys]
            self.pane(low).add(pane_keys, [each.take(chosen) for each in inputs], order[chosen])
        yield concatenated(results, np.argsort(np.concatenate(places), kind="stable"))

    def _running(self, start: int, rows: Ints, keys: Keys, inputs: Sequence[Values], order: Ints) -> Results:
        """Results of a window for each of these rows: of its key, with this row and all before it."""
        row_keys, count = [key.take(rows) for key in keys], len(rows)
        groups = Groups(self._make_index().slots(row_keys))
        accumulators = Accumulators(self._bound, sparse=True)  # a slot for each row
        accumulators.add(np.arange(count), [each.take(rows) for each in inputs], order[rows], count)
        # The first row of each key gets what the window contains already; ``accumulate`` carries it on to the others.
        firsts = groups.order[groups.starts]
        first_keys = [key.take(firsts) for key in row_keys]
        for pane in self._panes_of(start):
            others = pane.index.find(first_keys)
            in_pane = others >= 0
            accumulators.merge(firsts[in_pane], pane.accumulators, others[in_pane], count)
        accumulate(accumulators, groups.order, groups.position, count)
        return self._results(start, row_keys, accumulators, np.arange(count))

    # -- time

    @property
    def next_time(self) -> int | None:
        """The next time at which a window ends or is over; None if there is none."""
        return self._queue[0][0] if self._queue else None

    def advance(self, watermark: int) -> Work:
        """Take a new watermark; yields the results of windows that end, in the order of time."""
        if watermark <= self.watermark:
            return
        self.watermark, self.latest = watermark, max(self.latest, watermark)
        self._open_windows.clear()
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
        """Drop the panes of a window that is over, as far as they are in no other open window."""
        for low in range(start, start + self._size, self._step):
            last = low - (low - self._offset) % self._slide
            if not any(other in self._open for other in range(last, low - self._size, -self._slide)):
                self._drop(low)

    def _drop(self, low: int) -> None:
        self.panes.pop(low, None)
        self._ahead.pop(low, None)

    def _panes_of(self, start: int) -> list[Pane]:
        if self._size == self._step:
            panes = [self.panes[start]] if start in self.panes else []
        else:
            panes = [self.panes[low] for low in range(start, start + self._size, self._step) if low in self.panes]
        if self._ahead:
            # Not those whose subtask had evaluated this window before the checkpoint.
            for low in range(start, start + self._size, self._step):
                panes += [pane for pane in self._ahead.get(low, ()) if pane.ahead < start + self._size - 1]
        return panes

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
        """The panes of this moment, to be written."""
        return [pane.rows(self.watermark) for pane in self._all_panes()]

    def restore_rows(self, batch: pa.RecordBatch, watermark: int) -> None:
        """Take over rows of a pane, and the watermark at which they were written."""
        pane = self._restored(batch.column(LOW)[0].as_py(), watermark)
        pane.restore(batch, self.key_width, Accumulators(self._bound))

    def dump(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all panes in pieces; without panes that were restored ahead of others."""
        for pane in self.panes.values():
            for slots in pieces(pane.index.capacity):
                yield pane.dump(slots)

    def add_parts(self, batch: pa.RecordBatch) -> None:
        """Add rows that other windows have dumped, in any combination; none of their windows may be over."""
        lows = batch.column(LOW).to_numpy()
        for low in np.unique(lows).tolist():
            part = batch if lows[0] == low and bool((lows == low).all()) else batch.filter(pa.array(lows == low))
            self._windows(low)
            self.pane(low).add_parts(part, self.key_width, Accumulators(self._bound))

    def taken_back(self) -> None:
        """Open the windows of restored panes that are not over."""
        self._open_windows.clear()
        self._open, self._queue = set(), []
        for low in {*self.panes, *self._ahead}:
            if not self._windows(low):  # the program allowed more lateness before the restart
                self._drop(low)

    def _restored(self, low: int, watermark: int) -> Pane:
        """The pane for restored rows that were written at this watermark.

        Watermarks of former subtasks differ by the clock, and with unaligned barriers. A window that had ended for one
        subtask and not for another ends now, with only the rows of the other one, as the first has emitted its results
        already. So the lowest watermark counts, and rows with a higher one are put aside in panes ``ahead``. Windows
        that are kept for late rows need none of this, because they are evaluated with all their rows each time.
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
        """The position of the next row in the input of the operator."""
        return max((pane.accumulators.rows_seen for pane in self._all_panes()), default=0)

    def close(self) -> None:
        """Drop all windows. May be called again."""
        self.panes, self._ahead, self._open, self._queue = {}, {}, set(), []
