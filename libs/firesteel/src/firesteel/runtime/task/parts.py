"""What a task works with: where its batches come from, and who hears of it."""

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
    """Where the batches of a task come from: channels, or a source's reader.

    Attributes:
        begins_barriers: no barriers come to it; they begin here, at a position.
        bytes_in: bytes received.
        at_position: whether a barrier may go in here.
        channels: over which batches come, if they do.
        overtaking: a barrier that does not wait for the records in front of it: ``overtake`` is to be called when
            nothing is on its way through the chain.
        barriers_came: numbers of the channels in whose queues ``look_ahead`` is to look for barriers.
        call_later: of the task's loop.
    """

    overtaking: Barrier | None = None
    barriers_came: Collection[int] = ()
    channels: Sequence[InputChannel] = ()
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
        """The next batch or watermark, the end, or nothing now."""

    def watermark_origin(self) -> str:
        """Who has brought the watermark so far, for the log; empty if that is not known."""
        return ""

    def position(self) -> SourcePosition:
        """Where it is; holds where ``at_position`` is true. Only asked if it ``begins_barriers``."""
        raise NotImplementedError(f"{type(self).__name__} has no position")  # our own bug

    def position_taken(self) -> None:  # noqa: B027 - most inputs have nothing to do
        """State and position were taken, or nobody wants them any more."""

    def triggered(self, barrier: Barrier) -> None:  # noqa: B027 - most inputs have nothing to do
        """The coordinator wants a checkpoint: all tasks before this one have ended, and not all has come from them."""

    def look_ahead(self) -> None:  # noqa: B027 - most inputs have no barriers
        """Look at the barriers that have come; in a step of the task, which fails with what is raised.

        Raises:
            SerializationError, ProtocolError: what is in front of a barrier can't be read.
        """

    def overtake(self) -> Arrived | None:
        """Begin the checkpoint of the barrier that is ``overtaking``; None: that is over."""
        raise NotImplementedError(f"{type(self).__name__} has no barriers")  # our own bug

    def log_in_flight(self, log: InFlightLog, rest: Iterable[InputBatch]) -> None:
        """Write what was overtaken to the log: now, and as it comes in front of the barrier.

        Args:
            log: of the checkpoint that ``overtake`` has begun.
            rest: what was polled and is not in the chain yet.
        """
        raise NotImplementedError(f"{type(self).__name__} has no barriers")  # our own bug

    def replay(self, batches: Iterable[Replayed]) -> None:
        """Give these before anything else."""
        raise NotImplementedError(f"{type(self).__name__} replays nothing")  # our own bug

    def input_watermarks(self, current: int) -> dict[str, int]:
        """Metrics, named as Flink's gauges; from any thread.

        Args:
            current: the watermark that went into the chain.
        """
        return {"currentInputWatermark": current}

    def abort_checkpoint(self, checkpoint_id: int) -> bool:
        """A checkpoint was given up; returns whether its barrier was waited for."""
        return False

    def back_pressured(self, seconds: float) -> None:  # noqa: B027 - as above
        """For so long nothing was polled although something may have been there."""

    @abstractmethod
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
