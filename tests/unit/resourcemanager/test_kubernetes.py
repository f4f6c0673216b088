"""TaskManager pods, on a stand-in of Kubernetes' API server. The servers' tests hold the same against a real one."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from firesteel.config import Settings
from firesteel.core.clock import Clock
from firesteel.core.errors import ConfigurationError
from firesteel.protocol.provider import ProviderContext, WorkerError, WorkerSpec
from firesteel.runtime.slot.slot_main import slot_main
from firesteel.testing import ManualClock, check_provider
from firesteel_kubernetes.api import ApiError, ConflictError, JsonObject, MissingError
from firesteel_kubernetes.pods import CONTAINER
from firesteel_kubernetes.provider import KubernetesProvider
from tests.kubernetes_stand_in import StandIn

PODS = "/api/v1/namespaces/default/pods"
SECRET = "a secret of the cluster, for workers"
TEMPLATE = """
apiVersion: v1
kind: Pod
metadata: {labels: {team: blue, app: theirs}, annotations: {note: kept}}
spec:
  priorityClassName: high
  tolerations: [{key: theirs, operator: Exists}]
  volumes: [{name: scratch, emptyDir: {}}]
  securityContext: {runAsUser: 7}
  containers:
  - {name: side-car, image: other}
  - name: flink-main-container
    image: ignored
    env: [{name: A, value: "1"}]
    resources: {limits: {nvidia.com/gpu: 1, memory: 1Gi}}
    volumeMounts: [{name: scratch, mountPath: /scratch}]
