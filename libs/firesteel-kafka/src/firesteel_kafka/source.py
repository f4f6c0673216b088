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
from firesteel_kafka.deserialization import KafkaRecordDeserializationSchema, ValueOnly
from firesteel_kafka.enumerator import ClusterSession, Discovery, KafkaEnumerator
from firesteel_kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from firesteel_kafka.partitions import KafkaTopicPartition, Subscription
from firesteel_kafka.properties import (
    canonical,
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
SERVERS: Final = "bootstrap.servers"
CLIENT_ID: Final = "client.id"
CLIENT_ID_PREFIX: Final = "client.id.prefix"
_OURS: Final = {
    DISCOVERY: "300000",
    COMMITS: "true",
    CLIENT_ID_PREFIX: "",
    "enable.auto.commit": "false",
    "max.poll.records": "0",
}
"""Properties that are no business of the client -> default."""
_RESETS: Final = {
    "earliest": KafkaOffsetResetStrategy.EARLIEST,
    "smallest": KafkaOffsetResetStrategy.EARLIEST,
    "latest": KafkaOffsetResetStrategy.LATEST,
    "largest": KafkaOffsetResetStrategy.LATEST,
    "none": KafkaOffsetResetStrategy.NONE,
    "error": KafkaOffsetResetStrategy.NONE,
}


@dataclass(frozen=True)
class KafkaSourceSettings:
    """All that a ``KafkaSource`` is made of; see its builder."""

    subscription: Subscription
    starting: KafkaOffsetsInitializer
    stopping: KafkaOffsetsInitializer | None
    bounded: bool
    schema: KafkaRecordDeserializationSchema
    malformed: MalformedPolicy
    properties: Mapping[str, str]
    """Of the client."""
    client_id_prefix: str
    discovery_ms: int
    commits: bool
    reset: KafkaOffsetResetStrategy
    most_records: int = 0
    """In a batch; 0 = as the runtime says."""

    def __repr__(self) -> str:
        return f"KafkaSourceSettings({self.subscription}, {shown(self.properties)})"

    @property
    def servers(self) -> str:
        """Where the brokers are."""
        return self.properties[SERVERS]

    def arguments(self, name: str) -> Callable[[], Mapping[str, Any]]:
        """What makes the client's arguments, in a slot.

        Args:
            name: of the client, behind the prefix.
        """
        properties = dict(self.properties)
        if self.client_id_prefix:
            properties[CLIENT_ID] = f"{self.client_id_prefix}-{name}"
        return lambda: consumer_arguments(properties)


class KafkaSource(Source[Any]):
    """Reads partitions of Kafka's topics. Made by ``KafkaSource.builder()``.

    Offsets are part of checkpoints: a restart goes on behind the records of the last one, whatever the group has
    committed. The timestamps of records are those of Kafka.

    Args:
        settings: of the builder.
    """

    def __init__(self, settings: KafkaSourceSettings) -> None:
        self._settings = settings

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """A builder without settings."""
        return KafkaSourceBuilder()

    @property
    def boundedness(self) -> Boundedness:
        """As the builder was told."""
        return Boundedness.BOUNDED if self._settings.bounded else Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, context: SplitEnumeratorContext) -> SplitEnumerator:
        """Finds partitions. It runs in a slot, where the credentials of the program may be."""
        return KafkaEnumerator(context, self._discovery())

    def restore_enumerator(self, context: SplitEnumeratorContext, checkpoint: Any) -> SplitEnumerator:
        """Goes on from a checkpoint."""
        return KafkaEnumerator(context, self._discovery(), checkpoint)

    def _discovery(self) -> Discovery:
        settings = self._settings
        make = settings.arguments("enumerator")

        def connect() -> AbstractContextManager[ClusterSession]:
            from firesteel_kafka.consumer import KafkaSession

            return KafkaSession(make)

        return Discovery(
            settings.subscription, settings.starting, settings.stopping, settings.bounded, settings.discovery_ms,
            connect, settings.servers,
        )  # fmt: skip

    def create_reader(self, context: ReaderContext) -> AsyncSourceReader[Any]:
        """Reads the partitions of a subtask."""
        from firesteel_kafka.consumer import AioConsumer
        from firesteel_kafka.reader import KafkaReader, ReaderPlan

        settings = self._settings
        plan = ReaderPlan(
            settings.subscription, settings.schema, settings.malformed, settings.reset, settings.commits,
            settings.servers, settings.most_records,
        )  # fmt: skip
        make = settings.arguments(str(context.subtask_index))
        return KafkaReader(context, plan, lambda: AioConsumer(make()))

    def produced_type(self) -> TypeInformation | None:
        """What the schema gives; any object where malformed records are among them."""
        return None if self._settings.malformed is MalformedPolicy.EMIT else self._settings.schema.get_produced_type()

    @property
    def makes_columns(self) -> bool:
        """Whether the schema makes columns."""
        schema = self._settings.schema
        columns = isinstance(schema, ValueOnly) and schema.schema.gives_columns
        return columns and self._settings.malformed is not MalformedPolicy.EMIT


