"""Pauses between tries that double with each failure, up to a longest one."""

from __future__ import annotations

from collections.abc import Iterator

_MOST_DOUBLINGS = 60  # far beyond any longest pause; 2.0 to the power of 1024 is no float any more


def pause_after(failures: int, first: float, longest: float) -> float:
    """How long to wait before the next try, in the unit of `first` and `longest`.

    Args:
        failures: how many tries in a row have failed; none: there is nothing to wait for.
        first: the pause after the first failure.
        longest: the pause never grows beyond it.
    """
    return 0.0 if failures <= 0 else min(longest, first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))


def pauses(first: float, longest: float) -> Iterator[float]:
    """The pauses after the first failure, the second one, and so on, without end."""
    pause = min(first, longest)
    while True:
        yield pause
        pause = min(2 * pause, longest)
