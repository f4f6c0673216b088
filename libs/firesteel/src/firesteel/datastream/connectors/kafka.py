"""Topics of Apache Kafka; needs the extra ``kafka`` of firesteel."""

from __future__ import annotations

from firesteel.connectors.delivery import DeliveryGuarantee
from firesteel.connectors.kafka.serialization import (
    KafkaProducerRecord,
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaTopicSelector,
)
from firesteel.connectors.kafka.sink import KafkaSink, KafkaSinkBuilder

__all__ = [
    "DeliveryGuarantee",
    "KafkaProducerRecord",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaTopicSelector",
]
