"""A Kafka for benchmarks: one that is there, or one of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers.kafka.server import ENSURE, KafkaCluster


@contextmanager
def kafka(bootstrap: str | None) -> Iterator[KafkaCluster]:
    """The brokers at an address; None = one broker that is started, as tests do it, and ended."""
    if bootstrap is None:
        libs = subprocess.run(["sh", str(ENSURE)], check=True, capture_output=True, text=True).stdout.strip()
        cluster = KafkaCluster(libs)
        cluster.start()
    else:
        cluster = KafkaCluster.at(bootstrap)
    try:
        yield cluster
    finally:
        cluster.close()
