"""TaskManager pods, and clusters that make themselves, as a real API server, its controllers and its scheduler take
them. There are no nodes: pods are made, and wait. Pods that run are tested on nodes."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from firesteel.config import Settings
from firesteel.core.clock import SystemClock
from firesteel.protocol.provider import ProviderContext, WorkerError, WorkerSpec
from firesteel.runtime.slot.slot_main import slot_main
from firesteel.testing import check_provider
from firesteel_kubernetes.clusters import KubernetesCluster, KubernetesClusterError
from firesteel_kubernetes.provider import KubernetesProvider
from tests.servers.kubernetes.server import ControlPlane
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.long,
    pytest.mark.may_skip(reason="Kubernetes can be built by Go only"),
]
CORE = "/api/v1/namespaces/default"
RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create", "delete"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "update", "delete"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "delete"]},
    {"apiGroups": ["apps"], "resources": ["replicasets"], "verbs": ["get"]},
]
"""What docs/kubernetes-native.md says that the JobManager's account needs."""
_names = (f"native-{number}" for number in itertools.count())


def settings(plane: ControlPlane, cluster: str, **more: str) -> Settings:
    config = str(plane.folder / "admin.kubeconfig")
    options = {
        "kubernetes.config.file": config, "kubernetes.cluster-id": cluster, "taskmanager.memory.process.size": "1728m",
    }  # fmt: skip
    return Settings({**options, **more})


def provider(plane: ControlPlane, directory: Path, cluster: str, **more: str) -> KubernetesProvider:
    provider_settings = settings(plane, cluster, **more)
    return KubernetesProvider(
        ProviderContext(provider_settings, "a secret of the cluster", SystemClock(), directory, slot_main)
    )


