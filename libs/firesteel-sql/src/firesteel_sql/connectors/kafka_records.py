"""Records of Kafka as rows of tables, and rows as records. Runs in slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat, starmap, tee
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from firesteel.common.time import Instant
from firesteel.common.typeinfo import RowTypeInfo, TypeInformation, Types
from firesteel.common.types import make_row
from firesteel.datastream.connectors.kafka import (
    ConsumerRecord,
    ConsumerRecords,
    KafkaProducerRecord,
    KafkaRecordDeserializationSchema,
    KafkaRecordSerializationSchema,
)
from firesteel.expressions.values import RECORDS, ROW, arrow_schema, column_of, row_values
from firesteel.functions.batch_functions import ChangelogMapFunction, Changes
from firesteel.functions.functions import RuntimeContext
from firesteel_sql.connectors.formats.format import (
    DELETE,
    INSERT,
    UPDATE_BEFORE,
    Change,
    DecodedRows,
    Kinds,
    RowDecoder,
    RowEncoder,
)

KIND: Final = "$kind"
"""Column of row kinds behind a source, until ``KindsOfColumn`` takes it."""
_TIMESTAMP_TYPES: Final = {0: "CreateTime", 1: "LogAppendTime"}


@dataclass(frozen=True)
class KafkaColumns:
    """Where the columns of a table stand in records.

    Attributes:
        row_type: all columns of the rows.
        key_fields: column -> field of the key.
        value_fields: column -> field of the value.
        metadata: column -> key of its metadata.
        is_upsert: a record without a value deletes the row of its key.
        gives_kinds: rows have a column of kinds behind the others.
    """

    row_type: RowTypeInfo
    key_fields: Mapping[str, str]
    value_fields: Mapping[str, str]
    metadata: Mapping[str, str]
    is_upsert: bool = False
    gives_kinds: bool = False

    @property
    def produced_type(self) -> RowTypeInfo:
        """The type of the rows that the source emits."""
        if not self.gives_kinds:
            return self.row_type
        return RowTypeInfo([*self.row_type.field_types, Types.BYTE()], [*self.row_type.field_names, KIND])


class TableRecordsSchema(KafkaRecordDeserializationSchema):
    """Reads rows from keys, values and metadata of records.

    Args:
        columns: where they stand.
        key: reads keys; None = no column is in the key.
        value: reads values; None = no column is in the value.
    """

    gives_columns = True

    def __init__(self, columns: KafkaColumns, key: RowDecoder | None, value: RowDecoder | None) -> None:
        self._columns, self._key, self._value = columns, key, value

    @override
    def get_produced_type(self) -> TypeInformation:
        return self._columns.produced_type

    # -- one by one: the way that says what is wrong with a record

    @override
    def deserialize(self, record: ConsumerRecord) -> Iterator[Any]:
        names = tuple(self._columns.produced_type.field_names)
        key: Mapping[str, Any] = {}
        if self._key is not None and record.key is not None:
            try:
                changes = self._key.changes(record.key)
            except ValueError as error:
                raise ValueError(f"the key: {error}") from None
            if changes:
                key = dict(zip(self._key.row_type.field_names, changes[0].values, strict=True))
        for change in self._changes(record):
            value: Mapping[str, Any] = {}
            if self._value is not None and change.values:
                value = dict(zip(self._value.row_type.field_names, change.values, strict=True))
            row = dict.fromkeys(names)
            row.update({column: key.get(field) for column, field in self._columns.key_fields.items()})
            if value or not self._columns.key_fields:
                row.update({column: value.get(field) for column, field in self._columns.value_fields.items()})
            for column, metadata in self._columns.metadata.items():
                row[column] = _metadata_of(record, change, metadata)
            if self._columns.gives_kinds:
                row[KIND] = change.kind
            yield make_row(names, list(row.values()))

    def _changes(self, record: ConsumerRecord) -> list[Change]:
        if record.value is None:
            return [Change(DELETE, (), {})] if self._columns.is_upsert else []
        return [Change(INSERT, (), {})] if self._value is None else self._value.changes(record.value)

    # -- many at once

    @override
    def deserialize_columns(
        self, records: ConsumerRecords
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.integer[Any]] | None] | None:
        values = self._decoded_values(records)
        keys = self._decoded_keys(records)
        if values is None or keys is None:
            return None
        decoded, origins = values
        arrays = []
        columns = self._columns
        count = len(origins)
        schema = arrow_schema(columns.produced_type, {RECORDS: ROW})
        key_names = [] if self._key is None else list(self._key.row_type.field_names)
        value_names = [] if self._value is None else list(self._value.row_type.field_names)
        for name in columns.row_type.field_names:
            if name in columns.metadata:
                kind = columns.row_type.field_types[columns.row_type.field_names.index(name)]
                arrays.append(_metadata_column(records, decoded, origins, columns.metadata[name], name, kind))
            elif name in columns.value_fields and not (columns.is_upsert and name in columns.key_fields):
                arrays.append(decoded.rows.column(value_names.index(columns.value_fields[name])))
            else:
                arrays.append(keys.column(key_names.index(columns.key_fields[name])).take(pa.array(origins)))
        if columns.gives_kinds:
            arrays.append(pa.array(np.zeros(count, np.int8) if decoded.kinds is None else decoded.kinds, pa.int8()))
        return pa.RecordBatch.from_arrays(arrays, schema=schema), origins

    def _decoded_values(self, records: ConsumerRecords) -> tuple[DecodedRows, npt.NDArray[np.int64]] | None:
        """The rows of values, and for each its record; a record that deletes is a row of nulls."""
        values = records.values()
        places = np.arange(len(values))
        is_there = np.fromiter((value is not None for value in values), np.bool_, len(values))
        if self._value is None:
            empty = pa.RecordBatch.from_arrays([], names=[])
            kinds = np.where(is_there, INSERT, DELETE).astype(np.int8)
            if not self._columns.is_upsert:
                places, kinds = places[is_there], kinds[is_there]
            return DecodedRows(empty, None, kinds, {}), places
        messages = [value for value in values if value is not None]
        decoded = self._value.decode(messages)
        if decoded is None:
            return None
        present = places[is_there]
        origins = present if decoded.origins is None else present[decoded.origins]
        if not self._columns.is_upsert or is_there.all():
            return decoded, origins
        # Deletes stand among the other rows, in the order of the records.
        all_origins = np.concatenate([origins, places[~is_there]])
        order = np.argsort(all_origins, kind="stable")
        number_of_rows = len(origins)
        take = pa.array(np.where(order < number_of_rows, order, 0), mask=order >= number_of_rows)
        rows = decoded.rows.take(take) if number_of_rows else _nulls(decoded.rows.schema, len(order))
        kinds = np.where(order < number_of_rows, INSERT, DELETE).astype(np.int8)
        metadata = {
            key: [column[place] if place < number_of_rows else None for place in order.tolist()]
            for key, column in decoded.metadata.items()
        }
        return DecodedRows(rows, None, kinds, metadata), all_origins[order]

    def _decoded_keys(self, records: ConsumerRecords) -> pa.RecordBatch | None:
        """The row of each record's key; a key that is missing is a row of nulls."""
        if self._key is None:
            return pa.RecordBatch.from_arrays([], names=[])
        keys = records.keys()
        is_there = np.fromiter((key is not None for key in keys), np.bool_, len(keys))
        decoded = self._key.decode([key for key in keys if key is not None])
        if decoded is None:
            return None
        present = np.flatnonzero(is_there)
        origins = present if decoded.origins is None else present[decoded.origins]
        if len(origins) == len(keys):
            return decoded.rows
        if not len(origins):
            return _nulls(decoded.rows.schema, len(keys))
        rows = np.full(len(keys), -1)
        rows[origins] = np.arange(len(origins))
        return decoded.rows.take(pa.array(np.maximum(rows, 0), mask=rows < 0))


