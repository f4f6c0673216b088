"""Schemas of connectors for messages of Protobuf, plain or in Confluent's wire format."""

from __future__ import annotations

import base64
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from firesteel.common.serialization import DeserializationSchema, SerializationSchema
from firesteel.common.typeinfo import TypeInformation
from firesteel.core.errors import MalformedDataError
from firesteel.expressions.schema import uncolumnar
from firesteel_formats.protobuf_messages import ProtobufMessage, message_of
from firesteel_formats.schema_registry import (
    Fetch,
    Reference,
    RegisteredSchema,
    SchemaRegistry,
    framed,
    unframed,
)

__all__ = [
    "ConfluentRegistryProtobufDeserializationSchema",
    "ConfluentRegistryProtobufSerializationSchema",
    "ProtobufMessage",
    "ProtobufRowDeserializationSchema",
    "ProtobufRowSerializationSchema",
]

KIND: Final = "PROTOBUF"
_BUILT_IN: Final = "google/protobuf/"
"""Registries know the files of this folder, so they are not registered."""


class _ProtobufDeserialization(DeserializationSchema):
    def __init__(self, message: Any) -> None:
        self._message = message_of(message)
        self._parse: Callable[[bytes], Any] | None = None
        self._convert: Callable[[Any], Any] | None = None
        self._columns: Callable[[Sequence[Any]], pa.RecordBatch | None] | None = None
        self.gives_columns = uncolumnar(self.get_produced_type()) is None

    @abstractmethod
    def _payload(self, message: bytes) -> bytes:
        """The message without what stands before it; raises ``ValueError``."""

    def deserialize(self, message: bytes) -> Any:
        """Returns the row.

        Enumerations are names, and timestamps are in UTC without a zone. A field that is not set is None if Protobuf
        can tell it from a default value.

        Raises:
            MalformedDataError: the message is malformed.
        """
        if message is None:
            return None
        if self._convert is None:
            self._convert = self._message.to_row()
        try:
            return self._convert(self._parsed(message))
        except Exception as error:  # protobuf raises errors of any kind
            reason = f"malformed {self._message.name} {bytes(message)[:40]!r}: {type(error).__name__}: {error}"
            raise MalformedDataError("", None, None, reason) from error

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """Returns the rows of many messages; None = call ``deserialize`` for each."""
        if self._columns is None:
            self._columns = self._message.columns()
        try:
            parsed = [self._parsed(message) for message in messages]
        except Exception:  # deserialize finds out which message it is
            return None
        return self._columns(parsed)

    def _parsed(self, message: bytes) -> Any:
        if self._parse is None:
            self._parse = self._message.message_class.FromString
        return self._parse(self._payload(message))

    def get_produced_type(self) -> TypeInformation:
        """Returns the row type of the message."""
        return self._message.row_type

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parse": None, "_convert": None, "_columns": None}


class ProtobufRowDeserializationSchema(_ProtobufDeserialization):
    """Reads messages of Protobuf as rows.

    Args:
        message: a class that ``protoc`` has generated, or a ``ProtobufMessage``.

    Raises:
        ProgramError: the message holds itself, or protobuf is not installed.

    Examples:
        ```python
        from google.protobuf.duration_pb2 import Duration  # a class that protoc has generated

        from firesteel.datastream.formats.protobuf import ProtobufRowDeserializationSchema

        schema = ProtobufRowDeserializationSchema(Duration)
        print(schema.deserialize(Duration(seconds=90).SerializeToString()))
        ```

        ```text
        Row(seconds=90, nanos=0)
        ```
    """

    def __init__(self, message: Any) -> None:
        super().__init__(message)

    def _payload(self, message: bytes) -> bytes:
        return message


class ConfluentRegistryProtobufDeserializationSchema(_ProtobufDeserialization):
    r"""Reads messages of Protobuf behind the number of their schema as rows.

    Fields are identified by their numbers, so other versions of the message type are read, too, and no registry is
    asked. The format names the message type by its path in its file; messages of other types are malformed.

    Args:
        message: a class that ``protoc`` has generated, or a ``ProtobufMessage``.

    Raises:
        ProgramError: the message holds itself, or protobuf is not installed.

    Examples:
        ```python
        from google.protobuf.duration_pb2 import Duration  # a class that protoc has generated

        from firesteel.datastream.formats.protobuf import ConfluentRegistryProtobufDeserializationSchema

        schema = ConfluentRegistryProtobufDeserializationSchema(Duration)
        header = b"\0" + (7).to_bytes(4, "big") + b"\0"  # number of the schema; first message of its file
        print(schema.deserialize(header + Duration(seconds=90).SerializeToString()))
        ```

        ```text
        Row(seconds=90, nanos=0)
        ```
    """

    def __init__(self, message: Any) -> None:
        super().__init__(message)
        self._indexes = self._message.indexes

    def _payload(self, message: bytes) -> bytes:
        _, payload = unframed(message)
        indexes, length = _read_indexes(payload)
        if indexes != self._indexes:
            raise ValueError(f"it is message {list(indexes)} of its file, and {list(self._indexes)} is expected")
        return payload[length:]


