"""The events of a job: what has happened to it, when, and at whose request. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from firesteel.common.job_status import JobStatus
from firesteel.common.plain import read_plain
from firesteel.core.errors import ProtocolError

MOST: Final = 200
"""Events that a job keeps: some 50 KB in its archive."""
_LONGEST: Final = 400
"""Characters of an event's text; the whole cause of a failure is among the exceptions of the job."""


class EventType(StrEnum):
    """What may happen to a job."""

    SUBMITTED = "SUBMITTED"
    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    RESCALING = "RESCALING"
    JOBMASTER_LOST = "JOBMASTER_LOST"
    CHECKPOINTS_FAILING = "CHECKPOINTS_FAILING"
    CHECKPOINTS_RECOVERED = "CHECKPOINTS_RECOVERED"
    CHECKPOINT_REQUESTED = "CHECKPOINT_REQUESTED"
    CHECKPOINT_COMPLETED = "CHECKPOINT_COMPLETED"
    CHECKPOINT_FAILED = "CHECKPOINT_FAILED"
    SAVEPOINT_REQUESTED = "SAVEPOINT_REQUESTED"
    SAVEPOINT_COMPLETED = "SAVEPOINT_COMPLETED"
    SAVEPOINT_FAILED = "SAVEPOINT_FAILED"
    STOP_REQUESTED = "STOP_REQUESTED"
    CANCELLING = "CANCELLING"
    FAILING = "FAILING"
    SUSPENDED = "SUSPENDED"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"


class EventLevel(StrEnum):
    """How much an event matters, as levels of logs."""

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


_LEVELS: Final = {
    EventType.RESTARTING: EventLevel.WARN,
    EventType.JOBMASTER_LOST: EventLevel.WARN,
    EventType.CHECKPOINTS_FAILING: EventLevel.WARN,
    EventType.CHECKPOINT_FAILED: EventLevel.WARN,
    EventType.SAVEPOINT_FAILED: EventLevel.WARN,
    EventType.SUSPENDED: EventLevel.WARN,
    EventType.FAILING: EventLevel.ERROR,
    EventType.FAILED: EventLevel.ERROR,
}
"""Levels other than INFO."""
_FREQUENT: Final = frozenset(
    {
        EventType.RUNNING,
        EventType.RESTARTING,
        EventType.RESCALING,
        EventType.JOBMASTER_LOST,
        EventType.CHECKPOINTS_FAILING,
        EventType.CHECKPOINTS_RECOVERED,
    }
)
"""Events that come by themselves, again and again: they give way to what somebody has asked for."""


@dataclass
class JobEvent:
    """Something that has happened to a job.

    Attributes:
        type, level: ``EventType`` and ``EventLevel``; texts, since a later release may know more of them.
        text: what has happened, for people.
        by: who asked for it, and from which address; empty = nobody did.
        detail: what follows from it, or where its result is; may be empty.
        timestamp: epoch ms.
        last: epoch ms of the last of several events that were the same.
        count: number of these events.
    """

    type: str
    level: str
    text: str
    by: str
    detail: str
    timestamp: int
    last: int
    count: int = 1


