"""Fields of CSV and values of declared types."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.common.typeinfo import BasicType, BasicTypeInfo, RowTypeInfo, TypeInformation
from firesteel.common.types import Row, make_row
from firesteel.connectors.formats.arranged import arranged
from firesteel.connectors.formats.csv_quotes import CsvQuotes
from firesteel.connectors.formats.csv_schema import CsvDialect, CsvSchema
from firesteel.connectors.formats.type_texts import INTEGERS, csv_text, from_text
from firesteel.expressions.schema import Digits, arrow_type, element_type, is_bytes, unwrapped
from firesteel.expressions.values import rounded, row_values, values_of

Read = Callable[[str], Any]
Write = Callable[[Any], str]
_ARROWS: Final = (*INTEGERS, BasicType.BOOLEAN, BasicType.STRING, BasicType.CHAR)
"""Types of which Arrow makes the same text."""


def reason_of(error: Exception) -> str:
    """Why a line can't be read; of the limit that Python has, how it is raised."""
    text = str(error)
    if "field limit" not in text:
        return text
    return f"{text} of characters: a module that is imported in slots can raise it with csv.field_size_limit()"


def reader_options(dialect: CsvDialect) -> dict[str, Any]:
    """The arguments for ``csv.reader`` and ``csv.writer``."""
    return {
        "delimiter": dialect.separator,
        "quotechar": dialect.quote,
        "quoting": csv.QUOTE_NONE if dialect.quote is None else csv.QUOTE_MINIMAL,
        "escapechar": dialect.escape,
        "doublequote": True,
        "strict": True,
    }


class RowReader:
    """Turns the fields of a line into a row.

    Attributes:
        readers: for each column what turns its text into a value; raises ``ValueError``.

    Raises:
        TypeError: a column's type can't be read from CSV.
    """

    def __init__(self, schema: CsvSchema) -> None:
        self._names = schema.row_type.field_names
        types = schema.row_type.field_types
        null = schema.dialect.null_value
        self.readers = [_reader(t, null, schema.array_separator(i), schema.digits.get(i)) for i, t in enumerate(types)]

    def __call__(self, fields: list[str]) -> Row:
        """The row.

        Raises:
            ValueError: the fields are too many or too few, or one is not of its type.
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
    declared = unwrapped(declared)
    inner = _inner_reader(declared, null, separator, digits)
    is_text = isinstance(declared, BasicTypeInfo) and declared.basic_type is BasicType.STRING
    if is_text or is_bytes(declared):
        return inner if null is None else lambda text: None if text == null else inner(text)
    if null is not None and element_type(declared) is not None:
        return lambda text: None if text == null else inner(text) if text else []
    return lambda text: None if text == null or not text else inner(text)


def _inner_reader(declared: TypeInformation, null: str | None, separator: str | None, digits: Digits) -> Read:
    parse = from_text(declared)
    if parse is not None:
        return parse if digits is None else lambda text: rounded(parse(text), digits)
    if isinstance(declared, RowTypeInfo):
        names = declared.field_names
        known = digits or [None] * len(names)
        parts = [_part(t, null, of) for t, of in zip(declared.field_types, known, strict=True)]

        def read_row(text: str) -> Any:
            found = text.split(separator) if separator else [text]
            if len(found) != len(parts):
                raise ValueError(f"{len(found)} values for the {len(parts)} fields {list(names)}")
            return make_row(names, [part(piece) for part, piece in zip(parts, found, strict=True)])

        return read_row
    elements = element_type(declared)
    if elements is None:
        raise TypeError(f"values of type {declared} can't be read from CSV")
    read = _part(elements, null, digits)
    return lambda text: [read(piece) for piece in (text.split(separator) if separator else [text])]


def _part(declared: TypeInformation, null: str | None, digits: Digits) -> Read:
    if from_text(unwrapped(declared)) is None:
        raise TypeError(f"values of type {declared} can't be inside an array or row of CSV")
    return _reader(declared, null, None, digits)


class RowWriter:
    """Turns rows into lines.

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
            _writer(t, null, schema.array_separator(i), schema.digits.get(i), str if _is_bare(t) else quote)
            for i, t in enumerate(types)
        ]
        self._null, self._types, self._dialect = null, list(map(unwrapped, types)), schema.dialect
        self._end = schema.dialect.line_separator
        self._written_end = "\r\n" + self._end  # fields with one of these characters need an escape character
        options = reader_options(schema.dialect)
        self._escaped: Any = csv.writer(_Echo(), lineterminator=self._written_end, **options).writerow

    def __call__(self, row: Any) -> str:
        """The line, with its end.

        Raises:
            ValueError, TypeError: the record does not fit the schema.
        """
        values = row_values(row, self._names)
        return self._line([write(value) for write, value in zip(self._writers, values, strict=True)])

    def header(self) -> str:
        """The line of the names of the columns."""
        return self._line([name if self._quotes is None else self._quotes.text(name) for name in self._names])

    def lines(self, batch: pa.RecordBatch) -> pa.Array:
        """The lines of the rows of a batch, with their ends. Arrow quotes and joins their fields.

        Raises:
            ValueError, TypeError: the columns do not fit the schema.
        """
        given = arranged(batch, self._names)
        columns = [self._texts(number, column, field) for number, (column, field) in enumerate(given)]
        if len(columns) == 1 or self._quotes is None:
            rows = zip(*[column.to_pylist() for column in columns], strict=True)
            return pa.array(map(self._line, rows), pa.string())
        joined = pc.binary_join_element_wise(*columns, self._dialect.separator)
        return pc.binary_join_element_wise(joined, self._end, "")

    def _texts(self, number: int, column: pa.Array, field: pa.Field) -> pa.Array:
        declared = self._types[number]
        if (
            isinstance(declared, BasicTypeInfo)
            and declared.basic_type in _ARROWS
            and column.type == arrow_type(declared)
        ):
            texts = column.cast(pa.string())
            quotes = None if _is_bare(declared) else self._quotes
            return (texts if quotes is None else quotes.column(texts)).fill_null(self._null)
        return pa.array(list(map(self._writers[number], values_of(column, field))), pa.string())

    def _line(self, fields: Sequence[str]) -> str:
        """A line of these fields, which are quoted already if there is a quote character."""
        if self._quotes is not None:
            return (self._dialect.separator.join(fields) or self._quotes.empty) + self._end
        try:
            text: str = self._escaped(fields)
        except csv.Error as error:
            raise ValueError(f"{fields!r:.200} can't be written as CSV: {error}") from None
        return text.removesuffix(self._written_end) + self._end