def _pairs(headers: Any) -> Any:
    """Headers as Kafka takes them; one without bytes can't be written."""
    if not headers:
        return ()
    return tuple((name, data) for name, data in dict(headers).items() if data is not None)


def _nulls(schema: pa.Schema, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(count, field.type) for field in schema], schema=schema)


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> dict[str, bytes | None]:
    return dict(headers)


def _metadata_of(record: ConsumerRecord, change: Change, key: str) -> Any:
    match key:
        case "topic":
            return record.topic
        case "partition":
            return record.partition
        case "offset":
            return record.offset
        case "timestamp":
            return Instant.of_epoch_milli(record.timestamp)
        case "timestamp-type":
            return _TIMESTAMP_TYPES.get(record.timestamp_type, "NoTimestampType")
        case "headers":
            return _headers(record.headers)
        case "leader-epoch":
            return None
    return change.metadata.get(key.removeprefix("value."))


def _metadata_column(
    records: ConsumerRecords,
    decoded: DecodedRows,
    origins: npt.NDArray[np.int64],
    key: str,
    name: str,
    kind: TypeInformation,
) -> pa.Array:
    count = len(origins)
    match key:
        case "topic":
            return pa.repeat(pa.scalar(records.topic), count)
        case "partition":
            return pa.array(np.full(count, records.partition, np.int32))
        case "offset":
            return pa.array(records.offsets()[origins])
        case "timestamp":
            return pa.array(records.timestamps[origins] * 1000, pa.timestamp("us", "UTC"))
        case "timestamp-type":
            types = records.timestamp_types()
            return pa.array(
                [_TIMESTAMP_TYPES.get(types[place], "NoTimestampType") for place in origins.tolist()], pa.string()
            )
        case "headers":
            headers = records.headers()
            return column_of([_headers(headers[place]) for place in origins.tolist()], name, kind)
    return column_of(decoded.metadata.get(key.removeprefix("value."), [None] * count), name, kind)


