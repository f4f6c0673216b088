"""YARN without HDFS: containers get their files from this machine's disk."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.hadoop.server import Hadoop, ensure_hadoop
from tests.servers.yarn.cluster import YarnClient
from tests.servers.zookeeper.server import ZooKeeper


@pytest.fixture(scope="session")
def nodes() -> Iterator[Hadoop]:
    """YARN with two nodes, which all tests share: each ends its applications, and starts again what it has killed."""
    properties: dict[str, dict[str, object]] = {
        "core-site": {"fs.defaultFS": "file:///"},
        # where the machine is busy a node must not be lost by chance
        "yarn-site": {"yarn.nm.liveness-monitor.expiry-interval-ms": 30000,
                      "yarn.am.liveness-monitor.expiry-interval-ms": 600000},
    }  # fmt: skip
    with Hadoop(ensure_hadoop(), memory_mb=6000, vcores=8, properties=properties) as cluster:
        cluster.start_yarn()
        yield cluster


@pytest.fixture(scope="session")
def zookeeper_of_yarn() -> Iterator[ZooKeeper]:
    """One server of ZooKeeper."""
    service = ZooKeeper()
    try:
        service.start()
        yield service
    finally:
        service.close()


@pytest.fixture
def client(nodes: Hadoop) -> Iterator[YarnClient]:
    """The command, for this YARN; what it has started is ended, and leaves nothing."""
    made = YarnClient(nodes)
    try:
        yield made
    finally:
        made.close()
