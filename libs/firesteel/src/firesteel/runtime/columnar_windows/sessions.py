"""Session windows over columns.

Open sessions are arrays, sorted by key and start; their contents are accumulators, found by number. A batch is first
merged into sessions of its own rows. These wait beside the open ones, and are merged with them only when time has
advanced so far that a session may have ended (as runs of a log-structured merge tree are merged late). Rows that may be
late, or that belong to a session that has ended, are handled in the order in which they came, together with all rows
and sessions with which they are connected. They change no open session: they become sessions that wait as well, with
the times of those to which they belong. So a late row costs a look at the sessions of its key, however many are open.
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
"""Names of the columns with the times of sessions, in snapshots."""
_WAITING: Final = 65_536
"""Sessions that may wait before they are merged with the open ones; at least as many as are open may wait."""
_PARTS: Final = 64
"""Waiting parts into which a look at the sessions of a key looks, at about 3 us each; more parts are merged first."""


class Opened(NamedTuple):
    """Sessions, in columns.

    Attributes:
        slots: slots of their keys.
        starts: starts, epoch ms.
        ends: ends, epoch ms.
        numbers: numbers of their accumulators.
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
    """Where the sessions of each of these keys begin and end in columns that are sorted by key."""
    return np.searchsorted(ascending, slots, "left"), np.searchsorted(ascending, slots, "right")


def _positions(first: Ints, last: Ints) -> Ints:
    """All positions of such ranges, one range after the other."""
    counts = last - first
    offsets = np.cumsum(counts) - counts
    positions: Ints = np.repeat(first - offsets, counts) + np.arange(counts.sum())
    return positions


class _Session:
    """A session to which rows that may be late belong, while a batch is handled.

    Attributes:
        start, end: times, epoch ms.
        chain: number of the chain of rows that were added since the session existed, or was merged.
        last_row: place of the last row of the chain; -1 = the chain has none.
    """

    __slots__ = ("chain", "end", "last_row", "start")

    def __init__(self, start: int, end: int, chain: int) -> None:
        self.start, self.end, self.chain, self.last_row = start, end, chain, -1


