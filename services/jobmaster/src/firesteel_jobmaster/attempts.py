"""Which numbers of attempts a job has used, over all its JobMasters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class JobAttempts:
    """What outlives a JobMaster.

    Attributes:
        first: no JobMaster before has used this number or a larger one.
        note: remembers for the next JobMaster that numbers below this one may have been used. May block; raises
            ``FencedError`` where another one leads.
    """

    first: int
    note: Callable[[int], None]
