"""A sink that writes records to topics of Kafka.

Exactly once, a transaction holds what a subtask writes between two barriers. At the barrier all of it is flushed, and
the transaction's name, producer and epoch go into the checkpoint; when the checkpoint is complete the transaction is
committed. Consumers with ``isolation.level=read_committed`` see its records from then on.
"""

from __future__ import annotations

from typing import Any, Final

from typing_extensions import override

from firesteel.connectors.delivery import DeliveryGuarantee
from firesteel.core.errors import ProgramError
from firesteel.functions.sink import WriterContext
from firesteel.functions.two_phase import Committer, TwoPhaseCommitSink, TwoPhaseWriter
from firesteel_kafka.properties import SERVERS, client_properties, effective_producer_properties, number, shown
from firesteel_kafka.serialization import KafkaRecordSerializationSchema
from firesteel_kafka.sink_settings import TIMEOUT, KafkaSinkSettings
from firesteel_kafka.transactional_ids import transaction_timeout

__all__ = ["KafkaSink", "KafkaSinkBuilder"]

_OWN_PROPERTIES: Final = {
    "delivery.timeout.ms": "120000",
    "linger.ms": "0",
    "buffer.memory": str(32 << 20),
}
"""Property that the sink itself obeys, and does not pass to its producers -> default."""
_PRODUCER_DEFAULTS: Final = {
    "batch.size": str(256 << 10),
    "request.timeout.ms": "30000",
    "max.request.size": str(1 << 20),
}


class KafkaSink(TwoPhaseCommitSink[Any]):
    """Writes records to topics. Made by ``KafkaSink.builder()``.

    Args:
        settings: made by the builder.

    Examples:
        ```python
        from firesteel.common import SimpleStringSchema
        from firesteel.datastream.connectors import DeliveryGuarantee
        from firesteel.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink

        record = KafkaRecordSerializationSchema.builder().set_topic("totals")
        sink = (
            KafkaSink.builder()
            .set_bootstrap_servers("localhost:9092")
            .set_record_serializer(record.set_value_serialization_schema(SimpleStringSchema()).build())
            .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .set_transactional_id_prefix("shop-totals")
            .build()
        )  # stream.sink_to(sink)
        ```
    """

    needs_all_states = True

    def __init__(self, settings: KafkaSinkSettings) -> None:
        self._settings = settings

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """A builder, which needs brokers and a record serializer."""
        return KafkaSinkBuilder()

    def create_writer(self, context: WriterContext) -> TwoPhaseWriter[Any]:
        """Make the writer of one subtask, with its own producers."""
        from firesteel_kafka.writer import KafkaWriter, TransactionalKafkaWriter

        if self._settings.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            return TransactionalKafkaWriter(self._settings, context)
        return KafkaWriter(self._settings, context)

    @override
    def create_committer(self, context: WriterContext) -> Committer:
        from firesteel_kafka.committer import KafkaCommitter

        return KafkaCommitter(self._settings, context)

    def check(self) -> None:
        """Check that aiokafka is installed.

        Raises:
            ProgramError: aiokafka is missing.
        """
        try:
            import aiokafka  # noqa: F401
        except ImportError as error:
            raise ProgramError("Kafka needs aiokafka: pip install 'firesteel[kafka]'") from error

    def describe(self) -> dict[str, Any]:
        """Guarantee, prefix and properties, for plans; secrets are masked."""
        settings = self._settings
        description: dict[str, Any] = {"guarantee": settings.guarantee.name, **shown(settings.properties)}
        return description | ({"transactionalIdPrefix": settings.prefix} if settings.prefix else {})


