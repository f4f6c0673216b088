"""Reads and writes files of CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import IO, Any, Final

import pyarrow as pa
from typing_extensions import override

from firesteel.common.serialization import BulkWriter, BulkWriterFactory
from firesteel.common.typeinfo import TypeInformation
from firesteel.common.types import make_row
from firesteel.connectors.file_format import StreamFormat
from firesteel.connectors.filesystems.file_system import FileSystems
from firesteel.connectors.formats.column_types import place_of
from firesteel.connectors.formats.csv_columns import CsvColumns
from firesteel.connectors.formats.csv_schema import CsvSchema
from firesteel.connectors.formats.csv_values import RowReader, RowWriter, reader_options, reason_of
from firesteel.connectors.formats.declared_types import narrowed
from firesteel.connectors.line_cursor import LineBlocks
from firesteel.connectors.malformed import MalformedPolicy, MalformedRecords
from firesteel.connectors.split_reader import Chunk, SplitCursor
from firesteel.core.call_each import call_each
from firesteel.core.errors import MalformedDataError
from firesteel.functions.source import Split, Wait

__all__ = ["CsvBulkWriters", "CsvReaderFormat"]

_ROWS_AT_ONCE: Final = 10_000
"""Lines that one ``read`` looks at; many of them may hold no row."""


class CsvReaderFormat(StreamFormat):
    r"""Files of CSV as rows. Made by ``CsvReaderFormat.for_schema(schema)``.

    Empty lines hold no row. A row with more or fewer fields than there are columns is malformed. As in Flink, files
    are not split, since a field in quotes may hold newlines; ``rows_are_lines()`` promises that no field does.

    Examples:
        ```python
        import pathlib

        from firesteel.common import Types, WatermarkStrategy
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.connectors.file_system import FileSource
        from firesteel.datastream.formats.csv import CsvReaderFormat, CsvSchema

        pathlib.Path("sales.csv").write_text("tea,2\nmilk,1\n")
        path = pathlib.Path("sales.csv").absolute().as_uri()
        schema = CsvSchema.builder().add_string_column("name").add_number_column("amount", Types.INT()).build()
        source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), path).build()
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        sales = env.from_source(source, WatermarkStrategy.no_watermarks(), "sales")
        print([(sale.name, sale.amount) for sale in sales.execute_and_collect()])
        ```

        ```text
        [('tea', 2), ('milk', 1)]
        ```
    """

    def __init__(self, schema: CsvSchema, *, one_line: bool = False, wanted: Sequence[str] | None = None) -> None:
        self._schema, self._one_line, self._wanted = schema, one_line, wanted
        RowReader(schema)  # raises at once if a type can't be in CSV

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvReaderFormat:
        """Make the format for a schema.

        Raises:
            TypeError: the argument is no schema, or a column's type can't be read from CSV.
        """
        if not isinstance(schema, CsvSchema):
            raise TypeError(f"CsvReaderFormat.for_schema() takes a CsvSchema, not {type(schema).__name__}")
        return CsvReaderFormat(schema)

    def rows_are_lines(self) -> CsvReaderFormat:
        """The same format for files without newlines in quotes: several subtasks read ranges of a large file."""
        return CsvReaderFormat(self._schema, one_line=True, wanted=self._wanted)

    def with_columns(self, names: Sequence[str]) -> CsvReaderFormat:
        """The same format with fewer columns; the other columns are still parsed, so they can make a line malformed."""
        return CsvReaderFormat(self._schema, one_line=self._one_line, wanted=tuple(names))

    @property
    def splittable(self) -> bool:
        """Whether ``rows_are_lines()`` was called."""
        return self._one_line

    def open_cursor(self, split: Split, malformed: MalformedRecords) -> SplitCursor[Any]:
        """Open a cursor over the rows that begin in the range."""
        columnar = malformed.policy is not MalformedPolicy.EMIT and CsvColumns.reads(self._schema)
        cursor = _CsvCursor(split, self._schema, malformed, self._one_line, columnar=columnar, files=self.files)
        return cursor if self._wanted is None else _SelectedColumns(cursor, self._wanted)

    def produced_type(self) -> TypeInformation:
        """The schema's row type, with the selected columns only."""
        row_type = self._schema.row_type
        return row_type if self._wanted is None else narrowed(row_type, self._wanted)


