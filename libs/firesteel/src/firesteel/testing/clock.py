"""A clock that tests move by hand."""

from __future__ import annotations


class ManualClock:
    """Stands still until ``advance`` is called; a ``firesteel.core.clock.Clock``.

    Args:
        epoch_ms: wall clock at the start, milliseconds.
    """

    def __init__(self, epoch_ms: int = 1_700_000_000_000) -> None:
        self._seconds = 0.0
        self._start_ms = epoch_ms

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._seconds

    def epoch_ms(self) -> int:
        """Wall clock, milliseconds."""
        return self._start_ms + round(self._seconds * 1000)

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            ValueError: it would go back.
        """
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds} s")
        self._seconds += seconds
