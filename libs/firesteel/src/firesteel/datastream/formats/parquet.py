"""Readers of Parquet files, under PyFlink's module path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.connectors.formats.parquet_files import ParquetBulkWriters, ParquetColumnarRowInputFormat
from firesteel.core.pyflink_names import reexports

if TYPE_CHECKING:  # types of a plug-in that need not be installed: ``reexports`` imports a name when it is asked for
    from firesteel_formats.avro_parquet import AvroParquetReaders, AvroParquetWriters

__all__ = ["AvroParquetReaders", "AvroParquetWriters", "ParquetBulkWriters", "ParquetColumnarRowInputFormat"]

if not TYPE_CHECKING:
    __getattr__ = reexports(__name__)
