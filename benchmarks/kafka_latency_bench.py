"""From Kafka through a job to Kafka: how long a record takes, at least once and exactly once.

    python -m benchmarks.kafka_latency_bench [--rate 5000] [--seconds 20] [--parallelism 2] [--bootstrap host:port]

A process writes JSON of 100 bytes at an even rate; a job of one embedded cluster reads it, calls a Python function with
each record and writes it to another topic; a third process reads that, committed records only. The time is from when
a record was due to be written to when it was read; records of the first ``--warm`` seconds are left out. Exactly once
a record is seen when its checkpoint is complete, so about half the interval is the least that can be.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import tempfile
import time
import uuid
from typing import Any

import aiokafka
import numpy as np
from benchmarks import programs
from benchmarks.kafka_brokers import kafka

from firesteel.common import SimpleStringSchema, Types, WatermarkStrategy
from firesteel.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from firesteel.datastream.formats.json import JsonRowDeserializationSchema

PARTITIONS = 8
ROW = Types.ROW_NAMED(["due", "user", "note"], [Types.LONG(), Types.STRING(), Types.STRING()])
WAYS = {
    "at least once, checkpoints of 1 s": (DeliveryGuarantee.AT_LEAST_ONCE, "1 s"),
    "exactly once, checkpoints of 1 s": (DeliveryGuarantee.EXACTLY_ONCE, "1 s"),
    "exactly once, checkpoints of 100 ms": (DeliveryGuarantee.EXACTLY_ONCE, "100 ms"),
}


def _value(number: int, due: int) -> bytes:
    return json.dumps({"due": due, "user": f"user-{number % 1000}", "note": "x" * 36}).encode()


def _write(servers: str, topic: str, rate: float, seconds: float) -> None:
    async def send() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.partitions_for(topic)
            began, number = time.time_ns(), 0
            while number < rate * seconds:
                while number < rate * seconds and (due := began + int(number / rate * 1e9)) <= time.time_ns():
                    await producer.send(topic, _value(number, due), partition=number % PARTITIONS)
                    number += 1
                await asyncio.sleep(0.001)

    asyncio.run(send())


def _read(servers: str, topic: str, count: int, warm: float, ready: Any, results: Any) -> None:
    """Gives [how many, 50 %, 99 %, most] in ms."""

    async def read() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, isolation_level="read_committed", enable_auto_commit=False,
            auto_offset_reset="earliest",
        )  # fmt: skip
        late: list[tuple[int, int]] = []
        async with consumer:
            consumer.assign([aiokafka.TopicPartition(topic, number) for number in range(PARTITIONS)])
            ready.set()
            while len(late) < count:
                found = await consumer.getmany(timeout_ms=1000)
                now = time.time_ns()
                for records in found.values():
                    late += [(due := int(record.value), now - due) for record in records]
        times = np.array(late)
        kept = times[times[:, 0] > times[:, 0].min() + int(warm * 1e9), 1] / 1e6
        results.put([len(late), *np.percentile(kept, [50, 99, 100])])

    asyncio.run(read())


def _job(servers: str, source: str, sink: str, way: str, parallelism: int, directory: str) -> Any:
    guarantee, interval = WAYS[way]
    environment = programs.environment(
        parallelism,
        {
            "rest.port": "0",
            "execution.checkpointing.dir": directory,
            "execution.checkpointing.interval": interval,
            "execution.buffer-timeout.interval": "1 ms",
        },
    )
    read = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(source)
    read.set_starting_offsets(KafkaOffsetsInitializer.earliest())
    read.set_value_only_deserializer(JsonRowDeserializationSchema.builder().type_info(ROW).build())
    schema = KafkaRecordSerializationSchema.builder().set_topic(sink)
    write = KafkaSink.builder().set_bootstrap_servers(servers).set_delivery_guarantee(guarantee)
    write.set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
    if guarantee is DeliveryGuarantee.EXACTLY_ONCE:
        write.set_transactional_id_prefix(sink)
    stream = environment.from_source(read.build(), WatermarkStrategy.no_watermarks(), "kafka")
    stream.map(lambda row: str(row[0]), Types.STRING()).sink_to(write.build())
    return environment.execute_async(way)


def main() -> None:
    """Prints a line of JSON for each way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=float, default=5000.0, help="records a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--warm", type=float, default=5.0)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--bootstrap")
    parser.add_argument("--way", action="append", choices=list(WAYS))
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    count = int(given.rate * given.seconds)
    with kafka(given.bootstrap) as cluster, tempfile.TemporaryDirectory() as directory:
        servers = cluster.bootstrap
        for way in given.way or WAYS:
            source, sink = (cluster.create_topic(f"bench-{uuid.uuid4().hex[:8]}", PARTITIONS) for _ in range(2))
            ready, results = context.Event(), context.Queue()
            job = _job(servers, source, sink, way, given.parallelism, directory)
            reads = context.Process(target=_read, args=(servers, sink, count, given.warm, ready, results), daemon=True)
            reads.start()
            ready.wait()
            writes = context.Process(target=_write, args=(servers, source, given.rate, given.seconds), daemon=True)
            writes.start()
            found, half, most, largest = results.get(timeout=given.seconds + 60)
            figures = {"p50_ms": round(half, 1), "p99_ms": round(most, 1), "max_ms": round(largest, 1)}
            print("RESULT", json.dumps({"what": way, "records": found, **figures}), flush=True)
            writes.join()
            reads.join()
            job.cancel().result()


if __name__ == "__main__":
    main()
