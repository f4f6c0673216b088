"""``'connector' = 'filesystem'``: tables in files, in a directory for each partition if there are some."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Final

from typing_extensions import override

from firesteel.common.serialization import Encoder, SerializationSchema
from firesteel.config.option import BOOL, DURATION, MEMORY, STRING, Option
from firesteel.connectors.file_layout import DefaultRollingPolicy, OnCheckpointRollingPolicy
from firesteel.connectors.file_sink import FileSink, FileSinkBuilder
from firesteel.connectors.file_source import FileSource, FileSourceBuilder, file_path
from firesteel.connectors.filesystems.file_system import FileSystems, kind_of
from firesteel.connectors.malformed import MalformedPolicy
from firesteel.datastream import DataStream, StreamExecutionEnvironment
from firesteel.functions.source import Boundedness
from firesteel.table.types import DataType, DataTypes
from firesteel_sql.catalog.tables import TableColumn
from firesteel_sql.connectors.connector import (
    SCAN_PARALLELISM,
    SINK_PARALLELISM,
    SparkFiles,
    TableConnector,
    TableContext,
    in_parallel,
    read_source,
    row_type_of,
)
from firesteel_sql.connectors.formats.files import DEFAULT_NAME, TableFiles, partition_of
from firesteel_sql.connectors.formats.format import TableFormat
from firesteel_sql.connectors.formats.known import FILE_FORMATS, format_of
from firesteel_sql.connectors.formats.parquet import ParquetTableFormat
from firesteel_sql.connectors.partitions import PartitionBuckets, PartitionedWriters, SchemaOfData

PATH: Final[Option[str | None]] = Option("path", STRING, None, "Directory or file, or a URI of another file system.")
FORMAT: Final[Option[str | None]] = Option("format", STRING, None, "Format of the files.")
MONITOR_INTERVAL: Final[Option[timedelta | None]] = Option(
    "source.monitor-interval", DURATION, None, "Pause between two looks for new files; not set: the files of the start."
)
DEFAULT_PARTITION: Final = Option(
    "partition.default-name", STRING, DEFAULT_NAME, "Stands for NULL and empty texts in the names of directories."
)
FILE_SIZE: Final = Option("sink.rolling-policy.file-size", MEMORY, 128 << 20, "Size at which a part file is full.")
ROLLOVER_INTERVAL: Final = Option(
    "sink.rolling-policy.rollover-interval", DURATION, timedelta(minutes=30), "Age at which a part file is full."
)
INACTIVITY_INTERVAL: Final = Option(
    "sink.rolling-policy.inactivity-interval",
    DURATION,
    timedelta(minutes=30),
    "Time without rows after which a part file is full.",
)
CHECK_INTERVAL: Final = Option(
    "sink.rolling-policy.check-interval", DURATION, timedelta(minutes=1), "Pause between two looks at the age of parts."
)
AUTO_COMPACTION: Final = Option("auto-compaction", BOOL, False, "Refused if true: small files are not joined.")
METADATA: Final = {
    "file.path": DataTypes.STRING(False),
    "file.name": DataTypes.STRING(False),
    "file.size": DataTypes.BIGINT(False),
    "file.modification-time": DataTypes.TIMESTAMP_LTZ(3).not_null(),
}


class FileSystemConnector(TableConnector):
    """Reads all files below a path, and writes part files into it. Both ends are exactly once."""

    OPTIONS = (
        PATH, FORMAT, MONITOR_INTERVAL, DEFAULT_PARTITION, FILE_SIZE, ROLLOVER_INTERVAL, INACTIVITY_INTERVAL,
        CHECK_INTERVAL, AUTO_COMPACTION, SCAN_PARALLELISM, SINK_PARALLELISM,
    )  # fmt: skip
    FORMATS: ClassVar = FILE_FORMATS
    makes_watermarks = True

    @override
    def formats(self, context: TableContext) -> Iterator[TableFormat]:
        yield self._format(context)

    @override
    def takes_fields(self, context: TableContext) -> bool:
        return self._format(context).TAKES_FIELDS

    def _format(self, context: TableContext) -> TableFormat:
        return format_of(context.options, FORMAT.key, context.options.required(FORMAT), FILE_FORMATS)

    @override
    def readable_metadata(self, context: TableContext) -> Mapping[str, DataType]:
        return METADATA

    @override
    def read(self, environment: StreamExecutionEnvironment, context: TableContext) -> DataStream:
        return read_source(environment, self._source(context), context)

    @override
    def spark_files(self, context: TableContext) -> SparkFiles | None:
        is_plain = not context.metadata and not context.table.partitioned_by
        if not is_plain or context.options.get(FORMAT) != ParquetTableFormat.NAME:
            return None
        source = self._source(context)
        enumerator = source.enumerator()
        if enumerator is None or source.boundedness is not Boundedness.BOUNDED:
            return None
        # Names of files are names, not patterns.
        return SparkFiles("parquet", {"__globPaths__": "false"}, enumerator)

    def _source(self, context: TableContext) -> FileSource:
        options = context.options
        path, table_format = options.required(PATH), self._format(context)
        data = _data_columns(context)
        row_type, types = row_type_of(data), [column.type for column in data if column.type is not None]
        file_format = table_format.file_format(row_type, types)
        metadata = {column.name: column.metadata_key or "" for column in context.metadata}
        if metadata or context.table.partitioned_by:
            if "file.modification-time" in metadata.values() and kind_of(path).remote:
                raise options.refuse("path", "is on no local disk, so there is no file.modification-time")
            file_format = TableFiles(
                context.read_type, file_format, row_type, context.table.partitioned_by, metadata,
                options.get(DEFAULT_PARTITION),
            )  # fmt: skip
        builder = FileSourceBuilder(file_format, (path,))
        interval = options.get(MONITOR_INTERVAL)
        if interval is not None:
            builder = builder.monitor_continuously(interval)
        if options.raw(f"{table_format.NAME}.ignore-parse-errors") is not None and _ignores_errors(table_format):
            builder = builder.on_malformed(MalformedPolicy.SKIP)
        return builder.build()

    @override
    def write(self, stream: DataStream, context: TableContext) -> None:
        options = context.options
        path, table_format = options.required(PATH), self._format(context)
        if options.get(AUTO_COMPACTION):
            raise options.refuse(
                AUTO_COMPACTION.key,
                "is true: small files are not joined; checkpoint less often, which makes larger ones",
            )
        data, partitions = _data_columns(context), context.table.partitioned_by
        if not data:
            raise options.refuse("path", "would get files without columns: each column is one of PARTITIONED BY")
        writer = table_format.file_writer(
            row_type_of(data), [column.type for column in data if column.type is not None]
        )
        if partitions:
            names = tuple(column.name for column in data)
            order = tuple(context.write_type.field_names)
            if isinstance(writer, SerializationSchema):
                writer = SchemaOfData(writer, names, order)
            else:
                writer = PartitionedWriters(writer, names, order)
        millis = [
            options.get(option) // timedelta(milliseconds=1) for option in (ROLLOVER_INTERVAL, INACTIVITY_INTERVAL)
        ]
        builder: FileSinkBuilder
        if isinstance(writer, SerializationSchema):
            builder = FileSink.for_row_format(path, Encoder.of_schema(writer))
            builder = builder.with_rolling_policy(DefaultRollingPolicy(options.get(FILE_SIZE), *millis))
        else:
            builder = FileSink.for_bulk_format(path, writer)
            builder = builder.with_rolling_policy(OnCheckpointRollingPolicy(options.get(FILE_SIZE), *millis))
        builder = builder.with_bucket_assigner(
            PartitionBuckets(tuple(context.write_type.field_names), partitions, options.get(DEFAULT_PARTITION))
        )
        builder = builder.with_bucket_check_interval(max(1, options.get(CHECK_INTERVAL) // timedelta(milliseconds=1)))
        in_parallel(stream.sink_to(builder.build()), context, SINK_PARALLELISM)

    @override
    def removal(self, context: TableContext, partition: Mapping[str, Any] | None = None) -> Callable[[], None]:
        present, file_system = self._files(context)
        columns = context.table.partitioned_by
        static = PartitionBuckets((), (), context.options.get(DEFAULT_PARTITION)).texts(partition or {})

        def remove() -> None:
            removed = present
            if partition is not None and columns:
                removed = [file for file in present if static.items() <= partition_of(file, columns).items()]
                if len(static) < len(columns):  # partitions that got no rows stay
                    written = set(self._files(context)[0]).difference(present)
                    touched = [partition_of(file, columns) for file in written]
                    removed = [file for file in removed if partition_of(file, columns) in touched]
            for file in removed:
                file_system.remove_temporary(file)

        return remove

    def _files(self, context: TableContext) -> tuple[list[str], Any]:
        text = context.options.required(PATH)
        kind = kind_of(text)
        if kind.remote:
            raise context.options.refuse("path", "is on no local disk: rows are removed there by its own tools")
        path, file_system = kind.path_of(text, "TRUNCATE"), FileSystems().of(text)
        return [file for file, _ in file_system.find(path, _fail)] if os.path.exists(path) else [], file_system

    @override
    def partitions(self, context: TableContext) -> list[dict[str, str]]:
        text = context.options.required(PATH)
        base = file_path(text, "SHOW PARTITIONS")
        if kind_of(text).remote or os.path.exists(base):
            files = (file for file, _ in FileSystems().of(base).find(base, _fail))
            found = [partition_of(file, context.table.partitioned_by) for file in files]
            return [dict(pairs) for pairs in sorted({tuple(values.items()) for values in found})]
        return []


def _data_columns(context: TableContext) -> list[TableColumn]:
    """The columns that stand in files."""
    return [column for column in context.physical if column.name not in context.table.partitioned_by]


def _ignores_errors(table_format: TableFormat) -> bool:
    option = next(option for option in table_format.OPTIONS if option.key.endswith(".ignore-parse-errors"))
    return bool(table_format.options.get(option))


def _fail(error: OSError) -> None:
    raise error