class _Connected:
    """Handles rows of groups in which some may be late, in the order in which they came, with the sessions involved.

    The contents of a session after a row are its contents before the batch and a chain of rows. A row that merges
    sessions begins a new chain, which continues all of theirs. So contents can be computed for all rows together, chain
    by chain (``contents``), after ``put`` has found out the chains row by row.

    Args:
        rows: positions of the rows in the batch, ascending.
        of_row: group of each row.
        known: sessions that exist already; those of a group may overlap.
        of_known: group of each of these sessions.

    Attributes:
        late: positions of the rows that are late.
        fires: places, among the rows, of those whose session has ended, so that they make it fire.
        fired_starts, fired_ends: times of these sessions, epoch ms.
    """

    def __init__(self, rows: Ints, of_row: Ints, known: Opened, of_known: Ints) -> None:
        self.rows, self.late = rows, _NONE.slots
        self.fires = self.fired_starts = self.fired_ends = _NONE.starts
        self._of_row = of_row
        self._sessions: dict[int, list[_Session]] = {}
        self._chain_of_row = np.full(len(rows), -1, np.int64)
        self._session_of_row: list[_Session | None] = [None] * len(rows)
        self._into: dict[_Session, _Session] = {}
        # For each chain: numbers of the accumulators with which it begins, rows whose contents it continues, and the
        # number of chains that have to be computed before it.
        self._numbers: list[list[int]] = []
        self._continues: list[list[int]] = []
        self._level: list[int] = []
        by_start = np.lexsort((known.starts, of_known))
        columns = (of_known[by_start], known.starts[by_start], known.ends[by_start], known.numbers[by_start])
        for group, start, end, number in zip(*(column.tolist() for column in columns), strict=True):
            sessions = self._sessions.setdefault(group, [])
            if sessions and sessions[-1].end >= start:  # one of the two waits, and they are not merged yet
                sessions[-1].end = max(sessions[-1].end, end)
                self._numbers[sessions[-1].chain].append(number)
            else:
                sessions.append(_Session(start, end, self._new_chain([number], [], 0)))

    def _new_chain(self, numbers: list[int], continues: list[int], level: int) -> int:
        self._numbers.append(numbers)
        self._continues.append(continues)
        self._level.append(level)
        return len(self._level) - 1

    def put(self, stamps: Ints, gap: int, watermark: int, lateness: int) -> None:
        """Put the rows into sessions, one after the other; finds out which are late and which make a session fire."""
        late: list[int] = []
        fires: list[tuple[int, int, int]] = []
        for place, (row, group, start) in enumerate(
            zip(self.rows.tolist(), self._of_row.tolist(), stamps[self.rows].tolist(), strict=True)
        ):
            end = start + gap
            sessions = self._sessions.setdefault(group, [])
            touched = [session for session in sessions if session.start <= end and session.end >= start]
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
        continues: list[int] = []
        level = 0
        for merging in touched:
            if merging.last_row < 0:
                numbers += self._numbers[merging.chain]
            else:
                continues.append(merging.last_row)
                level = max(level, self._level[merging.chain] + 1)
            sessions.remove(merging)
        start, end = min(merging.start for merging in touched), max(merging.end for merging in touched)
        session = _Session(start, end, self._new_chain(numbers, continues, level))
        sessions.append(session)
        self._into.update(dict.fromkeys(touched, session))
        return session

    def sessions(self) -> tuple[Ints, Ints, Ints, Ints]:
        """The rows that are in a session, the number of that session for each, and the times of these sessions."""
        number_of_session: dict[_Session, int] = {}
        rows: list[int] = []
        places: list[int] = []
        for row, session in zip(self.rows.tolist(), self._session_of_row, strict=True):
            if session is not None:
                while session in self._into:
                    session = self._into[session]
                rows.append(row)
                places.append(number_of_session.setdefault(session, len(number_of_session)))
        starts, ends = ([getattr(session, name) for session in number_of_session] for name in ("start", "end"))
        return tuple(np.array(column, np.int64) for column in (rows, places, starts, ends))  # type: ignore[return-value]

    def contents(
        self, former: Accumulators, accumulators: Accumulators, inputs: Sequence[Values], order: Ints
    ) -> Accumulators:
        """Compute the contents of the session of each row after the row was added, in a slot for each row.

        Args:
            former: accumulators of the sessions that existed before.
            accumulators: empty accumulators, which are filled and returned.
            inputs: inputs of the aggregates, for the whole batch.
            order: positions of the rows of the batch in the input of the operator.
        """
        count = len(self.rows)
        accumulators.add(np.arange(count), [each.take(self.rows) for each in inputs], order[self.rows], count)
        in_chains = np.flatnonzero(self._chain_of_row >= 0)
        groups = Groups(self._chain_of_row[in_chains])
        slots = in_chains[groups.order]
        chains = groups.slots
        firsts = slots[groups.starts]
        levels = np.array(self._level, np.int64)
        for level in range(int(levels[chains].max(initial=-1)) + 1):
            now = np.flatnonzero(levels[chains] == level)
            beginnings = list(zip(firsts[now].tolist(), chains[now].tolist(), strict=True))
            # The first row of each chain gets the contents with which the chain begins; ``accumulate`` carries them on.
            for contents, numbers_of_chain in ((former, self._numbers), (accumulators, self._continues)):
                pairs = [(first, slot) for first, chain in beginnings for slot in numbers_of_chain[chain]]
                if pairs:
                    into, others = np.array(pairs, np.int64).T
                    accumulators.merge(into, contents, others, count)
            of_level = np.flatnonzero(groups.spread(levels[chains] == level))
            accumulate(accumulators, slots[of_level], groups.position[of_level], count)
        return accumulators


