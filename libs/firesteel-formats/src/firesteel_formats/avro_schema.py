"""Avro schemas. They need the package fastavro: the extra ``avro`` of firesteel."""

from __future__ import annotations

import json
import os
from typing import Any

from firesteel.common.typeinfo import PickledBytesTypeInfo
from firesteel.connectors.formats.column_types import place_of
from firesteel.core.errors import ProgramError

__all__ = ["AvroSchema", "GenericRecordAvroTypeInfo", "check_field_names", "fastavro_module", "parsed_schema"]


def fastavro_module() -> Any:
    """The package.

    Raises:
        ProgramError: it is not installed.
    """
    try:
        import fastavro
    except ImportError:
        raise ProgramError(
            "Avro needs the package fastavro, which is not installed here: pip install 'firesteel[avro]'"
        ) from None
    return fastavro


def parsed_schema(definition: Any, named_schemas: dict[str, Any] | None = None) -> Any:
    """A schema as fastavro takes it.

    Args:
        definition: what its JSON holds.
        named_schemas: by name, those that it refers to; those that it defines are added.

    Raises:
        ValueError: a record has two fields of one name, of which fastavro would read the last, as Avro itself forbids.
        Exception: of fastavro, about anything else.
    """
    parsed = fastavro_module().parse_schema(definition, named_schemas=named_schemas)
    check_field_names(parsed)
    return parsed


def check_field_names(schema: Any) -> None:
    """See that no record of a schema has two fields of one name.

    Raises:
        ValueError: it has.
    """
    if isinstance(schema, list):
        for branch in schema:
            check_field_names(branch)
        return
    if not isinstance(schema, dict):
        return
    names = [field["name"] for field in schema.get("fields", ())]
    for name in names:
        place_of(name, names, f"fields of record {schema.get('name')!r}")
    for inner in (*(field["type"] for field in schema.get("fields", ())), schema.get("items"), schema.get("values")):
        check_field_names(inner)
    if isinstance(schema.get("type"), (dict, list)):
        check_field_names(schema["type"])


class AvroSchema:
    """A schema of Avro. Made by ``parse_string`` or ``parse_file``.

    Attributes:
        definition: what the JSON holds.
    """

    def __init__(self, definition: Any) -> None:
        self.definition = definition
        self._parsed: Any = None

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """The schema of a JSON text.

        Raises:
            ProgramError: it is no schema.
        """
        return _checked(json_schema, "the Avro schema")

    @staticmethod
    def parse_file(file_path: str | os.PathLike[str]) -> AvroSchema:
        """The schema of a file (``.avsc``).

        Raises:
            ProgramError: the file can't be read or holds no schema.
        """
        try:
            with open(file_path, encoding="utf-8") as stream:
                text = stream.read()
        except (OSError, UnicodeDecodeError) as error:
            raise ProgramError(f"the Avro schema {os.fspath(file_path)!r} can't be read: {error}") from error
        return _checked(text, f"the Avro schema {os.fspath(file_path)!r}")

    @property
    def parsed(self) -> Any:
        """The schema as fastavro takes it."""
        if self._parsed is None:
            self._parsed = parsed_schema(self.definition)
        return self._parsed

    @property
    def name(self) -> str:
        """The full name of a record schema; otherwise its type."""
        found = self.parsed
        return str(found.get("name", found.get("type"))) if isinstance(found, dict) else str(found)

    def record_fields(self, owner: str) -> list[tuple[str, Any]]:
        """Names and schemas of a record's fields.

        Raises:
            ProgramError: it is no schema of records.
        """
        found = self.parsed
        if not isinstance(found, dict) or found.get("type") != "record":
            raise ProgramError(f"{owner} takes an Avro schema of records, not {self}")
        return [(field["name"], field["type"]) for field in found["fields"]]

    def __getstate__(self) -> dict[str, Any]:
        return {"definition": self.definition, "_parsed": None}

    def __eq__(self, other: object) -> bool:
        return self.definition == other.definition if isinstance(other, AvroSchema) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return json.dumps(self.definition)


def _checked(text: str, what: str) -> AvroSchema:
    try:
        definition = json.loads(text)
    except (ValueError, TypeError) as error:
        raise ProgramError(f"{what} is no JSON: {error}") from error
    schema = AvroSchema(definition)
    fastavro_module()
    try:
        schema._parsed = parsed_schema(definition)
    except Exception as error:  # it raises what it stumbles over
        raise ProgramError(f"{what} is not valid: {type(error).__name__}: {error}") from error
    return schema


class GenericRecordAvroTypeInfo(PickledBytesTypeInfo):
    """Records of an Avro schema, which are dicts.

    Args:
        schema: of the records.
    """

    def __init__(self, schema: AvroSchema) -> None:
        if not isinstance(schema, AvroSchema):
            raise TypeError(f"GenericRecordAvroTypeInfo takes an AvroSchema, not {type(schema).__name__}")
        self.schema = schema

    def _key(self) -> tuple[Any, ...]:
        return (str(self.schema),)

    def __str__(self) -> str:
        return f'GenericRecord("{self.schema}")'
