"""Topics of Apache Kafka; needs the extra ``kafka`` of firesteel."""

from __future__ import annotations

from firesteel.connectors.kafka.deserialization import ConsumerRecord, KafkaRecordDeserializationSchema
from firesteel.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from firesteel.connectors.kafka.partitions import KafkaTopicPartition
from firesteel.connectors.kafka.source import KafkaSource, KafkaSourceBuilder

__all__ = [
    "ConsumerRecord",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecordDeserializationSchema",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
]
