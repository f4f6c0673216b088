"""Flow control: windows of channels, in bytes and by the time that a reader needs for them.

Windows are small by themselves, and wider where whole batches of columns need it. What waits in front of a slow reader
is bounded by time as well, as Flink's buffer debloating does: 45,000 small records in front of a function that takes
12 ms for each are nine minutes for every barrier behind them.
"""

from __future__ import annotations

from typing import Final

from firesteel.core.clock import Clock

LEAST_BYTES: Final = 256
"""Flink's smallest size of a debloated buffer (``taskmanager.memory.min-segment-size``)."""
FIRST_BYTES: Final = 512
"""What may wait for a reader of which nothing is known; one that is fast has doubled it to a window in a few turns."""
PERIOD_SECONDS: Final = 0.2
"""A rate is measured over so much time at least: ``taskmanager.network.memory.buffer-debloat.period``."""

MESSAGES_IN_FLIGHT: Final = 3
"""A window has room for so many messages of columns, so that neither end waits for the other."""


class WideWindows:
    """What all channels of a slot together may have in flight beyond the window that each of them has anyway.

    Args:
        total: bytes.

    Attributes:
        left: bytes that no channel has taken.
    """

    def __init__(self, total: int) -> None:
        self.left = total

    def widen(self, window: int, message: int) -> int:
        """A window for messages of this size: as it is, or wider as far as there are bytes left."""
        more = min(max(0, MESSAGES_IN_FLIGHT * message - window), self.left)
        self.left -= more
        return window + more

    def give_back(self, extra: int) -> None:
        """A channel was closed."""
        self.left += extra


class TimedLimit:
    """How many bytes may wait for a reader at one end of a channel: what it takes in a given time.

    Time counts while there is something to read. It shrinks with what was measured, the more so the longer that took;
    it grows as soon as the reader finds nothing to read, as the limit may be the reason.

    Args:
        clock: injected.
        target: seconds that records are in flight at most, about, at both ends together.

    Attributes:
        bytes: the limit.
    """

    __slots__ = ("_clock", "_elapsed", "_since", "_taken", "_target", "bytes")

    def __init__(self, clock: Clock, target: float) -> None:
        self._clock, self._target = clock, target
        self.bytes = float(FIRST_BYTES)
        self._since: float | None = None  # from when on something has been there to read
        self._elapsed, self._taken = 0.0, 0

    def readable(self) -> None:
        """There is something to read."""
        if self._since is None:
            self._since = self._clock.monotonic()

    def starved(self) -> None:
        """The reader wanted more, and found nothing."""
        if self._since is not None:
            self._elapsed += self._clock.monotonic() - self._since
            self._since = None
            self.bytes = self.bytes * 2 if self.bytes < _LARGE else float("inf")

    def took(self, size: int) -> None:
        """The reader took so many bytes; it has worked off those before."""
        now = self._clock.monotonic()
        since = now if self._since is None else self._since
        elapsed = self._elapsed + now - since
        if elapsed >= PERIOD_SECONDS:
            limit = max(float(LEAST_BYTES), self._taken / elapsed * self._target / 2)
            weight = min(1.0, elapsed / self._target)
            self.bytes = (
                limit if limit >= self.bytes or self.bytes >= _LARGE else self.bytes + weight * (limit - self.bytes)
            )
            self._elapsed, self._taken, self._since = 0.0, 0, now
        self._taken += size


_LARGE: Final = float(1 << 30)
