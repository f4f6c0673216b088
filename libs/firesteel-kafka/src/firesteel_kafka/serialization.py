"""Makes records of Kafka from records of a stream. The names are PyFlink's; users can write schemas of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from firesteel.common.serialization import SerializationSchema
from firesteel.core.errors import ProgramError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "KafkaProducerRecord",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaTopicSelector",
]

Headers = Sequence[tuple[str, bytes]]
Partitioner = Callable[[Any, bytes | None, bytes | None, str, Sequence[int]], int]


class KafkaProducerRecord(NamedTuple):
    """A record for Kafka.

    Attributes:
        topic: topic to write to.
        value: bytes of the value; None is a tombstone.
        key: bytes of the key; records with the same key go to the same partition.
        partition: partition of the topic; None = the key decides, or without a key any partition.
        timestamp: milliseconds since 1970; None = the time of writing.
        headers: names and values.

    Examples:
        ```python
        from firesteel.datastream.connectors.kafka import KafkaProducerRecord

        record = KafkaProducerRecord("orders", b"tea", key=b"anna")
        print(record.topic, record.key)
        ```

        ```text
        orders b'anna'
        ```
    """

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = ()


class KafkaTopicSelector(ABC):
    """Chooses the topic of each record.

    Examples:
        ```python
        from firesteel.common import SimpleStringSchema
        from firesteel.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaTopicSelector


        class ByLength(KafkaTopicSelector):
            def apply(self, data):
                return "long" if len(data) > 10 else "short"


        builder = KafkaRecordSerializationSchema.builder().set_topic_selector(ByLength())
        schema = builder.set_value_serialization_schema(SimpleStringSchema()).build()
        print(schema.serialize("tea", None).topic)
        ```

        ```text
        short
        ```
    """

    @abstractmethod
    def apply(self, data: Any) -> str:
        """Returns the topic of a record."""


class KafkaRecordSerializationSchema(ABC):
    """Makes records of Kafka. ``builder()`` composes one of schemas and functions; derive from it for anything else.

    Examples:
        ```python
        from firesteel.common import SimpleStringSchema
        from firesteel.datastream.connectors.kafka import KafkaRecordSerializationSchema

        schema = (
            KafkaRecordSerializationSchema.builder()
            .set_topic("words")
            .set_value_serialization_schema(SimpleStringSchema())
            .build()
        )
        print(schema.serialize("tea", None).value)
        ```

        ```text
        b'tea'
        ```
    """

    takes_columns: bool = False
    """Whether ``serialize_columns`` makes the records of whole batches of columns."""

    @abstractmethod
    def serialize(self, element: Any, timestamp: int | None) -> KafkaProducerRecord | None:
        """Returns the record for Kafka; None = no record is written.

        Args:
            element: record of the stream.
            timestamp: timestamp of the element in epoch milliseconds; None = it has none.
        """

    def open(self, partitions_for: Callable[[str], Sequence[int]]) -> None:  # noqa: B027 - most have nothing to do
        """Called once in each subtask, before anything else.

        Args:
            partitions_for: function of a topic that gives the numbers of its partitions; it asks the brokers, and
                raises an error if there is no such topic.
        """

    def serialize_all(
        self, elements: Sequence[Any], timestamps: Sequence[int] | None
    ) -> Iterable[KafkaProducerRecord | None]:
        """Makes the records of Kafka of a batch."""
        stamps: Iterable[int | None] = [None] * len(elements) if timestamps is None else timestamps
        for element, timestamp in zip(elements, stamps, strict=True):
            yield self.serialize(element, None if timestamp is None or timestamp < 0 else timestamp)

    def serialize_columns(self, batch: pa.RecordBatch) -> Iterable[KafkaProducerRecord | None]:
        """Makes the records of Kafka of a batch of columns; called only if ``takes_columns`` is True."""
        raise NotImplementedError

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Returns a builder, which needs a topic or topic selector, and a schema for values."""
        return KafkaRecordSerializationSchemaBuilder()


