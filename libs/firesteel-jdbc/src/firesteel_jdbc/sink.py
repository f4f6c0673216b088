"""A sink that writes records into tables."""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
from typing_extensions import override

from firesteel.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from firesteel.core.clock import Clock, SystemClock
from firesteel.core.errors import FiresteelError, ProgramError
from firesteel.expressions.schema import uncolumnar
from firesteel.expressions.values import arrow_schema, column_of, row_values
from firesteel.functions.sink import WriterContext
from firesteel.functions.two_phase import (
    ALREADY_COMMITTED,
    COMMITTED,
    CommitOutcome,
    CommitResult,
    Committable,
    Committer,
    TwoPhaseCommitSink,
    TwoPhaseWriter,
)
from firesteel_jdbc.databases import Database, DatabaseConnection, statement
from firesteel_jdbc.options import JdbcConnectionOptions, JdbcExactlyOnceOptions, JdbcExecutionOptions

__all__ = ["JdbcSink"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_DAY_MS: Final = 24 * 3600 * 1000
Rows = list[tuple[Any, ...]]


class JdbcSink(TwoPhaseCommitSink[Any]):
    """Executes a statement for each record. Made by ``JdbcSink.sink(...)`` or ``JdbcSink.exactly_once_sink(...)``.

    The fields of a record are the parameters of the statement, in their order.

    Examples:
        ```python
        import pathlib
        import sqlite3

        from firesteel.common import Row, Types
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink

        path = pathlib.Path("shop.db").absolute()  # slots have another working directory
        database = sqlite3.connect(path)
        database.execute("CREATE TABLE sales (name TEXT, amount INTEGER)")
        row = Types.ROW_NAMED(["name", "amount"], [Types.STRING(), Types.INT()])
        connection = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:sqlite:{path}").build()
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        sales = env.from_collection([Row("tea", 2), Row("milk", 1)], type_info=row)
        sales.add_sink(JdbcSink.sink("INSERT INTO sales VALUES (?, ?)", row, connection))
        env.execute()
        print(database.execute("SELECT * FROM sales ORDER BY amount").fetchall())
        database.close()
        ```

        ```text
        [('milk', 1), ('tea', 2)]
        ```
    """

    def __init__(
        self,
        sql: str,
        type_info: TypeInformation,
        connection: JdbcConnectionOptions,
        execution: JdbcExecutionOptions,
        exactly_once: JdbcExactlyOnceOptions | None = None,
    ) -> None:
        if not isinstance(type_info, RowTypeInfo | TupleTypeInfo):
            raise TypeError(f"JdbcSink takes records of a row or tuple type, not {type_info}")
        count = statement(sql, "qmark")[1]
        fields = len(type_info.field_types)
        if count != fields:
            raise ProgramError(f"JdbcSink: the statement has {count} parameters (?), and the records {fields} fields")
        self._sql, self._type = sql, type_info
        self._connection, self._execution, self._exactly_once = connection, execution, exactly_once

    @staticmethod
    def sink(
        sql: str,
        type_info: TypeInformation,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> JdbcSink:
        """A sink that executes a statement for each record at least once.

        With a statement that may be repeated (``INSERT ... ON CONFLICT ... DO UPDATE``) the table ends as if each
        statement had been executed once. All records before a barrier are written before the checkpoint is complete.

        Args:
            sql: statement with a ``?`` for each field.
            type_info: type of the records: rows or tuples.
            jdbc_connection_options: database to connect to.
            jdbc_execution_options: batches and retries; None = the defaults.

        Raises:
            ProgramError: the statement has not as many parameters as records have fields.
        """
        return JdbcSink(sql, type_info, jdbc_connection_options, jdbc_execution_options or JdbcExecutionOptions())

    @staticmethod
    def exactly_once_sink(
        sql: str,
        type_info: TypeInformation,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
        jdbc_exactly_once_options: JdbcExactlyOnceOptions | None = None,
    ) -> JdbcSink:
        """A sink that executes a statement for each record once.

        A checkpoint holds the records before its barrier, and one transaction writes them when the checkpoint is
        complete. The same transaction notes its commit in a table of the sink, so repeating it has no effect.

        Args:
            sql: statement with a ``?`` for each field.
            type_info: type of the records: rows or tuples.
            jdbc_connection_options: database to connect to, which must have transactions.
            jdbc_execution_options: number of records that are written at once; None = the defaults.
            jdbc_exactly_once_options: table of the sink; None = ``firesteel_commits``.

        Raises:
            ProgramError: the statement has not as many parameters as records have fields.
        """
        return JdbcSink(
            sql,
            type_info,
            jdbc_connection_options,
            jdbc_execution_options or JdbcExecutionOptions(),
            jdbc_exactly_once_options or JdbcExactlyOnceOptions(),
        )

    def create_writer(self, context: WriterContext) -> TwoPhaseWriter[Any]:
        """Make a writer, which executes statements or, exactly once, buffers records for the commit."""
        if self._exactly_once is None:
            return _StatementWriter(self._statement(), self._execution, context)
        return _BufferingWriter(self._type)

    def create_committer(self, context: WriterContext) -> Committer:
        """Make the committer, which writes the records of complete checkpoints."""
        return _JdbcCommitter(self._statement(), self._exactly_once or JdbcExactlyOnceOptions())

    def _statement(self) -> StatementRunner:
        return StatementRunner(self._sql, self._type, self._connection.database(), self._execution)

    def check(self) -> None:
        """Check that the driver is installed.

        Raises:
            ProgramError: the driver is missing.
        """
        self._connection.database().check()

    @override
    def describe(self) -> dict[str, Any]:
        return {"database": self._connection.database().name, "sql": self._sql}


class StatementRunner:
    """Executes a statement for many records, on one connection that is opened again after errors.

    Args:
        sql: the statement.
        type_info: type of the records.
        database: to connect to.
        execution: batches and retries.
        owner: has the connection; None = this one has its own.
    """

    def __init__(
        self,
        sql: str,
        type_info: TypeInformation,
        database: Database,
        execution: JdbcExecutionOptions,
        owner: StatementRunner | None = None,
    ) -> None:
        self._sql, self._type, self.database, self._execution = sql, type_info, database, execution
        self._owner = owner
        self._open: DatabaseConnection | None = None
        self.takes_columns = database.columns and isinstance(type_info, RowTypeInfo) and uncolumnar(type_info) is None

    def connection(self) -> DatabaseConnection:
        if self._owner is not None:
            return self._owner.connection()
        if self._open is None:
            self._open = self.database.connect()
        return self._open

    def execute(self, rows: Rows | pa.RecordBatch) -> None:
        """Execute the statement for each row, in the transaction that is open."""
        connection, size = self.connection(), self._execution.batch_size or len(rows) or 1
        for start in range(0, len(rows), size):
            piece: Any
            if isinstance(rows, pa.RecordBatch):
                piece = rows.slice(start, size)
            else:
                piece = rows[start : start + size]
                if self.takes_columns:
                    piece = self._batch(piece)
            connection.run_many(self._sql, piece)

    def _batch(self, rows: Rows) -> pa.RecordBatch:
        """Columns of the declared types; an ADBC driver would guess them, which it can't where all values are None."""
        assert isinstance(self._type, RowTypeInfo)
        schema = arrow_schema(self._type)
        columns = zip(*rows, strict=True)
        arrays = [
            column_of(values, name, kind)
            for values, name, kind in zip(columns, schema.names, self._type.field_types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def in_transaction(self, work: Callable[[DatabaseConnection], Any]) -> Any:
        """Do some work in a transaction; after an error it is repeated with a new connection.

        Raises:
            FiresteelError: all attempts have failed.
        """
        attempt = 0
        while True:
            try:
                connection = self.connection()
                result = work(connection)
                connection.commit()
                return result
            except Exception as error:
                self.close()
                attempt += 1
                if attempt > self._execution.max_retries:
                    raise FiresteelError(
                        f"JDBC: {self.database.name}: {type(error).__name__}: {error} "
                        f"({attempt} attempts at {self._sql!r})"
                    ) from error
                time.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (attempt - 1)))

    def close(self) -> None:
        """Roll back what is not committed, and close the connection."""
        connection, self._open = self._open, None
        if connection is not None:
            for end in (connection.rollback, connection.close):
                try:
                    end()
                except Exception:  # the connection may be broken, which is why it is closed
                    continue


class _TupleWriter(TwoPhaseWriter[Any]):
    """Converts records to tuples of parameters, and buffers them."""

    def __init__(self, type_info: TypeInformation) -> None:
        names = type_info.field_names if isinstance(type_info, RowTypeInfo) else None
        self._names = None if names is None else tuple(names)
        self.buffered: Rows = []

    def _tuples(self, values: Sequence[Any]) -> Rows:
        if self._names is None:
            return [tuple(value) for value in values]
        names = self._names
        return [tuple(row_values(value, names)) for value in values]

    def abort(self) -> None:
        self.buffered.clear()


class _StatementWriter(_TupleWriter):
    """Writes records at least once: records that were not acknowledged before a failure are written again."""

    def __init__(self, run: StatementRunner, execution: JdbcExecutionOptions, context: WriterContext) -> None:
        super().__init__(run._type)
        self._run, self._execution, self._context = run, execution, context
        self._clock: Clock = SystemClock()
        self.blocking = True
        self.takes_columns = run.takes_columns

    def open(self) -> None:
        if self._execution.batch_interval_ms:
            self._set_timer()

    def _set_timer(self) -> None:
        self._context.register_timer(self._clock.epoch_ms() + self._execution.batch_interval_ms, self._time_passed)

    def _time_passed(self) -> None:
        self.flush()
        self._set_timer()

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        self.buffered += self._tuples(values)
        if 0 < self._execution.batch_size <= len(self.buffered):
            self.flush()

    def write_columns(self, batch: pa.RecordBatch, timestamps: Any) -> None:
        self.flush()
        ordered = batch.select(list(self._names)) if self._names is not None else batch
        self._run.in_transaction(lambda connection: self._run.execute(ordered))

    def flush(self) -> None:
        if self.buffered:
            rows = self.buffered
            self._run.in_transaction(lambda connection: self._run.execute(rows))
            self.buffered = []

    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        self.flush()
        return ()

    def close(self) -> None:
        self._run.close()


class _BufferingWriter(_TupleWriter):
    """Buffers records for exactly once: they go into the checkpoint, and the committer writes them."""

    def __init__(self, type_info: TypeInformation) -> None:
        super().__init__(type_info)
        self._id = uuid.uuid4().hex
        self._count = 0

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        self.buffered += self._tuples(values)

    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        if not self.buffered:
            return ()
        rows, self.buffered = self.buffered, []
        self._count += 1
        return [pickle.dumps((f"{self._id}-{self._count}", rows), protocol=5)]


class _JdbcCommitter(Committer):
    """Writes the records of a checkpoint, and notes that it has, in one transaction.

    Another attempt that commits the same records at the same time waits for the transaction, and then finds the note.
    """

    def __init__(self, run: StatementRunner, options: JdbcExactlyOnceOptions) -> None:
        self._run, self._options = run, options
        self._clock: Clock = SystemClock()
        self._ready = False

    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        """Commit all of them in one transaction; if it fails, none is written, or the outcome is unknown."""
        if not committables:
            return []
        try:
            if not self._ready:
                self._run.in_transaction(self._prepare)
                self._ready = True
            written: list[bool] = self._run.in_transaction(
                lambda connection: [self._write(connection, committable) for committable in committables]
            )
        except FiresteelError as error:
            return [CommitResult(CommitOutcome.UNKNOWN, str(error))] * len(committables)
        return [COMMITTED if is_new else ALREADY_COMMITTED for is_new in written]

    def _prepare(self, connection: DatabaseConnection) -> None:
        """Create the table of notes, and remove old notes."""
        table = self._options.table
        connection.run(f"CREATE TABLE IF NOT EXISTS {table} (id VARCHAR(64) PRIMARY KEY, committed_ms BIGINT NOT NULL)")
        oldest = self._clock.epoch_ms() - self._options.keep_days * _DAY_MS
        connection.run(f"DELETE FROM {table} WHERE committed_ms < {oldest}")

    def _write(self, connection: DatabaseConnection, committable: Committable) -> bool:
        """Write the records of a committable; False if they were written before."""
        name, rows = pickle.loads(committable.data)
        noted = connection.run(
            f"INSERT INTO {self._options.table} (id, committed_ms) VALUES ('{name}', {self._clock.epoch_ms()}) "
            "ON CONFLICT DO NOTHING RETURNING id"
        )
        if not noted:
            return False
        self._run.execute(rows)
        return True

    @override
    def close(self) -> None:
        self._run.close()
