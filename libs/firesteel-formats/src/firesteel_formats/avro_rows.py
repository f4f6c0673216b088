"""Schemas of connectors for records in Avro's binary form."""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from firesteel.common.serialization import DeserializationSchema, SerializationSchema
from firesteel.common.typeinfo import RowTypeInfo, TypeInformation, Types
from firesteel.common.types import make_row
from firesteel.core.errors import MalformedDataError, ProgramError, UnsupportedFeatureError
from firesteel.expressions.schema import uncolumnar
from firesteel.expressions.values import RECORDS, ROW, arrow_schema, column_of, row_values
from firesteel_formats.avro_schema import AvroSchema, fastavro_module

__all__ = ["AvroRowDeserializationSchema", "AvroRowSerializationSchema"]

Convert = Callable[[Any], Any]
_PRIMITIVES: Final[dict[str, Callable[[], TypeInformation]]] = {
    "null": Types.PICKLED_BYTE_ARRAY,
    "boolean": Types.BOOLEAN,
    "int": Types.INT,
    "long": Types.LONG,
    "float": Types.FLOAT,
    "double": Types.DOUBLE,
    "bytes": lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "string": Types.STRING,
}
_LOGICAL: Final[dict[str, Callable[[], TypeInformation]]] = {
    "date": Types.SQL_DATE,
    "time-millis": Types.SQL_TIME,
    "time-micros": Types.SQL_TIME,
    "timestamp-millis": Types.SQL_TIMESTAMP,
    "timestamp-micros": Types.SQL_TIMESTAMP,
    "local-timestamp-millis": Types.SQL_TIMESTAMP,
    "local-timestamp-micros": Types.SQL_TIMESTAMP,
    "decimal": Types.BIG_DEC,
    "uuid": Types.STRING,
}


def _schema(record_class: Any, text: str | None, owner: str) -> AvroSchema:
    if record_class is not None:
        raise UnsupportedFeatureError(f"{owner}: record_class names a Java class; give avro_schema_string instead")
    if text is None:
        raise ProgramError(f"{owner}: give avro_schema_string, the JSON text of the schema")
    schema = AvroSchema.parse_string(text)
    schema.record_fields(owner)
    return schema


def type_of(schema: Any, named: dict[str, Any] | None = None) -> TypeInformation:
    """Type of the values that are read with an Avro schema; records are rows.

    Args:
        schema: parsed schema.
        named: types of the named schemas that were visited, by name. A record inside itself is not among them yet, so
            its type is that of any object.
    """
    named = {} if named is None else named
    if isinstance(schema, str):
        make = _PRIMITIVES.get(schema)
        return make() if make is not None else named.get(schema, Types.PICKLED_BYTE_ARRAY())
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        return type_of(branches[0], named) if len(branches) == 1 else Types.PICKLED_BYTE_ARRAY()
    logical = _LOGICAL.get(str(schema.get("logicalType")))
    if logical is not None:
        return logical()
    kind = schema["type"]
    if kind == "record":
        fields = schema["fields"]
        result: TypeInformation = Types.ROW_NAMED(
            [field["name"] for field in fields], [type_of(field["type"], named) for field in fields]
        )
    elif kind == "enum":
        result = Types.STRING()
    elif kind == "fixed":
        result = Types.PRIMITIVE_ARRAY(Types.BYTE())
    elif kind == "array":
        return Types.LIST(type_of(schema["items"], named))
    elif kind == "map":
        return Types.MAP(Types.STRING(), type_of(schema["values"], named))
    else:
        return type_of(kind, named)
    named[schema["name"]] = result
    return result


class AvroRowDeserializationSchema(DeserializationSchema):
    """Reads records in Avro's binary form as rows; records inside are rows, and timestamps are in UTC without a zone.

    Args:
        record_class: name of a Java class in PyFlink; refused here.
        avro_schema_string: JSON of the schema.

    Raises:
        ProgramError: the schema is missing or not one of records, or fastavro is not installed.

    Examples:
        ```python
        from firesteel.datastream.formats.avro import AvroRowDeserializationSchema, AvroRowSerializationSchema

        text = '{"type": "record", "name": "Sale", "fields": [{"name": "amount", "type": "int"}]}'
        message = AvroRowSerializationSchema(avro_schema_string=text).serialize({"amount": 2})
        print(AvroRowDeserializationSchema(avro_schema_string=text).deserialize(message).amount)
        ```

        ```text
        2
        ```
    """

    def __init__(self, record_class: Any = None, avro_schema_string: str | None = None) -> None:
        self._schema = _schema(record_class, avro_schema_string, type(self).__name__)
        self._convert: Convert | None = None
        self._columns: RecordColumns | None = None
        self.gives_columns = uncolumnar(self.get_produced_type()) is None

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """Returns the rows of many messages; None = call ``deserialize`` for each."""
        if self._columns is None:
            self._columns = RecordColumns(self._schema)
        return self._columns.read(messages)

    def deserialize(self, message: bytes) -> Any:
        """Returns the row.

        Raises:
            MalformedDataError: the message is malformed.
        """
        if message is None:
            return None
        stream = io.BytesIO(message)
        try:
            record = fastavro_module().schemaless_reader(stream, self._schema.parsed, None)
            if stream.read(1):
                raise ValueError("there are bytes behind the record")
        except Exception as error:  # fastavro raises errors of any kind
            reason = f"malformed Avro {bytes(message)[:40]!r}: {type(error).__name__}: {error}"
            raise MalformedDataError("", None, None, reason) from error
        if self._convert is None:
            self._convert = _converter(self._schema.parsed, {}, to_rows=True)
        return self._convert(record)

    def get_produced_type(self) -> TypeInformation:
        """Returns the row type of the schema."""
        return type_of(self._schema.parsed)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_convert": None, "_columns": None}


