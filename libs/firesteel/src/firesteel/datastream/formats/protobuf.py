"""Protobuf; needs the extra ``protobuf`` of firesteel."""

from __future__ import annotations

from firesteel.connectors.formats.protobuf_rows import (
    ConfluentRegistryProtobufDeserializationSchema,
    ConfluentRegistryProtobufSerializationSchema,
    ProtobufMessage,
    ProtobufRowDeserializationSchema,
    ProtobufRowSerializationSchema,
)

__all__ = [
    "ConfluentRegistryProtobufDeserializationSchema",
    "ConfluentRegistryProtobufSerializationSchema",
    "ProtobufMessage",
    "ProtobufRowDeserializationSchema",
    "ProtobufRowSerializationSchema",
]