class SessionWindows(WindowState):
    """Sessions with one gap for all rows.

    Args:
        gap: time without rows after which a session ends, ms.
        lateness: how long sessions are kept for late rows after their end, ms.
        make_index: creates an index of keys.
        bound: the aggregates, bound to the columns.
        stored: how the state is written.

    Attributes:
        watermark: the current watermark, or time of the clock.
        latest: the highest watermark of all sessions; after a restore by the clock, former subtasks differ in it.
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
        """The earliest time at which a session may end; None if there are no sessions."""
        return None if self._first_end == MAX_TIMESTAMP else self._first_end - 1

    # -- rows

    def add(self, keys: Keys, inputs: Sequence[Values], stamps: Ints, order: Ints) -> Iterator[Results | Ints | None]:
        """Add rows; yields results of ended sessions that are kept for late rows, and positions of rows that are late.

        Args:
            keys: columns of the keys.
            inputs: inputs of the aggregates.
            stamps: timestamps of the rows, epoch ms.
            order: positions of the rows in the input of the operator.
        """
        slots = self.index.slots(keys)
        if int(stamps.min()) + self._gap - 1 > self.watermark:
            self._gather(slots, stamps, inputs, order)
            return
        yield from self._gather_in_order(slots, stamps, inputs, order)

    def _gather(self, slots: Ints, stamps: Ints, inputs: Sequence[Values], order: Ints) -> None:
        """Add rows none of which is late: merge them into sessions, which wait."""
        sessions = merged(slots, stamps, stamps + self._gap)
        lasts = np.append(sessions.firsts[1:], len(slots)) - 1
        rows = sessions.order
        numbers = np.arange(self._numbers, self._numbers + len(sessions.firsts))
        self._numbers += len(numbers)
        of_row = np.empty(len(rows), np.int64)
        of_row[rows] = numbers[sessions.group]
        self.accumulators.add(of_row, inputs, order, self._numbers)
        firsts = rows[sessions.firsts]
        self._wait(Opened(slots[firsts], stamps[firsts], stamps[rows[lasts]] + self._gap, numbers))

    def _wait(self, sessions: Opened) -> None:
        if len(sessions.slots):
            self._waiting.append(sessions)
            self._waiting_count += len(sessions.slots)
            self._first_end = min(self._first_end, int(sessions.ends.min()))
            if self._waiting_count > max(_WAITING, len(self._opened.slots)):
                self._settle()

    def _settle(self) -> None:
        """Merge the waiting sessions with the open ones."""
        if self._waiting:
            parts = [self._opened, *self._waiting]
            self._waiting, self._waiting_count = [], 0
            self._opened = self._merged(parts)
        self._tidy()

    def _merged(self, parts: Sequence[Opened]) -> Opened:
        """Merge sessions, sorted by key and start: those that overlap or touch become one."""
        everything = _together(parts)
        groups = merged(everything.slots, everything.starts, everything.ends)
        sessions = everything.take(groups.order)
        numbers = sessions.numbers[groups.firsts]
        if len(groups.firsts) < len(sessions.slots):
            # The contents of all sessions of a group are merged into those of its first.
            others = np.ones(len(sessions.slots), np.bool_)
            others[groups.firsts] = False
            self._save(sessions.slots[others])
            into = numbers[groups.group[others]]
            self.accumulators.merge(into, self.accumulators, sessions.numbers[others], self._numbers)
        ends = np.maximum.reduceat(sessions.ends, groups.firsts)
        return Opened(sessions.slots[groups.firsts], sessions.starts[groups.firsts], ends, numbers)

    def _have_sessions(self, slots: Ints) -> npt.NDArray[np.bool_]:
        """Which of these keys have a session, open or waiting."""
        has_session = np.zeros(len(slots), np.bool_)
        for sessions in (self._opened, *self._waiting):
            first, last = _ranges(sessions.slots, slots)
            has_session |= last > first
        return has_session

    def _sessions_of(self, slots: Ints) -> Opened:
        """The sessions of these keys, open or waiting; those of one key may overlap."""
        if len(self._waiting) > _PARTS:
            self._merge_waiting_parts()
        parts = []
        for sessions in (self._opened, *self._waiting):
            positions = _positions(*_ranges(sessions.slots, slots))
            if len(positions):
                parts.append(sessions.take(positions))
        return _together(parts) if parts else _NONE

    def _merge_waiting_parts(self) -> None:
        """Merge the many parts that wait into few, each of about ``_WAITING`` sessions."""
        parts: list[Opened] = []
        run: list[Opened] = []
        for sessions in self._waiting:
            run.append(sessions)
            if sum(len(part.slots) for part in run) >= _WAITING:
                parts.append(self._merged(run) if len(run) > 1 else run[0])
                run = []
        self._waiting = [*parts, self._merged(run)] if run else parts
        self._waiting_count = sum(len(part.slots) for part in self._waiting)

    def _save(self, slots: Ints) -> None:
        """Let a snapshot under way copy the sessions of these keys, which are about to change."""
        if self._rows is None:
            return
        if self._rows.closed:
            self._rows, self._rows_slots = None, _NONE.slots
            return
        self._rows.save(_positions(*_ranges(self._rows_slots, np.unique(slots))))

    def _tidy(self) -> None:
        """Drop the accumulators of ended sessions, once they are more than those of open ones."""
        count = len(self._opened.slots)
        if self._numbers > 2 * count + _WAITING:
            former, self.accumulators = self.accumulators, Accumulators(self._bound)
            numbers = np.arange(count)
            self.accumulators.merge(numbers, former, self._opened.numbers, count)
            self._opened = self._opened._replace(numbers=numbers)
            self._numbers = count

    # -- rows that may be late

    def _gather_in_order(
        self, slots: Ints, stamps: Ints, inputs: Sequence[Values], order: Ints
    ) -> Iterator[Results | Ints | None]:
        """Add rows of which some may be late, or belong to a session that has ended.

        Only rows connected with such a row have to be handled in order, which is slow: whether a row is late depends on
        the sessions that rows before it have extended. So rows and sessions of the keys in question are first merged
        into groups of connected ones. A group without such rows is gathered as usual; one all of whose rows end before
        the watermark, and that has no session, is late as a whole; only the others go through ``_Connected``.
        """
        last = stamps + (self._gap - 1)
        keys = np.unique(slots[last <= self.watermark])
        candidates = np.flatnonzero(np.isin(slots, keys))  # rows of keys that have a row which may be late
        known = self._sessions_of(keys)
        count = len(candidates)
        groups = merged(
            np.concatenate([slots[candidates], known.slots]),
            np.concatenate([stamps[candidates], known.starts]),
            np.concatenate([stamps[candidates] + self._gap, known.ends]),
        )
        group = np.empty(len(groups.order), np.int64)
        group[groups.order] = groups.group
        of_row, of_known = group[:count], group[count:]
        group_count = len(groups.firsts)
        may_be_late = np.bincount(of_row[last[candidates] <= self.watermark], minlength=group_count) > 0
        over = max(self.watermark - self._lateness, MIN_TIMESTAMP)
        is_open = np.bincount(of_row[last[candidates] > over], minlength=group_count) > 0
        is_open |= np.bincount(of_known, minlength=group_count) > 0
        late = [candidates[~is_open[of_row]]]
        in_order = may_be_late & is_open
        chosen = in_order[of_row]
        if chosen.any():
            involved = in_order[of_known]
            connected = _Connected(
                candidates[chosen], of_row[chosen], known.take(np.flatnonzero(involved)), of_known[involved]
            )
            connected.put(stamps, self._gap, self.watermark, self._lateness)
            late.append(connected.late)
            if len(connected.fires):
                yield self._fired(connected, slots, inputs, order)
            self._wait_for(connected, slots, inputs, order)
            yield None
        fast = np.ones(len(slots), np.bool_)
        fast[candidates[may_be_late[of_row]]] = False
        others = np.flatnonzero(fast)
        if others.size:
            self._gather(slots[others], stamps[others], [each.take(others) for each in inputs], order[others])
        positions = np.sort(np.concatenate(late))
        if positions.size:
            # Late rows have given their keys slots; free those of keys without sessions.
            late_keys = np.unique(slots[positions])
            self.index.release(late_keys[~self._have_sessions(late_keys)])
            yield positions

    def _fired(self, connected: _Connected, slots: Ints, inputs: Sequence[Values], order: Ints) -> Results:
        """Results of the rows that made an ended session fire again: its contents after each of them."""
        accumulators = connected.contents(self.accumulators, Accumulators(self._bound, sparse=True), inputs, order)
        fires = connected.fires
        keys = self.index.keys(slots[connected.rows[fires]])
        starts, ends = connected.fired_starts, connected.fired_ends
        return Results(keys, starts, ends, accumulators.results(fires, keys))

    def _wait_for(self, connected: _Connected, slots: Ints, inputs: Sequence[Values], order: Ints) -> None:
        """Let the rows wait as sessions, with the times of those to which they belong."""
        rows, places, starts, ends = connected.sessions()
        if not len(rows):
            return
        numbers = np.arange(self._numbers, self._numbers + len(starts))
        self._numbers += len(starts)
        self.accumulators.add(numbers[places], [each.take(rows) for each in inputs], order[rows], self._numbers)
        of_session = np.empty(len(starts), np.int64)
        of_session[places] = slots[rows]
        self._wait(self._merged([Opened(of_session, starts, ends, numbers)]))

    # -- time

    def advance(self, watermark: int) -> Work:
        """Take a new watermark; yields the results of sessions that end, in the order of time."""
        if watermark <= self.watermark:
            return
        former, self.watermark, self.latest = self.watermark, watermark, max(self.latest, watermark)
        if self._first_end - 1 > watermark:
            return
        self._settle()
        lasts = self._opened.ends - 1
        ending = np.flatnonzero((lasts > former) & (lasts <= watermark))
        ending = ending[np.argsort(lasts[ending], kind="stable")]
        for start in range(0, len(ending), PIECE):
            yield self._results(self._opened.take(ending[start : start + PIECE]))
        over = lasts <= max(watermark - self._lateness, MIN_TIMESTAMP)
        if over.any():
            ended_keys = np.unique(self._opened.slots[over])
            self._save(ended_keys)
            self._opened = self._opened.take(np.flatnonzero(~over))
            self.index.release(ended_keys[~self._have_sessions(ended_keys)])
            self._tidy()
        self._first_end = int(self._opened.ends.min()) if len(self._opened.ends) else MAX_TIMESTAMP

    def _results(self, sessions: Opened) -> Results:
        keys = self.index.keys(sessions.slots)
        return Results(keys, sessions.starts, sessions.ends, self.accumulators.results(sessions.numbers, keys))

    # -- snapshots

    def rows(self) -> Sequence[WindowRows]:
        """The sessions of this moment, to be written."""
        self._settle()
        opened, accumulators = self._opened, self.accumulators

        def dumped(positions: Ints) -> pa.RecordBatch:
            sessions = opened.take(positions)
            keys = {f"key{position}": column for position, column in enumerate(self.index.keys(sessions.slots))}
            times = {START: pa.array(sessions.starts), END: pa.array(sessions.ends)}
            return pa.RecordBatch.from_pydict({**keys, **times, **accumulators.dump(sessions.numbers)})

        self._rows, self._rows_slots = WindowRows(len(opened.slots), dumped, self.watermark), opened.slots
        return [self._rows]

    def restore_rows(self, batch: pa.RecordBatch, watermark: int) -> None:
        """Take over sessions, and the watermark at which they were written.

        Watermarks of former subtasks differ by the clock, and with unaligned barriers. The lowest counts: sessions that
        had ended for their subtask were emitted and dropped, and are not among these; the others have still to end.
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
        """The position of the next row in the input of the operator."""
        return self.accumulators.rows_seen

    def close(self) -> None:
        """Drop all sessions. May be called again."""
        self.index, self.accumulators = self._make_index(), Accumulators(self._bound)
        self._opened, self._waiting = _NONE, []
        self._numbers = self._waiting_count = 0
        self._first_end = MAX_TIMESTAMP
