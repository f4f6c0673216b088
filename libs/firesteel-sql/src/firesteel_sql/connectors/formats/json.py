"""``'format' = 'json'``, and the formats of changes that are written as JSON: Debezium, Canal, Maxwell, OGG."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
from typing_extensions import override

from firesteel.common.serialization import SerializationSchema
from firesteel.common.time import Instant
from firesteel.common.typeinfo import RowTypeInfo, Types
from firesteel.config.option import BOOL, STRING, Option, enum_of
from firesteel.connectors.file_format import FileFormat
from firesteel.connectors.formats.json_columns import JsonColumns
from firesteel.connectors.formats.json_rows import JsonLinesFormat, JsonRowSerializationSchema, json_parser
from firesteel.connectors.formats.json_values import json_reader, quick_parser
from firesteel.expressions.values import row_values
from firesteel.table.types import DataType, DataTypes
from firesteel_sql.connectors.changelog import ALL_CHANGES, ChangelogMode
from firesteel_sql.connectors.formats.files import TableFiles
from firesteel_sql.connectors.formats.format import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    Change,
    DecodedRows,
    Kinds,
    RowDecoder,
    RowEncoder,
    TableFormat,
    batch_of,
    with_any_decimals,
)
from firesteel_sql.connectors.formats.times import texts_of_times
from firesteel_sql.connectors.options import TableOptions

FAIL_ON_MISSING_FIELD: Final = Option(
    "json.fail-on-missing-field",
    BOOL,
    False,
    "A message without one of the fields is an error; else the field is NULL.",
)
IGNORE_PARSE_ERRORS: Final = Option(
    "json.ignore-parse-errors",
    BOOL,
    False,
    "Fields that can't be read are NULL, and messages that are no JSON objects are left out.",
)
TIMESTAMP_STANDARD: Final = Option(
    "json.timestamp-format.standard",
    enum_of("SQL", "ISO-8601"),
    "SQL",
    "How timestamps are written: `2024-05-01 12:30:00.5` or `2024-05-01T12:30:00.5`. Both are read.",
)
IGNORE_NULL_FIELDS: Final = Option(
    "json.encode.ignore-null-fields", BOOL, False, "Fields that are NULL are not written."
)
PLAIN_DECIMALS: Final = Option(
    "json.encode.decimal-as-plain-number", BOOL, False, "Has no effect: decimal numbers are written without exponents."
)
NULL_KEYS: Final = Option(
    "json.map-null-key.mode", enum_of("FAIL", "DROP", "LITERAL"), "FAIL", "Has no effect: keys of maps are never NULL."
)
NULL_KEY_LITERAL: Final = Option("json.map-null-key.literal", STRING, "null", "Has no effect, likewise.")


class JsonTableFormat(TableFormat):
    """JSON objects, one for each row."""

    NAME = "json"
    OPTIONS = (
        FAIL_ON_MISSING_FIELD, IGNORE_PARSE_ERRORS, TIMESTAMP_STANDARD, IGNORE_NULL_FIELDS, PLAIN_DECIMALS, NULL_KEYS,
        NULL_KEY_LITERAL,
    )  # fmt: skip

    def _errors(self) -> tuple[bool, bool]:
        """Whether a missing field is an error, and whether errors are ignored."""
        fails, ignores = self.options.get(FAIL_ON_MISSING_FIELD), self.options.get(IGNORE_PARSE_ERRORS)
        if fails and ignores:
            raise self.options.refuse(
                FAIL_ON_MISSING_FIELD.key, f"and {IGNORE_PARSE_ERRORS.key} can't both be true: they exclude each other"
            )
        return fails, ignores

    @override
    def decoder(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> RowDecoder:
        return JsonRowDecoder(row_type, *self._errors())

    @override
    def encoder(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> JsonRowEncoder:
        standard = self.options.get(TIMESTAMP_STANDARD)
        return JsonRowEncoder(row_type, standard, leaves_nulls_out=self.options.get(IGNORE_NULL_FIELDS))

    @override
    def file_format(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> FileFormat:
        fails, ignores = self._errors()
        wide = with_any_decimals(row_type)
        lines = JsonLinesFormat(wide, fail_on_missing_field=fails, nulls_errors=ignores)
        return lines if wide == row_type else TableFiles(row_type, lines, row_type)

    @override
    def file_writer(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> SerializationSchema:
        return _RowSchema(row_type, self.encoder(row_type, types))


class JsonRowDecoder(RowDecoder):
    """Reads JSON objects, whole batches by Arrow where their types allow it.

    Args:
        row_type: type of the rows.
        fails_on_missing: a missing field is an error.
        ignores_errors: fields that can't be read are None, and messages that can't be read no rows.
    """

    def __init__(self, row_type: RowTypeInfo, fails_on_missing: bool, ignores_errors: bool) -> None:
        super().__init__(row_type)
        self._fails, self._ignores = fails_on_missing, ignores_errors
        self._by_arrow = JsonColumns.reads(row_type, fail_on_missing_field=fails_on_missing)
        json_reader(row_type)  # raises at once if a type can't be in JSON
        self._parse: Callable[[bytes], Any] | None = None
        self._columns: JsonColumns | None = None

    @override
    def decode(self, messages: Sequence[bytes]) -> DecodedRows | None:
        if self._by_arrow and messages:
            if self._columns is None:
                self._columns = JsonColumns(self.row_type, fail_on_missing_field=self._fails)
            rows = self._columns.read(messages)
            if rows is not None:
                return DecodedRows(rows, None, None, {})
        try:
            values = [self._values(message) for message in messages]
        except (ValueError, ArithmeticError):
            return None
        origins = np.fromiter((place for place, row in enumerate(values) if row is not None), np.int64)
        return DecodedRows(batch_of([row for row in values if row is not None], self.row_type), origins, None, {})

    @override
    def changes(self, message: bytes) -> list[Change]:
        values = self._values(message)
        return [] if values is None else [Change(INSERT, values, {})]

    def _values(self, message: bytes) -> Sequence[Any] | None:
        if self._parse is None:
            wide = with_any_decimals(self.row_type)
            self._parse = json_parser(wide, fail_on_missing_field=self._fails, nulls_errors=self._ignores)
        try:
            return row_values(self._parse(message), tuple(self.row_type.field_names))
        except ValueError as error:
            if self._ignores:
                return None
            raise _malformed(message, error) from None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parse": None, "_columns": None}


class JsonRowEncoder(RowEncoder):
    """Writes rows as JSON objects.

    Args:
        row_type: type of the rows.
        standard: how timestamps are written, SQL or ISO-8601.
        leaves_nulls_out: fields that are None are not written.
    """

    def __init__(self, row_type: RowTypeInfo, standard: str, *, leaves_nulls_out: bool = False) -> None:
        self._type, self._standard, self._leaves_nulls_out = row_type, standard, leaves_nulls_out
        self._schema: JsonRowSerializationSchema | None = None

    @override
    def encode(self, rows: pa.RecordBatch, kinds: Kinds | None) -> Sequence[bytes | None]:
        return self.objects(rows)

    def objects(self, rows: pa.RecordBatch) -> list[bytes]:
        """The JSON of each row."""
        texts, row_type = texts_of_times(rows, self._type, self._standard)
        if self._schema is None:
            self._schema = JsonRowSerializationSchema(row_type)
        objects = self._schema.serialize_columns(texts)
        return [_without_nulls(item) for item in objects] if self._leaves_nulls_out else objects

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_schema": None}


class _RowSchema(SerializationSchema):
    """Writes the lines of files."""

    takes_columns = True

    def __init__(self, row_type: RowTypeInfo, encoder: JsonRowEncoder) -> None:
        self._type, self._encoder = row_type, encoder

    @override
    def serialize(self, element: Any) -> bytes:
        values = row_values(element, tuple(self._type.field_names))
        return self._encoder.objects(batch_of([values], self._type))[0]

    @override
    def serialize_columns(self, batch: pa.RecordBatch) -> list[bytes]:
        return self._encoder.objects(batch)


def _without_nulls(message: bytes) -> bytes:
    fields: dict[str, msgspec.Raw] = msgspec.json.decode(message, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({name: raw for name, raw in fields.items() if bytes(raw) != b"null"})


def _malformed(message: bytes, error: Exception) -> ValueError:
    return ValueError(f"malformed JSON {bytes(message)[:80]!r}: {error}")


# --- changes


class ChangeJsonFormat(TableFormat):
    """Messages that are objects about a change, with the rows before and after it inside."""

    MODE: ClassVar[ChangelogMode] = ALL_CHANGES
    METADATA: ClassVar[Mapping[str, DataType]] = {}

    ROWS: tuple[str, str, str] | None = None
    """Names of the row before, the row after, and the kind of change, where whole rows are in a message."""

    @classmethod
    def option(cls, end: str) -> Option[Any]:
        """The option that ends like this, behind the name of the format."""
        return next(option for option in cls.OPTIONS if option.key == f"{cls.NAME}.{end}")

    @override
    def metadata(self) -> Mapping[str, DataType]:
        return self.METADATA

    @abstractmethod
    def changes_of(self, envelope: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
        """Yield row kinds and JSON objects of rows."""

    def metadata_of(self, envelope: Mapping[str, Any]) -> Mapping[str, Any]:
        """The metadata of a message."""
        return {}

    @abstractmethod
    def envelopes(self, rows: Sequence[bytes], deletes: Sequence[bool]) -> list[bytes]:
        """The message of each row, which is JSON already."""

    @override
    def decoder(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> RowDecoder:
        return ChangeJsonDecoder(row_type, self, self.options.get(self.option("ignore-parse-errors")))

    @override
    def encoder(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> RowEncoder:
        standard = self.options.get(self.option("timestamp-format.standard"))
        return ChangeJsonEncoder(self, JsonRowEncoder(row_type, standard))


class ChangeJsonDecoder(RowDecoder):
    """Reads the rows inside of messages about changes.

    Args:
        row_type: type of the rows.
        table_format: says where the rows are.
        ignores_errors: fields that can't be read are None, and messages that can't be read no rows.
    """

    def __init__(self, row_type: RowTypeInfo, table_format: ChangeJsonFormat, ignores_errors: bool) -> None:
        super().__init__(row_type)
        self._format, self._ignores = table_format, ignores_errors
        json_reader(row_type)  # raises at once if a type can't be in JSON
        self._read: Callable[[Any], Any] | None = None
        self._parse: Callable[[bytes], Any] | None = None
        self._quick: Callable[[bytes], Any] | None = None

    @override
    def decode(self, messages: Sequence[bytes]) -> DecodedRows | None:
        if self._quick is None and self._format.ROWS is not None and not (self._ignores or self.gives_metadata):
            wide = with_any_decimals(self.row_type)
            envelope = Types.ROW_NAMED(list(self._format.ROWS), [wide, wide, Types.STRING()])
            self._quick = quick_parser(envelope, fail_on_missing_field=False)
        return super().decode(messages)

    def _quick_changes(self, message: bytes) -> list[Change] | None:
        """The rows of a message whose rows msgspec reads; None = it has to be read in the way that finds errors."""
        names, fields = tuple(self.row_type.field_names), self._format.ROWS
        if self._quick is None or fields is None:
            return None
        try:
            envelope = dict(zip(fields, row_values(self._quick(message), fields), strict=True))
            return [Change(kind, row_values(row, names), {}) for kind, row in self._format.changes_of(envelope)]
        except (ValueError, ArithmeticError, RecursionError):
            return None

    @override
    def changes(self, message: bytes) -> list[Change]:
        quick = self._quick_changes(message)
        if quick is not None:
            return quick
        if self._read is None or self._parse is None:
            self._read = json_reader(with_any_decimals(self.row_type), nulls_errors=self._ignores)
            self._parse = msgspec.json.Decoder(float_hook=Decimal).decode
        names = tuple(self.row_type.field_names)
        try:
            envelope = self._parse(message)
            if not isinstance(envelope, dict):
                raise ValueError("an object is expected")
            metadata = self._format.metadata_of(envelope) if self.gives_metadata else {}
            return [
                Change(kind, row_values(self._read(row), names), metadata)
                for kind, row in self._format.changes_of(envelope)
            ]
        except (ValueError, ArithmeticError, AttributeError, TypeError) as error:
            if self._ignores:
                return []
            raise _malformed(message, error) from None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": None, "_parse": None, "_quick": None}


class ChangeJsonEncoder(RowEncoder):
    """Writes each row as a message of its own: an update is the message of a delete and that of an insert, as in Flink.

    Args:
        table_format: makes the messages.
        rows: writes the rows inside of them.
    """

    def __init__(self, table_format: ChangeJsonFormat, rows: JsonRowEncoder) -> None:
        self._format, self._rows = table_format, rows

    @override
    def encode(self, rows: pa.RecordBatch, kinds: Kinds | None) -> Sequence[bytes | None]:
        deletes = np.zeros(rows.num_rows, np.bool_) if kinds is None else (kinds & 1).astype(np.bool_)
        return self._format.envelopes(self._rows.objects(rows), deletes.tolist())


def _options(name: str, *more: Option[Any]) -> tuple[Option[Any], ...]:
    return (
        Option(f"{name}.ignore-parse-errors", BOOL, False, IGNORE_PARSE_ERRORS.doc),
        Option(f"{name}.timestamp-format.standard", TIMESTAMP_STANDARD.type, "SQL", TIMESTAMP_STANDARD.doc),
        *more,
    )


def _instant(millis: Any) -> Instant | None:
    return None if millis is None else Instant.of_epoch_milli(int(millis))


def _row(envelope: Mapping[str, Any], name: str, problem: str) -> Any:
    row = envelope.get(name)
    if row is None:
        raise ValueError(problem)
    return row


_SCHEMA_INCLUDE: Final = Option(
    "debezium-json.schema-include", BOOL, False, "Messages hold a schema and, as `payload`, the change."
)


class DebeziumJsonFormat(ChangeJsonFormat):
    """Debezium: ``{"before": …, "after": …, "op": "u"}``."""

    NAME = "debezium-json"
    OPTIONS = _options("debezium-json", _SCHEMA_INCLUDE)
    METADATA: ClassVar[Mapping[str, DataType]] = {
        "ingestion-timestamp": DataTypes.TIMESTAMP_LTZ(3),
        "source.timestamp": DataTypes.TIMESTAMP_LTZ(3),
        "source.database": DataTypes.STRING(),
        "source.schema": DataTypes.STRING(),
        "source.table": DataTypes.STRING(),
        "source.properties": DataTypes.MAP(DataTypes.STRING(), DataTypes.STRING()),
    }

    ROWS: tuple[str, str, str] | None = ("before", "after", "op")

    def __init__(self, options: TableOptions) -> None:
        super().__init__(options)
        self._in_payload = options.get(_SCHEMA_INCLUDE)
        if self._in_payload:
            self.ROWS = None  # they are inside of the payload

    def _payload(self, envelope: Mapping[str, Any]) -> Mapping[str, Any]:
        return _row(envelope, "payload", "there is no payload") if self._in_payload else envelope

    @override
    def changes_of(self, envelope: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
        payload = self._payload(envelope)
        no_before = (
            "the row before the change is null: PostgreSQL's connector gives it if the table has REPLICA IDENTITY FULL"
        )
        match payload.get("op"):
            case "c" | "r":
                yield INSERT, _row(payload, "after", "the row after the change is null")
            case "u":
                yield UPDATE_BEFORE, _row(payload, "before", no_before)
                yield UPDATE_AFTER, _row(payload, "after", "the row after the change is null")
            case "d":
                yield DELETE, _row(payload, "before", no_before)
            case op:
                raise ValueError(f"op is {op!r}, and has to be c, r, u or d")

    @override
    def metadata_of(self, envelope: Mapping[str, Any]) -> Mapping[str, Any]:
        payload = self._payload(envelope)
        source = payload.get("source") or {}
        return {
            "ingestion-timestamp": _instant(payload.get("ts_ms")),
            "source.timestamp": _instant(source.get("ts_ms")),
            "source.database": source.get("db"),
            "source.schema": source.get("schema"),
            "source.table": source.get("table"),
            "source.properties": {key: None if value is None else str(value) for key, value in source.items()},
        }

    @override
    def envelopes(self, rows: Sequence[bytes], deletes: Sequence[bool]) -> list[bytes]:
        if self._in_payload:
            raise self.options.refuse(_SCHEMA_INCLUDE.key, "is for reading: rows are written without a schema")
        return [
            b'{"before":' + row + b',"after":null,"op":"d"}'
            if is_delete
            else b'{"before":null,"after":' + row + b',"op":"c"}'
            for row, is_delete in zip(rows, deletes, strict=True)
        ]


_CANAL_DATABASE: Final = Option(
    "canal-json.database.include", STRING, None, "Regular expression: changes of other databases are left out."
)
_CANAL_TABLE: Final = Option(
    "canal-json.table.include", STRING, None, "Regular expression: changes of other tables are left out."
)


class CanalJsonFormat(ChangeJsonFormat):
    """Canal: ``{"data": [row, …], "old": [changed fields, …], "type": "UPDATE"}``."""

    NAME = "canal-json"
    OPTIONS = _options("canal-json", _CANAL_DATABASE, _CANAL_TABLE)
    METADATA: ClassVar[Mapping[str, DataType]] = {
        "database": DataTypes.STRING(),
        "table": DataTypes.STRING(),
        "sql-type": DataTypes.MAP(DataTypes.STRING(), DataTypes.INT()),
        "pk-names": DataTypes.ARRAY(DataTypes.STRING()),
        "ingestion-timestamp": DataTypes.TIMESTAMP_LTZ(3),
        "event-timestamp": DataTypes.TIMESTAMP_LTZ(3),
    }

    def __init__(self, options: TableOptions) -> None:
        super().__init__(options)
        self._includes: list[tuple[str, str]] = []
        for field, option in (("database", _CANAL_DATABASE), ("table", _CANAL_TABLE)):
            pattern = options.get(option)
            if pattern is not None:
                try:
                    re.compile(pattern)
                except re.error as error:
                    raise options.refuse(
                        option.key, f"is '{pattern}', which is no regular expression: {error}"
                    ) from None
                self._includes.append((field, pattern))

    @override
    def changes_of(self, envelope: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
        if any(re.fullmatch(pattern, envelope.get(field) or "") is None for field, pattern in self._includes):
            return
        change, rows = envelope.get("type"), envelope.get("data") or ()
        match change:
            case "INSERT":
                yield from ((INSERT, row) for row in rows)
            case "DELETE":
                yield from ((DELETE, row) for row in rows)
            case "UPDATE":
                for row, old in zip(rows, envelope.get("old") or (), strict=True):
                    yield UPDATE_BEFORE, {**row, **old}
                    yield UPDATE_AFTER, row
            case "CREATE":
                return
            case _:
                raise ValueError(f"type is {change!r}, and has to be INSERT, UPDATE, DELETE or CREATE")

    @override
    def metadata_of(self, envelope: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "database": envelope.get("database"),
            "table": envelope.get("table"),
            "sql-type": envelope.get("sqlType"),
            "pk-names": envelope.get("pkNames"),
            "ingestion-timestamp": _instant(envelope.get("ts")),
            "event-timestamp": _instant(envelope.get("es")),
        }

    @override
    def envelopes(self, rows: Sequence[bytes], deletes: Sequence[bool]) -> list[bytes]:
        return [
            b'{"data":[' + row + b'],"type":"' + (b"DELETE" if is_delete else b"INSERT") + b'"}'
            for row, is_delete in zip(rows, deletes, strict=True)
        ]


class MaxwellJsonFormat(ChangeJsonFormat):
    """Maxwell: ``{"data": row, "old": changed fields, "type": "update"}``."""

    NAME = "maxwell-json"
    OPTIONS = _options("maxwell-json")
    METADATA: ClassVar[Mapping[str, DataType]] = {
        "database": DataTypes.STRING(),
        "table": DataTypes.STRING(),
        "primary-key-columns": DataTypes.ARRAY(DataTypes.STRING()),
        "ingestion-timestamp": DataTypes.TIMESTAMP_LTZ(3),
    }

    @override
    def changes_of(self, envelope: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
        change, row = envelope.get("type"), _row(envelope, "data", "there is no data")
        match change:
            case "insert" | "bootstrap-insert":
                yield INSERT, row
            case "update":
                yield UPDATE_BEFORE, {**row, **(envelope.get("old") or {})}
                yield UPDATE_AFTER, row
            case "delete":
                yield DELETE, row
            case _:
                raise ValueError(f"type is {change!r}, and has to be insert, update or delete")

    @override
    def metadata_of(self, envelope: Mapping[str, Any]) -> Mapping[str, Any]:
        seconds = envelope.get("ts")
        return {
            "database": envelope.get("database"),
            "table": envelope.get("table"),
            "primary-key-columns": envelope.get("primary_key_columns"),
            "ingestion-timestamp": None if seconds is None else _instant(int(seconds) * 1000),
        }

    @override
    def envelopes(self, rows: Sequence[bytes], deletes: Sequence[bool]) -> list[bytes]:
        return [
            b'{"data":' + row + b',"type":"' + (b"delete" if is_delete else b"insert") + b'"}'
            for row, is_delete in zip(rows, deletes, strict=True)
        ]


class OggJsonFormat(ChangeJsonFormat):
    """Oracle GoldenGate: ``{"before": …, "after": …, "op_type": "U"}``."""

    NAME = "ogg-json"
    OPTIONS = _options("ogg-json")
    ROWS = ("before", "after", "op_type")

    @override
    def changes_of(self, envelope: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
        match envelope.get("op_type"):
            case "I":
                yield INSERT, _row(envelope, "after", "the row after the change is null")
            case "U":
                yield UPDATE_BEFORE, _row(envelope, "before", "the row before the change is null")
                yield UPDATE_AFTER, _row(envelope, "after", "the row after the change is null")
            case "D":
                yield DELETE, _row(envelope, "before", "the row before the change is null")
            case "T":
                return
            case op:
                raise ValueError(f"op_type is {op!r}, and has to be I, U, D or T")

    @override
    def envelopes(self, rows: Sequence[bytes], deletes: Sequence[bool]) -> list[bytes]:
        return [
            b'{"before":' + row + b',"after":null,"op_type":"D"}'
            if is_delete
            else b'{"before":null,"after":' + row + b',"op_type":"I"}'
            for row, is_delete in zip(rows, deletes, strict=True)
        ]