class JobEvents:
    """The events of one job, of which the latest are kept; the oldest of those that come by themselves go first.

    Args:
        now_ms: tells the time, in epoch ms.
        earlier: events of the job's life before, as ``plain`` has returned them; what can't be read is left out.
    """

    def __init__(self, now_ms: Callable[[], int], earlier: Mapping[str, Any] | None = None) -> None:
        self._now_ms = now_ms
        self._events: list[JobEvent] = []
        self._dropped = 0
        self._requests: dict[str, str] = {}
        """What users have asked for and what has not ended yet: trigger id -> CHECKPOINT or SAVEPOINT."""
        self._began_ms = now_ms()
        self._was_scheduled = self._all_run = False
        self._restart: JobEvent | None = None
        """The event of the last restart, until all tasks run again."""
        self._failing: JobEvent | None = None
        """Checkpoints fail one after the other."""
        self.restore(earlier or {})

    def restore(self, earlier: Mapping[str, Any]) -> None:
        """Begin with the events of the job's life before."""
        try:
            self._events = [read_plain(JobEvent, plain, "event", ProtocolError) for plain in earlier.get("events", ())]
            self._dropped = int(earlier.get("dropped", 0))
        except (ProtocolError, TypeError, ValueError):  # of another release: people lose lines, the job loses nothing
            self._events = []

    def plain(self) -> dict[str, Any]:
        """The events in the order of their beginnings, as JSON-able data, and how many are kept no more."""
        return {"events": [asdict(event) for event in self._events], "dropped": self._dropped}

    def add(self, type_: EventType, text: str, by: str = "", detail: str = "") -> JobEvent:
        """Take an event that happens now; see ``JobEvent``."""
        now = self._now_ms()
        level = _LEVELS.get(type_, EventLevel.INFO)
        event = JobEvent(type_.value, level.value, _cut(text), by, detail, now, now)
        self._events.append(event)
        if len(self._events) > MOST:
            frequent = (index for index, old in enumerate(self._events[:-1]) if old.type in _FREQUENT)
            del self._events[next(frequent, 0)]
            self._dropped += 1
        return event

    # -- the job

    def job_moved(self, to: JobStatus, cause: str, by: str = "") -> None:
        """The job enters another state. Restarts have an event of their own (``restarting``)."""
        if to is JobStatus.RUNNING and not self._was_scheduled:
            self._was_scheduled = True
            self.add(EventType.SCHEDULED, "the job asks for its slots")
        elif to.name in EventType.__members__ and to not in (JobStatus.RUNNING, JobStatus.RESTARTING):
            self.add(EventType[to.name], cause, by)

    def restarting(self, cause: str, answer: str) -> None:
        """Tasks are restarted. A restart for the same cause as the one before is counted there.

        Args:
            cause: of the failure.
            answer: what follows from it.
        """
        text, last = _cut(cause), self._events[-2:]
        self._all_run = False
        if [event.type for event in last] == [EventType.RESTARTING, EventType.RUNNING] and last[0].text == text:
            self._events.pop()  # it runs no more
            self._restart = last[0]
            self._restart.last, self._restart.count = self._now_ms(), self._restart.count + 1
        else:
            self._restart = self.add(EventType.RESTARTING, text)
        self._restart.detail = answer
        self._began_ms = self._now_ms()

    def restart_explained(self, cause: str) -> None:
        """It turns out that a restart has another cause."""
        if self._restart is not None:
            self._restart.text = _cut(cause)

    def rescaling(self, text: str) -> None:
        """The job is laid out anew, for other slots."""
        self._all_run, self._began_ms = False, self._now_ms()
        self.add(EventType.RESCALING, text)

    def all_run(self, tasks: int, restored: tuple[int, int] | None) -> None:
        """All tasks run; only the first call after a start counts.

        Args:
            tasks: their number.
            restored: id of the checkpoint that the job went on from last, and when (epoch ms).
        """
        if self._all_run:
            return
        self._all_run, self._restart = True, None
        text = "the task runs" if tasks == 1 else f"all {tasks} tasks run"
        if restored is not None and restored[1] >= self._began_ms:
            text += f", from checkpoint {restored[0]}"
        self.add(EventType.RUNNING, text)

    # -- checkpoints

    def checkpoint_ended(self, checkpoint_id: int, failure: str) -> None:
        """A checkpoint has ended: failures in a row are counted in one event, which the next success ends.

        Args:
            checkpoint_id: of the checkpoint; 0 = it failed before it had one.
            failure: why it failed; empty = it is complete.
        """
        if not failure:
            if self._failing is not None:
                failed = "a failure" if self._failing.count == 1 else f"{self._failing.count} failures in a row"
                self.add(EventType.CHECKPOINTS_RECOVERED, f"checkpoint {checkpoint_id} is complete, after {failed}")
            self._failing = None
        elif self._failing is None:
            self._failing = self.add(EventType.CHECKPOINTS_FAILING, failure)
        else:
            self._failing.text, self._failing.last = _cut(failure), self._now_ms()
            self._failing.count += 1

    def requested(self, type_: EventType, trigger_id: str, text: str, by: str) -> None:
        """A user wants a checkpoint or savepoint; ``request_ended`` follows."""
        self._requests[trigger_id] = "CHECKPOINT" if type_ is EventType.CHECKPOINT_REQUESTED else "SAVEPOINT"
        self.add(type_, text, by)

    def request_ended(self, trigger_id: str, is_complete: bool, text: str, detail: str = "") -> None:
        """What a user has asked for is there, or has failed."""
        kind = self._requests.pop(trigger_id, None)
        if kind is not None:
            self.add(EventType[f"{kind}_{'COMPLETED' if is_complete else 'FAILED'}"], text, detail=detail)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