"""


def provider(server: StandIn, directory: Path, clock: Clock | None = None, **settings: str) -> KubernetesProvider:
    options = {"kubernetes.cluster-id": "orders", "taskmanager.memory.process.size": "1728m", **settings}
    provider_settings = Settings({key.replace("__", "."): value for key, value in options.items()})
    context = ProviderContext(provider_settings, SECRET, clock or ManualClock(), directory, slot_main)
    return KubernetesProvider(context, server)  # type: ignore[arg-type]


def started(server: StandIn, directory: Path, clock: Clock | None = None, **settings: str) -> KubernetesProvider:
    kubernetes = provider(server, directory, clock, **settings)
    assert kubernetes.recover("http://10.0.0.1:8082") == []
    return kubernetes


def pod(server: StandIn, worker: str) -> JsonObject:
    return server.objects[f"{PODS}/orders-taskmanager-{worker}"]


def set_status(server: StandIn, worker: str, status: dict[str, Any]) -> None:
    pod(server, worker)["status"] = status
    server.tell()


def test_the_provider_for_kubernetes_keeps_the_contract(tmp_path: Path) -> None:
    server = StandIn()

    def kill(worker: str) -> None:
        server.ask("DELETE", f"{PODS}/orders-taskmanager-{worker}")

    check_provider(
        lambda: provider(server, tmp_path), lambda worker: f"{PODS}/orders-taskmanager-{worker}" in server.objects, kill
    )
    assert server.objects == {}, "the Secret goes with the cluster"


def test_a_pod_is_what_options_and_template_say(tmp_path: Path) -> None:
    template = tmp_path / "pod.yaml"
    template.write_text(TEMPLATE)
    server = StandIn()
    owner = {"metadata": {"name": "orders", "uid": "u-1"}}
    server.objects["/apis/apps/v1/namespaces/default/deployments/orders"] = owner
    prefix = "kubernetes.taskmanager"
    kubernetes = started(
        server, tmp_path, None,
        **{
            "kubernetes.pod-template-file.default": str(template), f"{prefix}.labels": "tier:fast",
            f"{prefix}.node-selector": "disk:ssd", f"{prefix}.cpu.limit-factor": "2",
            f"{prefix}.tolerations": "key:gpu,operator:Equal,value:yes,effect:NoSchedule;key:spot,operator:Exists",
            "kubernetes.container.image.ref": "shop/firesteel:3", "kubernetes.container.image.pull-secrets": "hub",
            "kubernetes.service-account": "streams", "kubernetes.env.secretKeyRef": "env:KEY,secret:s,key:k",
            "kubernetes.secrets": "certificates:/certificates",
        },
    )  # fmt: skip
    kubernetes.start_worker(WorkerSpec("worker-a", 3))
    manifest = pod(server, "worker-a")
    assert manifest["metadata"]["labels"] == {
        "team": "blue", "tier": "fast", "app": "orders", "component": "taskmanager",
        "type": "firesteel-native-kubernetes", "firesteel/worker": "worker-a",
    }  # fmt: skip
    assert manifest["metadata"]["annotations"] == {"note": "kept"}
    assert manifest["metadata"]["ownerReferences"] == [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "orders", "uid": "u-1"}
    ]
    spec = manifest["spec"]
    assert (spec["priorityClassName"], spec["nodeSelector"], spec["serviceAccountName"], spec["restartPolicy"]) == (
        "high", {"disk": "ssd"}, "streams", "Never",
    )  # fmt: skip
    assert [toleration["key"] for toleration in spec["tolerations"]] == ["theirs", "gpu", "spot"]
    assert spec["imagePullSecrets"] == [{"name": "hub"}]
    assert spec["securityContext"]["runAsUser"] == 7
    ours, other = spec["containers"]
    assert (ours["name"], ours["image"], other["name"]) == (CONTAINER, "shop/firesteel:3", "side-car")
    assert ours["resources"] == {
        "requests": {"cpu": "3000m", "memory": "1728Mi"},
        "limits": {"nvidia.com/gpu": 1, "cpu": "6000m", "memory": "1728Mi"},
    }
    assert [variable["name"] for variable in ours["env"]] == ["A", "KEY", "POD_IP", "POD_NAME", "FIRESTEEL_CONF_DIR"]
    assert {"/scratch", "/certificates", "/etc/firesteel/given"} <= {
        mount["mountPath"] for mount in ours["volumeMounts"]
    }
    assert "taskmanager.numberOfTaskSlots=3" in ours["args"]
    assert "taskmanager.resource-id=worker-a" in ours["args"]
    assert SECRET not in json.dumps(manifest)
    kubernetes.close()


def test_code_of_users_has_no_rights_at_kubernetes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for settings, is_mounted, warning in (
        ({"kubernetes.service-account": "streams"}, False, ""),
        (
            {"kubernetes.service-account": "streams", "high-availability.type": "kubernetes"},
            True,
            "have the service account streams of the JobManager",
        ),
        (
            {
                "kubernetes.service-account": "streams", "high-availability.type": "kubernetes",
                "kubernetes.taskmanager.service-account": "reader",
            },
            True,
            "",
        ),
    ):  # fmt: skip
        caplog.clear()
        server = StandIn()
        kubernetes = started(server, tmp_path, None, **settings)
        kubernetes.start_worker(WorkerSpec("worker-a", 3))
        assert pod(server, "worker-a")["spec"]["automountServiceAccountToken"] is is_mounted
        assert (warning in caplog.text) if warning else "service account" not in caplog.text
        kubernetes.close()


def test_a_factor_of_nothing_leaves_processors_without_a_limit(tmp_path: Path) -> None:
    server = StandIn()
    kubernetes = started(server, tmp_path, None, **{"kubernetes.taskmanager.cpu.limit-factor": "0"})
    kubernetes.start_worker(WorkerSpec("worker-a", 3))
    (ours,) = pod(server, "worker-a")["spec"]["containers"]
    assert ours["resources"] == {"requests": {"cpu": "3000m", "memory": "1728Mi"}, "limits": {"memory": "1728Mi"}}
    kubernetes.close()
    with pytest.raises(ConfigurationError, match=r"taskmanager\.cpu\.limit-factor: 0\.5 is below the request"):
        started(server, tmp_path, None, **{"kubernetes.taskmanager.cpu.limit-factor": "0.5"})


def test_pods_get_settings_and_secret_by_a_secret(tmp_path: Path) -> None:
    server = StandIn()
    kubernetes = started(
        server, tmp_path, None, **{"heartbeat.interval": "7 s", "firesteel.rest.token-file": "/etc/token"}
    )
    data = server.objects["/api/v1/namespaces/default/secrets/orders-taskmanager"]["data"]
    files = {name: base64.b64decode(text).decode() for name, text in data.items()}
    assert files["cluster-secret"] == SECRET
    settings = Settings(json.loads(files["config.yaml"]))
    assert settings.check() == []
    plain = settings.to_plain()
    assert (plain["heartbeat.interval"], plain["firesteel.resourcemanager.address"]) == ("7 s", "10.0.0.1:8082")
    assert "firesteel.rest.token-file" not in plain
    kubernetes.close()


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (
            {"phase": "Failed", "containerStatuses": [
                {"name": CONTAINER, "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137, "message": ""}}}]},
            "OOMKilled (exit code 137)",
        ),
        (
            {"phase": "Failed", "containerStatuses": [
                {"name": CONTAINER, "state": {"terminated": {"reason": "Error", "exitCode": 2,
                                                             "message": "x\nno memory\n"}}}]},
            "Error (exit code 2): no memory",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
            "Evicted: The node was low on resource: memory.",
        ),
    ],
)  # fmt: skip
def test_how_a_pod_has_ended_is_the_cause(status: dict[str, Any], said: str, tmp_path: Path) -> None:
    server = StandIn()
    kubernetes = started(server, tmp_path)
    kubernetes.start_worker(WorkerSpec("a", 1))
    assert kubernetes.ended_workers() == []
    set_status(server, "a", status)
    assert kubernetes.ended_workers() == [("a", said)]
    assert kubernetes.ended_workers() == []
    assert not [path for path in server.objects if path.startswith(PODS)], "the pod is removed"
    kubernetes.close()


def test_why_pods_do_not_run(tmp_path: Path) -> None:
    server = StandIn()
    kubernetes = started(server, tmp_path)
    for name in ("a", "b", "c"):
        kubernetes.start_worker(WorkerSpec(name, 1))
    message = "0/3 nodes are available: 3 Insufficient cpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    set_status(server, "a", {"phase": "Pending", "conditions": [condition]})
    pulling = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "no:1"'}
    set_status(server, "b", {"phase": "Pending", "containerStatuses": [{"state": {"waiting": pulling}}]})
    creating = {"state": {"waiting": {"reason": "ContainerCreating"}}}
    set_status(server, "c", {"phase": "Pending", "containerStatuses": [creating]})
    assert kubernetes.waiting_workers() == {
        "a": f"pod orders-taskmanager-a: Unschedulable: {message}",
        "b": 'pod orders-taskmanager-b: ImagePullBackOff: Back-off pulling image "no:1"',
    }
    kubernetes.close()


def test_a_secret_that_others_write_and_remove_all_the_time_is_no_beginning(tmp_path: Path) -> None:
    class Contended(StandIn):
        def ask(self, method: str, path: str, *arguments: Any, **options: Any) -> JsonObject:
            if method == "PUT":
                raise MissingError("no such Secret", 404)
            if method == "POST":
                raise ConflictError("there is one", 409, "AlreadyExists")
            return super().ask(method, path, *arguments, **options)

    with pytest.raises(WorkerError, match="there is one"):
        provider(Contended(), tmp_path).recover("http://10.0.0.1:8082")


def test_a_pod_that_is_refused_is_no_worker(tmp_path: Path) -> None:
    server = StandIn()
    kubernetes = started(server, tmp_path)

    def quota(method: str, path: str) -> str:
        if method == "POST":
            raise ApiError("exceeded quota: pods", 403, "Forbidden")
        return ""

    server.fault = quota
    with pytest.raises(WorkerError, match="The pod of worker a is refused: exceeded quota"):
        kubernetes.start_worker(WorkerSpec("a", 1))
    server.fault = lambda method, path: ""
    kubernetes.start_worker(WorkerSpec("a", 1))
    assert pod(server, "a")
    kubernetes.close()


def test_a_pod_whose_creation_was_not_answered_is_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    server = StandIn()
    kubernetes = started(server, tmp_path)
    posts = 0

    def unanswered_once(method: str, path: str) -> str:
        nonlocal posts
        posts += (method, path) == ("POST", PODS)
        return "unanswered" if (method, path, posts) == ("POST", PODS, 1) else ""

    server.fault = unanswered_once
    kubernetes.start_worker(WorkerSpec("w1", 1))
    server.tell()
    assert posts == 2, "the second one learns that the pod exists"
    assert kubernetes.ended_workers() == []
    assert "deletionTimestamp" not in pod(server, "w1")["metadata"], "its worker is known"


def test_a_pod_that_nobody_knows_is_removed(tmp_path: Path) -> None:
    """One that was made without an answer, or by a ResourceManager that leads no more."""
    clock, server = ManualClock(), StandIn()
    kubernetes = started(server, tmp_path, clock)
    stray = {"metadata": {"name": "orders-taskmanager-x", "labels": {"firesteel/worker": "x"}}}
    server.ask("POST", PODS, stray)
    assert kubernetes.ended_workers() == []
    assert not [path for path in server.objects if path.startswith(PODS)]
    kubernetes.close()


def test_a_pod_that_is_deleted_before_anybody_has_seen_it(tmp_path: Path) -> None:
    clock, server = ManualClock(), StandIn()
    kubernetes = started(server, tmp_path, clock)
    kubernetes.start_worker(WorkerSpec("a", 1))
    del server.objects[f"{PODS}/orders-taskmanager-a"]
    server.tell()
    assert kubernetes.ended_workers() == []
    clock.advance(15)
    assert kubernetes.ended_workers() == [("a", "its pod was deleted")]
    kubernetes.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"taskmanager.memory.process.size": ""}, "memory of the TaskManager is not configured"),
        ({"kubernetes.pod-template-file.taskmanager": "/nowhere"}, "the pod template /nowhere can't be read"),
        ({"kubernetes.taskmanager.tolerations": "spot"}, "kubernetes.taskmanager.tolerations: 'spot' is not"),
        ({"kubernetes.env.secretKeyRef": "env:A,secret:b"}, "not of the form env:NAME,secret:SECRET,key:KEY"),
        ({"kubernetes.cluster-id": "A"}, "kubernetes.cluster-id: 'A' can't be the name"),
    ],
)
def test_wrong_options_are_named(settings: dict[str, str], said: str, tmp_path: Path) -> None:
    options = {"kubernetes.cluster-id": "orders", "taskmanager.memory.process.size": "1728m", **settings}
    context = ProviderContext(
        Settings({key: value for key, value in options.items() if value}), SECRET, ManualClock(), tmp_path, slot_main
    )
    with pytest.raises(ConfigurationError, match=said):
        KubernetesProvider(context)


def test_a_pod_whose_node_is_lost_is_not_waited_for(tmp_path: Path) -> None:
    """Kubernetes deletes it, and keeps it until the node says that it has ended."""
    server, clock = StandIn(), ManualClock()
    kubernetes = started(server, tmp_path, clock)
    for worker, phase in (("new", "Pending"), ("old", "Running"), ("well", "Running")):
        kubernetes.start_worker(WorkerSpec(worker, 1))
        set_status(server, worker, {"phase": phase})
    assert kubernetes.ended_workers() == []
    for worker in ("new", "old"):
        pod(server, worker)["metadata"] |= {
            "deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30,
        }  # fmt: skip
    server.tell()
    assert kubernetes.ended_workers() == [("new", "its pod was deleted before it ran")]
    clock.advance(34.9)
    assert kubernetes.ended_workers() == []
    clock.advance(0.2)
    assert kubernetes.ended_workers() == [("old", "its pod was deleted, and its node does not say that it has ended")]
    clock.advance(100)
    assert kubernetes.ended_workers() == []
    kubernetes.close()
