"""A bounded source of what queries give."""

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


@dataclass(frozen=True)
class JdbcGenericParameterValuesProvider:
    """A split for each of these lists of parameters, which can be JSON.

    Attributes:
        parameters: of the query, for each split.
    """

    parameters: Sequence[Sequence[Any]]

    def get_parameter_values(self) -> list[list[Any]]:
        """Of all splits."""
        return [list(one) for one in self.parameters]


class JdbcNumericBetweenParametersProvider:
    """Splits a range of numbers, for a query with ``BETWEEN ? AND ?``.

    Args:
        min_val: first number.
        max_val: last number.
    """

    def __init__(self, min_val: int, max_val: int) -> None:
        if min_val > max_val:
            raise ProgramError(f"JdbcNumericBetweenParametersProvider: {min_val} is above {max_val}")
        self._first, self._last = min_val, max_val
        self._splits = 1

    def of_batch_size(self, batch_size: int) -> JdbcNumericBetweenParametersProvider:
        """Splits of so many numbers."""
        if batch_size < 1:
            raise ProgramError(f"of_batch_size() takes at least 1, not {batch_size}")
        return self.of_batch_num(-(-(self._last - self._first + 1) // batch_size))

    def of_batch_num(self, batch_num: int) -> JdbcNumericBetweenParametersProvider:
        """So many splits; not more than there are numbers."""
        if batch_num < 1:
            raise ProgramError(f"of_batch_num() takes at least 1, not {batch_num}")
        self._splits = min(batch_num, self._last - self._first + 1)
        return self

    def get_parameter_values(self) -> list[list[Any]]:
        """First and last number of all splits."""
        total = self._last - self._first + 1
        cuts = [self._first + total * number // self._splits for number in range(self._splits + 1)]
        return [[low, high - 1] for low, high in pairwise(cuts)]


class JdbcSource(Source[Any]):
    """What a query gives, once for each split. Made by ``JdbcSource.builder()``.

    The position in a split is a number of rows: after a restart the query is executed again, and so many rows are
    passed over. A query that is read with checkpoints says ``ORDER BY``, and the rows stay as they are meanwhile.
    Values come in the declared types, whatever the driver makes of them (``jdbc.values``).
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
        self._parameters, self._fetch_size = [list(one) for one in parameters], fetch_size

    @staticmethod
    def builder() -> JdbcSourceBuilder:
        """A builder without settings."""
        return JdbcSourceBuilder()

    @property
    @override
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def enumerator(self) -> EnumeratorSpec:
        """The splits; the database is not asked."""
        splits = [
            Split(f"query-{number}", {"parameters": one}).to_plain() for number, one in enumerate(self._parameters)
        ]
        return EnumeratorSpec("static", {"splits": splits})

    def create_reader(self, context: ReaderContext) -> SplitQueueReader[Any]:
        """Has a connection for each split that it reads."""
        return _Reader(self)

    @override
    def produced_type(self) -> TypeInformation:
        return self._type

    def open(self, split: Split) -> SplitCursor[Any]:
        """Execute the query of a split."""
        parameters = split.data["parameters"]
        assert isinstance(parameters, list)
        connection = self._connection.database().connect()
        try:
            return _Cursor(connection, self._sql, parameters, self._type, self._fetch_size, split.position)
        except BaseException:
            connection.close()
            raise


class JdbcSourceBuilder:
    """Builds a ``JdbcSource``."""

    def __init__(self) -> None:
        self._sql = ""
        self._type: TypeInformation | None = None
        self._options: JdbcConnectionOptions | None = None
        self._parameters: list[list[Any]] = [[]]
        self._fetch_size = _FETCHED

    def set_connection_options(self, options: JdbcConnectionOptions) -> JdbcSourceBuilder:
        """Say which database."""
        self._options = options
        return self

    def set_sql(self, sql: str) -> JdbcSourceBuilder:
        """Read what this query gives, with a ``?`` for each parameter of a split."""
        self._sql = sql
        return self

    def set_type_information(self, type_info: TypeInformation) -> JdbcSourceBuilder:
        """Say which rows these are: names and types of the columns, in their order."""
        self._type = type_info
        return self

    def set_jdbc_parameter_values_provider(
        self, provider: JdbcNumericBetweenParametersProvider | JdbcGenericParameterValuesProvider
    ) -> JdbcSourceBuilder:
        """Read several splits at once; by default the query is one split."""
        self._parameters = provider.get_parameter_values()
        return self

    def set_result_set_fetch_size(self, fetch_size: int) -> JdbcSourceBuilder:
        """Fetch so many rows at once, where the driver can be told."""
        if fetch_size < 1:
            raise ProgramError(f"set_result_set_fetch_size() takes at least 1, not {fetch_size}")
        self._fetch_size = fetch_size
        return self

    def build(self) -> JdbcSource:
        """The source.

        Raises:
            ProgramError: something is missing or does not fit, or the driver is not installed.
            TypeError: the type is not that of rows.
        """
        if not self._sql or self._options is None:
            raise ProgramError("JdbcSource: set_sql() and set_connection_options() are needed")
        if not isinstance(self._type, RowTypeInfo):
            raise TypeError(f"JdbcSource: set_type_information() takes a row type, not {self._type}")
        count = statement(self._sql, "qmark")[1]
        for one in self._parameters:
            if len(one) != count:
                raise ProgramError(f"JdbcSource: the query has {count} parameters (?), and a split {len(one)}: {one}")
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
        self._offset = self._given = 0
        left = position if isinstance(position, int) else 0
        while left:
            piece = next(self._pieces, None)
            if piece is None:
                raise ProgramError(
                    f"JdbcSource: the query gives fewer rows than the {position} that were read before the restart"
                )
            if len(piece) > left:
                self._pieces = chain([piece[left:] if isinstance(piece, list) else piece.slice(left)], self._pieces)
            left -= min(left, len(piece))
        self._given = position if isinstance(position, int) else 0

    def read(self, max_records: int) -> Chunk[Any]:
        while self._offset >= len(self._values):
            piece = next(self._pieces, None)
            if piece is None:
                return Chunk([], self._given, finished=True)
            self._values, self._offset = self._made(piece), 0
        if isinstance(self._values, list):
            values = self._values[self._offset : self._offset + max_records]
        else:
            values = self._values.slice(self._offset, max_records)
        self._offset += len(values)
        self._given += len(values)
        return Chunk(values, self._given)

    def _made(self, piece: Any) -> Any:
        if isinstance(piece, list):
            return [make_row(self._names, values) for values in self._declared.rows(piece)]
        self._declared.check_width(piece.num_columns)
        if self._schema is None:
            rows = list(zip(*(one.to_pylist() for one in piece.columns), strict=True))
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
