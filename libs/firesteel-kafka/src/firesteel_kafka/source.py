"""Kafka's topics as a source."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from firesteel.common.serialization import DeserializationSchema
from firesteel.common.typeinfo import TypeInformation
from firesteel.connectors.malformed import MalformedPolicy
from firesteel.core.errors import ProgramError
from firesteel.functions.source import AsyncSourceReader, Boundedness, ReaderContext, Source
from firesteel.functions.split_enumerator import SplitEnumerator, SplitEnumeratorContext
from firesteel_kafka.deserialization import KafkaRecordDeserializationSchema
from firesteel_kafka.enumerator import ClusterSession, Discovery, KafkaEnumerator
from firesteel_kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from firesteel_kafka.partitions import KafkaTopicPartition, Subscription
from firesteel_kafka.properties import (
    SERVERS,
    client_properties,
    consumer_arguments,
    effective_consumer_properties,
    flag,
    number,
    shown,
)

__all__ = ["KafkaSource", "KafkaSourceBuilder"]

DISCOVERY: Final = "partition.discovery.interval.ms"
COMMITS: Final = "commit.offsets.on.checkpoint"
RESET: Final = "auto.offset.reset"
ISOLATION: Final = "isolation.level"
GROUP: Final = "group.id"
CLIENT_ID: Final = "client.id"
CLIENT_ID_PREFIX: Final = "client.id.prefix"
_OWN_PROPERTIES: Final = {
    DISCOVERY: "300000",
    COMMITS: "true",
    CLIENT_ID_PREFIX: "",
    "enable.auto.commit": "false",
    "max.poll.records": "0",
}
"""Property that the source itself obeys, and does not pass to its clients -> default."""
_RESETS: Final = {
    "earliest": KafkaOffsetResetStrategy.EARLIEST,
    "smallest": KafkaOffsetResetStrategy.EARLIEST,
    "latest": KafkaOffsetResetStrategy.LATEST,
    "largest": KafkaOffsetResetStrategy.LATEST,
    "none": KafkaOffsetResetStrategy.NONE,
    "error": KafkaOffsetResetStrategy.NONE,
}
"""Value of ``auto.offset.reset`` in Java's client or in librdkafka -> strategy."""


@dataclass(frozen=True)
class KafkaSourceSettings:
    """What a ``KafkaSource`` is built with, checked.

    Attributes:
        subscription: partitions to read.
        starting: offsets at which partitions begin.
        stopping: offsets at which partitions end; None = they have no end.
        bounded: the source ends when its partitions have.
        schema: makes records of the stream.
        malformed: what becomes of records that the schema raises about.
        properties: properties of the clients, by the names of Java's client.
        client_id_prefix: beginning of the ids of clients; empty = aiokafka's default.
        discovery_ms: pause between two looks for new partitions; 0 = one look.
        commits: offsets are committed for the group when checkpoints complete.
        reset: where a partition goes on if its next offset does not exist.
        most_records: records in a batch at most; 0 = as the runtime says.
    """

    subscription: Subscription
    starting: KafkaOffsetsInitializer
    stopping: KafkaOffsetsInitializer | None
    bounded: bool
    schema: KafkaRecordDeserializationSchema
    malformed: MalformedPolicy
    properties: Mapping[str, str]
    client_id_prefix: str
    discovery_ms: int
    commits: bool
    reset: KafkaOffsetResetStrategy
    most_records: int = 0

    def __repr__(self) -> str:
        return f"KafkaSourceSettings({self.subscription}, {shown(self.properties)})"

    @property
    def servers(self) -> str:
        """Addresses of brokers, as the user gave them."""
        return self.properties[SERVERS]

    def arguments(self, name: str) -> Callable[[], Mapping[str, Any]]:
        """A function that makes a client's arguments; it is called in a slot, where certificates can be read.

        Args:
            name: end of the client's id, behind the prefix.
        """
        properties = dict(self.properties)
        if self.client_id_prefix:
            properties[CLIENT_ID] = f"{self.client_id_prefix}-{name}"
        return lambda: consumer_arguments(properties)


