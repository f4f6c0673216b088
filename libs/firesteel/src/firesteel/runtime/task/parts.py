"""The contracts between a task and its neighbours: the input that it polls, and the reporter that it tells."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, ClassVar, Protocol

from firesteel.graph.execution_states import ExecutionState
from firesteel.protocol.deployment import TaskFailure
from firesteel.runtime.checkpoints.aligner import Arrived
from firesteel.runtime.checkpoints.in_flight import InFlightLog, Replayed
from firesteel.runtime.checkpoints.position import SourcePosition
from firesteel.runtime.checkpoints.task_checkpoints import CheckpointReporter
from firesteel.runtime.exchange.channels import InputChannel
from firesteel.runtime.records.batch import Barrier, InBand, InputBatch


class TaskInput(ABC):
    """The input of a task: channels, or the reader of a source.

    Attributes:
        begins_barriers: whether the input is a source, at whose position barriers begin, and to which none come.
        bytes_in: running total of bytes received.
        at_position: whether a checkpoint may begin now, between two records.
        channels: the channels from which batches come; empty for sources.
        overtaking: a barrier that overtakes the records in front of it; the task has to call ``overtake`` as soon as
            no record is in the chain.
        barriers_came: numbers of the channels in whose queues ``look_ahead`` has to look for barriers.
        seconds: running total of the time in which a source has read; that of channels is not measured.
        call_later: calls after a time, on the task's loop; set by the task.
    """

    overtaking: Barrier | None = None
    barriers_came: Collection[int] = ()
    channels: Sequence[InputChannel] = ()
    seconds: float = 0.0
    call_later: Callable[[float, Callable[[], None]], object] = staticmethod(lambda seconds, call: None)

    begins_barriers: ClassVar[bool] = False

    @property
    @abstractmethod
    def bytes_in(self) -> int: ...

    @property
    @abstractmethod
    def at_position(self) -> bool: ...

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def poll(self) -> InputBatch | InBand | None:
        """Take the next batch or element; the last one is ``END_OF_INPUT``. None if there is nothing now."""

    def watermark_origin(self) -> str:
        """Text for the log that says where the watermark comes from; empty if that is not known."""
        return ""

    def position(self) -> SourcePosition:
        """The position of a source, for a checkpoint; called where ``at_position`` holds, if it ``begins_barriers``."""
        raise NotImplementedError(f"{type(self).__name__} has no position")  # our own bug

    def position_taken(self) -> None:  # noqa: B027 - most inputs have nothing to do
        """Continue, because state and position were taken for a checkpoint, or the checkpoint was given up."""

    def triggered(self, barrier: Barrier) -> None:  # noqa: B027 - most inputs have nothing to do
        """Expect a checkpoint that the coordinator has triggered here, because all tasks in front have ended.

        Records of these tasks may still be in the channels.
        """

    def look_ahead(self) -> None:  # noqa: B027 - most inputs have no barriers
        """Look at the barriers that have come into the queues; called in a step of the task.

        Raises:
            SerializationError, ProtocolError: a batch in front of a barrier can't be read; the task fails with it.
        """

    def overtake(self) -> Arrived | None:
        """Begin the checkpoint of the barrier that is ``overtaking``; None if that was given up meanwhile."""
        raise NotImplementedError(f"{type(self).__name__} has no barriers")  # our own bug

    def log_in_flight(self, log: InFlightLog, rest: Iterable[InputBatch]) -> None:
        """Log the records that the barrier has overtaken: those in the queues, and those that come in front of it.

        Args:
            log: log of the checkpoint that ``overtake`` has begun.
            rest: batches that were polled and have not entered the chain.
        """
        raise NotImplementedError(f"{type(self).__name__} has no barriers")  # our own bug

    def replay(self, batches: Iterable[Replayed]) -> None:
        """Return these batches, which were in flight at the checkpoint, before anything else."""
        raise NotImplementedError(f"{type(self).__name__} replays nothing")  # our own bug

    def input_watermarks(self, current: int) -> dict[str, int]:
        """Watermarks as metrics, named as Flink's gauges; may be called from any thread.

        Args:
            current: the watermark that has entered the chain.
        """
        return {"currentInputWatermark": current}

    def watermark_progress(self) -> list[dict[str, Any]]:
        """What holds event time back, by input (``WATERMARK_PROGRESS``); may be called from any thread."""
        return []

    def abort_checkpoint(self, checkpoint_id: int) -> bool:
        """Give up a checkpoint; returns whether its barrier had come over some channels."""
        return False

    def back_pressured(self, seconds: float) -> None:  # noqa: B027 - as above
        """Exclude a time from idleness in which the task was back-pressured, and polled nothing."""

    @abstractmethod
    def close(self) -> None:
        """Close all parts of the task. May be called again."""


class TaskReporter(CheckpointReporter, Protocol):
    """Gets the states of a task and tells the JobMaster; called on the task's thread."""

    def state(
        self, execution_id: str, state: ExecutionState, failure: TaskFailure | None, metrics: dict[str, Any]
    ) -> None:
        """Report that the task has reached a state."""

    def end_of_data(self, execution_id: str) -> None:
        """Report that all input is processed, and that the task waits for the checkpoint whose completion commits."""
