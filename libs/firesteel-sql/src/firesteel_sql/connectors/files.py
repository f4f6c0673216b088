"""``'connector' = 'filesystem'``: tables in files of JSON, CSV or Parquet."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from typing_extensions import override

from firesteel.common import WatermarkStrategy
from firesteel.common.serialization import Encoder
from firesteel.connectors.file_sink import FileSink, FileSinkBuilder
from firesteel.connectors.file_source import FileSource
from firesteel.connectors.filesystems.file_system import FileSystems, kind_of
from firesteel.connectors.formats.csv_files import CsvBulkWriters, CsvReaderFormat
from firesteel.connectors.formats.csv_schema import CsvDialect, CsvSchema
from firesteel.connectors.formats.json_rows import JsonLinesFormat, JsonRowSerializationSchema
from firesteel.connectors.formats.parquet_files import ParquetBulkWriters, ParquetColumnarRowInputFormat
from firesteel.connectors.malformed import MalformedPolicy
from firesteel.datastream import DataStream, StreamExecutionEnvironment
from firesteel_sql.connectors.connector import TableConnector, TableContext

_FORMATS = ("csv", "json", "parquet")


class FileSystemConnector(TableConnector):
    """Reads all files below a path, and writes part files into it."""

    def read(self, environment: StreamExecutionEnvironment, context: TableContext) -> DataStream:
        options = context.options
        path, kind = options.required("path"), _format(context)
        self._refuse_partitions(context)
        row_type = context.row_type
        skips = options.boolean(f"{kind}.ignore-parse-errors")
        match kind:
            case "json":
                fails = options.boolean("json.fail-on-missing-field")
                builder = FileSource.for_record_stream_format(
                    JsonLinesFormat(row_type, fail_on_missing_field=fails), path
                )
            case "csv":
                builder = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(_csv_schema(context)), path)
            case _:
                builder = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(row_type), path)
        interval = options.duration("source.monitor-interval")
        if interval is not None:
            builder = builder.monitor_continuously(interval)
        if skips:
            builder = builder.on_malformed(MalformedPolicy.SKIP)
        options.refuse_unknown()
        return environment.from_source(builder.build(), WatermarkStrategy.no_watermarks(), context.identifier[2])

    def write(self, stream: DataStream, context: TableContext) -> None:
        options = context.options
        path, kind = options.required("path"), _format(context)
        self._refuse_partitions(context)
        row_type = context.row_type
        sink: FileSinkBuilder
        match kind:
            case "json":
                options.boolean("json.ignore-parse-errors")
                schema = JsonRowSerializationSchema.builder().with_type_info(row_type).build()
                sink = FileSink.for_row_format(path, Encoder.of_schema(schema))
            case "csv":
                options.boolean("csv.ignore-parse-errors")
                sink = FileSink.for_bulk_format(path, CsvBulkWriters.for_schema(_csv_schema(context)))
            case _:
                sink = FileSink.for_bulk_format(path, ParquetBulkWriters.for_row_type(row_type))
        options.refuse_unknown()
        stream.sink_to(sink.build())

    @override
    def removal(self, context: TableContext) -> Callable[[], None]:
        text = context.options.required("path")
        kind = kind_of(text)
        if kind.remote:
            raise context.options.refuse("path", "is on no local disk: rows are removed there by its own tools")
        path, file_system = kind.path_of(text, "TRUNCATE"), FileSystems().of(text)
        present = [file for file, _ in file_system.find(path, _fail)] if os.path.exists(path) else []

        def remove() -> None:
            for file in present:
                file_system.remove_temporary(file)

        return remove

    def _refuse_partitions(self, context: TableContext) -> None:
        if context.table.partitioned_by:
            raise context.options.refuse("path", "can't have partitions yet (PARTITIONED BY)")


def _fail(error: OSError) -> None:
    raise error


def _format(context: TableContext) -> str:
    kind = context.options.required("format")
    if kind not in _FORMATS:
        raise context.options.refuse("format", f"is '{kind}': there are {', '.join(_FORMATS)}")
    return kind


def _csv_schema(context: TableContext) -> CsvSchema:
    options = context.options
    dialect = CsvDialect()
    delimiter = options.text("csv.field-delimiter")
    if delimiter is not None:
        dialect = replace(dialect, separator=delimiter.encode().decode("unicode_escape"))
    null = options.text("csv.null-literal")
    if null is not None:
        dialect = replace(dialect, null_value=null)
    if options.boolean("csv.allow-comments"):
        dialect = replace(dialect, allow_comments=True)
    return CsvSchema(context.row_type, dialect)
