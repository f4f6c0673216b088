"""A release of the chart on a real Kubernetes: helm, its pods, and their faults."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.servers.helm.chart import CHART
from tests.servers.nodes.cluster import KubernetesCluster
from tests.servers.nodes.deployed import Deployed, until

COMPONENTS = ("dispatcher", "resourcemanager", "jobmaster", "taskmanager")


class Release(Deployed):
    """An installation.

    Args:
        cluster: where.
        helm: the program.
        folder: for files of its own.
        values: of the chart.
        name: of the release, and of its namespace.
    """

    def __init__(
        self, cluster: KubernetesCluster, helm: Path, folder: Path, values: dict[str, Any], name: str = "demo"
    ) -> None:
        self.full = f"{name}-firesteel"
        super().__init__(cluster, folder, name, f"{self.full}-rest", self.full, "firesteel")
        self._helm, self.values = helm, values

    def helm(self, *words: str, check: bool = True, timeout: float = 400) -> subprocess.CompletedProcess[str]:
        """Run helm for the namespace."""
        environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        done = subprocess.run(
            [str(self._helm), "--kubeconfig", str(self.cluster.kubeconfig), "--namespace", self.name, *words],
            capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
            env={**environment, "HELM_CACHE_HOME": f"{self.folder}/helm", "HELM_DATA_HOME": f"{self.folder}/helm"},
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(f"helm {' '.join(words)}: {done.stdout}{done.stderr}\n{self.state()}")
        return done

    def install(self) -> None:
        self.helm("install", self.name, str(CHART), "--create-namespace", *self._given(), "--wait", "--timeout", "5m")

    def upgrade(self, values: dict[str, Any], check: bool = True, timeout: str = "5m") -> Any:
        """``helm upgrade --wait`` with other values."""
        self.values = values
        words = ("upgrade", self.name, str(CHART), *self._given(), "--wait", "--timeout", timeout)
        return self.helm(*words, check=check)

    def _given(self) -> tuple[str, ...]:
        file = self.folder / f"{self.name}-values.json"
        file.write_text(json.dumps(self.values))
        return ("--values", str(file))

    def pods(self, component: str) -> list[dict[str, Any]]:
        label = f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component={component}"
        return list(self.get("pods", "-l", label)["items"])

    def names(self, component: str) -> list[str]:
        """Of its pods that are not being deleted."""
        pods = self.pods(component)
        return sorted(pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"])

    def left(self) -> list[str]:
        """Objects in its namespace that Kubernetes and the test have not made."""
        words = "pods,services,secrets,configmaps,persistentvolumeclaims,roles,leases,jobs,serviceaccounts"
        return [
            f"{item['kind']}/{item['metadata']['name']}"
            for item in self.get(words)["items"]
            if item["metadata"]["name"] not in ("store", "default", "kube-root-ca.crt")
        ]

    def leader(self, component: str) -> str:
        """The pod that leads, where leaders are elected; else the first one."""
        leases = self.get("leases")["items"]
        name = "jobmaster-host" if component == "jobmaster" else component
        holders = " ".join(
            lease["spec"].get("holderIdentity") or "" for lease in leases if name in lease["metadata"]["name"]
        )
        return next((pod for pod in self.names(component) if pod in holders), self.names(component)[0])

    def ready(self, component: str) -> list[str]:
        """Pods of it that are Ready, by their uids."""
        uids = []
        for pod in self.pods(component):
            states = {state["type"]: state["status"] for state in pod["status"].get("conditions", ())}
            if states.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]:
                uids.append(pod["metadata"]["uid"])
        return uids

    def wait_ready(self, component: str, count: int = 1, without: str = "") -> None:
        """Until so many pods are Ready, none of them the one with this uid."""
        until(
            lambda: len(pods := self.ready(component)) == count and without not in pods,
            f"{count} pods of the {component} are Ready",
        )

    def kill(self, component: str) -> None:
        """kill -9 of the first process of one of its containers; Kubernetes starts the container again."""
        pod = self.names(component)[0]
        before, process = self.restarts(pod), self.process_of(pod)
        self.kubectl("exec", pod, "-c", "firesteel", "--", "sh", "-c", f"kill -9 {process}", check=False)
        until(lambda: self.restarts(pod) > before, f"the container of {pod} is started again")

    def delete_pod(self, component: str, *options: str) -> None:
        """``kubectl delete pod`` of one of its pods, and wait until another one is Ready."""
        name, count = self.names(component)[0], len(self.names(component))
        uid = self.get("pod", name)["metadata"]["uid"]
        self.kubectl("delete", "pod", name, *options, timeout=120)
        self.wait_ready(component, count, uid)