class KafkaSource(Source[Any]):
    """Reads partitions of Kafka's topics. Made by ``KafkaSource.builder()``.

    Offsets are part of checkpoints: a restart goes on behind the records of the last checkpoint, whatever the group has
    committed. Records have the timestamps that Kafka gives them.

    Args:
        settings: made by the builder.

    Examples:
        ```python
        from firesteel.common import SimpleStringSchema, WatermarkStrategy
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource

        source = (
            KafkaSource.builder()
            .set_bootstrap_servers("localhost:9092")
            .set_topics("orders")
            .set_group_id("shop")
            .set_starting_offsets(KafkaOffsetsInitializer.earliest())
            .set_value_only_deserializer(SimpleStringSchema())
            .build()
        )
        env = StreamExecutionEnvironment.get_execution_environment()
        orders = env.from_source(source, WatermarkStrategy.no_watermarks(), "orders")
        ```
    """

    def __init__(self, settings: KafkaSourceSettings) -> None:
        self._settings = settings

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """A builder without settings."""
        return KafkaSourceBuilder()

    @property
    def boundedness(self) -> Boundedness:
        """Bounded if ``set_bounded()`` was called, else unbounded."""
        return Boundedness.BOUNDED if self._settings.bounded else Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, context: SplitEnumeratorContext) -> SplitEnumerator:
        """Make the enumerator that finds partitions. It runs in a slot, where the program's credentials may be."""
        return KafkaEnumerator(context, self._discovery())

    def restore_enumerator(self, context: SplitEnumeratorContext, checkpoint: Any) -> SplitEnumerator:
        """Make the enumerator, with the partitions that the checkpoint knows."""
        return KafkaEnumerator(context, self._discovery(), checkpoint)

    def _discovery(self) -> Discovery:
        settings = self._settings
        arguments = settings.arguments("enumerator")

        def connect() -> AbstractContextManager[ClusterSession]:
            from firesteel_kafka.consumer import KafkaSession

            return KafkaSession(arguments)

        return Discovery(
            settings.subscription, settings.starting, settings.stopping, settings.bounded, settings.discovery_ms,
            connect, settings.servers,
        )  # fmt: skip

    def create_reader(self, context: ReaderContext) -> AsyncSourceReader[Any]:
        """Make the reader of the partitions of one subtask."""
        from firesteel_kafka.consumer import AioConsumer
        from firesteel_kafka.reader import KafkaReader, ReaderPlan

        settings = self._settings
        plan = ReaderPlan(
            settings.subscription, settings.schema, settings.malformed, settings.reset, settings.commits,
            settings.servers, settings.most_records,
        )  # fmt: skip
        arguments = settings.arguments(str(context.subtask_index))
        return KafkaReader(context, plan, lambda: AioConsumer(arguments()))

    def produced_type(self) -> TypeInformation | None:
        """Type of the schema's values; None (any object) if malformed records are emitted among them."""
        return None if self._settings.malformed is MalformedPolicy.EMIT else self._settings.schema.get_produced_type()

    @property
    def makes_columns(self) -> bool:
        """Whether readers emit record batches."""
        return self._settings.schema.gives_columns and self._settings.malformed is not MalformedPolicy.EMIT


