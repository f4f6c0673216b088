"""Schemas of JSON, under PyFlink's module path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.connectors.formats.json_rows import (
    JsonLinesFormat,
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from firesteel.core.pyflink_names import reexports

if TYPE_CHECKING:  # types of a plug-in that need not be installed: ``reexports`` imports a name when it is asked for
    from firesteel_formats.confluent_json import (
        ConfluentRegistryJsonDeserializationSchema,
        ConfluentRegistryJsonSerializationSchema,
    )

__all__ = [
    "ConfluentRegistryJsonDeserializationSchema",
    "ConfluentRegistryJsonSerializationSchema",
    "JsonLinesFormat",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
]

if not TYPE_CHECKING:
    __getattr__ = reexports(__name__)
