"""Logs refused peers: few lines for each, however often it comes back, and few lines in any span of time."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

from firesteel.core.clock import Clock, SystemClock

KEPT_PEERS: Final = 1024
MOST_LINES: Final = 20
WINDOW_SECONDS: Final = 10.0


class RefusalLog:
    """Logs the first refusal of a peer for a kind of reason, then only at 10, 100, 1000, ... refusals.

    However many peers there are, there are at most ``MOST_LINES`` lines in ``WINDOW_SECONDS``; the next line after that
    says how many were left out.

    Args:
        logger: gets the lines, as warnings.
        door: what was knocked at, such as ``the dispatcher``.
        clock: of the windows.
    """

    def __init__(self, logger: logging.Logger, door: str, clock: Clock | None = None) -> None:
        self._logger, self._door, self._clock = logger, door, clock or SystemClock()
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._window_end = float("-inf")
        self._lines = self._suppressed = 0

    def refused(self, peer: str, reason: str, kind: str = "", *, now: float | None = None) -> None:
        """Note a refusal.

        Args:
            peer: host of the peer, or a name for it, without a port that changes with every connection.
            reason: for people; may differ from one refusal to the next.
            kind: refusals of one kind are counted together; by default the reason.
            now: monotonic seconds, in place of the clock's.
        """
        key = (peer, kind or reason)
        count = self._counts.pop(key, 0) + 1
        self._counts[key] = count
        if len(self._counts) > KEPT_PEERS:
            self._counts.popitem(last=False)
        if count == 1:
            self._line(f"{self._door} refused {peer}: {reason}", now)
        elif count >= 10 and str(count).strip("0") == "1":
            self._line(f"{self._door} refused {peer} {count} times so far: {reason}", now)

    def _line(self, text: str, now: float | None) -> None:
        now = self._clock.monotonic() if now is None else now
        if now >= self._window_end:
            self._window_end, self._lines = now + WINDOW_SECONDS, 0
        if self._lines >= MOST_LINES:
            self._suppressed += 1
            return
        self._lines += 1
        if self._suppressed:
            text += f" ({self._suppressed} refusals of others before it were not logged)"
            self._suppressed = 0
        self._logger.warning("%s", text)

    def count(self, peer: str, kind: str) -> int:
        """How often a peer was refused for a kind of reason."""
        return self._counts.get((peer, kind), 0)
