"""``'format' = 'avro'`` and ``'format' = 'avro-confluent'``: their schemas follow from the table, as in Flink."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import IO, Any, ClassVar, Final

import pyarrow as pa
from typing_extensions import override

from firesteel.common.serialization import BulkWriter, BulkWriterFactory, DeserializationSchema, SerializationSchema
from firesteel.common.time import Instant
from firesteel.common.typeinfo import RowTypeInfo, TypeInformation
from firesteel.common.types import make_row
from firesteel.config.option import STRING, Option, enum_of
from firesteel.connectors.file_format import ContainerFormat, FileFormat
from firesteel.connectors.malformed import MalformedRecords
from firesteel.connectors.split_reader import Chunk, SplitCursor
from firesteel.datastream.formats import avro as avro_schemas
from firesteel.expressions.values import records_of, row_values
from firesteel.functions.source import Split, Wait
from firesteel.table.types import DataType, ElementsType, MapType, RowType
from firesteel_sql.connectors.formats.format import (
    INSERT,
    Change,
    DecodedRows,
    Kinds,
    RowDecoder,
    RowEncoder,
    TableFormat,
    batch_of,
)

CODEC: Final = Option(
    "avro.codec", enum_of("null", "deflate", "snappy", "bzip2", "xz", "zstandard"), "snappy", "Compression of files."
)
URL: Final = Option("avro-confluent.url", STRING, None, "URL of the schema registry.")
SUBJECT: Final = Option(
    "avro-confluent.subject",
    STRING,
    None,
    "Subject of the schema of written rows; in Kafka `<topic>-value` and `<topic>-key` if not set.",
)
AUTH_SOURCE: Final = Option(
    "avro-confluent.basic-auth.credentials-source", STRING, None, "`USER_INFO`: the login is in the next option."
)
AUTH: Final = Option("avro-confluent.basic-auth.user-info", STRING, None, "Login for the registry: `user:password`.")


def avro_schema(types: Mapping[str, DataType], name: str = "record") -> dict[str, Any]:
    """The schema of Avro that Flink gives the rows of a table.

    Raises:
        ValueError: a type has no equal in Avro.
    """
    fields = []
    for field, data_type in types.items():
        definition = _avro_type(data_type, f"{name}_{field}")
        fields.append({"name": field, "type": definition, **({"default": None} if data_type.nullable else {})})
    namespace = {"namespace": "org.apache.flink.avro.generated"} if name == "record" else {}
    return {"type": "record", "name": name, **namespace, "fields": fields}


def _avro_type(data_type: DataType, name: str) -> Any:
    bare = _bare_avro_type(data_type, name)
    return ["null", bare] if data_type.nullable else bare


def _bare_avro_type(data_type: DataType, name: str) -> Any:
    match data_type:
        case RowType():
            return avro_schema(dict(zip(data_type.field_names(), data_type.field_types(), strict=True)), name)
        case MapType():
            if data_type.key_type.name not in ("CHAR", "VARCHAR"):
                raise ValueError(f"{data_type}: keys of maps are texts")
            return {"type": "map", "values": _avro_type(data_type.value_type, name)}
        case ElementsType(name="ARRAY"):
            return {"type": "array", "items": _avro_type(data_type.element_type, name)}
    match data_type.name:
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            unit = "millis" if data_type.parameters[0] <= 3 else "micros"
            return {"type": "long", "logicalType": f"timestamp-{unit}"}
        case "DATE":
            return {"type": "int", "logicalType": "date"}
        case "TIME":
            return {"type": "int", "logicalType": "time-millis"}
        case "DECIMAL":
            precision, scale = data_type.parameters
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    plain = _PLAIN.get(data_type.name)
    if plain is None:
        raise ValueError(f"{data_type} has no equal in Avro")
    return plain


_PLAIN: Final = {
    "BOOLEAN": "boolean", "TINYINT": "int", "SMALLINT": "int", "INT": "int", "BIGINT": "long", "FLOAT": "float",
    "DOUBLE": "double", "CHAR": "string", "VARCHAR": "string", "BINARY": "bytes", "VARBINARY": "bytes",
}  # fmt: skip


class AvroTableFormat(TableFormat):
    """Records in Avro's binary form, and container files."""

    NAME = "avro"
    OPTIONS: ClassVar[tuple[Option[Any], ...]] = (CODEC,)

    def schema_text(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> str:
        """The schema as JSON.

        Raises:
            TableOptionError: a type has no equal in Avro.
        """
        try:
            return json.dumps(avro_schema(dict(zip(row_type.field_names, types, strict=True))))
        except ValueError as error:
            raise self.options.refuse("format", f"is '{self.NAME}': {error}") from None

    @override
    def decoder(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> RowDecoder:
        text = self.schema_text(row_type, types)
        return AvroRowDecoder(row_type, types, avro_schemas.AvroRowDeserializationSchema(avro_schema_string=text))

    @override
    def encoder(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> RowEncoder:
        text = self.schema_text(row_type, types)
        return AvroRowEncoder(row_type, types, avro_schemas.AvroRowSerializationSchema(avro_schema_string=text))

    @override
    def file_format(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> FileFormat:
        schema = avro_schemas.AvroSchema.parse_string(self.schema_text(row_type, types))
        return AvroRowFiles(row_type, types, avro_schemas.AvroFormat(schema))

    @override
    def file_writer(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> BulkWriterFactory:
        schema = avro_schemas.AvroSchema.parse_string(self.schema_text(row_type, types))
        writers = avro_schemas.AvroBulkWriters(schema, self.options.get(CODEC))
        return AvroRowWriters(row_type, types, writers)


class ConfluentAvroTableFormat(AvroTableFormat):
    """Records in Avro's binary form behind the number of their schema in a registry."""

    NAME = "avro-confluent"
    OPTIONS = (URL, SUBJECT, AUTH_SOURCE, AUTH)
    _topic_subject: str | None = None

    @override
    def for_topic(self, topic: str, role: str) -> TableFormat:
        self._topic_subject = f"{topic}-{role}"
        return self

    def _registry(self) -> tuple[str, dict[str, str]]:
        login = self.options.get(AUTH)
        return self.options.required(URL), {} if login is None else {"basic.auth.user.info": login}

    @override
    def decoder(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> RowDecoder:
        schema = avro_schemas.ConfluentRegistryAvroDeserializationSchema(
            self.schema_text(row_type, types), *self._registry()
        )
        return AvroRowDecoder(row_type, types, schema)

    @override
    def encoder(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> RowEncoder:
        subject = self.options.get(SUBJECT) or self._topic_subject or self.options.required(SUBJECT)
        schema = avro_schemas.ConfluentRegistryAvroSerializationSchema(
            subject, self.schema_text(row_type, types), *self._registry()
        )
        return AvroRowEncoder(row_type, types, schema)

    @override
    def file_format(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> FileFormat:
        return TableFormat.file_format(self, row_type, types)

    @override
    def file_writer(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> BulkWriterFactory:
        raise self.options.refuse("format", f"is '{self.NAME}', which is one of messages")


class AvroRowDecoder(RowDecoder):
    """Reads records of Avro.

    Args:
        row_type: type of the rows.
        types: types of the columns.
        schema: reads a record.
    """

    def __init__(self, row_type: RowTypeInfo, types: Sequence[DataType], schema: DeserializationSchema) -> None:
        super().__init__(row_type)
        self._types, self._schema = tuple(types), schema

    @override
    def decode(self, messages: Sequence[bytes]) -> DecodedRows | None:
        try:
            rows = self._rows(messages)
        except (ValueError, ArithmeticError):
            return None
        return DecodedRows(batch_of(rows, self.row_type), None, None, {})

    @override
    def changes(self, message: bytes) -> list[Change]:
        return [Change(INSERT, values, {}) for values in self._rows([message])]

    def _rows(self, messages: Sequence[bytes]) -> list[list[Any]]:
        names, converts = tuple(self.row_type.field_names), [_from_avro(data_type) for data_type in self._types]
        rows = [row_values(self._schema.deserialize(message), names) for message in messages]
        return [[convert(value) for convert, value in zip(converts, row, strict=True)] for row in rows]


class AvroRowEncoder(RowEncoder):
    """Writes records of Avro.

    Args:
        row_type: type of the rows.
        types: types of the columns.
        schema: writes a record.
    """

    def __init__(self, row_type: RowTypeInfo, types: Sequence[DataType], schema: SerializationSchema) -> None:
        self._type, self._types, self._schema = row_type, tuple(types), schema

    @override
    def encode(self, rows: pa.RecordBatch, kinds: Kinds | None) -> Sequence[bytes | None]:
        write, record = self._schema.serialize, _record_of(self._type.field_names, self._types)
        return [write(record(row)) for row in records_of(rows, self._type)]


class AvroRowFiles(ContainerFormat):
    """Container files whose records are rows of a table.

    Args:
        row_type: type of the rows.
        types: types of the columns.
        files_format: reads dicts.
    """

    def __init__(self, row_type: RowTypeInfo, types: Sequence[DataType], files_format: FileFormat) -> None:
        self._type, self._types, self._format = row_type, tuple(types), files_format

    @property
    @override
    def splittable(self) -> bool:
        return self._format.splittable

    @override
    def open_cursor(self, split: Split, malformed: MalformedRecords) -> SplitCursor[Any]:
        self._format.files = self.files
        return _RowCursor(self._format.open_cursor(split, malformed), self._type, self._types)

    @override
    def produced_type(self) -> TypeInformation:
        return self._type

    @override
    def check(self) -> None:
        self._format.check()


class _RowCursor(SplitCursor[Any]):
    def __init__(self, cursor: SplitCursor[Any], row_type: RowTypeInfo, types: Sequence[DataType]) -> None:
        self._cursor, self._type = cursor, row_type
        self._names = list(row_type.field_names)
        self._converts = [_from_avro(data_type) for data_type in types]

    @override
    def read(self, max_records: int) -> Chunk[Any] | Wait:
        chunk = self._cursor.read(max_records)
        if isinstance(chunk, Wait):
            return chunk
        pairs = list(zip(self._names, self._converts, strict=True))
        rows = [[convert(record[name]) for name, convert in pairs] for record in chunk.values]
        return Chunk(batch_of(rows, self._type), chunk.position, chunk.finished)

    @override
    def close(self) -> None:
        self._cursor.close()


class AvroRowWriters(BulkWriterFactory):
    """Writes container files of rows.

    Args:
        row_type: type of the rows.
        types: types of the columns.
        writers: write dicts.
    """

    def __init__(self, row_type: RowTypeInfo, types: Sequence[DataType], writers: BulkWriterFactory) -> None:
        self._names, self._types, self._writers = tuple(row_type.field_names), tuple(types), writers

    @override
    def create(self, stream: IO[bytes]) -> BulkWriter:
        return _RowWriter(self._writers.create(stream), _record_of(self._names, self._types))

    @override
    def check(self) -> None:
        self._writers.check()


class _RowWriter(BulkWriter):
    def __init__(self, writer: BulkWriter, record_of: Callable[[Any], Any]) -> None:
        self._writer, self._record_of = writer, record_of

    @override
    def write(self, elements: Sequence[Any]) -> None:
        self._writer.write(list(map(self._record_of, elements)))

    @override
    def finish(self) -> None:
        self._writer.finish()

    @override
    def abort(self) -> None:
        self._writer.abort()

    @override
    def buffered_bytes(self) -> int:
        return self._writer.buffered_bytes()


def _from_avro(data_type: DataType) -> Callable[[Any], Any]:
    """What makes a value of a table of one of fastavro."""
    match data_type:
        case RowType():
            names = tuple(data_type.field_names())
            parts = [_from_avro(part) for part in data_type.field_types()]
            return _nullable(
                lambda value: make_row(
                    names, [convert(item) for convert, item in zip(parts, row_values(value, names), strict=True)]
                )
            )
        case MapType():
            item = _from_avro(data_type.value_type)
            return _nullable(lambda value: {key: item(part) for key, part in value.items()})
        case ElementsType():
            element = _from_avro(data_type.element_type)
            return _nullable(lambda value: [element(part) for part in value])
    if data_type.name == "TIMESTAMP":
        return _nullable(lambda value: value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value)
    if data_type.name == "TIMESTAMP_LTZ":
        return _nullable(lambda value: value if value.tzinfo else value.replace(tzinfo=UTC))
    return _same


def _record_of(names: Sequence[str], types: Sequence[DataType]) -> Callable[[Any], Any]:
    """What makes a dict, as fastavro takes it, of a row."""
    keys, converts = tuple(names), [_to_avro(data_type) for data_type in types]

    def record(row: Any) -> Any:
        return {name: to(value) for name, to, value in zip(keys, converts, row_values(row, keys), strict=True)}

    return record


def _to_avro(data_type: DataType) -> Callable[[Any], Any]:
    """What makes a value of fastavro of one of a table."""
    match data_type:
        case RowType():
            return _nullable(_record_of(data_type.field_names(), data_type.field_types()))
        case MapType():
            item = _to_avro(data_type.value_type)
            return _nullable(lambda value: {key: item(part) for key, part in value.items()})
        case ElementsType():
            element = _to_avro(data_type.element_type)
            return _nullable(lambda value: [element(part) for part in value])
    if data_type.name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return _nullable(_moment)
    return _same


def _moment(value: Any) -> Any:
    if isinstance(value, Instant):
        return datetime.fromtimestamp(0, UTC).replace(microsecond=0) + _micros(value)
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _micros(value: Instant) -> timedelta:
    return timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)


def _nullable(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value
