"""Partitions of tables in files: a directory ``column=value`` for each value, and columns that follow from a path."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from firesteel.common.serialization import BulkWriter, BulkWriterFactory, SerializationSchema
from firesteel.common.types import make_row
from firesteel.connectors.file_layout import BucketAssigner
from firesteel.expressions.values import row_values

_ODD: Final = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
"""Characters that stand as %41 in names of directories, as in Hive."""


class PartitionBuckets(BucketAssigner):
    """Chooses the directory of a row by its partition's columns.

    Args:
        names: columns of the rows.
        partitions: columns of the partition, from the outer directory to the inner one.
        default_name: stands for NULL and empty texts.
    """

    def __init__(self, names: tuple[str, ...], partitions: tuple[str, ...], default_name: str) -> None:
        super().__init__(self._bucket_of_row)
        self._names, self._partitions, self._default = names, partitions, default_name

    @property
    @override
    def looks_at_records(self) -> bool:
        return bool(self._partitions)

    def _bucket_of_row(self, record: Any, now_ms: int) -> str:
        if not self._partitions:
            return ""
        values = dict(zip(self._names, row_values(record, self._names), strict=True))
        return self._directory([values[name] for name in self._partitions])

    def texts(self, values: Mapping[str, Any]) -> dict[str, str]:
        """The values of a partition as ``partition_of`` reads them from a path."""
        return {name: unquote(self._name_of(value)) for name, value in values.items()}

    def _directory(self, values: Sequence[Any]) -> str:
        pairs = zip(self._partitions, values, strict=True)
        return "/".join(f"{_escaped(name)}={self._name_of(value)}" for name, value in pairs)

    def _name_of(self, value: Any) -> str:
        text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        return _escaped(text) if text else self._default

    @override
    def rows_of_buckets(self, batch: pa.RecordBatch, now_ms: int) -> dict[str, Any] | None:
        columns = [batch.column(batch.schema.get_field_index(name)) for name in self._partitions]
        codes = np.zeros(batch.num_rows, np.int64)
        for column in columns:
            encoded = pc.dictionary_encode(column, null_encoding="encode")
            codes = codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy(zero_copy_only=False)
            _, codes = np.unique(codes, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        rows: dict[str, Any] = {}
        for positions in np.split(order, starts[1:]) if len(order) else ():
            values = [column[int(positions[0])].as_py() for column in columns]
            bucket = self._directory(values)
            rows[bucket] = np.concatenate([rows[bucket], positions]) if bucket in rows else positions
        return rows


def _escaped(text: str) -> str:
    return _ODD.sub(lambda match: f"%{ord(match.group()):02X}", text)


class PartitionedWriters(BulkWriterFactory):
    """Writes files without the columns of partitions.

    Args:
        writers: write the other columns.
        names: those columns.
        order: all columns.
    """

    def __init__(self, writers: BulkWriterFactory, names: tuple[str, ...], order: tuple[str, ...]) -> None:
        self._writers, self._names, self._order = writers, names, order
        self.takes_columns, self.joinable = writers.takes_columns, writers.joinable

    @override
    def create(self, stream: IO[bytes]) -> BulkWriter:
        return _DataWriter(self._writers.create(stream), self._names, self._order)

    @override
    def check(self) -> None:
        self._writers.check()


class _DataWriter(BulkWriter):
    def __init__(self, writer: BulkWriter, names: tuple[str, ...], order: tuple[str, ...]) -> None:
        self._writer, self._names = writer, names
        self._order, self._places = order, [order.index(name) for name in names]

    @override
    def write_columns(self, batch: pa.RecordBatch) -> None:
        self._writer.write_columns(batch.select(list(self._names)))

    @override
    def write(self, elements: Sequence[Any]) -> None:
        rows = [row_values(element, self._order) for element in elements]
        self._writer.write([make_row(self._names, [row[place] for place in self._places]) for row in rows])

    @override
    def finish(self) -> None:
        self._writer.finish()

    @override
    def abort(self) -> None:
        self._writer.abort()

    @override
    def buffered_bytes(self) -> int:
        return self._writer.buffered_bytes()


class SchemaOfData(SerializationSchema):
    """Writes lines without the columns of partitions.

    Args:
        schema: writes the other columns.
        names: those columns.
        order: all columns.
    """

    def __init__(self, schema: SerializationSchema, names: tuple[str, ...], order: tuple[str, ...]) -> None:
        self._schema, self._names, self._order = schema, names, order
        self.takes_columns = schema.takes_columns

    @override
    def serialize(self, element: Any) -> bytes:
        values = dict(zip(self._order, row_values(element, self._order), strict=True))
        return self._schema.serialize(make_row(self._names, [values[name] for name in self._names]))

    @override
    def serialize_columns(self, batch: pa.RecordBatch) -> list[bytes]:
        return self._schema.serialize_columns(batch.select(list(self._names)))
