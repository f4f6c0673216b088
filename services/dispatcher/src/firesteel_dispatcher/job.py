"""What the Dispatcher knows of one job."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from firesteel.core.backoff import pause_after
from firesteel.core.errors import FiresteelError, IllegalTransitionError
from firesteel.rest import types as t
from firesteel.rest.views import job_overview

ENDED: Final = frozenset({"FINISHED", "CANCELED", "FAILED", "SUSPENDED"})
"""Job states that a JobMaster does not leave."""


KEPT_FORMER: Final = 16
IN_A_ROW: Final = 600.0
"""JobMasters of a job that are lost within so many seconds of one another may have a common cause."""
FIRST_DELAY: Final = 1.0
LONGEST_DELAY: Final = 60.0
"""Seconds between such losses and the next JobMaster, at most."""
TOLD_EVERY: Final = 60.0
"""Seconds between two lines of the log about a job that waits."""


class UnknownJobError(FiresteelError):
    """No job has this id, or it ended too long ago."""


class JobEndedError(FiresteelError):
    """The job has ended already."""


class JobConflictError(FiresteelError):
    """Another job has this id."""


class JobPhase(StrEnum):
    """Which process is in charge of a job."""

    WAITING = "WAITING"
    """It is stored; no JobMaster runs it yet."""
    RECOVERING = "RECOVERING"
    """A former Dispatcher accepted it, or its JobMaster is silent: whether a JobMaster runs it is not known."""
    LED = "LED"
    """A JobMaster runs it."""
    ENDED = "ENDED"


MOVES: Final[Mapping[JobPhase, frozenset[JobPhase]]] = {
    JobPhase.WAITING: frozenset({JobPhase.LED, JobPhase.ENDED}),
    JobPhase.RECOVERING: frozenset({JobPhase.WAITING, JobPhase.LED, JobPhase.ENDED}),
    JobPhase.LED: frozenset({JobPhase.RECOVERING, JobPhase.WAITING, JobPhase.ENDED}),
    JobPhase.ENDED: frozenset(),
}
"""Any other move is a bug."""


@dataclass(frozen=True)
class Moment:
    """Now: seconds of the monotonic clock for deadlines, epoch milliseconds for display."""

    monotonic: float
    epoch_ms: int


@dataclass(frozen=True)
class Limits:
    """How long and how much; times in seconds.

    Attributes:
        kept: so many ended jobs can still be asked for.
        expiration: and for so long.
        silence: so long a JobMaster whose host answers may be silent when it is looked for.
    """

    kept: int = 2**31 - 1
    expiration: float = 3600.0
    silence: float = 50.0


@dataclass
class JobRecord:
    """One job, from its submission until it is forgotten.

    Attributes:
        id, name: of the job.
        fingerprint: of the graph.
        archive: how it looked when it was submitted, and how it ended; in between the JobMaster knows. None = it
            ended, and the archive is in the store.
        state: the last one that was reported.
        timestamps: job state -> epoch ms of the last entry.
        phase: who cares for it.
        jobmaster: address and token.
        cancel_wanted: somebody cancelled it.
        being_started: a JobMaster was asked for, and the answer is not here yet.
        progress: what it waits for, for people; empty = nothing.
        reason: why it waits, without more.
        told_at: monotonic time at which the log was told so.
        is_unlisted: the host that leads does not know its JobMaster, which is called once more where it was last.
        silent_until: monotonic time until which its JobMaster may be silent while it is looked for.
        cancel_by: monotonic time until which a JobMaster that is looked for may hear that it was cancelled.
        client_timeout: seconds after which it ends with its silent client; None = it does not.
        client_deadline: monotonic time at which its client counts as gone.
        takes_over: another JobMaster follows one that was lost.
        has_record: what a JobMaster needs is stored.
        takeovers: how many were lost.
        takeover_cause: why the last of them was.
        lost_at: monotonic time of the last loss.
        lost_in_a_row: losses soon after one another.
        former: tokens of those that were lost: what they say is old.
        overview: its line in ``/jobs/overview``, once it has ended.
        ended_at: monotonic time.
        stored: its end is safe.
    """

    id: str
    name: str
    fingerprint: str
    archive: Mapping[str, Any] | None
    state: str = "INITIALIZING"
    timestamps: Mapping[str, int] = field(default_factory=dict)
    phase: JobPhase = JobPhase.WAITING
    jobmaster: tuple[str, str] | None = field(default=None, repr=False)
    cancel_wanted: bool = False
    being_started: bool = False
    progress: str = ""
    reason: str = ""
    told_at: float = float("-inf")
    is_unlisted: bool = False
    silent_until: float = 0.0
    cancel_by: float = 0.0
    client_timeout: float | None = None
    client_deadline: float | None = None
    takes_over: bool = False
    has_record: bool = True
    takeovers: int = 0
    takeover_cause: str = ""
    lost_at: float = 0.0
    lost_in_a_row: int = 0
    former: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_FORMER), repr=False)
    overview: t.JobRow | None = None
    ended_at: float = 0.0
    stored: bool = False

    @property
    def submitted_ms(self) -> int:
        """Epoch, by the clock of the Dispatcher that took it: tells its run from others under the same id. 0: ended."""
        archive = {} if self.archive is None or self.ended else self.archive
        return int(archive.get("timestamps", {}).get("INITIALIZING", 0))

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.phase is JobPhase.ENDED

    def is_former(self, token: str) -> bool:
        """Whether a token is that of a JobMaster that was given up, or that another one leads instead of.

        Of one that was started and whose answer was lost nothing is known but that it is not the one that leads.
        """
        other = bool(token) and self.phase is JobPhase.LED and self.jobmaster is not None and token != self.jobmaster[1]
        return other or token in self.former

    def move(self, to: JobPhase) -> None:
        """Enter a phase.

        Raises:
            IllegalTransitionError: the table has no such move.
        """
        if to not in MOVES[self.phase]:
            raise IllegalTransitionError(f"job {self.id}: no move {self.phase} -> {to}")
        self.phase = to

    def lose_jobmaster(self, cause: str, now: Moment) -> float:
        """Its JobMaster is lost, and another one is to follow; returns after how many seconds."""
        if self.jobmaster is not None:
            self.former.append(self.jobmaster[1])
        self.move(JobPhase.WAITING)
        self.jobmaster, self.being_started, self.is_unlisted = None, False, False
        self.takeovers, self.takeover_cause = self.takeovers + 1, cause
        self.state, self.progress = "INITIALIZING", f"its JobMaster was lost, and another one is started: {cause}"
        soon = self.lost_in_a_row > 0 and now.monotonic - self.lost_at < IN_A_ROW
        self.lost_at, self.lost_in_a_row = now.monotonic, self.lost_in_a_row + 1 if soon else 1
        return pause_after(self.lost_in_a_row - 1, FIRST_DELAY, LONGEST_DELAY)  # the first one is followed at once

    def end(self, archive: Mapping[str, Any], now: Moment) -> None:
        self.move(JobPhase.ENDED)
        self.archive, self.overview, self.ended_at = archive, job_overview(archive), now.monotonic
        self.state, self.timestamps, self.progress = str(archive["state"]), dict(archive.get("timestamps", {})), ""
        self.client_deadline = None
