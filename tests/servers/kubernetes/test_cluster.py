"""A session cluster whose JobManager is on two hosts that share nothing but Kubernetes' API server and a place for
payloads. Hosts are folders here, each with a cluster directory of its own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.integration.processes.cluster import Cluster, ServiceProcess, running_cluster
from tests.integration.processes.test_takeover import completed, counting, restored, state
from tests.servers.kubernetes.server import API_SERVER, ETCD, ControlPlane
from tests.servers.zookeeper.test_cluster import PORTS, TwoHosts, _ends_right, _said
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.long,
    pytest.mark.may_skip(reason="Kubernetes can be built by Go only"),
]
LEASE = 5.0


@contextmanager
def _cluster(plane: ControlPlane, storage: Path, name: str) -> Iterator[Cluster]:
    settings = plane.settings(storage, name, LEASE)
    nowhere = {"firesteel.resourcemanager.address": "127.0.0.1:1"}  # who leads is asked of Kubernetes
    with running_cluster(options={"restart-strategy.type": "none", **settings, **nowhere}) as cluster:
        yield cluster


def test_the_host_of_the_jobmanager_is_lost(control_plane: ControlPlane, tmp_path: Path) -> None:
    with _cluster(control_plane, tmp_path / "payloads", "lost-host") as cluster:
        hosts = TwoHosts(cluster)
        job, gate, out, _ = counting(cluster)
        before, began = completed(cluster, job), time.monotonic()
        took = hosts.lose_the_first()
        print("seconds from the kill to the next leader:", {name: round(value, 1) for name, value in took.items()})
        assert max(took.values()) <= LEASE + 2.5, took
        hosts.waiting["dispatcher"].wait_listening()
        wait_until(lambda: state(cluster, job) == "RUNNING", "the next Dispatcher has found the job")
        wait_until(lambda: restored(cluster, job) >= before, "the job goes on from a checkpoint", 200)
        wait_until(lambda: completed(cluster, job) > restored(cluster, job), "it takes further ones")
        print(f"the first checkpoint of the next JobMaster: {time.monotonic() - began:.1f} s after the kill")
        _ends_right(cluster, job, gate, out)
        selector = "?labelSelector=app=lost-host,configmap-type=high-availability"
        maps = f"/api/v1/namespaces/default/configmaps{selector}"

        def left() -> list[str]:
            return [config_map["metadata"]["name"] for config_map in control_plane.ask("GET", maps)["items"]]

        wait_until(lambda: not [name for name in left() if job in name], "the job leaves nothing")


@pytest.mark.parametrize("part", [API_SERVER, ETCD])
def test_kubernetes_is_away_for_long(part: str, control_plane: ControlPlane, tmp_path: Path) -> None:
    """Leaders end in time, and wait when they are started again; tasks go on in their slots, and nothing is lost."""
    with _cluster(control_plane, tmp_path / "payloads", f"away-{part}") as cluster:
        job, gate, out, _ = counting(cluster)
        before = completed(cluster, job)
        with control_plane.stopped(part):
            stopped = time.monotonic()
            for name in PORTS:
                cluster.the(name).wait(60)
            print(f"leaders have ended {time.monotonic() - stopped:.1f} s after {part} stood still")
            assert re.search(r"leads .* no more", cluster.the("dispatcher").log())
            started = [cluster.launch(name) for name in PORTS]
            for service in started:
                wait_until(partial(_waits, service), "it waits for Kubernetes")
            assert cluster.the("taskmanager").is_running()
        resumed = time.monotonic()
        for service in started:
            service.wait_listening()
        wait_until(lambda: state(cluster, job) == "RUNNING", "the job runs", 200)
        wait_until(lambda: completed(cluster, job) > before, "it takes checkpoints", 200)
        print(f"the job takes checkpoints {time.monotonic() - resumed:.1f} s after {part} was back")
        _ends_right(cluster, job, gate, out)


def _waits(service: ServiceProcess) -> bool:
    return _said(service, "it is tried again")
