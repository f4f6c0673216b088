"""Reading Kafka, record by record and by columns, beside aiokafka's bare loop, and beside other systems.

    python -m benchmarks.kafka_read_bench [--records 500000] [--bootstrap host:port] [--peers PYTHON]
        [--parallelism 1] [--pyflink PYTHON JAR] [--only-jobs]

Without ``--bootstrap`` it starts a broker of its own. JSON of 100 bytes in 8 partitions, which ``--parallelism``
processes of each reader share; time is elapsed, and that of their processors, since broker and readers share the
machine. ``columns`` and ``rows`` drive our reader alone; the two jobs run in an embedded cluster,
a slot for each subtask, from where their tasks begin to the last record at the sink: a Python function is called with
each record, or the sink gets columns. ``--peers`` names an interpreter that has ``confluent-kafka``, ``bytewax`` and
``quixstreams`` (a virtual environment of its own). ``--pyflink`` names one that has ``apache-flink``, and the jar of
its connector (``flink-sql-connector-kafka``): it runs the program of our job with functions, these in processes of
Python and then in the JVM.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from benchmarks import programs
from benchmarks.column_programs import CountingColumns
from benchmarks.kafka_brokers import kafka
from benchmarks.programs import note

from firesteel.common import WatermarkStrategy
from firesteel.common.serialization import DeserializationSchema
from firesteel.common.typeinfo import Types
from firesteel.connectors.formats.json_rows import JsonRowDeserializationSchema
from firesteel.datastream.connectors.base import SinkWriter, WriterContext
from firesteel.functions.source import SourceBatch
from firesteel.testing.clock import ManualClock
from firesteel.testing.source_conformance import ReaderStub
from firesteel_kafka.consumer import KafkaSession
from firesteel_kafka.offsets import KafkaOffsetsInitializer
from firesteel_kafka.partitions import KafkaTopicPartition, split_of
from firesteel_kafka.source import KafkaSource

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


def _getmany(servers: str, topic: str, own: list[int]) -> None:
    async def loop() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, auto_offset_reset="earliest", group_id=None, enable_auto_commit=False
        )
        consumer.assign([aiokafka.TopicPartition(topic, number) for number in own])
        async with consumer:
            seen, count = 0, sum((await consumer.end_offsets(consumer.assignment())).values())
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


def _source(schema: DeserializationSchema) -> Callable[[str, str, list[int]], None]:
    def read(servers: str, topic: str, own: list[int]) -> None:
        builder = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(topic)
        source = builder.set_value_only_deserializer(schema).build()
        with KafkaSession(lambda: {"bootstrap_servers": servers}) as session:
            partitions = [KafkaTopicPartition(topic, number) for number in own]
            ends = KafkaOffsetsInitializer.latest().find(partitions, session)
        reader: Any = source.create_reader(ReaderStub(0, 1, ManualClock()))

        async def loop() -> None:
            reader.add_splits([split_of(partition, 0, end) for partition, end in ends.items()])
            reader.no_more_splits()
            seen = 0
            while isinstance(batch := await reader.poll(MOST), SourceBatch):
                seen += len(batch.values)
            await reader.close()
            assert seen == (count := sum(ends.values())), f"{seen} of {count}"

        asyncio.run(loop())

    return read


class _Counted(CountingColumns):
    """Notes when its task begins, and what its process has used before and behind."""

    def create_writer(self, context: WriterContext) -> SinkWriter[Any]:
        note(self.out, {"first_poll": time.monotonic(), "used": -time.process_time()})
        writer = super().create_writer(context)
        close = writer.close

        def closed() -> None:
            note(self.out, {"used": time.process_time()})
            close()

        writer.close = closed  # type: ignore[method-assign]
        return writer


def _job(functions: bool, parallelism: int, servers: str, topic: str, count: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as out:
        environment = programs.environment(parallelism, {"rest.port": "0"})
        builder = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(topic)
        builder.set_bounded(KafkaOffsetsInitializer.latest())
        builder.set_value_only_deserializer(JsonRowDeserializationSchema.builder().type_info(ROW).build())
        stream = environment.from_source(builder.build(), WatermarkStrategy.no_watermarks(), "kafka")
        if functions:
            stream = stream.map(lambda row: (row[1], 1))
        stream.sink_to(_Counted(out, sums=False))
        environment.execute("read and count")
        notes = [json.loads(line) for path in Path(out).glob("*.jsonl") for line in path.read_text().splitlines()]
    assert sum(one.get("rows", 0) for one in notes) == count, notes
    began = min(one["first_poll"] for one in notes if "first_poll" in one)
    ended = max(one["last_record"] for one in notes if "last_record" in one)
    return ended - began, sum(one.get("used", 0.0) for one in notes)


def _measured(work: Callable[[str, str, list[int]], None], given: tuple[str, str, list[int]], results: Any) -> None:
    began, used = time.monotonic(), time.process_time()
    work(*given)
    results.put((began, time.monotonic(), time.process_time() - used))


def _alone(
    work: Callable[[str, str, list[int]], None], parallelism: int, servers: str, topic: str
) -> tuple[float, float]:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    owns = [list(range(number, PARTITIONS, parallelism)) for number in range(parallelism)]
    processes = [context.Process(target=_measured, args=(work, (servers, topic, own), results)) for own in owns]
    for process in processes:
        process.start()
    notes = [results.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    return max(ended for _, ended, _ in notes) - min(began for began, *_ in notes), sum(used for *_, used in notes)


def _of_peer(
    python: str, which: str, servers: str, topic: str, count: int, **variables: str
) -> tuple[float, float | None]:
    words = [python, str(Path(__file__).with_name("kafka_peers.py")), which, servers, topic, str(count)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, env=os.environ | variables)
    if done.returncode:
        sys.exit(f"{which}: {done.stderr.strip()[-2000:]}")
    elapsed, used = json.loads(done.stdout.splitlines()[-1])
    return elapsed, used


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--bootstrap")
    parser.add_argument("--peers", metavar="PYTHON")
    parser.add_argument("--parallelism", type=int, default=1, help="processes of each reader, subtasks of each job")
    parser.add_argument("--pyflink", nargs=2, metavar=("PYTHON", "JAR"))
    parser.add_argument("--only-jobs", action="store_true", help="no bare loop, no reader alone")
    given = parser.parse_args()
    count, topic = given.records, f"bench-{uuid.uuid4().hex[:8]}"
    columns = _source(JsonRowDeserializationSchema.builder().type_info(ROW).build())
    with kafka(given.bootstrap) as cluster:
        servers = cluster.bootstrap
        asyncio.run(_fill(servers, topic, count))
        for name, work in (("bare getmany", _getmany), ("columns", columns), ("rows", _source(_Rows()))):
            if given.only_jobs:
                break
            _tell(name, count, *_alone(work, given.parallelism, servers, topic))
        for name, functions in (("job, functions", True), ("job, columns", False)):
            _tell(name, count, *_job(functions, given.parallelism, servers, topic, count))
        for which in ("confluent", "bytewax", "quix") if given.peers else ():
            variables = {"PARALLELISM": str(given.parallelism)}
            _tell(which, count, *_of_peer(given.peers, which, servers, topic, count, **variables))
        for which in ("pyflink", "pyflink-threads") if given.pyflink else ():
            python, jar = given.pyflink
            variables = {"CONNECTOR": jar, "PARALLELISM": str(given.parallelism)}
            if which == "pyflink-threads":  # the JVM's Python does not see the virtual environment
                variables["PYTHONPATH"] = _packages_of(python)
            _tell(which, count, *_of_peer(python, which, servers, topic, count, **variables))


def _packages_of(python: str) -> str:
    words = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def _tell(name: str, count: int, elapsed: float, used: float | None) -> None:
    each = "" if used is None else f"  {used / count * 1e6:6.2f} us of processor time a record"
    print(f"{name:15} {count / elapsed / 1e6:6.3f} M/s{each}", flush=True)


if __name__ == "__main__":
    main()
