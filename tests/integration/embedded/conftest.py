"""One embedded cluster for all tests of a module."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from firesteel.client.embedded import stop_embedded_cluster
from tests import leaks
from tests.integration.embedded.programs import new_environment


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Runs first jobs, so that whatever a cluster starts, its pools of threads too, stands before the first test."""
    before = leaks.snapshot()
    try:
        threads = -1
        while threads != threading.active_count():
            threads = threading.active_count()
            results = new_environment(4).from_sequence(1, 4).map(str).execute_and_collect()
            assert sorted(results) == ["1", "2", "3", "4"]
        yield
    finally:
        stop_embedded_cluster()
    _refuse(leaks.leaks_since(before))


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """As for all integration tests; but services keep connections alive, which are checked at the module's end."""
    before = leaks.snapshot()
    yield
    deadline = time.monotonic() + leaks.GRACE_SECONDS
    while left := [one for one in leaks.leaks_since(before, grace=0) if not one.startswith("open descriptor")]:
        if time.monotonic() > deadline:
            _refuse(left)
        time.sleep(0.05)


def _refuse(left: list[str]) -> None:
    if left:
        pytest.fail("the test left behind:\n  " + "\n  ".join(left), pytrace=False)