class ProtobufRowSerializationSchema(SerializationSchema):
    r"""Writes rows (or dicts) as messages of Protobuf; a None leaves its field unset.

    Args:
        message: a class that ``protoc`` has generated, or a ``ProtobufMessage``.

    Raises:
        ProgramError: the message holds itself, or protobuf is not installed.

    Examples:
        ```python
        from google.protobuf.duration_pb2 import Duration  # a class that protoc has generated

        from firesteel.datastream.formats.protobuf import ProtobufRowSerializationSchema

        print(ProtobufRowSerializationSchema(Duration).serialize({"seconds": 90, "nanos": None}))
        ```

        ```text
        b'\x08Z'
        ```
    """

    def __init__(self, message: Any) -> None:
        self._message = message_of(message)
        self._convert: Callable[[Any], Any] | None = None

    def serialize(self, element: Any) -> bytes:
        """Returns the message's bytes.

        Raises:
            ValueError, TypeError: the record does not fit the message type.
        """
        if self._convert is None:
            self._convert = self._message.from_row()
        content: bytes = self._convert(element).SerializeToString()
        return content

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_convert": None}


class ConfluentRegistryProtobufSerializationSchema(ProtobufRowSerializationSchema):
    """Writes rows as messages of Protobuf behind the number of their schema.

    Files that the message's file imports are registered first, with their names as subjects.

    Args:
        subject: subject to register the schema for; Confluent's convention for values of a topic is ``<topic>-value``.
        message: a class that ``protoc`` has generated, or a ``ProtobufMessage``.
        schema_registry_url: URL of the registry.
        registry_configs: settings, as for ``SchemaRegistry``.
        auto_register: register schemas that are not registered; otherwise that is an error.

    Raises:
        ProgramError: the message holds itself, the URL is not one of HTTP, or protobuf is not installed.

    Examples:
        ```python
        from google.protobuf.duration_pb2 import Duration  # a class that protoc has generated

        from firesteel.datastream.connectors.kafka import KafkaRecordSerializationSchema
        from firesteel.datastream.formats.protobuf import ConfluentRegistryProtobufSerializationSchema

        rows = ConfluentRegistryProtobufSerializationSchema("waits-value", Duration, "http://registry:8081")
        records = KafkaRecordSerializationSchema.builder().set_topic("waits").set_value_serialization_schema(rows)
        ```
    """

    def __init__(
        self,
        subject: str,
        message: Any,
        schema_registry_url: str,
        registry_configs: Mapping[str, str] | None = None,
        *,
        auto_register: bool = True,
        fetch: Fetch | None = None,
    ) -> None:
        super().__init__(message)
        self._subject, self._new = subject, auto_register
        self._where = schema_registry_url, registry_configs, fetch
        SchemaRegistry(*self._where)  # raises at once if an argument is wrong
        self._head: bytes | None = None

    def serialize(self, element: Any) -> bytes:
        """Returns the message's bytes.

        Raises:
            ValueError, TypeError: the record does not fit the message type.
            ConnectionError: the registry does not answer.
            ProgramError: the registry refuses the schema.
        """
        payload = super().serialize(element)
        if self._head is None:
            self._head = framed(self._register(), _encode_indexes(self._message.indexes))
        return self._head + payload

    def _register(self) -> int:
        """Register the message's file behind those that it imports; returns its number."""
        registry = SchemaRegistry(*self._where)
        main, imported = self._message.files()
        references: dict[str, Reference] = {}

        def schema(file: Any) -> RegisteredSchema:
            used = tuple(references[name] for name in file.dependency if name in references)
            return RegisteredSchema(KIND, base64.b64encode(file.SerializeToString(deterministic=True)).decode(), used)

        for file in imported:
            if not file.name.startswith(_BUILT_IN):
                imported_schema = schema(file)
                registry.register(file.name, imported_schema, new=self._new)
                references[file.name] = Reference(file.name, file.name, registry.version(file.name, imported_schema))
        return registry.register(self._subject, schema(main), new=self._new)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_head": None}


# Path of a message in its file: its length and its indexes as zigzag varints; a single zero stands for [0].


def _encode_indexes(indexes: tuple[int, ...]) -> bytes:
    return b"\0" if indexes == (0,) else b"".join(map(_varint, (len(indexes), *indexes)))


def _varint(number: int) -> bytes:
    remaining, encoded = number << 1, bytearray()
    while remaining > 0x7F:
        encoded.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    encoded.append(remaining)
    return bytes(encoded)


def _read_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """The path of a message, and the number of bytes that it takes."""
    count, position = _read_varint(data, 0)
    if not count:
        return (0,), position
    indexes = []
    for _ in range(count):
        number, position = _read_varint(data, position)
        indexes.append(number)
    return tuple(indexes), position


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 35:
            raise ValueError("the numbers of its message are cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
