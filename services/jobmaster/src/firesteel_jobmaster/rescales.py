"""The history of a job's rescales in reactive mode, in Flink's words. Pure.

A rescale is each time that a job is laid out for its slots: at its begin, when it gets more of them, after a failure.
It begins with its cause, and ends when all tasks run again, or when something else comes of it.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from firesteel.common.job_status import JobStatus
from firesteel.core.clock import Clock
from firesteel_jobmaster.reactive import Scale


class RescaleCause(StrEnum):
    """Why a job is laid out for its slots."""

    INITIAL_SCHEDULE = "INITIAL_SCHEDULE"
    NEW_RESOURCE_AVAILABLE = "NEW_RESOURCE_AVAILABLE"
    RECOVERABLE_FAILOVER = "RECOVERABLE_FAILOVER"


class RescaleOutcome(StrEnum):
    """How a rescale has ended."""

    SUCCEEDED = "SUCCEEDED"
    NO_CHANGE = "NO_RESOURCES_OR_PARALLELISMS_CHANGE"
    JOB_FINISHED = "JOB_FINISHED"
    JOB_FAILED = "JOB_FAILED"
    JOB_CANCELED = "JOB_CANCELED"
    JOB_FAILOVER_RESTARTING = "JOB_FAILOVER_RESTARTING"


class RescalePhase(StrEnum):
    """What the JobMaster does meanwhile; states of Flink's scheduler."""

    WAITING = "WaitingForResources"
    DEPLOYING = "CreatingExecutionGraph"
    EXECUTING = "Executing"
    RESTARTING = "Restarting"


COMPLETED, IGNORED = "COMPLETED", "IGNORED"
_ENDS: Final = {
    JobStatus.FAILING: RescaleOutcome.JOB_FAILED,
    JobStatus.FAILED: RescaleOutcome.JOB_FAILED,
    JobStatus.CANCELLING: RescaleOutcome.JOB_CANCELED,
    JobStatus.CANCELED: RescaleOutcome.JOB_CANCELED,
    JobStatus.FINISHED: RescaleOutcome.JOB_FINISHED,
}


@dataclass
class _Rescale:
    """One rescale; times are epoch milliseconds."""

    id: str
    attempt: int
    cause: RescaleCause
    start: int
    parallelism_before: Mapping[str, int]
    parallelism_after: Mapping[str, int] = field(default_factory=dict)
    reason: RescaleOutcome | None = None
    end: int | None = None
    phases: list[list[Any]] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "attempt": self.attempt,
            "cause": self.cause.value,
            "reason": self.reason.value if self.reason is not None else None,
            "state": None if self.reason is None else COMPLETED if self.reason is RescaleOutcome.SUCCEEDED else IGNORED,
            "start": self.start,
            "end": self.end,
            "before": dict(self.parallelism_before),
            "after": dict(self.parallelism_after),
            "phases": [list(phase) for phase in self.phases],
        }


class RescaleHistory:
    """The rescales of one job: the one under way, and the latest that have ended.

    Args:
        size: how many ended rescales are kept, the latest of each kind in any case; 0: none.
        scale: of the job.
        clock: tells the time.
    """

    def __init__(self, size: int, scale: Scale, clock: Clock) -> None:
        self._size, self._scale, self._clock = size, scale, clock
        self._ended: deque[_Rescale] = deque(maxlen=size)
        self._latest: dict[str, _Rescale] = {}
        self._counts: Counter[str] = Counter()
        self._open: _Rescale | None = None
        self._begun = 0
        self._parallelism: Mapping[str, int] = {}

    @property
    def cause(self) -> RescaleCause | None:
        """Cause of the rescale under way; None: there is none."""
        return self._open.cause if self._open is not None else None

    def begin(self, cause: RescaleCause, phase: RescalePhase, error: str = "") -> None:
        """Begin a rescale; one that is under way ends without effect."""
        if self._open is not None:
            self.end(RescaleOutcome.JOB_FAILOVER_RESTARTING)
        self._begun += 1
        now = self._clock.epoch_ms()
        rescale_id = hashlib.sha256(f"{self._scale.job_id} {self._begun} {now}".encode()).hexdigest()[:32]
        self._open = _Rescale(rescale_id, self._begun, cause, now, self._parallelism)
        self.enter(phase, error)

    def enter(self, phase: RescalePhase, error: str = "") -> None:
        """The rescale under way enters a phase."""
        if self._open is not None and not (self._open.phases and self._open.phases[-1][0] == phase.value):
            now = self._clock.epoch_ms()
            self._leave(now)
            self._open.phases.append([phase.value, now, None, error or None])

    def laid_out(self, parallelism: Mapping[str, int]) -> None:
        """The tasks are about to be deployed, with this parallelism of each vertex."""
        if self._open is not None:
            self._open.parallelism_after = dict(parallelism)
            self.enter(RescalePhase.DEPLOYING)

    def all_run(self) -> None:
        """All tasks run: a rescale whose tasks were deployed has succeeded."""
        if self._open is not None and self._open.parallelism_after:
            self._parallelism = self._open.parallelism_after
            self.end(RescaleOutcome.SUCCEEDED)

    def is_as_before(self) -> None:
        """The new slots are gone again that the rescale under way was to use."""
        rescale = self._open
        if (
            rescale is not None
            and rescale.cause is RescaleCause.NEW_RESOURCE_AVAILABLE
            and rescale.phases[-1][0] == RescalePhase.EXECUTING.value
        ):
            self.end(RescaleOutcome.NO_CHANGE)

    def job_moved(self, to: JobStatus) -> None:
        """The job enters a state; a rescale ends where the job does."""
        if to in _ENDS:
            self.end(_ENDS[to])

    def end(self, reason: RescaleOutcome) -> None:
        """End the rescale under way, if there is one."""
        rescale, self._open = self._open, None
        if rescale is None:
            return
        rescale.reason, rescale.end = reason, self._clock.epoch_ms()
        if rescale.phases[-1][2] is None:
            rescale.phases[-1][2] = rescale.end
        state = COMPLETED if reason is RescaleOutcome.SUCCEEDED else IGNORED
        self._counts[state] += 1
        if self._size:
            self._ended.append(rescale)
            self._latest[state] = rescale

    def _leave(self, now: int) -> None:
        if self._open is not None and self._open.phases:
            self._open.phases[-1][2] = now

    def plain(self) -> dict[str, Any]:
        """The history as JSON-able data for an archive, which has names and limits of vertices elsewhere."""
        return {
            "max": self._size,
            "counts": {
                "ignored": self._counts[IGNORED],
                "inProgress": int(self._open is not None),
                "completed": self._counts[COMPLETED],
                "failed": 0,
            },
            "latest": {state: rescale.plain() for state, rescale in self._latest.items()},
            "history": [
                rescale.plain() for rescale in ([self._open] if self._open else []) + list(reversed(self._ended))
            ],
            "least": self._scale.parallelism(self._scale.least),
            "groups": dict(self._scale.groups),
        }
