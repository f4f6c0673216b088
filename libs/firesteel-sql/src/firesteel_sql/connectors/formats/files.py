"""Files of tables: columns of partitions and metadata follow from a file's path."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from typing_extensions import override

from firesteel.common.typeinfo import RowTypeInfo, TypeInformation
from firesteel.connectors.file_format import FileFormat
from firesteel.connectors.malformed import MalformedRecords
from firesteel.connectors.split_reader import Chunk, SplitCursor
from firesteel.core.errors import MalformedDataError
from firesteel.expressions.schema import arrow_type
from firesteel.expressions.values import RECORDS, ROW, arrow_schema, row_values
from firesteel.functions.source import Split, Wait
from firesteel_sql.connectors.formats.format import batch_of

DEFAULT_NAME: Final = "__DEFAULT_PARTITION__"
"""Stands for NULL in names of directories, as in Hive."""


def partition_of(path: str, columns: Sequence[str]) -> dict[str, str]:
    """The values of a file's partition by column, which stand in its path."""
    values = {}
    for segment in path.split("/"):
        name, equals, text = segment.partition("=")
        if equals and unquote(name) in columns:
            values[unquote(name)] = unquote(text)
    return {name: values[name] for name in columns if name in values}


class TableFiles(FileFormat):
    """Files whose rows have further columns: those of partitions, and metadata of the file.

    Args:
        row_type: all columns, in their order.
        data_format: reads the columns that stand in the file.
        data_type: these columns.
        partitions: columns of the partition.
        metadata: column -> key of its metadata.
        default_name: stands for NULL in names of directories.
    """

    def __init__(
        self,
        row_type: RowTypeInfo,
        data_format: FileFormat,
        data_type: RowTypeInfo,
        partitions: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
        default_name: str = DEFAULT_NAME,
    ) -> None:
        self._type, self._format, self._data_type = row_type, data_format, data_type
        self._partitions, self._metadata, self._default = tuple(partitions), dict(metadata or {}), default_name

    @property
    @override
    def splittable(self) -> bool:
        return self._format.splittable

    @property
    @override
    def decompresses(self) -> bool:
        return self._format.decompresses

    @property
    @override
    def empty_is_damaged(self) -> bool:
        return self._format.empty_is_damaged

    @override
    def check(self) -> None:
        self._format.check()

    @override
    def produced_type(self) -> TypeInformation:
        return self._type

    @override
    def with_columns(self, names: Sequence[str]) -> FileFormat | None:
        data = [name for name in names if name in self._data_type.field_names]
        narrow = self._format.with_columns(data) if data else None
        if narrow is None:
            return None
        kinds = dict(zip(self._type.field_names, self._type.field_types, strict=True))
        return TableFiles(
            RowTypeInfo([kinds[name] for name in names], list(names)),
            narrow,
            RowTypeInfo([kinds[name] for name in data], data),
            [name for name in self._partitions if name in names],
            {name: key for name, key in self._metadata.items() if name in names},
            self._default,
        )

    @override
    def open_cursor(self, split: Split, malformed: MalformedRecords) -> SplitCursor[Any]:
        self._format.files = self.files
        path = str(split.data["path"])
        constants: dict[str, Any] = {}
        kinds = dict(zip(self._type.field_names, self._type.field_types, strict=True))
        values = partition_of(path, self._partitions)
        for name in self._partitions:
            if name not in values:
                raise MalformedDataError(path, None, None, f"the file is below no directory {name}=…")
            text = None if values[name] == self._default else values[name]
            constants[name] = _partition_value(path, name, text, kinds[name])
        for name, key in self._metadata.items():
            constants[name] = pa.scalar(self._metadata_of(path, key), arrow_type(kinds[name]))
        return _TableCursor(self._format.open_cursor(split, malformed), self._type, self._data_type, constants)

    def _metadata_of(self, path: str, key: str) -> Any:
        match key:
            case "file.path":
                return path
            case "file.name":
                return path.rpartition("/")[2]
            case "file.size":
                return self.files.of(path).size(path)
        return int(os.path.getmtime(path) * 1000) * 1000


def _partition_value(path: str, name: str, text: str | None, declared: TypeInformation) -> pa.Scalar:
    target = arrow_type(declared)
    try:
        return pa.scalar(text, pa.string()).cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise MalformedDataError(
            path, None, None, f"the partition {name}={text} is no value of the column's type, {declared}: {error}"
        ) from None


class _TableCursor(SplitCursor[Any]):
    def __init__(
        self, cursor: SplitCursor[Any], row_type: RowTypeInfo, data_type: RowTypeInfo, constants: Mapping[str, Any]
    ) -> None:
        self._cursor, self._data_type, self._constants = cursor, data_type, constants
        self._schema = arrow_schema(row_type, {RECORDS: ROW})

    @override
    def read(self, max_records: int) -> Chunk[Any] | Wait:
        chunk = self._cursor.read(max_records)
        if isinstance(chunk, Wait):
            return chunk
        rows: Any = chunk.values
        if not isinstance(rows, pa.RecordBatch):
            names = tuple(self._data_type.field_names)
            rows = batch_of([row_values(row, names) for row in rows], self._data_type)
        columns = dict(zip(self._data_type.field_names, rows.columns, strict=True))
        arrays = [
            columns[name] if name in columns else pa.repeat(self._constants[name], rows.num_rows)
            for name in self._schema.names
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return Chunk(batch, chunk.position, chunk.finished, chunk.timestamps)

    @override
    def close(self) -> None:
        self._cursor.close()
