"""TaskManagers on hosts of their own, which the network cuts off: each cable of its own way, shortly and for long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest

from tests.servers.network.network_cluster import (
    HEARTBEAT_TIMEOUT,
    NetworkCluster,
    has_no_slots,
    network_cluster,
    totals,
)

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.may_skip(reason="a machine where network namespaces can't be made"),
]
SHORT = HEARTBEAT_TIMEOUT / 4
WAYS = ((True, False), (False, True), (True, True))
"""Of the first TaskManagers, all but one: nothing comes in, nothing goes out, both ways."""
COUNT, KEYS, RATE = 6000, 97, 400.0


@pytest.fixture(scope="module", params=[3, pytest.param(16, marks=pytest.mark.long)])
def cluster(namespaces: None, request: pytest.FixtureRequest) -> Iterator[NetworkCluster]:
    """So many TaskManagers with one slot each; every test leaves all of them free."""
    with network_cluster(request.param) as network:
        yield network


def free(cluster: NetworkCluster) -> bool:
    """Whether all slots are there and nobody's."""
    size = len(cluster.network.hosts)
    return cluster.slots() == (size, size)


@pytest.mark.long  # a short cut: servers/test_faults.py
def test_a_job_over_all_taskmanagers_bears_cuts_that_are_short_and_is_right(cluster: NetworkCluster) -> None:
    size = len(cluster.network.hosts)
    ways = WAYS[: size - 1]
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(cluster.run_sums, "cut", COUNT, KEYS, RATE, size)
        job = cluster.job("cut")
        assert job.taskmanagers == {f"tm-{number}" for number in range(size)}
        with ExitStack() as cuts:
            for host, (incoming, outgoing) in zip(cluster.network.hosts, ways, strict=False):
                cuts.enter_context(host.cut_off(incoming=incoming, outgoing=outgoing))
            time.sleep(SHORT)
        assert totals(COUNT, KEYS) in done.result()
    cluster.until(lambda: free(cluster), "all slots are free")


def test_a_host_that_is_cut_off_for_long_is_given_up_by_name_and_comes_back(cluster: NetworkCluster) -> None:
    size = len(cluster.network.hosts)
    ways = WAYS[: size - 1]
    jobs = {}
    for number in range(size):
        job = cluster.start_endless(f"endless {number}")
        (taskmanager,) = job.taskmanagers
        jobs[int(taskmanager.removeprefix("tm-"))] = job
    assert sorted(jobs) == list(range(size)), "each has a TaskManager of its own"
    assert cluster.slots() == (size, 0)

    with ExitStack() as cuts:
        for host, (incoming, outgoing) in zip(cluster.network.hosts, ways, strict=False):
            cuts.enter_context(host.cut_off(incoming=incoming, outgoing=outgoing))
        for number in range(len(ways)):
            cause = jobs[number].fails()
            if "sends no heartbeats" in cause:  # what it can still say comes first where its own patience ends first
                assert ways[number] == (True, False)
                assert f"of TaskManager tm-{number} " in cause
            else:
                assert f"TaskManager tm-{number} gave no sign of life" in cause
            cluster.until(partial(has_no_slots, cluster.the("taskmanager", number)), "it frees its slot")
        cluster.until(lambda: cluster.slots() == (size - len(ways), 0), "they are not counted any more")
    cluster.until(lambda: cluster.slots() == (size, len(ways)), "they are back, and free")

    for number in range(len(ways), size):
        jobs[number].goes_on()
        jobs[number].cancel()
    cluster.until(lambda: free(cluster), "all slots are free")
    assert totals(1000, KEYS) in cluster.run_sums("afterwards", 1000, KEYS, 100_000, size)


@pytest.mark.long
def test_two_taskmanagers_that_do_not_reach_each_other_end_their_job(cluster: NetworkCluster) -> None:
    size = len(cluster.network.hosts)
    job = cluster.start_endless("torn", size)
    first, second = cluster.network.hosts[:2]
    with first.cut_off(peer=second):
        cause = job.fails()
        assert "connection lost" in cause
        assert f"({first.address}:" in cause or f"({second.address}:" in cause, cause
    cluster.until(lambda: free(cluster), "all slots are free")
    assert totals(1000, KEYS) in cluster.run_sums("mended", 1000, KEYS, 100_000, size)
