"""Flow control: how many bytes may wait in a channel, by its window and by the time that its reader needs for them.

Windows are small, and wider only for channels that carry batches of columns. In front of a slow reader, time limits
what may wait, as in Flink's buffer debloating (``BufferDebloater``): 45,000 small records fit into a window, and in
front of a function that takes 12 ms for each they delay every barrier behind them by nine minutes.
"""

from __future__ import annotations

from typing import Final

from firesteel.core.clock import Clock

FIRST_BYTES: Final = 16
"""First limit, in bytes, while the reader's speed is unknown: a record or two, as each may take it seconds."""
GROWTH: Final = 4
"""Factor by which a limit grows at a time: a fast reader reaches a window of 1 MiB (16 * 4**8) in eight steps."""
GROWTH_SECONDS: Final = 0.01
"""Shortest working time between two growths of the limit of a reader whose inbox is never empty."""
PERIOD_SECONDS: Final = 0.2
"""Shortest time over which a rate is measured: ``taskmanager.network.memory.buffer-debloat.period``."""

MESSAGES_IN_FLIGHT: Final = 3
"""Messages of columns for which a window has room, so that neither end waits for the other."""


class WideWindows:
    """The budget of a slot for bytes in flight beyond the window that each channel has anyway.

    Args:
        total: bytes of the budget.

    Attributes:
        available: bytes that no channel uses.
    """

    def __init__(self, total: int) -> None:
        self.available = total

    def widen(self, window: int, message: int) -> int:
        """The window of a channel that carries messages of this size: wider, as far as the budget allows."""
        extra = min(max(0, MESSAGES_IN_FLIGHT * message - window), self.available)
        self.available -= extra
        return window + extra

    def give_back(self, extra: int) -> None:
        """Return the bytes by which a closed channel's window was wider."""
        self.available += extra


class TimedLimit:
    """The bytes that may wait for a reader at one end of a channel: as many as it works off in a given time.

    Only the time for which the reader works is measured: from when it takes a batch until it comes back for the next.
    So a reader that waits for a flood keeps the limit that it had. The limit follows a measurement downwards, the
    faster the longer that measurement took. It grows only in steps, because the rate of small messages is too low: the
    smaller messages are, the more of their bytes are headers.

    Args:
        clock: measures the reader.
        target: seconds for which records should be in flight at most, over all ends together.
        ends: number of ends of the channel that have such a limit; this one has its share of the target.

    Attributes:
        bytes: the limit.
    """

    __slots__ = ("_bytes_read", "_clock", "_elapsed", "_grows_at", "_since", "_target", "bytes", "ends")

    def __init__(self, clock: Clock, target: float, ends: int = 2) -> None:
        self._clock, self._target, self.ends = clock, target, ends
        self.bytes = float(FIRST_BYTES)
        self._since: float | None = None  # when the reader took the batch on which it works now
        self._elapsed = self._bytes_read = 0.0  # working time and bytes of the measurement under way
        self._grows_at = GROWTH_SECONDS  # working time from which the limit may grow again

    @property
    def most_together(self) -> float:
        """Most bytes of small batches that are merged: the reader's work of a quarter of the target."""
        return self.bytes * self.ends / 4

    def rests(self) -> None:
        """Note that the reader has worked off what it took, and does something else now."""
        if self._since is not None:
            self._elapsed += self._clock.monotonic() - self._since
            self._since = None

    def starved(self) -> None:
        """Let the limit grow, as the reader wanted more and found nothing, for which the limit may be the reason."""
        if self._since is not None:
            self.rests()
            self._grow()

    def took(self, size: int) -> None:
        """Note that the reader takes this many bytes, and so has worked off those before."""
        now = self._clock.monotonic()
        if self._since is not None:
            self._elapsed += now - self._since
            if self._elapsed >= PERIOD_SECONDS:
                self._fit()
            elif self._elapsed >= self._grows_at:
                self._grow()
        self._since = now
        self._bytes_read += size

    def _fit(self) -> None:
        limit = max(1.0, self._measured)
        if limit < self.bytes:
            self.bytes += min(1.0, self._elapsed / self._target) * (limit - self.bytes)
        else:
            self._grow()
        # Half a period of this measurement counts on in the next: a single quick record proves nothing.
        share = PERIOD_SECONDS / 2 / self._elapsed
        self._elapsed, self._bytes_read = self._elapsed * share, self._bytes_read * share
        self._grows_at = self._elapsed + GROWTH_SECONDS

    def _grow(self) -> None:
        self.bytes = max(self.bytes, min(GROWTH * self.bytes, self._measured))
        self._grows_at = self._elapsed + GROWTH_SECONDS

    @property
    def _measured(self) -> float:
        """The limit at the measured rate: the bytes that the reader works off in this end's share of the target."""
        return self._bytes_read / self._elapsed * self._target / self.ends if self._elapsed > 0 else float("inf")
