"""Reads and writes files of Parquet with records of Avro schemas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

import pyarrow as pa

from firesteel.common.serialization import BulkWriter, BulkWriterFactory
from firesteel.common.typeinfo import TypeInformation
from firesteel.connectors.file_format import ContainerFormat, StreamFormat
from firesteel.connectors.formats.column_types import check_column, fitted, place_of
from firesteel.connectors.formats.parquet_files import BATCH_ROWS, ParquetCursor, ParquetWriter
from firesteel.connectors.malformed import MalformedRecords
from firesteel.connectors.split_reader import SplitCursor
from firesteel.core.errors import ProgramError
from firesteel.functions.source import Split
from firesteel_formats.avro_schema import AvroSchema, GenericRecordAvroTypeInfo, fastavro_module

__all__ = ["AvroParquetReaders", "AvroParquetWriters"]

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}


def column_type(schema: Any) -> pa.DataType:
    """Arrow's type for an Avro schema.

    Raises:
        ProgramError: there is none, because the schema has a union of several types, or a record inside itself.
    """
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) == 1:
            return column_type(branches[0])
        raise ProgramError(f"Avro in Parquet: the union {schema} is not of one type and null")
    if isinstance(schema, str):
        if schema not in _PRIMITIVES:
            raise ProgramError(
                f"Avro in Parquet: {schema!r} has no column type (a named type stands in one place only)"
            )
        return _PRIMITIVES[schema]
    logical = schema.get("logicalType")
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical == "decimal":
        return pa.decimal128(int(schema["precision"]), int(schema.get("scale", 0)))
    kind = schema["type"]
    if kind == "record":
        return pa.struct([pa.field(field["name"], column_type(field["type"])) for field in schema["fields"]])
    if kind == "enum":
        return pa.string()
    if kind == "fixed":
        return pa.binary(int(schema["size"]))
    if kind == "array":
        return pa.list_(column_type(schema["items"]))
    if kind == "map":
        return pa.map_(pa.string(), column_type(schema["values"]))
    return column_type(kind)


def _columns(schema: AvroSchema, owner: str) -> pa.Schema:
    if not isinstance(schema, AvroSchema):
        raise TypeError(f"{owner} takes an AvroSchema, not {type(schema).__name__}")
    return pa.schema([pa.field(name, column_type(kind)) for name, kind in schema.record_fields(owner)])


class AvroParquetReaders(ContainerFormat, StreamFormat):
    """Reads files of Parquet as dicts with the fields of an Avro schema. Made by ``for_generic_record(schema)``.

    Only the schema's columns are read; the field of a missing column is None.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import FileSource
        from firesteel.datastream.formats.avro import AvroSchema
        from firesteel.datastream.formats.parquet import AvroParquetReaders

        schema = AvroSchema.parse_string(
            '{"type": "record", "name": "Sale", "fields": [{"name": "amount", "type": "int"}]}'
        )
        readers = AvroParquetReaders.for_generic_record(schema)
        source = FileSource.for_record_stream_format(readers, "file:///data/sales").build()
        ```
    """

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        _columns(schema, "AvroParquetReaders.for_generic_record()")  # raises at once if a type can't be a column

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> AvroParquetReaders:
        """Make the format for a schema of records."""
        return AvroParquetReaders(schema)

    def open_cursor(self, split: Split, malformed: MalformedRecords) -> SplitCursor[Any]:
        """Open a cursor over the row groups that begin in the range."""
        return ParquetCursor(split, malformed, _RecordColumns(self._schema), BATCH_ROWS, self.files)

    def produced_type(self) -> TypeInformation:
        """Records of the schema."""
        return GenericRecordAvroTypeInfo(self._schema)

    def check(self) -> None:
        """Check that fastavro is installed.

        Raises:
            ProgramError: fastavro is missing.
        """
        fastavro_module()


class _RecordColumns:
    """Converts batches of a file to dicts with the fields of a schema."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema_columns = _columns(schema, "AvroParquetReaders")

    def chosen(self, schema: pa.Schema) -> list[str]:
        """Names of the schema's columns that a file has; ``__call__`` then takes batches of this file.

        Raises:
            ValueError: several columns of the file have the same name, or a column is of another type.
        """
        self._present = [name for name in self._schema_columns.names if place_of(name, schema.names)]
        for name in self._present:
            check_column(name, schema.field(name).type, self._schema_columns.field(name).type)
        return self._present

    def __call__(self, batch: pa.RecordBatch) -> list[Any]:
        """Convert a batch to records.

        Raises:
            ValueError: a value is too large for its type.
        """
        columns = []
        for field in self._schema_columns:
            if field.name not in self._present:
                columns.append([None] * batch.num_rows)
                continue
            column = fitted(field.name, batch.column(batch.schema.get_field_index(field.name)), field.type)
            columns.append([_maps(value, field.type) for value in column.to_pylist()])
        names = self._schema_columns.names
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _maps(value: Any, kind: pa.DataType) -> Any:
    """Convert Arrow's maps, which are lists of pairs, to dicts."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_map(kind):
        return {key: _maps(item, kind.item_type) for key, item in value}
    if pa.types.is_struct(kind):
        return {field.name: _maps(value[field.name], field.type) for field in kind}
    return [_maps(item, kind.value_type) for item in value]


class AvroParquetWriters(BulkWriterFactory):
    """Writes dicts with the fields of an Avro schema as Parquet. Made by ``for_generic_record(schema)``.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import FileSink
        from firesteel.datastream.formats.avro import AvroSchema
        from firesteel.datastream.formats.parquet import AvroParquetWriters

        schema = AvroSchema.parse_string(
            '{"type": "record", "name": "Sale", "fields": [{"name": "amount", "type": "int"}]}'
        )
        writers = AvroParquetWriters.for_generic_record(schema)
        sink = FileSink.for_bulk_format("file:///data/sales", writers).build()  # sales.sink_to(sink)
        ```
    """

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        _columns(schema, "AvroParquetWriters.for_generic_record()")  # raises at once if a type can't be a column

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> AvroParquetWriters:
        """Make a factory of writers for a schema of records."""
        return AvroParquetWriters(schema)

    def create(self, stream: IO[bytes]) -> BulkWriter:
        """Make the writer of one file."""
        columns = _columns(self._schema, "AvroParquetWriters")
        names = columns.names

        def fields(value: Any) -> list[Any]:
            if not isinstance(value, dict):
                raise TypeError(f"AvroParquetWriters write dicts, not {value!r:.80}")
            unknown = [key for key in value if key not in names]
            if unknown:
                raise ValueError(f"the keys {unknown!r} are not fields of {self._schema.name}")
            return [value.get(name) for name in names]

        def column(number: int, values: Sequence[Any]) -> pa.Array:
            return pa.array(values, columns.field(number).type)

        return ParquetWriter(stream, columns, fields, column, "SNAPPY")

    def check(self) -> None:
        """Check that fastavro is installed.

        Raises:
            ProgramError: fastavro is missing.
        """
        fastavro_module()
