"""The operator of the chart on a real Kubernetes with two nodes: clusters that it makes, and jobs of a session, count
each record once, over upgrades by checkpoints and savepoints, one that fails, and the loss of what runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.servers.conftest import tell
from tests.servers.kubernetes.server import rights
from tests.servers.nodes.cluster import KubernetesCluster
from tests.servers.nodes.conftest import IMAGE, ON_NODES, TAGS
from tests.servers.nodes.counting import PROGRAM, exactly_once
from tests.servers.nodes.deployed import until
from tests.servers.nodes.native import NAMESPACE, Native, make_namespace
from tests.servers.nodes.release import Release
from tests.servers.nodes.store import BUCKET, Store
from tests.servers.nodes.test_native import rules_of_docs
from tests.servers.nodes.test_releases import SMALL, values

pytestmark = ON_NODES
_GIVEN_ELSEWHERE = (
    "kubernetes.container.image.ref",
    "kubernetes.jobmanager.service-account",
    "taskmanager.memory.process.size",
    "jobmanager.memory.process.size",
)


class Thing:
    """An object that the operator looks after.

    Args:
        cluster: the Kubernetes.
        kind: of it.
        short: of its kind, as for ``kubectl get``.
        name: of it.
        spec: its first one.
    """

    def __init__(self, cluster: KubernetesCluster, kind: str, short: str, name: str, spec: dict[str, Any]) -> None:
        self.cluster, self.name = cluster, name
        self._kind, self._short, self._spec = kind, short, spec

    def apply(self, job: dict[str, Any] | None = None, **spec: Any) -> None:
        """The object, with these changes from now on."""
        self._spec = {**self._spec, **spec}
        if job is not None or "job" in self._spec:
            self._spec["job"] = {**self._spec.get("job", {}), **(job or {})}
        body = {
            "apiVersion": "firesteel.io/v1beta1", "kind": self._kind,
            "metadata": {"name": self.name, "namespace": NAMESPACE}, "spec": self._spec,
        }  # fmt: skip
        self.cluster.apply(json.dumps(body))

    def status(self) -> dict[str, Any]:
        """As ``kubectl`` shows it; nothing while it is not about the newest ``spec``."""
        resource = self.cluster.get(self._short, self.name, "-n", NAMESPACE)
        status: dict[str, Any] = resource.get("status") or {}
        return status if status.get("observedGeneration") == resource["metadata"]["generation"] else {}

    def is_suspended(self) -> bool:
        """Whether the operator says so."""
        return bool(self.status().get("lifecycleState") == "SUSPENDED")

    def job_that_runs(self, without: str = "", lifecycle: str = "STABLE") -> str:
        """Wait until a job runs that is not this one, and the object is as it says; the job's id."""

        def runs() -> str:
            now = self.status()
            job = now.get("jobStatus") or {}
            is_so = (now.get("lifecycleState"), job.get("state")) == (lifecycle, "RUNNING")
            return str(job["jobId"]) if is_so and job["jobId"] != without else ""

        return str(until(runs, lambda: f"it is {lifecycle}, and a job runs: {self.status()}"))

    def reasons(self) -> set[str]:
        """Of the events about it."""
        events = self.cluster.get("events", "-n", NAMESPACE)["items"]
        return {event["reason"] for event in events if event["involvedObject"]["name"] == self.name}

    def delete(self) -> None:
        """With what is made for it."""
        self.cluster.kubectl("delete", self._short, self.name, "-n", NAMESPACE, "--timeout=200s", check=False)