class RecordColumns:
    """Converts records in Avro's binary form to columns.

    Args:
        schema: schema of records whose fields can all be columns.
    """

    def __init__(self, schema: AvroSchema) -> None:
        self._parsed = schema.parsed
        declared = type_of(schema.parsed)
        assert isinstance(declared, RowTypeInfo)
        self._names, self._types = declared.field_names, declared.field_types
        self._schema = arrow_schema(declared, {RECORDS: ROW})
        named: dict[str, list[Convert]] = {}
        self._converts = [_converter(field["type"], named, to_rows=True) for field in schema.parsed["fields"]]
        self._read = fastavro_module().schemaless_reader

    def read(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """One row for each message; None if a message is malformed."""
        records: list[dict[str, Any]] = []
        try:
            for message in messages:
                stream = io.BytesIO(message)
                records.append(self._read(stream, self._parsed, None))
                if stream.read(1):
                    return None
        except Exception:  # fastavro raises errors of any kind; deserialize finds out which message it is
            return None
        return self.batch(records)

    def batch(self, records: Sequence[dict[str, Any]]) -> pa.RecordBatch | None:
        """One row for each record of fastavro; None if a value does not fit its column."""
        arrays = []
        try:
            for name, declared, convert in zip(self._names, self._types, self._converts, strict=True):
                values = [record[name] for record in records]
                if convert is not _same:
                    values = list(map(convert, values))
                arrays.append(column_of(values, name, declared))
        except Exception:  # the caller reads row by row, which says what is wrong
            return None
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class AvroRowSerializationSchema(SerializationSchema):
    r"""Writes rows (or dicts) in Avro's binary form.

    Args:
        record_class: name of a Java class in PyFlink; refused here.
        avro_schema_string: JSON of the schema.

    Raises:
        ProgramError: the schema is missing or not one of records, or fastavro is not installed.

    Examples:
        ```python
        from firesteel.datastream.formats.avro import AvroRowSerializationSchema

        text = '{"type": "record", "name": "Sale", "fields": [{"name": "amount", "type": "int"}]}'
        print(AvroRowSerializationSchema(avro_schema_string=text).serialize({"amount": 2}))
        ```

        ```text
        b'\x04'
        ```
    """

    def __init__(self, record_class: Any = None, avro_schema_string: str | None = None) -> None:
        self._schema = _schema(record_class, avro_schema_string, type(self).__name__)
        self._convert: Convert | None = None

    def serialize(self, element: Any) -> bytes:
        """Returns the record's bytes.

        Raises:
            ValueError, TypeError: the record does not fit the schema.
        """
        stream = io.BytesIO()
        if self._convert is None:
            self._convert = _converter(self._schema.parsed, {}, to_rows=False)
        record = self._convert(element)
        fastavro_module().schemaless_writer(stream, self._schema.parsed, record, strict=True)
        return stream.getvalue()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_convert": None}


def record_converter(schema: AvroSchema) -> Convert:
    """A function that converts a record of fastavro to a row."""
    return _converter(schema.parsed, {}, to_rows=True)


def _converter(schema: Any, named: dict[str, list[Convert]], *, to_rows: bool) -> Convert:
    """A function that converts dicts of records to rows, or back; unions of several types besides null stay.

    ``named`` holds a list for each record that was visited, with its converter as the only item. The converter of a
    record inside itself reads the item when it is called; it is not known before.
    """
    if isinstance(schema, str):
        box = named.get(schema)
        return _same if box is None else lambda value: None if value is None else box[0](value)
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) != 1:
            return _same
        inner = _converter(branches[0], named, to_rows=to_rows)
        return inner if inner is _same else lambda value: None if value is None else inner(value)
    if schema.get("logicalType") in ("timestamp-millis", "timestamp-micros"):
        return _without_zone if to_rows else _with_zone
    kind = schema["type"]
    if kind == "array":
        item = _converter(schema["items"], named, to_rows=to_rows)
        return _same if item is _same else lambda values: [item(value) for value in values]
    if kind == "map":
        part = _converter(schema["values"], named, to_rows=to_rows)
        return _same if part is _same else lambda values: {key: part(value) for key, value in values.items()}
    if kind != "record":
        return _same if not isinstance(kind, (dict, list)) else _converter(kind, named, to_rows=to_rows)
    recursion: list[Convert] = [_same]
    named[schema["name"]] = recursion
    names = tuple(field["name"] for field in schema["fields"])
    parts = [_converter(field["type"], named, to_rows=to_rows) for field in schema["fields"]]

    def row(value: Any) -> Any:
        return make_row(names, [part(value[name]) for part, name in zip(parts, names, strict=True)])

    def record(value: Any) -> Any:
        pairs = zip(names, parts, row_values(value, names), strict=True)
        return {name: part(item) for name, part, item in pairs}

    recursion[0] = row if to_rows else record
    return recursion[0]


def _same(value: Any) -> Any:
    return value


def _without_zone(value: Any) -> Any:
    return value.astimezone(datetime.UTC).replace(tzinfo=None) if isinstance(value, datetime.datetime) else value


def _with_zone(value: Any) -> Any:
    """Mark a time without a zone as UTC; fastavro would take it for local time."""
    naive = isinstance(value, datetime.datetime) and value.tzinfo is None
    return value.replace(tzinfo=datetime.UTC) if naive else value
