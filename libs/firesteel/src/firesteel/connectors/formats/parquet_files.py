"""Files of Parquet, as source and sink."""

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
from firesteel.connectors.formats.arranged import arranged
from firesteel.connectors.formats.column_types import check_column, fitted, place_of
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
_ROW_BYTES: Final = 16
"""A guess for each field that is not in the file yet."""


class ParquetColumnarRowInputFormat(ContainerFormat, BulkFormat):
    """Files of Parquet as rows; only the columns of the row type are read. Large files are cut between row groups.

    A column that a file does not have is None, as in Flink. One of a type whose values are not those of the declared
    type, and a name that several columns have, make the file malformed. Timestamps of nanoseconds are cut to
    microseconds. Decimal numbers have the digits that ``DataTypes.DECIMAL(precision, scale)`` declares;
    of ``Types.BIG_DEC()`` they have 38, 18 of them behind the point.

    Args:
        row_type: names and types of the columns to read.
        hadoop_config: a ``Configuration`` or dict; has no effect, there is no Hadoop here.
        batch_size: rows that are decoded at once.
        is_utc_timestamp: has no effect: timestamps without a zone are read as they stand, those of a zone in UTC.
        is_case_sensitive: names of columns differ by case.

    Raises:
        ProgramError: the batch size is below 1.
        TypeError: not a row type, or a field's type can't be in columns.
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
        arrow_schema(self._row_type)  # refuses types at once
        _plain(hadoop_config)
        if batch_size < 1:
            raise ProgramError(f"ParquetColumnarRowInputFormat: the batch size is at least 1, not {batch_size}")
        self._batch_size, self._case_sensitive = batch_size, is_case_sensitive

    def open_cursor(self, split: Split, malformed: MalformedRecords) -> SplitCursor[Any]:
        """A cursor over the row groups that begin in the range."""
        mixed = malformed.policy is MalformedPolicy.EMIT  # then the source's type is not that of rows
        columns = _RowColumns(self._row_type, self._digits, self._case_sensitive, as_rows=mixed)
        return ParquetCursor(split, malformed, columns, self._batch_size, self.files)

    @override
    def produced_type(self) -> TypeInformation:
        return self._row_type

    def with_columns(self, names: Sequence[str]) -> ParquetColumnarRowInputFormat:
        """The same files; the other columns are not read, nor looked at."""
        made = ParquetColumnarRowInputFormat(
            narrowed(self._row_type, names), batch_size=self._batch_size, is_case_sensitive=self._case_sensitive
        )
        made._digits = narrowed_digits(self._row_type, self._digits, names)
        return made


class _RowColumns:
    """Brings a batch to the declared columns; gives a batch, or rows if that is wanted."""

    def __init__(self, row: RowTypeInfo, digits: Digits, case_sensitive: bool, *, as_rows: bool) -> None:
        self._names, self._case_sensitive = row.field_names, case_sensitive
        self._schema = arrow_schema(row, None, FILE, digits)
        self._types = row.field_types
        self._stream, self._as_rows = arrow_schema(row, {RECORDS: ROW}), as_rows or uncolumnar(row) is not None

    def chosen(self, schema: pa.Schema) -> list[str]:
        """The names in the file of the columns that it has.

        Raises:
            ValueError: a name stands for several columns of the file, or a column is of another type.
        """
        self._places: list[str | None] = [self._place(name, schema.names) for name in self._names]
        for field, place in zip(self._schema, self._places, strict=True):
            if place is not None:
                check_column(place, schema.field(place).type, field.type)
        return [name for name in self._places if name is not None]

    def _place(self, name: str, names: Sequence[str]) -> str | None:
        if self._case_sensitive:
            return place_of(name, names)
        found = [other for other in names if other.lower() == name.lower()]
        if len(found) > 1:
            raise ValueError(f"the name {name!r} stands for several columns: {', '.join(found)}")
        return found[0] if found else None

    def __call__(self, batch: pa.RecordBatch) -> Any:
        """The values.

        Raises:
            ValueError: a column can't be brought to its type.
        """
        arrays = []
        for field, place in zip(self._schema, self._places, strict=True):
            if place is None:
                arrays.append(pa.nulls(batch.num_rows, field.type))
                continue
            arrays.append(fitted(place, batch.column(batch.schema.get_field_index(place)), field.type))
        if not self._as_rows:
            made = [self._column(number, array) for number, array in enumerate(arrays)]
            return pa.RecordBatch.from_arrays(made, schema=self._stream)
        columns = [self._values(number, array) for number, array in enumerate(arrays)]
        return [make_row(self._names, values) for values in zip(*columns, strict=True)]

    def _column(self, number: int, array: pa.Array) -> pa.Array:
        """As the stream has it: few types stand otherwise in files."""
        if array.type == self._stream.field(number).type:
            return array
        return column_of(self._values(number, array), self._names[number], self._types[number])

    def _values(self, number: int, array: pa.Array) -> list[Any]:
        return values_of(array, self._stream.field(number))


class ParquetCursor(SplitCursor[Any]):
    """A row group belongs to the range in which its first byte is.

    The position is ``[number of a row group, rows of it that were given out]``.

    Args:
        split: of the source.
        malformed: is told of row groups that can't be read.
        columns: ``chosen(schema of the file)`` names the columns to read; called with a batch it gives the values.
        batch_size: rows that are decoded at once.
        files: where the file is opened.
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
        self._offset = 0
        """Values of the batch at hand that were given out."""
        self._given = 0
        """Rows of the row group at hand that were given out."""

    def read(self, max_records: int) -> Chunk[Any] | Wait:
        """At most so many rows."""
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
        self._given += len(values)
        return Chunk(values, [self._groups[0], self._given])

    def _source(self) -> Any:
        """Local files are read by Arrow itself; of others it asks for the bytes of columns that it wants."""
        system = self._files.of(self._path)
        return system.open(self._path) if system.remote else self._path

    def _begin(self) -> list[Any]:
        """Open the file; what stands for one that can't be read."""
        self._groups = []
        what = "no file of Parquet that can be read"
        try:
            self._file = file = pq.ParquetFile(self._source())
            what = "its columns can't be read"
            self._chosen = self._columns.chosen(file.schema_arrow)
        except (pa.ArrowException, ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            if self._start or self._resume is not None:
                return []  # the first range of the file reports it
            return list(self._malformed.found(self._path, 0, f"{what}: {error}"))
        groups = range(file.metadata.num_row_groups)
        self._groups = [i for i in groups if self._start <= _begin_of(file.metadata, i) < self._end]
        if self._resume is not None:
            first, self._given = self._resume
            self._groups = [i for i in self._groups if i >= first >= 0]
        return []

    def _next_batch(self) -> Any:
        """The next values of the row group at hand; empty when it is over, then the next one is at hand."""
        assert self._file is not None
        assert self._groups is not None
        skip = 0
        if self._batches is None:
            skip = self._given
            if not self._chosen:
                # no column of the file is wanted: only the number of rows counts
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
        self._batches, self._given = None, 0

    def _give_up(self, error: Exception) -> Chunk[Any] | Wait:
        """Leave out the rest of the row group."""
        assert self._file is not None
        assert self._groups is not None
        group, given = self._groups[0], self._given
        rows = self._file.metadata.row_group(group).num_rows
        where = _begin_of(self._file.metadata, group)
        left = f"row group {group}: {rows - given} of its {rows} rows can't be read: {error}"
        self._next_group()
        self._values, self._offset = [], 0
        instead = list(self._malformed.found(self._path, where, left))
        position = [self._groups[0] if self._groups else -1, 0]
        return Chunk(instead, position, finished=not self._groups) if instead or not self._groups else Wait(0.0)

    @override
    def close(self) -> None:
        if self._file is not None:
            self._file.close(force=True)


def _begin_of(metadata: Any, group: int) -> int:
    """The byte at which a row group begins."""
    first = metadata.row_group(group).column(0)
    dictionary = first.dictionary_page_offset
    return int(first.data_page_offset if dictionary is None else min(dictionary, first.data_page_offset))


class ParquetBulkWriters:
    """Makes the writers of Parquet files."""

    @staticmethod
    def for_row_type(row_type: Any, hadoop_config: Any = None, utc_timestamp: bool = False) -> ParquetRowWriterFactory:
        """The writers of rows.

        Args:
            row_type: names and types of the columns.
            hadoop_config: a ``Configuration`` or dict; of it only ``parquet.compression`` has an effect
                (``UNCOMPRESSED``, ``SNAPPY``, ``GZIP``, ``ZSTD``, ``LZ4``, ``BROTLI``).
            utc_timestamp: timestamps are marked as UTC.

        Raises:
            ProgramError: the compression is not known.
            TypeError: not a row type, or a field's type can't be in columns.
        """
        return ParquetRowWriterFactory(row_type, hadoop_config, utc_timestamp)


class ParquetRowWriterFactory(RowDataBulkWriterFactory):
    """Writes rows as Parquet; columns of the types that stand in the files are written as they are."""

    takes_columns = True

    def __init__(self, row_type: Any, hadoop_config: Any, utc_timestamp: bool) -> None:
        declared = checked_row_type(row_type, "ParquetBulkWriters.for_row_type()")
        super().__init__(declared)
        self._declared, self._digits = declared, digits_of(row_type)
        self._layout = UTC_FILE if utc_timestamp else FILE
        arrow_schema(declared)  # refuses types at once
        self._compression = _compression(hadoop_config)

    def create(self, stream: IO[bytes]) -> BulkWriter:
        """A writer of one file."""
        names, types = self._declared.field_names, self._declared.field_types
        layout, digits = self._layout, digits_of_parts(self._digits, len(names))

        def rows(value: Any) -> list[Any]:
            return row_values(value, names)

        def column(number: int, values: Sequence[Any]) -> pa.Array:
            return column_of(values, names[number], types[number], layout, digits[number])

        schema = arrow_schema(self._declared, None, layout, self._digits)
        return ParquetWriter(stream, schema, rows, column, self._compression)


def _plain(hadoop_config: Any) -> dict[str, Any]:
    """What PyFlink takes, a ``Configuration``, as a dict.

    Raises:
        TypeError: it is neither that nor a dict.
    """
    if hadoop_config is None:
        return {}
    if isinstance(hadoop_config, Configuration):
        return dict(hadoop_config.to_dict())
    if isinstance(hadoop_config, dict):
        return hadoop_config
    raise TypeError(f"hadoop_config is a Configuration or a dict, not {type(hadoop_config).__name__}")


def _compression(hadoop_config: Any) -> str:
    wanted = str(_plain(hadoop_config).get("parquet.compression", "SNAPPY")).upper()
    known = ("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI")
    if wanted not in known:
        raise ProgramError(f"parquet.compression {wanted!r} is not one of {', '.join(known)}")
    return "NONE" if wanted == "UNCOMPRESSED" else wanted


class ParquetWriter(BulkWriter):
    """One file of Parquet.

    Args:
        stream: the empty file.
        schema: of its columns.
        fields: a record -> its values in the schema's order.
        column: number of a column, its values -> the column; raises ``TypeError`` or ``ValueError``.
        compression: of the columns.
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
        self._batches: list[pa.RecordBatch] = []
        """What came before the rows, as columns."""
        self._count = 0
        """Rows in all."""

    def write(self, elements: Sequence[Any]) -> None:
        """Takes records; a row group is written when there are enough."""
        self._rows.extend(call_each(self._fields, elements))
        self._took(len(elements))

    def write_columns(self, batch: pa.RecordBatch) -> None:
        """Takes columns.

        Raises:
            ValueError: they do not fit the file's.
        """
        self._columns_of_rows()
        given = arranged(batch, tuple(self._schema.names))
        arrays = [
            column if column.type == wanted.type else self._column(number, values_of(column, field))
            for number, ((column, field), wanted) in enumerate(zip(given, self._schema, strict=True))
        ]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._took(batch.num_rows)

    def _took(self, count: int) -> None:
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
        self._columns_of_rows()
        table = pa.Table.from_batches(self._batches, self._schema)
        self._writer.write_table(table.slice(0, count), row_group_size=ROW_GROUP_ROWS)
        self._batches = table.slice(count).to_batches()
        self._count -= count

    def finish(self) -> None:
        """Writes the last row group and the footer."""
        if self._count:
            self._flush(self._count)
        self._writer.close()

    def abort(self) -> None:
        """Keep the writer from adding a footer when it is collected."""
        self._writer.is_open = False

    def buffered_bytes(self) -> int:
        """A guess: what the rows take."""
        return self._count * len(self._schema) * _ROW_BYTES
