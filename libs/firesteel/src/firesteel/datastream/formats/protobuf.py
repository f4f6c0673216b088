"""Protobuf; needs the extra ``protobuf`` of firesteel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.core.pyflink_names import reexports

if TYPE_CHECKING:  # types of a plug-in that need not be installed: ``reexports`` imports a name when it is asked for
    from firesteel_formats.protobuf_rows import (
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

if not TYPE_CHECKING:
    __getattr__ = reexports(__name__)
