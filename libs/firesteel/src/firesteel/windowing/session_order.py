"""Which of a key's open sessions a new one overlaps or touches: by binary search where there are many."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from typing import Any, Final

from firesteel.windowing.windows import TimeWindow

FEW: Final = 8
"""So many sessions of a key are looked at one by one."""


class SessionOrder:
    """The open sessions of keys with many of them, in the order of time. It is made of what is open, and no state."""

    def __init__(self) -> None:
        self._orders: dict[Any, list[TimeWindow]] = {}

    def touched(self, key: Any, sessions: Collection[TimeWindow], new: TimeWindow) -> list[TimeWindow]:
        """Those that overlap or touch a new one, in the order of time; open ones never touch each other."""
        if len(sessions) <= FEW:
            return sorted(session for session in sessions if session.intersects(new))
        order = self._orders.get(key)
        if order is None:
            order = self._orders[key] = sorted(sessions)
        first = bisect_left(order, new)
        if first and order[first - 1].intersects(new):
            first -= 1
        last = first
        while last < len(order) and order[last].start <= new.end:
            last += 1
        return order[first:last]

    def opened(self, key: Any, session: TimeWindow) -> None:
        """A session is there now; it touches no other one."""
        order = self._orders.get(key)
        if order is not None:
            order.insert(bisect_left(order, session), session)

    def closed(self, key: Any, session: TimeWindow) -> None:
        """A session is there no more."""
        order = self._orders.get(key)
        if order is None:
            return
        if len(order) <= FEW:
            del self._orders[key]  # as long as there are few again, nothing is kept for the key
            return
        del order[bisect_left(order, session)]
