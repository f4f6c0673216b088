"""Operators at the end of a chain: sinks, sink functions and print. They take whole batches."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from firesteel.common.printing import text_of
from firesteel.core.errors import CheckpointVersionError, ProgramError
from firesteel.functions.coroutines import refuse_coroutines
from firesteel.functions.functions import SinkFunction
from firesteel.functions.sink import Sink, SinkWriter
from firesteel.functions.source import Plain
from firesteel.functions.two_phase import Committable, TwoPhaseWriter
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.base import Operator, Transform, TypedOutput, method_of
from firesteel.runtime.operator_base.context import OperatorContext, SinkContext, TaskWriterContext
from firesteel.runtime.operator_base.initialization import SnapshotContext
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import Stamps, as_array
from firesteel.runtime.records.rows import to_list, to_rows

_VERSION: Final = 1
"""Version of the layout, JSON, in which the results of ``SinkWriter.finish`` stand in a checkpoint."""


class Consumer(Operator, ABC):
    """An operator without results.

    At the end of the input ``finish`` is called, then ``commit`` once all tasks of the job have finished, then
    ``close``. If the task fails or is cancelled instead, ``abort`` is called, then ``close``.

    Attributes:
        on_writable: called when ``writable`` turns True again, possibly from another thread.
        on_drained: called when ``drained`` turns True, possibly from another thread.
        seconds: running total of the time in ``take``.
    """

    seconds = 0.0

    on_writable: Callable[[], None] | None = None
    on_drained: Callable[[], None] | None = None

    @property
    def writable(self) -> bool:
        """Whether the operator takes more records now; if not, the task is back-pressured."""
        return True

    @property
    def overdrawn(self) -> bool:
        """Whether the operator must get no more records, even if a barrier that should overtake waits behind them."""
        return not self.writable

    @property
    def drained(self) -> bool:
        """Whether nothing is left in the operator for others to fetch; the task ends only then."""
        return True

    @abstractmethod
    def write(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Take records. The lists are shared with other readers and must not be changed."""

    @property
    def takes_columns(self) -> bool:
        """Whether the operator takes columns by ``write_columns``; if not, it gets rows, some at a time."""
        return False

    @property
    def takes_kinds(self) -> bool:
        """Whether ``write_columns`` takes columns whose rows are changes; if not, those come as rows."""
        return False

    def write_columns(self, batch: pa.RecordBatch, timestamps: Stamps, kinds: npt.NDArray[np.int8] | None) -> None:
        """Take a batch of columns; called if ``takes_columns`` holds.

        Args:
            batch: the columns.
            timestamps: of the rows.
            kinds: of the rows; None = all are inserted. Another value comes only if ``takes_kinds`` holds.
        """
        raise NotImplementedError  # our own bug

    def stop(self) -> None:
        """End because the job was stopped with a savepoint, which is complete; no record follows its barrier."""

    def take(self, batch: Batch) -> None:
        """Take a batch, as columns or as rows.

        Raises:
            ProgramError: a row is of another kind than insert (+I), and the operator handles only those.
        """
        self.refuse_changes(batch)
        if isinstance(batch.values, pa.RecordBatch) and self.takes_columns:
            kinds = None if batch.kinds is None or not np.any(batch.kinds) else np.asarray(batch.kinds, np.int8)
            if kinds is None or self.takes_kinds:
                self.write_columns(batch.values, as_array(batch.timestamps), kinds)
                return
        rows = to_rows(batch)
        assert isinstance(rows.values, list)
        self.write(rows.values, to_list(rows.timestamps))

    def finish(self) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None:
        """Remove results that are not visible yet. Raises nothing for results that do not exist any more."""


