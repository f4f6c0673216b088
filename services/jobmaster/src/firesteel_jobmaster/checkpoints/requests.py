"""Checkpoints that somebody has asked for, and what became of them."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final

from firesteel_jobmaster.checkpoints.pending import CheckpointRequest
from firesteel_jobmaster.checkpoints.reasons import CheckpointFailure

MOST_WAITING: Final = 1000
"""Requests that may wait for their turn."""
MOST_RESULTS: Final = 2000
"""Results that are remembered; the oldest go first."""
OnEnd = Callable[[str, bool, str, str], None]
"""Takes the end of a request: its id, whether it was carried out, and two texts for people."""


class CheckpointRequests:
    """Users' requests that wait for their turn, and the results of the last ones."""

    def __init__(self) -> None:
        self._waiting: deque[CheckpointRequest] = deque()
        self._results: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self.on_end: OnEnd = lambda trigger_id, is_complete, text, detail: None
        """Called when a request has ended."""

    def is_known(self, trigger_id: str) -> bool:
        return trigger_id in self._results

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
        """Whether the next request is for the savepoint with which the job stops."""
        first = self._waiting[0].savepoint if self._waiting else None
        return first is not None and bool(first.stop)

    @property
    def is_full(self) -> bool:
        """Whether no further request may wait."""
        return len(self._waiting) >= MOST_WAITING

    def add(self, trigger_id: str) -> bool:
        """Note that a request came; returns False if its id is known, so that the request is a repetition."""
        if trigger_id in self._results:
            return False
        self._results[trigger_id] = {"status": "IN_PROGRESS"}
        while len(self._results) > MOST_RESULTS:
            self._results.popitem(last=False)
        return True

    def queue(self, request: CheckpointRequest) -> None:
        """Have a request wait for its turn."""
        self._waiting.append(request)

    def take(self) -> CheckpointRequest:
        return self._waiting.popleft()

    def completed(self, trigger_id: str, checkpoint_id: int, location: str = "") -> None:
        """The checkpoint of a request is complete; ``location`` is given for savepoints only."""
        if trigger_id in self._results:
            result = {"status": "COMPLETED", "checkpointId": checkpoint_id}
            self._results[trigger_id] = {**result, "location": location} if location else result
            kind = "savepoint" if location else "checkpoint"
            self.on_end(trigger_id, True, f"{kind} {checkpoint_id} is complete", location)

    def failed(self, trigger_id: str, failure: CheckpointFailure) -> None:
        """The checkpoint of a request has failed."""
        if trigger_id in self._results:
            self._results[trigger_id] = {"status": "COMPLETED", "reason": failure.reason.name, "failure": str(failure)}
            self.on_end(trigger_id, False, str(failure), "")

    def failed_with(self, trigger_id: str, text: str) -> None:
        """The stop of the job has failed behind a savepoint that is complete; ``text`` says what to do with it."""
        if trigger_id in self._results:
            reason = "STOP_FAILED"
            self._results[trigger_id] = {"status": "COMPLETED", "reason": reason, "failure": text}
            self.on_end(trigger_id, False, text, "")

    def refuse_waiting(self, failure: CheckpointFailure) -> None:
        """Fail all requests that wait for their turn."""
        while self._waiting:
            self.failed(self._waiting.popleft().trigger_id, failure)

    def to_plain(self) -> dict[str, Any]:
        """Requests as JSON-able data, by trigger id."""
        return {trigger_id: dict(result) for trigger_id, result in self._results.items()}
