"""What a Kafka sink was built with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from firesteel.connectors.delivery import DeliveryGuarantee
from firesteel_kafka.properties import shown
from firesteel_kafka.serialization import KafkaRecordSerializationSchema

__all__ = ["SERVERS", "TIMEOUT", "KafkaSinkSettings"]

SERVERS: Final = "bootstrap.servers"
TIMEOUT: Final = "transaction.timeout.ms"


@dataclass(frozen=True)
class KafkaSinkSettings:
    """What a sink was built with.

    Attributes:
        guarantee: how often a record is delivered.
        schema: makes the records.
        properties: of the producer, by Java's names.
        prefix: of transactional ids.
        delivery_ms: after which what is not acknowledged is an error.
        linger_ms: how long a batch that is not full waits for more.
        memory: bytes that may wait to be acknowledged.
    """

    guarantee: DeliveryGuarantee
    schema: KafkaRecordSerializationSchema
    properties: Mapping[str, str]
    prefix: str
    delivery_ms: int
    linger_ms: int
    memory: int

    def __repr__(self) -> str:
        return f"KafkaSinkSettings({self.guarantee.name}, {shown(self.properties)})"