class KindsOfColumn(ChangelogMapFunction):
    """Makes row kinds of the last column, which goes."""

    @override
    def map_changes(
        self, batch: pa.RecordBatch, kinds: npt.NDArray[np.int8] | None, timestamps: npt.NDArray[np.int64] | None
    ) -> Changes:
        codes = batch.column(batch.num_columns - 1).to_numpy(zero_copy_only=False).astype(np.int8)
        rows = batch.select(batch.schema.names[:-1])
        return rows, codes if codes.any() else None, timestamps


# --- rows as records

ENCODED: Final = Types.ROW_NAMED(
    ["key", "value", "topic", "timestamp", "headers", "subtask"],
    [
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.STRING(),
        Types.LONG(),
        Types.MAP(Types.STRING(), Types.PRIMITIVE_ARRAY(Types.BYTE())),
        Types.INT(),
    ],
)
"""Rows between ``EncodeRecords`` and the sink."""


class EncodeRecords(ChangelogMapFunction):
    """Makes keys and values of rows.

    Args:
        key: writes keys; None = records have none.
        key_names: columns of the key.
        value: writes values; None = records have none.
        value_names: columns of the value.
        metadata: key of metadata -> column.
        is_upsert: a delete is a record without a value, and a row before an update is none.
    """

    def __init__(
        self,
        key: RowEncoder | None,
        key_names: Sequence[str],
        value: RowEncoder | None,
        value_names: Sequence[str],
        metadata: Mapping[str, str],
        *,
        is_upsert: bool,
    ) -> None:
        self._key, self._key_names = key, list(key_names)
        self._value, self._value_names = value, list(value_names)
        self._metadata, self._is_upsert = dict(metadata), is_upsert
        self._subtask = 0

    @override
    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()

    @override
    def map_changes(
        self, batch: pa.RecordBatch, kinds: npt.NDArray[np.int8] | None, timestamps: npt.NDArray[np.int64] | None
    ) -> Changes:
        if self._is_upsert and kinds is not None and (kinds == UPDATE_BEFORE).any():
            chosen = np.flatnonzero(kinds != UPDATE_BEFORE)
            batch, kinds = batch.take(pa.array(chosen)), kinds[chosen]
            timestamps = None if timestamps is None else timestamps[chosen]
        count = batch.num_rows
        keys = self._messages(self._key, self._key_names, batch, kinds)
        values = self._messages(self._value, self._value_names, batch, None if self._is_upsert else kinds)
        if self._is_upsert and kinds is not None:
            deletes = (kinds == DELETE).tolist()
            values = [None if is_delete else value for value, is_delete in zip(values, deletes, strict=True)]
        kinds_of = dict(zip(ENCODED.field_names, arrow_schema(ENCODED).types, strict=True))
        arrays = [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            self._column(batch, "topic", kinds_of["topic"]),
            self._timestamps(batch),
            self._column(batch, "headers", kinds_of["headers"]),
            pa.array(np.full(count, self._subtask, np.int32)),
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(ENCODED.field_names)), None, timestamps

    def _messages(
        self, encoder: RowEncoder | None, names: list[str], batch: pa.RecordBatch, kinds: Kinds | None
    ) -> Sequence[bytes | None]:
        return [None] * batch.num_rows if encoder is None else encoder.encode(batch.select(names), kinds)

    def _column(self, batch: pa.RecordBatch, key: str, data_type: pa.DataType) -> pa.Array:
        name = self._metadata.get(key)
        return pa.nulls(batch.num_rows, data_type) if name is None else batch.column(batch.schema.get_field_index(name))

    def _timestamps(self, batch: pa.RecordBatch) -> pa.Array:
        moments = self._column(batch, "timestamp", pa.timestamp("us", "UTC"))
        return moments.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())


