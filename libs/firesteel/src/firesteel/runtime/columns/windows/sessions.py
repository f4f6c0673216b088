"""Session windows over columns.

Open sessions are arrays, sorted by key and start; what they hold stands in accumulators by number. A batch becomes
sessions of its own rows first; these wait beside the open ones, and are brought together with them when time has come
so far that one may have ended. Rows that may be late, or that come to a session that has ended, are dealt with one by
one, together with all rows and sessions that they are connected with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from firesteel.expressions.aggregates import BoundAggregate
from firesteel.runtime.columns.windows.keys import Index, Keys
from firesteel.runtime.columns.windows.results import PIECE, Results, Work, concatenated
from firesteel.runtime.columns.windows.snapshots import StoredAs, WindowRows, WindowState
from firesteel.state.columnar.aggregate_fields import Ints
from firesteel.state.columnar.aggregate_kernels import Accumulators, Values
from firesteel.windowing.columnar_sessions import merged
from firesteel.windowing.windows import MAX_TIMESTAMP, MIN_TIMESTAMP

START, END = "start", "end"
"""Columns of sessions in snapshots."""
_WAITING: Final = 65_536
"""So many sessions wait beside the open ones, or as many as these are."""


class Opened(NamedTuple):
    """Sessions.

    Attributes:
        slots: of their keys.
        starts: ms.
        ends: ms.
        numbers: of what they hold.
    """

    slots: Ints
    starts: Ints
    ends: Ints
    numbers: Ints

    def take(self, chosen: Ints) -> Opened:
        """Some of them."""
        return Opened(*[column[chosen] for column in self])


def _together(parts: Sequence[Opened]) -> Opened:
    return Opened(*[np.concatenate(columns) for columns in zip(*parts, strict=True)])


_NONE = Opened(*[np.empty(0, np.int64)] * 4)


class SessionWindows(WindowState):
    """Sessions with one gap for all rows.

    Args:
        gap: without rows, ms.
        lateness: how long sessions are kept behind their end, ms.
        make_index: an index of keys.
        bound: the aggregates.
        stored: how it is written.

    Attributes:
        watermark: how far time has come.
        latest: how far it has come for any of the sessions; by the clock, subtasks that were restored differ in it.
    """

    def __init__(
        self,
        gap: int,
        lateness: int,
        make_index: Callable[[], Index],
        bound: Sequence[BoundAggregate],
        stored: StoredAs,
    ) -> None:
        super().__init__(stored)
        self._make_index = make_index
        self._rows: WindowRows | None = None
        self._rows_slots = _NONE.slots
        self._gap, self._lateness, self._bound = gap, lateness, bound
        self.index = make_index()
        self.accumulators = Accumulators(bound)
        self._opened = _NONE
        self._waiting: list[Opened] = []
        self._waiting_count = 0
        self._numbers = 0
        self._first_end = MAX_TIMESTAMP
        self._without: list[Ints] = []
        self.watermark = self.latest = MIN_TIMESTAMP

    @property
    def opened(self) -> Opened:
        """All open sessions, sorted by key and start."""
        self._settle()
        return self._opened

    @property
    def next_time(self) -> int | None:
        """When something may be to be done next."""
        return None if self._first_end == MAX_TIMESTAMP else self._first_end - 1

    # -- rows

    def add(self, keys: Keys, given: Sequence[Values], stamps: Ints, order: Ints) -> Iterator[Results | Ints | None]:
        """Add rows; gives results of sessions that have ended but are kept, and positions of rows that are late."""
        if self._without:
            self._settle()  # before slots are looked up: it may give some back
        slots = self.index.slots(keys)
        if int(stamps.min()) + self._gap - 1 > self.watermark:
            self._gather(slots, stamps, given, order)
            return
        yield from self._gather_carefully(slots, stamps, given, order)

    def _gather(self, slots: Ints, stamps: Ints, given: Sequence[Values], order: Ints) -> None:
        """Rows of which none is late."""
        found = merged(slots, stamps, stamps + self._gap)
        lasts = np.append(found.firsts[1:], len(slots)) - 1
        rows = found.order
        numbers = np.arange(self._numbers, self._numbers + len(found.firsts))
        self._numbers += len(numbers)
        of_row = np.empty(len(rows), np.int64)
        of_row[rows] = numbers[found.group]
        self.accumulators.add(of_row, given, order, self._numbers)
        firsts = rows[found.firsts]
        self._wait(Opened(slots[firsts], stamps[firsts], stamps[rows[lasts]] + self._gap, numbers))

    def _wait(self, sessions: Opened) -> None:
        if len(sessions.slots):
            self._waiting.append(sessions)
            self._waiting_count += len(sessions.slots)
            self._first_end = min(self._first_end, int(sessions.ends.min()))
            if self._waiting_count > max(_WAITING, len(self._opened.slots)):
                self._settle()

    def _settle(self) -> None:
        """Bring what waits together with the open sessions."""
        if self._waiting:
            everything = _together([self._opened, *self._waiting])
            self._waiting, self._waiting_count = [], 0
            found = merged(everything.slots, everything.starts, everything.ends)
            sessions = everything.take(found.order)
            numbers = sessions.numbers[found.firsts]
            if len(found.firsts) < len(sessions.slots):
                others = np.ones(len(sessions.slots), np.bool_)
                others[found.firsts] = False
                self._save(sessions.slots[others])
                into = numbers[found.group[others]]
                self.accumulators.merge(into, self.accumulators, sessions.numbers[others], self._numbers)
            ends = np.maximum.reduceat(sessions.ends, found.firsts)
            self._opened = Opened(sessions.slots[found.firsts], sessions.starts[found.firsts], ends, numbers)
        if self._without:
            self._release(np.unique(np.concatenate(self._without)))
            self._without = []
        self._tidy()

    def _release(self, slots: Ints) -> None:
        """Forget the keys among these that have no session."""
        kept = self._opened.slots
        places = np.searchsorted(kept, slots)
        there = places < len(kept)
        there[there] = kept[places[there]] == slots[there]
        self.index.release(slots[~there])

    def _save(self, slots: Ints) -> None:
        """Sessions of these keys, which a snapshot may not have written yet, are about to change."""
        if self._rows is None:
            return
        if self._rows.closed:
            self._rows, self._rows_slots = None, _NONE.slots
            return
        slots = np.unique(slots)
        first, last = (np.searchsorted(self._rows_slots, slots, side) for side in ("left", "right"))
        counts = last - first
        before = np.cumsum(counts) - counts
        self._rows.save(np.repeat(first - before, counts) + np.arange(counts.sum()))

    def _tidy(self) -> None:
        """Forget what ended sessions held, once it is more than what the others hold."""
        count = len(self._opened.slots)
        if self._numbers > 2 * count + _WAITING:
            before, self.accumulators = self.accumulators, Accumulators(self._bound)
            numbers = np.arange(count)
            self.accumulators.merge(numbers, before, self._opened.numbers, count)
            self._opened = self._opened._replace(numbers=numbers)
            self._numbers = count

    # -- rows that may be late

    def _gather_carefully(
        self, slots: Ints, stamps: Ints, given: Sequence[Values], order: Ints
    ) -> Iterator[Results | Ints | None]:
        self._settle()
        self._save(slots)
        count = len(slots)
        near = np.flatnonzero(np.isin(self._opened.slots, slots))
        known = self._opened.take(near)
        found = merged(
            np.concatenate([slots, known.slots]),
            np.concatenate([stamps, known.starts]),
            np.concatenate([stamps + self._gap, known.ends]),
        )
        group = np.empty(len(found.order), np.int64)
        group[found.order] = found.group
        of_row, of_known = group[:count], group[count:]
        last = stamps + (self._gap - 1)
        groups = len(found.firsts)
        careful = np.bincount(of_row[last <= self.watermark], minlength=groups) > 0
        over = max(self.watermark - self._lateness, MIN_TIMESTAMP)
        open_still = np.bincount(of_row[last > over], minlength=groups) > 0
        open_still |= np.bincount(of_known, minlength=groups) > 0
        late = [np.flatnonzero(~open_still[of_row])]
        free = np.flatnonzero(~careful[of_row])
        rows = np.flatnonzero((careful & open_still)[of_row])
        if rows.size:
            mine = (careful & open_still)[of_known]
            sessions: dict[int, list[list[int]]] = {}
            for place, number in zip(near[mine].tolist(), of_known[mine].tolist(), strict=True):
                columns = [int(column[place]) for column in self._opened]
                sessions.setdefault(number, []).append(columns)
            self._opened = self._opened.take(np.setdiff1d(np.arange(len(self._opened.slots)), near[mine]))
            found_results: list[Results] = []
            for row in rows.tolist():
                own = sessions.setdefault(int(of_row[row]), [])
                session = self._add_row(own, row, slots, stamps, given, order)
                if session is None:
                    late.append(np.array([row]))
                elif session[2] - 1 <= self.watermark:
                    found_results.append(self._results(Opened(*[np.array([field]) for field in session])))
                    yield None
            left = [session for own in sessions.values() for session in own]
            if left:
                self._wait(Opened(*np.array(left, np.int64).T.copy()))
            if found_results:
                yield concatenated(found_results, np.arange(len(found_results)))
        if free.size:
            self._gather(slots[free], stamps[free], [one.take(free) for one in given], order[free])
        positions = np.sort(np.concatenate(late))
        if positions.size:
            self._without.append(slots[positions])
            yield positions

    def _add_row(
        self, sessions: list[list[int]], row: int, slots: Ints, stamps: Ints, given: Sequence[Values], order: Ints
    ) -> list[int] | None:
        """Put a row into one of the sessions it is connected with; None: it is late."""
        start = int(stamps[row])
        end = start + self._gap
        touched = [one for one in sessions if one[1] <= end and one[2] >= start]
        if not touched:
            if end - 1 + self._lateness <= self.watermark:
                return None
            touched = [[int(slots[row]), start, end, self._numbers]]
            sessions.append(touched[0])
            self._numbers += 1
        into = touched[0]
        for other in touched[1:]:
            numbers = np.array([into[3]]), np.array([other[3]])
            self.accumulators.merge(numbers[0], self.accumulators, numbers[1], self._numbers)
            sessions.remove(other)
        into[1] = min(start, *(one[1] for one in touched))
        into[2] = max(end, *(one[2] for one in touched))
        at = np.array([row])
        self.accumulators.add(np.array([into[3]]), [one.take(at) for one in given], order[at], self._numbers)
        return into

    # -- time

    def advance(self, watermark: int) -> Work:
        """Time has come so far: results of the sessions that end, in the order of time."""
        if watermark <= self.watermark:
            return
        before, self.watermark, self.latest = self.watermark, watermark, max(self.latest, watermark)
        if self._first_end - 1 > watermark:
            return
        self._settle()
        lasts = self._opened.ends - 1
        ending = np.flatnonzero((lasts > before) & (lasts <= watermark))
        ending = ending[np.argsort(lasts[ending], kind="stable")]
        for start in range(0, len(ending), PIECE):
            yield self._results(self._opened.take(ending[start : start + PIECE]))
        over = lasts <= max(watermark - self._lateness, MIN_TIMESTAMP)
        if over.any():
            gone = np.unique(self._opened.slots[over])
            self._save(gone)
            self._opened = self._opened.take(np.flatnonzero(~over))
            self._release(gone)
            self._tidy()
        self._first_end = int(self._opened.ends.min()) if len(self._opened.ends) else MAX_TIMESTAMP

    def _results(self, sessions: Opened) -> Results:
        keys = self.index.keys(sessions.slots)
        return Results(keys, sessions.starts, sessions.ends, self.accumulators.results(sessions.numbers, keys))

    # -- snapshots

    def rows(self) -> Sequence[WindowRows]:
        """The sessions of now, to be written."""
        self._settle()
        opened, accumulators = self._opened, self.accumulators

        def dumped(positions: Ints) -> pa.RecordBatch:
            some = opened.take(positions)
            keys = {f"key{position}": column for position, column in enumerate(self.index.keys(some.slots))}
            times = {START: pa.array(some.starts), END: pa.array(some.ends)}
            return pa.RecordBatch.from_pydict({**keys, **times, **accumulators.dump(some.numbers)})

        self._rows, self._rows_slots = WindowRows(len(opened.slots), dumped, self.watermark), opened.slots
        return [self._rows]

    def restore_rows(self, batch: pa.RecordBatch, watermark: int) -> None:
        """Take over sessions, and how far time had come.

        Time had come differently far for them by the clock, and where barriers are not aligned: what had ended for one
        of them has been given and forgotten, but what had not is still to be given.
        """
        self.watermark = min(self.watermark, watermark) if self._numbers else watermark
        self.latest = max(self.latest, watermark)
        slots = self.index.slots(batch.columns[: self.key_width])
        numbers = np.arange(self._numbers, self._numbers + len(slots))
        self._numbers += len(slots)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        self.accumulators.load(numbers, columns, self._numbers)
        starts, ends = (columns[name].to_numpy() for name in (START, END))
        self._wait(Opened(slots, starts, ends, numbers))

    @property
    def rows_seen(self) -> int:
        """The highest number that a row had, plus 1."""
        return self.accumulators.rows_seen

    def close(self) -> None:
        """Forget everything; idempotent."""
        self.index, self.accumulators = self._make_index(), Accumulators(self._bound)
        self._opened, self._waiting, self._without = _NONE, [], []
        self._numbers = self._waiting_count = 0
        self._first_end = MAX_TIMESTAMP
