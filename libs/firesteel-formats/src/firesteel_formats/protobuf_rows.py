"""Rows as messages of Protobuf, one at a time: schemas for connectors, plain or in Confluent's wire format."""

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
"""Files of this folder are known to registries."""


class _Reads(DeserializationSchema):
    def __init__(self, message: Any) -> None:
        self._message = message_of(message)
        self._parse: Callable[[bytes], Any] | None = None
        self._convert: Callable[[Any], Any] | None = None
        self._columns: Callable[[Sequence[Any]], pa.RecordBatch | None] | None = None
        self.gives_columns = uncolumnar(self.get_produced_type()) is None

    @abstractmethod
    def _payload(self, message: bytes) -> bytes:
        """The message alone; raises ``ValueError``."""

    def deserialize(self, message: bytes) -> Any:
        """Returns the row.

        Enumerations are names, timestamps are in UTC without a zone, and what is not set is None where Protobuf tells
        it from the default.

        Raises:
            MalformedDataError: it is malformed.
        """
        if message is None:
            return None
        if self._convert is None:
            self._convert = self._message.to_row()
        try:
            return self._convert(self._parsed(message))
        except Exception as error:  # protobuf raises what it stumbles over
            reason = f"malformed {self._message.name} {bytes(message)[:40]!r}: {type(error).__name__}: {error}"
            raise MalformedDataError("", None, None, reason) from error

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """Returns the rows of many messages; None = read them one by one."""
        if self._columns is None:
            self._columns = self._message.columns()
        try:
            parsed = [self._parsed(message) for message in messages]
        except Exception:  # one by one it is found out which it is
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


class ProtobufRowDeserializationSchema(_Reads):
    """Messages of Protobuf as rows.

    Args:
        message: a class that ``protoc`` has generated, or a ``ProtobufMessage``.

    Raises:
        ProgramError: the message holds itself, or protobuf is not installed.
    """

    def __init__(self, message: Any) -> None:
        super().__init__(message)

    def _payload(self, message: bytes) -> bytes:
        return message


class ConfluentRegistryProtobufDeserializationSchema(_Reads):
    """Messages of Protobuf behind the number of their schema, as rows of one message type.

    Fields are known by their numbers, so messages of other versions of the schema are read, too, and no registry is
    asked. Which message of its file it was is part of the format; others than the given one are malformed.

    Args:
        message: a class that ``protoc`` has generated, or a ``ProtobufMessage``.

    Raises:
        ProgramError: the message holds itself, or protobuf is not installed.
    """

    def __init__(self, message: Any) -> None:
        super().__init__(message)
        self._indexes = self._message.indexes

    def _payload(self, message: bytes) -> bytes:
        _, rest = unframed(message)
        found, length = _read_indexes(rest)
        if found != self._indexes:
            raise ValueError(f"it is message {list(found)} of its file, and {list(self._indexes)} is wanted")
        return rest[length:]


class ProtobufRowSerializationSchema(SerializationSchema):
    """Rows (or dicts) as messages of Protobuf; a None leaves its field unset.

    Args:
        message: a class that ``protoc`` has generated, or a ``ProtobufMessage``.

    Raises:
        ProgramError: the message holds itself, or protobuf is not installed.
    """

    def __init__(self, message: Any) -> None:
        self._message = message_of(message)
        self._convert: Callable[[Any], Any] | None = None

    def serialize(self, element: Any) -> bytes:
        """Returns the message's bytes.

        Raises:
            ValueError, TypeError: the record does not fit.
        """
        if self._convert is None:
            self._convert = self._message.from_row()
        found: bytes = self._convert(element).SerializeToString()
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_convert": None}


class ConfluentRegistryProtobufSerializationSchema(ProtobufRowSerializationSchema):
    """Rows as messages of Protobuf behind the number of their schema.

    Files that the message's file imports are registered first, under their own names.

    Args:
        subject: for which the schema is registered; of values of a topic ``<topic>-value``, by Confluent's habit.
        message: a class that ``protoc`` has generated, or a ``ProtobufMessage``.
        schema_registry_url: of the registry.
        registry_configs: of ``SchemaRegistry``.
        auto_register: schemas that are not registered are; otherwise it is an error.

    Raises:
        ProgramError: the message holds itself, the URL is none, or protobuf is not installed.
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
        SchemaRegistry(*self._where)  # refuses at once
        self._head: bytes | None = None

    def serialize(self, element: Any) -> bytes:
        """Returns the message's bytes.

        Raises:
            ValueError, TypeError: the record does not fit.
            ConnectionError: the registry does not answer.
            ProgramError: it refuses the schema.
        """
        payload = super().serialize(element)
        if self._head is None:
            self._head = framed(self._registered(), _written_indexes(self._message.indexes))
        return self._head + payload

    def _registered(self) -> int:
        registry = SchemaRegistry(*self._where)
        main, imported = self._message.files()
        references: dict[str, Reference] = {}

        def schema(file: Any) -> RegisteredSchema:
            used = tuple(references[name] for name in file.dependency if name in references)
            return RegisteredSchema(KIND, base64.b64encode(file.SerializeToString(deterministic=True)).decode(), used)

        for file in imported:
            if not file.name.startswith(_BUILT_IN):
                other = schema(file)
                registry.register(file.name, other, new=self._new)
                references[file.name] = Reference(file.name, file.name, registry.version(file.name, other))
        return registry.register(self._subject, schema(main), new=self._new)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_head": None}


# Which message of its file: how many numbers, and the numbers, as zigzag varints; a zero stands for the first message.


def _written_indexes(indexes: tuple[int, ...]) -> bytes:
    return b"\0" if indexes == (0,) else b"".join(map(_varint, (len(indexes), *indexes)))


def _varint(number: int) -> bytes:
    left, found = number << 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def _read_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    count, place = _read_varint(data, 0)
    if not count:
        return (0,), place
    found = []
    for _ in range(count):
        number, place = _read_varint(data, place)
        found.append(number)
    return tuple(found), place


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        if place >= len(data) or shift > 35:
            raise ValueError("the numbers of its message are cut off")
        byte = data[place]
        place += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), place
        shift += 7
