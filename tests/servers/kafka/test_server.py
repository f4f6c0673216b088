"""The Kafka of the tests is a real one: what it holds outlives kill -9, and it can be made to stand still."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from tests.servers.kafka.server import KafkaCluster
from tests.waiting import wait_until

pytestmark = pytest.mark.may_skip(reason="Kafka comes by Maven")


def values(cluster: KafkaCluster, topic: str, isolation_level: str = "read_committed") -> list[bytes | None]:
    return [record.value for record in cluster.records(topic, isolation_level)]


def test_what_a_broker_holds_outlives_it(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(partitions=3)
    kafka.produce(topic, [(b"k", b"%d" % number) for number in range(100)], compression_type="zstd")
    with kafka.away():
        pass
    with kafka.stopped(), pytest.raises(AssertionError):
        asyncio.run(tried(kafka.bootstrap, topic))
    assert sorted(map(int, filter(None, values(kafka, topic)))) == list(range(100))
    assert sum(kafka.end_offsets(topic).values()) == 100


async def tried(bootstrap: str, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, request_timeout_ms=300)
    try:
        async with asyncio.timeout(2):
            await producer.start()
    except (KafkaError, TimeoutError):
        raise AssertionError("there is no Kafka") from None
    finally:
        await producer.stop()


def test_an_open_transaction_is_seen_by_those_who_read_all(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()

    async def begin() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=topic)
        await producer.start()
        try:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"open")
            assert await asyncio.to_thread(values, kafka, topic, "read_uncommitted") == [b"open"]
            assert await asyncio.to_thread(values, kafka, topic) == []
            await producer.commit_transaction()
        finally:
            await producer.stop()

    asyncio.run(begin())
    # Brokers write the marker of the commit behind their answer.
    wait_until(lambda: values(kafka, topic) == [b"open"], "what was committed is seen")


@pytest.mark.long
def test_of_three_brokers_each_may_die(kafka_of_three: KafkaCluster) -> None:
    topic = kafka_of_three.create_topic(partitions=3)
    for number in range(3):
        with kafka_of_three.away(number):
            kafka_of_three.produce(topic, [(None, b"%d" % number)], acks="all")
    assert sorted(filter(None, values(kafka_of_three, topic))) == [b"0", b"1", b"2"]
