"""Makes records of a stream from records of Kafka."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.common.serialization import DeserializationSchema
from firesteel.common.typeinfo import TypeInformation
from firesteel.functions.functions import RuntimeContext

__all__ = ["ConsumerRecord", "ConsumerRecords", "KafkaRecordDeserializationSchema"]


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """A record of Kafka.

    Attributes:
        topic: name of the topic.
        partition: number of the partition.
        offset: offset in the partition.
        timestamp: epoch milliseconds; -1 = the record has no timestamp.
        timestamp_type: 0 = the producer has set the timestamp, 1 = the broker.
        key: bytes of the key, or None.
        value: bytes of the value; None = a tombstone.
        headers: names and values, in order; names may repeat.

    Examples:
        ```python
        from firesteel.datastream.connectors.kafka import ConsumerRecord, KafkaRecordDeserializationSchema


        class WithPlace(KafkaRecordDeserializationSchema):
            def deserialize(self, record: ConsumerRecord):
                yield f"{record.topic}-{record.partition}@{record.offset}", record.value


        record = ConsumerRecord("orders", 2, 41, 1_700_000_000_000, 0, b"anna", b"tea", ())
        print(list(WithPlace().deserialize(record)))
        ```

        ```text
        [('orders-2@41', b'tea')]
        ```
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class ConsumerRecords:
    """Records of one partition, in order, for schemas that read many at once.

    Args:
        topic: name of the topic.
        partition: number of the partition.
        records: records of aiokafka.
        timestamps: their timestamps in epoch milliseconds; -1 = a record has none.

    Examples:
        ```python
        import pyarrow as pa

        from firesteel.common import Types
        from firesteel.datastream.connectors.kafka import ConsumerRecords, KafkaRecordDeserializationSchema


        class KeysAndSizes(KafkaRecordDeserializationSchema):
            gives_columns = True

            def deserialize(self, record):  # if columns can't be made of a batch
                return record.key, len(record.value or b"")

            def deserialize_columns(self, records: ConsumerRecords):
                sizes = [len(value or b"") for value in records.values()]
                keys = pa.array(records.keys(), pa.binary())
                return pa.RecordBatch.from_arrays([keys, pa.array(sizes)], ["key", "size"]), None

            def get_produced_type(self):
                return Types.ROW_NAMED(["key", "size"], [Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.LONG()])
        ```
    """

    def __init__(self, topic: str, partition: int, records: Sequence[Any], timestamps: npt.NDArray[np.int64]) -> None:
        self.topic, self.partition, self.timestamps = topic, partition, timestamps
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def keys(self) -> list[bytes | None]:
        """Key of each record."""
        return [record.key for record in self._records]

    def values(self) -> list[bytes | None]:
        """Value of each record; None = a tombstone."""
        return [record.value for record in self._records]

    def offsets(self) -> npt.NDArray[np.int64]:
        """Offset of each record in the partition."""
        return np.fromiter((record.offset for record in self._records), np.int64, len(self._records))

    def timestamp_types(self) -> list[int]:
        """Who has set each timestamp: 0 = the producer, 1 = the broker."""
        return [record.timestamp_type for record in self._records]

    def headers(self) -> list[tuple[tuple[str, bytes | None], ...]]:
        """Headers of each record, in order; names may repeat."""
        return [tuple(record.headers) for record in self._records]


class KafkaRecordDeserializationSchema(ABC):
    """Makes records of a stream from records of Kafka. Pickled into the job; runs in slots, in the reader's thread.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream.connectors.kafka import KafkaRecordDeserializationSchema


        class WithKey(KafkaRecordDeserializationSchema):
            def deserialize(self, record):
                yield record.key, record.value

            def get_produced_type(self):
                return Types.PICKLED_BYTE_ARRAY()
        ```
    """

    gives_columns: bool = False
    """Whether ``deserialize_columns`` reads many records at once, as the columns of the produced type."""

    @staticmethod
    def value_only(deserialization_schema: DeserializationSchema) -> KafkaRecordDeserializationSchema:
        """A schema for values; keys, headers and tombstones are left out."""
        return ValueOnly(deserialization_schema)

    def open(self, context: RuntimeContext | None) -> None:  # noqa: B027 - may be left out
        """Called once in each subtask, before anything else.

        Args:
            context: metrics and job parameters; None outside of a job.
        """

    @abstractmethod
    def deserialize(self, record: ConsumerRecord) -> Any:
        """Returns the value in the stream; None = no value; a generator = all values that it yields.

        ``KafkaSourceBuilder.on_malformed`` says whether an error fails the job or skips the record.
        """

    def deserialize_columns(
        self, records: ConsumerRecords
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.integer[Any]] | None] | None:
        """Returns a batch, and for each of its rows the position of the record that it comes from.

        Called only if ``gives_columns`` is True. Positions may be None if there is one row for each record. None = the
        records have to be read one by one by ``deserialize``, which then says what is wrong with one of them.
        """
        raise NotImplementedError

    def get_produced_type(self) -> TypeInformation | None:
        """Returns the type of the values; None = any Python objects."""
        return None


class ValueOnly(KafkaRecordDeserializationSchema):
    """Deserializes values; keys, headers and tombstones are left out.

    Args:
        schema: is called with the value of each record that has one.
    """

    def __init__(self, schema: DeserializationSchema) -> None:
        if not isinstance(schema, DeserializationSchema):
            raise TypeError(f"value_only() takes a DeserializationSchema, not {type(schema).__name__}")
        self.schema = schema

    def deserialize(self, record: ConsumerRecord) -> Any:
        """The deserialized value; None for a tombstone."""
        return None if record.value is None else self.schema.deserialize(record.value)

    @property
    def gives_columns(self) -> bool:  # type: ignore[override]
        """Whether the schema of values reads many at once."""
        return self.schema.gives_columns

    def deserialize_columns(
        self, records: ConsumerRecords
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.integer[Any]] | None] | None:
        """The columns of all values but tombstones."""
        values = records.values()
        messages = [value for value in values if value is not None]
        batch = self.schema.deserialize_columns(messages) if messages else None
        if batch is None:
            return None
        if len(messages) == len(values):
            return batch, None
        return batch, np.flatnonzero(np.fromiter((value is not None for value in values), np.bool_, len(values)))

    def get_produced_type(self) -> TypeInformation | None:
        """Returns the type of the schema's values."""
        return self.schema.get_produced_type()


def several(result: Any) -> Iterator[Any]:
    """The values in a result of ``deserialize``: none, one, or those that a generator yields."""
    if result is None:
        return iter(())
    is_generator = isinstance(result, Iterator) and hasattr(result, "send")
    return result if is_generator else iter((result,))
