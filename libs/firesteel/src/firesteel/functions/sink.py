"""The sink contract.

This is the contract of sinks that publish all their results together, at the end of a job; sinks for jobs with
checkpoints are in ``firesteel.functions.two_phase``.

A writer runs in a slot. ``write`` takes whole batches. At the end of the input ``finish`` makes everything durable but
not yet visible, and returns plain data that describes how to make it visible (committables). When all subtasks of the
job have finished, their committables are stored, and then ``commit`` is called: on the same writer, or, if its slot has
died since, on another one that was opened and gets no records. ``abort`` is called instead if the job fails or is
cancelled before. When a slot process dies, its TaskManager deletes the temporary files that the writer registered,
except those that belong to stored committables.
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
    r"""Access of a writer to the subtask that runs it.

    Examples:
        ```python
        from firesteel.datastream.connectors.base import Sink, SinkWriter, WriterContext


        class Lines(Sink):
            def create_writer(self, context: WriterContext):
                return LinesWriter(f"/data/part-{context.subtask_index}-{context.attempt}.txt")


        class LinesWriter(SinkWriter):
            def __init__(self, path):
                self.stream = open(path, "w")

            def write(self, values, timestamps):
                self.stream.writelines(f"{value}\n" for value in values)

            def close(self):
                self.stream.close()
        ```
    """

    @property
    @abstractmethod
    def attempt(self) -> int:
        """Attempt number of the execution, from 0."""

    @property
    @abstractmethod
    def job_id(self) -> str:
        """Id of the job, 32 hex digits."""

    @property
    def operator_id(self) -> str:
        """Id of the sink's operator, 32 hex digits; the same after a restart of the job."""
        return "0" * 32

    @property
    def checkpointing(self) -> bool:
        """Whether the job takes checkpoints."""
        return False

    @property
    def checkpoint_id(self) -> int:
        """Id of the last checkpoint that was prepared here, or that the task resumed from; 0 = there is none.

        Work that begins now is in none of the checkpoints up to this one. While a checkpoint is being prepared, this is
        still the previous id.
        """
        return 0

    @abstractmethod
    def register_temporary_file(self, path: str) -> None:
        """Have a file deleted if the slot process dies before the file is committed or removed."""

    def keep_temporary_file(self, path: str) -> None:
        """Keep a registered file that the checkpoint at hand refers to.

        It is no longer deleted with the process, but after the end of the job, unless a retained checkpoint needs it.
        """
        self.forget_temporary_file(path)

    @abstractmethod
    def forget_temporary_file(self, path: str) -> None:
        """Unregister a file that was committed or removed."""

    def make_durable(self, work: Callable[[], None]) -> None:
        """Run work that makes written data durable, such as a sync, which may take long.

        In a job with checkpoints another thread runs it, in the order of the calls. The checkpoint whose barrier is
        being handled, and all later ones, are acknowledged only after it is done. If it raises, the task fails. It may
        run after the writer was closed, so it must not use the writer. In a job without checkpoints it runs at once.
        """
        work()

    def metric_group(self) -> MetricGroup | None:
        """Return the group for the writer's metrics, beside those of the operator; None where no task runs."""
        return None

    def register_timer(self, epoch_ms: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` once the wall clock has reached a time, on the thread that calls ``write``.

        Timers that have not fired at the end of the task are dropped. Where no task runs, no timer fires.
        """


class SinkWriter(ABC, Generic[T]):
    """Writes the records of one subtask.

    Examples:
        ```python
        from firesteel.datastream.connectors import SinkWriter


        class Printer(SinkWriter):
            def write(self, values, timestamps):
                print(*values)


        Printer().write(["tea", "milk"], None)
        ```

        ```text
        tea milk
        ```
    """

    blocking: bool = False
    """Whether ``write`` may wait for long; if so, the chain gets a thread of its own."""

    takes_columns: bool = False
    """Whether batches of columns go to ``write_columns``; else they are converted to rows, for ``write``."""

    def open(self) -> None:
        """Prepare for writing. Called once, before all other methods."""

    @abstractmethod
    def write(self, values: Sequence[T], timestamps: Sequence[int] | None) -> None:
        """Write a batch of records.

        Args:
            values: the records, in their order.
            timestamps: their timestamps, epoch ms; None = they have none.
        """

    def write_columns(self, batch: pa.RecordBatch, timestamps: npt.NDArray[np.int64] | None) -> None:
        """Write a batch of columns. Other operators may share the batch and the timestamps: do not change them.

        Records of a stream without columns still go to ``write``.
        """
        raise TypeError(f"{type(self).__name__} has no write_columns(), though its takes_columns is True")

    def write_changes(
        self, batch: pa.RecordBatch, kinds: npt.NDArray[np.int8], timestamps: npt.NDArray[np.int64] | None
    ) -> None:
        """Write a batch of columns of which some rows are not inserted. As for ``write_columns``, do not change it.

        Called only if the sink's ``takes_changes`` and the writer's ``takes_columns`` hold. A writer that does not
        implement it gets such batches as rows, by ``write``.

        Args:
            batch: the rows.
            kinds: the value of the ``RowKind`` of each row.
            timestamps: of the rows, epoch ms; None = they have none.
        """
        raise NotImplementedError

    def flush(self) -> None:
        """Send everything written so far; called at each barrier. A sink that publishes at once is at-least-once."""

    def finish(self) -> list[Plain]:
        """Make everything durable, but not visible, and return committables. Called once, at the end of the input."""
        return []

    def commit(self, committables: Sequence[Plain]) -> None:
        """Make the results visible. Must be idempotent: other writers may get the same committables again."""

    def abort(self) -> None:
        """Remove what is not visible yet; called if the job failed or was cancelled. Must be idempotent."""

    def close(self) -> None:
        """Release everything; called exactly once, last."""


class Sink(ABC, Generic[T]):
    """A sink; pickled into the chain of its vertex, so it holds configuration only.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.connectors import Sink, SinkWriter


        class Printer(SinkWriter):
            def write(self, values, timestamps):
                print(*values)


        class Console(Sink):
            def create_writer(self, context):
                return Printer()


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        env.from_collection([1, 2]).sink_to(Console())
        env.execute()
        ```

        ```text
        1
        2
        ```

    Attributes:
        takes_changes: the writer looks at the kinds of rows (``Row.get_row_kind``). If not, a row that is not inserted
            (+I) is refused before it gets to the writer.
    """

    takes_changes: bool = False

    @abstractmethod
    def create_writer(self, context: WriterContext) -> SinkWriter[T]:
        """Make the writer of one subtask. Called in the slot."""

    def for_type(self, type_info: TypeInformation | None) -> Sink[T]:
        """Return the sink for a stream of this declared type (None = any Python object). Called by ``sink_to``."""
        return self

    def check(self) -> None:
        """Check the configuration. Called at the client when the graph is built.

        Raises:
            ProgramError: the sink can't work as configured.
        """

    def describe(self) -> dict[str, Any]:
        """Return properties of the sink that the plan and logs show."""
        return {}
