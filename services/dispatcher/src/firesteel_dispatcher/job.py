"""What the Dispatcher knows of one job."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from firesteel.core.backoff import pause_after
from firesteel.core.errors import FiresteelError, IllegalTransitionError
from firesteel.graph.job_events import EventType, JobEvents
from firesteel.rest import types as t
from firesteel.rest.views import job_overview

ENDED: Final = frozenset({"FINISHED", "CANCELED", "FAILED", "SUSPENDED"})
"""States of a job in which its JobMaster has nothing more to do."""
MAX_FORMER: Final = 16
"""Tokens of lost JobMasters that are remembered for each job."""
IN_A_ROW: Final = 600.0
"""Seconds between two losses of JobMasters of a job within which they may have the same cause."""
FIRST_DELAY: Final = 1.0
LONGEST_DELAY: Final = 60.0
"""Seconds between such a loss and the next JobMaster: the delay doubles from the first to the longest."""
LOG_INTERVAL: Final = 60.0
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
    """The job is stored; no JobMaster runs it yet."""
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
    """A moment on two clocks: monotonic seconds for deadlines, epoch milliseconds for display."""

    monotonic: float
    epoch_ms: int


@dataclass(frozen=True)
class Limits:
    """Bounds of what the Dispatcher keeps and waits for; times in seconds.

    Attributes:
        max_ended: ended jobs that are kept.
        expiration: age at which an ended job is forgotten.
        silence: time for which a JobMaster may be silent while the Dispatcher looks for it and its host answers.
    """

    max_ended: int = 2**31 - 1
    expiration: float = 3600.0
    silence: float = 50.0


@dataclass
class JobRecord:
    """One job, from its submission until it is forgotten.

    Attributes:
        id, name: of the job.
        fingerprint: of the graph.
        archive: how the job looked when it was submitted, and after its end how it ended; in between its JobMaster has
            the archive. None: the job has ended, and the archive is in the store.
        state: last reported state.
        timestamps: job state -> epoch ms of the last entry into it.
        phase: which process is in charge.
        jobmaster: address and token of the JobMaster.
        cancel_wanted: a user has cancelled the job.
        cancelled_by: who that was, and from which address.
        events: of the job, as its JobMaster had them last (``firesteel.graph.job_events``).
        being_started: a JobMaster was asked for, and the answer has not come yet.
        progress: what the job waits for, as users see it; empty = nothing.
        reason: the bare cause of the wait.
        logged_at: monotonic time of the last line of the log about the wait.
        is_unlisted: the leading host does not list the JobMaster, which is called once more at its last address.
        silent_until: monotonic time until which the JobMaster may be silent while the Dispatcher looks for it.
        cancel_by: monotonic time until which a JobMaster that is looked for may hear that the job is cancelled.
        client_timeout: seconds of silence of the client after which the job is cancelled; None = never.
        client_deadline: monotonic time at which the client counts as gone.
        takes_over: whether another JobMaster follows one that is lost.
        has_record: whether the store has what a JobMaster needs.
        takeovers: number of lost JobMasters.
        takeover_cause: cause of the last loss.
        lost_at: monotonic time of the last loss.
        lost_in_a_row: number of losses within ``IN_A_ROW`` of one another.
        former: tokens of lost JobMasters, whose reports are out of date.
        overview: the job's row in ``/jobs/overview``, once it has ended.
        ended_at: monotonic time of the end.
        stored: whether the end is safe.
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
    cancelled_by: str = ""
    events: Mapping[str, Any] = field(default_factory=dict, repr=False)
    being_started: bool = False
    progress: str = ""
    reason: str = ""
    logged_at: float = float("-inf")
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
    former: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_FORMER), repr=False)
    overview: t.JobRow | None = None
    ended_at: float = 0.0
    stored: bool = False

    @property
    def submitted_ms(self) -> int:
        """Epoch ms of the submission, which tells this run from others under the same job id; 0: the job has ended."""
        archive = {} if self.archive is None or self.ended else self.archive
        return int(archive.get("timestamps", {}).get("INITIALIZING", 0))

    @property
    def ended(self) -> bool:
        """Whether the job is over."""
        return self.phase is JobPhase.ENDED

    def is_former(self, token: str) -> bool:
        """Whether a token belongs to a JobMaster that was given up or replaced.

        A JobMaster whose answer to the start was lost never got into ``former``: its token is only known to differ from
        the leading JobMaster's.
        """
        leader_token = self.jobmaster[1] if self.phase is JobPhase.LED and self.jobmaster is not None else token
        return (bool(token) and token != leader_token) or token in self.former

    def move(self, to: JobPhase) -> None:
        """Enter a phase.

        Raises:
            IllegalTransitionError: the table has no such move.
        """
        if to not in MOVES[self.phase]:
            raise IllegalTransitionError(f"job {self.id}: no move {self.phase} -> {to}")
        self.phase = to

    def note(self, now: Moment, type_: EventType, text: str, by: str = "") -> None:
        """Take an event of a job that has no JobMaster which could."""
        events = JobEvents(lambda: now.epoch_ms, self.events)
        events.add(type_, text, by)
        self.events = events.plain()

    def lose_jobmaster(self, cause: str, now: Moment) -> float:
        """The JobMaster is lost, and another one is to follow; returns the seconds until then."""
        if self.jobmaster is not None:
            self.former.append(self.jobmaster[1])
        self.move(JobPhase.WAITING)
        self.jobmaster, self.being_started, self.is_unlisted = None, False, False
        self.takeovers, self.takeover_cause = self.takeovers + 1, cause
        self.state, self.progress = "INITIALIZING", f"its JobMaster was lost, and another one is started: {cause}"
        follows_closely = self.lost_in_a_row > 0 and now.monotonic - self.lost_at < IN_A_ROW
        self.lost_at, self.lost_in_a_row = now.monotonic, self.lost_in_a_row + 1 if follows_closely else 1
        return pause_after(self.lost_in_a_row - 1, FIRST_DELAY, LONGEST_DELAY)  # no delay after the first loss

    def end(self, archive: Mapping[str, Any], now: Moment) -> None:
        self.move(JobPhase.ENDED)
        self.archive, self.overview, self.ended_at = archive, job_overview(archive), now.monotonic
        self.events = {}  # the archive has them
        self.state, self.timestamps, self.progress = str(archive["state"]), dict(archive.get("timestamps", {})), ""
        self.client_deadline = None