class TableProducerSchema(KafkaRecordSerializationSchema):
    """Makes records of what ``EncodeRecords`` gives.

    Args:
        topics: the topics of the table; rows choose one of them by the metadata ``topic`` if there are several.
        is_fixed: all rows of a subtask go to one partition.
    """

    def __init__(self, topics: Sequence[str], *, is_fixed: bool) -> None:
        self._topics, self._is_fixed = tuple(topics), is_fixed
        self._partitions_for: Callable[[str], Sequence[int]] | None = None

    @override
    def open(self, partitions_for: Callable[[str], Sequence[int]]) -> None:
        self._partitions_for = partitions_for

    takes_columns = True

    @override
    def serialize(self, element: Any, timestamp: int | None) -> KafkaProducerRecord:
        columns = zip(ENCODED.field_names, row_values(element, tuple(ENCODED.field_names)), strict=True)
        (record,) = self._records({name: [value] for name, value in columns})
        return record

    @override
    def serialize_columns(self, batch: pa.RecordBatch) -> Iterable[KafkaProducerRecord | None]:
        return self._records(
            {name: column.to_pylist() for name, column in zip(ENCODED.field_names, batch, strict=True)}
        )

    def _records(self, columns: Mapping[str, list[Any]]) -> Iterator[KafkaProducerRecord]:
        topics: Iterator[str] = map(self._topic, columns["topic"])
        partitions: Iterable[int | None] = repeat(None)
        if self._is_fixed:
            topics, copies = tee(topics)
            partitions = map(self._partition, copies, columns["subtask"])
        headers = map(_pairs, columns["headers"])
        rows = zip(topics, columns["value"], columns["key"], partitions, columns["timestamp"], headers, strict=False)
        return starmap(KafkaProducerRecord, rows)

    def _topic(self, topic: str | None) -> str:
        if topic is None:
            if len(self._topics) != 1:
                raise ValueError(f"the row says by no metadata 'topic' which of {', '.join(self._topics)} it goes to")
            return self._topics[0]
        if topic not in self._topics:
            raise ValueError(f"the row goes to the topic {topic!r}, which is none of {', '.join(self._topics)}")
        return topic

    def _partition(self, topic: str, subtask: int) -> int:
        assert self._partitions_for is not None, "open() comes first"
        partitions = self._partitions_for(topic)
        return partitions[subtask % len(partitions)]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_partitions_for": None}
