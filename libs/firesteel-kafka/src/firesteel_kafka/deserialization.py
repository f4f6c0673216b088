"""Makes records of a stream from records of Kafka."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from firesteel.common.serialization import DeserializationSchema
from firesteel.common.typeinfo import TypeInformation
from firesteel.functions.functions import RuntimeContext

__all__ = ["ConsumerRecord", "KafkaRecordDeserializationSchema"]


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

    def get_produced_type(self) -> TypeInformation | None:
        """Returns the type of the schema's values."""
        return self.schema.get_produced_type()


def several(result: Any) -> Iterator[Any]:
    """The values in a result of ``deserialize``: none, one, or those that a generator yields."""
    if result is None:
        return iter(())
    is_generator = isinstance(result, Iterator) and hasattr(result, "send")
    return result if is_generator else iter((result,))
