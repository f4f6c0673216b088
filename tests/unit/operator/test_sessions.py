"""Sessions that do not answer, a Kubernetes that refuses, and an operator that Kubernetes does not answer."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from firesteel.config import Settings
from firesteel.core.errors import FencedError, RpcError
from firesteel_kubernetes.api import ApiError, JsonObject, KubernetesApi, MissingError, UnreachableError
from firesteel_kubernetes.clusters import TOKEN_FILE, Found, KubernetesClusterError
from firesteel_operator.decisions import Release, Remove, Status, decide, remove
from firesteel_operator.shell import OperatorService
from firesteel_operator.specs import Spec
from firesteel_operator.worlds import Clusters, SessionJobs

NAMESPACE = "/namespaces/jobs"
SPEC = Spec.from_plain({"deploymentName": "session", "job": {"program": "local:///p.py"}}, session_job=True)
THING: JsonObject = {"metadata": {"name": "job", "namespace": "jobs", "uid": "uid-1"}}
SESSION: dict[str, JsonObject] = {
    f"/apis/firesteel.io/v1beta1{NAMESPACE}/firesteeldeployments/session": {"spec": {}},
    f"/apis/apps/v1{NAMESPACE}/deployments/session": {"metadata": {"name": "session"}},
    f"/api/v1{NAMESPACE}/services/session-rest": {
        "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": [{"port": 8081}]}
    },
    f"/api/v1{NAMESPACE}/secrets/session-config": {"data": {TOKEN_FILE: base64.b64encode(b"token").decode()}},
}


class Objects(KubernetesApi):
    """Kubernetes with these objects, by path."""

    def __init__(self, objects: dict[str, JsonObject]) -> None:
        self.objects = objects

    def ask(self, method: str, path: str, body: JsonObject | None = None, **_: Any) -> JsonObject:
        if method != "GET":
            raise ApiError("deployments is forbidden", 403, "Forbidden")
        if path not in self.objects:
            raise MissingError(path, 404)
        return self.objects[path]


def unanswered(cluster: Found) -> Any:
    raise RpcError(f"{cluster.host} does not answer")


def test_a_job_is_not_let_go_while_its_session_does_not_answer() -> None:
    status = Status(incarnation=1, job_id="a" * 32)
    api = Objects(dict(SESSION))
    observed = SessionJobs(api, "jobs", unanswered).see(THING, SPEC, status)
    decision = remove(observed, status)
    assert decision.actions == (), "the job runs on in the session"
    assert "takes no requests" in decision.status.error
    assert "takes no requests" in decide("uid-1", SPEC, observed, status, 1.0).status.error
    del api.objects[f"/apis/apps/v1{NAMESPACE}/deployments/session"]
    observed = SessionJobs(api, "jobs", unanswered).see(THING, SPEC, status)
    assert remove(observed, status).actions == (Release(),), "nothing can run in a session without a cluster"


def test_a_job_that_never_ran_is_let_go_whatever_its_session_does() -> None:
    observed = SessionJobs(Objects(dict(SESSION)), "jobs", unanswered).see(THING, SPEC, Status())
    assert remove(observed, Status()).actions == (Release(),)
    assert not any(isinstance(action, Remove) for action in remove(observed, Status()).actions)


def test_a_removal_that_kubernetes_refuses_says_why() -> None:
    api, session = Objects(dict(SESSION)), Spec.from_plain({})
    thing: JsonObject = {"metadata": {"name": "session", "namespace": "jobs", "uid": "uid-2"}}
    with pytest.raises(KubernetesClusterError, match="forbidden"):
        Clusters(api, "jobs").do(thing, session, Status(incarnation=1), Remove(1))
    del api.objects[f"/apis/apps/v1{NAMESPACE}/deployments/session"]
    Clusters(api, "jobs").do(thing, session, Status(incarnation=1), Remove(1))  # nothing is left to remove


class Cells:
    """The leadership of an operator, whose check ends with this error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def check(self, component: str, epoch: int) -> None:
        raise self.error


async def check(error: Exception) -> OperatorService:
    settings = Settings({"kubernetes.cluster-id": "operator"})
    service: Any = OperatorService(settings, Objects({}), {}, 1.0)
    service._cells, service._epoch = Cells(error), 7
    await service._check()
    return service  # type: ignore[no-any-return]


def test_an_operator_goes_on_while_kubernetes_does_not_answer() -> None:
    assert asyncio.run(check(UnreachableError("no route"))).leads


def test_an_operator_that_leads_no_more_ends() -> None:
    with pytest.raises(FencedError):
        asyncio.run(check(FencedError("epoch 7 of leader is over")))
