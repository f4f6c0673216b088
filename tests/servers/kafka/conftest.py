"""Kafka clusters. Where Kafka can be had, it must be; elsewhere these tests are skipped."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.servers.kafka.server import ENSURE, KafkaCluster

IMPOSSIBLE = 3


@pytest.fixture(scope="session")
def kafka_libs() -> str:
    """Folder with the server's jars."""
    done = subprocess.run(["sh", str(ENSURE)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode == IMPOSSIBLE:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="session")
def kafka(kafka_libs: str) -> Iterator[KafkaCluster]:
    """One broker, which all tests share: each has topics of its own, and starts again what it has killed."""
    cluster = KafkaCluster(kafka_libs, secured=True)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def kafka_of_three(kafka_libs: str) -> Iterator[KafkaCluster]:
    """Three brokers; what is written is on two of them at least."""
    cluster = KafkaCluster(kafka_libs, brokers=3, properties={"min.insync.replicas": 2}, proxied=True)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
