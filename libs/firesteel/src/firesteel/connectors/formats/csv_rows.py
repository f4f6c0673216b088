"""Schemas of connectors for lines of CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from firesteel.common.serialization import DeserializationSchema, SerializationSchema
from firesteel.common.typeinfo import TypeDescriptor, TypeInformation
from firesteel.connectors.formats.csv_columns import CsvColumns
from firesteel.connectors.formats.csv_schema import CsvDialect, CsvSchema, one_character
from firesteel.connectors.formats.csv_values import RowReader, RowWriter, reader_options, reason_of
from firesteel.connectors.formats.declared_types import row_type
from firesteel.core.errors import MalformedDataError, ProgramError

__all__ = ["CsvRowDeserializationSchema", "CsvRowSerializationSchema"]


class CsvRowDeserializationSchema(DeserializationSchema):
    """Reads a line of CSV as a row. Made by ``CsvRowDeserializationSchema.Builder(row_type).build()``.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream.formats.csv import CsvRowDeserializationSchema

        row = Types.ROW_NAMED(["name", "amount"], [Types.STRING(), Types.INT()])
        schema = CsvRowDeserializationSchema.Builder(row).build()
        print(schema.deserialize(b"tea,2").amount)
        ```

        ```text
        2
        ```
    """

    def __init__(self, schema: CsvSchema, *, ignore_parse_errors: bool) -> None:
        self._schema, self._ignore = schema, ignore_parse_errors
        self._options = reader_options(schema.dialect)
        self._read: RowReader | None = None
        self._columns: CsvColumns | None = None
        self.gives_columns = CsvColumns.reads(schema)
        RowReader(schema)  # raises at once if a type can't be in CSV

    def deserialize(self, message: bytes) -> Any:
        """Returns the row; None for a comment, or if the message is malformed and errors are ignored.

        Raises:
            MalformedDataError: the message is malformed.
        """
        if message is None:
            return None
        if self._read is None:
            self._read = RowReader(self._schema)
        try:
            text = str(message, "utf-8").removeprefix("\ufeff")
            if self._schema.dialect.allow_comments and text.startswith("#"):
                return None
            rows = list(csv.reader([text], **self._options))
            if len(rows) != 1:
                raise ValueError(f"{len(rows)} rows in one message")
            return self._read(rows[0])
        except (ValueError, csv.Error) as error:
            if self._ignore:
                return None
            raise MalformedDataError(
                "", None, None, f"malformed CSV {bytes(message)[:80]!r}: {reason_of(error)}"
            ) from error

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """Returns the rows of many lines; None = call ``deserialize`` for each."""
        if self._columns is None:
            self._columns = CsvColumns(self._schema, None, self._schema.size())
        ended = all(message.endswith(b"\n") for message in messages)
        data = (b"" if ended else b"\n").join(messages)
        if data.count(b"\n") != len(messages) - (0 if ended else 1):
            return None  # a message has several lines, or only some end with a newline
        rows_and_ends = self._columns.read(data)
        return rows_and_ends[0] if rows_and_ends is not None and rows_and_ends[0].num_rows == len(messages) else None

    def get_produced_type(self) -> TypeInformation:
        """Returns the type of the rows."""
        return self._schema.row_type

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": None, "_columns": None}

    class Builder:
        """Builds a ``CsvRowDeserializationSchema``.

        Args:
            type_info: type of the rows.
        """

        def __init__(self, type_info: TypeDescriptor) -> None:
            self._schema = _schema(type_info, "CsvRowDeserializationSchema")
            self._dialect = CsvDialect()
            self._ignore = False

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Set the character between fields; a comma by default."""
            self._dialect = replace(self._dialect, separator=one_character("field delimiter", delimiter))
            return self

        def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchema.Builder:
            """Set whether lines that begin with ``#`` are left out."""
            self._dialect = replace(self._dialect, allow_comments=allow_comments)
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Set the character between elements of arrays; a semicolon by default."""
            one_character("array element delimiter", delimiter)
            self._dialect = replace(self._dialect, array_separator=delimiter)
            return self

        def set_quote_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Set the character that quotes fields; ``"`` by default."""
            self._dialect = replace(self._dialect, quote=one_character("quote character", c))
            return self

        def set_escape_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Set the character that makes the next one stand for itself; there is none by default."""
            self._dialect = replace(self._dialect, escape=one_character("escape character", c))
            return self

        def set_null_literal(self, null_literal: str) -> CsvRowDeserializationSchema.Builder:
            """Set the text that stands for None; there is none by default."""
            self._dialect = replace(self._dialect, null_value=null_literal)
            return self

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> CsvRowDeserializationSchema.Builder:
            """Set whether malformed messages give None instead of an error."""
            self._ignore = ignore_parse_errors
            return self

        def build(self) -> CsvRowDeserializationSchema:
            """Make the schema of what was set so far."""
            return CsvRowDeserializationSchema(
                replace(self._schema, dialect=self._dialect), ignore_parse_errors=self._ignore
            )


class CsvRowSerializationSchema(SerializationSchema):
    """Writes a row as a line of CSV. Made by ``CsvRowSerializationSchema.Builder(row_type).build()``.

    Examples:
        ```python
        from firesteel.common import Row, Types
        from firesteel.datastream.formats.csv import CsvRowSerializationSchema

        row = Types.ROW_NAMED(["name", "amount"], [Types.STRING(), Types.INT()])
        schema = CsvRowSerializationSchema.Builder(row).set_field_delimiter(";").build()
        print(schema.serialize(Row("tea", 2)).decode(), end="")
        ```

        ```text
        tea;2
        ```
    """

    takes_columns = True

    def __init__(self, schema: CsvSchema, end: str) -> None:
        self._schema, self._end = schema, end
        self._write: RowWriter | None = None
        RowWriter(schema)  # raises at once if a type can't be in CSV

    def serialize(self, element: Any) -> bytes:
        """Returns the line in UTF-8.

        Raises:
            ValueError, TypeError: the record does not fit the type.
        """
        if self._write is None:
            self._write = RowWriter(self._schema)
        return (self._write(element).removesuffix("\n") + self._end).encode()

    def serialize_columns(self, batch: pa.RecordBatch) -> list[bytes]:
        """Returns the lines of a batch.

        Raises:
            ValueError, TypeError: the columns do not fit the type.
        """
        if self._write is None:
            self._write = RowWriter(self._schema)
        return [(line.removesuffix("\n") + self._end).encode() for line in self._write.lines(batch).to_pylist()]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_write": None}

    class Builder:
        """Builds a ``CsvRowSerializationSchema``.

        Args:
            type_info: type of the rows.
        """

        def __init__(self, type_info: TypeDescriptor) -> None:
            self._schema = _schema(type_info, "CsvRowSerializationSchema")
            self._dialect = CsvDialect()
            self._end = "\n"

        def set_field_delimiter(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the character between fields; a comma by default."""
            self._dialect = replace(self._dialect, separator=one_character("field delimiter", c))
            return self

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Set the end of a line: LF (the default), CR, CR LF or nothing.

            Raises:
                ProgramError: the delimiter is something else.
            """
            if delimiter not in ("\n", "\r", "\r\n", ""):
                raise ProgramError(f"CSV: a line ends with LF, CR, CR LF or nothing, not with {delimiter!r}")
            self._end = delimiter
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Set the character between elements of arrays; a semicolon by default."""
            one_character("array element delimiter", delimiter)
            self._dialect = replace(self._dialect, array_separator=delimiter)
            return self

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            """Quote no field; fields that need quotes are an error, unless there is an escape character."""
            self._dialect = replace(self._dialect, quote=None)
            return self

        def set_quote_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the character that quotes fields; ``"`` by default."""
            self._dialect = replace(self._dialect, quote=one_character("quote character", c))
            return self

        def set_escape_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the character that makes the next one stand for itself; there is none by default."""
            self._dialect = replace(self._dialect, escape=one_character("escape character", c))
            return self

        def set_null_literal(self, s: str) -> CsvRowSerializationSchema.Builder:
            """Set the text that stands for None; the empty text by default."""
            self._dialect = replace(self._dialect, null_value=s)
            return self

        def build(self) -> CsvRowSerializationSchema:
            """Make the schema of what was set so far."""
            return CsvRowSerializationSchema(replace(self._schema, dialect=self._dialect), self._end)


def _schema(type_info: Any, owner: str) -> CsvSchema:
    row_type(type_info, owner)
    return CsvSchema(type_info)