class _SelectedColumns(SplitCursor[Any]):
    """A cursor that drops the columns which the program did not select."""

    def __init__(self, cursor: SplitCursor[Any], names: Sequence[str]) -> None:
        self._cursor, self._names = cursor, tuple(names)

    def read(self, max_records: int) -> Chunk[Any] | Wait:
        chunk = self._cursor.read(max_records)
        if isinstance(chunk, Wait):
            return chunk
        values, names = chunk.values, self._names
        if isinstance(values, pa.RecordBatch):
            values = values.select(list(names))
        else:
            values = [make_row(names, row.get_fields_by_names(names)) for row in values]
        return Chunk(values, chunk.position, chunk.finished)

    def close(self) -> None:
        self._cursor.close()


class _LineFeed:
    """Iterator of lines for ``csv.reader``, which knows the positions of the lines.

    ``csv.reader`` pulls as many lines as a row takes. Its owner clears ``pulled`` before each row, so that it knows
    afterwards which lines the row was made of.

    Attributes:
        offset: byte at which the next line begins.
        pulled: lines that were pulled since ``pulled`` was cleared.
    """

    def __init__(self, blocks: LineBlocks, *, comments: bool, one_line: bool) -> None:
        self._blocks, self._comments, self._one_line = blocks, comments, one_line
        self._lines: list[bytes] = []
        self._next = 0
        self.offset = blocks.next
        self.pulled: list[bytes] = []

    def __iter__(self) -> _LineFeed:
        return self

    def __next__(self) -> str:
        """The next line. After an error the next call goes on behind the line."""
        if self._one_line and self.pulled:
            raise StopIteration
        while True:
            if self._next >= len(self._lines):
                data = self._blocks.load()
                if data is None:
                    raise StopIteration
                self._lines, self._next = _lines(data), 0
                self.offset = self._blocks.block
            line = self._lines[self._next]
            self._next += 1
            self.offset += len(line)
            if not (self._comments and not self.pulled and line.startswith(b"#")):
                break
        self.pulled.append(line)
        return line.decode("utf-8")

    def next_block(self) -> bytes | None:
        """The next block as a whole; None if some lines of the current block are left, or there are no more blocks."""
        if self._next < len(self._lines):
            return None
        data = self._blocks.load()
        if data is not None:
            self.offset = self._blocks.block + len(data)
            self._lines, self._next = [], 0
        return data

    def take_back(self, data: bytes) -> None:
        """Read the end of the current block line by line."""
        self.offset -= len(data)
        self._lines, self._next = _lines(data), 0

    def put_back(self) -> None:
        """Read all pulled lines but the first again: a malformed row has swallowed them."""
        swallowed = self.pulled[1:]
        self._lines[: self._next] = swallowed
        self._next = 0
        self.offset -= sum(map(len, swallowed))