class KafkaSinkBuilder:
    """Builds a ``KafkaSink``. Brokers and a record serializer are needed; see ``build``.

    Examples:
        ```python
        from firesteel.common import SimpleStringSchema
        from firesteel.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink

        record = KafkaRecordSerializationSchema.builder().set_topic("totals")
        record.set_value_serialization_schema(SimpleStringSchema())
        builder = KafkaSink.builder().set_bootstrap_servers("localhost:9092").set_record_serializer(record.build())
        sink = builder.set_property("linger.ms", "20").build()
        ```
    """

    def __init__(self) -> None:
        self._guarantee = DeliveryGuarantee.NONE
        self._schema: KafkaRecordSerializationSchema | None = None
        self._prefix = ""
        self._properties: dict[str, str] = {}

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Set the brokers to begin with: ``host:port``, several with commas between them."""
        return self.set_property(SERVERS, bootstrap_servers)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Set how often a record is delivered when the job is restarted; the default is ``NONE``.

        Raises:
            TypeError: the argument is no ``DeliveryGuarantee``.
        """
        if not isinstance(delivery_guarantee, DeliveryGuarantee):
            kind = type(delivery_guarantee).__name__
            raise TypeError(f"set_delivery_guarantee() takes a DeliveryGuarantee, not {kind}")
        self._guarantee = delivery_guarantee
        return self

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> KafkaSinkBuilder:
        """Set the schema that makes records of Kafka.

        Raises:
            TypeError: the argument is no ``KafkaRecordSerializationSchema``.
        """
        if not isinstance(record_serializer, KafkaRecordSerializationSchema):
            kind = type(record_serializer).__name__
            raise TypeError(
                f"set_record_serializer() takes a KafkaRecordSerializationSchema, not {kind}; "
                "KafkaRecordSerializationSchema.builder() makes one"
            )
        self._schema = record_serializer
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Set how transactional ids begin; no two sinks that write to the same brokers may share a prefix.

        Raises:
            TypeError: the prefix is no text, or is empty.
        """
        if not isinstance(transactional_id_prefix, str) or not transactional_id_prefix:
            raise TypeError(f"set_transactional_id_prefix() takes a text, not {transactional_id_prefix!r}")
        self._prefix = transactional_id_prefix
        return self

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """Set a property of the producer, by its name in Java's client or in librdkafka (docs/kafka.md).

        Raises:
            TypeError: name or value is no text.
        """
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"set_property() takes two texts, not {key!r} and a {type(value).__name__}")
        self._properties[key] = value
        return self

    def build(self) -> KafkaSink:
        """Check the settings and make the sink.

        Raises:
            ProgramError: something is missing, or contradicts itself, or a property is not known or not valid.
        """
        return KafkaSink(self.settings())

    def settings(self) -> KafkaSinkSettings:
        """Check what was set; ``build`` makes the sink of it.

        Raises:
            ProgramError: as ``build``.
        """
        properties = client_properties(self._properties, "sink")
        if self._schema is None:
            raise ProgramError("Kafka sink: say what is written with set_record_serializer()")
        exactly_once = self._guarantee is DeliveryGuarantee.EXACTLY_ONCE
        if exactly_once and not self._prefix:
            raise ProgramError(
                "Kafka sink: EXACTLY_ONCE needs set_transactional_id_prefix(), a different one for each sink that "
                "writes to these brokers"
            )
        own_values = {key: number(key, properties.pop(key, default)) for key, default in _OWN_PROPERTIES.items()}
        for key, least in (("delivery.timeout.ms", 1), ("linger.ms", 0), ("buffer.memory", 1)):
            if own_values[key] < least:
                raise ProgramError(f"Kafka sink: {key} is at least {least}, not {own_values[key]}")
        properties = _PRODUCER_DEFAULTS | properties
        if self._guarantee is not DeliveryGuarantee.NONE:
            if properties.get("acks", "all") not in ("all", "-1"):
                raise ProgramError(f"Kafka sink: {self._guarantee.name} needs acks=all, not {properties['acks']}")
            properties["acks"] = "all"
            if exactly_once and properties.get("enable.idempotence", "true") != "true":
                raise ProgramError("Kafka sink: EXACTLY_ONCE needs enable.idempotence=true")
            properties.setdefault("enable.idempotence", "true")
        properties = effective_producer_properties(properties, () if exactly_once else (TIMEOUT,))
        if exactly_once:
            timeout = properties.get(TIMEOUT)
            transaction_timeout(None if timeout is None else number(TIMEOUT, timeout), None)
        return KafkaSinkSettings(
            self._guarantee,
            self._schema,
            properties,
            self._prefix if exactly_once else "",
            own_values["delivery.timeout.ms"],
            own_values["linger.ms"],
            own_values["buffer.memory"],
        )
