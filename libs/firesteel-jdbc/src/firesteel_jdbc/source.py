"""A bounded source of the rows of queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Final

import pyarrow as pa
from typing_extensions import override

from firesteel.common.typeinfo import RowTypeInfo, TypeInformation
from firesteel.common.types import make_row
from firesteel.connectors.split_reader import Chunk, SplitCursor, SplitQueueReader
from firesteel.core.errors import ProgramError
from firesteel.expressions.schema import uncolumnar
from firesteel.expressions.values import RECORDS, ROW, arrow_schema
from firesteel.functions.source import Boundedness, EnumeratorSpec, Plain, ReaderContext, Source, Split
from firesteel_jdbc.databases import DatabaseConnection, statement
from firesteel_jdbc.options import JdbcConnectionOptions
from firesteel_jdbc.values import DeclaredColumns

__all__ = [
    "JdbcGenericParameterValuesProvider",
    "JdbcNumericBetweenParametersProvider",
    "JdbcSource",
    "JdbcSourceBuilder",
]

_FETCHED: Final = 4096
"""Rows that are fetched at once by default."""


@dataclass(frozen=True)
class JdbcGenericParameterValuesProvider:
    """Makes a split of each of several lists of parameters.

    Attributes:
        parameters: parameters of the query for each split; values that JSON can hold.

    Examples:
        ```python
        from firesteel.datastream.connectors.jdbc import JdbcGenericParameterValuesProvider

        provider = JdbcGenericParameterValuesProvider([["tea"], ["milk"]])  # ... WHERE name = ?
        print(len(provider.get_parameter_values()))
        ```

        ```text
        2
        ```
    """

    parameters: Sequence[Sequence[Any]]

    def get_parameter_values(self) -> list[list[Any]]:
        """Parameters of each split."""
        return [list(parameters) for parameters in self.parameters]


class JdbcNumericBetweenParametersProvider:
    """Splits a range of numbers, for a query with ``BETWEEN ? AND ?``.

    Args:
        min_val: first number.
        max_val: last number.

    Examples:
        ```python
        from firesteel.datastream.connectors.jdbc import JdbcNumericBetweenParametersProvider

        provider = JdbcNumericBetweenParametersProvider(1, 10).of_batch_num(2)  # ... WHERE id BETWEEN ? AND ?
        print([list(bounds) for bounds in provider.get_parameter_values()])
        ```

        ```text
        [[1, 5], [6, 10]]
        ```
    """

    def __init__(self, min_val: int, max_val: int) -> None:
        if min_val > max_val:
            raise ProgramError(f"JdbcNumericBetweenParametersProvider: {min_val} is above {max_val}")
        self._first, self._last = min_val, max_val
        self._splits = 1

    def of_batch_size(self, batch_size: int) -> JdbcNumericBetweenParametersProvider:
        """Make splits of at most so many numbers, whose sizes differ by one at most."""
        if batch_size < 1:
            raise ProgramError(f"of_batch_size() takes at least 1, not {batch_size}")
        return self.of_batch_num(-(-(self._last - self._first + 1) // batch_size))

    def of_batch_num(self, batch_num: int) -> JdbcNumericBetweenParametersProvider:
        """Make so many splits, but not more than there are numbers."""
        if batch_num < 1:
            raise ProgramError(f"of_batch_num() takes at least 1, not {batch_num}")
        self._splits = min(batch_num, self._last - self._first + 1)
        return self

    def get_parameter_values(self) -> list[list[Any]]:
        """First and last number of each split."""
        total = self._last - self._first + 1
        cuts = [self._first + total * number // self._splits for number in range(self._splits + 1)]
        return [[low, high - 1] for low, high in pairwise(cuts)]


class JdbcSource(Source[Any]):
    """The rows of a query that is executed once for each split. Made by ``JdbcSource.builder()``.

    The position in a split is a number of rows: after a restart the query is executed again, and so many rows are
    skipped. So with checkpoints the query needs ``ORDER BY``, and its rows must not change while the job runs.
    Values are converted to the declared types, whatever types the driver gives (``firesteel_jdbc.values``).

    Examples:
        ```python
        import pathlib
        import sqlite3

        from firesteel.common import Types, WatermarkStrategy
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSource

        path = pathlib.Path("shop.db").absolute()  # slots have another working directory
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE sales (name TEXT, amount INTEGER)")
            database.execute("INSERT INTO sales VALUES ('tea', 2)")
        row = Types.ROW_NAMED(["name", "amount"], [Types.STRING(), Types.LONG()])
        connection = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:sqlite:{path}").build()
        builder = JdbcSource.builder().set_connection_options(connection).set_sql("SELECT name, amount FROM sales")
        source = builder.set_type_information(row).build()
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        sales = env.from_source(source, WatermarkStrategy.no_watermarks(), "sales")
        print([(sale.name, sale.amount) for sale in sales.execute_and_collect()])
        database.close()
        ```

        ```text
        [('tea', 2)]
        ```
    """

    def __init__(
        self,
        sql: str,
        row_type: RowTypeInfo,
        connection: JdbcConnectionOptions,
        parameters: Sequence[Sequence[Any]],
        fetch_size: int,
    ) -> None:
        self._sql, self._type, self._connection = sql, row_type, connection
        self._parameters, self._fetch_size = [list(values) for values in parameters], fetch_size

    @staticmethod
    def builder() -> JdbcSourceBuilder:
        """A builder without settings."""
        return JdbcSourceBuilder()

    @property
    @override
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def enumerator(self) -> EnumeratorSpec:
        """One split for each list of parameters; the database is not asked."""
        splits = [
            Split(f"query-{number}", {"parameters": parameters}).to_plain()
            for number, parameters in enumerate(self._parameters)
        ]
        return EnumeratorSpec("static", {"splits": splits})

    def create_reader(self, context: ReaderContext) -> SplitQueueReader[Any]:
        """Make the reader of one subtask, which opens a connection for each split."""
        return _Reader(self)

    @override
    def produced_type(self) -> TypeInformation:
        return self._type

    def open(self, split: Split) -> SplitCursor[Any]:
        """Connect, and execute the query of a split."""
        parameters = split.data["parameters"]
        assert isinstance(parameters, list)
        connection = self._connection.database().connect()
        try:
            return _Cursor(connection, self._sql, parameters, self._type, self._fetch_size, split.position)
        except BaseException:
            connection.close()
            raise


class JdbcSourceBuilder:
    """Builds a ``JdbcSource``. Database, query and row type are needed; see ``build``.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSource
        from firesteel.datastream.connectors.jdbc import JdbcNumericBetweenParametersProvider as Between

        row = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
        connection = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:sqlite:/data/shop.db").build()
        builder = JdbcSource.builder().set_connection_options(connection).set_type_information(row)
        builder.set_sql("SELECT id, name FROM goods WHERE id BETWEEN ? AND ?")
        source = builder.set_jdbc_parameter_values_provider(Between(1, 1000).of_batch_size(100)).build()
        ```
    """

    def __init__(self) -> None:
        self._sql = ""
        self._type: TypeInformation | None = None
        self._options: JdbcConnectionOptions | None = None
        self._parameters: list[list[Any]] = [[]]
        self._fetch_size = _FETCHED

    def set_connection_options(self, options: JdbcConnectionOptions) -> JdbcSourceBuilder:
        """Set the database to connect to."""
        self._options = options
        return self

    def set_sql(self, sql: str) -> JdbcSourceBuilder:
        """Set the query, with a ``?`` for each parameter of a split."""
        self._sql = sql
        return self

    def set_type_information(self, type_info: TypeInformation) -> JdbcSourceBuilder:
        """Set the type of the rows: names and types of the columns, in their order."""
        self._type = type_info
        return self

    def set_jdbc_parameter_values_provider(
        self, provider: JdbcNumericBetweenParametersProvider | JdbcGenericParameterValuesProvider
    ) -> JdbcSourceBuilder:
        """Set what makes the splits, which subtasks read at the same time; by default the query is one split."""
        self._parameters = provider.get_parameter_values()
        return self

    def set_result_set_fetch_size(self, fetch_size: int) -> JdbcSourceBuilder:
        """Set how many rows are fetched at once; drivers of columns (ADBC) decide that themselves."""
        if fetch_size < 1:
            raise ProgramError(f"set_result_set_fetch_size() takes at least 1, not {fetch_size}")
        self._fetch_size = fetch_size
        return self

    def build(self) -> JdbcSource:
        """Check the settings and make the source.

        Raises:
            ProgramError: a setting is missing, a split has not as many parameters as the query, or the driver is not
                installed.
            TypeError: the type is not one of rows.
        """
        if not self._sql or self._options is None:
            raise ProgramError("JdbcSource: set_sql() and set_connection_options() are needed")
        if not isinstance(self._type, RowTypeInfo):
            raise TypeError(f"JdbcSource: set_type_information() takes a row type, not {self._type}")
        count = statement(self._sql, "qmark")[1]
        for parameters in self._parameters:
            if len(parameters) != count:
                raise ProgramError(
                    f"JdbcSource: the query has {count} parameters (?), and a split {len(parameters)}: {parameters}"
                )
        self._options.database().check()
        return JdbcSource(self._sql, self._type, self._options, self._parameters, self._fetch_size)


class _Reader(SplitQueueReader[Any]):
    blocking = True

    def __init__(self, source: JdbcSource) -> None:
        super().__init__()
        self._source = source

    def open_split(self, split: Split) -> SplitCursor[Any]:
        return self._source.open(split)


class _Cursor(SplitCursor[Any]):
    """Reads the rows of one split, behind those that were read before a restart."""

    def __init__(
        self,
        connection: DatabaseConnection,
        sql: str,
        parameters: Sequence[Any],
        row_type: RowTypeInfo,
        fetch_size: int,
        position: Plain,
    ) -> None:
        self._connection, self._type = connection, row_type
        self._names, self._declared = tuple(row_type.field_names), DeclaredColumns(row_type)
        self._schema = None if uncolumnar(row_type) else arrow_schema(row_type, {RECORDS: ROW})
        self._pieces: Iterator[Any] = connection.read(sql, parameters, fetch_size)
        self._values: Any = []
        self._offset = self._returned = 0
        rows_to_skip = position if isinstance(position, int) else 0
        while rows_to_skip:
            piece = next(self._pieces, None)
            if piece is None:
                raise ProgramError(
                    f"JdbcSource: the query gives fewer rows than the {position} that were read before the restart"
                )
            if len(piece) > rows_to_skip:
                self._pieces = chain(
                    [piece[rows_to_skip:] if isinstance(piece, list) else piece.slice(rows_to_skip)], self._pieces
                )
            rows_to_skip -= min(rows_to_skip, len(piece))
        self._returned = position if isinstance(position, int) else 0

    def read(self, max_records: int) -> Chunk[Any]:
        while self._offset >= len(self._values):
            piece = next(self._pieces, None)
            if piece is None:
                return Chunk([], self._returned, finished=True)
            self._values, self._offset = self._convert(piece), 0
        if isinstance(self._values, list):
            values = self._values[self._offset : self._offset + max_records]
        else:
            values = self._values.slice(self._offset, max_records)
        self._offset += len(values)
        self._returned += len(values)
        return Chunk(values, self._returned)

    def _convert(self, piece: Any) -> Any:
        """Rows or a batch of the declared types."""
        if isinstance(piece, list):
            return [make_row(self._names, values) for values in self._declared.rows(piece)]
        self._declared.check_width(piece.num_columns)
        if self._schema is None:
            rows = list(zip(*(column.to_pylist() for column in piece.columns), strict=True))
            return [make_row(self._names, values) for values in self._declared.rows(rows)]
        arrays = [
            self._declared.column(number, column, field)
            for number, (column, field) in enumerate(zip(piece.columns, self._schema, strict=True))
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def close(self) -> None:
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()
        self._connection.close()
