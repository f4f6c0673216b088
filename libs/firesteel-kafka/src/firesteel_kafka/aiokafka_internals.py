"""The one place that looks behind aiokafka's public interface; checked with aiokafka 0.14.

What the connector needs, and why the public interface is not enough:

* Whole answers of brokers. ``getmany`` makes an object of eleven fields for each record, which takes longer than
  everything else that a source of columns does; so answers are taken out of the fetcher's own table.
* The client of a consumer or an admin client, for requests that these do not offer.
* The time that a producer keeps a batch for. It is ``request.timeout.ms`` and not ``delivery.timeout.ms`` otherwise.
* The producer id of an open transaction, by which another process can commit it.
* Errors of Kerberos, which aiokafka lets through into loops that expect none.

A later version may do each of these differently, so the distribution names the versions that it takes, and
``tests/unit/connectors/kafka/test_aiokafka_internals.py`` fails when one of these members is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiokafka import AIOKafkaClient, AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import TopicPartition

__all__ = [
    "Answer", "OpenTransaction", "PartitionState", "answer_comes", "answers", "client_of", "fetcher_failure",
    "keep_batches", "kerberos_principal", "know_leader", "open_transaction", "partition_state", "wrap_kerberos_step",
]  # fmt: skip

PartitionState: TypeAlias = Any
"""aiokafka's ``TopicPartitionState``: ``position``, ``highwater``, ``lso``, ``timestamp``, ``consumed_to``."""


@dataclass(frozen=True)
class Answer:
    """What a broker has answered for one partition.

    Attributes:
        partition: the partition.
        state: state of the partition; call its ``consumed_to`` with the offset behind the last record that is used.
        records: aiokafka's ``MemoryRecords``, not unpacked.
        aborted_transactions: producer id and first offset of each.
    """

    partition: TopicPartition
    state: PartitionState
    records: Any
    aborted_transactions: Any


def client_of(owner: AIOKafkaConsumer | AIOKafkaAdminClient) -> AIOKafkaClient:
    """The client that holds the connections of a consumer or an admin client."""
    client: AIOKafkaClient = owner._client
    return client


async def know_leader(client: AIOKafkaClient, topic: str) -> None:
    """Wait until the client knows the leaders of a topic's partitions."""
    await client._wait_on_metadata(topic)


def answer_comes(consumer: AIOKafkaConsumer) -> asyncio.Future[Any]:
    """A future that is done when another answer may have come; cancel it if it is not awaited to its end."""
    waiter: asyncio.Future[Any] = consumer._fetcher._create_fetch_waiter()
    return waiter


def fetcher_failure(consumer: AIOKafkaConsumer) -> BaseException | None:
    """The error that has ended the consumer's fetcher; None while the fetcher runs."""
    future: asyncio.Future[None] = consumer._fetcher.error_future
    return future.exception() if future.done() and not future.cancelled() else None


def answers(
    consumer: AIOKafkaConsumer, chosen: Callable[[TopicPartition], bool]
) -> Iterator[tuple[TopicPartition, Answer | Exception]]:
    """Answers that have come, each with its partition; after an error the iterator ends.

    An answer leaves the fetcher when the iterator yields it, and the fetcher may then ask for the next one.

    Args:
        consumer: has assigned partitions.
        chosen: whether answers of a partition are wanted now.
    """
    fetcher: Any = consumer._fetcher
    yielded = False
    for partition in list(fetcher._records):
        if not chosen(partition):
            continue
        result = fetcher._records[partition]
        error: Exception | None = getattr(result, "_error", None)
        if error is not None and yielded:
            return  # the next call yields it, when the caller has used the answers before it
        del fetcher._records[partition]
        fetcher._notify(fetcher._wait_consume_future)
        if error is not None:
            yield partition, error
            return
        if not result.check_assignment(partition):
            continue
        records = result._partition_records
        state = result._assignment.state_value(partition)
        yielded = True
        yield partition, Answer(partition, state, records._records, records._aborted_transactions)


def partition_state(consumer: AIOKafkaConsumer, partition: TopicPartition) -> PartitionState:
    """What the consumer knows of a partition; None before the partition is assigned."""
    subscription: Any = consumer._subscription.subscription
    return None if subscription is None else subscription.assignment.state_value(partition)


def keep_batches(producer: AIOKafkaProducer, seconds: float) -> None:
    """Have a producer that is not started keep batches for so long while their partitions have no leader."""
    producer._message_accumulator._batch_ttl = seconds


@dataclass(frozen=True)
class OpenTransaction:
    """What identifies the transaction of a producer to brokers."""

    producer_id: int
    producer_epoch: int


def open_transaction(producer: AIOKafkaProducer) -> OpenTransaction | None:
    """The transaction that a producer has begun; None if no record was sent in it."""
    manager: Any = producer._txn_manager
    if manager.is_empty_transaction():
        return None
    return OpenTransaction(manager.producer_id, manager.producer_epoch)


def wrap_kerberos_step(wrapped: Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]) -> None:
    """Replace the step of the Kerberos exchange by ``wrapped(step)``, in all authenticators. Idempotent.

    ``_step`` is inherited, so a class with a ``_step`` of its own was wrapped before.
    """
    from aiokafka import conn

    authenticator: Any = conn.SaslGSSAPIAuthenticator
    if "_step" not in vars(authenticator):
        authenticator._step = wrapped(authenticator._step)


def kerberos_principal(authenticator: Any) -> str:
    """The principal of the broker that an authenticator logs in at."""
    return str(authenticator._principal)
