"""One embedded cluster for the tests of most modules, and what they may leave behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.client.embedded import stop_embedded_cluster
from tests import leaks
from tests.integration.embedded.programs import new_environment

OF_THE_CLUSTER = ("open descriptor", "daemon thread 'firesteel-fleet_", "thread 'firesteel-fleet_")
"""Services keep connections alive, and a pool of threads that grows when there is much to do."""


_before: leaks.Snapshot | None = None


@pytest.fixture(scope="module")
def cluster() -> None:
    """The cluster that the tests of most modules share. Runs a job, so that what belongs to it stands already."""
    global _before
    _before = _before or leaks.snapshot()
    results = new_environment(4).from_sequence(1, 4).map(str).execute_and_collect()
    assert sorted(results) == ["1", "2", "3", "4"]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Behind the last test of this folder no cluster is left, and nothing of one."""
    global _before
    if nextitem is not None and nextitem.path.parent == Path(__file__).parent:
        return
    stop_embedded_cluster()
    if _before is not None:
        before, _before = _before, None
        _refuse(leaks.leaks_since(before))


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
