"""The operator on a stand-in for Kubernetes' API server: objects, clusters and what is told of them. No pod runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest

from firesteel.checkpoint.store import StoredCheckpoint
from firesteel.config import Settings
from firesteel.ha.cells import Put
from firesteel.ha.retrieval import of_job
from firesteel.testing.clock import ManualClock
from firesteel_kubernetes.high_availability import KubernetesServices
from firesteel_operator.decisions import JobSeen, LastCheckpoint, OperationSeen, job_id_of
from firesteel_operator.reconciler import FINALIZER, Reconciler
from firesteel_operator.report import read_status
from firesteel_operator.specs import DEPLOYMENTS, GROUP, SESSION_JOBS, VERSION
from firesteel_operator.worlds import INCARNATION, Clusters, SessionJobs
from tests.kubernetes_stand_in import StandIn

API: Final = f"{GROUP}/{VERSION}"
OURS: Final = f"/apis/{API}/namespaces/default"
JOBS: Final = "/apis/batch/v1/namespaces/default/jobs"
PODS: Final = "/api/v1/namespaces/default/pods"
EVENTS: Final = "/api/v1/namespaces/default/events"


class RestDouble:
    """All clusters' REST APIs in one; what is asked for has happened."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobSeen] = {}
        self.savepoints: dict[str, OperationSeen] = {}
        self.orders: list[Mapping[str, Any]] = []

    def job(self, job_id: str) -> JobSeen | None:
        return self.jobs.get(job_id)

    def operation(self, job_id: str, operation_id: str) -> OperationSeen | None:
        return self.savepoints.get(operation_id)

    def stop(self, job_id: str, operation_id: str) -> None:
        self.savepoint(job_id, operation_id)
        self.jobs[job_id] = JobSeen("FINISHED", "job", LastCheckpoint(f"s3://b/s/{operation_id}"))

    def savepoint(self, job_id: str, operation_id: str) -> None:
        self.savepoints[operation_id] = OperationSeen(f"s3://b/s/{operation_id}")

    def cancel(self, job_id: str) -> None:
        if job_id in self.jobs:
            self.jobs[job_id] = JobSeen("CANCELED", "job", self.jobs[job_id].last)

    def run(self, name: str, program: bytes, order: Mapping[str, Any]) -> None:
        self.orders.append(order)
        self.jobs[order["jobId"]] = JobSeen("RUNNING", name, LastCheckpoint("s3://b/c/chk-1"))


