"""What outlives the JobMasters of a job: the numbers of attempts that they have used, and how the job ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from firesteel.ha.retrieval import Attempts
from firesteel.ha.services import Leadership


@dataclass(frozen=True)
class JobAttempts:
    """What outlives a JobMaster.

    Attributes:
        first: no JobMaster before has used this number or a larger one.
        note: remembers for the next JobMaster what may run. May block; raises ``FencedError`` where another one leads.
        epoch: of this JobMaster; larger than those of all before.
        former_taskmanagers: where tasks of the JobMasters before may run; None: not known.
        record_end: writes the archive of the job that has ended for whoever would start another JobMaster. As ``note``.
            None: no record outlives this process.
    """

    first: int
    note: Callable[[Attempts], None]
    epoch: int = 0
    former_taskmanagers: tuple[str, ...] | None = ()
    record_end: Callable[[Mapping[str, Any]], None] | None = None


def attempts_of(
    leadership: Leadership, takeover: int, record_end: Callable[[Mapping[str, Any]], None] | None = None
) -> JobAttempts:
    """Those of a JobMaster that leads from now on; its first ones are noted before they can be used.

    Args:
        leadership: of the job.
        takeover: how many JobMasters of the job were lost, as far as the Dispatcher knows.
        record_end: see ``JobAttempts``.

    Raises:
        FencedError: it leads no more.
    """
    before = leadership.attempts
    first = max(before.first_unused, takeover)
    leadership.note_attempts(replace(before, first_unused=first + 1))
    return JobAttempts(first, leadership.note_attempts, leadership.epoch, before.taskmanagers, record_end)
