"""Reading Kafka, record by record and by columns, beside aiokafka's bare loop.

``python -m benchmarks.kafka_read_bench BOOTSTRAP_SERVERS [records]``: JSON of 100 bytes in 8 partitions. Each reader is
a process with all partitions; time is that of its processor, since broker and reader share the machine, and elapsed.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from firesteel.common.serialization import DeserializationSchema
from firesteel.common.typeinfo import Types
from firesteel.connectors.formats.json_rows import JsonRowDeserializationSchema
from firesteel.connectors.kafka.consumer import KafkaSession
from firesteel.connectors.kafka.offsets import KafkaOffsetsInitializer
from firesteel.connectors.kafka.partitions import KafkaTopicPartition, split_of
from firesteel.connectors.kafka.source import KafkaSource
from firesteel.functions.source import SourceBatch
from firesteel.testing.clock import ManualClock
from firesteel.testing.source_conformance import ReaderStub

PARTITIONS = 8
ROW = Types.ROW_NAMED(["id", "user", "amount", "note"], [Types.LONG(), Types.STRING(), Types.DOUBLE(), Types.STRING()])
MOST = 131_072


async def _fill(servers: str, topic: str, count: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic(topic, PARTITIONS, 1)], timeout_ms=60_000)
    await admin.close()
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, max_batch_size=1 << 18) as producer:
        await producer.partitions_for(topic)
        number = 0
        while number < count:
            for partition in range(PARTITIONS):
                batch = producer.create_batch()
                while number < count:
                    value = {"id": number, "user": f"user-{number % 1000}", "amount": number / 100, "note": "x" * 40}
                    if batch.append(key=None, value=json.dumps(value).encode(), timestamp=None) is None:
                        break
                    number += 1
                await producer.send_batch(batch, topic, partition=partition)
        await producer.flush()


def _getmany(servers: str, topic: str, count: int) -> None:
    async def loop() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=servers, auto_offset_reset="earliest", group_id=None, enable_auto_commit=False
        )
        async with consumer:
            seen = 0
            while seen < count:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    seen += len(records)

    asyncio.run(loop())


class _Rows(DeserializationSchema):
    """The same, record by record."""

    def __init__(self) -> None:
        self._schema = JsonRowDeserializationSchema.builder().type_info(ROW).build()

    def deserialize(self, message: bytes) -> Any:
        return self._schema.deserialize(message)


def _source(schema: DeserializationSchema) -> Callable[[str, str, int], None]:
    def read(servers: str, topic: str, count: int) -> None:
        builder = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(topic)
        source = builder.set_value_only_deserializer(schema).build()
        with KafkaSession(lambda: {"bootstrap_servers": servers}) as session:
            partitions = [KafkaTopicPartition(topic, number) for number in range(PARTITIONS)]
            ends = KafkaOffsetsInitializer.latest().find(partitions, session)
        reader: Any = source.create_reader(ReaderStub(0, 1, ManualClock()))

        async def loop() -> None:
            reader.add_splits([split_of(partition, 0, end) for partition, end in ends.items()])
            reader.no_more_splits()
            seen = 0
            while isinstance(batch := await reader.poll(MOST), SourceBatch):
                seen += len(batch.values)
            await reader.close()
            assert seen == count, f"{seen} of {count}"

        asyncio.run(loop())

    return read


def _measured(work: Callable[[str, str, int], None], servers: str, topic: str, count: int, results: Any) -> None:
    began, used = time.perf_counter(), time.process_time()
    work(servers, topic, count)
    results.put((time.perf_counter() - began, time.process_time() - used))


def main() -> None:
    """Prints a table."""
    servers, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 500_000
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    asyncio.run(_fill(servers, topic, count))
    context = multiprocessing.get_context("fork")
    columns = _source(JsonRowDeserializationSchema.builder().type_info(ROW).build())
    for name, work in (("bare getmany", _getmany), ("columns", columns), ("rows", _source(_Rows()))):
        results = context.Queue()
        process = context.Process(target=_measured, args=(work, servers, topic, count, results))
        process.start()
        elapsed, used = results.get(timeout=600)
        process.join()
        print(f"{name:15} {count / elapsed / 1e6:6.2f} M/s  {used / count * 1e6:6.2f} us of processor time a record")


if __name__ == "__main__":
    main()
