"""The sink contract.

This is the contract of sinks that show their results at the end of a job, all together; sinks for jobs with checkpoints
are in ``firesteel.functions.two_phase``.

A writer runs in a slot. ``write`` takes whole batches. At the end of the input ``finish`` makes everything durable but
not yet visible, and returns what must be done to make it visible as plain data (committables). When all subtasks of
the job have got that far, that is stored, and then ``commit`` is called: by the same writer, or, if its slot has died
since, by another one that was opened and is given no records. ``abort`` is called instead when the job fails or is
cancelled before. When a slot process dies, its TaskManager deletes the temporary files that the writer registered, but
for those of what is stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from firesteel.common.typeinfo import TypeInformation
from firesteel.functions.metrics import MetricGroup
from firesteel.functions.source import Plain
from firesteel.functions.subtask import SubtaskContext

if TYPE_CHECKING:  # coordinators know sinks, and should not pay for Arrow
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

T = TypeVar("T")


class WriterContext(SubtaskContext):
    """What a writer may ask of the subtask that runs it."""

    @property
    @abstractmethod
    def attempt(self) -> int:
        """Attempt number of the execution, from 0."""

    @property
    @abstractmethod
    def job_id(self) -> str:
        """The id of the job, 32 hex digits."""

    @property
    def operator_id(self) -> str:
        """32 hex digits; the same after a restart of the job."""
        return "0" * 32

    @property
    def checkpointing(self) -> bool:
        """Whether the job takes checkpoints."""
        return False

    @property
    def checkpoint_id(self) -> int:
        """Of the last checkpoint that is prepared here, or that the task goes on from; 0 = of none.

        What is begun now is in none of the checkpoints up to it: while one is prepared, it is the one before.
        """
        return 0

    @abstractmethod
    def register_temporary_file(self, path: str) -> None:
        """This file is to be deleted if the slot process dies before it is committed or aborted."""

    def keep_temporary_file(self, path: str) -> None:
        """The checkpoint whose barrier is here needs the file.

        It is not deleted with the process any more, but when the job has ended and left no checkpoint that needs it.
        """
        self.forget_temporary_file(path)

    @abstractmethod
    def forget_temporary_file(self, path: str) -> None:
        """The file was committed or removed."""

    def make_durable(self, work: Callable[[], None]) -> None:
        """Have something done that makes durable what was written: a sync, which may take long.

        Where the job takes checkpoints, another thread does it, in the order of the calls; no checkpoint whose barrier
        comes here after this call is acknowledged before it is done, nor is one whose barrier is being handled. If it
        raises, the task fails. It may run when the writer is closed already, and touches nothing of the writer's. Else
        it is done at once.
        """
        work()

    def metric_group(self) -> MetricGroup | None:
        """Where the writer's metrics are shown, with those of the operator; None = no task runs."""
        return None

    def register_timer(self, epoch_ms: int, callback: Callable[[], None]) -> None:
        """Call this when the wall clock shows that time, where and when ``write`` is called too.

        Timers that are still to come at the end of the task are forgotten. Where no task runs, nothing is called.
        """


class SinkWriter(ABC, Generic[T]):
    """Writes the records of one subtask."""

    blocking: bool = False
    """``write`` may wait for long: the chain gets a thread of its own."""

    takes_columns: bool = False
    """Batches of columns come by ``write_columns``; else rows are made of them, for ``write``."""

    def open(self) -> None:
        """Called once, before anything else."""

    @abstractmethod
    def write(self, values: Sequence[T], timestamps: Sequence[int] | None) -> None:
        """Write a batch of records.

        Args:
            values: the records, in their order.
            timestamps: their timestamps, epoch ms; None = they have none.
        """

    def write_columns(self, batch: pa.RecordBatch, timestamps: npt.NDArray[np.int64] | None) -> None:
        """Take a batch of columns. It belongs to others too: neither it nor the array must be changed.

        Rows of a stream without columns still come by ``write``.
        """
        raise TypeError(f"{type(self).__name__} says that it takes columns, and has no write_columns()")

    def flush(self) -> None:
        """A barrier is here: what was written has to arrive. Where it is shown at once, that is at least once."""

    def finish(self) -> list[Plain]:
        """End of input: make all durable, show nothing yet; return committables. Called at most once."""
        return []

    def commit(self, committables: Sequence[Plain]) -> None:
        """Make the results visible. Idempotent: it may be called again with the same committables, also by others."""

    def abort(self) -> None:
        """The job failed or was cancelled: remove what is not visible yet. Idempotent; what is gone is no error."""

    def close(self) -> None:
        """Release everything; called exactly once, last."""


class Sink(ABC, Generic[T]):
    """A sink; pickled into the chain of its vertex, so it holds configuration only."""

    @abstractmethod
    def create_writer(self, context: WriterContext) -> SinkWriter[T]:
        """A writer for one subtask. Called in the slot."""

    def for_type(self, type_info: TypeInformation | None) -> Sink[T]:
        """Returns the sink for a stream of this declared type, None = any Python object. Called by ``sink_to``."""
        return self

    def check(self) -> None:
        """Called at the client when the graph is built.

        Raises:
            ProgramError: the sink can't work as configured.
        """

    def describe(self) -> dict[str, Any]:
        """What plan and logs show about it."""
        return {}
