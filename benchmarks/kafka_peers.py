"""Reading JSON of Kafka and counting it, by other systems, for ``kafka_read_bench --peers PYTHON``.

    PYTHON benchmarks/kafka_peers.py WHICH BOOTSTRAP TOPIC COUNT

Run by an interpreter that has ``confluent-kafka``, ``bytewax`` and ``quixstreams``, and nothing of ours. WHICH is
``confluent`` (the bare loop: no JSON), ``bytewax`` or ``quix``. Prints elapsed and processor seconds as JSON.
"""

from __future__ import annotations

import json
import sys
import time
import uuid


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


if __name__ == "__main__":
    which, servers, name, number = sys.argv[1:]
    began, used = time.perf_counter(), time.process_time()
    {"confluent": confluent, "bytewax": bytewax, "quix": quix}[which](servers, name, int(number))
    print(json.dumps([time.perf_counter() - began, time.process_time() - used]))
