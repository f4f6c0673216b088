"""A clock that stands still until a test moves it."""

from __future__ import annotations


class ManualClock:
    """A ``firesteel.core.clock.Clock`` that stands still until ``advance`` is called.

    Args:
        epoch_ms: wall-clock time at the start, in milliseconds.

    Examples:
        ```python
        from firesteel.testing import ManualClock

        clock = ManualClock(epoch_ms=1_000)
        clock.advance(2.5)
        print(clock.epoch_ms())
        ```

        ```text
        3500
        ```
    """

    def __init__(self, epoch_ms: int = 1_700_000_000_000) -> None:
        self._seconds = 0.0
        self._start_ms = epoch_ms

    def monotonic(self) -> float:
        """Return the seconds since the clock was made."""
        return self._seconds

    def epoch_ms(self) -> int:
        """Return the wall-clock time in epoch milliseconds."""
        return self._start_ms + round(self._seconds * 1000)

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            ValueError: ``seconds`` is negative.
        """
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds} s")
        self._seconds += seconds
