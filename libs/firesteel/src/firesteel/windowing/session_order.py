"""Finds a key's open sessions that a new one overlaps or touches: by binary search if there are many."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from typing import Any, Final

from firesteel.windowing.windows import TimeWindow

FEW: Final = 8
"""Number of a key's sessions up to which all are compared; no order is kept for them."""


class SessionOrder:
    """The open sessions of keys that have many, in the order of time.

    It is not part of the state: the order of a key is made from its open sessions when it is first needed.
    """

    def __init__(self) -> None:
        self._orders: dict[Any, list[TimeWindow]] = {}

    def touched(self, key: Any, sessions: Collection[TimeWindow], assigned: TimeWindow) -> list[TimeWindow]:
        """Sessions that overlap or touch an assigned one, in the order of time; open ones never touch each other."""
        if len(sessions) <= FEW:
            return sorted(session for session in sessions if session.intersects(assigned))
        order = self._orders.get(key)
        if order is None:
            order = self._orders[key] = sorted(sessions)
        first = bisect_left(order, assigned)
        if first and order[first - 1].intersects(assigned):
            first -= 1
        last = first
        while last < len(order) and order[last].start <= assigned.end:
            last += 1
        return order[first:last]

    def opened(self, key: Any, session: TimeWindow) -> None:
        """Called when a session has been opened, which must not touch another open one."""
        order = self._orders.get(key)
        if order is not None:
            order.insert(bisect_left(order, session), session)

    def closed(self, key: Any, session: TimeWindow) -> None:
        """Called when a session has been merged or is over."""
        order = self._orders.get(key)
        if order is None:
            return
        if len(order) <= FEW:
            del self._orders[key]
            return
        del order[bisect_left(order, session)]
