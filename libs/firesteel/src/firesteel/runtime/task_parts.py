"""What a task works with: where its batches come from, and who hears of it."""

from __future__ import annotations

from typing import Any, Protocol

from firesteel.graph.execution_states import ExecutionState
from firesteel.protocol.deployment import TaskFailure
from firesteel.runtime.batch import InBand
from firesteel.runtime.checkpoints.task_checkpoints import CheckpointReporter
from firesteel.runtime.source_input import InputBatch


class TaskInput(Protocol):
    """Channels, or a source's reader."""

    @property
    def bytes_in(self) -> int:
        """Bytes received."""

    @property
    def at_position(self) -> bool:
        """Whether a barrier may go in here."""

    def open(self) -> None:
        """Get ready."""

    def poll(self) -> InputBatch | InBand | None:
        """The next batch or watermark, the end, or nothing now."""

    def input_watermarks(self) -> dict[str, int]:
        """Metrics of its inputs, if there are several; from any thread."""

    def abort_checkpoint(self, checkpoint_id: int) -> bool:
        """A checkpoint was given up; returns whether its barrier was waited for."""

    def back_pressured(self, seconds: float) -> None:
        """For so long nothing was polled although something may have been there."""

    def close(self) -> None:
        """Release everything; idempotent."""


class TaskReporter(CheckpointReporter, Protocol):
    """Who hears of a task; called on the task's thread."""

    def state(
        self, execution_id: str, state: ExecutionState, failure: TaskFailure | None, metrics: dict[str, Any]
    ) -> None:
        """The task reached a state."""

    def end_of_data(self, execution_id: str) -> None:
        """All input is processed and durable: the task waits for the checkpoint whose completion commits it."""
