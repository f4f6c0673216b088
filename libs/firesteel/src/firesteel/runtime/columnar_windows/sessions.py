"""Session windows over columns.

Open sessions are arrays, sorted by key and start; what they hold stands in accumulators by number. A batch becomes
sessions of its own rows first; these wait beside the open ones, and are brought together with them when time has come
so far that one may have ended. Rows that may be late, or that come to a session that has ended, are dealt with in the
order in which they came, together with all rows and sessions that they are connected with. Nothing that is open is
changed by them: what they become waits like other sessions, and so do the times of the sessions that they belong to.
So a late row costs a look at the sessions of its key, however many others are open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.expressions.aggregates import BoundAggregate
from firesteel.runtime.columnar_windows.chains import accumulate
from firesteel.runtime.columnar_windows.keys import Index, Keys
from firesteel.runtime.columnar_windows.results import PIECE, Results, Work
from firesteel.runtime.columnar_windows.snapshots import StoredAs, WindowRows, WindowState
from firesteel.state.columnar.aggregate_fields import Ints
from firesteel.state.columnar.aggregate_kernels import Accumulators, Values
from firesteel.state.columnar.groups import Groups
from firesteel.windowing.columnar_sessions import merged
from firesteel.windowing.windows import MAX_TIMESTAMP, MIN_TIMESTAMP

START, END = "start", "end"
"""Columns of sessions in snapshots."""
_WAITING: Final = 65_536
"""So many sessions wait beside the open ones, or as many as these are."""
_PARTS: Final = 64
"""A look at the sessions of a key looks into so many parts that wait, at about 3 us each; more are brought together."""


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
        return Opened(*[column[chosen] for column in self])


def _together(parts: Sequence[Opened]) -> Opened:
    return Opened(*[np.concatenate(columns) for columns in zip(*parts, strict=True)])


_NONE = Opened(*[np.empty(0, np.int64)] * 4)


def _ranges(ascending: Ints, slots: Ints) -> tuple[Ints, Ints]:
    """Where the sessions of each of these keys begin and end, among those of the sorted keys."""
    return np.searchsorted(ascending, slots, "left"), np.searchsorted(ascending, slots, "right")


def _positions(first: Ints, last: Ints) -> Ints:
    """All positions of such ranges, one range behind the other."""
    counts = last - first
    before = np.cumsum(counts) - counts
    positions: Ints = np.repeat(first - before, counts) + np.arange(counts.sum())
    return positions


class _Session:
    """A session that rows which may be late belong to, while a batch is looked at.

    Attributes:
        start, end: ms.
        chain: number of the run of rows that have come to it since it was there, or brought together with another one.
        last_row: place of the last one of these; -1 = there is none.
    """

    __slots__ = ("chain", "end", "last_row", "start")

    def __init__(self, start: int, end: int, chain: int) -> None:
        self.start, self.end, self.chain, self.last_row = start, end, chain, -1


class _Connected:
    """Rows of groups in which some may be late, in the order in which they came, and the sessions of these groups.

    What a session holds when a row has come is what was in it before and a chain of rows. A row that brings sessions
    together begins a new chain, which goes on from all of them.

    Args:
        rows: their positions in the batch, ascending.
        of_row: the group of each.
        known: sessions that were there; those of a group may overlap.
        of_known: the group of each.

    Attributes:
        late: positions of the rows that are.
        fires: places among the rows of those whose session has ended.
        fired_starts, fired_ends: of these sessions, ms.
    """

    def __init__(self, rows: Ints, of_row: Ints, known: Opened, of_known: Ints) -> None:
        self.rows, self.late = rows, _NONE.slots
        self.fires = self.fired_starts = self.fired_ends = _NONE.starts
        self._of_row = of_row
        self._sessions: dict[int, list[_Session]] = {}
        self._chain_of_row = np.full(len(rows), -1, np.int64)
        self._session_of_row: list[_Session | None] = [None] * len(rows)
        self._into: dict[_Session, _Session] = {}
        # of each chain: numbers of what was there before, rows that it goes on from, and how many chains are before it
        self._numbers: list[list[int]] = []
        self._goes_on: list[list[int]] = []
        self._level: list[int] = []
        by_start = np.lexsort((known.starts, of_known))
        columns = (of_known[by_start], known.starts[by_start], known.ends[by_start], known.numbers[by_start])
        for group, start, end, number in zip(*(column.tolist() for column in columns), strict=True):
            sessions = self._sessions.setdefault(group, [])
            if sessions and sessions[-1].end >= start:  # one of them waits, and is not brought together with it yet
                sessions[-1].end = max(sessions[-1].end, end)
                self._numbers[sessions[-1].chain].append(number)
            else:
                sessions.append(_Session(start, end, self._new_chain([number], [], 0)))

    def _new_chain(self, numbers: list[int], goes_on: list[int], level: int) -> int:
        self._numbers.append(numbers)
        self._goes_on.append(goes_on)
        self._level.append(level)
        return len(self._level) - 1

    def put(self, stamps: Ints, gap: int, watermark: int, lateness: int) -> None:
        """Put the rows into sessions, one after the other."""
        late: list[int] = []
        fires: list[tuple[int, int, int]] = []
        for place, (row, group, start) in enumerate(
            zip(self.rows.tolist(), self._of_row.tolist(), stamps[self.rows].tolist(), strict=True)
        ):
            end = start + gap
            sessions = self._sessions.setdefault(group, [])
            touched = [one for one in sessions if one.start <= end and one.end >= start]
            if not touched:
                if end - 1 + lateness <= watermark:
                    late.append(row)
                    continue
                session = _Session(start, end, self._new_chain([], [], 0))
                sessions.append(session)
            else:
                session = touched[0] if len(touched) == 1 else self._together(sessions, touched)
                session.start, session.end = min(start, session.start), max(end, session.end)
            session.last_row = place
            self._chain_of_row[place] = session.chain
            self._session_of_row[place] = session
            if session.end - 1 <= watermark:
                fires.append((place, session.start, session.end))
        self.late = np.array(late, np.int64)
        if fires:
            self.fires, self.fired_starts, self.fired_ends = np.array(fires, np.int64).T.copy()

    def _together(self, sessions: list[_Session], touched: list[_Session]) -> _Session:
        numbers: list[int] = []
        goes_on: list[int] = []
        level = 0
        for one in touched:
            if one.last_row < 0:
                numbers += self._numbers[one.chain]
            else:
                goes_on.append(one.last_row)
                level = max(level, self._level[one.chain] + 1)
            sessions.remove(one)
        start, end = min(one.start for one in touched), max(one.end for one in touched)
        session = _Session(start, end, self._new_chain(numbers, goes_on, level))
        sessions.append(session)
        self._into.update(dict.fromkeys(touched, session))
        return session

    def sessions(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Rows that are in a session, which one by number, and the times of these sessions."""
        found: dict[_Session, int] = {}
        rows: list[int] = []
        places: list[int] = []
        for row, session in zip(self.rows.tolist(), self._session_of_row, strict=True):
            if session is not None:
                while session in self._into:
                    session = self._into[session]
                rows.append(row)
                places.append(found.setdefault(session, len(found)))
        starts, ends = ([getattr(one, name) for one in found] for name in ("start", "end"))
        return tuple(np.array(column, np.int64) for column in (rows, places, starts, ends))  # type: ignore[return-value]

    def contents(
        self, before: Accumulators, accumulators: Accumulators, given: Sequence[Values], order: Ints
    ) -> Accumulators:
        """What the session of each row held when the row had come, in a slot for each row.

        Args:
            before: what the known sessions hold.
            accumulators: empty ones, which are filled and given back.
            given: values of the rows of the batch.
            order: when these came.
        """
        count = len(self.rows)
        accumulators.add(np.arange(count), [one.take(self.rows) for one in given], order[self.rows], count)
        in_chains = np.flatnonzero(self._chain_of_row >= 0)
        groups = Groups(self._chain_of_row[in_chains])
        slots = in_chains[groups.order]
        chains = groups.slots
        firsts = slots[groups.starts]
        levels = np.array(self._level, np.int64)
        for level in range(int(levels[chains].max(initial=-1)) + 1):
            now = np.flatnonzero(levels[chains] == level)
            beginnings = list(zip(firsts[now].tolist(), chains[now].tolist(), strict=True))
            for held, goes_on_from in ((before, self._numbers), (accumulators, self._goes_on)):
                pairs = [(first, slot) for first, chain in beginnings for slot in goes_on_from[chain]]
                if pairs:
                    into, others = np.array(pairs, np.int64).T
                    accumulators.merge(into, held, others, count)
            mine = np.flatnonzero(groups.spread(levels[chains] == level))
            accumulate(accumulators, slots[mine], groups.position[mine], count)
        return accumulators


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
            parts = [self._opened, *self._waiting]
            self._waiting, self._waiting_count = [], 0
            self._opened = self._merged(parts)
        self._tidy()

    def _merged(self, parts: Sequence[Opened]) -> Opened:
        """Sessions brought together, sorted by key and start; those that overlap or touch become one."""
        everything = _together(parts)
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
        return Opened(sessions.slots[found.firsts], sessions.starts[found.firsts], ends, numbers)

    def _have_sessions(self, slots: Ints) -> npt.NDArray[np.bool_]:
        """Which of these keys have a session, open or waiting."""
        found = np.zeros(len(slots), np.bool_)
        for sessions in (self._opened, *self._waiting):
            first, last = _ranges(sessions.slots, slots)
            found |= last > first
        return found

    def _sessions_of(self, slots: Ints) -> Opened:
        """The sessions of some keys, open or waiting; those of a key may overlap."""
        if len(self._waiting) > _PARTS:
            self._bring_parts_together()
        found = []
        for sessions in (self._opened, *self._waiting):
            positions = _positions(*_ranges(sessions.slots, slots))
            if len(positions):
                found.append(sessions.take(positions))
        return _together(found) if found else _NONE

    def _bring_parts_together(self) -> None:
        """Make few parts of the many that wait, each of about ``_WAITING`` sessions."""
        parts: list[Opened] = []
        run: list[Opened] = []
        for sessions in self._waiting:
            run.append(sessions)
            if sum(len(one.slots) for one in run) >= _WAITING:
                parts.append(self._merged(run) if len(run) > 1 else run[0])
                run = []
        self._waiting = [*parts, self._merged(run)] if run else parts
        self._waiting_count = sum(len(one.slots) for one in self._waiting)

    def _save(self, slots: Ints) -> None:
        """Sessions of these keys, which a snapshot may not have written yet, are about to change."""
        if self._rows is None:
            return
        if self._rows.closed:
            self._rows, self._rows_slots = None, _NONE.slots
            return
        self._rows.save(_positions(*_ranges(self._rows_slots, np.unique(slots))))

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
        last = stamps + (self._gap - 1)
        keys = np.unique(slots[last <= self.watermark])
        mine = np.flatnonzero(np.isin(slots, keys))  # rows of keys that have a row which may be late
        known = self._sessions_of(keys)
        count = len(mine)
        found = merged(
            np.concatenate([slots[mine], known.slots]),
            np.concatenate([stamps[mine], known.starts]),
            np.concatenate([stamps[mine] + self._gap, known.ends]),
        )
        group = np.empty(len(found.order), np.int64)
        group[found.order] = found.group
        of_row, of_known = group[:count], group[count:]
        groups = len(found.firsts)
        careful = np.bincount(of_row[last[mine] <= self.watermark], minlength=groups) > 0
        over = max(self.watermark - self._lateness, MIN_TIMESTAMP)
        open_still = np.bincount(of_row[last[mine] > over], minlength=groups) > 0
        open_still |= np.bincount(of_known, minlength=groups) > 0
        late = [mine[~open_still[of_row]]]
        in_order = careful & open_still
        chosen = in_order[of_row]
        if chosen.any():
            there = in_order[of_known]
            connected = _Connected(mine[chosen], of_row[chosen], known.take(np.flatnonzero(there)), of_known[there])
            connected.put(stamps, self._gap, self.watermark, self._lateness)
            late.append(connected.late)
            if len(connected.fires):
                yield self._fired(connected, slots, given, order)
            self._wait_for(connected, slots, given, order)
            yield None
        fast = np.ones(len(slots), np.bool_)
        fast[mine[careful[of_row]]] = False
        free = np.flatnonzero(fast)
        if free.size:
            self._gather(slots[free], stamps[free], [one.take(free) for one in given], order[free])
        positions = np.sort(np.concatenate(late))
        if positions.size:
            without = np.unique(slots[positions])
            self.index.release(without[~self._have_sessions(without)])
            yield positions

    def _fired(self, connected: _Connected, slots: Ints, given: Sequence[Values], order: Ints) -> Results:
        """Results of the rows that came to a session which has ended: what it held when they had come."""
        accumulators = connected.contents(self.accumulators, Accumulators(self._bound, sparse=True), given, order)
        fires = connected.fires
        keys = self.index.keys(slots[connected.rows[fires]])
        starts, ends = connected.fired_starts, connected.fired_ends
        return Results(keys, starts, ends, accumulators.results(fires, keys))

    def _wait_for(self, connected: _Connected, slots: Ints, given: Sequence[Values], order: Ints) -> None:
        """The rows wait as sessions, with the times of those that they belong to."""
        rows, places, starts, ends = connected.sessions()
        if not len(rows):
            return
        numbers = np.arange(self._numbers, self._numbers + len(starts))
        self._numbers += len(starts)
        self.accumulators.add(numbers[places], [one.take(rows) for one in given], order[rows], self._numbers)
        of_session = np.empty(len(starts), np.int64)
        of_session[places] = slots[rows]
        self._wait(self._merged([Opened(of_session, starts, ends, numbers)]))

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
            self.index.release(gone[~self._have_sessions(gone)])
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
        self._wait(self._merged([Opened(slots, starts, ends, numbers)]))

    @property
    def rows_seen(self) -> int:
        """The highest number that a row had, plus 1."""
        return self.accumulators.rows_seen

    def close(self) -> None:
        """Forget everything; idempotent."""
        self.index, self.accumulators = self._make_index(), Accumulators(self._bound)
        self._opened, self._waiting = _NONE, []
        self._numbers = self._waiting_count = 0
        self._first_end = MAX_TIMESTAMP
