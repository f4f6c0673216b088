"""What the connector needs behind aiokafka's public interface is there in the version that is installed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import iscoroutinefunction, signature
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, conn
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.consumer.fetcher import Fetcher, FetchError, FetchResult, PartitionRecords
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition

from firesteel_kafka.aiokafka_internals import (
    Answer,
    OpenTransaction,
    answer_comes,
    answers,
    client_of,
    fetcher_failure,
    keep_batches,
    open_transaction,
    partition_state,
)
from tests.unit.connectors.kafka.batches import batch

NOWHERE = "127.0.0.1:1"
FIRST, SECOND, THIRD = (TopicPartition("clicks", number) for number in range(3))


@asynccontextmanager
async def reading(*partitions: TopicPartition) -> AsyncIterator[Any]:
    """A consumer at offset 0 of partitions, with a fetcher that no broker answers."""
    consumer: Any = AIOKafkaConsumer(bootstrap_servers=NOWHERE)
    assert partition_state(consumer, FIRST) is None, "nothing is assigned yet"
    consumer.assign(partitions)
    consumer._fetcher = Fetcher(client_of(consumer), consumer._subscription)
    for partition in partitions:
        consumer.seek(partition, 0)
    await asyncio.sleep(0)  # the fetcher begins with what is assigned, and forgets what it had before
    try:
        yield consumer
    finally:
        await consumer.stop()


def answered(consumer: Any, partition: TopicPartition, data: bytes) -> None:
    """As the fetcher notes an answer."""
    assignment = consumer._subscription.subscription.assignment
    records = PartitionRecords(partition, MemoryRecords(data), [(7, 0)], 0, None, None, True, 0)
    result = FetchResult(partition, assignment=assignment, partition_records=records, backoff=0)
    consumer._fetcher._records[partition] = result


def test_whole_answers_are_taken_where_the_fetcher_has_put_them() -> None:
    async def look() -> None:
        async with reading(FIRST, SECOND, THIRD) as consumer:
            waiter = answer_comes(consumer)
            assert not waiter.done()
            data = batch(0, [b"a", b"b"])
            answered(consumer, FIRST, data)
            answered(consumer, SECOND, data)
            consumer._fetcher._notify(waiter)
            await asyncio.wait_for(waiter, 1)
            ((partition, answer),) = answers(consumer, lambda partition: partition == SECOND)
            assert isinstance(answer, Answer)
            assert (partition, answer.partition, answer.aborted_transactions) == (SECOND, SECOND, [(7, 0)])
            assert [record.value for record in answer.records.next_batch()] == [b"a", b"b"]
            answer.state.consumed_to(2)
            assert partition_state(consumer, SECOND).position == 2
            assert {"highwater", "lso", "timestamp"} <= set(dir(answer.state))
            assert [partition for partition, _ in answers(consumer, lambda partition: True)] == [FIRST], "each once"
            assert fetcher_failure(consumer) is None

    asyncio.run(look())


def test_an_answer_for_another_offset_is_dropped_and_an_error_comes_alone() -> None:
    async def look() -> None:
        async with reading(FIRST, SECOND, THIRD) as consumer:
            error = OSError("gone")
            answered(consumer, FIRST, batch(0, [b"a"]))
            consumer.seek(FIRST, 5)
            answered(consumer, SECOND, batch(0, [b"a"]))
            consumer._fetcher._records[THIRD] = FetchError(error=error, backoff=0)
            assert [partition for partition, _ in answers(consumer, lambda partition: True)] == [SECOND]
            assert list(answers(consumer, lambda partition: True)) == [(THIRD, error)]
            assert list(answers(consumer, lambda partition: True)) == []

    asyncio.run(look())


def test_an_open_transaction_has_the_ids_of_its_producer() -> None:
    async def look() -> None:
        producer: Any = AIOKafkaProducer(bootstrap_servers=NOWHERE, transactional_id="job-0")
        manager = producer._txn_manager
        assert isinstance(manager, TransactionManager)
        manager.set_pid_and_epoch(12, 3)
        manager.begin_transaction()
        assert open_transaction(producer) is None, "nothing was sent"
        manager.maybe_add_partition_to_txn(FIRST)
        manager.partition_added(FIRST)
        assert open_transaction(producer) == OpenTransaction(12, 3)
        await producer.stop()

    asyncio.run(look())


def test_a_producer_keeps_batches_for_as_long_as_it_is_told() -> None:
    async def look() -> None:
        producer: Any = AIOKafkaProducer(bootstrap_servers=NOWHERE, request_timeout_ms=40_000)
        assert producer._message_accumulator._batch_ttl == 40, "aiokafka's own"
        keep_batches(producer, 120)
        batch = producer.create_batch()
        batch.append(key=None, value=b"", timestamp=None)
        await producer._message_accumulator.add_batch(batch, FIRST, timeout=1)
        producer_batch = producer._message_accumulator._batches[FIRST][0]
        assert not producer_batch.expired()
        producer_batch._ctime -= 119
        assert not producer_batch.expired()
        producer_batch._ctime -= 2
        assert producer_batch.expired()
        await producer.stop()

    asyncio.run(look())


@pytest.mark.parametrize("make", [AIOKafkaConsumer, AIOKafkaAdminClient])
def test_clients_can_be_asked_for_leaders(make: Any) -> None:
    async def look() -> None:
        owner = make(bootstrap_servers=NOWHERE)
        client: Any = client_of(owner)
        assert iscoroutinefunction(client._wait_on_metadata)
        assert list(signature(client._wait_on_metadata).parameters) == ["topic"]
        await (owner.stop if make is AIOKafkaConsumer else owner.close)()

    asyncio.run(look())


def test_the_steps_of_kerberos_are_one_method() -> None:
    assert list(signature(conn.SaslGSSAPIAuthenticator._step).parameters) == ["self", "payload"]
    assert "_principal" in conn.SaslGSSAPIAuthenticator.__init__.__code__.co_names
