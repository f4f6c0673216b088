"""Decisions about thousands of tasks are made in slices, between which the event loop serves others.

Such a decision is a generator that yields where it may be interrupted. Anything may happen until its next slice, so
each slice looks again whether what it was going to do is still right.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from itertools import islice
from typing import TypeAlias, TypeVar

T = TypeVar("T")
LongWork: TypeAlias = Generator[None, None, None]

PLACED_AT_ONCE, SCHEDULED_AT_ONCE, RESTARTED_AT_ONCE, CANCELLED_AT_ONCE = 1000, 1000, 1000, 1000
"""Upper bounds on the slots, and on the tasks, of one slice, so that a large job cannot block the event loop."""
DEPLOYED_AT_ONCE = 200
"""Upper bound on the slots whose tasks are submitted in one slice: each slot is sent a deployment of its own."""


class Slices:
    """Long work that is under way, in the order in which it goes on."""

    def __init__(self) -> None:
        self._unfinished: deque[LongWork] = deque()

    def __bool__(self) -> bool:
        return bool(self._unfinished)

    def run(self, work: LongWork, urgent: bool = False) -> None:
        """Do the first slice now; the others come after all other work, or before it if they are urgent."""
        if _has_more(work):
            (self._unfinished.appendleft if urgent else self._unfinished.append)(work)

    def go_on(self) -> None:
        """Do the next slice of the work that stands first."""
        if self._unfinished:
            work = self._unfinished[0]  # it stays first meanwhile, so that urgent work which it begins comes before it
            if not _has_more(work):
                self._unfinished.remove(work)


def _has_more(work: LongWork) -> bool:
    """Do one slice; returns whether others follow."""
    try:
        next(work)
    except StopIteration:
        return False
    return True


def batches(items: Sequence[T], size: int) -> Generator[list[T], None, None]:
    """The items in lists of at most ``size``."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