class Operated(Thing):
    """A ``FiresteelDeployment``, and the cluster that is made for it.

    Args:
        cluster: the Kubernetes.
        folder: for files of its own.
        name: of both.
        options: of the cluster, on top of those of all.
    """

    def __init__(self, cluster: KubernetesCluster, folder: Path, name: str, **options: str) -> None:
        self._folder = folder
        options_of_native = Native(cluster, folder, name, **options).options
        spec: dict[str, Any] = {
            "image": f"{IMAGE}:{TAGS[0]}",
            "serviceAccount": "firesteel",
            "firesteelConfiguration": {
                **{key: value for key, value in options_of_native.items() if key not in _GIVEN_ELSEWHERE},
                "execution.checkpointing.savepoint-dir": f"s3://{BUCKET}/savepoints",
            },
            "jobManager": {"resource": {"memory": options_of_native["jobmanager.memory.process.size"]}},
            "taskManager": {"resource": {"memory": options_of_native["taskmanager.memory.process.size"]}},
        }
        super().__init__(cluster, "FiresteelDeployment", "fsdep", name, spec)

    def native(self) -> Native:
        """The cluster that is there now: each has another address and another token."""
        return Native(self.cluster, self._folder, self.name)

    def wait_checkpoints(self, job: str) -> None:
        """Until three of them are complete."""
        native, path = self.native(), f"/jobs/{job}/checkpoints"
        until(lambda: native.ask(path).get("counts", {}).get("completed", 0) >= 3, "checkpoints complete")

    def runs(self, without: str = "", lifecycle: str = "STABLE") -> str:
        """As ``job_that_runs``; three checkpoints of the job are complete, too."""
        job = self.job_that_runs(without, lifecycle)
        self.wait_checkpoints(job)
        return job

    def restored(self, job: str) -> str:
        """What a job has begun from."""
        latest = self.native().ask(f"/jobs/{job}/checkpoints")["latest"]
        return str((latest["restored"] or {})["external_path"])

    def images(self) -> set[str]:
        native = self.native()
        pods = [pod for component in ("jobmanager", "taskmanager") for pod in native.pods(component)]
        return {pod["spec"]["containers"][0]["image"] for pod in pods}

    def is_gone(self) -> bool:
        """Whether there is no pod of it."""
        return not self.native().get("pods", "-l", f"app={self.name}")["items"]


@contextmanager
def operated(cluster: KubernetesCluster, folder: Path, name: str, **options: str) -> Iterator[Operated]:
    """One, which is not applied yet; nothing of it is left at the end."""
    operated_cluster = Operated(cluster, folder, name, **options)
    try:
        yield operated_cluster
    except BaseException:
        print(operated_cluster.status(), operated_cluster.native().state())
        raise
    finally:
        operated_cluster.delete()
    operated_cluster.native().wait_gone()


