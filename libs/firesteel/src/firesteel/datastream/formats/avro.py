"""Avro; needs the extra ``avro`` of firesteel."""

from __future__ import annotations

from firesteel.connectors.formats.avro_files import AvroBulkWriters, AvroFormat, AvroInputFormat
from firesteel.connectors.formats.avro_rows import AvroRowDeserializationSchema, AvroRowSerializationSchema
from firesteel.connectors.formats.avro_schema import AvroSchema, GenericRecordAvroTypeInfo
from firesteel.connectors.formats.confluent_avro import (
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
