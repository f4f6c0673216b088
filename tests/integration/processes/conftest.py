from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.processes.cluster import Cluster, running_cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A standalone cluster of four processes with two slots; the tests of a file share it."""
    with running_cluster() as cluster_of_two:
        yield cluster_of_two
