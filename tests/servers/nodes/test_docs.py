"""The commands of docs/kubernetes.md, one after the other, on a real Kubernetes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

from tests.integration.processes.cluster import BIN
from tests.ports import free_ports
from tests.servers.helm.chart import ROOT
from tests.servers.nodes.cluster import KubernetesCluster
from tests.servers.nodes.conftest import ON_NODES

pytestmark = ON_NODES
_BLOCK = re.compile(r"<!-- kubernetes -->\n```sh\n(.*?)```", re.DOTALL)


def test_the_commands_of_the_page(cluster: KubernetesCluster, helm: Path, tmp_path: Path) -> None:
    blocks = _BLOCK.findall((ROOT / "docs" / "kubernetes.md").read_text())
    assert len(blocks) == 3
    (port,) = free_ports(1)
    text = "\n".join(blocks).replace("8081:8081", f"{port}:8081").replace("127.0.0.1:8081", f"127.0.0.1:{port}")
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    # Nothing but less CPU than a real node has.
    small = tmp_path / "small.json"
    kinds = ("dispatcher", "resourceManager", "jobMaster", "taskManager")
    small.write_text(json.dumps({kind: {"cpu": {"request": "50m"}} for kind in kinds}))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "helm").write_text(
        f'#!/bin/sh\ncase $1 in install) set -- "$@" --values {small} --timeout 5m;; esac\nexec {helm} "$@"\n'
    )
    (programs / "helm").chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    environment = {key: value for key, value in environment.items() if not key.startswith("FIRESTEEL_")}
    environment |= {
        "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(tmp_path),
        "PATH": f"{programs}:{cluster.programs}:{BIN}:{os.environ['PATH']}",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-e", "-x", "-c", f"trap 'kill $(jobs -p)' EXIT\n{text}"],
        capture_output=True, text=True, timeout=1500, stdin=subprocess.DEVNULL, env=environment, cwd=tmp_path,
    )  # fmt: skip
    pods = cluster.kubectl("--namespace", "streams", "get", "pods,events", check=False).stdout
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:] + pods
    assert "words in " in done.stdout
    assert 'release "demo" uninstalled' in done.stdout
