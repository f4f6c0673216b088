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
"""What a session is: a list of its start, its end, and what it holds."""
Open = list[Any]
"""Of a key: the time of its timer, then its sessions in the order of time."""
NEVER: Final = MAX_TIMESTAMP + 1
"""No timer is set."""
_start_of: Final = itemgetter(START)
_end_of: Final = itemgetter(END)


class SessionsDue(NamedTuple):
    """What a timer of a key means.

    Attributes:
        fires: a session to be evaluated, or None.
        ends: one that is over, or None; often the same.
    """

    fires: Any
    ends: Any


class Sessions:
    """Brings records into sessions.

    Args:
        contents: what sessions hold.
        lateness: how long they are kept behind their end, ms.
        arm: sets a timer for the current key.
    """

    def __init__(self, contents: WindowContents, lateness: int, arm: Callable[[int], None]) -> None:
        self._contents, self._lateness, self._arm = contents, lateness, arm

    def add(self, key_sessions: Open, start: int, end: int, now: int, value: Any, timestamp: int | None) -> Any:
        """Put a record into a session; one that has ended already is to be evaluated.

        Args:
            key_sessions: of the key; changed.
            start: of a session of the record alone, ms.
            end: of the same.
            now: the watermark; sessions are over when it has passed their end by the lateness.
            value: the record.
            timestamp: of the record.

        Returns:
            The session, or None: the record came too late.
        """
        contents = self._contents
        first = bisect_left(key_sessions, start, 1, key=_start_of)
        if first > 1 and key_sessions[first - 1][END] >= start:
            first -= 1
        last = first
        while last < len(key_sessions) and key_sessions[last][START] <= end:
            last += 1
        if last == first:
            if end - 1 + self._lateness <= now:
                return None
            session = [start, end, contents.first(value, timestamp)]
        else:
            held = key_sessions[first][HELD]
            for other in key_sessions[first + 1 : last]:
                held = contents.merge(held, other[HELD])
            session = [
                min(start, key_sessions[first][START]),
                max(end, key_sessions[last - 1][END]),
                contents.add(held, value, timestamp),
            ]
        key_sessions[first:last] = [session]
        ends = session[END] - 1
        self._set_timer(key_sessions, ends if ends > now else self._cleanup_time(ends))
        return session

    def due(self, key_sessions: Open, time: int) -> SessionsDue:
        """What is to be done at the time of the key's timer. Call ``done`` behind it."""
        return SessionsDue(self._ending(key_sessions, time), self._ending(key_sessions, time - self._lateness))

    def done(self, key_sessions: Open, due: SessionsDue, time: int) -> bool:
        """Forget what is over and set the next timer; whether the key has sessions still."""
        if due.ends is not None:
            del key_sessions[bisect_left(key_sessions, due.ends[START], 1, key=_start_of)]
        while len(key_sessions) > 1 and self._cleanup_time(key_sessions[1][END] - 1) < time:
            del key_sessions[1]  # evaluated, and kept for longer before the job was started again
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
        found = key_sessions[index] if index < len(key_sessions) else None
        return found if found is not None and found[END] == time + 1 else None
