"""The JobManager of a session in a container: how it ends, on a stand-in of Kubernetes' API server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from firesteel.config import Settings
from firesteel.service.supervisor import OVER, STOPPED
from firesteel_kubernetes import jobmanager
from firesteel_kubernetes.api import ApiError
from firesteel_kubernetes.clusters import KubernetesCluster
from tests.kubernetes_stand_in import StandIn

DEPLOYMENT = "/apis/apps/v1/namespaces/streams/deployments/orders"
SETTINGS = {"kubernetes.cluster-id": "orders", "kubernetes.namespace": "streams"}


class Services:
    """In place of the supervisor: the Dispatcher says what it is told to, then all services end."""

    says: Mapping[str, object] = {}
    commands: Mapping[str, Sequence[str]] = {}

    def __init__(
        self, commands: Mapping[str, Sequence[str]], out: Mapping[str, Path], is_over: Callable[[], bool]
    ) -> None:
        type(self).commands, self._is_over = commands, is_over
        self._file = self._status_file()

    def _status_file(self) -> Path:
        key = "firesteel.application.status-file="
        (path,) = {word.removeprefix(key) for word in self.commands["dispatcher"] if word.startswith(key)}
        return Path(path)

    def run(self) -> str:
        assert not self._is_over(), "what a container before has said counts no more"
        self._file.write_text(json.dumps(self.says))
        return OVER if self._is_over() else STOPPED


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setattr(jobmanager, "Supervisor", Services)
    monkeypatch.setattr(jobmanager, "setup_logging", lambda: None)
    monkeypatch.setattr(stand_in, "close", lambda: None, raising=False)
    monkeypatch.setattr(jobmanager, "KubernetesCluster", lambda settings: KubernetesCluster(settings, stand_in))  # type: ignore[arg-type]
    KubernetesCluster(Settings(SETTINGS), stand_in).create_session()  # type: ignore[arg-type]
    (tmp_path / "jobmanager.json").write_text('{"over": true}')
    (tmp_path / "config.yaml").write_text(json.dumps({**SETTINGS, "firesteel.cluster.directory": str(tmp_path)}))
    tmp_path.chmod(0o700)
    return stand_in


def run(folder: Path) -> int:
    return jobmanager.main(["--config-dir", str(folder)])


def test_a_cluster_that_is_shut_down_takes_its_deployment_along(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Services, "says", {"rest": "http://10.0.0.7:8081", "over": True})
    assert run(tmp_path) == 0
    assert DEPLOYMENT not in server.objects
    assert "Deployment orders is removed" in capsys.readouterr().out


def test_a_pod_that_is_stopped_leaves_the_cluster(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Services, "says", {"rest": "http://10.0.0.7:8081"})
    assert run(tmp_path) == 143
    assert DEPLOYMENT in server.objects


def test_a_jobmanager_that_may_not_remove_its_deployment_says_so(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Services, "says", {"over": True})

    def refuse(method: str, path: str) -> str:
        if method == "DELETE":
            raise ApiError("deployments.apps orders is forbidden", 403, "Forbidden")
        return ""

    server.fault = refuse
    assert run(tmp_path) == 1
    said = capsys.readouterr().err
    assert "its Deployment will start it again, since it can't be removed" in said
    assert "deployments.apps orders is forbidden" in said


def test_a_configuration_that_can_not_be_used_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yaml").write_text("taskmanager.numberOfTaskSlots: many\n")
    assert run(tmp_path) == 2
    assert "taskmanager.numberOfTaskSlots" in capsys.readouterr().err