class _Echo:
    """Gives back what a ``csv.writer`` writes."""

    def write(self, text: str) -> str:
        return text


def _is_bare(declared: TypeInformation) -> bool:
    """Whether values are numbers or booleans, which are never quoted."""
    declared = unwrapped(declared)
    texts = (BasicType.STRING, BasicType.CHAR, BasicType.INSTANT)
    return isinstance(declared, BasicTypeInfo) and declared.basic_type not in texts


def _writer(
    declared: TypeInformation, null: str, separator: str | None, digits: Digits, quote: Callable[[str], str] = str
) -> Write:
    declared = unwrapped(declared)
    inner = _inner_writer(declared, null, separator, digits)
    if quote is str:
        return lambda value: null if value is None else inner(value)
    return lambda value: null if value is None else quote(inner(value))


def _inner_writer(declared: TypeInformation, null: str, separator: str | None, digits: Digits) -> Write:
    text = csv_text(declared)
    if text is not None:
        return text if digits is None else lambda value: text(rounded(value, digits))
    if isinstance(declared, RowTypeInfo):
        names = declared.field_names
        known = digits or [None] * len(names)
        writers = [_writer(t, null, None, of) for t, of in zip(declared.field_types, known, strict=True)]

        def write_row(value: Any) -> str:
            pairs = zip(writers, row_values(value, names), strict=True)
            return _joined([write(item) for write, item in pairs], separator)

        return write_row
    elements = element_type(declared)
    if elements is None or csv_text(unwrapped(elements)) is None:
        raise TypeError(f"values of type {declared} can't be written as CSV")
    write = _writer(elements, null, None, digits)
    return lambda value: _joined([write(item) for item in value], separator)


def _joined(parts: list[str], separator: str | None) -> str:
    if separator is None and len(parts) > 1:
        raise ValueError(f"{len(parts)} elements, but the column has no separator for them")
    if separator is not None and any(separator in part for part in parts):
        raise ValueError(f"an element holds the separator {separator!r}: {parts!r:.100}")
    return (separator or "").join(parts)
