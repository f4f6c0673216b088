"""PyFlink 1.x's names for Kafka, as thin layers over ``KafkaSource`` and ``KafkaSink``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from firesteel.common.serialization import DeserializationSchema, SerializationSchema
from firesteel.common.typeinfo import TypeInformation
from firesteel.connectors.delivery import DeliveryGuarantee
from firesteel.core.errors import ProgramError
from firesteel_kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from firesteel_kafka.serialization import KafkaRecordSerializationSchema
from firesteel_kafka.sink import KafkaSink, KafkaSinkBuilder
from firesteel_kafka.source import COMMITS, GROUP, RESET, KafkaSource, KafkaSourceBuilder

_AUTO_COMMIT = "enable.auto.commit"


class FlinkKafkaConsumer(KafkaSource):
    """The source of PyFlink 1.x; ``env.add_source(FlinkKafkaConsumer(...))``.

    By default partitions begin at the committed offsets of the group. Partitions without a committed offset, and all
    partitions if there is no group, begin where ``auto.offset.reset`` says; Kafka's default is their end.

    Args:
        topics: name of the topic, or of several topics.
        deserialization_schema: makes records of the stream of values.
        properties: of Kafka's consumer; ``bootstrap.servers`` is needed. ``enable.auto.commit`` has no effect: offsets
            are committed when checkpoints are complete.

    Raises:
        ProgramError: a property is missing, not known or not valid.

    Examples:
        ```python
        from firesteel.common import SimpleStringSchema
        from firesteel.datastream.connectors.kafka import FlinkKafkaConsumer

        properties = {"bootstrap.servers": "localhost:9092", "group.id": "shop"}
        source = FlinkKafkaConsumer("orders", SimpleStringSchema(), properties)  # env.add_source(source)
        source.set_start_from_earliest()
        ```
    """

    def __init__(
        self, topics: str | Sequence[str], deserialization_schema: DeserializationSchema, properties: Mapping[str, str]
    ) -> None:
        source_properties = {key: value for key, value in properties.items() if key != _AUTO_COMMIT}
        self._produced_type = deserialization_schema.get_produced_type()
        self._has_group = bool(source_properties.get(GROUP))
        reset = str(source_properties.get(RESET, "latest"))
        try:
            self._reset = KafkaOffsetResetStrategy(reset)
        except ValueError:
            raise ProgramError(f"{RESET} is earliest, latest or none, not {reset!r}") from None
        self._builder = (
            KafkaSourceBuilder()
            .set_topics(*([topics] if isinstance(topics, str) else topics))
            .set_value_only_deserializer(deserialization_schema)
            .set_properties(source_properties)
        )
        self.set_start_from_group_offsets()

    def set_start_from_earliest(self) -> FlinkKafkaConsumer:
        """Begin at the first records of partitions."""
        return self._start_from(KafkaOffsetsInitializer.earliest())

    def set_start_from_latest(self) -> FlinkKafkaConsumer:
        """Begin behind the last records of partitions."""
        return self._start_from(KafkaOffsetsInitializer.latest())

    def set_start_from_timestamp(self, startup_offsets_timestamp: int) -> FlinkKafkaConsumer:
        """Begin at the first records that are not older than this time, in milliseconds since 1970."""
        return self._start_from(KafkaOffsetsInitializer.timestamp(startup_offsets_timestamp))

    def set_start_from_group_offsets(self) -> FlinkKafkaConsumer:
        """Begin at the committed offsets of the group; the default."""
        if self._has_group:
            return self._start_from(KafkaOffsetsInitializer.committed_offsets(self._reset))
        earliest = self._reset is KafkaOffsetResetStrategy.EARLIEST
        return self.set_start_from_earliest() if earliest else self.set_start_from_latest()

    def set_commit_offsets_on_checkpoints(self, commit_on_checkpoints: bool) -> FlinkKafkaConsumer:
        """Say whether offsets are committed for the group when checkpoints are complete; the default is yes."""
        self._builder.set_property(COMMITS, "true" if commit_on_checkpoints else "false")
        return self._changed()

    def get_produced_type(self) -> TypeInformation | None:
        """Returns the type of the records."""
        return self._produced_type

    def _start_from(self, offsets: KafkaOffsetsInitializer) -> FlinkKafkaConsumer:
        self._builder.set_starting_offsets(offsets)
        return self._changed()

    def _changed(self) -> FlinkKafkaConsumer:
        super().__init__(self._builder.settings())
        return self


class Semantic(Enum):
    """How often ``FlinkKafkaProducer`` delivers a record when the job is restarted.

    Examples:
        ```python
        from firesteel.common import SimpleStringSchema
        from firesteel.datastream.connectors.kafka import FlinkKafkaProducer, Semantic

        properties = {"bootstrap.servers": "localhost:9092"}
        sink = FlinkKafkaProducer("totals", SimpleStringSchema(), properties, semantic=Semantic.EXACTLY_ONCE)
        sink.set_transactional_id_prefix("totals")
        ```
    """

    EXACTLY_ONCE = "EXACTLY_ONCE"
    AT_LEAST_ONCE = "AT_LEAST_ONCE"
    NONE = "NONE"


class FlinkKafkaProducer(KafkaSink):
    """The sink of PyFlink 1.x; ``stream.add_sink(FlinkKafkaProducer(...))``.

    Args:
        topic: name of the topic to write to.
        serialization_schema: makes the values; records have no keys.
        producer_config: properties of Kafka's producer; ``bootstrap.servers`` is needed.
        kafka_producer_pool_size: has no effect: transactions are not taken from a pool.
        semantic: how often a record is delivered. EXACTLY_ONCE needs ``set_transactional_id_prefix``: two sinks with
            the same prefix would end each other's transactions.

    Raises:
        ProgramError: a property is missing, not known or not valid.

    Examples:
        ```python
        from firesteel.common import SimpleStringSchema
        from firesteel.datastream.connectors.kafka import FlinkKafkaProducer

        properties = {"bootstrap.servers": "localhost:9092"}
        sink = FlinkKafkaProducer("totals", SimpleStringSchema(), properties)  # stream.add_sink(sink)
        ```
    """

    def __init__(
        self,
        topic: str,
        serialization_schema: SerializationSchema,
        producer_config: Mapping[str, str],
        kafka_producer_pool_size: int = 5,
        semantic: Semantic = Semantic.AT_LEAST_ONCE,
    ) -> None:
        if not isinstance(semantic, Semantic):
            raise TypeError(f"semantic is a Semantic, not {semantic!r}")
        records = KafkaRecordSerializationSchema.builder().set_topic(topic)
        records.set_value_serialization_schema(serialization_schema)
        self._builder = (
            KafkaSinkBuilder()
            .set_record_serializer(records.build())
            .set_delivery_guarantee(DeliveryGuarantee[semantic.value])
        )
        for key, value in producer_config.items():
            self._builder.set_property(key, value)
        self._is_complete = semantic is not Semantic.EXACTLY_ONCE
        if self._is_complete:
            super().__init__(self._builder.settings())

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> FlinkKafkaProducer:
        """Set how transactional ids begin; no two sinks that write to the same brokers may share a prefix."""
        self._builder.set_transactional_id_prefix(transactional_id_prefix)
        self._is_complete = True
        super().__init__(self._builder.settings())
        return self

    def set_log_failures_only(self, log_failures_only: bool) -> None:
        """Refuses True, which would lose records that Kafka did not take."""
        if log_failures_only:
            raise ProgramError("FlinkKafkaProducer: set_log_failures_only(True) would lose records; it is not possible")

    def set_flush_on_checkpoint(self, flush_on_checkpoint: bool) -> None:
        """Accepted, no effect: a complete checkpoint has all records before it in Kafka anyway."""

    def set_write_timestamp_to_kafka(self, write_timestamp_to_kafka: bool) -> None:
        """Accepted, no effect: records that have a timestamp are written with it."""

    def ignore_failures_after_transaction_timeout(self) -> FlinkKafkaProducer:
        """Accepted, no effect: docs/kafka.md says how long a job may be away."""
        return self

    def check(self) -> None:
        """Check that aiokafka is installed, and that a prefix is set if the semantic is exactly once.

        Raises:
            ProgramError: the package or the prefix is missing.
        """
        if not self._is_complete:
            raise ProgramError(
                "FlinkKafkaProducer: EXACTLY_ONCE needs set_transactional_id_prefix(), a different one for each sink "
                "that writes to these brokers"
            )
        super().check()

    def describe(self) -> dict[str, Any]:
        """Guarantee, prefix and properties, for plans; secrets are masked."""
        return super().describe() if self._is_complete else {}