class KafkaSourceBuilder:
    """Builds a ``KafkaSource``. Brokers, a subscription and a deserializer are needed; see ``build``.

    Examples:
        ```python
        from firesteel.common import SimpleStringSchema
        from firesteel.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource

        builder = KafkaSource.builder().set_bootstrap_servers("localhost:9092").set_topic_pattern("orders-.*")
        builder.set_value_only_deserializer(SimpleStringSchema())
        source = builder.set_bounded(KafkaOffsetsInitializer.latest()).build()  # reads what is there, and ends
        print(source.boundedness.name)
        ```

        ```text
        BOUNDED
        ```
    """

    def __init__(self) -> None:
        self._subscription: Subscription | None = None
        self._starting = KafkaOffsetsInitializer.earliest()
        self._stopping: KafkaOffsetsInitializer | None = None
        self._bounded = False
        self._schema: KafkaRecordDeserializationSchema | None = None
        self._malformed = MalformedPolicy.FAIL
        self._properties: dict[str, str] = {}

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Set the brokers to begin with: ``host:port``, several with commas between them."""
        return self.set_property(SERVERS, bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """Set the group to commit offsets for. The source does not join the group, and shares no partition with it."""
        return self.set_property(GROUP, group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Read these topics. They have to exist when the job starts."""
        for topic in topics:
            if not isinstance(topic, str) or not topic:
                raise TypeError(f"set_topics() takes names, not {topic!r}")
        if not topics:
            raise ProgramError("set_topics() takes at least one topic")
        return self._subscribe(Subscription(topics=tuple(dict.fromkeys(topics))))

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Read all topics whose whole names match a regular expression, also topics that are created later.

        Raises:
            ProgramError: the pattern is no regular expression.
        """
        try:
            re.compile(topic_pattern)
        except re.error as error:
            raise ProgramError(f"set_topic_pattern({topic_pattern!r}): {error}") from error
        return self._subscribe(Subscription(pattern=topic_pattern))

    def set_partitions(self, partitions: Collection[KafkaTopicPartition]) -> KafkaSourceBuilder:
        """Read these partitions only."""
        for partition in partitions:
            if not isinstance(partition, KafkaTopicPartition):
                raise TypeError(f"set_partitions() takes KafkaTopicPartition objects, not {partition!r}")
        if not partitions:
            raise ProgramError("set_partitions() takes at least one partition")
        return self._subscribe(Subscription(partitions=tuple(sorted(set(partitions)))))

    def _subscribe(self, subscription: Subscription) -> KafkaSourceBuilder:
        if self._subscription is not None:
            raise ProgramError(
                f"Kafka source: it reads {self._subscription} already; give topics, a pattern or partitions, and once"
            )
        self._subscription = subscription
        return self

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Set where partitions begin; by default, and always if they appear later, at their first records."""
        self._starting = _initializer(starting_offsets_initializer)
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """End each partition at an offset, and keep the source running."""
        self._stopping, self._bounded = _initializer(stopping_offsets_initializer), False
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """End each partition at an offset, and the source with them. New partitions are not looked for."""
        self._stopping, self._bounded = _initializer(stopping_offsets_initializer), True
        return self

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema) -> KafkaSourceBuilder:
        """Set the schema that makes records of values; keys, headers and tombstones are left out."""
        return self.set_deserializer(KafkaRecordDeserializationSchema.value_only(deserialization_schema))

    def set_deserializer(self, record_deserializer: KafkaRecordDeserializationSchema) -> KafkaSourceBuilder:
        """Set the schema that makes records of whole Kafka records, with keys and headers."""
        if not isinstance(record_deserializer, KafkaRecordDeserializationSchema):
            raise TypeError(
                "set_deserializer() takes a KafkaRecordDeserializationSchema, not "
                f"{type(record_deserializer).__name__}; a DeserializationSchema goes to set_value_only_deserializer()"
            )
        self._schema = record_deserializer
        return self

    def on_malformed(self, policy: MalformedPolicy) -> KafkaSourceBuilder:
        """Say what becomes of records that the schema raises about; by default the job fails."""
        if not isinstance(policy, MalformedPolicy):
            raise TypeError(f"on_malformed() takes a MalformedPolicy, not {policy!r}")
        self._malformed = policy
        return self

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """Set how the ids of clients begin; a hyphen and the number of their subtask follow."""
        return self.set_property(CLIENT_ID_PREFIX, prefix)

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """Set a property of the consumer, by its name in Kafka, or of the source (docs/kafka.md)."""
        if not isinstance(key, str) or not key:
            raise TypeError(f"set_property() takes the name of a property, not {key!r}")
        self._properties[key] = _text(value)
        return self

    def set_properties(self, props: Mapping[str, str]) -> KafkaSourceBuilder:
        """Set several properties, as ``set_property`` does."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def build(self) -> KafkaSource:
        """Check the settings and make the source.

        Raises:
            ProgramError: something is missing, or contradicts itself, or a property is not known or not valid.
        """
        return KafkaSource(self.settings())

    def settings(self) -> KafkaSourceSettings:
        """Check what was set; ``build`` makes the source of it.

        Raises:
            ProgramError: as ``build``.
        """
        properties = client_properties(self._properties, "source")
        if self._subscription is None:
            raise ProgramError("Kafka source: say what is read: set_topics(), set_topic_pattern() or set_partitions()")
        if self._schema is None:
            raise ProgramError("Kafka source: say how records are made with set_value_only_deserializer()")
        group = properties.get(GROUP, "")
        if not group and (self._starting.needs_group or (self._stopping is not None and self._stopping.needs_group)):
            raise ProgramError("Kafka source: committed offsets are those of a group; name it with set_group_id()")
        own_values = {key: properties.get(key, default) for key, default in _OWN_PROPERTIES.items()}
        if flag("enable.auto.commit", own_values["enable.auto.commit"]):
            raise ProgramError(
                "Kafka source: enable.auto.commit would commit records that are not processed; leave it out: offsets "
                f"are committed when checkpoints are complete ({COMMITS})"
            )
        forwarded = {key: value for key, value in properties.items() if key not in _OWN_PROPERTIES and key != RESET}
        forwarded.setdefault(ISOLATION, "read_committed")
        forwarded = effective_consumer_properties(forwarded)
        return KafkaSourceSettings(
            self._subscription,
            self._starting,
            self._stopping,
            self._bounded,
            self._schema,
            self._malformed,
            forwarded,
            own_values[CLIENT_ID_PREFIX] or group,
            0 if self._bounded else max(0, number(DISCOVERY, own_values[DISCOVERY])),
            bool(group) and flag(COMMITS, own_values[COMMITS]),
            self._reset(properties.get(RESET)),
            max(0, number("max.poll.records", own_values["max.poll.records"])),
        )

    def _reset(self, value: str | None) -> KafkaOffsetResetStrategy:
        if value is None:
            return self._starting.reset
        if value not in _RESETS:
            raise ProgramError(f"{RESET} is earliest, latest or none, not {value!r}")
        return _RESETS[value]


def _initializer(initializer: KafkaOffsetsInitializer) -> KafkaOffsetsInitializer:
    if not isinstance(initializer, KafkaOffsetsInitializer):
        raise TypeError(f"offsets are a KafkaOffsetsInitializer, not {initializer!r}")
    return initializer


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
