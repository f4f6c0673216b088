"""Writing to Kafka: a bare aiokafka loop, and the sink at least once and exactly once, in turn; 100 bytes a record.

    python -m benchmarks.kafka_bench [--records 2000000] [--partitions 8] [--runs 3] [--bootstrap host:port]

Without ``--bootstrap`` it starts a broker of its own, as tests do. The sink is driven as a task drives it: batches of
1,000 texts, a barrier each second, and the commit behind it. Figures are records a second, from the first record to the
last acknowledgement or commit, and processor seconds of this process for a million records.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
import uuid
from collections.abc import Callable

from aiokafka import AIOKafkaProducer
from benchmarks.kafka_brokers import kafka

from firesteel.common import SimpleStringSchema
from firesteel.datastream.connectors.kafka import DeliveryGuarantee, KafkaRecordSerializationSchema, KafkaSink
from firesteel.functions.two_phase import CommitOutcome, Committable
from firesteel.testing.writing import Context

BATCH = 1000
BARRIER_SECONDS = 1.0
TEXT = "x" * 90


def bare(bootstrap: str, topic: str, records: int, partitions: int) -> None:
    """Batches of one partition after the other."""

    async def send() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", max_batch_size=256 << 10)
        async with producer:
            partition, batch, left = 0, producer.create_batch(), []
            for number in range(records):
                value = f"{TEXT}{number:010}".encode()
                while batch.append(key=None, value=value, timestamp=None) is None:
                    left.append(await producer.send_batch(batch, topic, partition=partition))
                    partition = (partition + 1) % partitions
                    batch = producer.create_batch()
            left.append(await producer.send_batch(batch, topic, partition=partition))
            await asyncio.gather(*left)

    asyncio.run(send())


def sink(guarantee: DeliveryGuarantee) -> Callable[[str, str, int, int], None]:
    """The sink with a guarantee."""

    def write(bootstrap: str, topic: str, records: int, partitions: int) -> None:
        schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
        builder = KafkaSink.builder().set_bootstrap_servers(bootstrap).set_delivery_guarantee(guarantee)
        builder.set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
        if guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            builder.set_transactional_id_prefix(topic)
        made, context = builder.build(), Context(0, 1, checkpointing=True)
        writer, committer = made.create_writer(context), made.create_committer(context)
        writer.open()
        due = time.monotonic() + BARRIER_SECONDS
        try:
            for start in range(0, records, BATCH):
                writer.write([f"{TEXT}{number:010}" for number in range(start, min(start + BATCH, records))], None)
                last = start + BATCH >= records
                if last or time.monotonic() >= due:
                    prepared = [Committable(data) for data in writer.prepare_commit(end_of_input=last)]
                    writer.snapshot_state()
                    assert all(one.outcome is CommitOutcome.COMMITTED for one in committer.commit(prepared))
                    due = time.monotonic() + BARRIER_SECONDS
        finally:
            writer.close()
            committer.close()

    return write


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--bootstrap")
    given = parser.parse_args()
    ways = {
        "bare aiokafka": bare,
        "at least once": sink(DeliveryGuarantee.AT_LEAST_ONCE),
        "exactly once": sink(DeliveryGuarantee.EXACTLY_ONCE),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    with kafka(given.bootstrap) as cluster:
        for _ in range(given.runs):
            for name, way in ways.items():
                topic = cluster.create_topic(f"bench-{uuid.uuid4().hex[:8]}", given.partitions)
                began, used = time.monotonic(), time.process_time()
                way(cluster.bootstrap, topic, given.records, given.partitions)
                seconds, busy = time.monotonic() - began, time.process_time() - used
                assert sum(cluster.end_offsets(topic).values()) >= given.records
                rates[name].append(given.records / seconds)
                figures = {"rate": round(given.records / seconds), "cpu_s_per_million": busy / given.records * 1e6}
                print("RESULT", json.dumps({"what": name, **figures}), flush=True)
    for name, found in rates.items():
        print(f"{name}: {statistics.median(found):,.0f} records/s (median of {given.runs})")


if __name__ == "__main__":
    main()