def pods(plane: ControlPlane, cluster: str, component: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = plane.ask("GET", f"{CORE}/pods?labelSelector=app={cluster},component={component}")[
        "items"
    ]
    return items


def test_the_provider_keeps_the_contract_with_the_rights_that_are_documented(
    whole_control_plane: ControlPlane, tmp_path: Path
) -> None:
    plane, cluster = whole_control_plane, next(_names)
    plane.account(cluster, RULES)
    config = tmp_path / "config"
    config.write_text(json.dumps(plane.kubeconfig(plane.account_token(cluster))))
    pod = f"{CORE}/pods/{cluster}-taskmanager"
    check_provider(
        lambda: provider(plane, tmp_path, cluster, **{"kubernetes.config.file": str(config)}),
        lambda worker: plane.find(f"{pod}-{worker}") is not None,
        lambda worker: plane.ask("DELETE", f"{pod}-{worker}") and None,
    )
    assert plane.find(f"{CORE}/secrets/{cluster}-taskmanager") is None


def test_why_no_node_takes_a_pod_is_told(whole_control_plane: ControlPlane, tmp_path: Path) -> None:
    plane, cluster = whole_control_plane, next(_names)
    kubernetes = provider(plane, tmp_path, cluster)
    assert kubernetes.recover("http://10.0.0.1:8082") == []
    kubernetes.start_worker(WorkerSpec("worker-a", 2))
    waiting = wait_until(kubernetes.waiting_workers, "the scheduler says why")
    assert waiting == {
        "worker-a": f"pod {cluster}-taskmanager-worker-a: Unschedulable: no nodes available to schedule pods"
    }
    (pod,) = pods(plane, cluster, "taskmanager")
    assert pod["status"]["qosClass"] == "Guaranteed", "requests are limits"
    kubernetes.terminate()


def test_a_quota_refuses_a_pod(whole_control_plane: ControlPlane, tmp_path: Path) -> None:
    plane, cluster = whole_control_plane, next(_names)
    plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": cluster}})
    inside = f"/api/v1/namespaces/{cluster}"
    wait_until(lambda: plane.find(f"{inside}/serviceaccounts/default"), "the namespace has its account")
    plane.ask("POST", f"{inside}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
    wait_until(lambda: "hard" in plane.ask("GET", f"{inside}/resourcequotas/q")["status"], "the quota holds")
    kubernetes = provider(plane, tmp_path, cluster, **{"kubernetes.namespace": cluster})
    kubernetes.recover("http://10.0.0.1:8082")
    kubernetes.start_worker(WorkerSpec("one", 1))
    with pytest.raises(WorkerError, match=r"The pod of worker two is refused: .*exceeded quota: q, requested: pods=1"):
        kubernetes.start_worker(WorkerSpec("two", 1))
    kubernetes.terminate()


def test_a_pod_that_takes_its_place_while_the_resourcemanager_is_away_is_found(
    whole_control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The API server stands still for a while: nothing is taken for ended; what ends later is told."""
    plane, cluster = whole_control_plane, next(_names)
    kubernetes = provider(plane, tmp_path, cluster)
    kubernetes.recover("http://10.0.0.1:8082")
    for name in ("a", "b"):
        kubernetes.start_worker(WorkerSpec(name, 1))
    wait_until(lambda: not kubernetes.ended_workers() and len(kubernetes.waiting_workers()) == 2, "both are seen")
    with plane.stopped("kube-apiserver"):
        assert kubernetes.ended_workers() == []
    with plane.away("kube-apiserver"):
        assert kubernetes.ended_workers() == []
    plane.ask("DELETE", f"{CORE}/pods/{cluster}-taskmanager-a")
    ended: list[tuple[str, str]] = []

    def has_ended() -> bool:
        ended.extend(kubernetes.ended_workers())
        return bool(ended)

    wait_until(has_ended, "the end of a pod is told")
    assert ended == [("a", "its pod was deleted")]
    kubernetes.close()
    following = provider(plane, tmp_path, cluster)
    assert following.recover("http://10.0.0.2:8082") == ["b"]
    following.terminate()


def test_a_session_is_taken_by_kubernetes_and_goes_as_a_whole(
    whole_control_plane: ControlPlane, tmp_path: Path
) -> None:
    plane, cluster = whole_control_plane, next(_names)
    kubernetes_cluster = KubernetesCluster(settings(plane, cluster))
    kubernetes_cluster.create_session()
    wait_until(lambda: pods(plane, cluster, "jobmanager"), "its pod is made")
    with pytest.raises(KubernetesClusterError, match="there is a cluster"):
        kubernetes_cluster.create_session()
    notes: list[str] = []
    with pytest.raises(KubernetesClusterError, match="Unschedulable: no nodes available"):
        kubernetes_cluster.await_ready(5, notes.append)
    assert notes == [f"{cluster} waits: Unschedulable: no nodes available to schedule pods"]
    address = kubernetes_cluster.find()
    assert address.host.startswith("10.217.0.")
    workers = provider(plane, tmp_path, cluster)
    workers.recover("http://10.0.0.1:8082")
    workers.start_worker(WorkerSpec("a", 1))
    (pod,) = pods(plane, cluster, "taskmanager")
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Deployment", cluster)
    workers.close()
    kubernetes_cluster.delete()
    for path in (f"pods/{cluster}-taskmanager-a", f"secrets/{cluster}-config", f"secrets/{cluster}-taskmanager",
                 f"services/{cluster}", f"services/{cluster}-rest"):  # fmt: skip
        wait_until(lambda path=path: plane.find(f"{CORE}/{path}") is None, f"{path} goes with its owner", 30)  # type: ignore[misc]
    wait_until(lambda: not pods(plane, cluster, "jobmanager"), "its pod goes", 30)
    kubernetes_cluster.api.close()


def test_an_application_is_taken_by_kubernetes(whole_control_plane: ControlPlane) -> None:
    plane, cluster = whole_control_plane, next(_names)
    kubernetes_cluster = KubernetesCluster(settings(plane, cluster))
    kubernetes_cluster.create_application(["--python", "/opt/job.py", "--"])
    (pod,) = wait_until(lambda: pods(plane, cluster, "jobmanager"), "its pod is made")
    name = pod["metadata"]["name"]
    ends: list[tuple[bool, str]] = []
    following = threading.Thread(target=lambda: ends.append(kubernetes_cluster.await_end()))
    following.start()
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "message": "no such table"}}
    status = {
        "phase": "Failed", "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{
            "name": "firesteel-main-container", "image": "x", "imageID": "", "ready": False, "restartCount": 0,
            "state": ended,
        }],
    }  # fmt: skip
    plane.ask("PATCH", f"{CORE}/pods/{name}/status", {"status": status})
    following.join(60)
    assert ends == [(False, "Error (exit code 3): no such table")]
    kubernetes_cluster.delete()
    wait_until(lambda: not pods(plane, cluster, "jobmanager"), "its pod goes", 30)
    kubernetes_cluster.api.close()


def test_a_template_that_kubernetes_does_not_take_is_said(whole_control_plane: ControlPlane, tmp_path: Path) -> None:
    plane, cluster = whole_control_plane, next(_names)
    template = tmp_path / "pod.yaml"
    template.write_text("kind: Pod\nspec: {hostname: Not_A_Name}\n")
    kubernetes = provider(plane, tmp_path, cluster, **{"kubernetes.pod-template-file.default": str(template)})
    kubernetes.recover("http://10.0.0.1:8082")
    with pytest.raises(WorkerError, match=r"spec.hostname: Invalid value: \"Not_A_Name\""):
        kubernetes.start_worker(WorkerSpec("a", 1))
    kubernetes.terminate()