class KafkaSourceBuilder:
    """Builds a ``KafkaSource``: where, what, and how records are made are needed; see ``build``."""

    def __init__(self) -> None:
        self._subscription: Subscription | None = None
        self._starting = KafkaOffsetsInitializer.earliest()
        self._stopping: KafkaOffsetsInitializer | None = None
        self._bounded = False
        self._schema: KafkaRecordDeserializationSchema | None = None
        self._malformed = MalformedPolicy.FAIL
        self._properties: dict[str, str] = {}

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Brokers to begin with: ``host:port``, several with commas between them."""
        return self.set_property(SERVERS, bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """The group that offsets are committed for. The source does not join it: who else is in it is of no account."""
        return self.set_property(GROUP, group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Read these topics. They have to be there when the job starts."""
        for topic in topics:
            if not isinstance(topic, str) or not topic:
                raise TypeError(f"set_topics() takes names, not {topic!r}")
        if not topics:
            raise ProgramError("set_topics() takes at least one topic")
        return self._subscribe(Subscription(topics=tuple(dict.fromkeys(topics))))

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Read all topics whose whole names match a regular expression, also those that come later.

        Raises:
            ProgramError: it is none.
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
        """Where partitions begin; by default at their first records, as those that come later do anyhow."""
        self._starting = _initializer(starting_offsets_initializer)
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """End each partition at an offset, and keep the source running."""
        self._stopping, self._bounded = _initializer(stopping_offsets_initializer), False
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """End each partition at an offset, and the source with them. Nobody looks for new partitions."""
        self._stopping, self._bounded = _initializer(stopping_offsets_initializer), True
        return self

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema) -> KafkaSourceBuilder:
        """Make records of values; keys, headers and tombstones are left out."""
        return self.set_deserializer(KafkaRecordDeserializationSchema.value_only(deserialization_schema))

    def set_deserializer(self, record_deserializer: KafkaRecordDeserializationSchema) -> KafkaSourceBuilder:
        """Make records of whole records of Kafka."""
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
        """Clients are called so, with a hyphen and the number of their subtask."""
        return self.set_property(CLIENT_ID_PREFIX, prefix)

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """A property of the consumer, by Kafka's name, or of the source (docs/kafka.md)."""
        if not isinstance(key, str) or not key:
            raise TypeError(f"set_property() takes the name of a property, not {key!r}")
        self._properties[key] = _text(value)
        return self

    def set_properties(self, props: Mapping[str, str]) -> KafkaSourceBuilder:
        """Several properties."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def build(self) -> KafkaSource:
        """The source.

        Raises:
            ProgramError: something is missing, or contradicts itself, or a property is not known or not valid.
        """
        return KafkaSource(self.settings())

    def settings(self) -> KafkaSourceSettings:
        """What was set, checked.

        Raises:
            ProgramError: as ``build``.
        """
        properties = canonical(self._properties)
        if not properties.get(SERVERS):
            raise ProgramError("Kafka source: give the brokers with set_bootstrap_servers()")
        if self._subscription is None:
            raise ProgramError("Kafka source: say what is read: set_topics(), set_topic_pattern() or set_partitions()")
        if self._schema is None:
            raise ProgramError("Kafka source: say how records are made with set_value_only_deserializer()")
        group = properties.get(GROUP, "")
        if not group and (self._starting.needs_group or (self._stopping is not None and self._stopping.needs_group)):
            raise ProgramError("Kafka source: committed offsets are those of a group; name it with set_group_id()")
        own = {key: properties.get(key, default) for key, default in _OURS.items()}
        if flag("enable.auto.commit", own["enable.auto.commit"]):
            raise ProgramError(
                "Kafka source: enable.auto.commit would commit records that are not processed; leave it out: offsets "
                f"are committed when checkpoints are complete ({COMMITS})"
            )
        client = {key: value for key, value in properties.items() if key not in _OURS and key != RESET}
        client.setdefault(ISOLATION, "read_committed")
        client = effective_consumer_properties(client)
        return KafkaSourceSettings(
            self._subscription,
            self._starting,
            self._stopping,
            self._bounded,
            self._schema,
            self._malformed,
            client,
            own[CLIENT_ID_PREFIX] or group,
            0 if self._bounded else max(0, number(DISCOVERY, own[DISCOVERY])),
            bool(group) and flag(COMMITS, own[COMMITS]),
            self._reset(properties.get(RESET)),
            max(0, number("max.poll.records", own["max.poll.records"])),
        )

    def _reset(self, given: str | None) -> KafkaOffsetResetStrategy:
        if given is None:
            return self._starting.reset
        if given not in _RESETS:
            raise ProgramError(f"{RESET} is earliest, latest or none, not {given!r}")
        return _RESETS[given]


def _initializer(initializer: KafkaOffsetsInitializer) -> KafkaOffsetsInitializer:
    if not isinstance(initializer, KafkaOffsetsInitializer):
        raise TypeError(f"offsets are a KafkaOffsetsInitializer, not {initializer!r}")
    return initializer


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
