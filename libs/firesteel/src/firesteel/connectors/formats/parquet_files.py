"""Reads and writes files of Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

from firesteel.common.configuration import Configuration
from firesteel.common.serialization import BulkWriter, RowDataBulkWriterFactory
from firesteel.common.typeinfo import RowTypeInfo, TypeInformation
from firesteel.common.types import make_row
from firesteel.connectors.file_format import BulkFormat, ContainerFormat
from firesteel.connectors.filesystems.file_system import FileSystems
from firesteel.connectors.formats.column_types import check_column, columns_in_order, fitted, place_of
from firesteel.connectors.formats.declared_types import digits_of, narrowed, narrowed_digits
from firesteel.connectors.formats.declared_types import row_type as checked_row_type
from firesteel.connectors.malformed import MalformedPolicy, MalformedRecords
from firesteel.connectors.split_reader import Chunk, SplitCursor
from firesteel.core.call_each import call_each
from firesteel.core.errors import ProgramError
from firesteel.expressions.schema import FILE, UTC_FILE, Digits, digits_of_parts, uncolumnar
from firesteel.expressions.values import RECORDS, ROW, arrow_schema, column_of, row_values, values_of
from firesteel.functions.source import Split, Wait

__all__ = ["ParquetBulkWriters", "ParquetColumnarRowInputFormat"]

BATCH_ROWS: Final = 2048
ROW_GROUP_ROWS: Final = 64 * 1024
_COMPRESSIONS: Final = ("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI")
_ROW_BYTES: Final = 16
"""Estimate of the bytes of a field that is buffered."""


class ParquetColumnarRowInputFormat(ContainerFormat, BulkFormat):
    """Files of Parquet as rows; only the columns of the row type are read. Large files are split between row groups.

    A column that a file does not have is None, as in Flink. The file is malformed if a column's type can't be converted
    to the declared type, or if several columns have the same name. Timestamps of nanoseconds are cut to microseconds.
    Decimal numbers have the digits that ``DataTypes.DECIMAL(precision, scale)`` declares; numbers of
    ``Types.BIG_DEC()`` have 38 digits, 18 of them behind the point.

    Args:
        row_type: names and types of the columns to read.
        hadoop_config: a ``Configuration`` or dict; has no effect, because there is no Hadoop here.
        batch_size: rows that are decoded at once.
        is_utc_timestamp: has no effect: timestamps without a zone are read as they are, those with a zone in UTC.
        is_case_sensitive: names of columns may differ by case only.

    Raises:
        ProgramError: the batch size is below 1.
        TypeError: the type is no row type, or a field's type can't be a column.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import FileSource
        from firesteel.datastream.formats.parquet import ParquetColumnarRowInputFormat
        from firesteel.table import DataTypes

        row = DataTypes.ROW([DataTypes.FIELD("name", DataTypes.STRING()), DataTypes.FIELD("amount", DataTypes.INT())])
        source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(row), "file:///data/sales.parquet").build()
        ```
    """

    def __init__(
        self,
        row_type: Any,
        hadoop_config: Any = None,
        batch_size: int = BATCH_ROWS,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        self._row_type = checked_row_type(row_type, "ParquetColumnarRowInputFormat")
        self._digits: Digits = digits_of(row_type)
        arrow_schema(self._row_type)  # raises at once if a type can't be a column
        _plain(hadoop_config)
        if batch_size < 1:
            raise ProgramError(f"ParquetColumnarRowInputFormat: the batch size is at least 1, not {batch_size}")
        self._batch_size, self._case_sensitive = batch_size, is_case_sensitive

    def open_cursor(self, split: Split, malformed: MalformedRecords) -> SplitCursor[Any]:
        """Open a cursor over the row groups that begin in the range."""
        as_rows = malformed.policy is MalformedPolicy.EMIT  # then the stream has malformed records among its rows
        columns = _RowColumns(self._row_type, self._digits, self._case_sensitive, as_rows=as_rows)
        return ParquetCursor(split, malformed, columns, self._batch_size, self.files)

    @override
    def produced_type(self) -> TypeInformation:
        return self._row_type

    def with_columns(self, names: Sequence[str]) -> ParquetColumnarRowInputFormat:
        """The same format with fewer columns; the others are not read, and their types are not checked."""
        narrower = ParquetColumnarRowInputFormat(
            narrowed(self._row_type, names), batch_size=self._batch_size, is_case_sensitive=self._case_sensitive
        )
        narrower._digits = narrowed_digits(self._row_type, self._digits, names)
        return narrower


def _paths(name: str, stored: pa.DataType, declared: pa.DataType) -> list[str]:
    """The parts of a column of a file that are read: of rows the declared fields, whose values are stored apart."""
    if not pa.types.is_struct(stored) or not pa.types.is_struct(declared):
        return [name]
    names = [field.name for field in stored]
    if any("." in part for part in (name, *names)):  # such a path would be ambiguous
        return [name]
    fields = [field for field in declared if field.name in names]
    paths = [path for field in fields for path in _paths(field.name, stored.field(field.name).type, field.type)]
    return [f"{name}.{path}" for path in paths] or [name]


class _RowColumns:
    """Converts batches of a file to the declared columns, as batches or, if asked for, as rows."""

    def __init__(self, row: RowTypeInfo, digits: Digits, case_sensitive: bool, *, as_rows: bool) -> None:
        self._names, self._case_sensitive = row.field_names, case_sensitive
        self._schema = arrow_schema(row, None, FILE, digits)
        self._types = row.field_types
        self._stream, self._as_rows = arrow_schema(row, {RECORDS: ROW}), as_rows or uncolumnar(row) is not None

    def chosen(self, schema: pa.Schema) -> list[str]:
        """The declared columns that a file has, by name, or path of a field; ``__call__`` takes batches of this file.

        Raises:
            ValueError: a name is ambiguous in the file, or a column is of another type.
        """
        self._places: list[str | None] = [self._place(name, schema.names) for name in self._names]
        for field, place in zip(self._schema, self._places, strict=True):
            if place is not None:
                check_column(place, schema.field(place).type, field.type)
        places = zip(self._schema, self._places, strict=True)
        return [path for field, name in places if name for path in _paths(name, schema.field(name).type, field.type)]

    def _place(self, name: str, names: Sequence[str]) -> str | None:
        if self._case_sensitive:
            return place_of(name, names)
        matches = [file_name for file_name in names if file_name.lower() == name.lower()]
        if len(matches) > 1:
            raise ValueError(f"the name {name!r} stands for several columns: {', '.join(matches)}")
        return matches[0] if matches else None

    def __call__(self, batch: pa.RecordBatch) -> Any:
        """Convert a batch of the file.

        Raises:
            ValueError: a column can't be converted to its type.
        """
        arrays = []
        for field, place in zip(self._schema, self._places, strict=True):
            if place is None:
                arrays.append(pa.nulls(batch.num_rows, field.type))
                continue
            arrays.append(fitted(place, batch.column(batch.schema.get_field_index(place)), field.type))
        if not self._as_rows:
            stream_columns = [self._column(number, array) for number, array in enumerate(arrays)]
            return pa.RecordBatch.from_arrays(stream_columns, schema=self._stream)
        columns = [self._values(number, array) for number, array in enumerate(arrays)]
        return [make_row(self._names, values) for values in zip(*columns, strict=True)]

    def _column(self, number: int, array: pa.Array) -> pa.Array:
        """A column with the type that it has in the stream; few types differ from those in files."""
        if array.type == self._stream.field(number).type:
            return array
        return column_of(self._values(number, array), self._names[number], self._types[number])

    def _values(self, number: int, array: pa.Array) -> list[Any]:
        return values_of(array, self._stream.field(number))


class ParquetCursor(SplitCursor[Any]):
    """Reads the row groups of a split: those whose first byte is in the split's range.

    The position is ``[number of a row group, rows of it that were returned]``; -1 behind the last row group.

    Args:
        split: split of the source.
        malformed: decides about row groups that can't be read.
        columns: ``chosen(schema of the file)`` names the columns to read; called with a batch it gives the values.
        batch_size: rows that are decoded at once.
        files: file systems of the job.
    """

    def __init__(
        self, split: Split, malformed: MalformedRecords, columns: Any, batch_size: int, files: FileSystems
    ) -> None:
        self._files = files
        self._path = str(split.data["path"])
        self._start, self._end = int(split.data["start"]), int(split.data["end"])  # type: ignore[arg-type]
        self._malformed, self._columns, self._batch_size = malformed, columns, batch_size
        self._resume = split.position if isinstance(split.position, list) else None
        self._file: pq.ParquetFile | None = None
        self._groups: list[int] | None = None
        self._chosen: list[str] = []
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._values: Any = []
        """Values of the current batch."""
        self._offset = 0
        """Number of these values that were returned."""
        self._returned = 0
        """Rows of the current row group that were returned."""

    def read(self, max_records: int) -> Chunk[Any] | Wait:
        """Return the next rows of the current row group, at most so many."""
        if self._groups is None:
            instead = self._begin()
            if instead:
                return Chunk(instead, [-1, 0], finished=True)
        assert self._groups is not None
        while self._offset >= len(self._values):
            if not self._groups:
                return Chunk([], [-1, 0], finished=True)
            try:
                self._values, self._offset = self._next_batch(), 0
            except (pa.ArrowException, ValueError, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                return self._give_up(error)
        if isinstance(self._values, list):
            values = self._values[self._offset : self._offset + max_records]
        else:
            values = self._values.slice(self._offset, max_records)
        self._offset += len(values)
        self._returned += len(values)
        return Chunk(values, [self._groups[0], self._returned])

    def _source(self) -> Any:
        """Path of a local file, which Arrow reads itself; else a stream that fetches only the columns that are read."""
        system = self._files.of(self._path)
        return system.open(self._path) if system.remote else self._path

    def _begin(self) -> list[Any]:
        """Open the file; returns what stands for a file that can't be read."""
        self._groups = []
        problem = "no file of Parquet that can be read"
        try:
            self._file = file = pq.ParquetFile(self._source())
            problem = "its columns can't be read"
            self._chosen = self._columns.chosen(file.schema_arrow)
        except (pa.ArrowException, ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            if self._start or self._resume is not None:
                return []  # the first range of the file reports it
            return list(self._malformed.found(self._path, 0, f"{problem}: {error}"))
        groups = range(file.metadata.num_row_groups)
        self._groups = [i for i in groups if self._start <= _begin_of(file.metadata, i) < self._end]
        if self._resume is not None:
            first, self._returned = self._resume
            self._groups = [i for i in self._groups if i >= first >= 0]
        return []

    def _next_batch(self) -> Any:
        """The next values of the current row group; empty at its end, when the next row group becomes current."""
        assert self._file is not None
        assert self._groups is not None
        skip = 0
        if self._batches is None:
            skip = self._returned
            if not self._chosen:
                # The file has none of the columns, so only the number of rows counts.
                rows = self._file.metadata.row_group(self._groups[0]).num_rows
                self._batches = iter([pa.RecordBatch.from_struct_array(pa.nulls(rows, pa.struct([])))])
            else:
                self._batches = self._file.iter_batches(
                    self._batch_size, row_groups=self._groups[:1], columns=self._chosen
                )
        while True:
            batch = next(self._batches, None)
            if batch is None:
                self._next_group()
                return []
            if skip < batch.num_rows:
                return self._columns(batch.slice(skip))
            skip -= batch.num_rows

    def _next_group(self) -> None:
        assert self._groups is not None
        del self._groups[0]
        self._batches, self._returned = None, 0

    def _give_up(self, error: Exception) -> Chunk[Any] | Wait:
        """Leave out the rest of the current row group."""
        assert self._file is not None
        assert self._groups is not None
        group, returned = self._groups[0], self._returned
        rows = self._file.metadata.row_group(group).num_rows
        begin = _begin_of(self._file.metadata, group)
        reason = f"row group {group}: {rows - returned} of its {rows} rows can't be read: {error}"
        self._next_group()
        self._values, self._offset = [], 0
        instead = list(self._malformed.found(self._path, begin, reason))
        position = [self._groups[0] if self._groups else -1, 0]
        return Chunk(instead, position, finished=not self._groups) if instead or not self._groups else Wait(0.0)

    @override
    def close(self) -> None:
        if self._file is not None:
            self._file.close(force=True)


def _begin_of(metadata: Any, group: int) -> int:
    """Position of the first byte of a row group."""
    first = metadata.row_group(group).column(0)
    dictionary = first.dictionary_page_offset
    return int(first.data_page_offset if dictionary is None else min(dictionary, first.data_page_offset))


class ParquetBulkWriters:
    """Makes factories of writers of Parquet files.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import FileSink
        from firesteel.datastream.formats.parquet import ParquetBulkWriters
        from firesteel.table import DataTypes

        row = DataTypes.ROW([DataTypes.FIELD("name", DataTypes.STRING()), DataTypes.FIELD("amount", DataTypes.INT())])
        sink = FileSink.for_bulk_format("file:///data/out", ParquetBulkWriters.for_row_type(row)).build()
        ```
    """

    @staticmethod
    def for_row_type(row_type: Any, hadoop_config: Any = None, utc_timestamp: bool = False) -> ParquetRowWriterFactory:
        """Make a factory of writers that take rows.

        Args:
            row_type: names and types of the columns.
            hadoop_config: a ``Configuration`` or dict, of which only ``parquet.compression`` has an effect
                (``UNCOMPRESSED``, ``SNAPPY``, ``GZIP``, ``ZSTD``, ``LZ4``, ``BROTLI``).
            utc_timestamp: timestamps are marked as UTC.

        Raises:
            ProgramError: the compression is not one of these.
            TypeError: the type is no row type, or a field's type can't be a column.
        """
        return ParquetRowWriterFactory(row_type, hadoop_config, utc_timestamp)


class ParquetRowWriterFactory(RowDataBulkWriterFactory):
    """Makes writers of rows, which also take columns; columns of the types that files have are written unchanged."""

    takes_columns = True

    def __init__(self, row_type: Any, hadoop_config: Any, utc_timestamp: bool) -> None:
        declared = checked_row_type(row_type, "ParquetBulkWriters.for_row_type()")
        super().__init__(declared)
        self._declared, self._digits = declared, digits_of(row_type)
        self._layout = UTC_FILE if utc_timestamp else FILE
        arrow_schema(declared)  # raises at once if a type can't be a column
        self._compression = _compression(hadoop_config)

    def create(self, stream: IO[bytes]) -> BulkWriter:
        """Make the writer of one file."""
        names, types = self._declared.field_names, self._declared.field_types
        layout, digits = self._layout, digits_of_parts(self._digits, len(names))

        def rows(value: Any) -> list[Any]:
            return row_values(value, names)

        def column(number: int, values: Sequence[Any]) -> pa.Array:
            return column_of(values, names[number], types[number], layout, digits[number])

        schema = arrow_schema(self._declared, None, layout, self._digits)
        return ParquetWriter(stream, schema, rows, column, self._compression)


def _plain(hadoop_config: Any) -> dict[str, Any]:
    """The settings of a ``Configuration``, which PyFlink takes, or of a dict.

    Raises:
        TypeError: the argument is neither.
    """
    if hadoop_config is None:
        return {}
    if isinstance(hadoop_config, Configuration):
        return dict(hadoop_config.to_dict())
    if isinstance(hadoop_config, dict):
        return hadoop_config
    raise TypeError(f"hadoop_config is a Configuration or a dict, not {type(hadoop_config).__name__}")


def _compression(hadoop_config: Any) -> str:
    compression = str(_plain(hadoop_config).get("parquet.compression", "SNAPPY")).upper()
    if compression not in _COMPRESSIONS:
        raise ProgramError(f"parquet.compression {compression!r} is not one of {', '.join(_COMPRESSIONS)}")
    return "NONE" if compression == "UNCOMPRESSED" else compression


class ParquetWriter(BulkWriter):
    """Writes one file of Parquet. Rows and columns are buffered until they fill a row group.

    Args:
        stream: the empty file.
        schema: schema of its columns.
        fields: function of a record that gives its values in the schema's order.
        column: function of a column's number and values that gives the column; raises ``TypeError`` or ``ValueError``.
        compression: codec of the columns.
    """

    def __init__(
        self,
        stream: IO[bytes],
        schema: pa.Schema,
        fields: Callable[[Any], list[Any]],
        column: Callable[[int, Sequence[Any]], pa.Array],
        compression: str,
    ) -> None:
        self._schema, self._fields, self._make = schema, fields, column
        self._writer = pq.ParquetWriter(stream, schema, compression=compression)
        self._rows: list[list[Any]] = []
        """Buffered rows that are not columns yet."""
        self._batches: list[pa.RecordBatch] = []
        """Buffered columns; their rows come before ``_rows``."""
        self._count = 0
        """Number of all buffered rows."""

    def write(self, elements: Sequence[Any]) -> None:
        """Buffer records; row groups that are full are written."""
        self._rows.extend(call_each(self._fields, elements))
        self._add_count(len(elements))

    def write_columns(self, batch: pa.RecordBatch) -> None:
        """Buffer columns; row groups that are full are written.

        Raises:
            ValueError: the columns do not fit those of the file.
        """
        self._columns_of_rows()
        ordered = columns_in_order(batch, tuple(self._schema.names))
        arrays = [
            column if column.type == stored.type else self._column(number, values_of(column, field))
            for number, ((column, field), stored) in enumerate(zip(ordered, self._schema, strict=True))
        ]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._add_count(batch.num_rows)

    def _add_count(self, count: int) -> None:
        self._count += count
        if self._count >= ROW_GROUP_ROWS:
            self._flush(self._count - self._count % ROW_GROUP_ROWS)

    def _columns_of_rows(self) -> None:
        if self._rows:
            rows, self._rows = self._rows, []
            arrays = [self._column(number, column) for number, column in enumerate(zip(*rows, strict=True))]
            self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def _column(self, number: int, values: Sequence[Any]) -> pa.Array:
        field = self._schema.field(number)
        try:
            return self._make(number, values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"a value of column {field.name!r} is no {field.type}: {error}") from error

    def _flush(self, count: int) -> None:
        """Write the first rows of the buffer."""
        self._columns_of_rows()
        table = pa.Table.from_batches(self._batches, self._schema)
        self._writer.write_table(table.slice(0, count), row_group_size=ROW_GROUP_ROWS)
        self._batches = table.slice(count).to_batches()
        self._count -= count

    def finish(self) -> None:
        """Write the last row group and the footer."""
        if self._count:
            self._flush(self._count)
        self._writer.close()

    def abort(self) -> None:
        """Keep pyarrow's writer from writing a footer when it is garbage-collected."""
        self._writer.is_open = False

    def buffered_bytes(self) -> int:
        """Estimate of the bytes of buffered rows."""
        return self._count * len(self._schema) * _ROW_BYTES
