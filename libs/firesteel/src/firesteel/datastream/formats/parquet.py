"""Parquet."""

from __future__ import annotations

from firesteel.connectors.formats.avro_parquet import AvroParquetReaders, AvroParquetWriters
from firesteel.connectors.formats.parquet_files import ParquetBulkWriters, ParquetColumnarRowInputFormat

__all__ = ["AvroParquetReaders", "AvroParquetWriters", "ParquetBulkWriters", "ParquetColumnarRowInputFormat"]
