"""Reads blocks of CSV as columns by Arrow; blocks that are not plain enough, or have errors, are read row by row.

Arrow accepts more than Python's ``csv`` in strict mode, and differs from it in special cases. So a block is parsed here
only if it has none of them: then both parsers agree. Python reads all other blocks, and columns that Arrow can't read.
"""

from __future__ import annotations

import csv
import datetime
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pc_csv

from firesteel.common.type_table import scalar_of
from firesteel.common.typeinfo import TypeInformation
from firesteel.connectors.formats.csv_schema import CsvDialect, CsvSchema
from firesteel.connectors.formats.csv_values import RowReader
from firesteel.expressions.schema import arrow_type, uncolumnar
from firesteel.expressions.values import RECORDS, ROW, arrow_schema, column_of

_NEWLINE, _RETURN = 10, 13
_ALL_TEXT: Final = pa.string()
_FIRST, _LAST = datetime.datetime.min, datetime.datetime.max
Read = Callable[[pa.Array], pa.Array]


class CsvColumns:
    """Reads blocks of whole lines.

    Args:
        schema: columns and dialect.
        order: place of each column in the file; None = the order of the schema.
        width: number of fields in a line.
    """

    def __init__(self, schema: CsvSchema, order: list[int] | None, width: int) -> None:
        row_type = schema.row_type
        self._names, self._types = row_type.field_names, row_type.field_types
        self._schema = arrow_schema(row_type, {RECORDS: ROW})
        self._places = list(range(len(self._names))) if order is None else order
        self._width = width
        self._null = schema.dialect.null_value
        self._quote, self._escape, self._comments = (
            None if mark is None else mark.encode()
            for mark in (schema.dialect.quote, schema.dialect.escape, "#" if schema.dialect.allow_comments else None)
        )
        self._separator = schema.dialect.separator.encode()
        self._readers = RowReader(schema).readers
        self._fast = list(map(column_reader, self._types))
        names = [str(place) for place in range(width)]
        self._options: dict[str, Any] = {
            "read_options": pc_csv.ReadOptions(column_names=names, use_threads=False, block_size=1 << 30),
            "parse_options": pc_csv.ParseOptions(
                delimiter=schema.dialect.separator, quote_char=schema.dialect.quote or False, double_quote=False
            ),
            "convert_options": pc_csv.ConvertOptions(
                column_types=dict.fromkeys(names, _ALL_TEXT), null_values=[], strings_can_be_null=False,
                include_columns=sorted({str(place) for place in self._places}, key=int),
            ),
        }  # fmt: skip

    @staticmethod
    def reads(schema: CsvSchema) -> bool:
        """Whether files of this schema can be read as columns."""
        dialect: CsvDialect = schema.dialect
        marks = [mark for mark in (dialect.separator, dialect.quote, dialect.escape) if mark is not None]
        return uncolumnar(schema.row_type) is None and all(mark.isascii() for mark in marks)

    def read(self, data: bytes) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]] | None:
        """The rows of a block of whole lines, and where each row ends; None = read it row by row."""
        ends = self._ends(data)
        if ends is None:
            return None
        try:
            table = pc_csv.read_csv(pa.BufferReader(data), **self._options)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(ends):
            return None
        arrays = []
        for number, place in enumerate(self._places):
            column = self._column(number, table.column(str(place)).combine_chunks())
            if column is None:
                return None
            arrays.append(column)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), ends

    def _ends(self, data: bytes) -> npt.NDArray[np.int64] | None:
        """Where lines end; None if a line may hold no row, or if the parsers may read it differently."""
        if b"\0" in data or (self._escape is not None and self._escape in data):
            return None
        if self._comments is not None and (data.startswith(self._comments) or b"\n" + self._comments in data):
            return None
        if data.startswith((b"\n", b"\r\n")) or b"\n\n" in data or b"\n\r\n" in data:
            return None
        if data.startswith(b"\xef\xbb\xbf"):  # Arrow skips the byte-order mark
            return None
        raw = np.frombuffer(data, np.uint8)
        newlines = np.flatnonzero(raw == _NEWLINE)
        if b"\r" in data and not _paired(raw):
            return None
        if self._quote is not None and self._quote in data and not self._plainly_quoted(raw, newlines):
            return None
        ends = (newlines + 1).astype(np.int64)
        if not data.endswith(b"\n"):
            ends = np.append(ends, len(data))
        if len(ends) and np.diff(ends, prepend=0).max() > csv.field_size_limit():
            return None
        return ends

    def _plainly_quoted(self, raw: npt.NDArray[np.uint8], newlines: npt.NDArray[Any]) -> bool:
        """Whether each quote begins or ends a field, and no newline stands between two of them."""
        assert self._quote is not None
        quotes = np.flatnonzero(raw == self._quote[0])
        if len(quotes) % 2:
            return False
        separator = self._separator[0]
        opening, closing = quotes[::2], quotes[1::2]
        previous = raw[opening - 1]  # raw[-1] for a quote at the beginning, which `opening == 0` accepts
        begins = (previous == separator) | (previous == _NEWLINE) | (opening == 0)
        following = raw[np.minimum(closing + 1, len(raw) - 1)]
        ends = (following == separator) | (following == _NEWLINE) | (following == _RETURN) | (closing == len(raw) - 1)
        inside = np.searchsorted(quotes, newlines) % 2
        return bool(begins.all() and ends.all() and not inside.any())

    def _column(self, number: int, texts: pa.Array) -> pa.Array | None:
        """A column of the declared type; None if a text is not of the type."""
        fast = self._fast[number]
        if fast is not None:
            try:
                return self._read_fast(number, fast, texts)
            except (pa.ArrowInvalid, OddTextError):
                pass
        try:
            values = list(map(self._readers[number], texts.to_pylist()))
            return column_of(values, self._names[number], self._types[number])
        except (ValueError, TypeError):
            return None

    def _read_fast(self, number: int, fast: Read, texts: pa.Array) -> pa.Array:
        null = pa.scalar(None, _ALL_TEXT)
        if self._null is not None:
            texts = pc.if_else(pc.equal(texts, self._null), null, texts)
        row = scalar_of(self._types[number])
        if row is None or not row.csv_empty:
            texts = pc.if_else(pc.equal(texts, ""), null, texts)
        return fast(texts)


