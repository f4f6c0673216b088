"""A sink that keeps a table like a changing one: rows are inserted, replaced by their key, and deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from firesteel.common.typeinfo import RowTypeInfo
from firesteel.common.types import RowKind
from firesteel.core.clock import Clock, SystemClock
from firesteel.core.errors import ProgramError
from firesteel.expressions.values import row_values, values_of
from firesteel.functions.sink import WriterContext
from firesteel.functions.two_phase import CommitResult, Committable, Committer, TwoPhaseCommitSink, TwoPhaseWriter
from firesteel_jdbc.options import JdbcConnectionOptions, JdbcExecutionOptions
from firesteel_jdbc.sink import StatementRunner

__all__ = ["JdbcTableSink"]


class JdbcTableSink(TwoPhaseCommitSink[Any]):
    """Writes changes at least once. With a key the table ends as if each change had been written once.

    Of the changes of one key that are buffered, only the last one is written.

    Args:
        write_sql: statement for a row that is inserted or replaced, with a ``?`` for each field.
        delete_sql: statement for a row that is deleted, with a ``?`` for each field of the key; None = there is no key.
        row_type: type of the rows.
        key: names of the fields of the key.
        connection: database to connect to.
        execution: batches and retries.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcExecutionOptions, JdbcTableSink

        row = Types.ROW_NAMED(["shop", "total"], [Types.STRING(), Types.LONG()])
        connection = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:sqlite:/data/shop.db").build()
        upsert = "INSERT INTO totals VALUES (?, ?) ON CONFLICT (shop) DO UPDATE SET total = EXCLUDED.total"
        delete = "DELETE FROM totals WHERE shop = ?"
        sink = JdbcTableSink(upsert, delete, row, ["shop"], connection, JdbcExecutionOptions.defaults())
        ```
    """

    takes_changes = True

    def __init__(
        self,
        write_sql: str,
        delete_sql: str | None,
        row_type: RowTypeInfo,
        key: Sequence[str],
        connection: JdbcConnectionOptions,
        execution: JdbcExecutionOptions,
    ) -> None:
        if bool(key) != (delete_sql is not None):
            raise ProgramError("JdbcTableSink: a key and a statement that deletes by it belong together")
        self._write_sql, self._delete_sql, self._type, self._key = write_sql, delete_sql, row_type, tuple(key)
        self._connection, self._execution = connection, execution
        self.takes_changes = bool(key)

    @override
    def create_writer(self, context: WriterContext) -> TwoPhaseWriter[Any]:
        return _ChangeWriter(self, context)

    @override
    def create_committer(self, context: WriterContext) -> Committer:
        return _NothingToCommit()

    @override
    def check(self) -> None:
        self._connection.database().check()

    @override
    def describe(self) -> dict[str, Any]:
        return {"database": self._connection.database().name, "sql": self._write_sql}

    def runners(self) -> tuple[StatementRunner, StatementRunner | None]:
        """What executes both statements."""
        database = self._connection.database()
        write = StatementRunner(self._write_sql, self._type, database, self._execution)
        if self._delete_sql is None:
            return write, None
        places = [self._type.field_names.index(name) for name in self._key]
        key_type = RowTypeInfo([self._type.field_types[place] for place in places], list(self._key))
        return write, StatementRunner(self._delete_sql, key_type, database, self._execution, write)


class _ChangeWriter(TwoPhaseWriter[Any]):
    """Buffers changes; with a key the last one of each key."""

    blocking = True

    def __init__(self, sink: JdbcTableSink, context: WriterContext) -> None:
        self._write, self._delete = sink.runners()
        self._names, self._execution, self._context = tuple(sink._type.field_names), sink._execution, context
        self._key_places = [self._names.index(name) for name in sink._key]
        self._clock: Clock = SystemClock()
        self._rows: list[tuple[Any, ...]] = []
        self._changes: dict[tuple[Any, ...], tuple[Any, ...] | None] = {}
        """Key -> its row; None = the row is deleted."""
        self._convert: Callable[[Any], Any] = _same if self._write.takes_columns else self._write.database.value_of
        self.takes_columns = self._write.takes_columns or bool(self._key_places)

    @override
    def open(self) -> None:
        self._set_timer()

    def _set_timer(self) -> None:
        interval = self._execution.batch_interval_ms
        if interval:
            self._context.register_timer(self._clock.epoch_ms() + interval, self._time_passed)

    def _time_passed(self) -> None:
        self.flush()
        self._set_timer()

    @override
    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        names, convert = self._names, self._convert
        rows = [tuple([convert(field) for field in row_values(value, names)]) for value in values]
        if self._key_places:
            self._buffer_changes(rows, [value.get_row_kind().value for value in values])
        else:
            self._rows += rows
            self._flush_if_full()

    @override
    def write_columns(self, batch: pa.RecordBatch, timestamps: Any) -> None:
        if self._key_places:
            self.write_changes(batch, np.zeros(batch.num_rows, np.int8), timestamps)
            return
        self.flush()
        ordered = batch.select(list(self._names))
        self._write.in_transaction(lambda connection: self._write.execute(ordered))

    @override
    def write_changes(self, batch: pa.RecordBatch, kinds: npt.NDArray[np.int8], timestamps: Any) -> None:
        ordered = batch.select(list(self._names))
        pairs = zip(ordered.columns, ordered.schema, strict=True)
        convert = self._convert
        columns = [[convert(value) for value in values_of(column, field)] for column, field in pairs]
        self._buffer_changes(zip(*columns, strict=True), kinds.tolist())

    def _buffer_changes(self, rows: Iterable[tuple[Any, ...]], kinds: Sequence[int]) -> None:
        """Keep the last change of each key; ``kinds`` are values of ``RowKind``."""
        update_before, delete = RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value
        for row, kind in zip(rows, kinds, strict=True):
            if kind != update_before:
                key = tuple([row[place] for place in self._key_places])
                self._changes[key] = None if kind == delete else row
        self._flush_if_full()

    def _flush_if_full(self) -> None:
        if 0 < self._execution.batch_size <= len(self._rows) + len(self._changes):
            self.flush()

    @override
    def flush(self) -> None:
        deleted = [key for key, row in self._changes.items() if row is None]
        rows = self._rows + [row for row in self._changes.values() if row is not None]
        if not rows and not deleted:
            return

        def work(connection: Any) -> None:
            if deleted:
                assert self._delete is not None
                self._delete.execute(deleted)
            if rows:
                self._write.execute(rows)

        self._write.in_transaction(work)
        self._rows, self._changes = [], {}

    @override
    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        self.flush()
        return ()

    @override
    def abort(self) -> None:
        self._rows, self._changes = [], {}

    @override
    def close(self) -> None:
        self._write.close()


class _NothingToCommit(Committer):
    @override
    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        assert not committables
        return []


def _same(value: Any) -> Any:
    return value
