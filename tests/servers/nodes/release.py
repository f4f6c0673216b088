"""A release of the chart on a real Kubernetes: helm, pods, the REST API, and faults of pods."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.integration.processes.cluster import BIN, rest_call
from tests.servers.helm.chart import CHART
from tests.servers.nodes.cluster import KubernetesCluster
from tests.waiting import NotInTimeError

PATIENCE = 240.0
COMPONENTS = ("dispatcher", "resourcemanager", "jobmaster", "taskmanager")


def until(condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """The condition's first true value; it may be a question to kubectl, which costs a process."""
    deadline = time.monotonic() + patience
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise NotInTimeError(f"it did not come true in {patience:g} s: {what}")
        time.sleep(0.3)
    return value


class Release:
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
        self.cluster, self._helm, self.folder, self.values, self.name = cluster, helm, folder, values, name
        self.full = f"{name}-firesteel"

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
        """``helm install --wait``."""
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

    def kubectl(self, *words: str, check: bool = True, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run kubectl for the namespace."""
        return self.cluster.kubectl("--namespace", self.name, *words, check=check, **more)

    def get(self, *words: str) -> Any:
        """Objects of the namespace."""
        return json.loads(self.kubectl("get", *words, "-o", "json").stdout)

    def pods(self, component: str) -> list[dict[str, Any]]:
        """Its pods."""
        label = f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component={component}"
        return list(self.get("pods", "-l", label)["items"])

    def names(self, component: str) -> list[str]:
        """Of its pods that are not being deleted."""
        found = self.pods(component)
        return sorted(one["metadata"]["name"] for one in found if "deletionTimestamp" not in one["metadata"])

    def leader(self, component: str) -> str:
        """The pod that leads, where leaders are elected; else the first one."""
        leases = self.get("leases")["items"]
        name = "jobmaster-host" if component == "jobmaster" else component
        holders = " ".join(one["spec"].get("holderIdentity") or "" for one in leases if name in one["metadata"]["name"])
        return next((pod for pod in self.names(component) if pod in holders), self.names(component)[0])

    def ready(self, component: str) -> list[str]:
        """Pods of it that are Ready, by their uids."""
        found = []
        for one in self.pods(component):
            states = {state["type"]: state["status"] for state in one["status"].get("conditions", ())}
            if states.get("Ready") == "True" and "deletionTimestamp" not in one["metadata"]:
                found.append(one["metadata"]["uid"])
        return found

    def restarts(self, pod: str) -> int:
        """How often its container was started again."""
        return int(self.get("pod", pod)["status"]["containerStatuses"][0]["restartCount"])

    def wait_ready(self, component: str, count: int = 1, without: str = "") -> None:
        """Until so many pods are Ready, none of them the one with this uid."""
        until(
            lambda: len(found := self.ready(component)) == count and without not in found,
            f"{count} pods of the {component} are Ready",
        )

    def process_of(self, pod: str) -> int:
        """The first process of its container, as the pod numbers it."""
        named = "case $(tr '\\0' ' ' <$p/cmdline) in *bin/firesteel-*) echo ${p#/proc/};; esac"
        script = f"for p in /proc/[0-9]*; do {named}; done"
        found = self.kubectl("exec", pod, "-c", "firesteel", "--", "sh", "-c", script).stdout.split()
        assert len(found) > 1, f"no service runs in {pod}"  # the shell has these words, too
        return min(map(int, found))

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

    @property
    def rest_host(self) -> str:
        """Address and port of the REST API's Service, which the host reaches."""
        spec = self.get("service", f"{self.full}-rest")["spec"]
        return f"{spec['clusterIP']}:{spec['ports'][0]['port']}"

    @property
    def token_file(self) -> Path:
        """A file with the token of the REST API."""
        file = self.folder / f"{self.name}-token"
        data = self.get("secret", self.full)["data"]
        file.touch(mode=0o600)
        file.write_bytes(base64.b64decode(data["rest-token"]))
        return file

    def rest(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and JSON of a REST request.

        Raises:
            OSError: nobody answers.
        """
        return rest_call(f"http://{self.rest_host}", method, path, body, token=self.token_file.read_text())

    def ask(self, path: str) -> dict[str, Any]:
        """A REST answer; nothing while there is none."""
        with suppress(OSError, ValueError, AssertionError):
            status, answer = self.rest("GET", path)
            if status == 200:
                return dict(answer)
        return {}

    def wait_slots(self, total: int) -> None:
        """Until so many slots are registered."""
        until(lambda: self.ask("/overview").get("slots-total") == total, f"{total} slots")

    def firesteel(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command ``firesteel`` on the host for this cluster."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FIRESTEEL_")}
        verb, *rest = arguments
        token = f"-Dfiresteel.rest.token-file={self.token_file}"
        done = subprocess.run(
            [str(BIN / "firesteel"), verb, "-m", self.rest_host, token, *rest],
            capture_output=True, text=True, timeout=300, env=environment, stdin=subprocess.DEVNULL, cwd=self.folder,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def state(self) -> str:
        """What Kubernetes knows and the services have said, for a test that fails."""
        found = [self.kubectl("get", "pods,events", "-o", "wide", check=False).stdout[-6000:]]
        for one in json.loads(self.kubectl("get", "pods", "-o", "json", check=False).stdout or '{"items": []}')[
            "items"
        ]:
            name = one["metadata"]["name"]
            for more in ((), ("--previous",)):
                log = self.kubectl("logs", name, "--all-containers", "--tail=60", *more, check=False)
                found.append(f"--- {name} {' '.join(more)}\n{log.stdout}")
        return "\n".join(found)
