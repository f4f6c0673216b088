"""Targets of ``-t`` that are clusters on Kubernetes."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from firesteel.client.cli import exit_codes, targets
from firesteel.client.cli.arguments import parser
from firesteel.client.cli.main import main
from firesteel.client.console import Console
from firesteel.core.errors import ConfigurationError
from firesteel_kubernetes import commands
from firesteel_kubernetes.clusters import KubernetesCluster
from tests.kubernetes_stand_in import StandIn
from tests.uninstalled import uninstall

NAMED = "-Dkubernetes.cluster-id=orders"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setattr(commands, "KubernetesCluster", lambda settings: KubernetesCluster(settings, stand_in))  # type: ignore[arg-type]
    return stand_in


def session(server: StandIn) -> None:
    """One that is up."""
    parsed = parser().parse_args(["kubernetes-session", NAMED])
    server.objects["/api/v1/namespaces/default/pods/p"] = {
        "metadata": {"name": "p"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip

    def address(method: str, path: str) -> str:
        service = server.objects.get("/api/v1/namespaces/default/services/orders-rest")
        if service is not None:
            service["spec"]["clusterIP"] = "10.0.0.7"
        return ""

    server.fault = address
    assert commands.kubernetes_session(parsed, Console()) == exit_codes.DONE


def test_a_session_is_made_and_named_and_removed(server: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    session(server)
    said = capsys.readouterr()
    assert "orders: http://10.0.0.7:8081" in said.out
    assert "firesteel run -t kubernetes-session -Dkubernetes.cluster-id=orders" in said.err
    parsed: Any = parser().parse_args(["list", "-t", "kubernetes-session", NAMED])
    assert targets.use_named_cluster(parsed, Console())
    assert parsed.target == "remote"
    options = dict(definition.split("=", 1) for definition in parsed.definitions)
    assert (options["rest.address"], options["rest.port"], options["execution.target"]) == (
        "10.0.0.7",
        "8081",
        "remote",
    )
    token = Path(options["firesteel.rest.token-file"])
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert len(token.read_text()) == 64
    forwarded: Any = parser().parse_args(["list", "-t", "kubernetes-session", "-m", "127.0.0.1:9", NAMED])
    assert targets.use_named_cluster(forwarded, Console())
    assert not [definition for definition in forwarded.definitions if definition.startswith("rest.")], (
        "who says where it is, knows"
    )
    assert commands.kubernetes_session(parser().parse_args(["kubernetes-session", "--stop", NAMED]), Console()) == 0
    assert "/apis/apps/v1/namespaces/default/deployments/orders" not in server.objects


@pytest.mark.parametrize("words", [["list"], ["list", "-t", "remote"], ["run", "-t", "local", "p.py"]])
def test_other_targets_are_left_alone(words: list[str], server: StandIn) -> None:
    parsed = parser().parse_args([*words, NAMED] if words[0] == "list" else [words[0], NAMED, *words[1:]])
    assert not targets.use_named_cluster(parsed, Console())
    assert server.asked == []


@pytest.mark.parametrize(
    ("words", "distribution", "extra"),
    [
        (["list", "-t", "kubernetes-session", NAMED], "firesteel-kubernetes", "kubernetes"),
        (["list", "-Dexecution.target=kubernetes-application", NAMED], "firesteel-kubernetes", "kubernetes"),
        (["list", "-t", "yarn-session"], "firesteel-yarn", "yarn"),
        (["list", "-Dyarn.application.id=application_1_1"], "firesteel-yarn", "yarn"),
        (["list", "-yid", "application_1_1"], "firesteel-yarn", "yarn"),
        (["kubernetes-session", NAMED], "firesteel-kubernetes", "kubernetes"),
        (["run-application", "-t", "yarn", "p.py"], "firesteel-yarn", "yarn"),
    ],
)
def test_a_cluster_manager_that_is_not_installed_means_no_other_cluster(
    words: list[str], distribution: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uninstall(distribution, monkeypatch)
    assert main(words) == exit_codes.WRONG
    assert f"is not installed: pip install 'firesteel[{extra}]'. " in capsys.readouterr().err


def test_a_cluster_without_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-t", "kubernetes-session", "p.py"]) == exit_codes.WRONG
    assert "say which cluster: -Dkubernetes.cluster-id=NAME" in capsys.readouterr().err


def test_an_application_takes_its_program_from_the_image_or_a_store() -> None:
    def words(*arguments: str) -> list[str]:
        return commands._program(parser().parse_args(["run-application", "-t", "kubernetes-application", *arguments]))

    assert words("local:///opt/job.py", "--rate", "7") == ["--python", "/opt/job.py", "--", "--rate", "7"]
    assert words("-s", "s3://b/chk-7", "-n", "s3://b/job.py") == [
        "--python", "s3://b/job.py", "--fromSavepoint", "s3://b/chk-7", "--allowNonRestoredState", "--",
    ]  # fmt: skip
    assert words("-pyfs", "local:///opt/programs", "-pym", "shop.job") == [
        "--pyModule", "shop.job", "--pyFiles", "/opt/programs", "--",
    ]  # fmt: skip
    with pytest.raises(ConfigurationError, match="does not see files of this host; name one of the image"):
        words("job.py")
    with pytest.raises(ConfigurationError, match="-pyfs local:///opt/programs"):
        words("-pym", "shop.job")
