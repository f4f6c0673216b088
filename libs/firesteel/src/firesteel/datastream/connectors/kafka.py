"""Topics of Apache Kafka; needs the extra ``kafka`` of firesteel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.connectors.delivery import DeliveryGuarantee
from firesteel.core.pyflink_names import reexports

if TYPE_CHECKING:  # types of a plug-in that need not be installed: ``reexports`` imports a name when it is asked for
    from firesteel_kafka.deserialization import ConsumerRecord, ConsumerRecords, KafkaRecordDeserializationSchema
    from firesteel_kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
    from firesteel_kafka.older import FlinkKafkaConsumer, FlinkKafkaProducer, Semantic
    from firesteel_kafka.partitions import KafkaTopicPartition
    from firesteel_kafka.serialization import (
        KafkaProducerRecord,
        KafkaRecordSerializationSchema,
        KafkaRecordSerializationSchemaBuilder,
        KafkaTopicSelector,
    )
    from firesteel_kafka.sink import KafkaSink, KafkaSinkBuilder
    from firesteel_kafka.source import KafkaSource, KafkaSourceBuilder

__all__ = [
    "ConsumerRecord",
    "ConsumerRecords",
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
    __getattr__ = reexports(__name__)
