"""Settings of a Kafka sink, which its writers and committers share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from firesteel.connectors.delivery import DeliveryGuarantee
from firesteel_kafka.properties import shown
from firesteel_kafka.serialization import KafkaRecordSerializationSchema

__all__ = ["TIMEOUT", "KafkaSinkSettings"]

TIMEOUT: Final = "transaction.timeout.ms"


@dataclass(frozen=True)
class KafkaSinkSettings:
    """What a ``KafkaSink`` is built with, checked.

    Attributes:
        guarantee: how often a record is delivered when the job restarts.
        schema: makes records of Kafka.
        properties: properties of producers, by the names of Java's client.
        prefix: beginning of transactional ids; empty unless the guarantee is exactly once.
        delivery_ms: time after which a batch that is not acknowledged is an error.
        linger_ms: time for which a batch that is not full waits for more records.
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
