"""What a source makes of Kafka's records."""

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
        topic: its topic.
        partition: of the topic.
        offset: in the partition.
        timestamp: epoch milliseconds; -1 = it has none.
        timestamp_type: 0 = set by the producer, 1 = by the broker.
        key: bytes, or None.
        value: bytes; None = a tombstone.
        headers: names and values, in order; names may repeat.
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
    """Makes records of a stream from records of Kafka. Pickled into the job; runs in slots, in the reader's thread."""

    @staticmethod
    def value_only(deserialization_schema: DeserializationSchema) -> KafkaRecordDeserializationSchema:
        """A schema for values; keys, headers and tombstones are left out."""
        return ValueOnly(deserialization_schema)

    def open(self, context: RuntimeContext | None) -> None:  # noqa: B027 - may be left out
        """Called once in each subtask, first.

        Args:
            context: metrics and job parameters; None outside of a job.
        """

    @abstractmethod
    def deserialize(self, record: ConsumerRecord) -> Any:
        """What the record is in the stream: a value; None = nothing; a generator = all that it yields.

        What it raises fails the job, or is skipped, as ``KafkaSourceBuilder.on_malformed`` says.
        """

    def get_produced_type(self) -> TypeInformation | None:
        """Returns the type of the values; None = any Python objects."""
        return None


class ValueOnly(KafkaRecordDeserializationSchema):
    """A schema for values.

    Args:
        schema: gets the value of each record that has one.
    """

    def __init__(self, schema: DeserializationSchema) -> None:
        if not isinstance(schema, DeserializationSchema):
            raise TypeError(f"value_only() takes a DeserializationSchema, not {type(schema).__name__}")
        self.schema = schema

    def deserialize(self, record: ConsumerRecord) -> Any:
        """The value, if there is one."""
        return None if record.value is None else self.schema.deserialize(record.value)

    def get_produced_type(self) -> TypeInformation | None:
        """Returns that of the schema."""
        return self.schema.get_produced_type()


def several(made: Any) -> Iterator[Any]:
    """The values that ``deserialize`` has made of a record."""
    if made is None:
        return iter(())
    return made if isinstance(made, Iterator) and hasattr(made, "send") else iter((made,))
