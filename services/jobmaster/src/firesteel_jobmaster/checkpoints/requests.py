"""Checkpoints that somebody has asked for, and what became of them."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any, Final

from firesteel_jobmaster.checkpoints.pending import Request
from firesteel_jobmaster.checkpoints.reasons import CheckpointFailure

MOST_WAITING: Final = 1000
MOST_KEPT: Final = 2000


class Requests:
    """Those that wait, and the results of the last ones."""

    def __init__(self) -> None:
        self._waiting: deque[Request] = deque()
        self._results: OrderedDict[str, dict[str, Any]] = OrderedDict()

    @property
    def is_empty(self) -> bool:
        """Whether nobody has asked for anything."""
        return not self._results

    @property
    def has_waiting(self) -> bool:
        """Whether a request waits for its turn."""
        return bool(self._waiting)

    @property
    def stops_next(self) -> bool:
        """Whether the job is to stop with the one whose turn it is."""
        first = self._waiting[0].savepoint if self._waiting else None
        return first is not None and bool(first.stop)

    @property
    def is_full(self) -> bool:
        """Whether no further one may wait."""
        return len(self._waiting) >= MOST_WAITING

    def add(self, trigger_id: str) -> bool:
        """A request came; False: it is known."""
        if trigger_id in self._results:
            return False
        self._results[trigger_id] = {"status": "IN_PROGRESS"}
        while len(self._results) > MOST_KEPT:
            self._results.popitem(last=False)
        return True

    def queue(self, request: Request) -> None:
        """It waits for its turn."""
        self._waiting.append(request)

    def take(self) -> Request:
        return self._waiting.popleft()

    def completed(self, trigger_id: str, checkpoint_id: int, location: str = "") -> None:
        """Its checkpoint is complete; of a savepoint the location is said."""
        if trigger_id in self._results:
            found = {"status": "COMPLETED", "checkpointId": checkpoint_id}
            self._results[trigger_id] = {**found, "location": location} if location else found

    def failed(self, trigger_id: str, failure: CheckpointFailure) -> None:
        """It has none."""
        if trigger_id in self._results:
            self._results[trigger_id] = {"status": "COMPLETED", "reason": failure.reason.name, "failure": str(failure)}

    def failed_with(self, trigger_id: str, text: str) -> None:
        """It has none that anybody could name."""
        if trigger_id in self._results:
            reason = "STOP_FAILED"
            self._results[trigger_id] = {"status": "COMPLETED", "reason": reason, "failure": text}

    def refuse_waiting(self, failure: CheckpointFailure) -> None:
        """Those that wait for their turn have none."""
        while self._waiting:
            self.failed(self._waiting.popleft().trigger_id, failure)

    def to_plain(self) -> dict[str, Any]:
        """As JSON-able data, by trigger id."""
        return {trigger_id: dict(result) for trigger_id, result in self._results.items()}