class KafkaRecordSerializationSchemaBuilder:
    """Builds a ``KafkaRecordSerializationSchema``. A topic or selector and a schema for values are needed.

    Examples:
        ```python
        from firesteel.common import SimpleStringSchema
        from firesteel.datastream.connectors.kafka import KafkaRecordSerializationSchema

        builder = KafkaRecordSerializationSchema.builder().set_topic("words")
        builder.set_key_serialization_schema(SimpleStringSchema())
        schema = builder.set_value_serialization_schema(SimpleStringSchema()).build()
        ```
    """

    def __init__(self) -> None:
        self._topic: str | KafkaTopicSelector | Callable[[Any], str] | None = None
        self._key: SerializationSchema | None = None
        self._value: SerializationSchema | None = None
        self._headers: Callable[[Any], Headers] | None = None
        self._partitioner: Partitioner | None = None

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Set the topic that all records go to.

        Raises:
            TypeError: the topic is no text, or is empty.
        """
        if not isinstance(topic, str) or not topic:
            raise TypeError(f"set_topic() takes the name of a topic, not {topic!r}")
        self._topic = topic
        return self

    def set_topic_selector(
        self, topic_selector: KafkaTopicSelector | Callable[[Any], str]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set a selector or function that gives the topic of each record.

        Raises:
            TypeError: the argument is neither.
        """
        if not isinstance(topic_selector, KafkaTopicSelector) and not callable(topic_selector):
            kind = type(topic_selector).__name__
            raise TypeError(f"set_topic_selector() takes a KafkaTopicSelector or a function, not {kind}")
        self._topic = topic_selector
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set the schema that makes keys of whole elements; without it records have no keys.

        Raises:
            TypeError: the argument is no ``SerializationSchema``.
        """
        self._key = _schema("set_key_serialization_schema", key_serialization_schema)
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set the schema that makes values.

        Raises:
            TypeError: the argument is no ``SerializationSchema``.
        """
        self._value = _schema("set_value_serialization_schema", value_serialization_schema)
        return self

    def set_header_provider(self, header_provider: Callable[[Any], Headers]) -> KafkaRecordSerializationSchemaBuilder:
        """Set a function that gives the headers of an element: pairs of name and bytes.

        Raises:
            TypeError: the argument is no function.
        """
        if not callable(header_provider):
            raise TypeError(f"set_header_provider() takes a function, not {type(header_provider).__name__}")
        self._headers = header_provider
        return self

    def set_partitioner(self, partitioner: Partitioner) -> KafkaRecordSerializationSchemaBuilder:
        """Set a function of element, key, value, topic and the topic's partitions that chooses one of these.

        Without it records go to the partition of their key, the same that Java's client chooses; records without a key
        go to any partition.

        Raises:
            TypeError: the argument is no function.
        """
        if not callable(partitioner):
            raise TypeError(f"set_partitioner() takes a function, not {type(partitioner).__name__}")
        self._partitioner = partitioner
        return self

    def build(self) -> KafkaRecordSerializationSchema:
        """Check the settings and make the schema.

        Raises:
            ProgramError: topic or value schema is missing.
        """
        if self._topic is None:
            raise ProgramError("Kafka sink: say where records go with set_topic() or set_topic_selector()")
        if self._value is None:
            raise ProgramError("Kafka sink: say what values are with set_value_serialization_schema()")
        return _OfParts(self._topic, self._key, self._value, self._headers, self._partitioner)


class _OfParts(KafkaRecordSerializationSchema):
    """The schema that the builder makes. Job graphs that high availability keeps know it by this name."""

    def __init__(
        self,
        topic: str | KafkaTopicSelector | Callable[[Any], str],
        key: SerializationSchema | None,
        value: SerializationSchema,
        headers: Callable[[Any], Headers] | None,
        partitioner: Partitioner | None,
    ) -> None:
        self._topic, self._key, self._value = topic, key, value
        self._headers, self._partitioner = headers, partitioner
        self._partitions_for: Callable[[str], Sequence[int]] | None = None

    def open(self, partitions_for: Callable[[str], Sequence[int]]) -> None:
        self._partitions_for = partitions_for

    def serialize(self, element: Any, timestamp: int | None) -> KafkaProducerRecord:
        topic = self._topic
        if not isinstance(topic, str):
            topic = topic.apply(element) if isinstance(topic, KafkaTopicSelector) else topic(element)
            if not isinstance(topic, str) or not topic:
                raise TypeError(f"the topic selector of a Kafka sink gave {topic!r}, which is no name of a topic")
        key = None if self._key is None else self._key.serialize(element)
        value = self._value.serialize(element)
        headers = () if self._headers is None else self._headers(element)
        partition = None
        if self._partitioner is not None:
            assert self._partitions_for is not None, "open() comes first"
            partitions = self._partitions_for(topic)
            partition = self._partitioner(element, key, value, topic, partitions)
            if partition not in partitions:
                raise ProgramError(
                    f"Kafka sink: partitioner gave {partition!r}, and topic {topic} has {len(partitions)} partitions"
                )
        return KafkaProducerRecord(topic, value, key, partition, timestamp, headers)

    def serialize_all(
        self, elements: Sequence[Any], timestamps: Sequence[int] | None
    ) -> Iterable[KafkaProducerRecord | None]:
        # Without functions of the user beside the schemas, one list comprehension makes all records.
        topic = self._topic
        if not isinstance(topic, str) or self._headers is not None or self._partitioner is not None:
            return super().serialize_all(elements, timestamps)
        value = self._value.serialize
        if timestamps is None and self._key is None:
            return [KafkaProducerRecord(topic, value(element)) for element in elements]
        stamps: Iterable[int | None] = (
            repeat(None) if timestamps is None else (None if stamp < 0 else stamp for stamp in timestamps)
        )
        key = _no_key if self._key is None else self._key.serialize
        pairs = zip(elements, stamps, strict=False)
        return [KafkaProducerRecord(topic, value(element), key(element), None, stamp) for element, stamp in pairs]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_partitions_for": None}


def _no_key(element: Any) -> None:
    return None


def _schema(method: str, schema: SerializationSchema) -> SerializationSchema:
    if not isinstance(schema, SerializationSchema):
        raise TypeError(f"{method}() takes a SerializationSchema, not {type(schema).__name__}")
    return schema
