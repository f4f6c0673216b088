"""Sessions that are evaluated at their end: the common case of windows that merge, and a fast one.

The open sessions of a key are a list in the order of time; they never touch each other. A record that comes in order
extends the last one, and one that does not finds its place by binary search. A key has one timer, at the earliest time
at which something is to be done for it: it stays where it is when sessions grow, and looks further when it fires.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, NamedTuple

from firesteel.windowing.contents import WindowContents
from firesteel.windowing.windows import MAX_TIMESTAMP

__all__ = ["END", "HELD", "NEVER", "START", "Open", "Sessions", "SessionsDue"]

START, END, HELD = range(3)
"""Positions in a session, which is a list: its start (ms), the first ms behind it, and its contents."""
Open = list[Any]
"""List for each key: the time of its timer, then its open sessions in the order of time."""
NEVER: Final = MAX_TIMESTAMP + 1
"""The time of the timer of a key that has none."""
_start_of: Final = itemgetter(START)
_end_of: Final = itemgetter(END)


class SessionsDue(NamedTuple):
    """Work that is due when the timer of a key fires.

    Attributes:
        fires: the session to be evaluated, or None.
        ends: the session that is over, or None; the same one if no lateness is allowed.
    """

    fires: Any
    ends: Any


class Sessions:
    """Puts records into sessions and decides which sessions are due.

    Args:
        contents: the way in which sessions keep their records.
        lateness: how long sessions are kept behind their end, ms.
        arm: sets a timer for the current key at an event time (epoch ms).
    """

    def __init__(self, contents: WindowContents, lateness: int, arm: Callable[[int], None]) -> None:
        self._contents, self._lateness, self._arm = contents, lateness, arm

    def add(self, key_sessions: Open, start: int, end: int, now: int, value: Any, timestamp: int | None) -> Any:
        """Put a record into a session; the caller has to evaluate the session at once if it has ended already.

        Args:
            key_sessions: the sessions of the key; changed.
            start: the start of a session of the record alone, epoch ms.
            end: the first ms behind that session.
            now: the watermark; sessions are over when it has passed their end by the lateness.
            value: the record.
            timestamp: the timestamp of the record.

        Returns:
            The session that the record is in now; None if the record came too late.
        """
        contents = self._contents
        # Sessions [first:last] overlap or touch the record's own one, and become one with it.
        first = bisect_left(key_sessions, start, 1, key=_start_of)
        if first > 1 and key_sessions[first - 1][END] >= start:
            first -= 1
        behind = first
        while behind < len(key_sessions) and key_sessions[behind][START] <= end:
            behind += 1
        if behind == first:
            if end - 1 + self._lateness <= now:
                return None
            session = [start, end, contents.first(value, timestamp)]
        else:
            content = key_sessions[first][HELD]
            for session in key_sessions[first + 1 : behind]:
                content = contents.merge(content, session[HELD])
            session = [
                min(start, key_sessions[first][START]),
                max(end, key_sessions[behind - 1][END]),
                contents.add(content, value, timestamp),
            ]
        key_sessions[first:behind] = [session]
        ends = session[END] - 1
        self._set_timer(key_sessions, ends if ends > now else self._cleanup_time(ends))
        return session

    def due(self, key_sessions: Open, time: int) -> SessionsDue:
        """Return the work that is due at the time of the key's timer; the caller does it, then calls ``done``."""
        return SessionsDue(self._ending(key_sessions, time), self._ending(key_sessions, time - self._lateness))

    def done(self, key_sessions: Open, due: SessionsDue, time: int) -> bool:
        """Forget the session that is over and set the next timer; returns whether the key still has sessions."""
        if due.ends is not None:
            del key_sessions[bisect_left(key_sessions, due.ends[START], 1, key=_start_of)]
        while len(key_sessions) > 1 and self._cleanup_time(key_sessions[1][END] - 1) < time:
            # An evaluated session of a restored job whose allowed lateness was longer than it is now.
            del key_sessions[1]
        if len(key_sessions) == 1:
            return False
        key_sessions[0] = NEVER
        self._set_timer(key_sessions, self._cleanup_time(key_sessions[1][END] - 1))
        fires = bisect_left(key_sessions, time + 2, 1, key=_end_of)
        if fires < len(key_sessions):
            self._set_timer(key_sessions, key_sessions[fires][END] - 1)
        return True

    def _cleanup_time(self, last: int) -> int:
        return min(last + self._lateness, NEVER)

    def _set_timer(self, key_sessions: Open, time: int) -> None:
        if time < key_sessions[0]:
            key_sessions[0] = time
            self._arm(time)

    @staticmethod
    def _ending(key_sessions: Open, time: int) -> Any:
        index = bisect_left(key_sessions, time + 1, 1, key=_end_of)
        session = key_sessions[index] if index < len(key_sessions) else None
        return session if session is not None and session[END] == time + 1 else None
