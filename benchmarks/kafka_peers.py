"""Reading JSON of Kafka and counting it, by other systems, for ``kafka_read_bench --peers PYTHON``.

    PYTHON benchmarks/kafka_peers.py WHICH BOOTSTRAP TOPIC COUNT

Run by an interpreter that has ``confluent-kafka``, ``bytewax`` and ``quixstreams``, and nothing of ours. WHICH is
``confluent`` (the bare loop: no JSON), ``bytewax`` or ``quix``. Prints elapsed and processor seconds as JSON.

WHICH is ``pyflink`` (functions in processes of Python) or ``pyflink-threads`` (in the JVM) for an interpreter that has
``apache-flink``; the environment variable ``CONNECTOR`` names the jar ``flink-sql-connector-kafka``, ``PARALLELISM``
says how many subtasks. The program is that of our own job with functions, and the time is from where Python functions
are opened to the last record. The processor time is not known.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import uuid
from pathlib import Path


def confluent(bootstrap: str, topic: str, count: int) -> None:
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    seen = 0
    while seen < count:
        seen += len(consumer.consume(10_000, 1.0))
    consumer.close()


def bytewax(bootstrap: str, topic: str, count: int) -> None:
    import bytewax.operators as op
    from bytewax.connectors.kafka import KafkaSource
    from bytewax.dataflow import Dataflow
    from bytewax.testing import TestingSink, run_main

    seen = [0]

    def counted(_: str, messages: list) -> list:  # type: ignore[type-arg]
        seen[0] += len([json.loads(message.value) for message in messages])
        return []

    flow = Dataflow("count")
    read = op.input("in", flow, KafkaSource([bootstrap], [topic], tail=False, batch_size=10_000))
    op.output("out", op.flat_map_batch("count", read, lambda batch: counted("", batch)), TestingSink([]))
    run_main(flow)
    assert seen[0] == count, seen


def quix(bootstrap: str, topic: str, count: int) -> None:
    from quixstreams import Application

    application = Application(
        bootstrap, consumer_group=uuid.uuid4().hex, auto_offset_reset="earliest", loglevel="ERROR",
        auto_create_topics=False,
    )  # fmt: skip
    seen = [0]

    def counted(_: object) -> None:
        seen[0] += 1

    application.dataframe(application.topic(topic, value_deserializer="json")).update(counted)
    application.run(count=count)
    assert seen[0] >= count, seen


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
        sys.exit()
    began, used = time.perf_counter(), time.process_time()
    {"confluent": confluent, "bytewax": bytewax, "quix": quix}[which](servers, name, int(number))
    print(json.dumps([time.perf_counter() - began, time.process_time() - used]))
