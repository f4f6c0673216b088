"""Schemas and readers of CSV, under PyFlink's module path."""

from __future__ import annotations

from firesteel.connectors.formats.csv_files import CsvBulkWriters, CsvReaderFormat
from firesteel.connectors.formats.csv_rows import CsvRowDeserializationSchema, CsvRowSerializationSchema
from firesteel.connectors.formats.csv_schema import CsvSchema, CsvSchemaBuilder

__all__ = [
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
]
