"""The operator on a real API server with its controllers: what its schema refuses, the rights that the chart gives, and
two of it, one of which is killed. There are no nodes: pods are made, and wait."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from firesteel_operator.specs import GROUP, VERSION
from firesteel_operator.worlds import INCARNATION
from tests.servers.kubernetes.server import ControlPlane
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.long,
    pytest.mark.may_skip(reason="Kubernetes can be built by Go only"),
]
ROOT = Path(__file__).resolve().parents[3]
CRDS = ROOT / "charts" / "firesteel" / "files" / "operator-crds.yaml"
RENDERED = ROOT / "tests" / "servers" / "helm" / "cases" / "operator.golden.yaml"
OURS = f"/apis/{GROUP}/{VERSION}/namespaces/default"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture(scope="module")
def plane(whole_control_plane: ControlPlane) -> ControlPlane:
    """With the CRDs, as the chart has them."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for definition in yaml.safe_load_all(CRDS.read_text()):
        whole_control_plane.ask("POST", path, definition)
    for plural in ("firesteeldeployments", "firesteelsessionjobs"):
        wait_until(partial(_served, whole_control_plane, plural), f"{plural} are served")
    return whole_control_plane


def _served(plane: ControlPlane, plural: str) -> bool:
    try:
        return plane.find(f"{OURS}/{plural}") is not None
    except urllib.error.HTTPError as error:
        if error.code != 429:  # it is about to be
            raise
        return False


def deployment(name: str, **spec: Any) -> dict[str, Any]:
    job = {"program": "local:///opt/job.py", "upgradeMode": "stateless"}
    body = {"image": "firesteel:none", "job": job, **spec}
    return {
        "apiVersion": f"{GROUP}/{VERSION}", "kind": "FiresteelDeployment", "metadata": {"name": name}, "spec": body,
    }  # fmt: skip


def rules() -> list[dict[str, Any]]:
    """Of the role that the chart makes in a namespace of objects."""
    (role,) = [
        manifest
        for manifest in yaml.safe_load_all(RENDERED.read_text())
        if manifest and manifest["kind"] == "Role" and manifest["metadata"].get("namespace") == "one"
    ]
    return list(role["rules"])


@contextmanager
def operators(plane: ControlPlane, folder: Path, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many, with the rights of the chart's account."""
    config = folder / "kubeconfig"
    config.write_text(json.dumps(plane.kubeconfig(plane.account_token("operator", 3600))))
    election = "high-availability.kubernetes.leader-election"
    options = {
        "kubernetes.config.file": config, "kubernetes.namespace": "default", "firesteel.operator.port": 0,
        f"{election}.lease-duration": "4 s", f"{election}.renew-deadline": "4 s", f"{election}.retry-period": "1 s",
    }  # fmt: skip
    definitions = [f"-D{key}={value}" for key, value in options.items()]
    started: list[subprocess.Popen[bytes]] = []
    short = tempfile.mkdtemp(prefix="o")  # paths of sockets are short
    try:
        for number in range(count):
            with (folder / f"operator-{number}.log").open("wb") as log:
                words = [f"-Dfiresteel.run.directory={short}/{number}", *definitions]
                started.append(
                    subprocess.Popen(
                        [sys.executable, "-P", "-m", "firesteel_operator", *words],
                        stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | {"HOME": str(folder)},
                    )
                )  # fmt: skip
        yield started
    except BaseException:
        for file in sorted(folder.glob("operator-*.log")):
            print(file.name, file.read_text(errors="replace")[-6000:])
        raise
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)
        shutil.rmtree(short)


def leader(plane: ControlPlane) -> str:
    lease = plane.find("/apis/coordination.k8s.io/v1/namespaces/default/leases/firesteel-operator-leader")
    return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"job": {"program": "p.py", "upgradeMode": "hope"}}, "upgradeMode"),
        ({"job": {"program": ""}}, "program"),
        ({"job": {"program": "local:p.py"}}, "local programs are local:///path"),
        ({"job": {"program": "p.py", "parallelism": 0}}, "parallelism"),
        ({"job": {"program": "p.py", "state": "gone"}}, "state"),
        ({"image": ""}, "image"),
        ({"restartNonce": "one"}, "restartNonce"),
    ],
)
def test_the_schema_refuses_what_can_not_be(plane: ControlPlane, spec: dict[str, Any], said: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        plane.ask("POST", f"{OURS}/firesteeldeployments", deployment("bad", **spec))
    assert refused.value.code == 422
    assert said in refused.value.read().decode()


def test_two_operators_one_of_which_is_killed(plane: ControlPlane, tmp_path: Path) -> None:
    plane.account("operator", rules())

    def incarnation() -> str:
        job = plane.find(f"{JOBS}/demo")
        return "" if job is None else str(job["metadata"]["annotations"][INCARNATION])

    def status() -> dict[str, Any]:
        return dict((plane.find(f"{OURS}/firesteeldeployments/demo") or {}).get("status") or {})

    def is_gone(name: str) -> bool:
        return plane.find(f"{OURS}/firesteeldeployments/{name}") is None

    with operators(plane, tmp_path, 2) as running:
        first = wait_until(lambda: leader(plane), "one leads")
        plane.ask("POST", f"{OURS}/firesteeldeployments", deployment("demo"))
        wait_until(lambda: incarnation() == "1", "it is made")
        wait_until(lambda: status().get("jobManagerDeploymentStatus") in ("DEPLOYING", "ERROR"), "its status says so")
        for path in ("secrets/demo-config", "services/demo", "services/demo-rest"):
            assert plane.find(f"/api/v1/namespaces/default/{path}") is not None, path
        (owner,) = plane.find(f"{JOBS}/demo")["metadata"]["ownerReferences"]
        assert owner["kind"] == "FiresteelDeployment"
        reasons = {
            event["reason"] for event in plane.ask("GET", EVENTS)["items"] if event["involvedObject"]["name"] == "demo"
        }
        assert "Deployed" in reasons

        (leading,) = [process for process in running if f"_{process.pid}_" in first]
        leading.kill()
        change = {"spec": {"image": "firesteel:other"}}
        plane.ask("PATCH", f"{OURS}/firesteeldeployments/demo", change)
        wait_until(lambda: leader(plane) not in ("", first), "the other one leads")
        wait_until(lambda: incarnation() == "2", "it upgrades the cluster")

        bad = deployment("wrong", job={"program": "p.py", "upgradeMode": "savepoint"})
        plane.ask("POST", f"{OURS}/firesteeldeployments", bad)

        def is_told() -> bool:
            resource = plane.find(f"{OURS}/firesteeldeployments/wrong")
            return "needs execution.checkpointing.savepoint-dir" in (resource.get("status") or {}).get("error", "")

        wait_until(is_told, "what its schema can't see is told")
        for name in ("demo", "wrong"):
            plane.ask("DELETE", f"{OURS}/firesteeldeployments/{name}")
            wait_until(partial(is_gone, name), f"{name} is let go")
        assert plane.find(f"{JOBS}/demo") is None
        selector = "?labelSelector=app=demo"
        wait_until(
            lambda: not plane.ask("GET", f"/api/v1/namespaces/default/pods{selector}")["items"], "no pod is left"
        )
