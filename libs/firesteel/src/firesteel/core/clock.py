"""Time is injected: every timeout runs on a monotonic clock that tests can move by hand."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""

    def epoch_ms(self) -> int:
        """Wall clock, milliseconds since 1970-01-01 UTC; may go back.

        For display and timestamps, and for what users set by it: processing time, and time-to-live of state.
        """


class SystemClock:
    """Wall time and monotonic time of this machine."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        return time.monotonic()

    def epoch_ms(self) -> int:
        """Wall clock, milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000
