"""``'format' = 'parquet'``."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from firesteel.common.serialization import BulkWriterFactory
from firesteel.common.typeinfo import RowTypeInfo
from firesteel.connectors.file_format import FileFormat
from firesteel.connectors.formats.parquet_files import ParquetBulkWriters, ParquetColumnarRowInputFormat
from firesteel.table.types import DataType
from firesteel_sql.connectors.formats.format import TableFormat


class ParquetTableFormat(TableFormat):
    """Files of columns."""

    NAME = "parquet"

    @override
    def file_format(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> FileFormat:
        return ParquetColumnarRowInputFormat(row_type)

    @override
    def file_writer(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> BulkWriterFactory:
        return ParquetBulkWriters.for_row_type(row_type)
