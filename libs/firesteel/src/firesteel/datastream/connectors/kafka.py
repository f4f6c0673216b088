"""Topics of Apache Kafka; needs the extra ``kafka`` of firesteel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.connectors.delivery import DeliveryGuarantee
from firesteel.connectors.kafka.deserialization import ConsumerRecord, KafkaRecordDeserializationSchema
from firesteel.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from firesteel.connectors.kafka.older import FlinkKafkaConsumer, FlinkKafkaProducer, Semantic
from firesteel.connectors.kafka.partitions import KafkaTopicPartition
from firesteel.connectors.kafka.serialization import (
    KafkaProducerRecord,
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaTopicSelector,
)
from firesteel.connectors.kafka.sink import KafkaSink, KafkaSinkBuilder
from firesteel.connectors.kafka.source import KafkaSource, KafkaSourceBuilder
from firesteel.core.pyflink_names import missing_names

__all__ = [
    "ConsumerRecord",
    "DeliveryGuarantee",
    "FlinkKafkaConsumer",
    "FlinkKafkaProducer",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaProducerRecord",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
    "Semantic",
]

if not TYPE_CHECKING:
    __getattr__ = missing_names(__name__)
