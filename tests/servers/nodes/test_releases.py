"""The chart on a real Kubernetes with two nodes: installed, upgraded, rolled back, removed, under an exactly-once job
whose pods are deleted, killed, evicted and scaled, and whose node, API server and etcd fail."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.conftest import tell
from tests.servers.kubernetes.server import API_SERVER, ETCD, rights
from tests.servers.nodes.cluster import KubernetesCluster
from tests.servers.nodes.conftest import IMAGE, ON_NODES, TAGS
from tests.servers.nodes.counting import Counting, counting
from tests.servers.nodes.deployed import until
from tests.servers.nodes.release import COMPONENTS, Release
from tests.servers.nodes.store import BUCKET, Store

pytestmark = ON_NODES
HEARTBEAT_TIMEOUT = 12.0
SMALL = {"request": "50m", "limit": ""}


def values(**more: Any) -> dict[str, Any]:
    """Of a small cluster whose checkpoints are in the store."""
    chart_values: dict[str, Any] = {
        "image": {"repository": IMAGE, "tag": TAGS[0]},
        "s3": {"existingSecret": "store"},
        "config": {
            "heartbeat.interval": "1 s",
            "heartbeat.timeout": f"{HEARTBEAT_TIMEOUT:g} s",
            "taskmanager.numberOfTaskSlots": 1,
            "taskmanager.memory.process.size": "1200m",
            "execution.checkpointing.dir": f"s3://{BUCKET}/checkpoints",
            "execution.checkpointing.interval": "1 s",
            "execution.checkpointing.timeout": "60 s",
            "execution.checkpointing.tolerable-failed-checkpoints": 1000000,
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": 1000000,
            "restart-strategy.fixed-delay.delay": "1 s",
            "s3.endpoint": Store.endpoint,
        },
        "dispatcher": {"cpu": SMALL},
        "resourceManager": {"cpu": SMALL},
        "jobMaster": {"cpu": SMALL},
        "taskManager": {"cpu": SMALL, "replicas": 2},
    }
    return {**chart_values, **more}


@pytest.fixture(scope="module")
def release(
    cluster: KubernetesCluster, store: Store, helm: Path, tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Release]:  # fmt: skip
    """A session cluster with two TaskManagers of a slot each."""
    installed = Release(cluster, helm, tmp_path_factory.mktemp("release"), values())
    store.credentials(installed.name)
    began = time.monotonic()
    installed.install()
    tell(request, f"helm install --wait took {time.monotonic() - began:.1f} s")
    installed.wait_slots(2)
    yield installed
    installed.helm("uninstall", installed.name, "--wait", check=False)


@pytest.fixture
def job(release: Release, store: Store) -> Iterator[Counting]:
    """It runs; what it has written is right in the end."""
    with counting(release, store) as counting_job:
        yield counting_job


def test_the_cluster_works(release: Release) -> None:
    release.helm("test", release.name, "--timeout", "3m")
    assert release.rest("GET", "/overview")[0] == 200
    spec = release.get("service", f"{release.full}-rest")["spec"]
    page = release.cluster.nodes[0].inside("curl", "-s", f"http://{spec['clusterIP']}:8081/", check=False)
    assert "<html" in page.stdout.lower(), page


def test_a_node_is_lost(release: Release, job: Counting) -> None:
    """The TaskManager on it is given up, and its job goes on with another one."""
    second = release.cluster.nodes[1]
    assert second.name in {pod["spec"]["nodeName"] for pod in release.pods("taskmanager")}
    with second.cut_off():
        release.cluster.wait_ready(second, ready=False)
        job.goes_on()
        release.wait_ready("taskmanager", 2)
    release.cluster.wait_ready(second)
    release.wait_ready("taskmanager", 2)


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_pod_is_deleted(release: Release, job: Counting, component: str, request: pytest.FixtureRequest) -> None:
    began = time.monotonic()
    release.delete_pod(component)
    ready = time.monotonic() - began
    tell(request, f"{component}: pod deleted to ready {ready:.1f} s, to records flowing {job.flows_after(began):.1f} s")
    job.goes_on()


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_container_is_killed(release: Release, job: Counting, component: str) -> None:
    release.kill(component)
    release.wait_ready(component, 2 if component == "taskmanager" else 1)
    job.goes_on()


def test_the_image_and_the_chart_are_upgraded_and_rolled_back(release: Release, job: Counting) -> None:
    secret = release.get("secret", release.full)["data"]
    before = {pod["metadata"]["uid"] for component in COMPONENTS for pod in release.pods(component)}
    release.upgrade({**values(), "image": {"repository": IMAGE, "tag": TAGS[1]}})
    pods = [pod for component in COMPONENTS for pod in release.pods(component)]
    staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    images = {pod["spec"]["containers"][0]["image"] for pod in staying}
    assert images == {f"{IMAGE}:{TAGS[1]}"}
    job.goes_on()
    failed = release.upgrade({**values(), "image": {"repository": IMAGE, "tag": "missing"}}, check=False, timeout="20s")
    assert failed.returncode != 0
    release.helm("rollback", release.name, "2", "--wait", "--timeout", "5m")
    job.goes_on()
    changed = copy.deepcopy(values())
    changed["config"]["heartbeat.timeout"] = f"{HEARTBEAT_TIMEOUT + 1:g} s"
    changed["pod"] = {"labels": {"example.org/team": "data"}}
    release.upgrade(changed)
    job.goes_on()
    release.helm("rollback", release.name, "1", "--wait", "--timeout", "5m")
    release.values = values()
    after = {pod["metadata"]["uid"] for component in COMPONENTS for pod in release.pods(component)}
    assert not before & after
    assert release.get("secret", release.full)["data"] == secret


def test_taskmanagers_are_scaled(release: Release, job: Counting) -> None:
    for count in (1, 4, 2):
        release.kubectl("scale", "deployment", f"{release.full}-taskmanager", f"--replicas={count}")
        release.wait_ready("taskmanager", count)
        release.wait_slots(count)
        if count > 1:
            job.goes_on()


def test_pods_are_evicted(release: Release, job: Counting) -> None:
    for component in ("taskmanager", "jobmaster"):
        (name, *_), count = release.names(component), len(release.names(component))
        uid = release.get("pod", name)["metadata"]["uid"]
        eviction = {
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": release.name},
        }  # fmt: skip
        path = f"/api/v1/namespaces/{release.name}/pods/{name}/eviction"
        release.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(eviction))
        release.wait_ready(component, count, uid)
        job.goes_on()


def test_a_taskmanager_is_killed_for_its_memory(release: Release, job: Counting) -> None:
    name = release.names("taskmanager")[0]
    before = release.restarts(name)
    release.take_memory(name)
    until(lambda: release.restarts(name) > before, "Kubernetes starts the container again")
    (status,) = release.get("pod", name)["status"]["containerStatuses"]
    assert status["lastState"]["terminated"]["reason"] == "OOMKilled"
    release.wait_ready("taskmanager", 2)
    job.goes_on()


def test_the_api_server_and_etcd_stand_still_for_a_minute(release: Release, job: Counting) -> None:
    with release.cluster.control.stopped(API_SERVER, ETCD):
        time.sleep(60)
    for component in COMPONENTS:
        release.wait_ready(component, 2 if component == "taskmanager" else 1)
    job.goes_on()


def test_nothing_is_left(cluster: KubernetesCluster, store: Store, helm: Path, tmp_path: Path) -> None:
    brief = Release(cluster, helm, tmp_path, values(tests={"runJob": False}), name="brief")
    store.credentials(brief.name)
    brief.install()
    brief.helm("uninstall", brief.name, "--wait")
    until(lambda: not brief.left(), "nothing of it is left")


def test_taskmanagers_of_the_chart_are_made_when_jobs_need_them(
    cluster: KubernetesCluster, store: Store, helm: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """``taskManager.kind: Native``: they go with the job, outlive an upgrade, and nothing of them stays."""
    chart_values = values(taskManager={"kind": "Native", "cpu": SMALL})
    chart_values["config"]["resourcemanager.taskmanager-timeout"] = "15 s"
    on_demand = Release(cluster, helm, tmp_path, chart_values, name="ondemand")
    store.credentials(on_demand.name)
    try:
        on_demand.install()
        assert on_demand.names("taskmanager") == []
        with counting(on_demand, store) as job:
            before = on_demand.names("taskmanager")
            assert len(before) == 2
            began = time.monotonic()
            on_demand.kubectl("delete", "pod", before[0], timeout=120)
            flows = job.flows_after(began)
            tell(request, f"chart, native TaskManager, pod deleted to records flowing: {flows:.1f} s")
            job.goes_on()
            after = on_demand.names("taskmanager")
            assert (len(after), before[0] in after, before[1] in after) == (2, False, True)
            on_demand.upgrade({**chart_values, "image": {"repository": IMAGE, "tag": TAGS[1]}})
            job.goes_on()
            assert on_demand.names("taskmanager") == after
        until(lambda: not on_demand.names("taskmanager"), "pods that nobody uses are removed")
        with counting(on_demand, store):
            for name in on_demand.names("taskmanager"):
                (container,) = on_demand.get("pod", name)["spec"]["containers"]
                assert container["image"] == f"{IMAGE}:{TAGS[1]}"
        account = f"{on_demand.full}-jobmanager"
        used, allowed = cluster.control.used(account, on_demand.name), rights(on_demand.get("role", account)["rules"])
        at_its_end = {("delete", "secrets")}
        assert used | at_its_end == allowed, f"{account} does not use {sorted(allowed - used)}"
    finally:
        on_demand.helm("uninstall", on_demand.name, "--wait", check=False)
    until(lambda: not on_demand.left(), lambda: f"nothing of it is left: {on_demand.left()}")


@pytest.fixture(scope="module")
def pairs(
    cluster: KubernetesCluster, store: Store, helm: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Release]:
    """High availability on Kubernetes: two pods of each kind, without a volume."""
    twice = {"cpu": SMALL, "replicas": 2}
    available = {"highAvailability": {"type": "kubernetes", "storageDir": f"s3://{BUCKET}/ha"}}
    coordinators = {"dispatcher": twice, "resourceManager": twice, "jobMaster": twice}
    staying = [  # Kubernetes' default: a node that is late, since the API server was away, keeps its pods
        {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for taint in ("not-ready", "unreachable")
    ]
    installed = Release(
        cluster,
        helm,
        tmp_path_factory.mktemp("pairs"),
        values(**available, **coordinators, pod={"tolerations": staying}),
        name="pairs",
    )
    store.credentials(installed.name)
    installed.install()
    try:
        installed.wait_slots(2)
        yield installed
    finally:
        installed.helm("uninstall", installed.name, "--wait", check=False)


@pytest.fixture
def job_of_pairs(pairs: Release, store: Store) -> Iterator[Counting]:
    with counting(pairs, store) as counting_job:
        yield counting_job


def test_leaders_die_where_others_stand_by(
    pairs: Release, job_of_pairs: Counting, request: pytest.FixtureRequest
) -> None:
    assert {pairs.rest("GET", "/overview")[0] for _ in range(20)} == {200}, "those that stand by hand on"
    for component in COMPONENTS:
        leader = pairs.leader(component)
        began = time.monotonic()
        pairs.kubectl("delete", "pod", leader, timeout=120)
        flows = job_of_pairs.flows_after(began)
        tell(request, f"{component}, leader's pod deleted to records flowing: {flows:.1f} s")
        pairs.wait_ready(component, 2)
        job_of_pairs.goes_on()


def test_leaders_lose_the_api_server_for_a_minute(
    pairs: Release, job_of_pairs: Counting, request: pytest.FixtureRequest
) -> None:
    """They end before others could lead, and their containers start again; TaskManagers stay, with their slots."""
    before = {pod["metadata"]["uid"]: pairs.restarts(pod["metadata"]["name"]) for pod in pairs.pods("taskmanager")}
    led = {component: pairs.leader(component) for component in COMPONENTS[:3]}
    restarts = {component: pairs.restarts(pod) for component, pod in led.items()}
    with pairs.cluster.control.stopped(API_SERVER, ETCD):
        time.sleep(60)
    began = time.monotonic()
    tell(request, f"API server back after 60 s to records flowing: {job_of_pairs.flows_after(began):.1f} s")
    for component in COMPONENTS:
        pairs.wait_ready(component, 2)
    job_of_pairs.goes_on()
    for component, pod in led.items():
        assert pairs.restarts(pod) > restarts[component], f"the {component} led without its lease"
    after = {pod["metadata"]["uid"]: pairs.restarts(pod["metadata"]["name"]) for pod in pairs.pods("taskmanager")}
    assert after == before


def test_accounts_may_do_what_they_need_and_no_more(pairs: Release, store: Store) -> None:
    """The API server has written down what they asked for, to the end of a job."""
    with counting(pairs, store):
        pass
    for component in ("jobmanager", "taskmanager"):
        account = f"{pairs.full}-{component}"
        used, allowed = pairs.cluster.control.used(account, pairs.name), rights(pairs.get("role", account)["rules"])
        assert used == allowed, f"{account} does not use {sorted(allowed - used)}"
