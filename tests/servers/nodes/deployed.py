"""A cluster of Firesteel on a real Kubernetes: its pods, its REST API, and what is said where a test fails."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.integration.processes.cluster import BIN, rest_call
from tests.servers.nodes.cluster import KubernetesCluster
from tests.waiting import NotInTimeError

PATIENCE = 240.0


def until(condition: Callable[[], Any], what: str | Callable[[], str], patience: float = PATIENCE) -> Any:
    """The condition's first true value; it may be a question to kubectl, which costs a process.

    Args:
        condition: what has to hold.
        what: its words, or what finds them out when it did not come true.
        patience: seconds for which it is waited.

    Raises:
        NotInTimeError: it did not come true.
    """
    deadline = time.monotonic() + patience
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise NotInTimeError(f"it did not come true in {patience:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.3)
    return value


class Deployed:
    """A cluster of Firesteel in a namespace of its own.

    Args:
        cluster: the Kubernetes.
        folder: for files of its own.
        namespace: where it is.
        rest_service: Service of its REST API.
        secret: that has the token of its REST API.
        container: of its pods, that is Firesteel's.
    """

    def __init__(
        self, cluster: KubernetesCluster, folder: Path, namespace: str, rest_service: str, secret: str, container: str
    ) -> None:
        self.cluster, self.folder, self.name = cluster, folder, namespace
        self._rest_service, self._secret, self._container = rest_service, secret, container

    def kubectl(self, *words: str, check: bool = True, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run kubectl for the namespace."""
        return self.cluster.kubectl("--namespace", self.name, *words, check=check, **more)

    def get(self, *words: str) -> Any:
        """Objects of the namespace."""
        return json.loads(self.kubectl("get", *words, "-o", "json").stdout)

    def restarts(self, pod: str) -> int:
        """How often its container was started again."""
        return int(self.get("pod", pod)["status"]["containerStatuses"][0]["restartCount"])

    def process_of(self, pod: str) -> int:
        """The first process of its container, as the pod numbers it."""
        named = "case $(tr '\\0' ' ' <$p/cmdline) in *bin/firesteel-*) echo ${p#/proc/};; esac"
        script = f"for p in /proc/[0-9]*; do {named}; done"
        pids = self.kubectl("exec", pod, "-c", self._container, "--", "sh", "-c", script).stdout.split()
        assert len(pids) > 1, f"no service runs in {pod}"  # the shell has these words, too
        return min(map(int, pids))

    def take_memory(self, pod: str) -> None:
        """More than its container may have. Who takes it has a lower score than all others there, so the kernel ends
        these: slots, the executor, the service."""
        hoard = "held = [b'x' * (1 << 20) for _ in range(20000)]"
        script = f"with open('/proc/self/oom_score_adj', 'w') as file: file.write('0')\n{hoard}"
        self.kubectl("exec", pod, "-c", self._container, "--", "python3", "-I", "-S", "-c", script, check=False)

    @cached_property
    def rest_host(self) -> str:
        """Address and port of the REST API's Service, which the host reaches."""
        spec = self.get("service", self._rest_service)["spec"]
        return f"{spec['clusterIP']}:{spec['ports'][0]['port']}"

    @cached_property
    def token_file(self) -> Path:
        """A file with the token of the REST API."""
        file = self.folder / f"{self.name}-token"
        data = self.get("secret", self._secret)["data"]
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
        verb, *rest = arguments
        return self.command(verb, "-m", self.rest_host, f"-Dfiresteel.rest.token-file={self.token_file}", *rest)

    def command(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the command ``firesteel`` on the host as it is given."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FIRESTEEL_")}
        done = subprocess.run(
            [str(BIN / "firesteel"), *words],
            capture_output=True, text=True, timeout=400, env=environment, stdin=subprocess.DEVNULL, cwd=self.folder,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def state(self) -> str:
        """What Kubernetes knows and the services have said, for a test that fails."""
        texts = [self.kubectl("get", "pods,events", "-o", "wide", check=False).stdout[-6000:]]
        for pod in json.loads(self.kubectl("get", "pods", "-o", "json", check=False).stdout or '{"items": []}')[
            "items"
        ]:
            name = pod["metadata"]["name"]
            for more in ((), ("--previous",)):
                log = self.kubectl("logs", name, "--all-containers", "--tail=60", *more, check=False)
                texts.append(f"--- {name} {' '.join(more)}\n{log.stdout}")
        return "\n".join(texts)
