"""``'format' = 'parquet'``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from firesteel.common.serialization import BulkWriterFactory
from firesteel.common.typeinfo import RowTypeInfo
from firesteel.connectors.file_format import FileFormat
from firesteel.connectors.formats.parquet_files import ParquetBulkWriters, ParquetColumnarRowInputFormat
from firesteel.table.types import DataType
from firesteel_sql.connectors.formats.format import TableFormat

_BATCH_ROWS: Final = 16384
"""Rows decoded at once: operators with state have a fixed cost of 2 ms for each batch."""


class ParquetTableFormat(TableFormat):
    """Rows in files of Parquet, which hold them by columns."""

    NAME = "parquet"
    TAKES_FIELDS = True

    @override
    def file_format(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> FileFormat:
        return ParquetColumnarRowInputFormat(row_type, batch_size=_BATCH_ROWS)

    @override
    def file_writer(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> BulkWriterFactory:
        return ParquetBulkWriters.for_row_type(row_type)
