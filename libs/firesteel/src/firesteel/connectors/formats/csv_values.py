"""Converts fields of CSV to values of declared types, and back."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.common.coerce_scalars import rounded
from firesteel.common.type_table import ScalarRow, Shape, field_names, parts_of, resolved, row_of, scalar_of
from firesteel.common.typeinfo import TypeInformation
from firesteel.common.types import Row, make_row
from firesteel.connectors.formats.column_types import columns_in_order
from firesteel.connectors.formats.csv_quotes import CsvQuotes
from firesteel.connectors.formats.csv_schema import CsvDialect, CsvSchema
from firesteel.expressions.schema import Digits, arrow_type, digits_of_parts
from firesteel.expressions.values import row_values, values_of

Read = Callable[[str], Any]
Write = Callable[[Any], str]


def reason_of(error: Exception) -> str:
    """Why a line can't be read; for Python's limit of fields also how to raise it."""
    text = str(error)
    if "field limit" not in text:
        return text
    return f"{text} of characters: a module that is imported in slots can raise it with csv.field_size_limit()"


def reader_options(dialect: CsvDialect) -> dict[str, Any]:
    """Arguments for ``csv.reader`` and ``csv.writer``."""
    return {
        "delimiter": dialect.separator,
        "quotechar": dialect.quote,
        "quoting": csv.QUOTE_NONE if dialect.quote is None else csv.QUOTE_MINIMAL,
        "escapechar": dialect.escape,
        "doublequote": True,
        "strict": True,
    }


class RowReader:
    """Converts the fields of a line to a row.

    Attributes:
        readers: function of each column that converts its text to a value; raises ``ValueError``.

    Raises:
        TypeError: a column's type can't be read from CSV.
    """

    def __init__(self, schema: CsvSchema) -> None:
        self._names = schema.row_type.field_names
        types = schema.row_type.field_types
        null = schema.dialect.null_value
        self.readers = [_reader(t, null, schema.array_separator(i), schema.digits.get(i)) for i, t in enumerate(types)]

    def __call__(self, fields: list[str]) -> Row:
        """Convert the fields of one line.

        Raises:
            ValueError: there are too many or too few fields, or one is not of its type.
        """
        if len(fields) != len(self.readers):
            raise ValueError(f"{len(fields)} fields for {len(self.readers)} columns")
        values: list[Any] = []
        try:
            for read, text in zip(self.readers, fields, strict=True):
                values.append(read(text))
        except ValueError as error:
            raise ValueError(f"column {self._names[len(values)]!r}: {error}") from None
        return make_row(self._names, values)


def _reader(declared: TypeInformation, null: str | None, separator: str | None, digits: Digits) -> Read:
    """A function that converts a text to a value of a type, or to None."""
    declared, row = resolved(declared)
    inner = _inner_reader(declared, null, separator, digits)
    if isinstance(row, ScalarRow) and row.csv_empty:
        return inner if null is None else lambda text: None if text == null else inner(text)
    if null is not None and row.shape is Shape.LIST:
        return lambda text: None if text == null else inner(text) if text else []
    return lambda text: None if text == null or not text else inner(text)


def _inner_reader(declared: TypeInformation, null: str | None, separator: str | None, digits: Digits) -> Read:
    row = row_of(declared)
    if isinstance(row, ScalarRow):
        parse = row.parse
        return parse if digits is None else lambda text: rounded(parse(text), digits)
    if row.shape not in (Shape.ROW, Shape.LIST):
        raise TypeError(f"values of type {declared} can't be read from CSV")
    types = parts_of(declared)
    for part in types:
        if scalar_of(part) is None:
            raise TypeError(f"values of type {part} can't be inside an array or row of CSV")
    if row.shape is Shape.LIST:
        read = _reader(types[0], null, None, digits)
        return lambda text: [read(piece) for piece in (text.split(separator) if separator else [text])]
    names = field_names(declared) or ()
    pairs = zip(types, digits_of_parts(digits, len(types)), strict=True)
    readers = [_reader(part, null, None, part_digits) for part, part_digits in pairs]

    def read_row(text: str) -> Any:
        pieces = text.split(separator) if separator else [text]
        if len(pieces) != len(readers):
            raise ValueError(f"{len(pieces)} values for the {len(readers)} fields {list(names)}")
        return make_row(names, [read(piece) for read, piece in zip(readers, pieces, strict=True)])

    return read_row


class RowWriter:
    """Converts rows to lines.

    Raises:
        TypeError: a column's type can't be written as CSV.
    """

    def __init__(self, schema: CsvSchema) -> None:
        self._names = schema.row_type.field_names
        null = schema.dialect.null_value or ""
        types = schema.row_type.field_types
        self._quotes = None if schema.dialect.quote is None else CsvQuotes(schema.dialect)
        quote = str if self._quotes is None else self._quotes.text
        self._writers = [
            _writer(declared, null, schema.array_separator(i), schema.digits.get(i), quote)
            for i, declared in enumerate(types)
        ]
        self._null, self._types, self._dialect = null, types, schema.dialect
        self._end = schema.dialect.line_separator
        # csv.writer escapes the characters of its line terminator, so both CR and LF are among them.
        self._written_end = "\r\n" + self._end
        options = reader_options(schema.dialect)
        self._escaped: Any = csv.writer(_Echo(), lineterminator=self._written_end, **options).writerow

    def __call__(self, row: Any) -> str:
        """Convert a row to its line, with the end of the line.

        Raises:
            ValueError, TypeError: the record does not fit the schema.
        """
        values = row_values(row, self._names)
        return self._line([write(value) for write, value in zip(self._writers, values, strict=True)])

    def header(self) -> str:
        """The line with the names of the columns."""
        return self._line([name if self._quotes is None else self._quotes.text(name) for name in self._names])

    def lines(self, batch: pa.RecordBatch) -> pa.Array:
        """Convert the rows of a batch to lines, with their ends. Arrow quotes and joins the fields.

        Raises:
            ValueError, TypeError: the columns do not fit the schema.
        """
        ordered = columns_in_order(batch, self._names)
        columns = [self._texts(number, column, field) for number, (column, field) in enumerate(ordered)]
        if len(columns) == 1 or self._quotes is None:
            rows = zip(*[column.to_pylist() for column in columns], strict=True)
            return pa.array(map(self._line, rows), pa.string())
        joined = pc.binary_join_element_wise(*columns, self._dialect.separator)
        return pc.binary_join_element_wise(joined, self._end, "")

    def _texts(self, number: int, column: pa.Array, field: pa.Field) -> pa.Array:
        row = scalar_of(self._types[number])
        if row is not None and row.arrow_prints and column.type == arrow_type(row.type_info):
            texts = column.cast(pa.string())
            quotes = self._quotes if row.csv_quoted else None
            return (texts if quotes is None else quotes.column(texts)).fill_null(self._null)
        return pa.array(list(map(self._writers[number], values_of(column, field))), pa.string())

    def _line(self, fields: Sequence[str]) -> str:
        """The line of fields, which are quoted already if there is a quote character."""
        if self._quotes is not None:
            return (self._dialect.separator.join(fields) or self._quotes.empty) + self._end
        try:
            text: str = self._escaped(fields)
        except csv.Error as error:
            raise ValueError(f"{fields!r:.200} can't be written as CSV: {error}") from None
        return text.removesuffix(self._written_end) + self._end


class _Echo:
    """A file whose ``write`` returns the text, so that ``writerow`` returns the line."""

    def write(self, text: str) -> str:
        return text


def _writer(
    declared: TypeInformation, null: str, separator: str | None, digits: Digits, quote: Callable[[str], str] = str
) -> Write:
    declared, row = resolved(declared)
    inner = _inner_writer(declared, null, separator, digits)
    if quote is str or (isinstance(row, ScalarRow) and not row.csv_quoted):
        return lambda value: null if value is None else inner(value)
    return lambda value: null if value is None else quote(inner(value))


def _inner_writer(declared: TypeInformation, null: str, separator: str | None, digits: Digits) -> Write:
    row = row_of(declared)
    if isinstance(row, ScalarRow):
        text = row.csv_text
        return text if digits is None else lambda value: text(rounded(value, digits))
    types = parts_of(declared)
    if row.shape is Shape.ROW:
        names = field_names(declared) or ()
        pairs = zip(types, digits_of_parts(digits, len(types)), strict=True)
        writers = [_writer(part, null, None, part_digits) for part, part_digits in pairs]

        def write_row(value: Any) -> str:
            pairs = zip(writers, row_values(value, names), strict=True)
            return _joined([write(item) for write, item in pairs], separator)

        return write_row
    if row.shape is not Shape.LIST or scalar_of(types[0]) is None:
        raise TypeError(f"values of type {declared} can't be written as CSV")
    write = _writer(types[0], null, None, digits)
    return lambda value: _joined([write(item) for item in value], separator)


def _joined(parts: list[str], separator: str | None) -> str:
    if separator is None and len(parts) > 1:
        raise ValueError(f"{len(parts)} elements, but the column has no separator for them")
    if separator is not None and any(separator in part for part in parts):
        raise ValueError(f"an element holds the separator {separator!r}: {parts!r:.100}")
    return (separator or "").join(parts)