class SinkOperator(Consumer):
    """Runs the writer of a ``Sink``."""

    writes_elsewhere = True

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        if not isinstance(spec.function, Sink):
            raise ProgramError(f"operator {spec.name!r}: {spec.function!r} is not a Sink")
        self._sink: Sink[Any] = spec.function
        self._writer: SinkWriter[Any] | None = None
        self.takes_changes = spec.function.takes_changes
        self._committables: list[Plain] = []
        self._finished = self._committed = False
        self._checkpoints_with_results: set[int] = set()
        """Checkpoints that contain the finished, uncommitted results and were not given up: they may be stored."""

    @property
    def blocking(self) -> bool:
        """Whether the writer may wait for long; known once ``create`` was called."""
        return bool(self._writer is not None and self._writer.blocking)

    def create(self, context: OperatorContext) -> None:
        """Create the writer, before anything is opened."""
        self._writer_context = TaskWriterContext(context, self.spec.id)
        self._writer = self._sink.create_writer(self._writer_context)
        refuse_coroutines(f"sink {self.name!r}", self._writer)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        if self._writer is None:
            self.create(context)
        writer = self._writer
        assert writer is not None
        if context.checkpointing:
            self.check_fit_for_checkpoints()
        self._writer_context.opened(context, self.name)
        writer.open()
        if self.restored is not None and self.restored.committables:
            self._restore_committables(self.restored.checkpoint_id, self.restored.committables)

    def open_to_commit(self, context: OperatorContext) -> None:
        """Commit what was restored; called in place of ``open`` in a job that only has to commit."""
        self.open(context)
        self.commit()

    def _restore_committables(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        """Take over the results of a writer that had finished before the checkpoint: only the commit is left to do."""
        for committable in committables:
            if committable.version != _VERSION:
                raise CheckpointVersionError(
                    f"sink {self.name!r}",
                    f"what is left to commit was written in layout {committable.version} by a later release: go on "
                    "with it",
                )
            self._committables += json.loads(committable.data)
        self._finished = True
        self._checkpoints_with_results.add(checkpoint_id)

    def check_fit_for_checkpoints(self) -> None:
        """Refuse checkpoints, also those triggered by hand, if the sink shows its results only when the job ends.

        Raises:
            ProgramError: after a restart, results written before the checkpoint would be lost.
        """
        assert self._writer is not None
        if self._finished:
            return
        if not isinstance(self._writer, TwoPhaseWriter) and type(self._writer).finish is not SinkWriter.finish:
            raise ProgramError(
                f"sink {self.name!r}: {type(self._sink).__name__} shows its results when the job ends, so what was "
                "written before a checkpoint would be lost with a restart; derive it from TwoPhaseCommitSink, or take "
                "no checkpoints (execution.checkpointing.interval)"
            )

    def snapshot_state(self, context: SnapshotContext) -> None:
        """Flush the writer; after the end of the input its uncommitted files belong to the checkpoint and must stay."""
        assert self._writer is not None
        if not self._finished:
            self._writer.flush()
            return
        self._checkpoints_with_results.add(context.checkpoint_id)
        self._writer_context.reached(context.checkpoint_id)
        self._writer_context.keep_temporary_files()

    def uncommitted(self) -> tuple[tuple[int, tuple[Committable, ...]], ...]:
        """The results of ``finish`` as a committable, with the checkpoint at which they were prepared."""
        assert self._writer is not None
        if not self._finished or type(self._writer).finish is SinkWriter.finish:
            return ()
        try:
            data = json.dumps(self._committables, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            kind = type(self._writer).__name__
            raise ProgramError(
                f"sink {self.name!r}: finish() of {kind} returned what is no plain data (text, numbers, lists, dicts): "
                f"{error}"
            ) from error
        return ((max(self._checkpoints_with_results), (Committable(data, _VERSION),)),)

    @override
    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        super().checkpoint_aborted(checkpoint_id)
        self._checkpoints_with_results.discard(checkpoint_id)

    @override
    def write(self, values: list[Any], timestamps: list[int] | None) -> None:
        assert self._writer is not None
        if self.coerce is not None:
            values = list(self._coerced(values))
        self._writer.write(values, timestamps)

    @property
    @override
    def takes_columns(self) -> bool:
        return self._writer is not None and self._writer.takes_columns and self.coerce is None

    @property
    @override
    def takes_kinds(self) -> bool:
        return self._writer is not None and type(self._writer).write_changes is not SinkWriter.write_changes

    @override
    def write_columns(self, batch: pa.RecordBatch, timestamps: Stamps, kinds: npt.NDArray[np.int8] | None) -> None:
        assert self._writer is not None
        if kinds is None:
            self._writer.write_columns(batch, timestamps)
        else:
            self._writer.write_changes(batch, kinds, timestamps)

    def _coerced(self, records: list[Any]) -> Iterator[Any]:
        coerce = self.coerce
        assert coerce is not None
        for value in records:
            yield coerce(value)

    @override
    def finish(self) -> None:
        assert self._writer is not None
        if not self._finished:
            self._finished = True
            self._committables = list(self._writer.finish())

    @override
    def commit(self) -> None:
        assert self._writer is not None
        self._writer.commit(self._committables)
        self._committed = True

    def abort(self) -> None:
        """Remove results that are not visible, unless a checkpoint contains them: then a restart commits them."""
        if self._writer is not None and not self._committed and not self._checkpoints_with_results:
            self._writer.abort()

    def close(self) -> None:
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                writer.close()
        finally:
            super().close()


class SinkFunctionOperator(Transform):
    """Calls a ``SinkFunction`` for each record; a transform without results, so that it runs in bounded slices."""

    takes_changes = False
    typed_input: TypedOutput | None = None
    """The output with a declared type, of the same chain, that the sink reads; a sink refuses its nulls."""

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self._with_context = isinstance(spec.function, SinkFunction)
        self.takes_changes = getattr(spec.function, "takes_changes", False)
        self._invoke = method_of(spec.function, SinkFunction, "invoke")

    def open(self, context: OperatorContext) -> None:
        """Create the context of the function, then open it."""
        self._context = SinkContext(context.stamp)
        super().open(context)

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Yield nothing, but call the function for each record; exhaust the iterator to have all of them handled."""
        invoke, context, with_context = self._invoke, self._context, self._with_context
        coerce, typed = self.coerce, self.typed_input
        for value in records:
            if value is None and typed is not None and typed.gave_null:
                typed.refuse_nulls((value,))
            result = value if coerce is None else coerce(value)
            if with_context:
                invoke(result, context)
            else:
                invoke(result)
        return
        yield


class PrintOperator(Consumer):
    """Writes each record to standard output behind Flink's prefix, ``[identifier:][subtask]> ``."""

    takes_changes = True

    @override
    def open(self, context: OperatorContext) -> None:
        super().open(context)
        identifier = self.spec.extra.get("identifier") or ""
        number = str(context.info.subtask + 1) if context.info.parallelism > 1 else ""
        prefix = ":".join(part for part in (identifier, number) if part)
        self._prefix = f"{prefix}> " if prefix else ""
        self._text = text_of(self.spec.extra.get("input_type"))
        self._write, self._writable = context.write_stdout, context.stdout_writable

    @property
    @override
    def writable(self) -> bool:
        return self._writable()

    def write(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Print the lines of a batch in one write."""
        text = "".join(self._lines(values))
        if text:
            self._write(text)

    def _lines(self, records: list[Any]) -> Iterator[str]:
        prefix, text, coerce = self._prefix, self._text, self.coerce
        for value in records:
            yield f"{prefix}{text(value if coerce is None else coerce(value))}\n"
