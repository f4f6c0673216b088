"""The operator of the chart on a real Kubernetes with two nodes: a cluster that it makes runs an exactly-once job,
whose last checkpoint in an object store is where each next one goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.conftest import tell
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
NAME = "counts"
_GIVEN_ELSEWHERE = (
    "kubernetes.container.image.ref",
    "kubernetes.jobmanager.service-account",
    "taskmanager.memory.process.size",
    "jobmanager.memory.process.size",
)


class Operated:
    """The object, and the cluster that is made for it."""

    def __init__(self, cluster: KubernetesCluster, folder: Path, store: Store) -> None:
        self._cluster, self._folder, self._store = cluster, folder, store
        file = folder / "counting.py"
        file.write_text(PROGRAM)
        store.client().fput_object(BUCKET, "programs/operated.py", str(file))
        given = self.native().options
        options = {key: value for key, value in given.items() if key not in _GIVEN_ELSEWHERE}
        options["execution.checkpointing.savepoint-dir"] = f"s3://{BUCKET}/savepoints"
        self._spec: dict[str, Any] = {
            "image": f"{IMAGE}:{TAGS[0]}",
            "serviceAccount": "firesteel",
            "firesteelConfiguration": options,
            "jobManager": {"resource": {"memory": given["jobmanager.memory.process.size"]}},
            "taskManager": {"resource": {"memory": given["taskmanager.memory.process.size"]}},
            "job": {
                "program": f"s3://{BUCKET}/programs/operated.py", "args": [f"s3://{BUCKET}/{NAME}"], "parallelism": 2,
                "upgradeMode": "last-state",
            },
        }  # fmt: skip

    def native(self) -> Native:
        """The cluster that is there now: each has another address and another token."""
        return Native(self._cluster, self._folder, NAME)

    def apply(self, job: dict[str, Any] | None = None, **spec: Any) -> None:
        """The object, with these changes from now on."""
        self._spec = {**self._spec, **spec, "job": {**self._spec["job"], **(job or {})}}
        body = {
            "apiVersion": "firesteel.io/v1beta1", "kind": "FiresteelDeployment",
            "metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": self._spec,
        }  # fmt: skip
        self._cluster.apply(json.dumps(body))

    def status(self) -> dict[str, Any]:
        """As ``kubectl`` shows it."""
        found = self._cluster.get("fsdep", NAME, "-n", NAMESPACE)
        status: dict[str, Any] = found.get("status") or {}
        return status if status.get("observedGeneration") == found["metadata"]["generation"] else {}

    def job(self) -> str:
        """Id of the job."""
        return str((self.status().get("jobStatus") or {}).get("jobId") or "")

    def runs(self, without: str = "") -> str:
        """Wait until a job runs that is not this one, and three checkpoints of it are complete; its id."""

        def stable() -> bool:
            now = self.status()
            job = now.get("jobStatus") or {}
            return (now.get("lifecycleState"), job.get("state")) == ("STABLE", "RUNNING") and job["jobId"] != without

        until(stable, lambda: f"it is stable: {self.status()}")
        job, native = self.job(), self.native()
        path = f"/jobs/{job}/checkpoints"
        until(lambda: native.ask(path).get("counts", {}).get("completed", 0) >= 3, "checkpoints complete")
        return job

    def restored(self, job: str) -> dict[str, Any]:
        """What a job has begun from."""
        latest = self.native().ask(f"/jobs/{job}/checkpoints")["latest"]
        return dict(latest["restored"] or {})

    def is_gone(self) -> bool:
        """Whether there is no pod of it."""
        native = self.native()
        return not native.get("pods", "-l", f"app={NAME}")["items"]


@pytest.fixture
def operator(cluster: KubernetesCluster, store: Store, helm: Path, tmp_path: Path) -> Iterator[Release]:
    """The chart with its operator, for another namespace."""
    credentials = {"volumes": [{"name": "s3", "secret": {"secretName": "store"}}],
                   "volumeMounts": [{"name": "s3", "mountPath": "/etc/firesteel/s3", "readOnly": True}]}  # fmt: skip
    its_config = {"s3.endpoint": Store.endpoint, "firesteel.s3.credentials-file": "/etc/firesteel/s3/credentials"}
    enabled = {
        "enabled": True, "namespaces": [NAMESPACE], "config": its_config,
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}, **credentials,
    }  # fmt: skip
    none = {"cpu": SMALL, "replicas": 0}
    made = Release(cluster, helm, tmp_path, values(operator=enabled, taskManager=none), name="operating")
    store.credentials(made.name)
    make_namespace(cluster, store, rules_of_docs())
    try:
        made.install()
        yield made
    except BaseException:
        print(made.state())
        raise
    finally:
        made.helm("uninstall", made.name, "--wait", check=False)


def test_a_cluster_of_the_operator_goes_on_from_its_last_checkpoint_in_an_object_store(
    cluster: KubernetesCluster, operator: Release, store: Store, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    operated = Operated(cluster, tmp_path, store)
    try:
        began = time.monotonic()
        operated.apply()
        first = operated.runs()
        tell(request, f"FiresteelDeployment applied to its third checkpoint: {time.monotonic() - began:.1f} s")

        began = time.monotonic()
        operated.apply(image=f"{IMAGE}:{TAGS[1]}")
        second = operated.runs(without=first)
        tell(
            request,
            f"FiresteelDeployment, upgrade by last-state: {time.monotonic() - began:.1f} s",
        )
        assert f"s3://{BUCKET}/checkpoints/{first}/chk-" in operated.restored(second)["external_path"]
        images = {
            one["spec"]["containers"][0]["image"]
            for component in ("jobmanager", "taskmanager")
            for one in operated.native().pods(component)
        }
        assert images == {f"{IMAGE}:{TAGS[1]}"}

        began = time.monotonic()
        operated.native().kubectl("delete", "job", NAME, "--wait=false")
        third = operated.runs(without=second)
        tell(request, f"FiresteelDeployment, its Job deleted to the third checkpoint: {time.monotonic() - began:.1f} s")
        assert f"/{second}/chk-" in operated.restored(third)["external_path"]

        operated.apply(job={"upgradeMode": "savepoint", "state": "suspended"})
        until(lambda: operated.status().get("lifecycleState") == "SUSPENDED", lambda: f"{operated.status()}")
        assert operated.is_gone()
        print(f"{exactly_once(store, NAME)} records, each once")
    except BaseException:
        print(operated.status(), operated.native().state())
        raise
    finally:
        cluster.kubectl("delete", "fsdep", NAME, "-n", NAMESPACE, "--timeout=200s", check=False)
    operated.native().wait_gone()
