"""ZooKeeper servers, from PySpark's jars."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.zookeeper.server import ZooKeeper


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeper]:
    """One server, which all tests share: each has clusters of its own."""
    service = ZooKeeper()
    try:
        service.start()
        yield service
    finally:
        service.close()


@pytest.fixture
def three_zookeepers() -> Iterator[ZooKeeper]:
    """Three servers; what is written is on two of them at least."""
    service = ZooKeeper(3)
    try:
        service.start()
        yield service
    finally:
        service.close()
