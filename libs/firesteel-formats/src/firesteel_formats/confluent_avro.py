"""Schemas of connectors for Avro in Confluent's wire format, with schemas of a registry."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from firesteel.common.serialization import DeserializationSchema, SerializationSchema
from firesteel.common.typeinfo import TypeInformation
from firesteel.core.errors import MalformedDataError, ProgramError
from firesteel.expressions.schema import uncolumnar
from firesteel_formats.avro_rows import AvroRowSerializationSchema, RecordColumns, record_converter, type_of
from firesteel_formats.avro_schema import AvroSchema, fastavro_module, parsed_schema
from firesteel_formats.schema_registry import (
    Fetch,
    RegisteredSchema,
    SchemaRegistry,
    UnknownSchemaError,
    framed,
    unframed,
)

__all__ = ["ConfluentRegistryAvroDeserializationSchema", "ConfluentRegistryAvroSerializationSchema"]

KIND = "AVRO"


class ConfluentRegistryAvroDeserializationSchema(DeserializationSchema):
    """Reads records that were written with schemas of a registry as rows of one schema.

    Args:
        avro_schema_string: JSON of the rows' schema. Records that were written with another schema are converted by
            Avro's rules of schema resolution.
        schema_registry_url: URL of the registry.
        registry_configs: settings, as for ``SchemaRegistry``.

    Raises:
        ProgramError: the schema is not one of records, or the URL is not one of HTTP.

    Examples:
        ```python
        from firesteel.datastream.connectors.kafka import KafkaSource
        from firesteel.datastream.formats.avro import ConfluentRegistryAvroDeserializationSchema

        text = '{"type": "record", "name": "Sale", "fields": [{"name": "amount", "type": "int"}]}'
        rows = ConfluentRegistryAvroDeserializationSchema(text, "http://registry:8081")
        source = KafkaSource.builder().set_topics("sales").set_value_only_deserializer(rows)
        print(rows.get_produced_type())
        ```

        ```text
        RowTypeInfo(amount: Integer)
        ```
    """

    def __init__(
        self,
        avro_schema_string: str,
        schema_registry_url: str,
        registry_configs: Mapping[str, str] | None = None,
        *,
        fetch: Fetch | None = None,
    ) -> None:
        self._schema = AvroSchema.parse_string(avro_schema_string)
        self._schema.record_fields(type(self).__name__)
        self._where = schema_registry_url, registry_configs, fetch
        self._registry: SchemaRegistry | None = SchemaRegistry(*self._where)
        self._written: dict[int, Any] = {}
        self._convert: Callable[[Any], Any] | None = None
        self._columns: RecordColumns | None = None
        self.gives_columns = uncolumnar(self.get_produced_type()) is None

    def deserialize(self, message: bytes) -> Any:
        """Returns the row.

        Raises:
            MalformedDataError: the message is malformed, or the registry does not know its schema.
            ConnectionError: the registry does not answer.
        """
        if message is None:
            return None
        if self._convert is None:
            self._convert = record_converter(self._schema)
        try:
            return self._convert(self._record(message))
        except (ConnectionError, ProgramError):
            raise
        except Exception as error:  # fastavro raises errors of any kind
            reason = f"malformed Avro {bytes(message)[:40]!r}: {type(error).__name__}: {error}"
            raise MalformedDataError("", None, None, reason) from error

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """Returns the rows of many messages; None = call ``deserialize`` for each."""
        if self._columns is None:
            self._columns = RecordColumns(self._schema)
        try:
            records = [self._record(message) for message in messages]
        except (ConnectionError, ProgramError):
            raise
        except Exception:  # deserialize finds out which message it is
            return None
        return self._columns.batch(records)

    def _record(self, message: bytes) -> Any:
        number, payload = unframed(message)
        writer_schema = self._written.get(number)
        if writer_schema is None:
            if self._registry is None:
                self._registry = SchemaRegistry(*self._where)
            schema = self._registry.schema(number, KIND)
            writer_schema = self._written[number] = _parsed(self._registry, schema, {})
        stream = io.BytesIO(payload)
        record = fastavro_module().schemaless_reader(stream, writer_schema, self._schema.parsed)
        if stream.read(1):
            raise ValueError("there are bytes behind the record")
        return record

    def get_produced_type(self) -> TypeInformation:
        """Returns the row type of the schema."""
        return type_of(self._schema.parsed)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_registry": None, "_written": {}, "_convert": None, "_columns": None}


class ConfluentRegistryAvroSerializationSchema(SerializationSchema):
    """Writes rows behind the number of their schema in a registry.

    Args:
        subject: subject to register the schema for; Confluent's convention for values of a topic is ``<topic>-value``.
        avro_schema_string: JSON of the records' schema.
        schema_registry_url: URL of the registry.
        registry_configs: settings, as for ``SchemaRegistry``.
        auto_register: register the schema if it is not registered; otherwise that is an error.

    Raises:
        ProgramError: the schema is not one of records, or the URL is not one of HTTP.

    Examples:
        ```python
        from firesteel.datastream.connectors.kafka import KafkaRecordSerializationSchema
        from firesteel.datastream.formats.avro import ConfluentRegistryAvroSerializationSchema

        text = '{"type": "record", "name": "Sale", "fields": [{"name": "amount", "type": "int"}]}'
        rows = ConfluentRegistryAvroSerializationSchema("sales-value", text, "http://registry:8081")
        records = KafkaRecordSerializationSchema.builder().set_topic("sales").set_value_serialization_schema(rows)
        ```
    """

    def __init__(
        self,
        subject: str,
        avro_schema_string: str,
        schema_registry_url: str,
        registry_configs: Mapping[str, str] | None = None,
        *,
        auto_register: bool = True,
        fetch: Fetch | None = None,
    ) -> None:
        self._rows = AvroRowSerializationSchema(avro_schema_string=avro_schema_string)
        self._subject, self._new = subject, auto_register
        self._schema = RegisteredSchema(KIND, json.dumps(json.loads(avro_schema_string)))
        self._where = schema_registry_url, registry_configs, fetch
        SchemaRegistry(*self._where)  # raises at once if an argument is wrong
        self._number: int | None = None

    def serialize(self, element: Any) -> bytes:
        """Returns the record's bytes.

        Raises:
            ValueError, TypeError: the record does not fit the schema.
            ConnectionError: the registry does not answer.
            ProgramError: the registry refuses the schema.
        """
        if self._number is None:
            self._number = SchemaRegistry(*self._where).register(self._subject, self._schema, new=self._new)
        return framed(self._number, self._rows.serialize(element))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_number": None}


def _parsed(registry: SchemaRegistry, schema: RegisteredSchema, named: dict[str, Any]) -> Any:
    """Parse a schema of the registry for fastavro, behind those that it uses."""
    for reference in schema.references:
        _parsed(registry, registry.referred(reference), named)
    try:
        return parsed_schema(json.loads(schema.text), named)
    except (ConnectionError, ProgramError):
        raise
    except Exception as error:  # fastavro raises errors of any kind
        raise UnknownSchemaError(f"the registry's schema is not valid: {type(error).__name__}: {error}") from error
