"""Where records end: sinks, sink functions, print. They take whole chunks."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

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
"""Of the layout in which what a writer has left to do stands in a checkpoint: JSON."""


class Consumer(Operator, ABC):
    """An operator without results.

    At the end of the input: ``finish``, then ``commit`` when the whole job has got that far, then ``close``. If the
    task fails or is cancelled instead: ``abort``, then ``close``.

    Attributes:
        on_writable: called when ``writable`` turns True again, possibly from another thread.
        on_drained: called when ``drained`` turns True, possibly from another thread.
    """

    on_writable: Callable[[], None] | None = None
    on_drained: Callable[[], None] | None = None

    @property
    def writable(self) -> bool:
        """Whether it takes more now; else the task is back-pressured."""
        return True

    @property
    def overdrawn(self) -> bool:
        """Whether it takes no more even if a barrier waits behind what would come."""
        return not self.writable

    @property
    def drained(self) -> bool:
        """Nothing is left in it for others to fetch; the task ends only then."""
        return True

    @abstractmethod
    def write(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Take a chunk. The list belongs to others too: it must not be changed."""

    @property
    def takes_columns(self) -> bool:
        """Whether it works on columns as they are; else rows are made of them, some at a time."""
        return False

    def write_columns(self, batch: pa.RecordBatch, timestamps: Stamps) -> None:
        """Take a batch of columns; called if it ``takes_columns``."""
        raise NotImplementedError  # our own bug

    def stop(self) -> None:
        """The job stops, with a savepoint that is complete and whose barrier was the last that came."""

    def take(self, batch: Batch) -> None:
        """Take a batch in the form that it likes.

        Raises:
            ProgramError: a row is not inserted, and the operator knows no others.
        """
        self.refuse_changes(batch)
        if isinstance(batch.values, pa.RecordBatch) and self.takes_columns:
            self.write_columns(batch.values, as_array(batch.timestamps))
        else:
            rows = to_rows(batch)
            assert isinstance(rows.values, list)
            self.write(rows.values, to_list(rows.timestamps))

    def finish(self) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None:
        """Remove what is not visible yet. Never raises for what is gone."""


class SinkOperator(Consumer):
    """Runs the writer of a ``Sink``."""

    writes_elsewhere = True

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        if not isinstance(spec.function, Sink):
            raise ProgramError(f"operator {spec.name!r}: {spec.function!r} is not a Sink")
        self._sink: Sink[Any] = spec.function
        self._writer: SinkWriter[Any] | None = None
        self._committables: list[Plain] = []
        self._finished = self._committed = False
        self._noted: set[int] = set()
        """Checkpoints that may hold what is left to do, and are perhaps stored."""

    @property
    def blocking(self) -> bool:
        """The writer may wait for long. Known once it was created."""
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
            self._go_on(self.restored.checkpoint_id, self.restored.committables)

    def open_to_commit(self, context: OperatorContext) -> None:
        """In place of ``open`` where nothing is written any more: commit what was restored."""
        self.open(context)
        self.commit()

    def _go_on(self, checkpoint_id: int, left: Sequence[Committable]) -> None:
        """The writer before had finished in the checkpoint: what it left to do is all that is still done."""
        for one in left:
            if one.version != _VERSION:
                raise CheckpointVersionError(
                    f"sink {self.name!r}",
                    f"what is left to commit was written in layout {one.version} by a later release: go on with it",
                )
            self._committables += json.loads(one.data)
        self._finished = True
        self._noted.add(checkpoint_id)

    def check_fit_for_checkpoints(self) -> None:
        """A sink that shows its results at the end is fit for none before that, not even for one by hand."""
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
        """What was written has to arrive; at the end of the input its files belong to the checkpoint."""
        assert self._writer is not None
        if not self._finished:
            self._writer.flush()
            return
        self._noted.add(context.checkpoint_id)
        self._writer_context.reached(context.checkpoint_id)
        self._writer_context.keep_temporary_files()

    def uncommitted(self) -> tuple[tuple[int, tuple[Committable, ...]], ...]:
        """What a checkpoint has to hold, by the checkpoint at which it was prepared."""
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
        return ((max(self._noted), (Committable(data, _VERSION),)),)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """It is not stored."""
        super().checkpoint_aborted(checkpoint_id)
        self._noted.discard(checkpoint_id)

    def write(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Hand a chunk to the writer."""
        assert self._writer is not None
        if self.coerce is not None:
            values = list(self._coerced(values))
        self._writer.write(values, timestamps)

    @property
    def takes_columns(self) -> bool:
        """Whether its writer does."""
        return self._writer is not None and self._writer.takes_columns and self.coerce is None

    def write_columns(self, batch: pa.RecordBatch, timestamps: Stamps) -> None:
        """Hand columns to the writer."""
        assert self._writer is not None
        self._writer.write_columns(batch, timestamps)

    def _coerced(self, records: list[Any]) -> Iterator[Any]:
        coerce = self.coerce
        assert coerce is not None
        for value in records:
            yield coerce(value)

    def finish(self) -> None:
        """Make all durable, show nothing yet."""
        assert self._writer is not None
        if not self._finished:
            self._finished = True
            self._committables = list(self._writer.finish())

    def commit(self) -> None:
        """Make the results visible."""
        assert self._writer is not None
        self._writer.commit(self._committables)
        self._committed = True

    def abort(self) -> None:
        """Remove what is not visible, unless a checkpoint says that it is going to be."""
        if self._writer is not None and not self._committed and not self._noted:
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
    """The output of the same chain, with a declared type, that it reads: None is refused at a sink."""

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self._with_context = isinstance(spec.function, SinkFunction)
        self._invoke = method_of(spec.function, SinkFunction, "invoke")

    def open(self, context: OperatorContext) -> None:
        """Make the function's context, then open it."""
        self._context = SinkContext(context.stamp)
        super().open(context)

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Nothing; all records are handed over when it is exhausted."""
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
    """Writes each record to standard output; prefix as Flink's: ``[identifier:][subtask]> ``."""

    def open(self, context: OperatorContext) -> None:
        """Work out the prefix."""
        super().open(context)
        identifier = self.spec.extra.get("identifier") or ""
        number = str(context.info.subtask + 1) if context.info.parallelism > 1 else ""
        prefix = ":".join(part for part in (identifier, number) if part)
        self._prefix = f"{prefix}> " if prefix else ""
        self._text = text_of(self.spec.extra.get("input_type"))
        self._write, self._writable = context.write_stdout, context.stdout_writable

    @property
    def writable(self) -> bool:
        """Whether standard output takes more."""
        return self._writable()

    def write(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Print a chunk in one piece."""
        text = "".join(self._lines(values))
        if text:
            self._write(text)

    def _lines(self, records: list[Any]) -> Iterator[str]:
        prefix, text, coerce = self._prefix, self._text, self.coerce
        for value in records:
            yield f"{prefix}{text(value if coerce is None else coerce(value))}\n"
