"""YARN without HDFS: containers get their files from this machine's disk."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.hadoop.server import Hadoop, ensure_hadoop
from tests.servers.yarn.cluster import PROPERTIES, YarnClient
from tests.servers.zookeeper.server import ZooKeeper


@pytest.fixture(scope="session")
def nodes() -> Iterator[Hadoop]:
    """YARN with two nodes, which all tests share: each ends its applications, and starts again what it has killed."""
    with Hadoop(ensure_hadoop(), memory_mb=6000, vcores=8, properties=PROPERTIES) as cluster:
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
    yarn_client = YarnClient(nodes)
    try:
        yield yarn_client
    finally:
        yarn_client.close()
