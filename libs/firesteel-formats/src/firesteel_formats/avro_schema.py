"""Schemas of Avro. They need the package fastavro: the extra ``avro`` of firesteel."""

from __future__ import annotations

import json
import os
from typing import Any

from firesteel.common.typeinfo import PickledBytesTypeInfo
from firesteel.connectors.formats.column_types import place_of
from firesteel.core.errors import ProgramError

__all__ = ["AvroSchema", "GenericRecordAvroTypeInfo", "check_field_names", "fastavro_module", "parsed_schema"]


def fastavro_module() -> Any:
    """Import fastavro.

    Raises:
        ProgramError: fastavro is not installed.
    """
    try:
        import fastavro
    except ImportError:
        raise ProgramError(
            "Avro needs the package fastavro, which is not installed here: pip install 'firesteel[avro]'"
        ) from None
    return fastavro


def parsed_schema(definition: Any, named_schemas: dict[str, Any] | None = None) -> Any:
    """Parse a schema for fastavro.

    Args:
        definition: the schema as decoded JSON.
        named_schemas: schemas by name that this one may refer to; the schemas that it defines are added.

    Raises:
        ValueError: a record has two fields of one name. Avro forbids that, and fastavro would read the last one.
        Exception: fastavro refuses the schema.
    """
    parsed = fastavro_module().parse_schema(definition, named_schemas=named_schemas)
    check_field_names(parsed)
    return parsed


def check_field_names(schema: Any) -> None:
    """Check that no record of a schema has two fields of one name.

    Raises:
        ValueError: a record has.
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
        definition: the schema as decoded JSON.

    Examples:
        ```python
        from firesteel.datastream.formats.avro import AvroSchema

        text = '{"type": "record", "name": "Sale", "fields": [{"name": "amount", "type": "int"}]}'
        print(AvroSchema.parse_string(text).name)
        ```

        ```text
        Sale
        ```
    """

    def __init__(self, definition: Any) -> None:
        self.definition = definition
        self._parsed: Any = None

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """Parse the JSON text of a schema.

        Raises:
            ProgramError: the text is no valid schema.
        """
        return _checked(json_schema, "the Avro schema")

    @staticmethod
    def parse_file(file_path: str | os.PathLike[str]) -> AvroSchema:
        """Parse a file (``.avsc``).

        Raises:
            ProgramError: the file can't be read, or holds no valid schema.
        """
        try:
            with open(file_path, encoding="utf-8") as stream:
                text = stream.read()
        except (OSError, UnicodeDecodeError) as error:
            raise ProgramError(f"the Avro schema {os.fspath(file_path)!r} can't be read: {error}") from error
        return _checked(text, f"the Avro schema {os.fspath(file_path)!r}")

    @property
    def parsed(self) -> Any:
        """The schema as fastavro has parsed it."""
        if self._parsed is None:
            self._parsed = parsed_schema(self.definition)
        return self._parsed

    @property
    def name(self) -> str:
        """Full name of a schema of records; the type of any other schema."""
        parsed = self.parsed
        return str(parsed.get("name", parsed.get("type"))) if isinstance(parsed, dict) else str(parsed)

    def record_fields(self, owner: str) -> list[tuple[str, Any]]:
        """Names and schemas of a record's fields.

        Raises:
            ProgramError: this is no schema of records.
        """
        parsed = self.parsed
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise ProgramError(f"{owner} takes an Avro schema of records, not {self}")
        return [(field["name"], field["type"]) for field in parsed["fields"]]

    def __getstate__(self) -> dict[str, Any]:
        return {"definition": self.definition, "_parsed": None}

    def __eq__(self, other: object) -> bool:
        return self.definition == other.definition if isinstance(other, AvroSchema) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return json.dumps(self.definition)


def _checked(text: str, title: str) -> AvroSchema:
    try:
        definition = json.loads(text)
    except (ValueError, TypeError) as error:
        raise ProgramError(f"{title} is no JSON: {error}") from error
    schema = AvroSchema(definition)
    fastavro_module()
    try:
        schema._parsed = parsed_schema(definition)
    except Exception as error:  # fastavro raises errors of any kind
        raise ProgramError(f"{title} is not valid: {type(error).__name__}: {error}") from error
    return schema


class GenericRecordAvroTypeInfo(PickledBytesTypeInfo):
    """Type of records of an Avro schema, which are dicts.

    Args:
        schema: schema of the records.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.formats.avro import AvroSchema, GenericRecordAvroTypeInfo

        schema = AvroSchema.parse_string(
            '{"type": "record", "name": "Sale", "fields": [{"name": "amount", "type": "int"}]}'
        )
        env = StreamExecutionEnvironment.get_execution_environment()
        amounts = env.from_collection([2, 3])
        sales = amounts.map(lambda amount: {"amount": amount}, output_type=GenericRecordAvroTypeInfo(schema))
        ```
    """

    def __init__(self, schema: AvroSchema) -> None:
        if not isinstance(schema, AvroSchema):
            raise TypeError(f"GenericRecordAvroTypeInfo takes an AvroSchema, not {type(schema).__name__}")
        self.schema = schema

    def _key(self) -> tuple[Any, ...]:
        return (str(self.schema),)

    def __str__(self) -> str:
        return f'GenericRecord("{self.schema}")'