@pytest.fixture(scope="module")
def program(store: Store, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The job that counts, in the bucket: its name there."""
    file = tmp_path_factory.mktemp("program") / "counting.py"
    file.write_text(PROGRAM)
    store.client().fput_object(BUCKET, "programs/operated.py", str(file))
    return "programs/operated.py"


@pytest.fixture(scope="module")
def operator(
    cluster: KubernetesCluster, store: Store, helm: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Release]:
    """The chart with its operator, for another namespace."""
    credentials = {"volumes": [{"name": "s3", "secret": {"secretName": "store"}}],
                   "volumeMounts": [{"name": "s3", "mountPath": "/etc/firesteel/s3", "readOnly": True}]}  # fmt: skip
    its_config = {"s3.endpoint": Store.endpoint, "firesteel.s3.credentials-file": "/etc/firesteel/s3/credentials"}
    enabled = {
        "enabled": True, "namespaces": [NAMESPACE], "config": its_config,
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}, **credentials,
    }  # fmt: skip
    none = {"cpu": SMALL, "replicas": 0}
    release = Release(
        cluster, helm, tmp_path_factory.mktemp("operator"), values(operator=enabled, taskManager=none), name="operating"
    )
    store.credentials(release.name)
    make_namespace(cluster, store, rules_of_docs())
    try:
        release.install()
        yield release
    except BaseException:
        print(release.state())
        raise
    finally:
        release.helm("uninstall", release.name, "--wait", check=False)


def test_a_cluster_of_the_operator_goes_on_from_its_last_checkpoint_in_an_object_store(
    cluster: KubernetesCluster, operator: Release, store: Store, program: str, tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    job = {"program": f"s3://{BUCKET}/{program}", "args": [f"s3://{BUCKET}/counts"], "parallelism": 2}
    with operated(cluster, tmp_path, "counts") as deployment:
        began = time.monotonic()
        deployment.apply(job={**job, "upgradeMode": "last-state"})
        first = deployment.runs()
        tell(request, f"FiresteelDeployment applied to its third checkpoint: {time.monotonic() - began:.1f} s")

        began = time.monotonic()
        deployment.apply(image=f"{IMAGE}:{TAGS[1]}")
        second = deployment.runs(without=first)
        tell(request, f"FiresteelDeployment, upgrade by last-state: {time.monotonic() - began:.1f} s")
        assert f"s3://{BUCKET}/checkpoints/{first}/chk-" in deployment.restored(second)
        assert deployment.images() == {f"{IMAGE}:{TAGS[1]}"}

        began = time.monotonic()
        deployment.native().kubectl("delete", "job", deployment.name, "--wait=false")
        third = deployment.runs(without=second)
        tell(request, f"FiresteelDeployment, its Job deleted to the third checkpoint: {time.monotonic() - began:.1f} s")
        assert f"/{second}/chk-" in deployment.restored(third)

        deployment.apply(job={"upgradeMode": "savepoint", "state": "suspended"})
        until(deployment.is_suspended, lambda: f"it is suspended: {deployment.status()}")
        assert deployment.is_gone()
        print(f"{exactly_once(store, 'counts')} records, each once")


def test_an_upgrade_that_does_not_start_is_rolled_back_and_savepoints_are_taken(
    cluster: KubernetesCluster, operator: Release, store: Store, program: str, tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    rollback = {
        "kubernetes.operator.deployment.rollback.enabled": "true",
        "kubernetes.operator.deployment.readiness.timeout": "30 s",
    }
    job = {"program": f"s3://{BUCKET}/{program}", "args": [f"s3://{BUCKET}/rolled"], "parallelism": 2}
    with operated(cluster, tmp_path, "rolled", **rollback) as deployment:
        deployment.apply(job={**job, "upgradeMode": "last-state"})
        first = deployment.runs()
        deployment.apply(job={"savepointTriggerNonce": 1})

        def savepoint() -> str:
            info = (deployment.status().get("jobStatus") or {}).get("savepointInfo") or {}
            return str((info.get("lastSavepoint") or {}).get("location") or "")

        location = until(savepoint, lambda: f"the savepoint is taken: {deployment.status()}")
        assert location.startswith(f"s3://{BUCKET}/savepoints/")
        assert deployment.job_that_runs() == first, "the job goes on"

        began = time.monotonic()
        deployment.apply(image=f"{IMAGE}:missing")
        until(
            lambda: "missing" in deployment.status().get("error", ""),
            lambda: f"Kubernetes' reason is told: {deployment.status()}",
        )
        again = deployment.runs(without=first, lifecycle="ROLLED_BACK")
        tell(
            request,
            f"FiresteelDeployment, upgrade that does not start to the third checkpoint after its rollback, with 30 s "
            f"to become ready: {time.monotonic() - began:.1f} s",
        )
        assert f"/{first}/chk-" in deployment.restored(again)
        assert deployment.images() == {f"{IMAGE}:{TAGS[0]}"}
        assert {"Rollback", "RolledBack", "SavepointCompleted"} <= deployment.reasons()

        deployment.apply(job={"upgradeMode": "savepoint", "state": "suspended"}, image=f"{IMAGE}:{TAGS[1]}")
        until(deployment.is_suspended, lambda: f"it is suspended: {deployment.status()}")
        assert deployment.is_gone()
        deployment.apply(job={"state": "running"})
        last = deployment.runs(without=again)
        assert f"s3://{BUCKET}/savepoints/" in deployment.restored(last)
        deployment.apply(job={"state": "suspended"})
        until(deployment.is_suspended, lambda: f"it is suspended again: {deployment.status()}")
        print(f"{exactly_once(store, 'rolled')} records, each once")


def test_a_job_of_a_session_is_upgraded_by_a_savepoint_and_its_neighbour_runs_on(
    cluster: KubernetesCluster, operator: Release, store: Store, program: str, tmp_path: Path
) -> None:
    """``FiresteelSessionJob``: its program comes by HTTP."""
    url = store.client().presigned_get_object(BUCKET, program, expires=timedelta(hours=1))

    def session_job(name: str) -> Thing:
        job = {"program": url, "args": [f"s3://{BUCKET}/{name}"], "parallelism": 1, "upgradeMode": "savepoint"}
        return Thing(cluster, "FiresteelSessionJob", "fsjob", name, {"deploymentName": "shared", "job": job})

    with operated(cluster, tmp_path, "shared") as session:
        first_job, second_job = session_job("one"), session_job("other")
        first_job.apply()
        second_job.apply()
        until(
            lambda: "FiresteelDeployment" in first_job.status().get("error", ""),
            lambda: f"it waits: {first_job.status()}",
        )
        session.apply()
        try:
            first, neighbour = first_job.job_that_runs(), second_job.job_that_runs()
            session.wait_checkpoints(first)
            first_job.apply(job={"parallelism": 2})
            second = first_job.job_that_runs(without=first)
            session.wait_checkpoints(second)
            assert f"s3://{BUCKET}/savepoints/" in session.restored(second)
            for each in (first_job, second_job):
                each.apply(job={"state": "suspended"})
                until(each.is_suspended, f"{each.name} is suspended")
            assert session.native().ask(f"/jobs/{neighbour}")["state"] == "FINISHED", "it was never made anew"
        except BaseException:
            print(first_job.status(), second_job.status())
            raise
        finally:
            first_job.delete()
            second_job.delete()
        for name in ("one", "other"):
            print(f"{exactly_once(store, name)} records of {name}, each once")


def test_the_operator_may_do_what_it_needs_and_no_more(
    cluster: KubernetesCluster, operator: Release, program: str, tmp_path: Path
) -> None:
    """The API server has written down what it asked for, from an object's beginning to its end."""
    job = {"program": f"s3://{BUCKET}/{program}", "args": [f"s3://{BUCKET}/rights"], "parallelism": 1}
    with operated(cluster, tmp_path, "rights") as deployment:
        deployment.apply(job={**job, "upgradeMode": "last-state"})
        first = deployment.runs()
        deployment.apply(restartNonce=1)
        deployment.runs(without=first)
    account = f"{operator.full}-operator"
    seldom = {
        *(("update", f"{kind}/finalizers") for kind in ("deployments", "jobs")),
        *(("update", f"{kind}/finalizers") for kind in ("firesteeldeployments", "firesteelsessionjobs")),
        ("get", "events"), ("update", "events"),  # where the same event comes again
        ("create", "configmaps"), ("create", "leases"),  # of a job that nobody has led yet
        *(("update", f"firesteelsessionjobs{part}") for part in ("", "/status")), ("get", "firesteelsessionjobs"),
        *((verb, "deployments") for verb in ("create", "delete")),  # of sessions
    }  # fmt: skip
    next_leader = {("update", "configmaps")}
    for namespace, may_stay in ((NAMESPACE, seldom), (operator.name, next_leader)):
        roles = cluster.get("roles", "-n", namespace, "-l", f"app.kubernetes.io/instance={operator.name}")["items"]
        (role,) = (role_found for role_found in roles if role_found["metadata"]["name"] == account)
        unused = rights(role["rules"]) - cluster.control.used(account, operator.name, namespace)
        assert unused <= may_stay, f"{account} does not use {sorted(unused - may_stay)} in {namespace}"
