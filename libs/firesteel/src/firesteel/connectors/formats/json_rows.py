"""Schemas of connectors for JSON objects, and the format of files of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from typing_extensions import override

from firesteel.common.json_scalars import decimal_or_float
from firesteel.common.serialization import DeserializationSchema, SerializationSchema
from firesteel.common.type_table import unwrapped
from firesteel.common.typeinfo import RowTypeInfo, TypeDescriptor, TypeInformation
from firesteel.connectors.file_format import StreamFormat
from firesteel.connectors.formats.column_types import columns_in_order
from firesteel.connectors.formats.declared_types import as_type
from firesteel.connectors.formats.json_columns import JsonColumns
from firesteel.connectors.formats.json_values import has_decimals, json_reader, json_writer, quick_parser
from firesteel.connectors.line_cursor import NOTHING, LineBlocks, ParsedLineCursor
from firesteel.connectors.malformed import MalformedRecords
from firesteel.connectors.split_reader import SplitCursor
from firesteel.core.errors import MalformedDataError, ProgramError, UnsupportedFeatureError
from firesteel.expressions.values import values_of
from firesteel.functions.source import Split

__all__ = ["JsonLinesFormat", "JsonRowDeserializationSchema", "JsonRowSerializationSchema"]


class JsonRowDeserializationSchema(DeserializationSchema):
    """Reads JSON objects as rows. Made by ``JsonRowDeserializationSchema.builder().type_info(row_type).build()``.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream.formats.json import JsonRowDeserializationSchema

        row = Types.ROW_NAMED(["name", "amount"], [Types.STRING(), Types.INT()])
        schema = JsonRowDeserializationSchema.builder().type_info(row).build()
        print(schema.deserialize(b'{"name": "tea", "amount": 2}').name)
        ```

        ```text
        tea
        ```
    """

    def __init__(self, type_info: TypeInformation, *, fail_on_missing_field: bool, ignore_parse_errors: bool) -> None:
        self._type_info = type_info
        self._fail_on_missing, self._ignore = fail_on_missing_field, ignore_parse_errors
        self._parse: Callable[[bytes], Any] | None = None
        self._columns: JsonColumns | None = None
        json_reader(type_info)  # raises at once if a type can't be in JSON
        self.gives_columns = JsonColumns.reads(type_info, fail_on_missing_field=fail_on_missing_field)

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        """A builder, which needs the type of the rows."""
        return JsonRowDeserializationSchema.Builder()

    def deserialize(self, message: bytes) -> Any:
        """Returns the row; None if the message is malformed and errors are ignored.

        Raises:
            MalformedDataError: the message is malformed.
        """
        if message is None:
            return None
        if self._parse is None:
            self._parse = json_parser(self._type_info, fail_on_missing_field=self._fail_on_missing)
        try:
            return self._parse(message)
        except ValueError as error:
            if self._ignore:
                return None
            raise MalformedDataError("", None, None, f"malformed JSON {bytes(message)[:80]!r}: {error}") from error

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """Returns the rows of many messages; None = call ``deserialize`` for each."""
        if self._columns is None:
            row_type = unwrapped(self._type_info)
            assert isinstance(row_type, RowTypeInfo)
            self._columns = JsonColumns(row_type, fail_on_missing_field=self._fail_on_missing)
        return self._columns.read(messages)

    def get_produced_type(self) -> TypeInformation:
        """Returns the type of the rows."""
        return self._type_info

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parse": None, "_columns": None}

    class Builder:
        """Builds a ``JsonRowDeserializationSchema``. The type of the rows is needed."""

        def __init__(self) -> None:
            self._type_info: TypeInformation | None = None
            self._fail_on_missing_field = self._ignore_parse_errors = False

        def type_info(self, type_info: TypeDescriptor) -> JsonRowDeserializationSchema.Builder:
            """Set the type of the rows."""
            self._type_info = as_type(type_info, "JsonRowDeserializationSchema")
            return self

        def json_schema(self, json_schema: str) -> JsonRowDeserializationSchema.Builder:
            """Refused: UnsupportedFeatureError; set the type with ``type_info()``."""
            raise UnsupportedFeatureError("json_schema(): give the type of the rows with type_info() instead")

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """Treat a message without one of the fields as malformed; otherwise the field is None."""
            self._fail_on_missing_field = True
            return self

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """Give None for malformed messages instead of an error."""
            self._ignore_parse_errors = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """Check the settings and make the schema.

            Raises:
                ProgramError: the type is missing, or the options contradict each other.
            """
            if self._type_info is None:
                raise ProgramError("JsonRowDeserializationSchema: give the type of the rows with type_info()")
            if self._fail_on_missing_field and self._ignore_parse_errors:
                raise ProgramError(
                    "JsonRowDeserializationSchema: fail_on_missing_field() and ignore_parse_errors() exclude each other"
                )
            return JsonRowDeserializationSchema(
                self._type_info,
                fail_on_missing_field=self._fail_on_missing_field,
                ignore_parse_errors=self._ignore_parse_errors,
            )


class JsonRowSerializationSchema(SerializationSchema):
    """Writes rows as JSON. Made by ``JsonRowSerializationSchema.builder().with_type_info(row_type).build()``.

    Examples:
        ```python
        from firesteel.common import Row, Types
        from firesteel.datastream.formats.json import JsonRowSerializationSchema

        row = Types.ROW_NAMED(["name", "amount"], [Types.STRING(), Types.INT()])
        schema = JsonRowSerializationSchema.builder().with_type_info(row).build()
        print(schema.serialize(Row("tea", 2)).decode())
        ```

        ```text
        {"name":"tea","amount":2}
        ```
    """

    def __init__(self, type_info: TypeInformation) -> None:
        self._type_info = type_info
        self._write: Callable[[Any], bytes] | None = None
        self._row_type = unwrapped(type_info)
        self.takes_columns = isinstance(self._row_type, RowTypeInfo)
        json_printer(type_info)  # raises at once if a type can't be in JSON

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """A builder, which needs the type of the rows."""
        return JsonRowSerializationSchema.Builder()

    def serialize(self, element: Any) -> bytes:
        """Returns the row as JSON in UTF-8.

        Raises:
            ValueError, TypeError: the record does not fit the type.
        """
        if self._write is None:
            self._write = json_printer(self._type_info)
        return self._write(element)

    def serialize_columns(self, batch: pa.RecordBatch) -> list[bytes]:
        """Returns the rows of a batch as JSON in UTF-8.

        Raises:
            ValueError, TypeError: the columns do not fit the type.
        """
        assert isinstance(self._row_type, RowTypeInfo)
        if self._write is None:
            self._write = json_printer(self._type_info)
        write, columns = self._write, columns_in_order(batch, self._row_type.field_names)
        values = [values_of(column, field) for column, field in columns]
        return [write(row) for row in zip(*values, strict=True)]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_write": None}

    class Builder:
        """Builds a ``JsonRowSerializationSchema``. The type of the rows is needed."""

        def __init__(self) -> None:
            self._type_info: TypeInformation | None = None

        def with_type_info(self, type_info: TypeDescriptor) -> JsonRowSerializationSchema.Builder:
            """Set the type of the rows."""
            self._type_info = as_type(type_info, "JsonRowSerializationSchema")
            return self

        def build(self) -> JsonRowSerializationSchema:
            """Check the settings and make the schema.

            Raises:
                ProgramError: the type is missing.
            """
            if self._type_info is None:
                raise ProgramError("JsonRowSerializationSchema: give the type of the rows with with_type_info()")
            return JsonRowSerializationSchema(self._type_info)


class JsonLinesFormat(StreamFormat):
    """Files whose lines are JSON values; blank lines hold no record.

    Args:
        type_info: type of the records, usually a row type; None = the decoded JSON (dicts, lists, ...).
        fail_on_missing_field: treat a line without one of the fields as malformed; otherwise the field is None.
        nulls_errors: fields whose values can't be read are None; a line that is no JSON object is still malformed.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream.connectors.file_system import FileSource
        from firesteel.datastream.formats.json import JsonLinesFormat

        row = Types.ROW_NAMED(["name", "amount"], [Types.STRING(), Types.INT()])
        source = FileSource.for_record_stream_format(JsonLinesFormat(row), "file:///data/sales.jsonl").build()
        ```
    """

    def __init__(
        self,
        type_info: TypeDescriptor | None = None,
        *,
        fail_on_missing_field: bool = False,
        nulls_errors: bool = False,
    ) -> None:
        self._type_info = None if type_info is None else as_type(type_info, "JsonLinesFormat")
        self._fail_on_missing, self._nulls_errors = fail_on_missing_field, nulls_errors
        if self._type_info is not None:
            json_reader(self._type_info)  # raises at once if a type can't be in JSON

    @property
    @override
    def splittable(self) -> bool:
        return True

    def open_cursor(self, split: Split, malformed: MalformedRecords) -> SplitCursor[Any]:
        """Open a cursor over the lines that begin in the range."""
        parse = json_parser(
            self._type_info, fail_on_missing_field=self._fail_on_missing, nulls_errors=self._nulls_errors
        )
        blocks = LineBlocks(split, malformed, files=self.files)
        return ParsedLineCursor(blocks, lambda line: parse(line) if line.strip() else NOTHING)

    @override
    def produced_type(self) -> TypeInformation | None:
        return self._type_info


def json_parser(
    type_info: TypeInformation | None, *, fail_on_missing_field: bool, nulls_errors: bool = False
) -> Callable[[bytes], Any]:
    """A function that converts bytes to a value; it raises ``ValueError``.

    Args:
        type_info: type of the value; None = the decoded JSON.
        fail_on_missing_field: an object without one of the fields is an error.
        nulls_errors: fields that can't be read are None (``json_reader``).
    """
    exact = exact_parser(type_info, fail_on_missing_field=fail_on_missing_field, nulls_errors=nulls_errors)
    quick = quick_parser(type_info, fail_on_missing_field=fail_on_missing_field)
    if quick is None:
        return exact

    # The quick parser refuses some values that Flink takes, and its errors do not name the field.
    def parse(data: bytes) -> Any:
        try:
            return quick(data)
        except (ValueError, ArithmeticError, RecursionError):
            return exact(data)

    return parse


def exact_parser(
    type_info: TypeInformation | None, *, fail_on_missing_field: bool, nulls_errors: bool = False
) -> Callable[[bytes], Any]:
    """A function that converts bytes to a value as Flink does, and raises ``ValueError`` with the reason."""
    read: Callable[[Any], Any] = _same
    if type_info is not None:
        read = json_reader(type_info, fail_on_missing_field=fail_on_missing_field, nulls_errors=nulls_errors)
    needs_value = isinstance(type_info, RowTypeInfo)
    exact = type_info is not None and has_decimals(type_info)
    decoder = json.JSONDecoder(parse_float=decimal_or_float if exact else None, parse_constant=_no_constant)

    def parse(data: bytes) -> Any:
        try:
            value = read(decoder.decode(str(data, "utf-8").removeprefix("\ufeff")))
        except RecursionError:
            raise ValueError("nested too deeply") from None
        except ArithmeticError:
            raise ValueError("a number is too large") from None
        if value is None and needs_value:
            raise ValueError("null is no row")
        return value

    return parse


def _same(value: Any) -> Any:
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def json_printer(type_info: TypeInformation) -> Callable[[Any], bytes]:
    """A function that converts a value to its JSON in UTF-8."""
    write, encode = json_writer(type_info), msgspec.json.Encoder().encode
    return lambda value: encode(write(value))
