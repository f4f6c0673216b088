"""``'format' = 'csv'``."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from typing_extensions import override

from firesteel.common.serialization import BulkWriterFactory
from firesteel.common.typeinfo import RowTypeInfo
from firesteel.config.option import BOOL, STRING, Option
from firesteel.connectors.file_format import FileFormat
from firesteel.connectors.formats.csv_files import CsvBulkWriters, CsvReaderFormat
from firesteel.connectors.formats.csv_rows import CsvRowDeserializationSchema, CsvRowSerializationSchema
from firesteel.connectors.formats.csv_schema import CsvDialect, CsvSchema
from firesteel.connectors.formats.csv_values import RowReader, reader_options
from firesteel.core.errors import ProgramError
from firesteel.expressions.values import row_values
from firesteel.table.types import DataType
from firesteel_sql.connectors.formats.format import (
    INSERT,
    Change,
    DecodedRows,
    Kinds,
    RowDecoder,
    RowEncoder,
    TableFormat,
)

FIELD_DELIMITER: Final = Option("csv.field-delimiter", STRING, ",", "Between fields; `\\t` is a tab.")
DISABLE_QUOTES: Final = Option("csv.disable-quote-character", BOOL, False, "No character quotes fields.")
QUOTE: Final = Option("csv.quote-character", STRING, '"', "Around fields that hold delimiters.")
ESCAPE: Final = Option("csv.escape-character", STRING, None, "In front of characters that would mean something.")
ARRAY_DELIMITER: Final = Option(
    "csv.array-element-delimiter", STRING, ";", "Between the elements of arrays and the fields of rows."
)
COMMENTS: Final = Option("csv.allow-comments", BOOL, False, "Lines that begin with `#` are left out.")
NULL_LITERAL: Final = Option("csv.null-literal", STRING, None, "The text that stands for NULL.")
IGNORE_ERRORS: Final = Option(
    "csv.ignore-parse-errors",
    BOOL,
    False,
    "In messages fields that can't be read are NULL; lines of files that can't be read are left out.",
)


class CsvTableFormat(TableFormat):
    """Fields with commas between them, one line for each row."""

    NAME = "csv"
    OPTIONS = (
        FIELD_DELIMITER, DISABLE_QUOTES, QUOTE, ESCAPE, ARRAY_DELIMITER, COMMENTS, NULL_LITERAL, IGNORE_ERRORS,
    )  # fmt: skip

    def _schema(self, row_type: RowTypeInfo) -> CsvSchema:
        options = self.options
        if options.get(DISABLE_QUOTES) and options.has(QUOTE):
            raise options.refuse(QUOTE.key, f"is set, and {DISABLE_QUOTES.key} says that there is none")
        dialect = replace(
            CsvDialect(),
            separator=self._character(FIELD_DELIMITER),
            quote=None if options.get(DISABLE_QUOTES) else self._character(QUOTE),
            escape=None if options.get(ESCAPE) is None else self._character(ESCAPE),
            array_separator=options.get(ARRAY_DELIMITER),
            allow_comments=options.get(COMMENTS),
            null_value=options.get(NULL_LITERAL),
        )
        try:
            return CsvSchema(row_type, dialect)
        except (ProgramError, TypeError) as error:
            raise options.refuse("format", f"is 'csv', which can't hold these columns: {error}") from None

    def _character(self, option: Option[Any]) -> str:
        text = self.options.get(option)
        unescaped = _ESCAPES.get(text, text)
        if len(unescaped) != 1 or unescaped in "\r\n\0":
            raise self.options.refuse(option.key, f"is '{text}', and has to be one character")
        return str(unescaped)

    @override
    def decoder(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> RowDecoder:
        return CsvRowDecoder(row_type, self._schema(row_type), ignores_errors=self.options.get(IGNORE_ERRORS))

    @override
    def encoder(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> RowEncoder:
        return CsvRowEncoder(CsvRowSerializationSchema(self._schema(row_type), ""))

    @override
    def file_format(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> FileFormat:
        return CsvReaderFormat.for_schema(self._schema(row_type))

    @override
    def file_writer(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> BulkWriterFactory:
        return CsvBulkWriters.for_schema(self._schema(row_type))


_ESCAPES: Final = {"\\t": "\t", "\\u0001": "\x01", "\\\\": "\\", "\\x01": "\x01", "\\001": "\x01"}


class CsvRowDecoder(RowDecoder):
    """Reads lines of CSV.

    Args:
        row_type: type of the rows.
        schema: columns and dialect.
        ignores_errors: fields that can't be read are None, and lines that can't be read no rows.
    """

    def __init__(self, row_type: RowTypeInfo, schema: CsvSchema, *, ignores_errors: bool) -> None:
        super().__init__(row_type)
        self._schema, self._ignores = schema, ignores_errors
        self._lines = CsvRowDeserializationSchema(schema, ignore_parse_errors=False)

    @override
    def decode(self, messages: Sequence[bytes]) -> DecodedRows | None:
        rows = self._lines.deserialize_columns(messages) if self._lines.gives_columns and messages else None
        return super().decode(messages) if rows is None else DecodedRows(rows, None, None, {})

    @override
    def changes(self, message: bytes) -> list[Change]:
        names = tuple(self.row_type.field_names)
        try:
            row = self._lines.deserialize(message)
        except ValueError:
            if not self._ignores:
                raise
            return self._readable(message)
        return [] if row is None else [Change(INSERT, row_values(row, names), {})]

    def _readable(self, message: bytes) -> list[Change]:
        """The row, with None for each field that can't be read or is not there."""
        try:
            (fields,) = csv.reader([str(message, "utf-8")], **reader_options(self._schema.dialect))
        except (ValueError, csv.Error):
            return []
        readers = RowReader(self._schema).readers
        values: list[Any] = [None] * len(readers)
        for place, (read, text) in enumerate(zip(readers, fields, strict=False)):
            try:
                values[place] = read(text)
            except ValueError:
                continue
        return [Change(INSERT, values, {})]


class CsvRowEncoder(RowEncoder):
    """Writes lines of CSV, without their ends."""

    def __init__(self, schema: CsvRowSerializationSchema) -> None:
        self._schema = schema

    @override
    def encode(self, rows: pa.RecordBatch, kinds: Kinds | None) -> Sequence[bytes | None]:
        return self._schema.serialize_columns(rows)