def _paired(raw: npt.NDArray[np.uint8]) -> bool:
    """Whether each carriage return stands before a newline."""
    returns = np.flatnonzero(raw == _RETURN)
    return returns[-1] < len(raw) - 1 and bool((raw[returns + 1] == _NEWLINE).all())


class OddTextError(Exception):
    """Arrow may accept a text that Python refuses, or read it differently."""


def column_reader(declared: TypeInformation) -> Read | None:
    """A function by which Arrow converts texts as Python does; None = there is none. It raises ``OddTextError``."""
    row, data_type = scalar_of(declared), arrow_type(declared)
    match row and row.arrow_parses:
        case "text":
            return lambda texts: texts
        case "integer":
            return lambda texts: _without(texts, b"xX").cast(data_type)
        case "floating":
            return lambda texts: _without(texts, b"xXnN").cast(pa.float64()).cast(data_type, safe=False)
        case "boolean":
            return _booleans
        case "moment":
            return lambda texts: _in_range(texts.cast(data_type))
    return None


def _without(texts: pa.Array, marks: bytes) -> pa.Array:
    """The texts, after a check that none of them holds one of these characters (as 0x1F and nan do)."""
    buffer = texts.buffers()[2]
    if buffer is not None:
        content = buffer.to_pybytes()
        if any(mark in content for mark in marks):
            raise OddTextError
    return texts


def _booleans(texts: pa.Array) -> pa.Array:
    lowered = pc.ascii_lower(texts)
    is_true = pc.equal(lowered, "true")
    if not pc.all(pc.or_(is_true, pc.equal(lowered, "false")), skip_nulls=True, min_count=0).as_py():
        raise OddTextError
    return is_true


def _in_range(moments: pa.Array) -> pa.Array:
    """The moments, after a check that they are in the years 1 to 9999, which Python has."""
    bounds = pc.min_max(moments.cast(pa.timestamp("us")))
    lowest, highest = (bounds[name].cast(pa.int64()).as_py() for name in ("min", "max"))
    if lowest is not None and not (_micros(_FIRST) <= lowest and highest <= _micros(_LAST)):
        raise OddTextError
    return moments


def _micros(moment: datetime.datetime) -> int:
    return (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
