"""Time is injected: every timeout runs on a monotonic clock that tests can move by hand."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""

    def epoch_ms(self) -> int:
        """Wall clock, milliseconds since 1970-01-01 UTC; for display and for event timestamps only."""


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        return time.monotonic()

    def epoch_ms(self) -> int:
        """Wall clock, milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000
