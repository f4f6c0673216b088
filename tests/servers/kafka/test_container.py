"""A job from Kafka to Kafka, exactly once, on a broker that testcontainers runs, as tests of users do."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.common import Configuration, SimpleStringSchema, Types, WatermarkStrategy
from firesteel.datastream import MapFunction, StreamExecutionEnvironment
from firesteel.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaSource,
)
from firesteel.spark.java import find_java
from tests.servers.compose_cluster import BASE_IMAGE, PROJECT_LABEL, command, own_project
from tests.servers.kafka.attempts import texts
from tests.servers.kafka.counting import Count
from tests.servers.kafka.server import KafkaCluster

pytestmark = pytest.mark.may_skip(reason="a machine where no Docker engine can be had, or no Kafka by Maven")

USERS = 7
EACH = 300


@pytest.fixture
def image(engine: None, kafka_libs: str, tmp_path: Path) -> Iterator[str]:
    """Kafka's jars and this machine's Java: no image can be pulled here."""
    context = tmp_path / "image"
    shutil.copytree(Path(__file__).parent / "image", context)
    shutil.copytree(kafka_libs, context / "libs")
    home = find_java().executable.resolve().parents[1]
    not_run = shutil.ignore_patterns("docs", "include", "jmods", "legal", "man", "src.zip")
    shutil.copytree(home, context / "java", ignore=not_run, ignore_dangling_symlinks=True)
    project = own_project()
    name = f"{project}/kafka:8.3"  # the version of Confluent's image, by which testcontainers knows what it can do
    words = ("--build-arg", f"BASE={BASE_IMAGE}", "--label", f"{PROJECT_LABEL}={project}", "--tag", name)
    command("docker", "build", "--quiet", *words, str(context))
    shutil.rmtree(context)
    yield name
    command("docker", "image", "rm", "--force", name)


class FailsOnce(MapFunction[str, str]):
    """Fails at a count that comes late, in the first attempt.

    Args:
        mark: a file that is there from then on.
    """

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def map(self, value: str) -> str:
        if value.endswith(f": {EACH - 5}") and not self._mark.exists():
            self._mark.touch()
            raise RuntimeError("once")
        return value


def count_users(kafka: KafkaCluster, orders: str, counts: str, mark: Path) -> None:
    """The job: reads what the topic has now; each user's running count goes to the other topic."""
    options = {"rest.port": "0", "restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "100 ms"}
    environment = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
    environment.set_parallelism(2).enable_checkpointing(200)
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(kafka.bootstrap)
        .set_topics(orders)
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    stream = environment.from_source(source, WatermarkStrategy.no_watermarks(), "orders")
    counted = stream.key_by(lambda user: user, Types.STRING()).process(Count(), Types.STRING())
    counted.map(FailsOnce(mark), Types.STRING()).sink_to(texts(kafka, counts).build())
    environment.execute("count users")


def test_from_kafka_to_kafka(image: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")  # its image can't be pulled
    from testcontainers.community.kafka import KafkaContainer

    container = KafkaContainer(image).with_kraft()
    container.with_env("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", "1")  # there is one broker
    container.with_env("KAFKA_TRANSACTION_STATE_LOG_MIN_ISR", "1")
    with container:
        kafka = KafkaCluster.at(container.get_bootstrap_server())
        try:
            orders, counts = kafka.create_topic(partitions=4), kafka.create_topic(partitions=4)
            users = [f"user {number}" for number in range(USERS)] * EACH
            kafka.produce(orders, [(user.encode(), user.encode()) for user in users])
            count_users(kafka, orders, counts, tmp_path / "failed")
            lines = Counter((record.value or b"").decode() for record in kafka.records(counts, "read_committed"))
        finally:
            kafka.close()
    assert (tmp_path / "failed").exists()
    expected = Counter(f"user {user}: {number}" for user in range(USERS) for number in range(1, EACH + 1))
    assert lines == expected, f"{(expected - lines).total()} lost, {(lines - expected).total()} too many"
