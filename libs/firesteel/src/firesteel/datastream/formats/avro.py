"""Avro; needs the extra ``avro`` of firesteel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.core.pyflink_names import reexports

if TYPE_CHECKING:  # types of a plug-in that need not be installed: ``reexports`` imports a name when it is asked for
    from firesteel_formats.avro_files import AvroBulkWriters, AvroFormat, AvroInputFormat
    from firesteel_formats.avro_rows import AvroRowDeserializationSchema, AvroRowSerializationSchema
    from firesteel_formats.avro_schema import AvroSchema, GenericRecordAvroTypeInfo
    from firesteel_formats.confluent_avro import (
        ConfluentRegistryAvroDeserializationSchema,
        ConfluentRegistryAvroSerializationSchema,
    )

__all__ = [
    "AvroBulkWriters",
    "AvroFormat",
    "AvroInputFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "ConfluentRegistryAvroDeserializationSchema",
    "ConfluentRegistryAvroSerializationSchema",
    "GenericRecordAvroTypeInfo",
]

if not TYPE_CHECKING:
    __getattr__ = reexports(__name__)
