"""Properties of Kafka's clients that change no result here, and that aiokafka has no argument for.

People use one dictionary for consumers and producers, or bring theirs from a program for Java's client or librdkafka.
Such properties are left out with a warning. Properties that could change results (assignment, order, loss, encryption)
are not listed here: they are honoured or refused. So are properties that Kafka does not know, which are mostly typing
errors.
"""

from __future__ import annotations

from typing import Final

__all__ = ["has_effect"]

_CLIENT: Final = frozenset(
    {
        # sockets, look-ups and pauses
        "client.dns.lookup", "reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.max.ms",
        "send.buffer.bytes", "receive.buffer.bytes", "socket.connection.setup.timeout.ms",
        "socket.connection.setup.timeout.max.ms", "metadata.recovery.strategy",
        "metadata.recovery.rebootstrap.trigger.ms", "metadata.max.idle.ms",
        # metrics of Java's client
        "metric.reporters", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
        "auto.include.jmx.reporter", "enable.metrics.push",
        # when credentials are renewed
        "sasl.login.class", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter", "sasl.login.retry.backoff.ms",
        "sasl.login.retry.backoff.max.ms", "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor",
        # librdkafka's
        "api.version.fallback.ms", "api.version.request", "api.version.request.timeout.ms", "broker.address.family",
        "broker.address.ttl", "broker.version.fallback", "debug", "internal.termination.signal", "log.connection.close",
        "log.queue", "log.thread.name", "log_level", "max.in.flight", "message.copy.max.bytes",
        "receive.message.max.bytes", "socket.blocking.max.ms",
        "socket.keepalive.enable", "socket.max.fails", "socket.nagle.disable", "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes", "statistics.interval.ms", "topic.metadata.propagation.max.ms",
        "topic.metadata.refresh.fast.cnt", "topic.metadata.refresh.fast.interval.ms", "topic.metadata.refresh.sparse",
    }
)  # fmt: skip
_CONSUMER: Final = frozenset(
    {
        # the source commits offsets when checkpoints are complete
        "auto.commit.interval.ms", "enable.auto.offset.store", "auto.commit.enable", "offset.store.method",
        # it joins no group: partitions are dealt out by its enumerator
        "group.instance.id", "group.protocol", "group.protocol.type", "group.remote.assignor", "heartbeat.interval.ms",
        "max.poll.interval.ms", "partition.assignment.strategy", "session.timeout.ms", "coordinator.query.interval.ms",
        "internal.leave.group.on.close",
        # waiting and buffering
        "default.api.timeout.ms", "queued.min.messages", "queued.max.messages.kbytes", "fetch.error.backoff.ms",
        "fetch.queue.backoff.ms", "consume.callback.max.messages", "enable.partition.eof",
        # topics have to be there when the job starts
        "allow.auto.create.topics",
        # of Flink's source
        "register.consumer.metrics", "flink.disable-metrics", "flink.poll-timeout",
    }
)  # fmt: skip
_PRODUCER: Final = frozenset(
    {
        # until delivery.timeout.ms has passed, one batch of a partition at a time
        "retries", "max.in.flight.requests.per.connection", "max.block.ms", "message.send.max.retries",
        # how batches are made, and which partition takes records without a key
        "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
        "sticky.partitioning.linger.ms", "batch.num.messages", "queue.buffering.max.messages",
        "queue.buffering.max.kbytes", "queue.buffering.backpressure.threshold",
        "compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "compression.level",
        "delivery.report.only.error",
    }
)  # fmt: skip
_OF_THE_SOURCE: Final = frozenset(
    {
        "auto.offset.reset", "client.id.prefix", "commit.offsets.on.checkpoint", "enable.auto.commit",
        "partition.discovery.interval.ms",
    }
)  # fmt: skip
_OF_THE_SINK: Final = frozenset({"buffer.memory", "delivery.timeout.ms", "linger.ms", "transactional.id"})
_BYTES_AS_THEY_ARE: Final = frozenset({"ByteArray", "String"})
"""Kinds of Java's serializers that do nothing which the schema of the source or sink does not do."""


def has_effect(key: str, value: str, *, consumer: bool) -> bool:
    """Whether a property has to be honoured or refused.

    Args:
        key: name of the property in Java's client.
        value: value of the property.
        consumer: the property is for a consumer, not for a producer.
    """
    if key in _CLIENT or key in _CONSUMER or key in _PRODUCER:
        return False
    if key in (_OF_THE_SINK if consumer else _OF_THE_SOURCE):
        return False
    if key.endswith((".serializer", ".deserializer")):
        suffix = "Deserializer" if key.endswith(".deserializer") else "Serializer"
        of_the_other = key.endswith(".serializer") if consumer else key.endswith(".deserializer")
        kind = value.removeprefix("org.apache.kafka.common.serialization.").removesuffix(suffix)
        return not of_the_other and kind not in _BYTES_AS_THEY_ARE
    return True
