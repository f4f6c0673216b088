"""One embedded cluster for the tests of most modules."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from firesteel.client.embedded import stop_embedded_cluster
from tests import leaks
from tests.integration.embedded.programs import new_environment

OF_THE_CLUSTER = ("open descriptor", "daemon thread 'firesteel-fleet_", "thread 'firesteel-fleet_")
"""Services keep connections alive, and a pool of threads that grows when there is much to do."""


@pytest.fixture(scope="package")
def clusters() -> Iterator[None]:
    """No cluster is left at the end, and nothing of one."""
    before = leaks.snapshot()
    yield
    stop_embedded_cluster()
    _refuse(leaks.leaks_since(before))


@pytest.fixture(scope="module")
def cluster(clusters: None) -> None:
    """Runs a job, so that what belongs to a cluster stands before the first test."""
    results = new_environment(4).from_sequence(1, 4).map(str).execute_and_collect()
    assert sorted(results) == ["1", "2", "3", "4"]


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """As for all integration tests; but what a cluster keeps until its end is looked at then."""
    before = leaks.snapshot()
    yield
    deadline = time.monotonic() + leaks.GRACE_SECONDS
    while left := [one for one in leaks.leaks_since(before, grace=0) if not one.startswith(OF_THE_CLUSTER)]:
        if time.monotonic() > deadline:
            _refuse(left)
        time.sleep(0.05)


def _refuse(left: list[str]) -> None:
    if left:
        pytest.fail("the test left behind:\n  " + "\n  ".join(left), pytrace=False)
