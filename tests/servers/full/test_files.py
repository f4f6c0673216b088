"""The files of docker-compose.yml's profile "full", as the programs that read them take them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.servers.compose_cluster import ROOT, SERVICES, command

FULL = ROOT / "deploy" / "compose" / "full"
FULL_ONLY = {"prepare", "historyserver", "minio", "kafka", "prometheus", "grafana", "collector", "jaeger"}
pytestmark = pytest.mark.may_skip(reason="a machine where no Docker engine, or no Prometheus, can be had")


def services(folder: Path, profile: str, **variables: str) -> dict[str, Any]:
    """What Compose makes of the file."""
    file = folder / f"env-{profile}"
    environment = {"FIRESTEEL_SECRET": "0123456789abcdef", **variables}
    file.write_text("".join(f"{name}={value}\n" for name, value in environment.items()))
    words = ["docker", "compose", "--file", str(ROOT / "docker-compose.yml"), "--env-file", str(file)]
    profiles = ["--profile", profile] if profile else []
    return dict(json.loads(command(*words, *profiles, "config", "--format", "json").stdout)["services"])


def test_without_the_profile_there_is_the_core(engine: None, tmp_path: Path) -> None:
    assert set(services(tmp_path, "")) == {"secret", *SERVICES}


def test_the_profile_has_all_and_images_can_be_others(engine: None, tmp_path: Path) -> None:
    others = FULL_ONLY - {"prepare", "historyserver"}
    images = {f"FIRESTEEL_{name.upper()}_IMAGE": f"mine/{name}:1" for name in others}
    by_name = services(tmp_path, "full", **images)
    assert set(by_name) == {"secret", *SERVICES, *FULL_ONLY}
    assert {name: by_name[name]["image"] for name in others} == {name: f"mine/{name}:1" for name in others}
    by_default = services(tmp_path, "full")
    assert all(re.fullmatch(r"[\w./-]+:v?[\w.-]*\d[\w.-]*", by_default[name]["image"]) for name in others), (
        "versions are fixed"
    )
    for name, service in by_default.items():
        assert {port["host_ip"] for port in service.get("ports", [])} <= {"127.0.0.1"}, name
        for mount in service.get("volumes", []):
            assert mount["type"] == "volume" or Path(mount["source"]).exists(), mount
    for name in SERVICES:
        prepared = by_default[name]["depends_on"]["prepare"]
        assert (prepared["condition"], prepared["required"]) == ("service_completed_successfully", False)


def test_prometheus_takes_its_configuration(prometheus: Path) -> None:
    done = subprocess.run(
        [prometheus / "promtool", "check", "config", FULL / "prometheus.yml"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is valid prometheus config file syntax" in done.stdout


def test_the_boards_expressions_are_promql(prometheus: Path, tmp_path: Path) -> None:
    board = json.loads((FULL / "grafana" / "dashboards" / "firesteel.json").read_text())
    expressions = [target["expr"].replace("$job", ".*") for panel in board["panels"] for target in panel["targets"]]
    rules = [{"record": f"board:{number}", "expr": expression} for number, expression in enumerate(expressions)]
    file = tmp_path / "rules.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    done = subprocess.run([prometheus / "promtool", "check", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(expressions)} rules found" in done.stdout
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
