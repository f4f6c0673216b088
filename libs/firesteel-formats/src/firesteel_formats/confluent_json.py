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
"""Raises ``ValueError`` for a value that is not valid."""


class ConfluentRegistryJsonDeserializationSchema(DeserializationSchema):
    """JSON objects behind the number of their schema, as rows.

    Args:
        type_info: of the rows, as of ``JsonRowDeserializationSchema``.
        schema_registry_url: of the registry, which is asked only to validate.
        registry_configs: of ``SchemaRegistry``.
        validate: objects that are not valid by the schema that they were written with are malformed. Needs the extra
            ``json-schema``, takes time for each record, and gives no columns.

    Raises:
        ProgramError: the URL is none, or the package is not installed.
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
            MalformedDataError: it is malformed or not valid, or the registry does not know its schema.
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
        """Returns the rows of many messages; None = read them one by one."""
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
    """Rows as JSON objects behind the number of their schema.

    Args:
        subject: for which the schema is registered; of values of a topic ``<topic>-value``, by Confluent's habit.
        json_schema: the JSON Schema, as text.
        type_info: of the rows, as of ``JsonRowSerializationSchema``.
        schema_registry_url: of the registry.
        registry_configs: of ``SchemaRegistry``.
        validate: a row that is not valid is an error. Needs the extra ``json-schema``.
        auto_register: a schema that is not registered is; otherwise it is an error.

    Raises:
        ProgramError: the schema is none, the URL is none, or the package is not installed.
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
            ProgramError: it refuses the schema.
        """
        payload = self._rows.serialize(element)
        if self._validate:
            if self._check is None:
                self._check = _compiled(SchemaRegistry(*self._where), self._schema)
            self._check(json.loads(payload))
        return framed(self._registered(), payload)

    def serialize_columns(self, batch: pa.RecordBatch) -> list[bytes]:
        """Returns the bytes of each row of a batch; raises as ``serialize`` does."""
        number = self._registered()
        return [framed(number, payload) for payload in self._rows.serialize_columns(batch)]

    def _registered(self) -> int:
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
            "to validate JSON by schemas needs the package fastjsonschema: pip install 'firesteel[json-schema]'"
        ) from None
    return fastjsonschema


def _compiled(registry: SchemaRegistry, schema: RegisteredSchema) -> Check:
    """What checks a value.

    Raises:
        ProgramError: the schema is not valid, or of a draft that is not known.
    """
    fastjsonschema = _compiler()
    others = {one.name: json.loads(registry.referred(one).text) for one in schema.references}

    def referred(uri: str) -> Any:
        name = uri.partition("#")[0]
        found = others.get(name, others.get(name.rpartition("/")[2]))
        if found is None:
            raise ProgramError(f"the JSON Schema refers to {name!r}, which is none of its references in the registry")
        return found

    definition = json.loads(schema.text)
    draft = str(definition.get("$schema", _DRAFTS[-1])) if isinstance(definition, dict) else _DRAFTS[-1]
    if not any(known in draft for known in _DRAFTS):
        raise ProgramError(f"JSON Schemas of {', '.join(_DRAFTS)} can be validated by, and not of {draft!r}")
    try:
        validate = fastjsonschema.compile(definition, handlers=dict.fromkeys(("", "http", "https", "file"), referred))
    except ProgramError:
        raise
    except Exception as error:  # it raises what it stumbles over
        raise ProgramError(f"the JSON Schema is not valid: {type(error).__name__}: {error}") from error

    def check(value: Any) -> None:
        try:
            validate(value)
        except fastjsonschema.JsonSchemaValueException as error:
            raise ValueError(f"not valid by its JSON Schema: {error}") from error

    return check
