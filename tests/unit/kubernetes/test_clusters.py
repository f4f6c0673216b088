"""What a cluster that makes itself consists of, on a stand-in of Kubernetes' API server."""

from __future__ import annotations

import base64
import json
import signal
import time
from pathlib import Path

import pytest

from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError
from firesteel.service.supervisor import EXIT_TERMINATED
from firesteel_dispatcher import standalone_job
from firesteel_kubernetes.api import ApiError
from firesteel_kubernetes.clusters import KubernetesCluster, KubernetesClusterError
from tests.kubernetes_stand_in import StandIn

CORE, APPS, BATCH = (f"{group}/namespaces/streams" for group in ("/api/v1", "/apis/apps/v1", "/apis/batch/v1"))


def cluster(server: StandIn, **settings: str) -> KubernetesCluster:
    options = {"kubernetes.cluster-id": "orders", "kubernetes.namespace": "streams", **settings}
    return KubernetesCluster(Settings(options), server)  # type: ignore[arg-type]


def files(server: StandIn) -> dict[str, str]:
    data = server.objects[f"{CORE}/secrets/orders-config"]["data"]
    return {name: base64.b64decode(text).decode() for name, text in data.items()}


def test_a_session_is_a_deployment_that_owns_the_rest(tmp_path: Path) -> None:
    template = tmp_path / "pod.yaml"
    template.write_text("kind: Pod\nspec: {priorityClassName: low}\n")
    server = StandIn()
    kubernetes_cluster = cluster(
        server,
        **{
            "kubernetes.jobmanager.labels": "tier:back", "kubernetes.jobmanager.cpu.amount": "2",
            "jobmanager.memory.process.size": "2g", "kubernetes.pod-template-file.taskmanager": str(template),
            "kubernetes.context": "mine", "taskmanager.numberOfTaskSlots": "4",
            "kubernetes.rest-service.exposed.type": "NodePort",
        },
    )  # fmt: skip
    kubernetes_cluster.create_session()
    assert set(server.objects) == {
        f"{APPS}/deployments/orders", f"{CORE}/secrets/orders-config", f"{CORE}/services/orders",
        f"{CORE}/services/orders-rest",
    }  # fmt: skip
    deployment = server.objects[f"{APPS}/deployments/orders"]
    for path, manifest in server.objects.items():
        assert manifest["metadata"]["labels"]["app"] == "orders"
        owners = manifest["metadata"].get("ownerReferences", [])
        assert [owner["uid"] for owner in owners] == (
            [] if "/deployments/" in path else [deployment["metadata"]["uid"]]
        )
    template_of_pod = deployment["spec"]["template"]
    assert template_of_pod["metadata"]["labels"]["tier"] == "back"
    assert template_of_pod["metadata"]["labels"].items() >= deployment["spec"]["selector"]["matchLabels"].items()
    (container,) = template_of_pod["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "2000m", "memory": "2048Mi"}
    assert template_of_pod["spec"]["restartPolicy"] == "Always"
    assert "priorityClassName" not in template_of_pod["spec"]
    contents = files(server)
    settings = Settings(json.loads(contents["config.yaml"]))
    assert settings.check() == []
    plain = settings.to_plain()
    assert plain["firesteel.resourcemanager.driver"] == "kubernetes"
    assert plain["taskmanager.numberOfTaskSlots"] == "4"
    assert plain["taskmanager.memory.process.size"] == "1728m"
    assert plain["jobmanager.rpc.address"] == "orders.streams"
    assert plain["kubernetes.pod-template-file.taskmanager"] == "/run/firesteel/conf/taskmanager-pod-template.yaml"
    assert "kubernetes.context" not in plain
    assert contents["taskmanager-pod-template.yaml"] == template.read_text()
    assert len(contents["cluster-secret"]) == len(contents["rest-token"]) == 64
    assert contents["cluster-secret"] not in json.dumps(deployment)


def test_an_application_is_a_job(tmp_path: Path) -> None:
    server = StandIn()
    kubernetes_cluster = cluster(
        server, **{"high-availability.type": "kubernetes", "high-availability.storageDir": "s3://b/ha"}
    )
    kubernetes_cluster.create_application(["--python", "/opt/job.py", "--", "--rate", "7"])
    spec = server.objects[f"{BATCH}/jobs/orders"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert container["args"] == [
        "-D", "jobmanager.rpc.address=$(POD_IP)", "--python", "/opt/job.py", "--", "--rate", "7",
    ]  # fmt: skip
    assert "exec firesteel-standalone-job --config-dir" in container["command"][2]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert "readinessProbe" in container
    assert "livenessProbe" not in container, "one that waits for its turn would be killed"
    assert "jobmanager.rpc.address" not in json.loads(files(server)["config.yaml"])
    assert kubernetes_cluster.kind() == "Job"
    (_, ends) = spec["podFailurePolicy"]["rules"]
    goes_on = ends["onExitCodes"]["values"]
    assert ends["onExitCodes"]["operator"] == "NotIn"
    assert goes_on == [0, standalone_job.EXIT_GIVEN_UP, 128 + signal.SIGKILL, EXIT_TERMINATED]


def test_where_the_rest_api_is(tmp_path: Path) -> None:
    server = StandIn()
    kubernetes_cluster = cluster(server)
    with pytest.raises(
        KubernetesClusterError, match=r"no cluster orders in namespace streams; `firesteel kubernetes-s"
    ):
        kubernetes_cluster.find()
    kubernetes_cluster.create_session()
    service = server.objects[f"{CORE}/services/orders-rest"]
    service["spec"]["clusterIP"] = "10.0.0.7"
    address = kubernetes_cluster.find()
    assert (address.host, address.port, address.token) == ("10.0.0.7", 8081, files(server)["rest-token"])
    service["spec"] |= {"type": "LoadBalancer"}
    service["status"] = {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}}
    assert kubernetes_cluster.find().host == "203.0.113.9"


def test_a_cluster_that_is_there_is_left_alone() -> None:
    server = StandIn()
    cluster(server).create_session()
    before = dict(server.objects)
    with pytest.raises(KubernetesClusterError, match=r"there is a cluster orders .*kubectl delete deployment/orders"):
        cluster(server).create_session()
    assert server.objects == before


def test_a_cluster_that_can_not_be_made_leaves_nothing() -> None:
    server = StandIn()

    def quota(method: str, path: str) -> str:
        if method == "POST" and path.endswith("/services"):
            raise ApiError("exceeded quota: services", 403, "Forbidden")
        return ""

    server.fault = quota
    with pytest.raises(KubernetesClusterError, match="can't be made: exceeded quota"):
        cluster(server).create_session()
    assert f"{APPS}/deployments/orders" not in server.objects


def test_what_keeps_the_jobmanager_is_said() -> None:
    server, notes = StandIn(), list[str]()
    kubernetes_cluster = cluster(server)
    kubernetes_cluster.create_session()
    waiting = {"reason": "ErrImagePull", "message": "no such image"}
    status = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}
    server.objects[f"{CORE}/pods/orders-1"] = {"metadata": {"name": "orders-1"}, "status": status}
    with pytest.raises(
        KubernetesClusterError, match=r"takes no requests after 0 s: ErrImagePull: no such image; `kubectl"
    ):
        kubernetes_cluster.await_ready(0, notes.append)
    assert notes == ["orders waits: ErrImagePull: no such image"]
    server.objects[f"{CORE}/pods/orders-1"]["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    kubernetes_cluster.await_ready(0, notes.append)


def lost_once(server: StandIn, path: str) -> None:
    """The next question about a path gets lost."""

    def fault(method: str, requested: str) -> str:
        if path not in requested:
            return ""
        server.fault = lambda method, path: ""
        return "lost"

    server.fault = fault


def test_a_question_without_an_answer_ends_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    server, notes = StandIn(), list[str]()
    kubernetes_cluster = cluster(server)
    kubernetes_cluster.create_application(["--python", "/opt/job.py"])
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    server.objects[f"{CORE}/pods/orders-1"] = {"metadata": {"name": "orders-1"}, "status": ready}
    lost_once(server, "/pods")
    kubernetes_cluster.await_ready(60, notes.append)
    assert notes == ["orders waits: lost"]
    status = {"conditions": [{"type": "Complete", "status": "True", "message": "all done"}]}
    server.objects[f"{BATCH}/jobs/orders"]["status"] = status
    lost_once(server, "/jobs/orders")
    assert kubernetes_cluster.await_end() == (True, "all done")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kubernetes.jobmanager.replicas": "2"}, "kubernetes.jobmanager.replicas: 2 pods need high availability"),
        ({"kubernetes.pod-template-file.taskmanager": "/nowhere"}, "the pod template /nowhere can't be read"),
        ({"kubernetes.taskmanager.tolerations": "spot"}, "kubernetes.taskmanager.tolerations"),
    ],
)
def test_wrong_options_are_said_before_anything_is_made(settings: dict[str, str], said: str) -> None:
    server = StandIn()
    with pytest.raises(ConfigurationError, match=said):
        cluster(server, **settings).create_session()
    assert server.objects == {}


def test_a_cluster_has_to_have_a_name() -> None:
    with pytest.raises(ConfigurationError, match=r"say which cluster: -Dkubernetes.cluster-id=NAME"):
        KubernetesCluster(Settings({}), StandIn())  # type: ignore[arg-type]
