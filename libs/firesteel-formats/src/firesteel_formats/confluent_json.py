"""JSON in Confluent's wire format, with a JSON Schema of a registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from firesteel.common.serialization import DeserializationSchema, SerializationSchema
from firesteel.common.typeinfo import TypeDescriptor, TypeInformation
from firesteel.connectors.formats.json_rows import JsonRowDeserializationSchema, JsonRowSerializationSchema
from firesteel.core.errors import MalformedDataError, ProgramError
from firesteel_formats.schema_registry import Fetch, RegisteredSchema, SchemaRegistry, framed, unframed

__all__ = ["ConfluentRegistryJsonDeserializationSchema", "ConfluentRegistryJsonSerializationSchema"]

KIND: Final = "JSON"
_DRAFTS: Final = ("draft-04", "draft-06", "draft-07")
Check = Callable[[Any], object]
"""A function that raises ``ValueError`` for a value that is not valid."""


class ConfluentRegistryJsonDeserializationSchema(DeserializationSchema):
    r"""Reads JSON objects behind the number of their schema as rows.

    Args:
        type_info: type of the rows, as for ``JsonRowDeserializationSchema``.
        schema_registry_url: URL of the registry, which is asked only to validate.
        registry_configs: settings, as for ``SchemaRegistry``.
        validate: treat objects as malformed that are not valid by the schema that they were written with. This needs
            the extra ``json-schema``, takes time for each record, and gives no columns.

    Raises:
        ProgramError: the URL is not one of HTTP, or the package is not installed.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream.formats.json import ConfluentRegistryJsonDeserializationSchema

        sale = Types.ROW_NAMED(["item", "amount"], [Types.STRING(), Types.INT()])
        schema = ConfluentRegistryJsonDeserializationSchema(sale, "http://registry:8081")
        schema_id = (7).to_bytes(4, "big")
        print(schema.deserialize(b"\0" + schema_id + b'{"item": "tea", "amount": 2}'))
        ```

        ```text
        Row(item='tea', amount=2)
        ```
    """

    def __init__(
        self,
        type_info: TypeDescriptor,
        schema_registry_url: str,
        registry_configs: Mapping[str, str] | None = None,
        *,
        validate: bool = False,
        fetch: Fetch | None = None,
    ) -> None:
        self._rows = JsonRowDeserializationSchema.builder().type_info(type_info).build()
        self._where = schema_registry_url, registry_configs, fetch
        self._registry: SchemaRegistry | None = SchemaRegistry(*self._where)
        self._validate = validate
        if validate:
            _compiler()
        self._checks: dict[int, Check] = {}
        self.gives_columns = self._rows.gives_columns and not validate

    def deserialize(self, message: bytes) -> Any:
        """Returns the row.

        Raises:
            MalformedDataError: the message is malformed or not valid, or the registry does not know its schema.
            ConnectionError: the registry does not answer.
        """
        if message is None:
            return None
        try:
            number, payload = unframed(message)
            if self._validate:
                self._check(number)(json.loads(payload))
        except ValueError as error:
            reason = f"malformed JSON {bytes(message)[:80]!r}: {error}"
            raise MalformedDataError("", None, None, reason) from error
        return self._rows.deserialize(payload)

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """Returns the rows of many messages; None = call ``deserialize`` for each."""
        try:
            payloads = [unframed(message)[1] for message in messages]
        except (ValueError, TypeError):
            return None
        return self._rows.deserialize_columns(payloads)

    def get_produced_type(self) -> TypeInformation:
        """Returns the type of the rows."""
        return self._rows.get_produced_type()

    def _check(self, number: int) -> Check:
        check = self._checks.get(number)
        if check is None:
            if self._registry is None:
                self._registry = SchemaRegistry(*self._where)
            check = self._checks[number] = _compiled(self._registry, self._registry.schema(number, KIND))
        return check

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_registry": None, "_checks": {}}


class ConfluentRegistryJsonSerializationSchema(SerializationSchema):
    """Writes rows as JSON objects behind the number of their schema.

    Args:
        subject: subject to register the schema for; Confluent's convention for values of a topic is ``<topic>-value``.
        json_schema: JSON Schema, as text.
        type_info: type of the rows, as for ``JsonRowSerializationSchema``.
        schema_registry_url: URL of the registry.
        registry_configs: settings, as for ``SchemaRegistry``.
        validate: raise an error for a row that is not valid. This needs the extra ``json-schema``.
        auto_register: register the schema if it is not registered; otherwise that is an error.

    Raises:
        ProgramError: the schema is not valid, the URL is not one of HTTP, or the package is not installed.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream.connectors.kafka import KafkaRecordSerializationSchema
        from firesteel.datastream.formats.json import ConfluentRegistryJsonSerializationSchema

        sale = Types.ROW_NAMED(["amount"], [Types.INT()])
        text = '{"type": "object", "properties": {"amount": {"type": "integer"}}}'
        rows = ConfluentRegistryJsonSerializationSchema("sales-value", text, sale, "http://registry:8081")
        records = KafkaRecordSerializationSchema.builder().set_topic("sales").set_value_serialization_schema(rows)
        ```
    """

    def __init__(
        self,
        subject: str,
        json_schema: str,
        type_info: TypeDescriptor,
        schema_registry_url: str,
        registry_configs: Mapping[str, str] | None = None,
        *,
        validate: bool = False,
        auto_register: bool = True,
        fetch: Fetch | None = None,
    ) -> None:
        try:
            text = json.dumps(json.loads(json_schema))
        except (ValueError, TypeError) as error:
            raise ProgramError(f"the JSON Schema of {subject} is no JSON: {error}") from error
        self._rows = JsonRowSerializationSchema.builder().with_type_info(type_info).build()
        self._subject, self._schema, self._new = subject, RegisteredSchema(KIND, text), auto_register
        self._where = schema_registry_url, registry_configs, fetch
        registry = SchemaRegistry(*self._where)
        self._validate = validate
        self._check: Check | None = _compiled(registry, self._schema) if validate else None
        self._number: int | None = None
        self.takes_columns = self._rows.takes_columns and not validate

    def serialize(self, element: Any) -> bytes:
        """Returns the row's bytes.

        Raises:
            ValueError, TypeError: the record does not fit the type, or is not valid.
            ConnectionError: the registry does not answer.
            ProgramError: the registry refuses the schema.
        """
        payload = self._rows.serialize(element)
        if self._validate:
            if self._check is None:
                self._check = _compiled(SchemaRegistry(*self._where), self._schema)
            self._check(json.loads(payload))
        return framed(self._schema_number(), payload)

    def serialize_columns(self, batch: pa.RecordBatch) -> list[bytes]:
        """Returns the bytes of each row of a batch; raises as ``serialize`` does."""
        number = self._schema_number()
        return [framed(number, payload) for payload in self._rows.serialize_columns(batch)]

    def _schema_number(self) -> int:
        if self._number is None:
            self._number = SchemaRegistry(*self._where).register(self._subject, self._schema, new=self._new)
        return self._number

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_number": None, "_check": None}


def _compiler() -> Any:
    try:
        import fastjsonschema
    except ImportError:
        raise ProgramError(
            "validating JSON by schemas needs the package fastjsonschema: pip install 'firesteel[json-schema]'"
        ) from None
    return fastjsonschema


def _compiled(registry: SchemaRegistry, schema: RegisteredSchema) -> Check:
    """Make the function that checks values.

    Raises:
        ProgramError: the schema is not valid, or of a draft that is not supported.
    """
    fastjsonschema = _compiler()
    referred: dict[str, Any] = {}
    _collect(registry, schema, referred)

    def resolve(uri: str) -> Any:
        name = uri.partition("#")[0]
        definition = referred.get(name, referred.get(name.rpartition("/")[2]))
        if definition is None:
            raise ProgramError(f"the JSON Schema refers to {name!r}, which is none of its references in the registry")
        return definition

    definition = json.loads(schema.text)
    draft = str(definition.get("$schema", _DRAFTS[-1])) if isinstance(definition, dict) else _DRAFTS[-1]
    if not any(supported in draft for supported in _DRAFTS):
        raise ProgramError(f"JSON Schemas of {', '.join(_DRAFTS)} can be validated by, and not of {draft!r}")
    try:
        validate = fastjsonschema.compile(definition, handlers=dict.fromkeys(("", "http", "https", "file"), resolve))
    except ProgramError:
        raise
    except Exception as error:  # fastjsonschema raises errors of any kind
        raise ProgramError(f"the JSON Schema is not valid: {type(error).__name__}: {error}") from error

    def check(value: Any) -> None:
        try:
            validate(value)
        except fastjsonschema.JsonSchemaValueException as error:
            raise ValueError(f"not valid by its JSON Schema: {error}") from error

    return check


def _collect(registry: SchemaRegistry, schema: RegisteredSchema, referred: dict[str, Any]) -> None:
    """Add the definitions that a schema refers to, and those that they refer to, by the names that are used."""
    for reference in schema.references:
        if reference.name not in referred:
            other = registry.referred(reference)
            referred[reference.name] = json.loads(other.text)
            _collect(registry, other, referred)