def _lines(data: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


class _CsvCursor(SplitCursor[Any]):
    """Reads the rows that begin in a split's range, by columns where a block allows it.

    The position is ``[byte at which the next row begins, 0]``.
    """

    def __init__(
        self,
        split: Split,
        schema: CsvSchema,
        malformed: MalformedRecords,
        one_line: bool,
        *,
        columnar: bool,
        files: FileSystems,
    ) -> None:
        self._files = files
        self._path = str(split.data["path"])
        self._dialect = schema.dialect
        self._options = reader_options(schema.dialect)
        self._one_line = one_line
        self._replacement: list[Any] | None = None
        """What stands for a damaged header or end of the file; returned by the next ``read``, which is the last."""
        self._order: list[int] | None = None
        """Place of each column in the file; None = the order of the schema."""
        self._data_start = 0
        """Byte behind the header and the first row that is left out."""
        self._header_error: str | None = None
        self._malformed = malformed
        self._blocks = LineBlocks(split, malformed, files=files)
        if not self._blocks.damaged and (schema.dialect.use_header or schema.dialect.skip_first_row):
            try:
                self._read_head(schema)
            except ValueError as error:
                self._header_error = error.reason if isinstance(error, MalformedDataError) else str(error)
                # Only the first range of the file reports it.
                self._reports_header_error = split.position is None and split.data["start"] == 0
        self._feed = _LineFeed(self._blocks, comments=schema.dialect.allow_comments, one_line=one_line)
        self._rows = csv.reader(self._feed, **self._options)
        self._row = RowReader(schema)
        self._batch: pa.RecordBatch | None = None
        """Rows of a block that was read by columns, and the position at which each of them ends."""
        self._ends: Any = None
        self._returned = 0
        self._columns: CsvColumns | None = None
        if columnar and self._header_error is None:
            width = schema.size() if self._order is None else self._width
            self._columns = CsvColumns(schema, self._order, width)

    def _read_head(self, schema: CsvSchema) -> None:
        """Find out where the rows begin, and in which order the columns are."""
        whole_file = Split("", {"path": self._path, "start": 0, "end": self._files.of(self._path).size(self._path)})
        blocks = LineBlocks(whole_file, MalformedRecords(), files=self._files)
        try:
            feed = _LineFeed(blocks, comments=self._dialect.allow_comments, one_line=self._one_line)
            rows = csv.reader(feed, **self._options)
            if self._dialect.use_header:
                try:
                    header = [name.strip() for name in next(rows, [])]
                except csv.Error as error:
                    raise ValueError(f"the header can't be read: {reason_of(error)}") from None
                self._set_order(header, schema.row_type.field_names)
            if self._dialect.skip_first_row:
                feed.pulled.clear()
                try:
                    next(rows, None)
                except csv.Error:
                    feed.put_back()
            self._data_start = feed.offset
        finally:
            blocks.close()

    def _set_order(self, header: list[str], names: tuple[str, ...]) -> None:
        """Identify the columns by the names of the header, or by their positions if no name is at another position.

        Raises:
            ValueError: the columns are ambiguous, or the dialect is strict and the header differs.
        """
        if header == list(names):
            return
        missing = [name for name in names if name not in header]
        difference = f"the header names the columns {', '.join(header)}, not {', '.join(names)}"
        if self._dialect.strict_headers:
            raise ValueError(difference + (f"; {', '.join(missing)} not there" if missing else ""))
        for name in names:
            place_of(name, header, "columns of the header")
        if not missing:
            self._order = [header.index(name) for name in names]
            self._width = len(header)
        elif len(header) > len(names):
            raise ValueError(
                f"{difference}; {', '.join(missing)} not there, and there are more columns than in the schema"
            )
        else:
            moved_names = [
                name for position, name in enumerate(names) if name in header and header.index(name) != position
            ]
            if moved_names:
                raise ValueError(
                    f"{difference}; {', '.join(missing)} not there, and {', '.join(moved_names)} in another place, so "
                    "columns are known neither by name nor by position"
                )

    def read(self, max_records: int) -> Chunk[Any] | Wait:
        """Return the next rows, at most so many."""
        if self._header_error is not None:
            path, reason = self._path, self._header_error
            self._replacement = (
                list(self._malformed.found(path, 0, reason, line=1)) if self._reports_header_error else []
            )
        if self._replacement is not None:
            return Chunk(self._replacement, [0, 0], finished=True)
        if self._columns is not None and (self._batch is not None or self._load_columns(self._columns)):
            return self._next_of_batch(max_records)
        values: list[Any] = []
        feed, lines_seen = self._feed, 0
        while len(values) < max_records and lines_seen < _ROWS_AT_ONCE:
            lines_seen += 1
            feed.pulled.clear()
            begin = feed.offset
            try:
                fields = next(self._rows)
                if fields and begin >= self._data_start:
                    values.append(self._row(self._ordered(fields)))
            except StopIteration:
                if not feed.pulled:
                    values += self._blocks.instead
                    return (
                        Chunk(values, [feed.offset, 0], finished=True)
                        if len(values) <= max_records
                        else (self._two_chunks(values))
                    )
            except MalformedDataError:
                raise  # the file as a whole is damaged
            except (ValueError, csv.Error) as error:
                first = feed.pulled[0]
                begin = feed.offset - sum(map(len, feed.pulled))
                if not isinstance(error, ValueError) or isinstance(error, UnicodeDecodeError):
                    feed.put_back()  # the end of the row is unknown
                if begin < self._data_start:
                    continue
                values += self._blocks.found(begin, reason_of(error), first.rstrip(b"\r\n"))
        return Chunk(values, [feed.offset, 0]) if values else Wait(0.0)

    def _load_columns(self, columns: CsvColumns) -> bool:
        """Try to read the next block by columns; False if it has to be read row by row."""
        data = self._feed.next_block()
        if data is None:
            return False
        begin = self._feed.offset - len(data)
        skipped = max(0, self._data_start - begin)
        rows_and_ends = columns.read(data[skipped:] if skipped else data) if skipped < len(data) else None
        if rows_and_ends is None:
            self._feed.take_back(data)
            return False
        self._batch, self._ends = rows_and_ends
        self._begin, self._returned = begin + skipped, 0
        return True

    def _next_of_batch(self, max_records: int) -> Chunk[Any]:
        assert self._batch is not None
        part = self._batch.slice(self._returned, max_records)
        self._returned += part.num_rows
        position = self._begin + int(self._ends[self._returned - 1])
        if self._returned == self._batch.num_rows:
            self._batch = None
        return Chunk(part, [position, 0])

    def _two_chunks(self, values: list[Any]) -> Chunk[Any]:
        """Return the rows; what stands for the damaged end of the file comes in a chunk of its own."""
        self._replacement = self._blocks.instead
        return Chunk(values[: -len(self._replacement)], [self._feed.offset, 0])

    def _ordered(self, fields: list[str]) -> list[str]:
        if self._order is None:
            return fields
        if len(fields) != self._width:
            raise ValueError(f"{len(fields)} fields, but the header names {self._width} columns")
        return [fields[place] for place in self._order]

    @override
    def close(self) -> None:
        self._blocks.close()


class CsvBulkWriters(BulkWriterFactory):
    """Writes files of CSV. Made by ``CsvBulkWriters.for_schema(schema)``.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import FileSink
        from firesteel.datastream.formats.csv import CsvBulkWriters, CsvSchema

        schema = CsvSchema.builder().add_string_column("name").add_number_column("amount").build()
        sink = FileSink.for_bulk_format("file:///data/out", CsvBulkWriters.for_schema(schema)).build()
        ```
    """

    takes_columns = True

    def __init__(self, schema: CsvSchema) -> None:
        self._schema = schema
        self.joinable = not schema.dialect.use_header
        RowWriter(schema)  # raises at once if a type can't be in CSV

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvBulkWriters:
        """Make the factory for a schema; with ``set_use_header()`` each file begins with the names of the columns.

        Raises:
            TypeError: the argument is no schema, or a column's type can't be written as CSV.
        """
        if not isinstance(schema, CsvSchema):
            raise TypeError(f"CsvBulkWriters.for_schema() takes a CsvSchema, not {type(schema).__name__}")
        return CsvBulkWriters(schema)

    def create(self, stream: IO[bytes]) -> BulkWriter:
        """Make the writer of one file."""
        return _CsvWriter(self._schema, stream)


class _CsvWriter(BulkWriter):
    def __init__(self, schema: CsvSchema, stream: IO[bytes]) -> None:
        self._line = RowWriter(schema)
        self._stream = stream
        if schema.dialect.use_header:
            stream.write(self._line.header().encode())

    def write(self, elements: Sequence[Any]) -> None:
        self._stream.write("".join(call_each(self._line, elements)).encode())

    def write_columns(self, batch: pa.RecordBatch) -> None:
        self._stream.write(b"".join(self._line.lines(batch).cast(pa.binary()).to_pylist()))

    def finish(self) -> None:
        pass
