"""One embedded cluster for the tests of most modules, one of processes for many, and what tests may leave behind."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from firesteel.client.connections import close_connections
from firesteel.client.embedded import stop_embedded_cluster
from tests import leaks
from tests.integration.embedded.programs import new_environment, submitted_to
from tests.integration.processes.cluster import running_cluster

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


@pytest.fixture(scope="module", params=[pytest.param("embedded", marks=pytest.mark.long), "processes"])
def place(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """Settings that lead programs to one of processes that this folder shares, or to the embedded cluster, on which the
    tests of all other modules run."""
    if request.param == "embedded":
        request.getfixturevalue("cluster")
        return {}
    return _processes.settings()


class _Processes:
    """Two TaskManagers of two slots, and the services; started when a test asks for them."""

    def __init__(self) -> None:
        self._end = ExitStack()
        self._settings: dict[str, str] = {}

    def settings(self) -> Mapping[str, str]:
        """Of programs that go there."""
        if not self._settings:
            cluster = self._end.enter_context(running_cluster(taskmanagers=2))
            host, _, port = cluster.rest_url.removeprefix("http://").partition(":")
            secret_file = str(cluster.config_dir / "cluster-secret")
            settings = {"execution.target": "remote", "rest.address": host, "rest.port": port}
            settings["firesteel.security.secret-file"] = secret_file
            self._end.callback(close_connections)
            with submitted_to(settings):
                results = new_environment(4).from_sequence(1, 4).map(str).execute_and_collect()
                assert sorted(results) == ["1", "2", "3", "4"]
            self._settings = settings
        return self._settings

    def stop(self) -> None:
        """End them, if they were started."""
        self._settings = {}
        self._end.close()


_processes = _Processes()


@pytest.fixture
def anywhere(place: Mapping[str, str]) -> Iterator[None]:
    """The programs of the test run on the embedded cluster, and then on processes."""
    with submitted_to(place):
        yield


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Behind the last test of this folder no cluster is left, and nothing of one."""
    global _before
    if nextitem is not None and nextitem.path.parent == Path(__file__).parent:
        return
    _processes.stop()
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
    while left := [leak for leak in leaks.leaks_since(before, grace=0) if not leak.startswith(OF_THE_CLUSTER)]:
        if time.monotonic() > deadline:
            _refuse(left)
        time.sleep(0.05)


def _refuse(left: list[str]) -> None:
    if left:
        pytest.fail("the test left behind:\n  " + "\n  ".join(left), pytrace=False)
