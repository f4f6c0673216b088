"""Why a checkpoint did not complete; names and texts are Flink's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from firesteel.protocol.checkpoint_messages import DeclineReason


class CheckpointFailureReason(Enum):
    """A reason: its text, and whether it counts against ``tolerable-failed-checkpoints``."""

    NOT_ALL_REQUIRED_TASKS_RUNNING = ("Not all required tasks are currently running.", False)
    JOB_FAILOVER_REGION = ("FailoverRegion is restarting.", False)
    COORDINATOR_SHUTDOWN = ("CheckpointCoordinator shutdown.", False)
    SUBSUMED = ("Checkpoint has been subsumed.", False)
    TOO_MANY_REQUESTS = ("The maximum number of queued checkpoint requests exceeded.", False)
    DECLINED_TASK_NOT_READY = ("Checkpoint was declined (tasks not ready).", False)
    DECLINED_TASK_CLOSING = ("Checkpoint was declined (task is closing).", False)
    DECLINED_SUBSUMED = ("Checkpoint was canceled because a barrier from newer checkpoint was received.", False)
    DECLINED_INPUT_END_OF_STREAM = ("Checkpoint was declined because one input stream is finished.", False)
    EXPIRED = ("Checkpoint expired before completing.", True)
    IO_EXCEPTION = ("An Exception occurred while triggering the checkpoint. IO-problem detected.", True)
    ASYNC_EXCEPTION = ("Asynchronous task checkpoint failed.", True)
    TASK_FAILURE = ("Task local checkpoint failure.", True)
    FINALIZE_FAILURE = ("Failure to finalize checkpoint.", True)

    @property
    def text(self) -> str:
        return self.value[0]

    @property
    def counts(self) -> bool:
        """Whether the job fails when it happens too often."""
        return self.value[1]


NOT_READY: Final = DeclineReason.TASK_NOT_READY.value
"""Reason of a task that could not be told to begin."""
_DECLINED = {
    DeclineReason.TASK_NOT_READY: CheckpointFailureReason.DECLINED_TASK_NOT_READY,
    DeclineReason.TASK_CLOSING: CheckpointFailureReason.DECLINED_TASK_CLOSING,
    DeclineReason.SUBSUMED: CheckpointFailureReason.DECLINED_SUBSUMED,
    DeclineReason.ASYNC_EXCEPTION: CheckpointFailureReason.ASYNC_EXCEPTION,
    DeclineReason.TASK_FAILURE: CheckpointFailureReason.TASK_FAILURE,
}


@dataclass(frozen=True)
class CheckpointFailure:
    """Why a checkpoint did not complete.

    Attributes:
        reason: in general.
        detail: in particular; may be empty.
    """

    reason: CheckpointFailureReason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason.text} {self.detail}".rstrip()


def declined(reason: str) -> CheckpointFailureReason:
    """The reason for which a task declines a checkpoint, by the task's own word."""
    try:
        return _DECLINED[DeclineReason(reason)]
    except ValueError:
        return CheckpointFailureReason.TASK_FAILURE


class Tolerance:
    """Counts checkpoints that fail in a row.

    Args:
        most: how many failures are tolerated.
    """

    def __init__(self, most: int) -> None:
        self._most, self._count, self._exceeded = most, 0, ""

    def succeeded(self) -> None:
        """A checkpoint is complete."""
        self._count = 0

    def failed(self, failure: CheckpointFailure) -> None:
        """A checkpoint has failed, in a way that counts."""
        self._count += 1
        if self._count > self._most:
            self._count = 0
            self._exceeded = (
                "Exceeded checkpoint tolerable failure threshold "
                f"(execution.checkpointing.tolerable-failed-checkpoints: {self._most}). "
                f"The latest checkpoint failed due to {failure}"
            )

    def take_exceeded(self) -> str:
        """Why the job has to fail, once; empty if it need not."""
        message, self._exceeded = self._exceeded, ""
        return message