class World:
    """A stand-in with the operator, and what kubelets and controllers would do."""

    def __init__(self, folder: Path) -> None:
        self.api, self.rest, self.clock, self.folder = StandIn(), RestDouble(), ManualClock(), folder
        worlds = {
            DEPLOYMENTS: Clusters(self.api, "default", lambda address: self.rest),  # type: ignore[arg-type]
            SESSION_JOBS: SessionJobs(self.api, "default", lambda address: self.rest),  # type: ignore[arg-type]
        }
        self.reconciler = Reconciler(self.api, "default", worlds, self.clock)  # type: ignore[arg-type]

    def create(self, kind: str, name: str, spec: Mapping[str, Any]) -> None:
        metadata = {"name": name, "namespace": "default", "generation": 1}
        body = {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": deepcopy(dict(spec))}
        self.api.ask("POST", f"{OURS}/{kind.lower()}s", body)

    def change(self, name: str, plural: str = DEPLOYMENTS, **spec: Any) -> None:
        thing = self.get(name, plural)
        thing["spec"] |= spec
        self.api.ask("PUT", f"{OURS}/{plural}/{name}", thing)

    def get(self, name: str, plural: str = DEPLOYMENTS) -> dict[str, Any]:
        return self.api.ask("GET", f"{OURS}/{plural}/{name}")

    def status(self, name: str, plural: str = DEPLOYMENTS) -> dict[str, Any]:
        return dict(self.get(name, plural)["status"])

    def look(self, name: str, plural: str = DEPLOYMENTS, times: int = 1) -> float | None:
        again: float | None = None
        for _ in range(times):
            again = self.reconciler.reconcile(plural, name)
            self.kubelets()
            self.clock.advance(1.0)
        return again

    def kubelets(self) -> None:
        """Each workload has a pod that is ready; what has no owner any more goes."""
        owners_living = {
            path: manifest for path, manifest in self.api.objects.items() if "/jobs/" in path or "/deployments/" in path
        }
        for path, manifest in list(self.api.objects.items()):
            owners = manifest["metadata"].get("ownerReferences") or ()
            if any(owner["kind"] in ("Job", "Deployment") for owner in owners) and not any(
                owner["uid"] == there["metadata"]["uid"] for owner in owners for there in owners_living.values()
            ):
                del self.api.objects[path]
        for manifest in owners_living.values():
            name = manifest["metadata"]["name"]
            number = manifest["metadata"]["annotations"][INCARNATION]
            if f"{PODS}/{name}-{number}" not in self.api.objects:
                self._start(name, number, manifest)

    def _start(self, name: str, number: str, workload: dict[str, Any]) -> None:
        template = workload["spec"]["template"]
        owner = {"kind": workload["kind"], "uid": workload["metadata"]["uid"]}
        metadata = {"name": f"{name}-{number}", "labels": template["metadata"]["labels"], "ownerReferences": [owner]}
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        self.api.ask("POST", PODS, {"metadata": metadata, "spec": template["spec"], "status": status})
        self.api.objects[f"/api/v1/namespaces/default/services/{name}-rest"]["spec"]["clusterIP"] = "10.0.0.1"
        words = [
            word
            for container in template["spec"]["containers"]
            for word in (*container["command"], *container.get("args", ()))
        ]
        text = " ".join(words)
        uid = self.get(name)["metadata"]["uid"]
        job_id = job_id_of(uid, int(number))
        if job_id in text:
            self.rest.jobs[job_id] = JobSeen("RUNNING", "job", LastCheckpoint("s3://b/c/chk-1"))

    def arguments(self, name: str) -> str:
        """Of the container of the JobManager."""
        pod = self.api.ask("GET", f"{JOBS}/{name}")["spec"]["template"]["spec"]
        return " ".join(
            str(word) for container in pod["containers"] for word in (*container["command"], *container.get("args", ()))
        )

    def events(self) -> dict[str, int]:
        """Reason -> how often."""
        events = {path: manifest for path, manifest in self.api.objects.items() if path.startswith(f"{EVENTS}/")}
        return {event["reason"]: event["count"] for event in events.values()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def application(folder: Path, mode: str = "savepoint", **job: Any) -> dict[str, Any]:
    configuration = {
        "high-availability.type": "kubernetes",
        "high-availability.storageDir": str(folder / "ha"),
        "execution.checkpointing": {"dir": "s3://b/c", "savepoint-dir": "s3://b/s", "interval": "1 s"},
    }
    plain = {"program": "local:///opt/job.py", "upgradeMode": mode, "args": ["a", "b c"], "parallelism": 3, **job}
    return {"image": "firesteel:1", "firesteelConfiguration": configuration, "job": plain}


@pytest.mark.smoke
def test_an_application_is_made_and_shown(world: World) -> None:
    world.create("FiresteelDeployment", "demo", application(world.folder))
    world.look("demo", times=4)
    assert FINALIZER in world.get("demo")["metadata"]["finalizers"]
    workload = world.api.ask("GET", f"{JOBS}/demo")
    (owner,) = workload["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("FiresteelDeployment", world.get("demo")["metadata"]["uid"])
    said = world.arguments("demo")
    assert "--python /opt/job.py" in said
    assert "parallelism.default=3" in said
    assert said.endswith("-- a b c")
    status = world.status("demo")
    assert (status["lifecycleState"], status["jobStatus"]["state"], status["error"]) == ("STABLE", "RUNNING", "")
    assert status["jobManagerDeploymentStatus"] == "READY"
    assert {"Deployed", "Stable"} <= world.events().keys()
    before = len(world.api.asked)
    assert world.look("demo") == 10.0
    assert all(method == "GET" for method, _ in world.api.asked[before:]), "nothing changes, nothing is written"


def test_what_a_crash_has_left_half_made_is_made_whole(world: World) -> None:
    world.create("FiresteelDeployment", "demo", application(world.folder))
    world.api.fault = lambda method, path: "lost" if method == "POST" and path.endswith("/secrets") else ""
    assert world.reconciler.reconcile(DEPLOYMENTS, "demo") == 5.0
    assert "lost" in world.status("demo")["error"]
    world.api.fault = lambda method, path: ""
    world.look("demo", times=3)
    assert "/api/v1/namespaces/default/secrets/demo-config" in world.api.objects
    assert (
        len([request_path for method, request_path in world.api.asked if (method, request_path) == ("POST", JOBS)]) == 1
    )
    assert world.status("demo")["lifecycleState"] == "STABLE"


def test_an_upgrade_by_savepoint(world: World) -> None:
    world.create("FiresteelDeployment", "demo", application(world.folder))
    world.look("demo", times=4)
    world.change("demo", image="firesteel:2")
    world.look("demo", times=8)
    said, status = world.arguments("demo"), world.status("demo")
    (location,) = {savepoint.location for savepoint in world.rest.savepoints.values()}
    assert f"--fromSavepoint {location}" in said
    assert "claim-mode=NO_CLAIM" in said
    assert status["lifecycleState"] == "STABLE"
    assert status["jobStatus"]["savepointInfo"]["lastSavepoint"]["location"] == location
    assert world.api.ask("GET", f"{JOBS}/demo")["metadata"]["annotations"][INCARNATION] == "2"


def test_an_upgrade_by_last_state_reads_what_high_availability_knows(world: World) -> None:
    spec = application(world.folder, "last-state")
    world.create("FiresteelDeployment", "demo", spec)
    world.look("demo", times=4)
    job_id = job_id_of(world.get("demo")["metadata"]["uid"], 1)
    settings = {"kubernetes.cluster-id": "demo", "high-availability.storageDir": str(world.folder / "ha")}
    services = KubernetesServices(Settings(settings), None, world.api)  # type: ignore[arg-type]
    leadership = services.campaign(of_job(job_id))
    assert leadership is not None
    store = services.completed_checkpoints(job_id, leadership)
    for number in (4, 5):
        store.add(StoredCheckpoint(number, f"s3://b/c/chk-{number}"))
    leadership.release()
    world.change("demo", image="firesteel:2")
    world.look("demo", times=10)
    said = world.arguments("demo")
    assert "--fromSavepoint s3://b/c/chk-5" in said, said
    assert "claim-mode=CLAIM" in said
    assert not [path for path in world.api.objects if "/leases/demo-" in path], "nothing of the first is left"
    services.close()


def test_an_upgrade_does_not_go_back_to_a_checkpoint_before_one_whose_record_is_damaged(world: World) -> None:
    world.create("FiresteelDeployment", "demo", application(world.folder, "last-state"))
    world.look("demo", times=4)
    job_id = job_id_of(world.get("demo")["metadata"]["uid"], 1)
    settings = {"kubernetes.cluster-id": "demo", "high-availability.storageDir": str(world.folder / "ha")}
    services = KubernetesServices(Settings(settings), None, world.api)  # type: ignore[arg-type]
    component = of_job(job_id)

    def write_last(change: Callable[[bytes], bytes]) -> None:
        leadership = services.campaign(component)
        assert leadership is not None
        record = services.cells.read(component, "checkpoint.5")
        assert record is not None
        put = Put("checkpoint.5", change(record.value), record.version)
        services.cells.change(component, leadership.epoch, [put])
        leadership.release()

    leadership = services.campaign(component)
    assert leadership is not None
    store = services.completed_checkpoints(job_id, leadership)
    for number in (4, 5):
        store.add(StoredCheckpoint(number, f"s3://b/c/chk-{number}"))
    leadership.release()
    write_last(lambda value: value + b"?")
    world.change("demo", image="firesteel:2")
    world.look("demo", times=10)
    assert f"{JOBS}/demo" not in world.api.objects
    assert "a record of it is damaged: checkpoint.5" in world.status("demo")["error"]
    write_last(lambda value: value[:-1])
    world.look("demo", times=10)
    assert "--fromSavepoint s3://b/c/chk-5" in world.arguments("demo")
    services.close()


def test_suspended_and_deleted(world: World) -> None:
    world.create("FiresteelDeployment", "demo", application(world.folder))
    world.look("demo", times=4)
    world.change("demo", job={**application(world.folder)["job"], "state": "suspended"})
    world.look("demo", times=6)
    assert world.status("demo")["lifecycleState"] == "SUSPENDED"
    assert f"{JOBS}/demo" not in world.api.objects
    world.api.ask("DELETE", f"{OURS}/{DEPLOYMENTS}/demo")
    assert world.look("demo", times=4) is None
    assert f"{OURS}/{DEPLOYMENTS}/demo" not in world.api.objects


def test_a_deleted_object_takes_its_cluster_along(world: World) -> None:
    world.create("FiresteelDeployment", "demo", application(world.folder))
    world.look("demo", times=4)
    world.api.ask("DELETE", f"{OURS}/{DEPLOYMENTS}/demo")
    world.look("demo", times=4)
    assert not [path for path in world.api.objects if path.startswith((OURS, JOBS, PODS))]


def test_what_can_not_be_done_is_told_and_what_runs_goes_on(world: World) -> None:
    world.create("FiresteelDeployment", "demo", application(world.folder))
    world.look("demo", times=4)
    world.change("demo", firesteelConfiguration={"rest.port": "many"})
    world.look("demo", times=3)
    status = world.status("demo")
    assert "rest.port" in status["error"]
    assert status["jobStatus"]["state"] == "RUNNING"
    assert world.api.ask("GET", f"{JOBS}/demo")["metadata"]["annotations"][INCARNATION] == "1"
    assert world.events()["ValidationError"] == 3, "one event, which is counted"


def test_a_bad_object_is_told_at_once(world: World) -> None:
    world.create("FiresteelDeployment", "demo", {"image": "a", "job": {"program": "p.py", "upgradeMode": "savepoint"}})
    world.look("demo")
    assert "needs execution.checkpointing.savepoint-dir" in world.status("demo")["error"]
    assert world.status("demo")["lifecycleState"] == "CREATED"


def test_somebody_elses_cluster_is_left_alone(world: World) -> None:
    world.api.ask("POST", JOBS, {"kind": "Job", "metadata": {"name": "demo", "annotations": {INCARNATION: "1"}}})
    world.create("FiresteelDeployment", "demo", application(world.folder))
    world.reconciler.reconcile(DEPLOYMENTS, "demo")
    assert "rename" in world.status("demo")["error"]
    assert f"{JOBS}/demo" in world.api.objects


def test_a_status_that_somebody_else_has_written_is_not_overwritten(world: World) -> None:
    world.create("FiresteelDeployment", "demo", application(world.folder))
    path = f"{OURS}/{DEPLOYMENTS}/demo"

    def fault(method: str, requested: str) -> str:
        if method == "PUT" and requested == f"{path}/status":
            world.api.fault = lambda method, path: ""
            world.api.touch(path)
        return ""

    world.api.fault = fault
    assert world.reconciler.reconcile(DEPLOYMENTS, "demo") == 1.0
    assert f"{JOBS}/demo" not in world.api.objects, "what is not written down is not done"
    world.look("demo", times=4)
    assert world.status("demo")["lifecycleState"] == "STABLE"


def test_a_job_of_a_session(world: World, tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text("print()")
    plain = {
        "deploymentName": "session",
        "job": {"program": f"local://{program}", "upgradeMode": "savepoint", "parallelism": 2},
    }
    world.create("FiresteelSessionJob", "task", plain)
    world.look("task", SESSION_JOBS)
    assert "there is no FiresteelDeployment session" in world.status("task", SESSION_JOBS)["error"]
    world.create("FiresteelDeployment", "session", {"image": "firesteel:1"})
    world.look("session", times=4)
    world.look("task", SESSION_JOBS, times=4)
    (order,) = world.rest.orders
    assert order["parallelism"] == 2
    assert world.status("task", SESSION_JOBS)["lifecycleState"] == "STABLE"
    world.change("task", SESSION_JOBS, job={**plain["job"], "parallelism": 5})  # type: ignore[dict-item]
    world.look("task", SESSION_JOBS, times=8)
    first, second = world.rest.orders
    (savepoint,) = world.rest.savepoints.values()
    assert second["parallelism"] == 5
    assert second["savepointPath"] == savepoint.location
    assert second["jobId"] != first["jobId"]
    world.api.ask("DELETE", f"{OURS}/{SESSION_JOBS}/task")
    world.look("task", SESSION_JOBS, times=3)
    assert world.rest.jobs[second["jobId"]].state == "CANCELED"
    assert f"{OURS}/{SESSION_JOBS}/task" not in world.api.objects


def test_the_record_is_read_back(world: World) -> None:
    world.create("FiresteelDeployment", "demo", application(world.folder))
    world.look("demo", times=4)
    assert read_status(world.get("demo")).incarnation == 1
