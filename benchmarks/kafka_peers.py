"""Reading JSON of Kafka and counting it, by other systems, for ``kafka_read_bench --peers PYTHON``.

    PARALLELISM=N PYTHON benchmarks/kafka_peers.py WHICH BOOTSTRAP TOPIC COUNT

Run by an interpreter that has ``confluent-kafka``, ``bytewax`` and ``quixstreams``, and nothing of ours. WHICH is
``confluent`` (the bare loop: no JSON), ``bytewax`` or ``quix``, as N processes that share the partitions: given to
confluent-kafka's, by workers of one cluster, by a consumer group. Prints elapsed seconds, from the first record that
one of them sees (so neither imports nor joining a group count) to the last one, and processor seconds of all as JSON.

WHICH is ``pyflink`` (functions in processes of Python) or ``pyflink-threads`` (in the JVM) for an interpreter that has
``apache-flink``; the environment variable ``CONNECTOR`` names the jar ``flink-sql-connector-kafka``, N is the
parallelism. The program is that of our own job with functions, and the time is from where Python functions are
opened to the last record. The processor time is not known.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

IDLE = 10.0  # seconds without a record, behind which a member of a group has seen all of its own


class Seen:
    """What one process has counted, and when."""

    def __init__(self) -> None:
        self.count, self.first, self.last = 0, 0.0, 0.0

    def add(self, count: int) -> None:
        """Counts that many records."""
        self.last = time.monotonic()
        self.first = self.first or self.last
        self.count += count


def confluent(seen: Seen, number: int, of: int, bootstrap: str, topic: str, _: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": False})
    known = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    own = [TopicPartition(topic, partition, 0) for partition in known if partition % of == number]
    count = sum(consumer.get_watermark_offsets(partition)[1] for partition in own)
    consumer.assign(own)
    while seen.count < count:
        if records := consumer.consume(1_000, 0.1):
            seen.add(len(records))
    consumer.close()


def bytewax(seen: Seen, number: int, of: int, bootstrap: str, topic: str, shared: str) -> None:
    import bytewax.operators as op
    from bytewax.connectors.kafka import KafkaSource
    from bytewax.dataflow import Dataflow
    from bytewax.testing import TestingSink, cluster_main

    def counted(messages: list[Any]) -> list[Any]:
        seen.add(len([json.loads(message.value) for message in messages]))
        return []

    flow = Dataflow("count")
    read = op.input("in", flow, KafkaSource([bootstrap], [topic], tail=False, batch_size=10_000))
    op.output("out", op.flat_map_batch("count", read, counted), TestingSink([]))
    cluster_main(flow, [f"127.0.0.1:{port}" for port in shared.split(",")] if of > 1 else [], number)


def quix(seen: Seen, number: int, of: int, bootstrap: str, topic: str, shared: str) -> None:
    from quixstreams import Application

    application = Application(
        bootstrap, consumer_group=f"bench-{shared}", auto_offset_reset="earliest", loglevel="ERROR",
        auto_create_topics=False,
    )  # fmt: skip
    application.dataframe(application.topic(topic, value_deserializer="json")).update(lambda _: seen.add(1))
    application.run(timeout=IDLE)


def _worker(work: Callable[..., None], number: int, of: int, given: tuple[str, ...], results: Any) -> None:
    seen, used = Seen(), time.process_time()
    work(seen, number, of, *given)
    results.put((seen.count, seen.first, seen.last, time.process_time() - used))


def together(
    work: Callable[..., None], parallelism: int, bootstrap: str, topic: str, count: int
) -> tuple[float, float]:
    """Elapsed and processor seconds of that many processes."""
    shared = ",".join(map(str, _ports(parallelism)))
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    given = (bootstrap, topic, shared)
    processes = [
        context.Process(target=_worker, args=(work, number, parallelism, given, results))
        for number in range(parallelism)
    ]
    for process in processes:
        process.start()
    notes = [results.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    assert sum(seen for seen, *_ in notes) == count, notes
    began = min(first for seen, first, _, _ in notes if seen)
    return max(last for _, _, last, _ in notes) - began, sum(used for *_, used in notes)


def _ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def pyflink(bootstrap: str, topic: str, count: int, mode: str = "process") -> float:
    os.environ["_python_worker_execution_mode"] = "process"  # noqa: SIM112 # else they run in this one
    from pyflink.common import Configuration, Types, WatermarkStrategy
    from pyflink.datastream import FlatMapFunction, StreamExecutionEnvironment
    from pyflink.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
    from pyflink.datastream.formats.json import JsonRowDeserializationSchema

    class Counted(FlatMapFunction):  # type: ignore[misc]
        def __init__(self, folder: str) -> None:
            self.folder = folder

        def open(self, _: object) -> None:
            self.seen, self.began, self.ended = 0, time.monotonic(), 0.0

        def flat_map(self, _: object) -> list:  # type: ignore[type-arg]
            self.seen += 1
            self.ended = time.monotonic()
            return []

        def close(self) -> None:
            note = json.dumps([self.seen, self.began, self.ended])
            Path(self.folder, uuid.uuid4().hex).write_text(note)

    configuration = Configuration()
    configuration.set_string("python.execution-mode", mode)
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("python.client.executable", sys.executable)
    configuration.set_string("rest.bind-port", "0")
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(int(os.environ["PARALLELISM"]))
    environment.add_jars(Path(os.environ["CONNECTOR"]).resolve().as_uri())
    fields = [Types.LONG(), Types.STRING(), Types.DOUBLE(), Types.STRING()]
    row = Types.ROW_NAMED(["id", "user", "amount", "note"], fields)
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(bootstrap)
        .set_topics(topic)
        .set_group_id(uuid.uuid4().hex)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(JsonRowDeserializationSchema.builder().type_info(row).build())
        .build()
    )
    stream = environment.from_source(source, WatermarkStrategy.no_watermarks(), "kafka")
    with tempfile.TemporaryDirectory() as folder:
        stream.map(lambda row: (row[1], 1)).flat_map(Counted(folder)).print()
        environment.execute("read and count")
        notes = [json.loads(file.read_text()) for file in Path(folder).iterdir()]
    assert sum(seen for seen, _, _ in notes) == count, notes
    return float(max(ended for _, _, ended in notes) - min(began for _, began, _ in notes))


if __name__ == "__main__":
    which, servers, name, number = sys.argv[1:]
    if which.startswith("pyflink"):
        mode = "thread" if which == "pyflink-threads" else "process"
        print(json.dumps([pyflink(servers, name, int(number), mode), None]))
    else:
        work = {"confluent": confluent, "bytewax": bytewax, "quix": quix}[which]
        print(json.dumps(together(work, int(os.environ["PARALLELISM"]), servers, name, int(number))))
