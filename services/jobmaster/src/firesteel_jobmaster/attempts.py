"""Which numbers of attempts a job has used, over all its JobMasters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from firesteel.ha.services import Leadership


@dataclass(frozen=True)
class JobAttempts:
    """What outlives a JobMaster.

    Attributes:
        first: no JobMaster before has used this number or a larger one.
        note: remembers for the next JobMaster that numbers below this one may have been used. May block; raises
            ``FencedError`` where another one leads.
        epoch: of this JobMaster; larger than those of all before.
    """

    first: int
    note: Callable[[int], None]
    epoch: int = 0


def attempts_of(leadership: Leadership, takeover: int) -> JobAttempts:
    """Those of a JobMaster that leads from now on; its first ones are noted before they can be used.

    Args:
        leadership: of the job.
        takeover: how many JobMasters of the job were lost, as far as the Dispatcher knows.

    Raises:
        FencedError: it leads no more.
    """
    first = max(leadership.attempts, takeover)
    leadership.note_attempts(first + 1)
    return JobAttempts(first, leadership.note_attempts, leadership.epoch)
