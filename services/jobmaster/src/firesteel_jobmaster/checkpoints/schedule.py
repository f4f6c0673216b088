"""When the next checkpoint is due, and what for."""

from __future__ import annotations

from typing import Final

from firesteel_jobmaster.checkpoints.pending import CheckpointCause, CheckpointRequest
from firesteel_jobmaster.checkpoints.requests import CheckpointRequests
from firesteel_jobmaster.checkpoints.settings import CheckpointSettings

RETRY_SECONDS: Final = 1.0
"""Seconds until a final checkpoint that failed is tried again, at most."""
SLACK: Final = 0.01
"""Seconds by which a timer may be early, at most. Less than an interval: a checkpoint that failed must not be due at
once."""


class Schedule:
    """Orders checkpoints: users' requests come first, then the one at the end of the input, then periodic ones.

    Only periodic checkpoints keep ``min-pause``. Times are monotonic seconds.

    Args:
        settings: of the job's checkpoints.
    """

    def __init__(self, settings: CheckpointSettings) -> None:
        self.requests = CheckpointRequests()
        self._interval, self._min_pause = settings.interval, settings.min_pause
        self._slack = min(SLACK, settings.interval / 2) if settings.interval > 0 else SLACK
        self._due = 0.0
        self._last_end = float("-inf")
        self._final_due: float | None = None
        self._final_done = False

    def begin(self, now: float) -> None:
        self._due = now + self._interval

    def interrupt(self) -> None:
        """Tasks have failed: their next attempts come to the end of their data, too, and need a last checkpoint."""
        self._final_due, self._final_done = None, False

    def want_final(self, now: float) -> None:
        """All data have ended."""
        if self._final_due is None and not self._final_done:
            self._final_due = now

    def begun(self, request: CheckpointRequest, now: float) -> None:
        if request.cause is CheckpointCause.PERIODIC:
            self._due = now + self._interval
        elif request.cause is CheckpointCause.FINAL:
            self._final_due = None

    def ended(self, now: float) -> None:
        """A checkpoint is complete or given up."""
        self._last_end = now

    def completed(self, at_end: bool) -> None:
        """A checkpoint is complete; ``at_end``: all tasks run, and no record follows its barrier."""
        if at_end:
            self._final_done, self._final_due = True, None

    def failed(self, request: CheckpointRequest, now: float) -> None:
        """A checkpoint was given up; the one at the end of the input is tried again, as the job can't end without."""
        if request.cause is CheckpointCause.FINAL:
            self._final_due = now + min(self._interval or RETRY_SECONDS, RETRY_SECONDS)

    def next(self, now: float) -> CheckpointRequest | float | None:
        """The checkpoint to begin now; or seconds until the next look; None: no look before another event."""
        if self.requests.has_waiting:
            return self.requests.take()
        delays = []
        if self._final_due is not None:
            delays.append(self._final_due - now)
            if delays[0] <= self._slack:
                return CheckpointRequest(CheckpointCause.FINAL)
        if self._interval > 0:
            delays.append(max(self._due, self._last_end + self._min_pause) - now)
            if delays[-1] <= self._slack:
                return CheckpointRequest(CheckpointCause.PERIODIC)
        return max(min(delays), self._slack) if delays else None
