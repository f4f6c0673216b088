"""Flow control: windows of channels, in bytes and by the time that a reader needs for them.

Windows are small by themselves, and wider where whole batches of columns need it. What waits in front of a slow reader
is bounded by time as well, as Flink's buffer debloating does: 45,000 small records in front of a function that takes
12 ms for each are nine minutes for every barrier behind them.
"""

from __future__ import annotations

from typing import Final

from firesteel.core.clock import Clock

FIRST_BYTES: Final = 16
"""What may wait for a reader of which nothing is known: a record or two, as each may take it seconds."""
GROWTH: Final = 4
"""A limit grows by this factor at a time: one that is fast has a window of a mebibyte in eight turns."""
GROWTH_SECONDS: Final = 0.01
"""A reader that always finds something has worked for so long, at least, before its limit grows again."""
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

    Measured is the time for which the reader works: from when it takes something until it comes back. So a reader that
    finds nothing for a while, and then a flood, has the limit that it had. The limit shrinks with what was measured,
    the more so the longer that took. It grows in steps: the smaller messages are, the more of their bytes are headers.

    Args:
        clock: injected.
        target: seconds that records are in flight at most, about, at all ends together.
        ends: how many ends of the channel have such a limit; this one has its share.

    Attributes:
        bytes: the limit.
    """

    __slots__ = ("_clock", "_elapsed", "_grows_at", "_since", "_taken", "_target", "bytes", "ends")

    def __init__(self, clock: Clock, target: float, ends: int = 2) -> None:
        self._clock, self._target, self.ends = clock, target, ends
        self.bytes = float(FIRST_BYTES)
        self._since: float | None = None  # from when on the reader has been working on what it took last
        self._elapsed = self._taken = 0.0
        self._grows_at = GROWTH_SECONDS

    @property
    def most_together(self) -> float:
        """Bytes of small batches that are read together: a quarter of the time."""
        return self.bytes * self.ends / 4

    def rests(self) -> None:
        """The reader has worked off what it took."""
        if self._since is not None:
            self._elapsed += self._clock.monotonic() - self._since
            self._since = None

    def starved(self) -> None:
        """The reader wanted more, and found nothing: the limit may be the reason."""
        if self._since is not None:
            self.rests()
            self._grow()

    def took(self, size: int) -> None:
        """The reader took so many bytes; it has worked off those before."""
        now = self._clock.monotonic()
        if self._since is not None:
            self._elapsed += now - self._since
            if self._elapsed >= PERIOD_SECONDS:
                self._fit()
            elif self._elapsed >= self._grows_at:
                self._grow()
        self._since = now
        self._taken += size

    def _fit(self) -> None:
        limit = max(1.0, self._measured)
        if limit < self.bytes:
            self.bytes += min(1.0, self._elapsed / self._target) * (limit - self.bytes)
        else:
            self._grow()
        share = PERIOD_SECONDS / 2 / self._elapsed  # some of it counts on: a single quick record proves nothing
        self._elapsed, self._taken = self._elapsed * share, self._taken * share
        self._grows_at = self._elapsed + GROWTH_SECONDS

    def _grow(self) -> None:
        self.bytes = max(self.bytes, min(GROWTH * self.bytes, self._measured))
        self._grows_at = self._elapsed + GROWTH_SECONDS

    @property
    def _measured(self) -> float:
        return self._taken / self._elapsed * self._target / self.ends if self._elapsed > 0 else float("inf")
